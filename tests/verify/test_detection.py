"""Every kind of damage in every format: found where contents are recorded; else found, or in the table of what cannot be.

The table is `tokenreel.testing.corruptors.UNSEEN`; docs/repair.md prints it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.convert.test_pairs import WRITABLE
from tests.verify.formats import ONE, OTHER, bare, dtype_of, made
from tokenreel.corpus import opening
from tokenreel.errors import TokenreelError
from tokenreel.formats.registry import format_named
from tokenreel.formats.writing import writing_of
from tokenreel.store import MemoryStore
from tokenreel.testing.corruptors import UNSEEN, corruptions
from tokenreel.verify.attested import NOT_ATTESTED
from tokenreel.verify.rules import FAMILIES
from tokenreel.verify.verify import verify_store

RIGHT = (*FAMILIES, "MAN", "TOK", "DOC", "STO", "SID")


def look(files: dict[str, bytes], name: str) -> tuple[set[str], list[str]]:
    """Return the codes that a full verification gives, and what it says it did not check."""
    try:
        report = verify_store(MemoryStore(files), level="full", boundary=ONE.boundary, dtype=dtype_of(name))
    except TokenreelError as error:
        return {error.code}, []
    bad = {finding.code for finding in report.findings if finding.severity in ("error", "incomplete")}
    return bad, [note.what for note in report.not_checked]


def documents(files: dict[str, bytes], name: str) -> object:
    """Return the documents that a reader finds, or the error that it raises."""
    store = MemoryStore(bare(files))
    try:
        corpus = opening._open(store, store.list(), "memory", opening.Asked(False, dtype_of(name), None, ()))
        corpus = opening._declared(corpus, None, ONE.boundary, None)
        return [ids.tolist() for ids in corpus]
    except TokenreelError as error:
        return error.code


def damaged(
    name: str, files: dict[str, bytes], factory: pytest.TempPathFactory
) -> list[tuple[str, str, dict[str, bytes]]]:
    fits = "int32" in writing_of(format_named(name)).holds.dtypes or name.endswith(("16", "32", "v1", "v7"))
    other = made(name, factory, OTHER) if fits or name in ("datatrove", "levanter") else None
    return [(one.kind, one.what, one.files) for one in corruptions(name, files, other=other)]


@pytest.mark.parametrize("name", WRITABLE)
def test_with_records_beside_everything_is_found(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    files = made(name, tmp_path_factory)
    assert look(files, name)[0] == set()
    for kind, what, now in damaged(name, files, tmp_path_factory):
        codes, _ = look(now, name)
        assert codes or documents(now, name) == documents(files, name), f"{kind}: {what}"
        assert all(code.startswith(RIGHT) for code in codes), f"{kind}: {what}: {codes}"


@pytest.mark.parametrize("name", WRITABLE)
def test_without_records_what_is_not_found_is_in_the_table(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    files = bare(made(name, tmp_path_factory))
    whole = documents(files, name)
    assert isinstance(whole, list)
    unseen: Counter[str] = Counter()
    for kind, what, now in damaged(name, files, tmp_path_factory):
        codes, unchecked = look(now, name)
        if codes or documents(now, name) == whole:
            continue
        unseen[kind] += 1
        attested = NOT_ATTESTED not in unchecked
        assert not attested, f"{kind}: {what}: not found, and the contents are said to be attested"
    assert tuple(sorted(unseen)) == UNSEEN[name]


def test_the_page_prints_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/repair.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.*) \|$", page, re.MULTILINE))
    assert {name: tuple(filter(None, cell.replace("nothing", "").split(", "))) for name, cell in rows.items()} == UNSEEN
