"""Every kind of order a run file may name is the order its tables say, over the corpora it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.index.data import lengths_of, opened, write
from tokenreel.config.orders import AnyOrder
from tokenreel.config.run import parse_run
from tokenreel.errors import FormatError, StorageError, TokenError
from tokenreel.index.assemble import Assembled, assemble
from tokenreel.index.files import put
from tokenreel.index.maxtext import convert
from tokenreel.order.levanter import LevanterOrder
from tokenreel.order.levanter_shuffle import LevanterShuffle
from tokenreel.order.maxtext_blend import MaxTextBlendOrder
from tokenreel.order.maxtext_mmap import MaxTextMmapOrder
from tokenreel.order.maxtext_mmap_mix import MaxTextMmapMixOrder
from tokenreel.order.maxtext_npy import MaxTextNpyOrder
from tokenreel.order.megatron import MegatronOrder
from tokenreel.order.megatron_blend import MegatronBlend
from tokenreel.order.mix import Component, MixOrder
from tokenreel.order.mix_phases import Phase
from tokenreel.order.protocol import Order
from tokenreel.order.stream import StreamOrder
from tokenreel.order.streams_hobbylm import HobbyStream
from tokenreel.order.streams_llmc import LlmcStream
from tokenreel.order.streams_nanogpt import NanogptOrder
from tokenreel.order.windows import WindowsOrder
from tokenreel.order.windows_shuffle import BlockShuffle
from tokenreel.pack.packed import PackedOrder
from tokenreel.pack.packed_policy import Packing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(("web", "code")):
        write(tmp_path / name, lengths_of(number, 50 + number))
    put(tmp_path / "cache", convert([str(tmp_path / "web")], 16, num_samples=50))
    return tmp_path


def made(folder: Path, order: dict[str, Any], **keys: Any) -> Assembled:
    corpora = [{"name": name, "path": f"{name}.idx"} for name in ("web", "code")]
    (segment,) = parse_run({"corpus": corpora, "order": order, **keys})
    return assemble(segment.run, folder)


WEIGHTED = [{"corpus": "web", "weight": 0.7}, {"corpus": "code", "weight": 0.3}]
WEB = {"corpus": "web", "row_tokens": 8}


def cases(web: Any, code: Any) -> dict[str, tuple[dict[str, Any], Order]]:
    """Return, by name, what a run file says and the order made by hand."""
    shards = web.shard_tokens
    key, table = web.table().key, web.table()
    both = [web.sequences(), code.sequences()]
    documents = [web.table(), code.table()]
    return {
        "stream": ({"row_ahead": 0, **WEB}, StreamOrder.over(table, 8, 0)),
        "windows": (
            {"seed": 3, "epochs": 0, "io": {"block": 2, "together": 3}, **WEB},
            WindowsOrder.over(table, 8, 3, epochs=None, io=BlockShuffle(2, 3)),
        ),
        "llmc-stream": ({"batch": 2, "shuffle": True, **WEB}, LlmcStream(key, 8, 2, shards, shuffle=True)),
        "hobbylm-stream": (
            {"batch": 2, "walk": "shuffled", **WEB},
            HobbyStream(key, 8, 2, shards, ("web.bin",), walk="shuffled"),
        ),
        "nanogpt": ({"batch": 2, "steps": 9, **WEB}, NanogptOrder(key, 8, 2, steps=9)),
        "megatron": (
            {"samples": 300, "split": "9,1", "part": "valid", "keep_partial": True, **WEB},
            MegatronOrder.over(
                web.sequences(), 8, seed=1234, samples=300, split="9,1", part="valid", keep_partial=True
            ),
        ),
        "megatron-blend": (
            {"member": WEIGHTED, "row_tokens": 8, "samples": 40, "seed": 2, "per_split": True, "arithmetic": "fused"},
            MegatronBlend.over(
                both, 8, seed=2, samples=40, weights=[0.7, 0.3], arithmetic="fused", split=None, documents=documents
            ),
        ),
        "maxtext-npy": (
            {"corpus": ["web", "code"], "row_tokens": 8, "samples": 40, "split": "8,2", "split_index": 1},
            MaxTextNpyOrder.over(documents, 8, samples=40, split="8,2", split_index=1),
        ),
        "maxtext-npy-blend": (
            {"member": WEIGHTED, "row_tokens": 8, "samples": 40, "seed": 1},
            MaxTextBlendOrder.over(documents, [0.7, 0.3], 8, seed=1, samples=40),
        ),
        "maxtext-mmap": (
            {"corpus": ["code", "web"], "row_tokens": 8, "epochs": 2},
            MaxTextMmapOrder.over(documents[::-1], 8, epochs=2),
        ),
        "maxtext-mmap-mix": (
            {"member": WEIGHTED, "row_tokens": 8, "hosts": 2},
            MaxTextMmapMixOrder.over(documents, [0.7, 0.3], 8, hosts=2),
        ),
        "packed": (
            {"policy": "concat", "seed": 3, **WEB},
            PackedOrder.over(table, Packing.of("concat", 8), seed=3),
        ),
        "levanter": (
            {
                "row_tokens": 8,
                "block": 16,
                "seed": 4,
                "trainer": "grug",
                "shuffle": {"kind": "era", "era_length": 5},
                "component": [
                    {"name": "w", "corpus": "web", "weight": 3},
                    {"name": "c", "corpus": "code", "weight": 1},
                ],
            },
            LevanterOrder.of(
                {"w": [StreamOrder.over(table, 8, 0)], "c": [StreamOrder.over(code.table(), 8, 0)]},
                {"w": 3.0, "c": 1.0},
                block=16,
                seed=4,
                trainer="grug",
                shuffle=LevanterShuffle(kind="era", era_length=5),
            ),
        ),
        "mix": (
            {
                "seed": 4,
                "block": 8,
                "samples": 60,
                "component": [
                    {"name": "a", "order": {"kind": "windows", "seed": 1, **WEB}, "at_end": "repeat", "weight": 3},
                    {"name": "b", "order": {"kind": "stream", "corpus": "code", "row_tokens": 8}, "weight": 1},
                ],
            },
            MixOrder(
                (
                    Component("a", WindowsOrder.over(table, 8, 1), "repeat"),
                    Component("b", StreamOrder.over(code.table(), 8)),
                ),
                (Phase(0, (3.0, 1.0)),),
                4,
                8,
                60,
            ),
        ),
    }


KINDS = [
    "hobbylm-stream",
    "levanter",
    "llmc-stream",
    "maxtext-mmap",
    "maxtext-mmap-mix",
    "maxtext-npy",
    "maxtext-npy-blend",
    "megatron",
    "megatron-blend",
    "mix",
    "nanogpt",
    "packed",
    "stream",
    "windows",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_file_s_order_is_the_order_made_by_hand(kind: str, folder: Path) -> None:
    said, order = cases(opened(folder / "web"), opened(folder / "code"))[kind]
    found = made(folder, {"kind": kind, **said})
    assert (found.order.name, found.order.length) == (order.name, order.length)
    assert found.order.fingerprint == order.fingerprint
    ready, other = found.order.prepare(), order.prepare()
    count = min(30, ready.length or 30)
    for one, two in zip(ready.spans(0, count).columns(), other.spans(0, count).columns(), strict=True):
        assert one.tolist() == two.tolist()
    # Names and corpora stand where the order's extents look for them.
    assert len(found.names) == len(found.corpora) == len(order.corpora)
    for name, corpus, key in zip(found.names, found.corpora, order.corpora, strict=True):
        assert corpus.tokens == key.tokens == opened(folder / name).tokens
    resolved = found.resolved(ready.spans(0, count))
    assert resolved.document.min() >= 0


def test_every_kind_is_tried() -> None:
    tags = {str(kind.__struct_config__.tag) for kind in AnyOrder.__args__}  # type: ignore[attr-defined]
    assert tags == {*KINDS, "megatron-files"}


def test_an_order_of_index_files(folder: Path) -> None:
    found = made(
        folder, {"kind": "megatron-files", "corpus": "web", "folder": "cache", "row_tokens": 16, "unit": "document"}
    )
    corpus = opened(folder / "web")
    order = MaxTextNpyOrder.over(corpus.table(), 16, seed=1234, samples=50).prepare()
    ready = found.order.prepare()
    for one, two in zip(ready.spans(0, 50).columns(), order.spans(0, 50).columns(), strict=True):
        assert one.tolist() == two.tolist()
    with pytest.raises(FormatError, match="IDX001"):
        made(folder, {"kind": "megatron-files", "corpus": "web", "folder": "none", "row_tokens": 16})


def test_the_run_s_seed_is_for_orders_that_say_none(folder: Path) -> None:
    def seed(order: dict[str, Any], **keys: Any) -> Any:
        return made(folder, {**WEB, **order}, **keys).order.seed  # type: ignore[attr-defined]

    assert seed({"kind": "windows"}) == 0
    assert seed({"kind": "windows"}, seed=9) == 9
    assert seed({"kind": "windows", "seed": 0}, seed=9) == 0
    assert [seed({"kind": kind}) for kind in ("megatron", "maxtext-npy")] == [1234, 0]


def test_phases_in_steps_are_converted_with_the_schedule(folder: Path) -> None:
    inner = {"kind": "windows", "epochs": 0, **WEB}
    order = {
        "kind": "mix",
        "component": [{"name": name, "order": inner} for name in "ab"],
        "phase": [
            {"step": 0, "weights": {"a": 1}},
            {"step": 12, "weights": {"b": 1}},
            {"sample": 500, "weights": {"a": 2}},
        ],
    }
    schedule = {"batch": 4, "ramp": [{"step": 10, "batch": 16}]}
    mix = made(folder, order, schedule=schedule).order
    assert isinstance(mix, MixOrder)
    assert [phase.begin for phase in mix.phases] == [0, 10 * 4 + 2 * 16, 500]
    assert np.bincount(mix.components_at(range(72)), minlength=2).tolist() == [72, 0]


def test_what_a_corpus_says_of_itself_is_checked(folder: Path) -> None:
    def with_corpus(**keys: Any) -> None:
        corpus = {"name": "web", "path": "web.idx", **keys}
        (segment,) = parse_run({"corpus": [corpus], "order": {"kind": "stream", "row_tokens": 8}})
        assemble(segment.run, folder)

    with_corpus(dtype="uint16", boundary="suffix=2", vocab=100)
    with pytest.raises(TokenError, match="TOK003"):
        with_corpus(dtype="int32")
    with pytest.raises(StorageError, match="STO001"):
        with_corpus(path="absent/web")
