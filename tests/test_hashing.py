"""Hashes, and the corpus identity against its plain reference, its page and its vectors."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import re
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import identity_reference
from tokenreel import hashing
from tokenreel.errors import StorageError, TokenError
from tokenreel.hashing import Identity, IdentityHasher

HERE = Path(__file__).parent
VECTORS = json.loads((HERE / "golden/identity/vectors.json").read_bytes())
PAGE = HERE.parent / "docs/identity.md"
DTYPES = ["<u1", "<u2", "<u4", "<u8", "<i2", "<i4", "<i8", ">u2", ">i4", ">u8"]


def compute(
    documents: list[list[int]],
    prefix: tuple[int, ...] = (),
    suffix: tuple[int, ...] = (),
    *,
    exceptions: bool = True,
    dtype: str = "<u4",
    cuts: tuple[int, ...] = (),
) -> Identity:
    """Hash documents in batches that end at `cuts`."""
    hasher = IdentityHasher(prefix, suffix, exceptions=exceptions)
    edges = sorted({0, len(documents), *(cut for cut in cuts if cut <= len(documents))})
    for begin, end in pairwise(edges):
        batch = documents[begin:end]
        ids = np.array([i for document in batch for i in document], dtype=dtype)
        hasher.update(ids, np.array([len(document) for document in batch], dtype=np.int64))
    return hasher.finish()


# ---- the reference, its page and the vectors -----------------------------------------------------------------------


def page_reference() -> str:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if "def identity(" in block)


def test_the_page_shows_the_reference() -> None:
    source = (HERE / "identity_reference.py").read_text("utf-8")
    code = source.split('"""', 2)[2].lstrip("\n")
    assert page_reference() == code
    assert len(source.splitlines()) <= 30
    imported = {
        alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for alias in node.names
    }
    assert imported == {"hashlib", "struct", "blake3"}


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_vectors(case: dict[str, Any]) -> None:
    scope: dict[str, Any] = {}
    exec(page_reference(), scope)
    arguments = case["documents"], tuple(case["prefix"]), tuple(case["suffix"])
    assert scope["identity"](*arguments, case["exceptions"]) == case["identity"]
    found = compute(*arguments, exceptions=case["exceptions"])
    assert found.digest == case["identity"]
    assert found.documents == len(case["documents"])


def test_vectors_tell_apart_what_they_name() -> None:
    named = {case["name"]: case["identity"] for case in VECTORS["cases"]}
    stored, plain = named["suffix on every document"], named["the same content without its suffix"]
    assert stored == plain
    assert named["the same content, the suffix absent and declared"] != plain
    assert named["the same, exceptions left out"] not in {plain, stored}
    assert named["prefix on every document"] == plain
    assert named["an empty corpus"] != named["one empty document"]


def test_the_generated_vector_crosses_both_leaf_edges() -> None:
    vector = VECTORS["generated"][0]
    count = vector["documents"]
    numbers = np.arange(count)
    content = 4 + (numbers % 3 == 0)
    suffixed = numbers % 1000 != 999
    stored = content + suffixed
    total = int(content.sum())
    assert total == vector["content_tokens"] > 2**22
    assert count > 2**20
    values = (np.arange(total, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(12345)) % np.uint64(2**32)
    ids = np.full(int(stored.sum()), vector["suffix"][0], dtype=np.uint32)
    ends = np.cumsum(stored)
    kept = np.ones(len(ids), dtype=bool)
    kept[ends[suffixed] - 1] = False
    ids[kept] = values
    for step in (count, 70_001):  # batches whose ends are no leaf's
        hasher = IdentityHasher((), tuple(vector["suffix"]))
        for first in range(0, count, step):
            last = min(count, first + step)
            begin = int(ends[first - 1]) if first else 0
            hasher.update(ids[begin : int(ends[last - 1])], stored[first:last])
        found = hasher.finish()
        assert found.digest == vector["identity"]
        assert (len(found.lengths), len(found.flags), len(found.tokens)) == (2, 2, 2)


# ---- properties ----------------------------------------------------------------------------------------------------

small = st.integers(0, 3)  # few ids, so that prefixes and suffixes occur by themselves
documents_of_few = st.lists(st.lists(small, max_size=5), max_size=8)
edge_ids = st.lists(small, max_size=3).map(tuple)


@given(documents_of_few, edge_ids, edge_ids, st.booleans(), st.sampled_from(DTYPES), st.lists(st.integers(0, 8)))
def test_equals_the_reference_for_any_batches_and_any_dtype(
    documents: list[list[int]],
    prefix: tuple[int, ...],
    suffix: tuple[int, ...],
    exceptions: bool,
    dtype: str,
    cuts: list[int],
) -> None:
    wanted = identity_reference.identity(documents, prefix, suffix, exceptions)
    found = compute(documents, prefix, suffix, exceptions=exceptions, dtype=dtype, cuts=tuple(cuts))
    assert found.digest == wanted


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=4), max_size=4), st.integers(0, 2**32 - 1))
def test_wide_ids_equal_the_reference(documents: list[list[int]], edge: int) -> None:
    if documents and documents[0]:
        documents[0][-1] = edge
    wanted = identity_reference.identity(documents, (), (edge,))
    for dtype in ("<u4", "<i8", ">u8"):
        assert compute(documents, (), (edge,), dtype=dtype).digest == wanted


