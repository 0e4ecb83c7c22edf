"""Which parts of an output are done, and what a killed build left behind."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tokenreel.build.rows import rows_wait
from tokenreel.corpus.receipts import SPLITS, Complete, Receipt, parse_as, parse_receipt
from tokenreel.errors import ManifestError, TokenreelError
from tokenreel.hashing import sha256_file, sha256_lines
from tokenreel.store import remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

COMPLETE = "COMPLETE.json"
LOG = "build.log.jsonl"
_SHARD = re.compile(r"shards/(train|validation)/part-\d{6,}\.(bin|idx)")
_OURS = {"receipts", "shards", "tokenizer", LOG, ".documents"}


def check_folder(out: Path) -> None:
    """Raise `ManifestError` (MAN014) if a folder without run_config.json holds anything that no build leaves."""
    if (out / "run_config.json").exists():
        return
    strange = sorted(entry.name for entry in out.iterdir() if entry.name not in _OURS)
    strange = [name for name in strange if not name.endswith(".tokenreel-tmp")]
    if strange or any(True for _ in _files(out, "shards")) or any(True for _ in _files(out, "receipts")):
        found = strange[0] if strange else "shards without run_config.json"
        raise ManifestError("MAN014", path=out, found=found, hint="name an empty or new folder with --out")


def check_parts(out: Path, parts: Iterable[str]) -> None:
    """Raise `ManifestError` (MAN011) for a receipt or shard that the plan does not have."""
    planned = set(parts)
    for path in [*_files(out, "receipts"), *_files(out, "shards")]:
        name = path.relative_to(out).as_posix()
        if path.name.startswith("."):
            continue
        known = name == f"receipts/{path.stem}.json" or _SHARD.fullmatch(name)
        if not known or path.stem not in planned:
            raise ManifestError("MAN011", path=path, hint=f"remove {path}, or build into another folder")


def _files(out: Path, folder: str) -> list[Path]:
    return sorted(path for path in (out / folder).rglob("*") if path.is_file()) if (out / folder).is_dir() else []


def sweep(out: Path, parts: Iterable[str]) -> None:
    """Remove temporaries, and the shards of parts that have no receipt."""
    remove_leftovers(out)
    for part in parts:
        if not (out / "receipts" / f"{part}.json").exists():
            for split in SPLITS:
                for suffix in (".bin", ".idx"):
                    (out / "shards" / split / f"{part}{suffix}").unlink(missing_ok=True)


def receipt_of(out: Path, part: str, run_config_sha256: str) -> Receipt | None:
    """Return a part's receipt if it is one of this build, else None."""
    path = out / "receipts" / f"{part}.json"
    try:
        receipt = parse_receipt(path.read_bytes(), path)
    except (OSError, TokenreelError):
        return None
    if receipt.part != part or receipt.run_config_sha256 != run_config_sha256:
        return None
    return receipt


def done_parts(out: Path, parts: Sequence[str], run_config_sha256: str, *, native: bool, threads: int) -> set[str]:
    """Return the parts whose receipt is of this build and whose every file is there with its size and SHA-256.

    In the native layout the part's rows must wait as well. Cost: reads all finished parts, 0.5 ms a MB and core.
    """

    def done(part: str) -> bool:
        receipt = receipt_of(out, part, run_config_sha256)
        if receipt is None:
            return False
        for file in receipt.files():
            path = out / file.path
            if not path.is_file() or path.stat().st_size != file.bytes or sha256_file(path) != file.sha256:
                return False
        return not native or all(
            rows_wait(out, part, split, digest) for split, digest in receipt.documents_sha256.items()
        )

    with ThreadPoolExecutor(max(1, threads)) as pool:
        return {part for part, found in zip(parts, pool.map(done, parts), strict=True) if found}


def is_complete(out: Path, parts: Sequence[str], run_config_sha256: str, tokenizer_file: str | None) -> bool:
    """Return whether COMPLETE.json stands and what it names is there: hashes of sidecars, sizes of shards."""
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
        for digest, name in named:
            if digest is not None and (name is None or sha256_file(out / name) != digest):
                return False
        if complete.documents_sha256 is not None and not (out / "documents.parquet").is_file():
            return False
        if receipts_digest(out, parts) != complete.receipts_sha256:
            return False
    except (OSError, TokenreelError):
        return False
    for part in parts:
        receipt = receipt_of(out, part, run_config_sha256)
        if receipt is None:
            return False
        for file in receipt.files():
            shard = out / file.path
            if not shard.is_file() or shard.stat().st_size != file.bytes:
                return False
    return True


def receipts_digest(out: Path, parts: Sequence[str]) -> str:
    """Return the digest over all receipts that COMPLETE.json records."""
    names = [f"receipts/{part}.json" for part in parts]
    return sha256_lines((name, sha256_file(out / name)) for name in names)
