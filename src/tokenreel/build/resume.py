"""Which parts of an output are done, what a killed build left behind, and what is not a build's at all."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.build.rows import restore_rows, rows_wait
from tokenreel.corpus.documents import DOCUMENTS, documents_digests, file_digest
from tokenreel.corpus.receipts import (
    SPLITS,
    Complete,
    Receipt,
    contradictions,
    dump,
    parse_as,
    parse_receipt,
    self_hash,
)
from tokenreel.errors import ManifestError, TokenreelError
from tokenreel.formats import Found, open_shard
from tokenreel.hashing import sha256_file, sha256_lines
from tokenreel.store import LocalStore, remove_leftovers
from tokenreel.store.atomic import read_error, write_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

COMPLETE = "COMPLETE.json"
LOG = "build.log.jsonl"
_SHARD = re.compile(r"shards/(train|validation)/part-\d{6,}\.(bin|idx)")
_OURS = {"receipts", "shards", "tokenizer", LOG, ".documents"}


@dataclass(frozen=True, slots=True)
class Standing:
    """How far an output is."""

    complete: bool
    """COMPLETE.json stands, and every file that it and the receipts name was read and is as recorded."""
    done: frozenset[str]
    """Parts that need not be built."""


def check_folder(out: Path) -> None:
    """Raise `ManifestError` (MAN014) if a folder without run_config.json holds anything that no build leaves.

    A tokenizer is written after run_config.json, which records its hash: one without is somebody else's.
    """
    if not out.is_dir() or (out / "run_config.json").exists():
        return
    try:
        strange = sorted(entry.name for entry in out.iterdir() if entry.name not in _OURS)
    except OSError as error:
        raise read_error(out, error) from error
    strange = [name for name in strange if not name.endswith(".tokenreel-tmp")]
    strange += [f"{file.relative_to(out)} without run_config.json" for name in _FOLDERS for file in _files(out, name)]
    if strange:
        raise ManifestError("MAN014", path=out, found=strange[0], hint="name an empty or new folder with --out")


_FOLDERS = ("shards", "receipts", "tokenizer")


def check_parts(out: Path, parts: Iterable[str], tokenizer_file: str | None) -> None:
    """Raise `ManifestError` for a receipt or shard that the plan does not have (MAN011), or a foreign tokenizer (MAN014)."""
    planned = set(parts)
    for path in [*_files(out, "receipts"), *_files(out, "shards")]:
        name = path.relative_to(out).as_posix()
        known = name == f"receipts/{path.stem}.json" or _SHARD.fullmatch(name)
        if not known or path.stem not in planned:
            raise ManifestError("MAN011", path=path, hint=f"remove {path}, or build into another folder")
    for path in _files(out, "tokenizer"):
        if path.relative_to(out).as_posix() != tokenizer_file:
            raise ManifestError("MAN014", path=path, found="a file that is not this build's", hint=f"rm {path}")


def _files(out: Path, folder: str) -> list[Path]:
    """Return the files below a folder of the output, temporaries left out."""
    below = (out / folder).rglob("*") if (out / folder).is_dir() else ()
    return sorted(path for path in below if path.is_file() and not path.name.startswith("."))


def sweep(out: Path, parts: Iterable[str]) -> None:
    """Remove temporaries, and the shards of parts that have no receipt."""
    remove_leftovers(out)
    for part in parts:
        if not (out / "receipts" / f"{part}.json").exists():
            for split in SPLITS:
                for suffix in (".bin", ".idx"):
                    remove(out / "shards" / split / f"{part}{suffix}")


def remove(path: Path) -> None:
    """Remove a file that may not be there; raises `StorageError` (STO003)."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def receipt_of(out: Path, part: str, run_config_sha256: str) -> Receipt | None:
    """Return a part's receipt if it is one of this build and as it was written, else None."""
    path = out / "receipts" / f"{part}.json"
    try:
        data = path.read_bytes()
        receipt = parse_receipt(data, path)
        recorded, found = self_hash(data, path)
    except (OSError, TokenreelError):
        return None
    if receipt.part != part or receipt.run_config_sha256 != run_config_sha256:
        return None
    return receipt if recorded == found and dump(receipt) == data else None


