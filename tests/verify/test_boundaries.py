"""Checks of ids against boundaries: the fast one agrees with a slow, obvious reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.formats import Boundary
from tokenreel.verify.boundaries import check_batch

DOCUMENTS = st.lists(st.lists(st.integers(0, 5), max_size=7), max_size=8)
SIDE = st.lists(st.integers(0, 5), max_size=2).map(tuple)


def reference(documents: list[list[int]], boundary: Boundary, vocab: int | None) -> set[tuple[str, int, int]]:
    """Return (code, token of the batch, document), document by document, in plain loops."""
    found = set()
    prefix, suffix = list(boundary.prefix), list(boundary.suffix)
    begin = 0
    total = sum(map(len, documents))
    for number, ids in enumerate(documents):
        end = begin + len(ids)
        found |= {("TOK020", begin + k, number) for k, value in enumerate(ids) if vocab is not None and value >= vocab}
        has_prefix = bool(prefix) and ids[: len(prefix)] == prefix
        rest = ids[len(prefix) :] if has_prefix else ids
        has_suffix = bool(suffix) and len(rest) >= len(suffix) and rest[len(rest) - len(suffix) :] == suffix
        if suffix and not has_suffix:
            found.add(("TOK021", min(max(end - 1, 0), max(total - 1, 0)), number))
        if prefix and not has_prefix:
            found.add(("TOK023", min(begin, max(total - 1, 0)), number))
        proper = ({0} if has_prefix else set()) | ({len(ids) - len(suffix)} if has_suffix else set())
        for code, wanted in (("TOK022", suffix), ("TOK024", prefix)):
            if not wanted or (code == "TOK024" and prefix == suffix):
                continue
            found |= {
                (code, begin + k, number)
                for k in range(len(ids) - len(wanted) + 1)
                if ids[k : k + len(wanted)] == wanted and k not in proper
            }
        begin = end
    return found


@given(DOCUMENTS, SIDE, SIDE, st.none() | st.integers(0, 6), st.sampled_from(["uint16", "int32", "uint8"]))
def test_the_fast_check_is_the_slow_one(
    documents: list[list[int]], prefix: tuple[int, ...], suffix: tuple[int, ...], vocab: int | None, dtype: str
) -> None:
    boundary = Boundary(prefix, suffix, table=True)
    ids = np.array([token for document in documents for token in document], dtype=dtype)
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    found = {
        (trouble.code, token, document)
        for trouble in check_batch(ids, lengths, boundary, vocab)
        for token, document in zip(trouble.tokens.tolist(), trouble.documents.tolist(), strict=True)
    }
    assert found == reference(documents, boundary, vocab)


def test_negative_ids_are_outside_every_vocabulary() -> None:
    [trouble] = check_batch(np.array([3, -1, 2], np.int32), np.array([3]), Boundary(), None)
    assert (trouble.code, trouble.tokens.tolist(), trouble.found) == ("TOK020", [1], (-1,))


def test_a_boundary_that_the_dtype_cannot_hold_is_absent_everywhere() -> None:
    [trouble] = check_batch(np.array([1, 2], np.uint8), np.array([1, 1]), Boundary((), (50256,)), None)
    assert (trouble.code, trouble.documents.tolist()) == ("TOK021", [0, 1])


def test_bos_that_is_eos_is_an_ordinary_case() -> None:
    both = Boundary((0,), (0,))
    assert check_batch(np.array([0, 5, 0, 0, 0], np.uint16), np.array([3, 2]), both, None) == []
    [trouble] = check_batch(np.array([0], np.uint16), np.array([1]), both, None)
    assert (trouble.code, trouble.documents.tolist()) == ("TOK021", [0])