@given(documents_of_few, st.integers(1, 4), st.integers(1, 5), st.lists(st.integers(0, 8)))
def test_leaves_are_cut_from_the_start(
    documents: list[list[int]], document_leaf: int, token_leaf: int, cuts: list[int]
) -> None:
    content = [i for document in documents for i in document]
    lengths = [len(document) for document in documents]

    def leaves(units: list[int], size: int, kind: str) -> tuple[bytes, ...]:
        parts = (units[k : k + size] for k in range(0, len(units), size))
        return tuple(hashing.blake3_leaf(np.array(part, dtype=kind).tobytes()) for part in parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "DOCUMENT_LEAF", document_leaf)
        patch.setattr(hashing, "TOKEN_LEAF", token_leaf)
        found = compute(documents, cuts=tuple(cuts))
    assert found.lengths == leaves(lengths, document_leaf, "<u8")
    assert found.flags == leaves([0] * len(documents), document_leaf, "u1")
    assert found.tokens == leaves(content, token_leaf, "<u4")


@given(documents_of_few, st.data())
def test_first_difference_names_the_leaf(documents: list[list[int]], data: st.DataObject) -> None:
    content = [i for document in documents for i in document]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "DOCUMENT_LEAF", 2)
        patch.setattr(hashing, "TOKEN_LEAF", 3)
        mine = compute(documents)
        assert mine.first_difference(compute(documents)) is None
        if content:
            at = data.draw(st.integers(0, len(content) - 1))
            changed = [list(document) for document in documents]
            left = at
            for document in changed:
                if left < len(document):
                    document[left] += 10
                    break
                left -= len(document)
            first = at - at % 3
            expected = ("tokens", first, min(first + 3, len(content)))
            assert mine.first_difference(compute(changed)) == expected
        longer = compute([*documents, [1]])
        first = len(documents) - len(documents) % 2
        assert mine.first_difference(longer) == ("lengths", first, len(documents) + 1)
        assert longer.first_difference(mine) == ("lengths", first, len(documents) + 1)


def test_first_difference_of_flags() -> None:
    missing = compute([[5, 0], [6]], (), (0,))
    whole = compute([[5, 0], [6, 0]], (), (0,))
    assert whole.first_difference(missing) == ("flags", 0, 2)
    # One of them does not record flags: there is nothing to compare.
    assert whole.first_difference(compute([[5], [6]], exceptions=False)) is None


# ---- parts ---------------------------------------------------------------------------------------------------------


@given(st.data())
def test_parts_joined_are_the_whole(data: st.DataObject) -> None:
    """Cut anywhere, joined from the left or a part of parts at a time: leaves of 4 documents and 8 ids, so that all edges occur."""
    document = st.lists(st.integers(0, 3), max_size=12)
    documents = data.draw(st.lists(document, max_size=24))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(documents)), max_size=6)))
    dtype = data.draw(st.sampled_from(DTYPES))
    exceptions = data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("DOCUMENT_LEAF", 4), ("TOKEN_LEAF", 8), ("_PIECE", data.draw(st.sampled_from([1, 4])))):
            patch.setattr(hashing, name, value)
        whole = compute(documents, (1,), (0,), exceptions=exceptions, dtype=dtype)
        parts: list[IdentityHasher] = []
        for begin, end in pairwise([0, *cuts, len(documents)]):
            at = parts[-1].end if parts else (0, 0)
            parts.append(IdentityHasher((1,), (0,), exceptions=exceptions, begin=at))
            for one in documents[begin:end]:
                parts[-1].update(np.array(one, dtype=dtype), np.array([len(one)]))
        while len(parts) > 1:
            at = data.draw(st.integers(0, len(parts) - 2))
            parts[at].join(parts.pop(at + 1))
        assert parts[0].finish() == whole


def test_a_part_is_joined_only_where_it_begins() -> None:
    hasher, part = IdentityHasher((), (0,)), IdentityHasher((), (0,), begin=(1, 2))
    hasher.update(np.array([5, 6, 7, 0]), np.array([4]))
    for other in (
        part,
        IdentityHasher((), (1,), begin=(1, 3)),
        IdentityHasher((), (0,), exceptions=False, begin=(1, 3)),
    ):
        with pytest.raises(ValueError, match=r"follows \(1, 3\)"):
            hasher.join(other)
    with pytest.raises(ValueError, match="join it"):
        part.finish()
    assert hasher.finish().content_tokens == 3


