"""Ids spilled by their top bits, in memory and on disk, and matched, against dictionaries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.build import id_matching, id_spill
from tokenreel.build.id_matching import each_part, match
from tokenreel.build.id_spill import IdSpill, ids_of, part_of, parts_for


def drawn(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, (rows, 2), dtype=np.uint64)


@pytest.mark.parametrize("parts", [1, 4, 512])
@pytest.mark.parametrize("memory", [0, 100_000, 1 << 30])
def test_every_part_has_its_rows_in_order(tmp_path: Path, parts: int, memory: int) -> None:
    ids = drawn(3, 40_000)
    ids[20_000:30_000, 0] >>= np.uint64(3)  # a part that fills more than one block
    with IdSpill(parts, tmp_path, memory) as spill:
        at = 0
        for size in (1, 0, 7, 12_000, 3, 27_989):
            spill.add(ids[at : at + size], np.arange(at, at + size))
            at += size
        assert at == len(ids) == spill.rows
        part = part_of(ids[:, 0], parts)
        for number, rows in enumerate(spill.read()):
            mine = np.flatnonzero(part == number)
            assert rows["value"].tolist() == mine.tolist()
            assert np.array_equal(ids_of(rows), ids[mine])
        assert any(tmp_path.iterdir()) == (memory < 1 << 30 and parts < 512)
    assert not any(tmp_path.iterdir())


def test_parts_beyond_the_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_spill, "MOST_OPEN", 2)
    ids = drawn(5, 50_000)
    with IdSpill(8, tmp_path, 0) as spill:
        spill.add(ids, np.arange(len(ids)))
        found = np.concatenate(list(each_part(8, spill.part, 2)))
    assert np.array_equal(ids_of(found)[np.argsort(found["value"])], ids)


def test_rows_that_nobody_may_write_to(tmp_path: Path) -> None:
    ids = drawn(6, 5)
    ids.flags.writeable = False
    with IdSpill(2, tmp_path) as spill:
        spill.add(ids, np.arange(5))
        assert sum(len(rows) for rows in spill.read()) == 5
    assert match(ids, ids[1:]).tolist() == [-1, 0, 1, 2, 3]


def test_parts_for() -> None:
    assert parts_for(1) == 1
    assert parts_for(10**12) == id_spill.MOST_PARTS
    for rows in (10**6, 10**8):
        assert rows * 24 / parts_for(rows) <= id_spill.PART_BYTES


keys = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60)


@settings(max_examples=60, deadline=None)
@given(keys, keys, st.booleans())
def test_matching_is_a_dictionary(wanted: list[tuple[int, int]], there: list[tuple[int, int]], spread: bool) -> None:
    scale = 0x3FFF_FFFF_FFFF_FFFF if spread else 1
    one = np.array([(a * scale, b) for a, b in wanted], dtype=np.uint64).reshape(-1, 2)
    other = np.array([(a * scale, b) for a, b in there], dtype=np.uint64).reshape(-1, 2)
    first: dict[tuple[int, int], int] = {}
    for row, key in enumerate(there):
        first.setdefault(key, row)
    assert match(one, other).tolist() == [first.get(key, -1) for key in wanted]
    assert match(other, other).tolist() == [first[key] for key in there]


@pytest.mark.parametrize("roomy", [True, False])
def test_matching_many(monkeypatch: pytest.MonkeyPatch, roomy: bool) -> None:
    if not roomy:
        monkeypatch.setattr(id_matching, "ROOMY", 10)
    other = drawn(7, 60_000)
    order = np.random.default_rng(7).permutation(60_000)
    assert match(other[order], other).tolist() == order.tolist()
    assert (match(other + np.uint64(1), other) < 0).all()


def test_parts_come_in_order_and_few_at_once() -> None:
    begun: list[int] = []

    def job(part: int) -> int:
        begun.append(part)
        return part

    seen = []
    for part in each_part(9, job, 3):
        assert len(begun) <= part + 1 + 3
        seen.append(part)
    assert seen == list(range(9))
