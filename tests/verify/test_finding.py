"""Findings are collected, counted, merged; a report amounts to a status."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import DocumentError, MissingExtra, StorageError
from tokenreel.verify import Finding, NotChecked, Report, documents, verify
from tokenreel.verify.finding import KEPT, Findings, Severity

ADDED = st.lists(st.tuples(st.sampled_from(["MAN040", "TOK021", "MEG001"]), st.integers(1, 30)), max_size=60)


@given(ADDED, ADDED, st.sampled_from([(), ("MAN",), ("TOK021",)]), st.sampled_from([(), ("MEG",), ("TOK02",)]))
def test_merging_counts_as_adding_would(
    first: list[tuple[str, int]], second: list[tuple[str, int]], select: tuple[str, ...], ignore: tuple[str, ...]
) -> None:
    alone, one, two = Findings(select, ignore), Findings(select, ignore), Findings(select, ignore)
    for code, count in first:
        alone.add(Finding(code, "error"), count)
        one.add(Finding(code, "error"), count)
    for number, (code, count) in enumerate(second):
        alone.add(Finding(code, "warning", document=number), count)
        two.add(Finding(code, "warning", document=number), count)
    one.merge(two)
    assert (one.kept, one.ignored) == (alone.kept, alone.ignored)
    assert (one.counts, one.severities) == (alone.counts, alone.severities)
    assert all(sum(f.code == code for f in one.kept) <= KEPT for code in one.counts)


def report(severities: dict[Severity, int], *, asked: bool = False, strict: bool = False) -> Report:
    notes = (NotChecked("x", "y", asked=asked),)
    return Report("p", "quick", (), {}, severities, notes, (), strict=strict)


@pytest.mark.parametrize(
    ("severities", "asked", "strict", "status"),
    [
        ({}, False, False, 0),
        ({"information": 1}, False, True, 0),
        ({"warning": 1}, False, False, 0),
        ({"warning": 1}, False, True, 1),
        ({"incomplete": 1}, False, False, 4),
        ({"incomplete": 1}, False, True, 4),
        ({}, True, False, 4),
        ({"error": 1, "incomplete": 1}, True, False, 1),
    ],
)
def test_status(severities: dict[Severity, int], asked: bool, strict: bool, status: int) -> None:
    assert report(severities, asked=asked, strict=strict).exit_status == status


def test_what_a_reader_raised_becomes_a_finding_below_the_root() -> None:
    findings = Findings()
    findings.caught(
        DocumentError("DOC001", "no", path="root/a.idx", document=3, expected=1, found=2), "root", shard="a"
    )
    [found] = findings.kept
    assert (found.code, found.path, found.document, found.shard, found.expected) == ("DOC001", "a.idx", 3, "a", 1)


def test_storage_that_refuses_is_no_finding() -> None:
    with pytest.raises(StorageError):
        Findings().caught(StorageError("STO002", path="a"), "")


def test_unreadable_files_are_an_error_of_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.verify.corpora import write_pair
    from tokenreel.store.local import LocalStore

    write_pair(tmp_path / "web", [[1]])

    def refuse(self: LocalStore, path: str) -> object:
        raise StorageError("STO002", path=path)

    monkeypatch.setattr(LocalStore, "reader", refuse)
    with pytest.raises(StorageError, match="STO002"):
        verify(tmp_path)


def test_without_pyarrow_documents_are_not_checked(native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, *, extra: str) -> object:
        raise MissingExtra("USE002", f"{module} is not installed", hint=f"pip install 'tokenreel[{extra}]'")

    monkeypatch.setattr(documents, "require", missing)
    result = verify(native, level="full")
    assert result.exit_status == 0
    assert any(note.what == "documents.parquet" and "tokenreel[build]" in note.how for note in result.not_checked)


def test_places_are_said_once() -> None:
    line = Finding("TOK021", "error", "m", "shards/a.bin", 6, "shards/a", 1, "suffix 0", 7).line()
    assert line == "error TOK021 shards/a.bin byte 6 document 1: m (expected suffix 0, found 7)"
    assert "shard b" in Finding("TOK021", "error", "m", "x.json", shard="b").line()
