"""Every ordered pair of writable formats: documents in == documents out, or a refusal before anything is written.

The table below is the promise: (target, property) -> equal, or the code of the refusal. It does not depend on the source,
which only has to be able to hold the property itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tokenreel
from tokenreel.convert import convert
from tokenreel.errors import TokenreelError
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.formats.registry import FORMATS, format_named

EQUAL = "equal"
WRITABLE = tuple(row.name for row in FORMATS if row.writer)
STREAMS = ("llmc-v1", "llmc-v7", "raw-uint16", "raw-uint32", "npy")
"""Documents by separators alone."""
NARROW = ("llmc-v1", "hobbylm-v1", "olmo-uint16", "ounce-v1", "raw-uint16")
"""Ids of 16 bits."""
NO_EMPTY = ("hobbylm-v1", "olmo-uint16", "olmo-uint32")
"""A table, and no place in it for a document without ids."""


@dataclass(frozen=True)
class Case:
    """Documents with one property, in one shard or several."""

    name: str
    dtype: str
    boundary: str
    shards: tuple[tuple[tuple[int, ...], ...], ...]
    refused: dict[str, str]
    """By target: the code; all others are equal."""


def _each(targets: tuple[str, ...], code: str) -> dict[str, str]:
    return dict.fromkeys(targets, code)


CASES = (
    Case("several shards", "uint16", "suffix=2", (((5, 6, 2), (7, 2)), ((8, 2),), ((9, 9, 9, 2), (4, 2))), {}),
    Case("one token", "uint16", "suffix=2", (((2,), (5, 2), (2,), (2,)),), {}),
    Case("a prefix", "uint16", "prefix=1", (((1, 5), (1,), (1, 6, 7)),), {}),
    Case("a prefix and a suffix", "uint16", "prefix=1,suffix=2", (((1, 5, 2), (1, 2), (1, 6, 2)),), {}),
    Case("id 65535", "uint16", "suffix=65535", (((5, 65535), (65534, 65535)),), {}),
    Case("id 65536", "int32", "suffix=2", (((5, 2), (65536, 2)),), _each(NARROW, "TOK010")),
    Case("id 2**31 - 1", "int32", "suffix=2", (((2**31 - 1, 2), (5, 2)),), _each(NARROW, "TOK010")),
    Case(
        "an empty document",
        "uint16",
        "suffix=2",
        (((5, 2), (), (6, 2)),),
        _each((*STREAMS, *NO_EMPTY), "DOC020"),
    ),
    Case("BOS == EOS", "uint16", "prefix=7,suffix=7", (((7, 5, 7), (7, 6, 7)),), _each(STREAMS, "TOK043")),
    Case(
        "a separator inside", "uint16", "suffix=2", (((5, 2, 6, 2), (7, 2)),), _each((*STREAMS, "hobbylm-v1"), "TOK044")
    ),
    Case(
        "a document without its suffix",
        "uint16",
        "suffix=2",
        (((5, 2), (6,), (7, 2)),),
        _each(STREAMS, "TOK045"),
    ),
    Case("no separator", "uint16", "", (((5, 6), (7,)),), _each(STREAMS, "TOK042")),
)


FAST = ("llmc-v1", "hobbylm-v1", "olmo-uint16", "mds", "levanter")
"""One of each kind; the others are tried in the slow run."""


def _kinds(names: list[str]) -> list[object]:
    return [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in names]


def make(folder: Path, case: Case) -> Path:
    for number, shard in enumerate(case.shards):
        with MegatronWriter(folder / f"part-{number}", case.dtype) as writer:
            for document in shard:
                writer.add_document([np.array(document, dtype=case.dtype)])
            writer.finish()
    return folder


def documents(path: Path, case: Case) -> list[tuple[int, ...]]:
    corpus = tokenreel.open(path, boundary=case.boundary or None)
    out = [tuple(ids.tolist()) for ids in corpus]
    corpus.close()
    return out


def check(case: Case, source: Path, target: str, out: Path) -> None:
    """Convert, and hold what happens against the table."""
    wanted = [document for shard in case.shards for document in shard]
    expected = case.refused.get(target, EQUAL)
    if expected == EQUAL:
        done = convert(source, out, to=target, boundary=case.boundary or None, workers=1)
        assert done.documents == len(wanted)
        assert documents(out, case) == wanted
        return
    with pytest.raises(TokenreelError) as caught:
        convert(source, out, to=target, boundary=case.boundary or None, workers=1)
    assert caught.value.code == expected
    assert not out.exists(), "a refusal comes before anything is written"
    if expected in ("TOK010", "TOK044", "TOK045", "DOC020"):
        assert "document" in caught.value.where, "it names the document"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("target", _kinds(list(WRITABLE)))
def test_from_megatron(case: Case, target: str, tmp_path: Path) -> None:
    check(case, make(tmp_path / "in", case), target, tmp_path / "out")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("source", [name for name in WRITABLE if name != "megatron-v1"])
@pytest.mark.slow
def test_every_pair(case: Case, source: str, tmp_path: Path) -> None:
    if source in case.refused:
        pytest.skip("the source cannot hold it")
    made = make(tmp_path / "in", case)
    convert(made, tmp_path / "source", to=source, boundary=case.boundary or None, workers=1)
    for target in WRITABLE:
        check(case, tmp_path / "source", target, tmp_path / target)


@pytest.mark.parametrize("source", FAST)
def test_and_back(source: str, tmp_path: Path) -> None:
    case = CASES[0]
    convert(make(tmp_path / "in", case), tmp_path / "source", to=source, boundary=case.boundary, workers=1)
    check(case, tmp_path / "source", "megatron-v1", tmp_path / "out")


def test_the_table_speaks_of_every_format() -> None:
    assert {name for name in WRITABLE if format_named(name).streamed} - {"hobbylm-v1"} == set(STREAMS)
    assert set(NARROW) | set(NO_EMPTY) <= set(WRITABLE)
