"""Every parser on damaged files from memory: it refuses or reads; thousands in the slow run, hundreds in the fast one."""

from __future__ import annotations

import pytest

from tests.convert.test_pairs import WRITABLE, Case
from tests.verify.formats import bare, made
from tokenreel.testing.fuzz import fuzz, read_all

FAST, SLOW = 250, 200_000
LONG = {"levanter": 20_000}
"""Fewer where one file takes tens of milliseconds: a chunk of zarr's is unpacked whole."""
ONE_SHARD = Case("one shard", "uint16", "suffix=2", (((5, 6, 2), (700, 2), (30, 31, 32, 2), (8, 2)),), {})
PBIN = (
    (12).to_bytes(8, "little")
    + (2).to_bytes(4, "little")
    + bytes(range(1, 13))
    + b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00]\x94(K\x00K\x04\x86\x94K\x04K\x08\x86\x94e."
)


def files_of(name: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {"a.pbin": PBIN} if name == "pbin" else bare(made(name, tmp_path_factory, ONE_SHARD))


@pytest.mark.parametrize("name", [*WRITABLE, "pbin"])
def test_a_few_hundred(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    files = files_of(name, tmp_path_factory)
    assert read_all(files, dtype=name.removeprefix("raw-") if name.startswith("raw") else None) > 0
    done = fuzz(files, FAST, seed=1)
    assert done.failures == []
    assert done.refused + done.read == done.tried == FAST


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WRITABLE, "pbin"])
def test_two_hundred_thousand(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    count = LONG.get(name, SLOW)
    done = fuzz(files_of(name, tmp_path_factory), count, seed=2)
    assert done.failures == []
    assert done.tried == count
