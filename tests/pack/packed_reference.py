"""Packing written down from its definition, slowly: rows of (document, start, tokens), one list a row."""

from __future__ import annotations

from typing import Any

from tokenreel.pack.bestfit import visits
from tokenreel.pack.packed_policy import Packing

Row = list[tuple[int, int, int]]


def reference_rows(lengths: list[int], packing: Packing, seed: int = 0) -> list[Row]:
    """The rows of one pass, unshuffled: all tokens that they take, a last label of their own included."""
    if packing.policy in ("concat", "flat"):
        rows = end_to_end(lengths, packing.row_tokens)
        return [row for row in rows if packing.tail != "drop" or sum(n for _, _, n in row) == packing.row_tokens]
    if packing.policy in ("one-per-row", "truncate"):
        return [row for document, n in enumerate(lengths) for row in alone(document, n, packing)]
    out: list[Row] = []
    for number, low in enumerate(range(0, len(lengths), packing.window)):
        documents = list(range(low, min(low + packing.window, len(lengths))))
        out += window_rows(documents, lengths, packing, seed, number)
    return out


def extents_of(rows: list[Row], packing: Packing) -> list[Row]:
    """What of rows is input: the last token of a full row is its label alone where it has one of its own."""
    if not packing.own_ahead:
        return rows
    return [
        [*row[:-1], (*row[-1][:2], row[-1][2] - 1)] if sum(n for _, _, n in row) == packing.takes else row
        for row in rows
    ]


def end_to_end(lengths: list[int], room: int) -> list[Row]:
    tokens = [(d, k) for d, n in enumerate(lengths) for k in range(n)]
    return [joined([(d, k, 1) for d, k in tokens[at : at + room]]) for at in range(0, len(tokens), room)]


def joined(row: Row) -> Row:
    out: Row = []
    for d, start, n in row:
        if out and out[-1][0] == d and out[-1][1] + out[-1][2] == start:
            out[-1] = (d, out[-1][1], out[-1][2] + n)
        else:
            out.append((d, start, n))
    return out


def alone(document: int, n: int, packing: Packing) -> list[Row]:
    room = packing.row_tokens
    if packing.policy == "truncate" or packing.oversize == "truncate":
        return [[(document, 0, min(n, room))]] if n else []
    if packing.oversize == "drop" and n > room:
        return []
    return [[(document, at, min(room, n - at))] for at in range(0, n, room)]


def window_rows(documents: list[int], lengths: list[int], packing: Packing, seed: int, number: int) -> list[Row]:
    room, policy = packing.takes, packing.policy
    full: list[Row] = []
    pieces: Row = []
    for d in documents:
        n = lengths[d]
        if policy == "decompose":
            at = 0
            while n - at >= room:
                full.append([(d, at, room)])
                at += room
            pieces.append((d, at, n - at))
        elif policy in ("bos-aligned", "levanter-greedy") and packing.oversize != "split":
            pieces.append((d, 0, n))
        elif policy == "crop":
            if n <= room or packing.oversize == "wait":
                pieces.append((d, 0, n))
            elif packing.oversize == "truncate":
                pieces.append((d, 0, room))
            elif packing.oversize == "split":
                whole = n // room
                full += [[(d, at * room, room)] for at in range(whole)]
                pieces.append((d, whole * room, n - whole * room))
        elif packing.oversize == "split":
            whole = n // room
            full += [[(d, at * room, room)] for at in range(whole)]
            pieces.append((d, whole * room, n - whole * room))
        elif n == room or (n > room and packing.oversize == "truncate"):
            full.append([(d, 0, room)])
        elif n < room:
            pieces.append((d, 0, n))
    return full + PACKERS[policy](pieces, packing, (seed, number, documents))


