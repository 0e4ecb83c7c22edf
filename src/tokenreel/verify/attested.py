"""Checksums that stand beside shards, whoever wrote them: ``SHA256SUMS``, ``convert.json``, ounce's manifest, MDS indices.

What a receipt or ``tokenreel.json`` records is `files.named_files`. Where nothing at all names a shard's files, their
contents are not attested: an id that was changed to another valid one cannot be seen, and the report says so.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import TokenreelError
from tokenreel.store import loads_strict
from tokenreel.store.base import blocks
from tokenreel.verify.files import named_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokenreel.verify.finding import Findings
    from tokenreel.verify.stream import Read
    from tokenreel.verify.target import Target

SUMS = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
SUMS_NAMES = ("SHA256SUMS", "SHA256SUMS.txt", "sha256sums.txt", "checksums.sha256")
NOT_ATTESTED = "contents not attested"
_BLOCKS = ("sha1", "sha256", "sha512", "md5", "blake2b", "sha3_256")
_XXH = ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one sidecar says of one file."""

    sidecar: str
    path: str
    algorithm: str
    digest: str
    bytes: int | None = None


def recorded(target: Target) -> tuple[Recorded, ...]:
    """Return every checksum that a sidecar of somebody else's records, and those of ``convert.json``."""
    if target.only is not None:
        return ()
    return tuple(_all(target))


def _all(target: Target) -> Iterator[Recorded]:
    for path in target.sizes:
        folder, _, name = path.rpartition("/")
        if name in SUMS_NAMES or name.endswith(".sha256"):
            yield from _sums(target, path, folder)
        elif name == "convert.json":
            yield from _files(path, folder, _get(_json(target, path), "converted", "files"))
        elif name == "manifest.json":
            yield from _ounce(path, folder, _json(target, path))
        elif name == "index.json":
            yield from _mds(target, path, folder, _json(target, path))


def _sums(target: Target, path: str, folder: str) -> Iterator[Recorded]:
    # At line feeds alone: a name may have what else ends a line in Unicode.
    for line in target.store.read(path).decode("utf-8", "surrogateescape").split("\n"):
        found = SUMS.fullmatch(line.rstrip("\r").removeprefix("\\"))
        if found:
            name = _unescaped(found[2]) if line.startswith("\\") else found[2]
            yield Recorded(path, _below(folder, name), "sha256", found[1].lower())


def _unescaped(name: str) -> str:
    r"""Return a name as it is: sha256sum writes a backslash before a line of which the name has one, or a line's end.

    >>> _unescaped(r"a\\b\nc")
    'a\\b\nc'
    """
    return re.sub(r"\\([\\nr])", lambda found: {"\\": "\\", "n": "\n", "r": "\r"}[found[1]], name)


def _files(path: str, folder: str, files: object) -> Iterator[Recorded]:
    for file in files if isinstance(files, list) else ():
        name, digest, size = (_get(file, key) for key in ("path", "sha256", "bytes"))
        if isinstance(name, str) and isinstance(digest, str):
            yield Recorded(path, _below(folder, name), "sha256", digest.lower(), size if _whole(size) else None)


def _ounce(path: str, folder: str, value: object) -> Iterator[Recorded]:
    for part in ("train", "val"):
        for shard in _list(_get(value, part, "shards")):
            name, digest, size = (_get(shard, key) for key in ("file", "sha256", "bytes"))
            if isinstance(name, str) and isinstance(digest, str):
                yield Recorded(path, _below(folder, name), "sha256", digest.lower(), size if _whole(size) else None)


def _mds(target: Target, path: str, folder: str, value: object) -> Iterator[Recorded]:
    for shard in _list(_get(value, "shards")):
        for kind in ("raw_data", "zip_data"):
            data = _get(shard, kind)
            name, size, hashes = (_get(data, key) for key in ("basename", "bytes", "hashes"))
            if not isinstance(name, str) or not isinstance(hashes, dict):
                continue
            there = _below(folder, name)
            # A shard kept compressed only has no uncompressed file to hold against its hash.
            if kind == "raw_data" and there not in target.sizes and _get(shard, "zip_data"):
                continue
            for algorithm, digest in hashes.items():
                if isinstance(digest, str):
                    yield Recorded(path, there, str(algorithm), digest.lower(), size if _whole(size) else None)


def check_sizes(target: Target, findings: Findings) -> bool:
    """Check that files with a recorded checksum are there with the recorded size; False: none is recorded."""
    said = recorded(target)
    for one in {(one.path, one.bytes, one.sidecar) for one in said}:
        path, size, sidecar = one
        if target.missing(path):
            findings.error("MAN004", path=path, expected=f"a file, as {sidecar} says", found="no such file")
        elif size is not None and target.sizes[path] != size:
            expected = f"{size} bytes, as {sidecar} says"
            findings.error("MAN004", path=path, expected=expected, found=f"{target.sizes[path]} bytes")
    return bool(said)


def check_sums(target: Target, read: Read, findings: Findings) -> bool:
    """Check every recorded checksum against its file; False: none is recorded. Files that nobody read are read."""
    said = recorded(target)
    for one in said:
        if target.missing(one.path):
            continue
        there = read.sha256.get(one.path) if one.algorithm == "sha256" else None
        if there is None:
            there = _digest(target, one.path, one.algorithm)
            if there is not None and one.algorithm == "sha256":
                read.sha256[one.path] = there
        if there is None:
            findings.skip(f"{one.algorithm} of {one.path}", "this hash is not known here")
        elif there != one.digest:
            findings.error(
                "MAN040",
                "" if one.algorithm == "sha256" else f"a file's {one.algorithm} is not the recorded one",
                path=one.path,
                expected=f"{one.digest}, as {one.sidecar} says",
                found=there,
            )
    return bool(said)


def note_not_attested(target: Target, findings: Findings) -> None:
    """Say that nothing names the contents of some shards, where that is so."""
    named = {record.path for _, record in named_files(target)} | {one.path for one in recorded(target)}
    bare = [found.name for found in target.files if not named.intersection(found.files)]
    if bare:
        which = "the files" if len(bare) == len(target.files) else f"the files of {', '.join(bare[:3])}"
        why = f"no manifest, receipt or list of checksums names {which}"
        place = Path(target.path)
        findings.skip(NOT_ATTESTED, why, f"tokenreel adopt {place.parent if place.is_file() else place}")


def _digest(target: Target, path: str, algorithm: str) -> str | None:
    digest: Any
    if algorithm in _BLOCKS:
        digest = hashlib.new(algorithm)
    elif algorithm in _XXH:
        import xxhash

        digest = getattr(xxhash, "xxh3_128" if algorithm == "xxh128" else algorithm)()
    else:
        return None
    reader = target.store.reader(path)
    try:
        for block in blocks(reader, 0, reader.size):
            digest.update(block)
    finally:
        reader.close()
    return str(digest.hexdigest())


def _json(target: Target, path: str) -> object:
    try:
        return loads_strict(target.store.read(path), path)
    except TokenreelError:
        return None  # whose rule it is says what is wrong with it


def _get(value: object, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _list(value: object) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _below(folder: str, name: str) -> str:
    plain = name.removeprefix("./")
    return f"{folder}/{plain}" if folder else plain
