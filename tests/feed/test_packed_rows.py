"""Packed rows gathered from a corpus: every policy's labels stay in their documents, and no document moves another's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.corpus.pairs import write_pair
from tests.pack.test_packed import KNOWN, packings
from tokenreel.errors import OrderError
from tokenreel.feed.gather import Gatherer
from tokenreel.pack.packed import PackedOrder
from tokenreel.pack.packed_policy import Packing

END = 60_001
IGNORE = -100


def gathered(folder: Path, documents: list[list[int]], packing: Packing, ends: str, cut: tuple[int, ...]) -> Any:
    """All rows of a packed corpus, and which document each place of them is of."""
    write_pair(folder / "x", [[ids] for ids in documents])
    corpus = tokenreel.open(folder / "x.idx")
    order = PackedOrder.over(corpus.table(), packing, seed=3, cut=cut).prepare()
    policy = {"kind": "documents", "ends": ends, **({"end_id": END} if ends == "token" else {})}
    table = order.spans(0, order.length or 0)
    with Gatherer([corpus], policy, row_tokens=packing.row_tokens, row_ahead=1) as gatherer:
        arrays = gatherer.batch(table)
    corpus.close()
    owners = np.repeat(table.document, table.length).reshape(-1, packing.row_tokens)
    starts = np.concatenate([s + np.arange(n) for s, n in zip(table.start, table.length, strict=True)])
    return arrays, owners, starts.reshape(owners.shape)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=20),
    packing=packings(KNOWN),
    victim=st.integers(0, 19),
    ends=st.sampled_from(["mask", "token"]),
    data=st.data(),
)
def test_labels_are_each_documents_own(
    sizes: list[int],
    packing: Packing,
    victim: int,
    ends: str,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    victim %= len(sizes)
    cut = tuple(sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3))))
    sides = []
    for side in range(2):
        # Every id says its document and its place; one document's are others in the second corpus.
        documents = [
            [100 * d + k + (30_000 if side and d == victim else 0) for k in range(n)] for d, n in enumerate(sizes)
        ]
        try:
            sides.append(gathered(tmp_path_factory.mktemp("x"), documents, packing, ends, cut))
        except OrderError as error:
            if error.code != "ORD100":
                raise
            return
    (one, owners, places), (other, _, _) = sides
    stored = owners >= 0
    assert (one["input_ids"][stored] == (100 * owners + places)[stored]).all()
    labels, kept = one["labels"], one["labels"] != IGNORE
    ended = kept & (labels == END)
    inside = kept & ~ended
    # A label is the next token of its own document, or the end where the document really ends.
    assert (labels[inside] == (100 * owners + places + 1)[inside]).all()
    sizes_of = np.array([*sizes, 0])[owners]
    assert (places[ended] == sizes_of[ended] - 1).all()
    assert not np.isin(owners[ended], cut).any()
    true_end = stored & (places == sizes_of - 1) & ~np.isin(owners, cut)
    assert (ended == (true_end if ends == "token" else np.zeros_like(true_end))).all()
    assert (one["loss_mask"] == kept).all()
    # No more labels are lost than policies say: only at true ends, at cuts, and at pieces that others follow in a row.
    if packing.policy in ("concat", "bestfit", "firstfit", "one-per-row") and packing.oversize in (None, "split"):
        assert (kept == (stored & ~(places == sizes_of - 1) | ended)).all()
    # Another document's ids move nothing.
    mine = owners == victim
    for name in one:
        assert np.array_equal(one[name][~mine], other[name][~mine]), name
    for name in ("loss_mask", "position_ids", "segment_ids"):
        assert np.array_equal(one[name], other[name]), name
    # Segments are the runs of one document's tokens; positions count from 0 in each.
    segments = one["segment_ids"]
    assert ((segments == 0) == ~stored).all()
    same = (owners[:, 1:] == owners[:, :-1]) & (places[:, 1:] == places[:, :-1] + 1) & stored[:, 1:]
    assert ((segments[:, 1:] == segments[:, :-1]) == (same | (~stored[:, 1:] & ~stored[:, :-1]))).all()
    assert (one["position_ids"][:, 1:][same] == one["position_ids"][:, :-1][same] + 1).all()
