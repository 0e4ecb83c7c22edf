"""Packed rows gathered from a corpus: every policy's labels stay in their documents, and no document moves another's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.corpus.pairs import write_pair
from tests.pack.peers_reference import modded_nanogpt, nanochat
from tests.pack.test_packed import KNOWN, packings
from tests.pack.test_peers import BOS, documents_of, sizes_of_documents
from tokenreel.errors import OrderError
from tokenreel.feed.gather import Gatherer
from tokenreel.pack.packed import PackedOrder, packed
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


def arrays_of(
    folder: Path, documents: list[list[int]], room: int, policy: str, row_policy: dict[str, Any], **options: Any
) -> Any:
    """All rows of a packed corpus, one sample after the other; None where there is none."""
    write_pair(folder / "x", [[ids] for ids in documents])
    with closing(tokenreel.open(folder / "x.idx")) as corpus:
        try:
            order = packed(corpus.table(), room, policy, shuffle=False, **options).prepare()
        except OrderError as error:
            if error.code != "ORD100":
                raise
            return None
        with Gatherer([corpus], row_policy, row_tokens=room, row_ahead=1) as gatherer:
            return gatherer.batch(order.spans(0, order.length or 0))


@settings(max_examples=40)
@given(sizes=sizes_of_documents, room=st.integers(1, 16), buffer=st.integers(1, 8), refill=st.integers(1, 3))
def test_batches_of_crop_are_nanochat_s(
    sizes: list[int], room: int, buffer: int, refill: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    documents = documents_of(sizes)
    expected = [row for row in nanochat(iter(documents), room, buffer, refill) if len(row) == room + 1]
    options = {"oversize": "wait", "buffer": buffer, "refill": refill}
    found = arrays_of(tmp_path_factory.mktemp("x"), documents, room, "crop", {"kind": "plain"}, **options)
    if found is None:
        assert not expected
        return
    assert found["input_ids"].tolist() == [row[:-1] for row in expected]
    assert found["labels"].tolist() == [row[1:] for row in expected]
    # Kept apart, with the next document's first token as the label of an end: no label differs where documents end.
    apart = {"kind": "documents", "ends": "next"}
    kept = arrays_of(tmp_path_factory.mktemp("y"), documents, room, "crop", apart, **options)
    assert kept["labels"].tolist() == found["labels"].tolist()
    assert (kept["loss_mask"] == 1).all()
    positions = kept["position_ids"]
    assert ((positions == 0) == (found["input_ids"] == BOS)).all()


@settings(max_examples=40)
@given(sizes=sizes_of_documents, room=st.integers(1, 16), ranks=st.integers(1, 3), shorter=st.integers(0, 16))
def test_batches_of_bos_aligned_are_modded_nanogpt_s(
    sizes: list[int], room: int, ranks: int, shorter: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    documents, longest = documents_of(sizes), max(1, room + 1 - shorter)
    stream = [token for document in documents for token in document]
    most = room + 3
    batches = list(modded_nanogpt(stream, BOS, room, ranks, longest, most))
    options = {"longest": longest, "compat": "modded-nanogpt", "ranks": ranks}
    folder = tmp_path_factory.mktemp("x")
    found = arrays_of(folder, documents, room, "bos-aligned", {"kind": "plain"}, **options)
    if found is None:
        assert not batches
        return
    rows = [one for batch in batches for one in batch]
    assert found["input_ids"].tolist() == [x for x, _, _ in rows]
    assert found["labels"].tolist() == [y for _, y, _ in rows]
    apart = {"kind": "documents", "ends": "next", "cu_seqlens": "rows", "cu_seqlens_length": most}
    kept = arrays_of(folder, documents, room, "bos-aligned", apart, **options)
    assert kept["cu_seqlens"].tolist() == [edges for _, _, edges in rows]
    # Documents kept apart have no label where one was clipped, and all others.
    same = kept["labels"] == found["labels"]
    assert (same == (kept["loss_mask"] == 1)).all()
    # Without the ranks of that program neither have plain rows.
    masked = arrays_of(folder, documents, room, "bos-aligned", {"kind": "plain"}, longest=longest)
    assert masked["labels"][: len(rows)].tolist() == np.where(same, found["labels"], IGNORE).tolist()