def test_a_part_keeps_no_more_than_the_end_of_a_leaf() -> None:
    ids, lengths = np.zeros(1 << 20, dtype=np.uint16), np.array([1 << 20])
    part = IdentityHasher(begin=(1, hashing.TOKEN_LEAF - 3))
    tracemalloc.start()
    for _ in range(8):
        part.update(ids, lengths)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "document"),
    [
        (np.array([1, 2, -1], dtype=np.int16), 2),
        (np.array([1, 2**32, 3], dtype=np.int64), 1),
        (np.array([1, 2, 2**63], dtype=np.uint64), 2),
        (np.array([1.0, 2.0, 3.0]), 0),
    ],
)
def test_ids_out_of_range_name_their_document(ids: np.ndarray[Any, Any], document: int) -> None:
    hasher = IdentityHasher()
    hasher.update(np.array([4, 4], dtype=np.uint16), np.array([1, 1]))
    with pytest.raises(TokenError) as caught:
        hasher.update(ids, np.array([1, 1, 1]))
    assert caught.value.code == "TOK001"
    assert caught.value.where["document"] == 2 + document
    # Nothing of the refused update was added.
    assert hasher.finish().digest == identity_reference.identity([[4], [4]])


@pytest.mark.parametrize(
    "lengths",
    [
        np.array([1, 1]),
        np.array([2, 2]),
        np.array([-1, 4]),
        np.array([4, -1]),
        np.array([1.0, 2.0]),
        np.array([2**63 + 1, 2**63 + 2], dtype=np.uint64),
        np.array([2**62] * 4 + [3]),
        np.array([], dtype=np.int64),
    ],
)
def test_lengths_that_do_not_delimit_the_ids(lengths: np.ndarray[Any, Any]) -> None:
    with pytest.raises(TokenError) as caught:
        IdentityHasher().update(np.array([1, 2, 3]), lengths)
    assert caught.value.code == "TOK005"


def test_views_of_any_stride_and_read_only_arrays() -> None:
    ids = np.arange(12, dtype=np.uint32)
    strided = ids[::2]
    strided.flags.writeable = False
    hasher = IdentityHasher()
    hasher.update(strided, np.array([2, 4], dtype=np.uint8))
    assert hasher.finish().digest == identity_reference.identity([[0, 2], [4, 6, 8, 10]])


def test_memory_does_not_grow_with_the_leaf() -> None:
    """2**20 tokens in updates of one 4-token document would cost hundreds of bytes an update if they were kept."""
    ids, lengths = np.arange(4, dtype=np.uint32), np.array([4])
    hasher = IdentityHasher()
    hasher.update(ids, lengths)
    tracemalloc.start()
    for _ in range(5000):
        hasher.update(ids, lengths)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


# ---- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, (1 << 22) - 1, 1 << 22, (1 << 22) + 1])
def test_sha256_file(tmp_path: Path, size: int) -> None:
    data = bytes(size)
    (tmp_path / "a").write_bytes(data)
    assert hashing.sha256_file(tmp_path / "a") == hashlib.sha256(data).hexdigest()


def test_sha256_file_says_what_it_could_not_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        hashing.sha256_file(tmp_path / "none")
    assert caught.value.code == "STO001"
    with pytest.raises(StorageError) as caught:
        hashing.sha256_file(tmp_path)
    assert caught.value.code == "STO002"


@given(st.lists(st.binary(max_size=20)))
def test_sha256_writer_hashes_what_it_writes(parts: list[bytes]) -> None:
    sink = io.BytesIO()
    writer = hashing.Sha256Writer(sink)
    for k, part in enumerate(parts):
        assert writer.write(memoryview(part) if k % 2 else part) == len(part)
    whole = b"".join(parts)
    assert sink.getvalue() == whole
    assert writer.bytes == len(whole)
    assert writer.hexdigest() == hashlib.sha256(whole).hexdigest()


def test_sha256_writer_counts_bytes_of_wide_views() -> None:
    writer = hashing.Sha256Writer(io.BytesIO())
    assert writer.write(memoryview(np.arange(3, dtype=np.uint32))) == 12
    assert writer.bytes == 12


@given(st.dictionaries(st.text("ab/", min_size=1, max_size=4), st.text("0123456789abcdef", min_size=4, max_size=4)))
def test_sha256_lines_does_not_depend_on_order(files: dict[str, str]) -> None:
    wanted = hashlib.sha256("".join(sorted(f"{d}  {p}\n" for p, d in files.items())).encode()).hexdigest()
    assert hashing.sha256_lines(files.items()) == wanted
    assert hashing.sha256_lines(reversed(list(files.items()))) == wanted


def test_blake3_against_published_vectors() -> None:
    # From the BLAKE3 test vectors: input bytes are 0, 1, 2, ..., 250, 0, ...
    assert hashing.blake3_leaf(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert hashing.blake3_leaf(b"\0").hex() == "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"
