"""`SpanTable` against a plain reference: what it counts, what it refuses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tokenreel.errors import OrderError
from tokenreel.spans import UNRESOLVED, Flag, SpanTable

SIZES = (20, 7)


@dataclass
class Extent:
    """One extent, as plain numbers."""

    corpus: int
    begin: int
    length: int
    flags: int


extents = st.builds(
    Extent,
    corpus=st.integers(-1, 2),
    begin=st.integers(-1, 21),
    length=st.integers(-1, 8),
    flags=st.integers(0, 31),
)


@st.composite
def legal_samples(draw: st.DrawFn) -> list[list[Extent]]:
    samples = []
    for _ in range(draw(st.integers(0, 5))):
        sample = []
        count = draw(st.integers(0, 4))
        for k in range(count):
            corpus = draw(st.integers(0, 1))
            ahead = k == count - 1 and draw(st.booleans())
            pad = not ahead and draw(st.booleans())
            length = draw(st.integers(0 if ahead else 1, SIZES[corpus] - ahead))
            begin = draw(st.integers(0, SIZES[corpus] - length - ahead))
            flags = draw(st.integers(0, 3)) | (Flag.AHEAD if ahead else 0) | (Flag.PAD if pad else 0)
            sample.append(Extent(corpus, begin, length, int(flags)))
        samples.append(sample)
    return samples


def table_of(samples: list[list[Extent]]) -> SpanTable:
    flat = [extent for sample in samples for extent in sample]
    return SpanTable.of(
        np.cumsum([0, *map(len, samples)]),
        [e.begin for e in flat],
        [e.length for e in flat],
        corpus=[e.corpus for e in flat],
        flags=[e.flags for e in flat],
    )


def is_legal(samples: list[list[Extent]]) -> bool:
    """The rules of the contract, one by one."""
    for sample in samples:
        for k, e in enumerate(sample):
            ahead = bool(e.flags & Flag.AHEAD)
            if not 0 <= e.corpus < len(SIZES) or e.length < 0:
                return False
            if e.length == 0 and not ahead:
                return False
            if ahead and k != len(sample) - 1:
                return False
            if not e.flags & Flag.PAD and not 0 <= e.begin <= e.begin + e.length + ahead <= SIZES[e.corpus]:
                return False
    return True


@given(legal_samples())
def test_a_legal_table_passes(samples: list[list[Extent]]) -> None:
    table_of(samples).check(SIZES)


@given(st.lists(st.lists(extents, max_size=3), max_size=4))
def test_check_accepts_exactly_what_is_legal(samples: list[list[Extent]]) -> None:
    table = table_of(samples)
    if is_legal(samples):
        table.check(SIZES)
    else:
        with pytest.raises(OrderError) as caught:
            table.check(SIZES)
        assert caught.value.code in {"ORD003", "ORD004"}


@given(legal_samples(), st.data())
def test_one_wrong_extent_is_always_found(samples: list[list[Extent]], data: st.DataObject) -> None:
    full = [sample for sample in samples if sample]
    assume(full)
    extent = data.draw(st.sampled_from(full))[-1]
    spoil = data.draw(
        st.sampled_from([("corpus", 2), ("corpus", -1), ("length", -1), ("begin", -1), ("begin", 21), ("length", 22)])
    )
    setattr(extent, *spoil)
    extent.flags &= ~int(Flag.PAD)
    with pytest.raises(OrderError):
        table_of(samples).check(SIZES)


@given(legal_samples())
def test_counts_equal_the_reference(samples: list[list[Extent]]) -> None:
    table = table_of(samples)
    assert table.samples == len(samples)
    assert table.extents == sum(map(len, samples))
    assert table.tokens == sum(e.length for sample in samples for e in sample)
    assert table.sample_tokens().tolist() == [sum(e.length for e in sample) for sample in samples]
    assert table.sample_of().tolist() == [k for k, sample in enumerate(samples) for _ in sample]
    labels = 0
    for sample in samples:
        positions = sum(e.length for e in sample if not e.flags & Flag.PAD)
        positions += sum(1 for e in sample if e.flags & Flag.AHEAD)
        labels += max(0, positions - 1)
    assert table.label_positions == labels


def test_label_positions_by_hand() -> None:
    ahead, pad = int(Flag.AHEAD), int(Flag.PAD)

    def labels(lengths: list[int], flags: list[int]) -> int:
        return SpanTable.of([0, len(lengths)], [0] * len(lengths), lengths, flags=flags).label_positions

    assert labels([4], [ahead]) == 4  # every input has its label
    assert labels([4], [0]) == 3  # the last input has none
    assert labels([4, 0], [0, ahead]) == 4  # the label stands elsewhere
    assert labels([3, 5], [0, pad]) == 2  # padding is never a label
    assert labels([], []) == 0
    assert labels([1], [0]) == 0


@given(legal_samples())
def test_arrays_are_read_only_copies_of_their_types(samples: list[list[Extent]]) -> None:
    table = table_of(samples)
    kinds = [np.int64, np.int32, np.int64, np.int64, np.int64, np.int64, np.uint8]
    for array, kind in zip(table.columns(), kinds, strict=True):
        assert array.dtype == kind
        assert array.ndim == 1
        assert array.flags.c_contiguous
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    assert (table.document == UNRESOLVED).all()
    assert (table.start == UNRESOLVED).all()


def test_the_caller_keeps_its_arrays() -> None:
    begin = np.array([0, 3])
    table = SpanTable.of([0, 2], begin, 3)
    begin[0] = 9
    assert table.begin.tolist() == [0, 3]
    assert table.length.tolist() == [3, 3]
    assert begin.flags.writeable


def test_a_table_is_frozen_and_compares_by_itself() -> None:
    table = SpanTable.of([0], [], [])
    with pytest.raises(FrozenInstanceError):
        table.begin = np.zeros(1, dtype=np.int64)  # type: ignore[misc]
    assert table == table  # noqa: PLR0124
    assert table != SpanTable.of([0], [], [])
    assert {table: 1}[table] == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"length": [1, 2, 3]},
        {"flags": [0, 0, 0]},
        {"flags": 256},
        {"flags": -1},
        {"corpus": 2**31},
        {"document": [1]},
        {"start": ["x", "y"]},
    ],
)
def test_columns_that_cannot_be_are_refused(columns: dict[str, Any]) -> None:
    if columns.get("document") == [1]:
        # One value is repeated, as a scalar is.
        assert SpanTable.of([0, 2], [0, 1], 1, **columns).document.tolist() == [1, 1]
        return
    length = columns.pop("length", 1)
    with pytest.raises(OrderError) as caught:
        SpanTable.of([0, 2], [0, 1], length, **columns)
    assert caught.value.code == "ORD004"


@pytest.mark.parametrize("splits", [[], [1], [0], [0, 1], [0, 3], [0, 2, 1, 2], [1, 2], [0, -1, 2], [0, 2, 0]])
def test_splits_that_do_not_cover(splits: list[int]) -> None:
    table = SpanTable.of(splits, [0, 1], 1)
    with pytest.raises(OrderError) as caught:
        table.check(SIZES)
    assert caught.value.code == "ORD004"


def test_columns_of_other_lengths_are_refused() -> None:
    table = replace(SpanTable.of([0, 2], [0, 1], 1), start=np.zeros(3, dtype=np.int64))
    with pytest.raises(OrderError) as caught:
        table.check(SIZES)
    assert caught.value.code == "ORD004"


@pytest.mark.parametrize(
    ("begin", "length"), [(2**63 - 1, 1), (1, 2**63 - 1), (2**62, 2**62), (2**63 - 1, 2**63 - 1), (0, 2**63 - 1)]
)
@pytest.mark.parametrize("flags", [0, int(Flag.AHEAD)])
def test_an_end_beyond_64_bits_is_past_the_corpus(begin: int, length: int, flags: int) -> None:
    with pytest.raises(OrderError) as caught:
        SpanTable.of([0, 1], [begin], [length], flags=flags).check(SIZES)
    assert caught.value.code == "ORD003"
    assert caught.value.found == begin + length + (flags != 0)


def test_the_look_ahead_must_exist() -> None:
    SpanTable.of([0, 1], [13], [7]).check(SIZES)
    with pytest.raises(OrderError) as caught:
        SpanTable.of([0, 1], [13], [7], flags=int(Flag.AHEAD)).check(SIZES)
    assert caught.value.code == "ORD003"
    assert "extent 0" in caught.value.message


def test_no_corpora_and_no_samples() -> None:
    SpanTable.of([0], [], []).check(())
    SpanTable.of([0, 0, 0], [], []).check(())
    with pytest.raises(OrderError):
        SpanTable.of([0, 1], [0], [1]).check(())


def test_flags_have_their_published_values() -> None:
    assert {flag.name: int(flag) for flag in Flag} == {"HEAD": 1, "TAIL": 2, "AHEAD": 4, "CUT": 8, "PAD": 16}
