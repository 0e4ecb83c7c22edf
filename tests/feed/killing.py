"""A job that may be killed anywhere, as a child process: it logs what it was given, saves its state, and goes on."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.feed.jobs import ORDERS, made_order, policy_of, row_names, write_data
from tests.feed.rims import RIMS, gather_of
from tokenreel.feed.gather import Gatherer
from tokenreel.feed.opening import open_feed
from tokenreel.store import atomic
from tokenreel.testing import Setting
from tokenreel.testing.exactly_once import gathered


def warm_up() -> None:
    """Load every kernel that a job needs, once, without a thread."""
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        for order in ORDERS:
            with open_feed(made_order(Path(folder), order), rows=policy_of(order), batch=6, prefetch=0) as feed:
                for batch in feed:
                    row_names(batch)
                feed.state_dict()


def kill_all() -> None:
    """Kill this process and its workers: they are one group."""
    os.killpg(0, signal.SIGKILL)


def prepare_kill(kill: dict[str, Any] | None) -> None:
    """Set a trap: where the job is when its moment comes decides nothing but where it dies."""
    if kill is None:
        return
    count = [kill.get("number", 0)]
    if kill["at"] in ("gather", "prefetch"):
        whole = Gatherer.batch

        def gather(self: Gatherer, table: Any, out: Any = None) -> Any:
            count[0] -= 1
            if count[0] < 0:
                # In the middle of a batch: half the rows are written, another thread may be waiting for them.
                threading.Thread(target=kill_all).start()
            return whole(self, table, out)

        Gatherer.batch = gather  # type: ignore[method-assign]
    if kill["at"] == "saving":
        rename = atomic.commit

        def commit(temporary: Path, target: Path) -> None:
            count[0] -= 1
            if count[0] < 0:
                kill_all()
            rename(temporary, target)

        atomic.commit = commit


def job(said: dict[str, Any]) -> None:
    """Run one attempt: ranks in step, a line for every step, the state every `save` steps and at the end."""
    folder, kill = Path(said["folder"]), said["kill"]
    log = os.open(folder / said["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    path = folder / said["state"]
    setting = Setting(**said["setting"])
    state = json.loads(path.read_bytes()) if path.exists() else None
    made, policy, make = made_order(folder, said["order"]), policy_of(said["order"]), RIMS[said["rim"]]
    prepare_kill(kill)
    loaders = [make(made, policy, setting, rank, state, said["prefetch"]) for rank in range(setting.world)]
    for loader in loaders:
        if state is not None and loader.state_dict() != state:
            note(log, {"wrong": f"saved {loader.state_dict()}, loaded {state}"})
    note(log, {"position": 0 if state is None else state["position"]})
    iterators = [iter(loader) for loader in loaders]
    if kill is not None and kill["at"] == "before":
        kill_all()
    step = 0
    while True:
        parts = [row_names(batch) for batch in (next(one, None) for one in iterators) if batch is not None]
        if not parts:
            break
        rows = gathered(parts, gather_of(said["rim"]))  # type: ignore[arg-type]
        states = [loader.state_dict() for loader in loaders]
        if any(one != states[0] for one in states):
            note(log, {"wrong": f"ranks disagree: {states}"})
        note(log, {"rows": [[number, labels.hex()] for number, labels in rows]})
        step += 1
        if kill is not None and kill["at"] == "between" and step == kill["number"]:
            kill_all()
        if kill is not None and kill["at"] == "epoch" and states[0]["position"] >= (made.order.length or 0) // 2:
            kill_all()
        if step % said["save"] == 0:
            save(path, states[0])
    if kill is not None and kill["at"] == "end":
        kill_all()
    save(path, loaders[0].state_dict())
    if kill is not None and kill["at"] == "saved":
        kill_all()
    note(log, {"done": True})
    for loader in loaders:
        loader.close()


def save(path: Path, state: dict[str, Any]) -> None:
    atomic.write_bytes_atomic(path, json.dumps(state).encode())


def note(log: int, line: dict[str, Any]) -> None:
    os.write(log, json.dumps(line).encode() + b"\n")


def consumed(log: Path) -> tuple[list[tuple[int, bytes]], list[str], bool]:
    """Return the rows that a job and its later attempts trained on, what was wrong, and whether it came to its end.

    An attempt that begins at a position supersedes what earlier ones read from there on; beginning past what was ever
    read is a loss.
    """
    rows: list[tuple[int, bytes]] = []
    wrong, done = [], False
    for text in log.read_text().splitlines():
        line = json.loads(text)
        if "position" in line:
            if line["position"] > len(rows):
                wrong.append(f"begins at {line['position']}, {len(rows)} were read")
            del rows[line["position"] :]
        rows += [(number, bytes.fromhex(labels)) for number, labels in line.get("rows", ())]
        wrong += [line["wrong"]] if "wrong" in line else []
        done = done or "done" in line
    return rows, wrong, done
