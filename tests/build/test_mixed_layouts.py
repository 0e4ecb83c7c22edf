"""Layouts of mixes: ounce as its card's own reader reads it, hobbylm with its tables, and other formats as they are."""

from __future__ import annotations

import array
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenreel
from tests.build.making import tokenizer_file
from tests.build.mixed_runs import build, json_of, sources, text, whole
from tests.build.mixes import write_records
from tokenreel.build import mixed
from tokenreel.errors import RecipeError, StorageError, TokenError
from tokenreel.order.stream import StreamOrder
from tokenreel.text import load_tokenizer
from tokenreel.verify import verify


def read_as_the_card_does(path: Path) -> tuple[int, array.array[int], array.array[int]]:
    with open(path, "rb") as f:  # noqa: PTH123 (as the card has it)
        vocab, n_docs, n_tokens, flags = struct.unpack("<IIII", f.read(16))
        offs = array.array("I")
        offs.fromfile(f, n_docs + 1)
        ids = array.array("H")
        ids.fromfile(f, n_tokens)
        assert flags == 0
        assert f.read() == b""
    return vocab, offs, ids


def clean(out: Path) -> None:
    report = verify(out, level="full")
    assert (report.status, [one for one in report.findings if one.severity != "information"]) == ("ok", [])


@pytest.fixture(scope="module")
def ounce(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ounce")
    build(
        folder,
        whole(
            folder, layout="ounce", split={"rule": "every-nth", "n": 50}, source=sources(folder, {"a": 120, "b": 80})
        ),
    )
    return folder


def test_the_card_s_four_lines_read_it(ounce: Path) -> None:
    tok = load_tokenizer(str(ounce / "tokenizer.json"))
    seen: list[str] = []
    for path in [*sorted((ounce / "out").glob("shard_*.bin")), *sorted((ounce / "out/val").glob("shard_*.bin"))]:
        vocab, offs, ids = read_as_the_card_does(path)
        assert offs[0] == 0
        assert max(ids) < vocab == tok.vocab_size
        for begin, end in pairwise(offs):
            assert ids[end - 1] == 1  # <eod>, after every document
            seen.append(tok.decode(np.array(ids[begin : end - 1])))
    assert sorted(seen) == sorted([*(text("a", k) for k in range(120)), *(text("b", k) for k in range(80))])


def test_a_training_position_is_a_shard_and_a_token_of_it(ounce: Path) -> None:
    paths = sorted((ounce / "out").glob("shard_*.bin"))
    ids = [list(read_as_the_card_does(path)[2]) for path in paths]
    assert len(ids) > 3
    train = tokenreel.open(ounce / "out").split("train")
    order = StreamOrder.over(train.table(), 16, shard_tokens=train.shard_tokens)
    for start in ((0, 0), (1, 7), (2, len(ids[2]) - 3)):
        with tokenreel.open_feed(order, corpora=train, batch=2, start=start, rows="plain") as feed:
            rows = next(feed).arrays["input_ids"]
            state = feed.state_dict()["stream"]
        following = [one for part in ids[start[0] :] for one in part][start[1] :]
        assert rows.reshape(-1).tolist() == following[:32]
        at = sum(len(part) for part in ids[: state["shard"]]) + state["offset"]
        assert at == sum(len(part) for part in ids[: start[0]]) + start[1] + 32
        assert state["name"] == paths[state["shard"]].stem


def test_shards_are_closed_by_the_document_that_reaches_their_size(ounce: Path) -> None:
    for folder, target in (("", 900), ("val/", 400)):
        paths = sorted((ounce / "out").glob(f"{folder}shard_*.bin"))
        for path in paths:
            _, offs, _ = read_as_the_card_does(path)
            assert offs[-2] < target
            assert offs[-1] >= target or path == paths[-1]


def test_every_fiftieth_document_of_all_sources_is_held_out_and_in_no_training_shard(ounce: Path) -> None:
    from pyarrow import parquet

    rows = parquet.read_table(ounce / "out/documents.parquet").to_pylist()
    assert [row["split"] for row in rows].count("val") == 4
    assert len({row["id"] for row in rows}) == 200
    corpus = tokenreel.open(ounce / "out")
    assert set(corpus.splits) == {"train", "val"}


def test_the_manifest_says_shards_mix_and_first_and_last_documents(ounce: Path) -> None:
    said = json_of(ounce / "out/manifest.json")
    tok = load_tokenizer(str(ounce / "tokenizer.json"))
    assert said["tokenizer"]["sha256"] == tok.sha256
    assert said["val"]["rule"] == {"rule": "every-nth", "n": 50}
    for split in ("train", "val"):
        shards = said[split]["shards"]
        assert said[split]["tokens"] == sum(one["n_tokens"] for one in shards)
        for one in shards:
            _, offs, _ = read_as_the_card_does(ounce / "out" / one["file"])
            assert (len(offs) - 1, offs[-1]) == (one["n_docs"], one["n_tokens"])
            assert sum(one["source_tokens"].values()) == one["n_tokens"]
    clean(ounce / "out")
    # Without our own manifest the layout's says as much.
    (ounce / "out/tokenreel.json").rename(ounce / "kept")
    assert set(tokenreel.open(ounce / "out").splits) == {"train", "val"}
    (ounce / "kept").rename(ounce / "out/tokenreel.json")


def hobbylm(folder: Path, **tables: Any) -> Any:
    tokenizer_file(folder)
    given = {"tokenizer": {"path": "tokenizer.json", "eod": "<eod>", "eod_at": "begin"}, "split": None, **tables}
    return whole(folder, layout="hobbylm", merge={"how": "sequential"}, **given)


def test_hobbylm_has_a_table_for_every_source_and_the_token_leads(tmp_path: Path) -> None:
    tables = sources(tmp_path, {"wiki": 30, "pg19": 10}, metadata=["url"])
    tables[0]["max_doc_tokens"] = 20
    build(tmp_path, hobbylm(tmp_path, source=tables, output={"shard_tokens": {"train": 500}}))
    out = tmp_path / "out"
    clean(out)
    for name, count in (("wiki", 30), ("pg19", 10)):
        index = json_of(out / f"{name}_index.json")
        lines = [json.loads(line) for line in (out / f"{name}_docs.jsonl").read_text().splitlines()]
        assert len(index) == count == len(lines)
        for entry, line in zip(index, lines, strict=True):
            assert {key: line[key] for key in entry} == entry
            ids = np.fromfile(out / entry["shard"], "<u2", offset=1024)[entry["offset"] :][: entry["length"]]
            assert (ids[0], (ids == 1).sum()) == (1, 1)
            meta = line["meta"]
            assert meta["url"].startswith(f"https://{name}/")
            if name == "wiki":
                assert entry["length"] <= 20
                assert meta.get("truncated", False) == ("original_tokens" in meta)
        assert sum(one["length"] for one in index) == sum(
            one["tokens"] for one in json_of(out / "mix.json")["shards"] if one["name"].startswith(name)
        )
    (wiki, _) = json_of(out / "mix.json")["sources"]
    assert wiki["lengths"]["max"] == 20
    assert wiki["capped"] == sum("truncated" in line for line in (out / "wiki_docs.jsonl").read_text().splitlines())
    assert [one["row_tokens"] for one in wiki["waste"]] == [1024, 4096, 8192, 32768]


def test_a_split_gives_hobbylm_two_folders(tmp_path: Path) -> None:
    build(tmp_path, hobbylm(tmp_path, split={"rule": "every-nth", "n": 5}))
    clean(tmp_path / "out")
    assert set(tokenreel.open(tmp_path / "out").splits) == {"train", "val"}


def test_metadata_that_would_be_taken_for_offsets_is_refused(tmp_path: Path) -> None:
    tables = sources(tmp_path, {"wiki": 3}, metadata=["offset"])
    with pytest.raises(RecipeError, match="RCP006 metadata of 'wiki'"):
        build(tmp_path, hobbylm(tmp_path, source=tables))


def test_a_token_that_tells_documents_may_not_stand_in_one(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", [{"text": "fine"}, {"text": "not <eod> fine"}])
    said = {"path": "tokenizer.json", "eod": "<eod>", "special_in_text": "special", "eod_at": "begin"}
    recipe = hobbylm(
        tmp_path, tokenizer=said, source=[{"name": "a", "paths": ["in/a.jsonl"]}], dedup={}, decontaminate=None
    )
    with pytest.raises(TokenError, match="TOK046"):
        build(tmp_path, recipe)
    assert not list((tmp_path / "out").glob("*.bin"))


FORMATS = (
    "llmc-v1", "raw-uint16", "npy", "ounce-v1", "datatrove", "olmo", "parquet",
    "mds", "litdata", "levanter", "arrow",
)  # fmt: skip
"""Of the last four an index lies in the folder of each split."""


@pytest.mark.parametrize("name", FORMATS)
def test_other_formats_hold_the_same_documents(tmp_path: Path, name: str) -> None:
    recipe = whole(tmp_path, output={"format": name, "shard_tokens": {"train": 900, "val": 400}})
    build(tmp_path, recipe)
    clean(tmp_path / "out")
    build(tmp_path, whole(tmp_path), "megatron")
    one, two = tokenreel.open(tmp_path / "out"), tokenreel.open(tmp_path / "megatron")
    for split in two.splits:
        assert one.split(split).identity().digest == two.split(split).identity().digest
    assert build(tmp_path, recipe).nothing_to_do


def test_an_index_of_an_earlier_merge_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"output": {"format": "litdata", "shard_tokens": {"train": 2000, "val": 400}}}
    with monkeypatch.context() as patch:
        patch.setattr(mixed, "write_stages", lambda *_: (_ for _ in ()).throw(StorageError("STO003", path=tmp_path)))
        with pytest.raises(StorageError):
            build(tmp_path, whole(tmp_path, **given))
    assert (tmp_path / "out/shards/validation/index.json").is_file()
    given["output"]["shard_tokens"] = {"train": 5000, "val": 5000}
    recipe = whole(tmp_path, merge={"how": "sequential"}, **given)
    build(tmp_path, recipe)
    clean(tmp_path / "out")
    fresh = build(tmp_path, recipe, "fresh")
    assert fresh.record["splits"] == json_of(tmp_path / "out/mix.json")["splits"]