def bestfit(pieces: Row, packing: Packing, about: Any) -> list[Row]:
    seed, number, documents = about
    blocks, flips = visits(len(documents), seed, number)
    order = [64 * b + (i ^ f) for b, f in zip(blocks.tolist(), flips.tolist(), strict=True) for i in range(64)]
    rank = {documents[k]: place for place, k in enumerate(order) if k < len(documents)}
    rows: list[Row] = []
    arrived: list[tuple[int, int]] = []  # (since when, room left) of each row
    for clock, piece in enumerate(sorted((p for p in pieces if p[2]), key=lambda p: (-p[2], rank[p[0]]))):
        fitting = [(left, since, row) for row, (since, left) in enumerate(arrived) if left >= piece[2]]
        if fitting:
            left, _, row = min(fitting)
        else:
            left, row = packing.row_tokens, len(rows)
            rows.append([])
            arrived.append((clock, left))
        rows[row].append(piece)
        arrived[row] = (clock, left - piece[2])
    return sorted((sorted(row) for row in rows), key=lambda row: row[0][0])


def firstfit(pieces: Row, packing: Packing, about: Any) -> list[Row]:
    rows: list[Row] = []
    opened: list[int] = []

    def left(row: int) -> int:
        return packing.row_tokens - sum(p[2] for p in rows[row])

    for piece in pieces:
        if not piece[2]:
            continue
        row = next((row for row in opened if left(row) >= piece[2]), None)
        if row is None:
            if len(opened) == packing.open_rows:
                opened.remove(min(opened, key=left))
            row = len(rows)
            rows.append([])
            opened.append(row)
        rows[row].append(piece)
        opened = [one for one in opened if left(one)]
    return sorted(rows, key=lambda row: row[0][0])


def crop(pieces: Row, packing: Packing, about: Any) -> list[Row]:
    coming, buffer, rows = [p for p in pieces if p[2]], [], []
    while coming or buffer:
        row: Row = []
        left = packing.takes
        while left:
            while coming and len(buffer) < packing.buffer:
                buffer += coming[: packing.refill]
                del coming[: packing.refill]
            if not buffer:
                break
            fitting = [p for p in buffer if p[2] <= left]
            taken = max(fitting, key=lambda p: p[2]) if fitting else min(buffer, key=lambda p: p[2])
            buffer.remove(taken)
            row.append((taken[0], taken[1], min(left, taken[2])))
            left -= row[-1][2]
        rows += [row] if not left or packing.tail == "pad" else []
    return rows


def aligned(pieces: Row, packing: Packing, about: Any) -> list[Row]:
    rows: list[Row] = []
    left = 0
    for d, start, n in pieces:
        if n:
            if not left:
                rows.append([])
                left = packing.takes
            rows[-1].append((d, start, min(n, left, packing.longest)))
            left -= rows[-1][-1][2]
    return rows[:-1] if left and packing.tail == "drop" else rows


def greedy(pieces: Row, packing: Packing, about: Any) -> list[Row]:
    rows: list[Row] = []
    held = filled = 0
    is_open = False
    for d, start, n in pieces:
        if n > packing.row_tokens and packing.oversize == "drop":
            is_open = False
            continue
        if is_open and (filled + n > packing.row_tokens or (packing.segments and held == packing.segments)):
            is_open = False
        if not is_open:
            rows.append([])
            held = filled = 0
            is_open = True
        kept = min(n, packing.row_tokens)
        if kept:
            rows[-1].append((d, start + (n - kept if packing.keep == "last" else 0), kept))
        held, filled = held + 1, filled + n
    return rows


def decompose(pieces: Row, packing: Packing, about: Any) -> list[Row]:
    rows: list[Row] = []
    power = packing.row_tokens // 2
    while power >= packing.shortest:
        row: Row = []
        for number, (d, at, n) in enumerate(pieces):
            if n >= power:
                row.append((d, at, power))
                pieces[number] = (d, at + power, n - power)
                if len(row) * power == packing.row_tokens:
                    rows.append(row)
                    row = []
        rows += [row] if row else []
        power //= 2
    return rows


PACKERS = {
    "bestfit": bestfit,
    "firstfit": firstfit,
    "crop": crop,
    "bos-aligned": aligned,
    "levanter-greedy": greedy,
    "decompose": decompose,
}
