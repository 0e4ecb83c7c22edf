"""`megatron-files@1`: the order of anyone's index files is the order that made them; files that do not fit are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.corpus.pairs import write_pair
from tests.index.data import lengths_of, opened, write
from tests.order.tables import Lengths
from tokenreel.errors import FormatError, OrderError
from tokenreel.index.files_order import FileArrays, MegatronFilesOrder, open_arrays
from tokenreel.order.megatron import MegatronOrder
from tokenreel.spans import SpanTable


def arrays_of(order: MegatronOrder) -> FileArrays:
    made = order.indices()
    return FileArrays("made", made.document_index, made.sample_index, made.shuffle_index)


def same(one: SpanTable, other: SpanTable) -> None:
    for ours, theirs in zip(one.columns(), other.columns(), strict=True):
        assert ours.tolist() == theirs.tolist()


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(lambda sizes: sum(sizes) > 2),
    st.integers(1, 7),
    st.sampled_from([0, 1]),
    st.integers(0, 40),
    st.booleans(),
    st.integers(0, 99),
)
def test_it_is_the_order_that_wrote_the_files(
    sizes: list[int], row_tokens: int, ahead: int, samples: int, keep: bool, seed: int
) -> None:
    table = Lengths(sizes)
    given_: dict[str, Any] = {"split": None, "part": "valid" if keep else "train", "keep_partial": keep}
    try:
        order = MegatronOrder.over(table, row_tokens, seed=seed, samples=samples, row_ahead=ahead, **given_).prepare()
        files = arrays_of(order)
    except OrderError:
        return
    if order.length == 0:
        return
    again = MegatronFilesOrder.over(table, files, row_tokens, row_ahead=ahead).prepare()
    assert again.length == order.length
    same(again.spans(0, again.length), order.spans(0, order.length))
    documents = list(range(len(sizes)))
    ours, theirs = (one.locate(0, documents, 0, one.length) for one in (again, order))
    for name in ("document", "sample", "extent", "begin", "length"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()


def test_an_index_need_not_be_a_permutation() -> None:
    # Made by hand: unit 1 twice, unit 0 never, samples read twice.
    table = Lengths([5, 3, 4])
    files = FileArrays(
        "hand",
        np.array([1, 2, 1], dtype=np.int64),
        np.array([[0, 0], [1, 1], [2, 1]]),
        np.array([1, 0], dtype=np.uint8),
    )
    order = MegatronFilesOrder.over(table, files, 4).prepare()
    assert order.spans(0, 2).begin.tolist() == [9, 5, 5, 8]
    assert order.spans(0, 2).length.tolist() == [3, 1, 3, 1]
    hits = order.locate(0, [0, 1], 0, 2)
    assert hits.document.tolist() == [1, 1]
    assert hits.sample.tolist() == [0, 1]
    assert order.locate(0, [1], 1, 2).sample.tolist() == [1]


def test_sequences_belong_to_documents(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[[1, 2], [3, 4, 5]], [], [[6]], [[7, 8, 9], [10], [11, 2]]])
    corpus = opened(tmp_path / "a")
    order = MegatronOrder.over(corpus.sequences(), 3, seed=5, samples=None, documents=corpus.table()).prepare()
    again = MegatronFilesOrder.over(corpus.sequences(), arrays_of(order), 3, documents=corpus.table()).prepare()
    same(again.spans(0, again.length), order.spans(0, order.length))
    assert (
        again.locate(0, [0, 3], 0, again.length).sample.tolist()
        == order.locate(0, [0, 3], 0, order.length).sample.tolist()
    )


def good() -> tuple[Lengths, dict[str, np.ndarray]]:
    table = Lengths(lengths_of(3))
    made = MegatronOrder.over(table, 16, seed=1, samples=None).prepare().indices()
    return table, {
        "document_index": made.document_index,
        "sample_index": made.sample_index,
        "shuffle_index": made.shuffle_index,
    }


def changed(array: np.ndarray, at: Any, value: Any) -> np.ndarray:
    out = array.copy()
    out[at] = value
    return out


@pytest.mark.parametrize(
    ("array", "damage"),
    [
        ("document_index", lambda a: changed(a, 3, 60)),
        ("document_index", lambda a: changed(a, 3, -1)),
        ("document_index", lambda a: a[::-1]),
        ("document_index", lambda a: a[:0]),
        ("document_index", lambda a: a.reshape(-1, 2)),
        ("sample_index", lambda a: changed(a, (4, 1), a[4, 1] + 1)),
        ("sample_index", lambda a: changed(a, (4, 0), 60)),
        ("sample_index", lambda a: np.concatenate([a, a[-1:]])),
        ("sample_index", lambda a: a[:1]),
        ("sample_index", lambda a: a.reshape(-1)),
        ("shuffle_index", lambda a: changed(a, 2, len(a))),
        ("shuffle_index", lambda a: np.concatenate([a, a])),
        ("shuffle_index", lambda a: a[:0]),
    ],
)
def test_files_that_do_not_fit_are_refused(array: str, damage: Any) -> None:
    table, arrays = good()
    MegatronFilesOrder.over(table, FileArrays("good", **arrays), 16).prepare()
    arrays[array] = damage(arrays[array])
    with pytest.raises(FormatError, match="IDX003") as caught:
        MegatronFilesOrder.over(table, FileArrays("bad", **arrays), 16).prepare()
    assert caught.value.where["path"] == f"bad-{'sample_index' if damage_moves_rows(array, arrays) else array}.npy"


def damage_moves_rows(array: str, arrays: dict[str, np.ndarray]) -> bool:
    """Entries in another order are all good numbers: it is the rows that no longer stand where they should."""
    entries = arrays["document_index"]
    return (
        array == "document_index"
        and entries.ndim == 1
        and len(entries) > 0
        and 0 <= entries.min() <= entries.max() < 60
    )


def test_another_row_length_is_refused() -> None:
    table, arrays = good()
    with pytest.raises(FormatError, match="IDX003"):
        MegatronFilesOrder.over(table, FileArrays("a", **arrays), 15).prepare()
    with pytest.raises(OrderError, match="ORD002"):
        MegatronFilesOrder.over(table, FileArrays("a", **arrays), 0)


def test_the_fingerprint_is_of_what_the_files_say() -> None:
    table, arrays = good()
    order = MegatronFilesOrder.over(table, FileArrays("a", **arrays), 16)
    with pytest.raises(OrderError, match="ORD014"):
        _ = order.fingerprint
    wide = FileArrays("b", **{name: array.astype(np.int64) for name, array in arrays.items()})
    first = order.prepare().fingerprint
    assert first == MegatronFilesOrder.over(table, wide, 16).prepare().fingerprint
    arrays["shuffle_index"] = arrays["shuffle_index"][::-1]
    assert first != MegatronFilesOrder.over(table, FileArrays("a", **arrays), 16).prepare().fingerprint


def test_a_folder_with_several_sets_needs_a_name(tmp_path: Path) -> None:
    _, arrays = good()
    with pytest.raises(FormatError, match="IDX001"):
        open_arrays(tmp_path / "absent")
    for stem in ("aa-GPTDataset-train", "bb"):
        for name, array in arrays.items():
            np.save(tmp_path / f"{stem}-{name}.npy", array)
    np.save(tmp_path / "cc-document_index.npy", arrays["document_index"])
    with pytest.raises(FormatError, match="IDX006"):
        open_arrays(tmp_path)
    with pytest.raises(FormatError, match="IDX001"):
        open_arrays(tmp_path, "cc")
    assert open_arrays(tmp_path, "aa").stem.endswith("aa-GPTDataset-train")


def test_maxtext_s_files_count_documents(tmp_path: Path) -> None:
    from tokenreel.index.files import put
    from tokenreel.index.maxtext import convert
    from tokenreel.order.maxtext_npy import MaxTextNpyOrder

    prefix = write(tmp_path / "web", lengths_of(4))
    put(tmp_path / "cache", convert([str(prefix)], 16, num_samples=50))
    corpus = opened(prefix)
    order = MaxTextNpyOrder.over(corpus.table(), 16, seed=1234, samples=50).prepare()
    again = MegatronFilesOrder.over(corpus.table(), open_arrays(tmp_path / "cache"), 16).prepare()
    same(again.spans(0, 50), order.spans(0, 50))
