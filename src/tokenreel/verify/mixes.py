"""Rules over a mix's own records: ``mix.complete.json``, ``mix.config.json``, ``mix.json``, receipts, and every file they name.

`check_mix_records` reads the records themselves and looks at the sizes of what they name, at both levels;
`check_mix_hashes` reads every file that they name. Nothing in a mix's folder is left that neither they nor the manifest name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenreel.corpus.mix_records import (
    AUDIT,
    AUDIT_FORMAT,
    COMPLETE,
    COMPLETE_FORMAT,
    CONFIG,
    CONFIG_FORMAT,
    RECORD,
    RECORD_FORMAT,
    STAGE,
    STAGE_FORMAT,
    STAGES,
)
from tokenreel.corpus.receipts import self_hash
from tokenreel.errors import TokenreelError
from tokenreel.store import dumps_canonical, loads_strict
from tokenreel.store.base import blocks
from tokenreel.verify.files import COMPANIONS, named_files
from tokenreel.verify.mix_sums import check_sums_of
from tokenreel.verify.target import DOCUMENTS, MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.verify.finding import Findings
    from tokenreel.verify.stream import Read
    from tokenreel.verify.target import Target

RECORD_CODES: tuple[str, ...] = (
    "MAN001",
    "MAN002",
    "MAN003",
    "MAN004",
    "MAN012",
    "MAN046",
    "MAN047",
    "MAN050",
    "MAN051",
    "MAN055",
)
RECORD_CODES += ("MAN060", "MAN063", "MAN064")
_FORMATS = {CONFIG: CONFIG_FORMAT, RECORD: RECORD_FORMAT, COMPLETE: COMPLETE_FORMAT, AUDIT: AUDIT_FORMAT}


@dataclass(frozen=True, slots=True)
class Named:
    """What a record says of one file."""

    by: str
    path: str
    bytes: int
    sha256: str


@dataclass(slots=True)
class Records:
    """A mix's records as they are: tables that can be read, and the SHA-256 of their bytes."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    receipts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of staged parts, by path; those below ``stages`` and, where it was kept, below ``stage``."""


def is_mix(target: Target) -> bool:
    """Return whether the folder is a mix's: others have a ``mix.json`` too, as published replay indices."""
    if CONFIG in target.sizes or COMPLETE in target.sizes:
        return True
    return RECORD in target.sizes and f'"format": "{RECORD_FORMAT}"'.encode() in target.store.read(RECORD)


def check_mix_records(target: Target, findings: Findings) -> None:
    """Check a mix's records: form, spelling, hashes of one another, sums, sizes of what they name, and that all is named."""
    records = _read(target, findings)
    complete = COMPLETE in target.sizes
    if not complete and CONFIG not in target.sizes:
        findings.incomplete("MAN046", path=COMPLETE, expected="written when everything else is", found="no such file")
    if complete:
        _check_complete(target, records, findings)
    named = {one.path for one in _named(records)}
    for one in _named(records):
        # Receipts name what was staged; it is kept only if that was asked for.
        if one.path not in target.sizes and one.by.startswith(f"{STAGES}/"):
            continue
        _check_size(target, one, findings)
    if RECORD in records.tables:
        manifest = target.manifest.raw if target.manifest else None
        check_sums_of(records.tables, records.receipts, manifest, findings)
    if complete:
        _check_unnamed(target, named, findings)


def check_mix_hashes(target: Target, read: Read, findings: Findings) -> bool:
    """Check the SHA-256 of every file that a mix's records name; files that nobody read are read. False: none is named."""
    if not target.whole or not is_mix(target):
        return False
    looked = False
    for one in _named(_read(target, None)):
        if target.sizes.get(one.path) != one.bytes:
            continue  # its finding is made
        looked = True
        there = read.sha256.get(one.path)
        if there is None:
            there = read.sha256[one.path] = _digest(target, one.path)
        if there != one.sha256:
            findings.error("MAN040", path=one.path, expected=f"{one.sha256}, as {one.by} says", found=there)
    return looked


def _read(target: Target, findings: Findings | None) -> Records:
    out = Records()
    for name in _FORMATS:
        if name in target.sizes:
            value = _table(target, name, out, findings)
            if value is not None:
                out.tables[name] = value
    for path in target.sizes:
        if _is_receipt(path):
            value = _table(target, path, out, findings)
            if value is not None:
                out.receipts[path] = value
    if findings is not None:
        _check_form(target, out, findings)
    return out


