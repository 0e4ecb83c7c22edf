"""Golden pairs, strategies and small tools shared by the tests of the Megatron format."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from tests.formats.megatron_reference import CODES, Documents
from tokenreel.store import MemoryStore

if TYPE_CHECKING:
    from tokenreel.formats.megatron import MegatronShard

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "megatron"
MANIFEST: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_text())
REFUSED = {"dtype_float32": "MEG007", "dtype_float64": "MEG007", "i32_multimodal": "MEG010"}
READABLE = sorted(set(MANIFEST["datasets"]) - set(REFUSED))


def golden(relative: str) -> tuple[bytes, bytes]:
    """Return (.idx, .bin) of a golden pair."""
    return (GOLDEN / f"{relative}.idx").read_bytes(), (GOLDEN / f"{relative}.bin").read_bytes()


def in_memory(idx: bytes, payload: bytes) -> MemoryStore:
    """Return a store that holds the pair ``p``."""
    return MemoryStore({"p.idx": idx, "p.bin": payload})


def documents_of(shard: MegatronShard) -> Documents:
    """Return everything in a shard through its public methods."""
    owners = shard.document_sequences(0, shard.documents)
    edges = shard.sequence_edges(0, shard.sequences)
    ids = [shard.read(int(a), int(b)).tolist() for a, b in itertools.pairwise(edges)]
    return [ids[a:b] for a, b in zip(owners[:-1].tolist(), owners[1:].tolist(), strict=True)]


@st.composite
def corpora(draw: st.DrawFn, *, plain: bool = False) -> tuple[str, Documents]:
    """Any integer type, and documents of sequences with ids of its whole range; empties of both kinds included."""
    dtype = draw(st.sampled_from(sorted(CODES)))
    info = np.iinfo(dtype)
    ids = st.one_of(st.integers(int(info.min), int(info.max)), st.sampled_from([0, int(info.min), int(info.max)]))
    sequence = st.lists(ids, max_size=6)
    document = st.lists(sequence, min_size=1, max_size=1) if plain else st.lists(sequence, max_size=4)
    return dtype, draw(st.lists(document, max_size=12))
