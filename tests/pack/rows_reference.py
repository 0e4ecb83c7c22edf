"""Rows, written as the policies say and as slowly as that takes: one token at a time, lists in, lists out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tokenreel.pack.policy import RowPolicy
from tokenreel.spans import Flag, SpanTable

Streams = list[list[int]]


@dataclass
class Token:
    """One input of a row."""

    id: int
    label: int | None
    """The id that follows in its sample, whatever it belongs to."""
    real: bool
    """Whether that is the next token of the same document."""
    true_end: bool
    """Whether its document ends with it."""
    piece: int
    """Number of its piece in the row."""
    start: int
    """Offset in its document."""
    document: int
    extent: int


def sample(table: SpanTable, k: int, streams: Streams) -> list[Token | None]:
    """Return the inputs of sample `k`; None is padding."""
    extents = range(int(table.splits[k]), int(table.splits[k + 1]))
    flags = {e: Flag(int(table.flags[e])) for e in extents}
    begin = {e: int(table.begin[e]) for e in extents}
    length = {e: int(table.length[e]) for e in extents}
    corpus = {e: int(table.corpus[e]) for e in extents}
    document = {e: int(table.document[e]) for e in extents}
    row: list[Token | None] = []
    piece = -1
    for e in extents:
        if Flag.PAD in flags[e]:
            row += [None] * length[e]
            continue
        goes_on = e > extents[0] and _follows(e - 1, e, flags, begin, length, corpus, document)
        if length[e] and not goes_on:
            piece += 1
        for i in range(length[e]):
            at, last = begin[e] + i, i == length[e] - 1
            label: int | None
            if not last:
                label, real = streams[corpus[e]][at + 1], True
            elif e + 1 in flags and Flag.PAD not in flags[e + 1]:
                label = streams[corpus[e + 1]][begin[e + 1]]
                real = _follows(e, e + 1, flags, begin, length, corpus, document)
                if Flag.CUT in flags[e]:
                    label = None
            elif Flag.AHEAD in flags[e]:
                label, real = streams[corpus[e]][at + 1], Flag.TAIL not in flags[e]
            else:
                label, real = None, False
            ends = last and Flag.TAIL in flags[e] and Flag.CUT not in flags[e]
            start = int(table.start[e]) + i
            row.append(Token(streams[corpus[e]][at], label, real, ends, piece, start, document[e], e))
    return row


def _follows(a: int, b: int, flags: Any, begin: Any, length: Any, corpus: Any, document: Any) -> bool:
    return (
        not flags[a] & (Flag.PAD | Flag.CUT)
        and Flag.PAD not in flags[b]
        and (corpus[a], document[a]) == (corpus[b], document[b])
        and begin[a] + length[a] == begin[b]
    )


def reference(table: SpanTable, streams: Streams, policy: RowPolicy, width: int, ahead: int) -> dict[str, list[Any]]:
    """Return every array of a batch as nested lists."""
    rows = []
    for k in range(table.samples):
        row = sample(table, k, streams)
        row += [None] * (width - len(row))
        rows.append(globals()[f"_{policy.kind}"](row, policy, width, ahead))
    out = {name: [row[name] for row in rows] for name in policy.arrays() if name not in ("cu_seqlens", "max_seqlen")}
    if "cu_seqlens" in policy.arrays():
        _add_edges(out, rows, policy, width)
    return out


def _add_edges(out: dict[str, Any], rows: list[dict[str, Any]], policy: RowPolicy, width: int) -> None:
    if policy.cu_seqlens == "batch":
        joined = [0] + [width * k + edge for k, row in enumerate(rows) for edge in row["edges"][1:]]
        out["max_seqlen"] = max((b - a for a, b in pairwise(joined)), default=0)
        out["cu_seqlens"] = joined + [joined[-1]] * ((policy.cu_seqlens_length or 0) - len(joined))
        return
    room = policy.cu_seqlens_length or width + 1
    out["max_seqlen"] = [max(b - a for a, b in pairwise(e)) for e in (row["edges"] for row in rows)]
    out["cu_seqlens"] = [row["edges"] + [width] * (room - len(row["edges"])) for row in rows]


def _plain(row: list[Token | None], policy: RowPolicy, width: int, ahead: int) -> dict[str, Any]:
    labels = [t.label if t is not None else None for t in row]
    return {
        "input_ids": [policy.pad_id if t is None else t.id for t in row],
        "labels": [policy.ignore_index if label is None else label for label in labels],
        "loss_mask": [float(label is not None) for label in labels],
    }


def _documents(row: list[Token | None], policy: RowPolicy, width: int, ahead: int) -> dict[str, Any]:
    out: dict[str, Any] = {name: [] for name in policy.arrays()}
    one = 1 if policy.segments == "one" else 0
    for column, t in enumerate(row):
        if t is None:
            fill = (policy.pad_id, policy.ignore_index, 0.0, column if policy.positions == "running" else 0, one - 1)
            for name, value in zip(policy.arrays(), fill, strict=False):
                out[name].append(value)
            continue
        label: int | None = None
        if t.real or (t.true_end and policy.ends == "next"):
            label = t.label
        elif t.true_end and policy.ends == "token":
            label = policy.end_id
        first = next(k for k, other in enumerate(row) if other is not None and other.piece == t.piece)
        out["input_ids"].append(t.id)
        out["labels"].append(policy.ignore_index if label is None else label)
        out["loss_mask"].append(float(label is not None))
        out["position_ids"].append({"reset": column - first, "running": column, "offset": t.start}[policy.positions])
        out["segment_ids"].append(t.piece + one)
    kinds = [None if t is None else t.piece for t in row]
    out["edges"] = [0] + [k for k in range(1, width) if kinds[k] != kinds[k - 1]] + [width]
    seen = [[j <= i and kinds[j] == kinds[i] for j in range(width)] for i in range(width)]
    out["attention_mask"] = [seen]
    out["attention_bias"] = [[[0.0 if yes else float("-inf") for yes in line] for line in seen]]
    return out


def _megatron(row: list[Token | None], policy: RowPolicy, width: int, ahead: int) -> dict[str, Any]:
    pad = policy.pad_in_use
    tokens = [pad if t is None else t.id for t in row]
    labels = [pad if t is None or t.label is None else t.label for t in row]
    mask = [0.0 if policy.eod_mask_loss and token == policy.eod else 1.0 for token in tokens]
    positions = list(range(width))
    previous = 0
    attention = [[j <= i for j in range(width)] for i in range(width)]
    for k, token in enumerate(tokens):
        if policy.eod is None or token != policy.eod:
            continue
        if policy.reset_position_ids:
            positions[k + 1 :] = [p - (k + 1 - previous) for p in positions[k + 1 :]]
            previous = k + 1
        if policy.reset_attention_mask:
            for i in range(k + 1, width):
                attention[i][: k + 1] = [False] * (k + 1)
    mask = [0.0 if label == pad else value for label, value in zip(labels, mask, strict=True)]
    out: dict[str, Any] = {
        "tokens": [0 if token == pad else token for token in tokens],
        "labels": [0 if label == pad else label for label in labels],
        "loss_mask": mask,
        "position_ids": positions,
        "attention_mask": [[[not seen for seen in line] for line in attention]],
    }
    if policy.inter_document_masking:
        parts: dict[int, int] = {}
        for t in row:
            if t is not None:
                parts[t.extent] = parts.get(t.extent, 0) + 1
        lengths = list(parts.values())
        last = next((t for t in reversed(row) if t is not None), None)
        if ahead and last is not None and last.label is None:
            lengths[-1] -= 1
            if lengths[-1] == 0:
                lengths.pop()
        short = width - sum(lengths)
        if short and lengths:
            lengths[-1] += short
        elif short:
            lengths = [short]
        out["edges"] = [sum(lengths[:k]) for k in range(len(lengths) + 1)]
        out["position_ids"] = [k for length in lengths for k in range(length)]
    return out


def _maxtext(row: list[Token | None], policy: RowPolicy, width: int, ahead: int) -> dict[str, Any]:
    eod = policy.eod or 0
    inputs = [eod if t is None else t.id for t in row]
    targets = [eod if t is None or t.label is None else t.label for t in row]
    starts = [0]
    if policy.reset_attention_mask:
        starts += [k + 1 for k in range(width - 1) if inputs[k] == eod and row[k] is not None]
    most = policy.packing_max_segments_per_sample
    apart = width // most if policy.reset_attention_mask and most > 0 else 0
    if apart > 1:
        kept = [0]
        for start in starts[1:]:
            if start - kept[-1] > apart:
                kept.append(start)
        starts = kept
    segments = [sum(start <= k for start in starts) for k in range(width)]
    positions = [k - max(start for start in starts if start <= k) for k in range(width)]
    if policy.direct and not policy.reset_attention_mask and policy.eod_mask_loss:
        segments = [0 if token == eod else 1 for token in inputs]
    real = [t is not None for t in row]
    segments = [segment if yes else 0 for segment, yes in zip(segments, real, strict=True)]
    positions = [position if yes else 0 for position, yes in zip(positions, real, strict=True)]
    if policy.direct:
        counted = [0 if target == eod else segment for target, segment in zip(targets, [*segments[1:], 0], strict=True)]
    else:
        counted = [
            int(t is not None and t.label is not None and not (policy.eod_mask_loss and t.id == eod)) for t in row
        ]
    return {
        "inputs": inputs,
        "targets": targets,
        "inputs_segmentation": segments,
        "targets_segmentation": counted,
        "inputs_position": positions,
        "targets_position": positions,
    }


def _levanter(row: list[Token | None], policy: RowPolicy, width: int, ahead: int) -> dict[str, Any]:
    tokens = [0 if t is None else t.id for t in row]
    if policy.packed:
        weights = [1.0] * (width - 1) + [0.0]
        segments = [-1 if t is None else t.document for t in row]
    else:
        real = sum(t is not None for t in row)
        weights = [1.0] * (real - 1) + [0.0] * (width - max(real - 1, 0))
        segments = [sum(token == policy.eod for token in tokens[:k]) if k < real else -1 for k in range(width)]
    return {"tokens": tokens, "loss_weight": weights, "segment_ids": segments}
