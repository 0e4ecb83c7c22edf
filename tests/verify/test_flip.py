"""For every byte of a small built corpus: flipping it gives a finding that names the file, or it is listed."""

from __future__ import annotations

import io
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.verify.corpora import files_of, flipped
from tokenreel.store import MemoryStore
from tokenreel.verify import Report
from tokenreel.verify.verify import verify_store

DONT_CARE = tomllib.loads(Path(__file__).with_name("dont_care.toml").read_text("utf-8"))
MASKS = (0x01, 0x80, 0xFF)


def same_contents(one: bytes, two: bytes) -> bool:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [parquet.read_table(io.BytesIO(data)) for data in (one, two)]
    return bool(rows[0].column_names == rows[1].column_names and rows[0].to_pylist() == rows[1].to_pylist())


def says_where(report: Report, path: str) -> bool:
    """Whether a finding names the file, as its place or as the one that disagrees with the place it names."""
    for finding in report.findings:
        place = finding.path or ""
        if place == path or (place.endswith("/") and path.startswith(place)):
            return True
        if any(path in str(text) for text in (finding.message, finding.expected, finding.found)):
            return True
    return False


def missed(files: dict[str, bytes], flips: Iterator[tuple[str, int, int]]) -> list[str]:
    bad = []
    for path, at, mask in flips:
        rule = DONT_CARE.get(path, {}).get("bytes")
        if rule == "all":
            continue
        store = flipped(files, path, at, mask)
        report = verify_store(store)
        if not report.findings:
            if rule != "same contents" or not same_contents(files[path], store.files[path]):
                bad.append(f"{path} byte {at} mask {mask:#x}: no finding")
        elif not says_where(report, path):
            bad.append(f"{path} byte {at} mask {mask:#x}: {report.findings[0].line()}")
        elif report.status == "ok" and report.counts.keys() - {"MAN050"}:
            bad.append(f"{path} byte {at} mask {mask:#x}: only {report.counts}")
    return bad


def some_flips(files: dict[str, bytes], inner: int, step: int) -> Iterator[tuple[str, int, int]]:
    """Yield every `inner`-th byte of shards and COMPLETE.json, every `step`-th of other files; masks take turns."""
    for path, data in files.items():
        every = inner if path.startswith("shards/") or path == "COMPLETE.json" else step
        for at in range(0, len(data), every):
            yield path, at, MASKS[at % 3]


def all_flips(files: dict[str, bytes]) -> Iterator[tuple[str, int, int]]:
    """Yield every byte: of shards and COMPLETE.json with each mask, of other files with masks in turn."""
    for path, data in files.items():
        masks = MASKS if path.startswith("shards/") or path == "COMPLETE.json" else ()
        for at in range(len(data)):
            for mask in masks or (MASKS[at % 3],):
                yield path, at, mask


def test_the_unflipped_corpora_are_whole(mahan: Path, native: Path) -> None:
    for folder in (mahan, native):
        report = verify_store(MemoryStore(files_of(folder)))
        assert (report.status, report.findings, report.not_checked) == ("ok", (), ())


def test_the_table_lists_files_of_the_layouts_with_reasons(native: Path) -> None:
    there = files_of(native)
    assert set(DONT_CARE) <= set(there)
    assert all(row["reason"] and row["bytes"] in ("all", "same contents") for row in DONT_CARE.values())


def test_flips_in_the_layout_mahan_are_found(mahan: Path) -> None:
    files = files_of(mahan)
    assert missed(files, some_flips(files, 1, 29)) == []


def test_flips_in_the_native_layout_are_found(native: Path) -> None:
    files = files_of(native)
    assert missed(files, some_flips(files, 5, 97)) == []


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["mahan", "native"])
def test_every_flip_is_found(layout: str, request: pytest.FixtureRequest) -> None:
    files = files_of(request.getfixturevalue(layout))
    assert missed(files, all_flips(files)) == []


# ---- the narrowest range that is proved ---------------------------------------------------------------------------


def test_a_flip_in_a_table_names_the_byte_of_the_entry(mahan: Path) -> None:
    files = files_of(mahan)
    path = "shards/train/part-000000.idx"
    sequences = int.from_bytes(files[path][18:26], "little")
    pointer = 34 + 4 * sequences + 8  # the second pointer: 8 bytes
    for at in range(pointer, pointer + 8):
        report = verify_store(flipped(files, path, at, 0x40))
        found = [f for f in report.findings if f.code.startswith("MEG")]
        assert [(f.path, f.offset) for f in found] == [(path, pointer)]


def test_a_flip_in_the_header_names_its_field(mahan: Path) -> None:
    files = files_of(mahan)
    path = "shards/train/part-000001.idx"
    for at, code, field in ((0, "MEG001", 0), (8, "MEG001", 0), (9, "MEG005", 9), (17, "MEG006", 17)):
        report = verify_store(flipped(files, path, at, 0x20))
        assert [(f.path, f.offset) for f in report.findings if f.code == code] == [(path, field)]


def test_a_flip_of_an_end_of_document_names_document_and_byte(mahan: Path) -> None:
    files = files_of(mahan)
    path = "shards/train/part-000001.bin"
    last = len(files[path]) - 2
    report = verify_store(flipped(files, path, last, 0x01))  # id 256 becomes 257
    assert {f.code for f in report.findings} == {"MAN040", "TOK020", "TOK021"}
    [found] = [f for f in report.findings if f.code == "TOK021"]
    documents = (len(files["shards/train/part-000001.idx"]) - 42) // 20
    assert (found.path, found.offset, found.document, found.found) == (path, last, documents - 1, 257)


def test_a_flip_of_text_names_the_file_whose_hash_it_breaks(native: Path) -> None:
    files = files_of(native)
    path = "shards/train/part-000001.bin"
    report = verify_store(flipped(files, path, 0, 0x01))
    assert {"MAN040", "MAN056"} <= {f.code for f in report.findings}
    [found] = [f for f in report.findings if f.code == "MAN040"]
    assert (found.path, found.shard) == (path, "shards/train/part-000001")
    assert report.exit_status == 1
