"""Locks of the system: one holder, or several that share; a file system without them is told apart."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tokenreel.store.flock import flock_now


def test_one_holds_it_or_several_share_it(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    try:
        assert flock_now(first) is True
        assert flock_now(second) is False
        os.close(first)
        assert flock_now(second, shared=True) is True
        first = os.open(tmp_path, os.O_RDONLY)
        assert flock_now(first, shared=True) is True
        assert flock_now(first) is False
    finally:
        os.close(first)
        os.close(second)


@pytest.mark.parametrize(("number", "answer"), [(errno.ENOLCK, None), (errno.EOPNOTSUPP, None), (errno.EIO, OSError)])
def test_a_file_system_without_locks(
    monkeypatch: pytest.MonkeyPatch, number: int, answer: type[OSError] | None
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    if answer is None:
        assert flock_now(0) is None
    else:  # what says nothing of locks is not taken for their absence
        with pytest.raises(answer):
            flock_now(0)
