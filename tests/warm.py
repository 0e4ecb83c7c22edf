"""A warm process that forks children in a moment: imports are paid once, each child is a job of its own that may be killed.

The server imports what it is told (and calls ``module:function``, which must leave no thread behind), then forks for every request; a child runs ``module:function`` with JSON arguments in a
process group of its own, so that killing it kills its workers too. It may be told to be killed after so many seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit status, or minus the signal that killed it, and what it printed."""

    status: int
    output: str

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


class Warm:
    """The parent's side: ``start`` children, ``wait`` for them, in any order."""

    def __init__(self, *modules: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.warm", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def _ask(self, **request: Any) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the server ended"
        return json.loads(answer)

    def start(self, target: str, *args: Any, output: Path, **environment: str) -> int:
        """Fork a child that runs ``module:function(*args)`` and prints to `output`; returns its process id."""
        return int(self._ask(do="start", target=target, args=args, output=str(output), environment=environment))

    def wait(self, pid: int, *, kill_after: float | None = None, output: Path) -> Ended:
        """Wait until a child ended; with `kill_after` its whole group is killed after so many seconds."""
        status = int(self._ask(do="wait", pid=pid, kill_after=kill_after))
        return Ended(status, output.read_text("utf-8", "replace") if output.exists() else "")

    def run(self, target: str, *args: Any, output: Path, kill_after: float | None = None, **environment: str) -> Ended:
        return self.wait(self.start(target, *args, output=output, **environment), kill_after=kill_after, output=output)

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(modules: list[str]) -> None:
    import importlib

    for name in modules:
        module, _, function = name.partition(":")
        made = importlib.import_module(module)
        if function:
            getattr(made, function)()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        request = json.loads(line)
        answer = _start(request) if request["do"] == "start" else _wait(request["pid"], request["kill_after"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _start(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        out = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for number in (1, 2):
            os.dup2(out, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(request["environment"])
        module, _, function = request["target"].partition(":")
        import importlib

        status = getattr(importlib.import_module(module), function)(*request["args"]) or 0
    except BaseException:  # noqa: BLE001 (told, whatever it is)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(pid: int, kill_after: float | None) -> int:
    if kill_after is not None:
        ended = _sigchld(pid, kill_after)
        if not ended:
            for one in (pid, None):
                try:
                    os.killpg(pid, signal.SIGKILL) if one is None else os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _sigchld(pid: int, seconds: float) -> bool:
    """Wait for a child's end, at most so long; true where it ended. Earlier children's signals are passed over."""
    import time

    until = time.monotonic() + seconds
    while True:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        left = until - time.monotonic()
        if left <= 0:
            return False
        signal.sigtimedwait({signal.SIGCHLD}, left)


if __name__ == "__main__":
    _serve(sys.argv[1:])
