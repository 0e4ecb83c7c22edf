"""How commands end: signals, outputs that are closed, full or of another encoding, help."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import SCRIPT, run
from tokenreel.cli.app import SHORT, command
from tokenreel.formats.megatron_write import MegatronWriter


def shell(line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which ``tokenreel`` is ours."""
    made = f'tokenreel() {{ "{sys.executable}" -m tokenreel "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", made], env={**os.environ, **env}, capture_output=True, text=True)


def start(*arguments: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tokenreel", *map(str, arguments)]
    # A test runner in the background ignores SIGINT, and children inherit that.
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def blocked_build(folder: Path, *options: str) -> tuple[subprocess.Popen[str], int]:
    """Start a build that waits for its recipe, a pipe; returns it once it reads, and the pipe's other end."""
    fifo = folder / "recipe.toml"
    os.mkfifo(fifo)
    process = start("build", fifo, "--out", folder / "out", *options)
    for _ in range(3000):
        try:
            pipe = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
        else:
            time.sleep(0.3)  # from opening it to waiting for its bytes
            return process, pipe
    raise TimeoutError


@pytest.mark.parametrize(
    ("number", "status", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_signal_is_answered(tmp_path: Path, number: signal.Signals, status: int, word: str, as_json: bool) -> None:
    process, pipe = blocked_build(tmp_path, *(["--json"] if as_json else []))
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    os.close(pipe)
    assert process.returncode == status
    if as_json:
        assert json.loads(out)["error"]["code"] == "interrupted"
        assert err == ""
    else:
        assert (out, err) == ("", f"error: {word}; run the command again to go on\n")
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_merge_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with MegatronWriter(tmp_path / "a", "uint16") as writer:
        for _ in range(40):
            writer.add_documents(np.zeros(1 << 20, "uint16"), np.array([1 << 20]))
        writer.finish()
    process = start("merge", tmp_path / "a", tmp_path / "out" / "all")
    while process.poll() is None and not list(tmp_path.glob("out/.*")):
        time.sleep(0.001)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert list(tmp_path.glob("out/*")) == []


@pytest.mark.parametrize("what", ["formats", "--help", "--version", "explain --list --json", "verify -h"])
def test_an_output_that_cannot_be_written_exits_3(what: str) -> None:
    for to in (">/dev/full", ">&-", ">/dev/full 2>/dev/full", ">&- 2>&-"):
        done = shell(f"tokenreel {what} {to}")
        assert done.returncode == 3, to
        assert "bug" not in done.stderr
        assert "Traceback" not in done.stderr
        if "2>" not in to:
            assert "STO003 standard output" in done.stderr
    assert shell(f"tokenreel {what} | true; exit ${{PIPESTATUS[0]}}").returncode == 0


def test_a_failing_command_keeps_its_status_without_an_output(tmp_path: Path) -> None:
    for to in (">/dev/full", ">&-", "2>/dev/full", ">&- 2>&-"):
        assert shell(f"tokenreel verify {tmp_path}/absent --json {to}").returncode == 3
        assert shell(f"tokenreel explain QQQ777 {to}").returncode == 2


def test_a_bug_is_reported_where_nothing_can_be_printed() -> None:
    program = (
        "import tokenreel.cli.app as app; from tokenreel.cli import main\n"
        "def broken(): raise ZeroDivisionError\n"
        "app.command = broken\n"
        "raise SystemExit(main(['formats', '--json']))"
    )
    for to in (">/dev/full", ">&-", ">&- 2>&-", ">/dev/full 2>/dev/full"):
        assert shell(f'"{sys.executable}" -c "{program}" {to}').returncode == 70


def test_a_closed_stdout_never_becomes_a_file_of_ours(tmp_path: Path) -> None:
    program = "from tokenreel.cli.output import open_output; open_output(); print(open('x', 'w').fileno(), file=open('y','w'))"
    done = subprocess.run(["bash", "-c", f'"{sys.executable}" -c "{program}" <&- >&- 2>&-'], cwd=tmp_path)
    assert done.returncode == 0
    assert int((tmp_path / "y").read_text()) > 2


def test_every_text_can_be_printed_in_every_encoding(tmp_path: Path) -> None:
    for name in ("é", os.fsdecode(b"\xff")):
        for encoding in ("ascii", "utf-8", "latin-1"):
            seen = run("build", tmp_path / name, "--out", "x", "--json", env={"PYTHONIOENCODING": encoding})
            assert seen.json["error"]["where"]["path"] == str(tmp_path / name)
        for encoding in ("ascii", "utf-8"):
            plain = run("build", tmp_path / name, "--out", "x", env={"PYTHONIOENCODING": encoding})
            assert plain.status == seen.status
            assert "RCP001" in plain.err


def test_help_says_what_there_is() -> None:
    helped = run("--help").out
    assert run("-h").out == helped
    for text in ("Exit status: 0 fine", "143 terminated", "tokenreel verify /data"):
        assert text in helped
    listed = [line.split()[0] for line in helped.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed == list(SHORT) == list(command().commands)


@pytest.mark.parametrize("name", SHORT)
def test_every_command_has_help_without_python_types(name: str) -> None:
    helped = run(name, "-h")
    assert helped.status == 0
    assert "list[" not in helped.out
    assert "<path>" not in helped.out
    assert SCRIPT.name not in helped.err
