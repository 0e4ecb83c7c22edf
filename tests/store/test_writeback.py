"""Files are brought to the disk while they are written: a thread asks for it, and nothing hangs on it."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from tokenreel.store import writeback
from tokenreel.store.writeback import EVERY, WriteBack


class Pool:
    """Takes work and lets the test end it."""

    def __init__(self) -> None:
        self.asked: list[Future[None]] = []

    def submit(self, *_: object) -> Future[None]:
        self.asked.append(Future())
        return self.asked[-1]


def test_one_sync_at_a_time_and_only_after_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    monkeypatch.setattr(writeback, "_threads", lambda: pool)
    file = WriteBack(tmp_path / "x")
    file.wrote(EVERY - 1)
    assert not pool.asked
    file.wrote(1)
    file.wrote(5 * EVERY)
    assert len(pool.asked) == 1, "the first has not come back"
    pool.asked[0].set_result(None)
    file.wrote(1)
    assert len(pool.asked) == 2


def test_a_file_that_is_gone_is_no_error(tmp_path: Path) -> None:
    there = tmp_path / "x"
    there.write_bytes(b"1")
    writeback._sync(there)
    there.unlink()
    writeback._sync(there)
    assert not there.exists()