def examine(
    out: Path,
    parts: Sequence[str],
    run_config_sha256: str,
    *,
    native: bool,
    dtype: str,
    tokenizer_file: str | None,
    threads: int,
    finished: bool = True,
) -> Standing:
    """Return how far an output is; with ``finished=False`` never complete. A part is done when its receipt is whole and fits its files, read now.

    In the native layout its rows must be there as well, waiting or in ``documents.parquet``; they are made to wait
    again where the output is not complete. Cost: reads everything that is there, 0.5 ms a MB and core.
    """

    def done(part: str) -> Receipt | None:
        receipt = receipt_of(out, part, run_config_sha256)
        return receipt if receipt is not None and _fits(out, receipt, dtype) else None

    with ThreadPoolExecutor(max(1, threads)) as pool:
        receipts = [receipt for receipt in pool.map(done, parts) if receipt is not None]
    rows = {
        f"shards/{split}/{receipt.part}": digest
        for receipt in receipts
        for split, digest in receipt.documents_sha256.items()
    }
    table = _table_digests(out) if native and receipts else None
    complete = finished and _named_by_complete(out, parts, run_config_sha256, tokenizer_file, table)
    if complete and len(receipts) == len(parts) and table == (rows if native else None):
        return Standing(True, frozenset(parts))
    if not native:
        return Standing(False, frozenset(receipt.part for receipt in receipts))
    lost = {name: digest for name, digest in rows.items() if not _wait(out, name, digest)}
    back = {name for name, digest in lost.items() if table is not None and table.get(name) == digest}
    restore_rows(out, back)
    gone = {name for name, digest in lost.items() if name not in back or not _wait(out, name, digest)}
    return Standing(
        False,
        frozenset(
            receipt.part
            for receipt in receipts
            if not gone & {f"shards/{split}/{receipt.part}" for split in receipt.documents_sha256}
        ),
    )


def _fits(out: Path, receipt: Receipt, dtype: str) -> bool:
    """Return whether a receipt's files are there, with its sizes, hashes and counts."""
    if next(contradictions(receipt, np.dtype(dtype).itemsize), None) is not None:
        return False
    store = LocalStore(out)
    for split, counts in receipt.splits.items():
        name = f"shards/{split}/{receipt.part}"
        wanted = [f"{name}.bin", f"{name}.idx"] if counts.documents else []
        if sorted(file.path for file in counts.files) != wanted:
            return False
        try:
            for file in counts.files:
                path = out / file.path
                if not path.is_file() or path.stat().st_size != file.bytes or sha256_file(path) != file.sha256:
                    return False
            if not counts.documents:
                continue
            shard = open_shard(store, Found("megatron-v1", name, tuple(wanted)), ())
        except (OSError, TokenreelError):
            return False
        held = shard.documents, shard.tokens
        shard.close()
        if held != (counts.documents, counts.total_tokens):
            return False
    return True


def _table_digests(out: Path) -> dict[str, str] | None:
    """Return the digest of the rows of each shard in ``documents.parquet``, None where it is not there or damaged."""
    if not (out / DOCUMENTS).is_file():
        return None
    try:
        return {name: digest for name, (_, digest) in documents_digests(out / DOCUMENTS).items()}
    except (OSError, ValueError):
        return None


def _wait(out: Path, shard: str, digest: str) -> bool:
    _, split, part = shard.split("/")
    return rows_wait(out, part, split, digest)


def _named_by_complete(
    out: Path,
    parts: Sequence[str],
    run_config_sha256: str,
    tokenizer_file: str | None,
    table: dict[str, str] | None,
) -> bool:
    """Return whether COMPLETE.json stands and the files that it names have its hashes."""
    path = out / COMPLETE
    try:
        complete = parse_as(Complete, path.read_bytes(), path)
        named = [
            (complete.run_config_sha256, "run_config.json"),
            (complete.stats_sha256, "stats.json"),
            (complete.manifest_sha256, "tokenreel.json"),
            (complete.tokenizer_sha256, tokenizer_file),
        ]
        if complete.parts != len(parts) or complete.run_config_sha256 != run_config_sha256:
            return False
        if complete.documents_sha256 != (None if table is None else file_digest(table)):
            return False
        if (complete.manifest_sha256 is None) != (table is None):
            return False
        if dump(complete) != path.read_bytes() or (complete.tokenizer_sha256 is None) != (tokenizer_file is None):
            return False
        return all(
            digest is None or (name is not None and sha256_file(out / name) == digest) for digest, name in named
        ) and (receipts_digest(out, parts) == complete.receipts_sha256)
    except (OSError, TokenreelError):
        return False


def receipts_digest(out: Path, parts: Sequence[str]) -> str:
    """Return the digest over all receipts that COMPLETE.json records."""
    names = [f"receipts/{part}.json" for part in parts]
    return sha256_lines((name, sha256_file(out / name)) for name in names)
