"""``manifest.json`` and ``audit.json`` beside offset shards: what each shard should be, and which split it belongs to.

The fields are not published. Taken and written: ``train`` and ``val``, each with ``shards``, a list of objects with ``file``
(below the folder) and, where known, ``bytes``, ``sha256``, ``n_docs``, ``n_tokens``. Other fields are left as they are.
``audit.json`` holds counts of overlap with evaluation data; it says nothing about shards, and is written only when given.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError, UsageError
from tokenreel.formats.sink import SinkWriter
from tokenreel.store.atomic import read_error
from tokenreel.store.jsonio import dumps_canonical, loads_strict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.formats.base import WrittenFile
    from tokenreel.formats.writing import FinishedShard, WriteOptions
    from tokenreel.store.base import Store

MANIFEST, AUDIT = "manifest.json", "audit.json"
SPLITS = ("train", "val")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What ``manifest.json`` says of one shard; None is not said."""

    split: str
    file: str
    bytes: int | None = None
    sha256: str | None = None
    documents: int | None = None
    tokens: int | None = None


def read_manifest(store: Store) -> tuple[Recorded, ...]:
    """Return the shards that ``manifest.json`` names, in its order; none where there is no such file, or another kind.

    Raises `ManifestError` (MAN001, MAN002) for JSON that is none, and `FormatError` (OFF009) for an entry that is none.
    """
    if not store.exists(MANIFEST):
        return ()
    path = f"{store.root.rstrip('/')}/{MANIFEST}"
    value = loads_strict(store.read(MANIFEST), path)
    out: list[Recorded] = []
    for split in SPLITS:
        part = value.get(split) if isinstance(value, dict) else None
        shards = part.get("shards") if isinstance(part, dict) else None
        out.extend(_recorded(entry, split, path) for entry in (shards if isinstance(shards, list) else ()))
    return tuple(out)


def _recorded(entry: Any, split: str, path: str) -> Recorded:
    if isinstance(entry, dict):
        file, digest = entry.get("file"), entry.get("sha256")
        numbers = [entry.get(name) for name in ("bytes", "n_docs", "n_tokens")]
        right = all(number is None or (type(number) is int and number >= 0) for number in numbers)
        if isinstance(file, str) and file and (digest is None or isinstance(digest, str)) and right:
            size, documents, tokens = numbers
            return Recorded(split, file, size, digest, documents, tokens)
    raise FormatError("OFF009", path=path, expected="file, bytes, sha256, n_docs, n_tokens", found=str(entry)[:120])


def check_shards(store: Store, sizes: dict[str, int]) -> dict[str, list[str]] | None:
    """Return the paths of shards by split as ``manifest.json`` says, or None where there is none.

    `sizes` are the shards that are there. Raises `FormatError` (OFF010) for one that is not named, is named and not there,
    is named twice, or has another size.
    """
    recorded = read_manifest(store)
    if not recorded:
        return None
    splits: dict[str, list[str]] = {}
    seen: set[str] = set()
    for shard in recorded:
        said = "no such file" if shard.file not in sizes else "another entry of the same file"
        if shard.file not in sizes or shard.file in seen:
            raise _unlike(store, shard.file, f"{shard.file}, once", said)
        if shard.bytes is not None and shard.bytes != sizes[shard.file]:
            raise _unlike(store, shard.file, f"{shard.bytes} bytes", f"{sizes[shard.file]} bytes")
        seen.add(shard.file)
        splits.setdefault(shard.split, []).append(shard.file)
    for path in sizes:
        if path not in seen:
            raise _unlike(store, path, "an entry for every shard", f"none for {path}")
    return {split: sorted(files) for split, files in splits.items()}


def _unlike(store: Store, path: str, expected: str, found: str) -> FormatError:
    return FormatError("OFF010", path=f"{store.root.rstrip('/')}/{path}", expected=expected, found=found)


def write_manifest(root: Path, shards: Sequence[FinishedShard], options: WriteOptions) -> tuple[WrittenFile, ...]:
    """Write ``manifest.json``, and ``audit.json`` where ``options.options["audit"]`` is given: an object, or a path of one."""
    said: dict[str, Any] = {
        "format": "ounce-v1",
        "vocab": options.options.get("vocab") or 1 << 16,
        "doc_prefix": list(options.boundary.prefix),
        "doc_suffix": list(options.boundary.suffix),
    }
    for name in ("tokenizer", "built_utc", "seed"):
        if options.options.get(name) is not None:
            said[name] = options.options[name]
    for split in SPLITS:
        mine = [shard for shard in shards if _is_val(shard.name) == (split == "val")]
        if mine or split == "train":
            said[split] = {
                "tokens": sum(shard.tokens for shard in mine),
                "shards": [
                    {
                        "file": shard.files[0].path,
                        "bytes": shard.files[0].bytes,
                        "sha256": shard.files[0].sha256,
                        "n_docs": shard.documents,
                        "n_tokens": shard.tokens,
                    }
                    for shard in mine
                ],
            }
    files: dict[str, object] = {MANIFEST: said}
    if options.options.get("audit") is not None:
        files[AUDIT] = _audit(options.options["audit"])
    return tuple(_written(root, path, value) for path, value in files.items())


def _audit(given: object) -> dict[str, Any]:
    value = loads_strict(_read(given), given) if isinstance(given, str) else given
    if not isinstance(value, dict):
        raise UsageError("USE003", "the audit", expected="an object, or the path of one", found=type(value).__name__)
    return value


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise read_error(path, error) from error


def _is_val(name: str) -> bool:
    return name.rpartition("/")[0].rpartition("/")[2] in ("val", "valid", "validation")


def _written(root: Path, path: str, value: object) -> WrittenFile:
    writer = SinkWriter()
    writer.sink(root, path).write(dumps_canonical(value))
    return writer.finish()[0]
