"""Records of mixes: a change in any file that a mix writes is found, and so is a record that only fits itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.build.mixed_runs import EVAL, build, sources, text, whole
from tests.build.mixes import write_records
from tests.verify.corpora import changed, files_of, flipped
from tokenreel.store import MemoryStore, dumps_canonical
from tokenreel.verify import Report, verify
from tokenreel.verify.verify import verify_store

RECORD, CONFIG, COMPLETE, MANIFEST = "mix.json", "mix.config.json", "mix.complete.json", "tokenreel.json"
RECEIPT = "stages/web/part-000000.json"
LEVELS: tuple[Literal["quick", "full"], ...] = ("quick", "full")
MASKS = (0x01, 0x80, 0xFF)


def made(folder: Path, layout: str) -> dict[str, bytes]:
    """Build a mix that has everything a mix may have: drops of every stage, an audit, kept stages, two splits."""
    tables = sources(folder, {"web": 12, "books": 8}, max_doc_tokens=60)
    planted = [{"text": text("web", 3)}, {"text": f"{EVAL} and more"}, {"text": ""}]
    write_records(folder / "in/books-2.jsonl", [{"id": f"p{k}", **one} for k, one in enumerate(planted)])
    recipe = whole(folder, layout=layout, source=tables, output={"keep_stage": True, "shard_tokens": {"train": 400}})
    build(folder, recipe, built_at="2026-11-30")
    return files_of(folder / "out")


@pytest.fixture(scope="module")
def ounce(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return made(tmp_path_factory.mktemp("ounce"), "ounce")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return made(tmp_path_factory.mktemp("native"), "native")


def found_in(report: Report, path: str) -> bool:
    return any(path in str((one.path, one.message, one.expected, one.found)) for one in report.findings)


def test_mixes_as_they_are_built_are_whole(ounce: dict[str, bytes], native: dict[str, bytes]) -> None:
    for files in (ounce, native):
        for level in LEVELS:
            report = verify_store(MemoryStore(files), level=level)
            assert (report.status, report.findings) == ("ok", ())
    assert {"manifest.json", "audit.json", RECORD, "ATTRIBUTION.md", "MIX_PLAN.md"} <= set(ounce)
    assert any(path.startswith("stage/") for path in ounce)


def flips(files: dict[str, bytes]) -> Iterator[tuple[str, int, int]]:
    """Yield three bytes of every file, and every ninth of the record that is written last."""
    for number, (path, data) in enumerate(files.items()):
        step = 9 if path == COMPLETE else max(1, len(data) // 3)
        for at in range(number % max(1, step), len(data), step):
            yield path, at, MASKS[at % 3]


@pytest.mark.parametrize("layout", ["ounce", "native"])
def test_a_flip_in_any_file_is_found_at_level_full(layout: str, request: pytest.FixtureRequest) -> None:
    files: dict[str, bytes] = request.getfixturevalue(layout)
    missed = []
    for path, at, mask in flips(files):
        report = verify_store(flipped(files, path, at, mask))
        if report.status == "ok" or not found_in(report, path):
            missed.append((path, at, hex(mask), [one.line() for one in report.findings][:2]))
    assert missed == []


@pytest.mark.parametrize("layout", ["ounce", "native"])
def test_a_file_that_is_gone_or_grew_is_found_at_level_quick(layout: str, request: pytest.FixtureRequest) -> None:
    files: dict[str, bytes] = request.getfixturevalue(layout)
    for path, data in files.items():
        if path.startswith("stage/") and path.endswith("json"):
            continue  # kept for another merge, and named by nothing
        for other in (None, data + b"\n"):
            report = verify_store(changed(files, path, other), level="quick")
            assert found_in(report, path), (path, [one.line() for one in report.findings])


def test_a_file_that_nothing_names_is_told(ounce: dict[str, bytes]) -> None:
    for path in ("notes.txt", "stages/web/part-000009.dropped.arrow", "tokenizer/other.json"):
        report = verify_store(MemoryStore({**ounce, path: b"x"}))
        assert [(one.code, one.path) for one in report.findings] == [("MAN063", path)]
    assert verify_store(MemoryStore({**ounce, "README.md": b"x"})).findings == ()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def resealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """Make every hash of records fit again, as a careful forger would."""
    out = dict(files)
    for path, data in files.items():
        if path.startswith("stages/") and path.endswith(".json"):
            receipt = json.loads(data)
            del receipt["receipt_sha256"]
            receipt["receipt_sha256"] = digest(dumps_canonical(receipt))
            out[path] = dumps_canonical(receipt)
    record = json.loads(out[RECORD])
    for one in record["files"]:
        if one["path"] in out:
            one |= {"bytes": len(out[one["path"]]), "sha256": digest(out[one["path"]])}
    out[RECORD] = dumps_canonical(record)
    complete = json.loads(out[COMPLETE])
    complete["sha256"] = {name: digest(out[name]) for name in complete["sha256"]}
    out[COMPLETE] = dumps_canonical(complete)
    return out


def forged(files: dict[str, bytes], path: str, change: Callable[[Any], object]) -> set[str]:
    value = json.loads(files[path])
    change(value)
    return set(verify_store(MemoryStore(resealed({**files, path: dumps_canonical(value)}))).counts)


def test_resealing_alone_changes_nothing(ounce: dict[str, bytes]) -> None:
    assert resealed(ounce) == ounce


def less(table: dict[str, Any], *keys: Any) -> None:
    """Take one from a count."""
    for key in keys[:-1]:
        table = table[key]
    table[keys[-1]] -= 1


FORGERIES: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "documents seen": (RECORD, lambda v: less(v, "sources", 0, "docs_seen"), "MAN012"),
    "documents kept": (RECORD, lambda v: less(v, "sources", 0, "documents"), "MAN012"),
    "tokens staged": (RECORD, lambda v: less(v, "sources", 1, "tokens_staged"), "MAN012"),
    "a reason left out": (RECORD, lambda v: v["sources"][1]["dropped"].pop("documents/empty"), "MAN012"),
    "a duplicate left out": (RECORD, lambda v: less(v, "sources", 1, "dropped", "dedup/exact"), "MAN012"),
    "tokens of a source in a shard": (RECORD, lambda v: less(v, "shards", 0, "source_tokens", "web"), "MAN012"),
    "a split": (RECORD, lambda v: less(v, "splits", "train", "documents"), "MAN060"),
    "an identity": (RECORD, lambda v: v["splits"]["train"].update(identity="0" * 64), "MAN060"),
    "a name": (RECORD, lambda v: v.update(name="another"), "MAN060"),
    "an assumption": (RECORD, lambda v: v["assumptions"].update({"A-O6 normalisation": "nfc"}), "MAN060"),
    "the audit's total": (RECORD, lambda v: less(v, "audit", "documents_flagged"), "MAN060"),
    "no sources": (RECORD, lambda v: v.pop("sources"), "MAN003"),
    "another version": (RECORD, lambda v: v.update(format="tokenreel-mix-9"), "MAN055"),
    "the audit's report": ("audit.json", lambda v: less(v, "documents_strong"), "MAN060"),
    "a receipt's count": (RECEIPT, lambda v: less(v, "docs_seen"), "MAN012"),
    "the tokenizer": (CONFIG, lambda v: v["tokenizer"].update(sha256="0" * 64), "MAN060"),
    "the split rule": (CONFIG, lambda v: v["split_rule"].update(n=11), "MAN060"),
    "more than is vouched for": (COMPLETE, lambda v: v.update(signed="by me"), "MAN051"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_record_that_only_fits_itself_is_found(ounce: dict[str, bytes], name: str) -> None:
    path, change, code = FORGERIES[name]
    assert code in forged(ounce, path, change)


def test_a_receipt_knows_its_own_hash(ounce: dict[str, bytes]) -> None:
    value = json.loads(ounce[RECEIPT])
    value["capped_tokens"] += 0
    value["receipt_sha256"] = "0" * 64
    report = verify_store(MemoryStore({**ounce, RECEIPT: dumps_canonical(value)}))
    assert {"MAN064", "MAN040"} <= set(report.counts)


def test_a_mix_that_did_not_end_is_incomplete_however_little_is_there(ounce: dict[str, bytes]) -> None:
    for gone in ((COMPLETE,), (COMPLETE, CONFIG)):
        files = {path: data for path, data in ounce.items() if path not in gone}
        report = verify_store(MemoryStore(files))
        assert (report.status, set(report.counts)) == ("incomplete", {"MAN046"})


def test_a_split_or_a_shard_is_checked_without_the_rest(tmp_path: Path) -> None:
    build(tmp_path, whole(tmp_path, source=sources(tmp_path, {"web": 20})))
    with (tmp_path / "out/audit.json").open("ab") as file:
        file.write(b" ")
    for name, status in (("", "broken"), ("/train", "ok"), ("/shards/train/shard_000000", "ok")):
        assert verify(f"{tmp_path}/out{name}", level="full").status == status
