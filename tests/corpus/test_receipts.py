"""Receipts, manifests and their kin: the golden ones are read, ours go round, and nothing wrong passes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokenreel.corpus.manifest import BoundaryRecord, Manifest, ShardRecord, SplitRecord, dump_manifest, parse_manifest
from tokenreel.corpus.receipts import (
    Complete,
    Counts,
    DecodedBack,
    FileEntry,
    InputFile,
    Receipt,
    RunConfig,
    SplitCounts,
    Stats,
    contradictions,
    dump,
    parse_as,
    parse_receipt,
    seal,
    self_hash,
    sum_receipts,
)
from tokenreel.errors import ManifestError

GOLDEN = Path(__file__).parents[1] / "golden" / "mahan"
SHA = "0" * 64


def golden_receipts() -> list[Receipt]:
    return [parse_receipt(path.read_bytes(), path) for path in sorted((GOLDEN / "receipts").iterdir())]


def receipt(**changes: Any) -> Receipt:
    train = SplitCounts(
        documents=2,
        text_tokens=5,
        eod_tokens=2,
        total_tokens=7,
        files=(FileEntry("shards/train/part-000000.bin", 14, SHA), FileEntry("shards/train/part-000000.idx", 82, SHA)),
    )
    whole = Receipt(
        part="part-000000",
        input=InputFile(source="a", path="a.jsonl", bytes=9, sha256=SHA, rows=3),
        run_config_sha256=SHA,
        splits={"train": train, "validation": SplitCounts()},
        by_source={"a": {"train": Counts(documents=2, text_tokens=5, eod_tokens=2, total_tokens=7)}},
        dropped={"empty": 1},
        lossless=DecodedBack(2, 1),
    )
    return msgspec.structs.replace(whole, **changes)


def test_golden_receipts_are_read_and_add_up() -> None:
    receipts = golden_receipts()
    for one in receipts:
        assert list(contradictions(one, itemsize=2)) == []
    stats = parse_as(Stats, (GOLDEN / "stats.json").read_bytes())
    assert sum_receipts(receipts).by_split == stats.by_split
    assert receipts[1].splits["validation"] == SplitCounts()
    assert receipts[0].lossless is None


def test_the_other_golden_sidecars_are_read() -> None:
    complete = parse_as(Complete, (GOLDEN / "COMPLETE.json").read_bytes())
    assert (complete.parts, complete.receipts_sha256) == (3, None)
    config = parse_as(RunConfig, (GOLDEN / "run_config.json").read_bytes())
    assert (config.eod_id, config.dtype, config.inputs) == (1, "uint16", ())


@pytest.mark.parametrize("lossless", [True, False, None, DecodedBack(3, 2)])
def test_ours_goes_round(lossless: Any) -> None:
    one = receipt(lossless=lossless)
    data = dump(one)
    assert parse_receipt(data) == one
    assert data == dump(parse_receipt(data))
    assert b"null" not in data


def test_a_sealed_receipt_holds_its_own_hash() -> None:
    sealed = seal(receipt())
    data = dump(sealed)
    recorded, found = self_hash(data)
    assert recorded == found == sealed.receipt_sha256
    assert found == hashlib.sha256(dump(receipt())).hexdigest()
    assert seal(sealed) == sealed
    assert parse_receipt(data) == sealed
    value = json.loads(data)
    for change in ({"special_in_text": 1}, {"unknown": 1}, {"by_source": {}}):
        recorded, found = self_hash(json.dumps({**value, **change}).encode())
        assert recorded == sealed.receipt_sha256 != found


def test_receipts_of_others_record_no_hash() -> None:
    for path in sorted((GOLDEN / "receipts").iterdir()):
        assert self_hash(path.read_bytes(), path)[0] is None
    with pytest.raises(ManifestError, match="MAN003"):
        self_hash(b"[]")


WRONG_SUMS = [
    ({"total_tokens": 8}, "text and EOD tokens"),
    ({"eod_tokens": 1, "total_tokens": 6}, "one EOD a document"),
    ({"documents": 1, "eod_tokens": 1, "total_tokens": 6}, "the sum of its sources"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_SUMS)
def test_sums_that_do_not_hold(changes: dict[str, int], message: str) -> None:
    train = msgspec.structs.replace(receipt().splits["train"], **changes)
    bad = receipt(splits={"train": train, "validation": SplitCounts()})
    with pytest.raises(ManifestError, match=message) as caught:
        parse_receipt(dump(bad), "receipts/part-000000.json")
    assert caught.value.code == "MAN012"
    assert caught.value.where["shard"] == "part-000000"


def test_rows_that_went_missing() -> None:
    assert [what for what, _, _ in contradictions(receipt(dropped={}))] == ["rows of the input"]


def test_files_of_an_empty_split_and_outside() -> None:
    empty = SplitCounts(files=(FileEntry("../x.bin", 0, SHA),))
    found = [what for what, _, _ in contradictions(receipt(splits={**receipt().splits, "validation": empty}))]
    assert found == ["validation: a file outside the corpus", "validation: files of an empty split"]


def test_sizes_of_files_follow_from_counts() -> None:
    assert list(contradictions(receipt(), itemsize=2)) == []
    assert [what for what, _, _ in contradictions(receipt(), itemsize=4)] == [
        "train: bytes of shards/train/part-000000.bin"
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "MAN001"),
        (b"[]", "MAN003"),
        (b'{"part": "a", "part": "b", "splits": {}}', "MAN002"),
        (b'{"part": 1, "splits": {}}', "MAN003"),
        (b'{"part": "a"}', "MAN003"),
        (b'{"part": "a", "splits": {"train": {"documents": -1}}}', "MAN003"),
        (b'{"part": "a", "splits": {"train": {"documents": 1.0}}}', "MAN003"),
        (b'{"part": "a", "splits": {"train": {"documents": true}}}', "MAN003"),
        (b'{"part": "a", "splits": {}, "run_config_sha256": "00"}', "MAN003"),
        (json.dumps({"part": "a", "splits": {}, "run_config_sha256": SHA + "\n"}).encode(), "MAN003"),
    ],
)
def test_what_is_no_receipt(text: bytes, code: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_receipt(text, "r.json")
    assert caught.value.code == code
    assert caught.value.where["path"] == "r.json"


def manifest() -> Manifest:
    shard = ShardRecord(
        name="shards/train/part-000000",
        documents=1,
        sequences=1,
        tokens=3,
        max_id=7,
        files=(FileEntry("shards/train/part-000000.bin", 6, SHA),),
    )
    split = SplitRecord(documents=1, sequences=1, tokens=3, identity=SHA, shards=(shard,))
    boundary = BoundaryRecord(suffix=(0,), table=True)
    return Manifest(
        name="x", layout="native", shard_format="megatron-v1", dtype="uint16", boundary=boundary, splits={"": split}
    )


def test_manifest_goes_round() -> None:
    data = dump_manifest(manifest())
    assert parse_manifest(data) == manifest()
    assert json.loads(data)["boundary"] == {"prefix": [], "suffix": [0], "table": True}


@pytest.mark.parametrize("field", ["documents", "sequences", "tokens"])
def test_manifest_that_does_not_add_up(field: str) -> None:
    value = json.loads(dump_manifest(manifest()))
    value["splits"][""][field] += 1
    with pytest.raises(ManifestError, match="MAN012"):
        parse_manifest(json.dumps(value).encode())


def test_manifest_of_another_format() -> None:
    value = {**json.loads(dump_manifest(manifest())), "format": "tokenreel-manifest-2"}
    with pytest.raises(ManifestError, match="MAN003"):
        parse_manifest(json.dumps(value).encode())
