"""Small corpora of every stored type, their streams as lists, and tables of samples over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tokenreel
from tokenreel.corpus.corpus import Corpus
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.spans import Flag, SpanTable

MEGATRON = ("uint16", "int32", "int8", "uint8", "int16", "int64")
EOD = 3


@dataclass
class Made:
    corpora: list[Corpus]
    streams: list[list[int]]


def write_pair(folder: Path, name: str, dtype: str, ids: np.ndarray, lengths: list[int]) -> None:
    with MegatronWriter(f"{folder}/{name}", np.dtype(dtype)) as writer:
        writer.add_documents(ids.astype(dtype), np.array(lengths, dtype=np.int64))
        writer.finish()


@cache
def made(folder: Path) -> Made:
    """Return one corpus of each type: several shards, empty documents, documents of one token; ids over the whole type."""
    generator = np.random.Generator(np.random.PCG64(7))
    corpora = []
    for number, dtype in enumerate(MEGATRON):
        place = folder / dtype
        place.mkdir(parents=True, exist_ok=True)
        for shard in range(1 + number % 3):
            lengths = generator.choice([0, 1, 2, 3, 7, 20], 25).tolist()
            most = min(int(np.iinfo(dtype).max), (1 << 31) - 1)
            ids = generator.integers(0, most, sum(lengths), endpoint=True)
            ids[generator.random(len(ids)) < 0.2] = EOD
            write_pair(place, f"part_{shard}", dtype, ids, lengths)
        corpora.append(tokenreel.open(place))
    place = folder / "uint32"
    place.mkdir(parents=True, exist_ok=True)
    for shard in range(2):
        ids = generator.integers(0, 1 << 23, 90)
        ids[generator.random(len(ids)) < 0.2] = EOD
        ids.astype("<u4").tofile(place / f"part_{shard}.bin")
    corpora.append(tokenreel.open(place, dtype="uint32", boundary=f"suffix={EOD}"))
    return Made(corpora, [corpus.stream(0, corpus.tokens).tolist() for corpus in corpora])


@st.composite
def tables(draw: Any, sizes: list[int], width: int, ahead: int, *, ours: bool = True) -> SpanTable:
    """Draw unresolved samples of at most `width` tokens; with `ours` padding may stand anywhere and extents may be cut."""
    splits, columns = [0], []
    for _ in range(draw(st.integers(0, 4))):
        room, extents = width, []
        for _ in range(draw(st.integers(0, 5))):
            if room == 0:
                break
            c = draw(st.integers(0, len(sizes) - 1))
            length = draw(st.integers(1, room))
            if ours and draw(st.integers(0, 7)) == 0:
                extents.append([0, 0, length, Flag.PAD])
            else:
                begin = draw(st.integers(0, sizes[c] - length - 1))
                if extents and draw(st.booleans()):
                    # Go on where the one before ended: the same document, or the next one.
                    at = extents[-1][1] + extents[-1][2]
                    if at + length < sizes[extents[-1][0]]:
                        c, begin = extents[-1][0], at
                cut = Flag.CUT if ours and draw(st.integers(0, 5)) == 0 else Flag(0)
                extents.append([c, begin, length, cut])
            room -= length
        if ahead and extents and not extents[-1][3] & Flag.PAD:
            how = draw(st.sampled_from(["none", "ahead", "other"]))
            if how == "ahead":
                extents[-1][3] |= Flag.AHEAD
            elif how == "other":
                c = draw(st.integers(0, len(sizes) - 1))
                extents.append([c, draw(st.integers(0, sizes[c] - 1)), 0, Flag.AHEAD])
        if not ours and room and draw(st.booleans()) and not any(e[3] & Flag.AHEAD for e in extents):
            extents.append([0, 0, room, Flag.PAD])
        columns += extents
        splits.append(len(columns))
    corpus, begin, length, flags = zip(*columns, strict=True) if columns else ([], [], [], [])
    return SpanTable.of(splits, begin, length, corpus=corpus, flags=[int(f) for f in flags])