def _is_receipt(path: str) -> bool:
    return (
        path.startswith((f"{STAGES}/", f"{STAGE}/"))
        and path.rpartition("/")[2].startswith("part-")
        and path.endswith(".json")
    )


def _table(target: Target, path: str, out: Records, findings: Findings | None) -> dict[str, Any] | None:
    data = target.store.read(path)
    out.sha256[path] = hashlib.sha256(data).hexdigest()
    try:
        value = loads_strict(data, path)
    except TokenreelError as error:
        if findings is not None:
            findings.caught(error, target.store.root, path=path)
        return None
    if not isinstance(value, dict):
        if findings is not None:
            findings.error("MAN003", "not an object", path=path, expected="an object", found=type(value).__name__)
        return None
    return value


def _check_form(target: Target, records: Records, findings: Findings) -> None:
    for path, value in [*records.tables.items(), *records.receipts.items()]:
        known = _FORMATS.get(path, STAGE_FORMAT)
        if value.get("format") != known:
            findings.error("MAN055", path=path, expected=known, found=value.get("format"))
        data = target.store.read(path)
        if dumps_canonical(value) != data:
            findings.warning("MAN050", path=path)
    for path in records.receipts:
        recorded, found = self_hash(target.store.read(path), path)
        if recorded != found:
            findings.error("MAN064", path=path, expected=found, found=recorded)


def _check_complete(target: Target, records: Records, findings: Findings) -> None:
    """Check ``mix.complete.json`` against the three files that it vouches for."""
    table = records.tables.get(COMPLETE)
    if table is None:
        return
    for name in table:
        if name not in ("format", "sha256"):
            findings.error("MAN051", f"the field {name!r}", path=COMPLETE, found=name)
    said = table.get("sha256")
    digests: dict[str, Any] = said if isinstance(said, dict) else {}
    for name in digests:
        if name not in (CONFIG, RECORD, MANIFEST):
            findings.error("MAN051", f"the field sha256.{name}", path=COMPLETE, found=name)
    for name in (CONFIG, RECORD, MANIFEST):
        there = records.sha256.get(name)
        if name == MANIFEST and target.manifest is not None:
            there = target.manifest.sha256
        if name not in digests:
            findings.error("MAN003", f"the field sha256.{name} is missing", path=COMPLETE)
        elif there is None:
            findings.error("MAN004", path=name, expected=f"named by {COMPLETE}", found="no such file")
        elif digests[name] != there:
            message = f"sha256.{name} in {COMPLETE} is not that of {name}"
            findings.error("MAN047", message, path=name, expected=digests[name], found=there)


def _named(records: Records) -> Iterator[Named]:
    """Yield what ``mix.json`` and receipts say of files."""
    files = records.tables.get(RECORD, {}).get("files")
    for one in files if isinstance(files, list) else ():
        yield from _entry(RECORD, "", one)
    for path, receipt in records.receipts.items():
        folder = path.rpartition("/")[0] + "/"
        for name in ("data", "dropped_list"):
            yield from _entry(path, folder, receipt.get(name))


def _entry(by: str, folder: str, value: object) -> Iterator[Named]:
    if isinstance(value, dict):
        path, size, digest = (value.get(key) for key in ("path", "bytes", "sha256"))
        if isinstance(path, str) and isinstance(size, int) and isinstance(digest, str):
            yield Named(by, folder + path, size, digest)


def _check_size(target: Target, one: Named, findings: Findings) -> None:
    found = target.sizes.get(one.path)
    if found != one.bytes:
        expected = f"{one.bytes} bytes, as {one.by} says"
        what = "no such file" if found is None else f"{found} bytes"
        findings.error("MAN004", path=one.path, expected=expected, found=what)


def _check_unnamed(target: Target, named: set[str], findings: Findings) -> None:
    """Warn of every file of a finished mix that nothing names; a card and the like may stand beside it."""
    shards = {record.path for _, record in named_files(target)} | {path for one in target.files for path in one.files}
    known = {CONFIG, RECORD, COMPLETE, MANIFEST, DOCUMENTS, *COMPANIONS} | named | shards
    for path in target.sizes:
        if path in known or (path.startswith(f"{STAGE}/") and (_is_receipt(path) or path.endswith("/revision.json"))):
            continue
        findings.warning("MAN063", "no record of the mix names this file", path=path, found=path)


def _digest(target: Target, path: str) -> str:
    digest = hashlib.sha256()
    reader = target.store.reader(path)
    try:
        for block in blocks(reader, 0, reader.size):
            digest.update(block)
    finally:
        reader.close()
    return digest.hexdigest()
