"""Forgeries that are consistent with themselves: everything resealed, and still caught by what the data says."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.verify.corpora import files_of
from tokenreel.corpus.receipts import Receipt, dump, parse_as, sum_receipts
from tokenreel.hashing import sha256_lines
from tokenreel.store import MemoryStore, dumps_canonical
from tokenreel.verify import Report
from tokenreel.verify.verify import verify_store

RUN_CONFIG, MANIFEST, STATS, COMPLETE = "run_config.json", "tokenreel.json", "stats.json", "COMPLETE.json"
RECEIPT = "receipts/part-000000.json"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def resealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """Make every hash and sum that rests on sidecars fit them again, as a careful forger would."""
    out = dict(files)
    receipts = sorted(path for path in out if path.startswith("receipts/"))
    for path in receipts:
        receipt = json.loads(out[path])
        receipt["run_config_sha256"] = digest(out[RUN_CONFIG])
        out[path] = sealed_receipt(receipt)
    out[STATS] = dump(sum_receipts(parse_as(Receipt, out[path]) for path in receipts))
    complete = json.loads(out[COMPLETE])
    complete["receipts_sha256"] = sha256_lines((path, digest(out[path])) for path in receipts)
    for name, path in (("stats", STATS), ("run_config", RUN_CONFIG), ("manifest", MANIFEST)):
        if f"{name}_sha256" in complete:
            complete[f"{name}_sha256"] = digest(out[path])
    out[COMPLETE] = dumps_canonical(complete)
    return out


def sealed_receipt(receipt: dict[str, Any]) -> bytes:
    if receipt.pop("receipt_sha256", None) is not None:
        receipt["receipt_sha256"] = digest(dumps_canonical(receipt))
    return dumps_canonical(receipt)


def forged(files: dict[str, bytes], path: str, change: Callable[[Any], object]) -> Report:
    """Change a sidecar, reseal, and verify."""
    value = json.loads(files[path])
    change(value)
    return verify_store(MemoryStore(resealed({**files, path: dumps_canonical(value)})))


def said(report: Report, code: str) -> str:
    return " | ".join(finding.line() for finding in report.findings if finding.code == code)


def test_a_receipt_knows_its_own_hash(mahan: Path) -> None:
    """Everything that names the receipt is sealed again, and the receipt is not."""
    files = files_of(mahan)
    receipt = json.loads(files[RECEIPT])
    assert "receipt_sha256" in receipt
    receipt["special_in_text"] = 3
    complete = json.loads(files[COMPLETE])
    files[RECEIPT] = dumps_canonical(receipt)
    receipts = sorted(path for path in files if path.startswith("receipts/"))
    complete["receipts_sha256"] = sha256_lines((path, digest(files[path])) for path in receipts)
    report = verify_store(MemoryStore({**files, COMPLETE: dumps_canonical(complete)}))
    assert set(report.counts) == {"MAN064"}
    assert report.findings[0].path == RECEIPT


def test_resealing_alone_changes_nothing(mahan: Path, native: Path) -> None:
    for folder in (mahan, native):
        report = verify_store(MemoryStore(resealed(files_of(folder))))
        assert (report.status, report.findings) == ("ok", ())


def put(*keys: Any, value: object) -> Callable[[Any], object]:
    """Return a change: the value under some keys."""

    def change(root: Any) -> None:
        for key in keys[:-1]:
            root = root[key]
        root[keys[-1]] = value

    return change


MANIFEST_FORGERIES = [
    ("the suffix", "MAN060", put("boundary", "suffix", value=[10])),
    ("a prefix", "MAN060", put("boundary", "prefix", value=[10])),
    ("the split rule", "MAN060", put("split_rule", "modulo", value=7)),
    ("no split rule", "MAN060", lambda m: m.pop("split_rule")),
    ("the tokenizer", "MAN060", put("tokenizer", "largest_id", value=300)),
    ("no tokenizer", "MAN060", lambda m: m.pop("tokenizer")),
    ("the tokenizer's place", "MAN060", put("tokenizer", "path", value="elsewhere.json")),
    ("the dtype", "TOK025", put("dtype", value="int32")),
    ("the layout", "MAN060", put("layout", value="mahan")),
    ("a largest id", "MAN052", put("splits", "train", "shards", 0, "max_id", value=999)),
    ("no largest id", "MAN003", lambda m: m["splits"]["train"]["shards"][0].pop("max_id")),
    ("a quantile", "MAN052", put("splits", "train", "statistics", "length_quantiles", "0.5", value=5000)),
    ("a statistic", "MAN052", put("splits", "train", "statistics", "empty_documents", value=1)),
    ("no statistics", "MAN003", lambda m: m["splits"]["train"].pop("statistics")),
    ("an identity", "MAN056", put("splits", "train", "identity", value="0" * 64)),
    ("no identity", "MAN003", lambda m: m["splits"]["train"].pop("identity")),
    ("the format of shards", "MAN052", put("shard_format", value="llmc-v1")),
    ("splits that change places", "MAN052",
     lambda m: m.update(splits={"train": m["splits"]["validation"], "validation": m["splits"]["train"]})),
    ("an empty split more", "MAN052",
     lambda m: m["splits"].update(test={"documents": 0, "sequences": 0, "tokens": 0, "shards": []})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "change"), [row[1:] for row in MANIFEST_FORGERIES], ids=[row[0] for row in MANIFEST_FORGERIES]
)
def test_a_forged_manifest_is_caught(native: Path, code: str, change: Callable[[Any], object]) -> None:
    report = forged(files_of(native), MANIFEST, change)
    assert code in report.counts, report.lines()
    assert MANIFEST in said(report, code) or code == "TOK025"
    assert report.exit_status == 1


CONFIG_FORGERIES = [
    ("largest_id", put("tokenizer", "largest_id", value=65000)),
    ("vocab_size", put("tokenizer", "vocab_size", value=300)),
    ("lossless", put("tokenizer", "lossless", value=False)),
    ("eod_id", put("tokenizer", "eod_token", value="nothing")),
    ("probe_sha256", put("tokenizer", "probe_sha256", value="0" * 64)),
    ("kind", put("tokenizer", "kind", value="sentencepiece")),
]


@pytest.mark.parametrize(("name", "change"), CONFIG_FORGERIES, ids=[row[0] for row in CONFIG_FORGERIES])
def test_what_is_said_of_the_tokenizer_is_asked_of_the_tokenizer(
    native: Path, name: str, change: Callable[[Any], object]
) -> None:
    report = forged(files_of(native), RUN_CONFIG, change)
    assert f"tokenizer.{name} is " in said(report, "MAN062")


def test_one_end_of_document_is_declared(native: Path) -> None:
    report = forged(files_of(native), RUN_CONFIG, put("tokenizer", "eod_id", value=7))
    assert "eod_id is 256, and tokenizer.eod_id is 7" in said(report, "MAN060")


RECEIPT_FORGERIES = [
    ("more decoded back than checked", "MAN012", {"checked": 0, "decoded_back": 9}, "decode back, of 0"),
    ("more checked than there are", "MAN012", {"checked": 5, "decoded_back": 5}, "at most 1 of 8"),
    ("another tokenizer's kind", "MAN060", {"checked": 1, "decoded_back": 1}, "lossless is False"),
]


@pytest.mark.parametrize(
    ("code", "lossless", "words"), [row[1:] for row in RECEIPT_FORGERIES], ids=[row[0] for row in RECEIPT_FORGERIES]
)
def test_what_cannot_decode_back_is_caught(mahan: Path, code: str, lossless: object, words: str) -> None:
    report = forged(files_of(mahan), RECEIPT, put("lossless", value=lossless))
    assert words in said(report, code)


def test_sources_are_counted_in_the_rows(native: Path) -> None:
    def move(receipt: Any) -> None:
        receipt["by_source"] = {"forged": receipt["by_source"]["letters"]}

    report = forged(files_of(native), RECEIPT, move)
    assert set(report.counts) == {"MAN061"}
    assert "documents of source forged in train, and the rows of documents.parquet give 0" in said(report, "MAN061")


def test_files_that_the_layout_does_not_have_are_said(native: Path, mahan: Path) -> None:
    for folder, extra in (
        (native, "notes.txt"),
        (native, "tokenizer/vocab.json"),
        (native, "old/part-000000.jsonl"),
        (native, ".hidden"),
        (mahan, "tokenizer/tokenizer.model.bak"),
        (mahan, "documents.parquet"),
    ):
        files = {**files_of(folder), extra: b"x"}
        report = verify_store(MemoryStore(files))
        assert [(f.code, f.severity, f.path) for f in report.findings if f.code == "MAN063"] == [
            ("MAN063", "warning", extra)
        ]


def test_what_a_build_leaves_while_it_goes_on_is_no_finding(native: Path) -> None:
    files = {path: data for path, data in files_of(native).items() if path != COMPLETE}
    report = verify_store(MemoryStore({**files, ".documents/part-000000.train.arrow": b"x"}))
    assert set(report.counts) == {"MAN046"}


def test_a_row_s_source_that_is_changed_is_caught_by_its_receipt(native: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = files_of(native)
    table = parquet.read_table(io.BytesIO(files["documents.parquet"]))
    at = table.schema.get_field_index("source")
    values = ["forged", *table.column("source").to_pylist()[1:]]
    table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    assert "MAN061" in verify_store(MemoryStore({**files, "documents.parquet": sink.getvalue()})).counts


# ---- EOD ids that the build let stand inside documents ---------------------------------------------------------------


def with_inside(files: dict[str, bytes], counted: int | None, special: str = "special") -> dict[str, bytes]:
    """Return the corpus with one id of its first document turned to EOD, and a receipt that counts so many."""
    path = "shards/train/part-000000.bin"
    data = files[path][:2] + (256).to_bytes(2, "little") + files[path][4:]
    config, receipt = json.loads(files[RUN_CONFIG]), json.loads(files[RECEIPT])
    config["special_in_text"] = special
    [entry] = [entry for entry in receipt["splits"]["train"]["files"] if entry["path"] == path]
    entry["sha256"] = digest(data)
    if counted is not None:
        receipt["eod_inside"] = counted
    for name in [name for name in files if name.startswith("receipts/")]:
        one = receipt if name == RECEIPT else json.loads(files[name])
        one["lossless"] = True if special == "text" else {"checked": 1, "decoded_back": 1}
        files = {**files, name: dumps_canonical(one)}
    return resealed({**files, path: data, RUN_CONFIG: dumps_canonical(config)})


@pytest.mark.parametrize(
    ("counted", "special", "where"),
    [
        (1, "special", None),
        (2, "special", RECEIPT),
        (0, "special", "shards/train/part-000000.bin"),
        (None, "special", "shards/train/part-000000.bin"),
        (1, "text", "shards/train/part-000000.bin"),
    ],
)
def test_eod_inside_documents_is_a_finding_unless_the_receipt_counts_it(
    mahan: Path, counted: int | None, special: str, where: str | None
) -> None:
    report = verify_store(MemoryStore(with_inside(files_of(mahan), counted, special)))
    found = [f.path for f in report.findings if f.code == "TOK022"]
    assert found == ([] if where is None else [where]), report.lines()


@pytest.mark.parametrize("counted", [1, 5])
def test_a_sample_may_find_fewer_than_the_receipt_counts(mahan: Path, counted: int) -> None:
    store = MemoryStore(with_inside(files_of(mahan), counted))
    assert "TOK022" not in verify_store(store, level="quick").counts
