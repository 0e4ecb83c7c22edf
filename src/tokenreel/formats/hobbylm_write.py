"""Write HobbyLM's corpora: llm.c shards ``PREFIX_NNNNNN.bin``, and ``PREFIX_index.json``, ``PREFIX_docs.jsonl`` beside them.

Shards are written by several processes, the tables once, from what each writer leaves beside its shard: a hidden file
with the shard's lines, which appears before the shard does and goes when the tables are there. Its last line is the SHA-256
of the others, so that a run that goes on takes up no other lines than were written.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.base import WrittenFile
from tokenreel.formats.hobbylm import DOCS, INDEX, prefix_of
from tokenreel.formats.hobbylm_facts import line_of
from tokenreel.formats.llmc_write import MOST, LlmcWriter, name_given
from tokenreel.formats.sink import SinkWriter
from tokenreel.formats.writing import Holds
from tokenreel.hashing import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.base import Ids
    from tokenreel.formats.writing import DocumentFacts, FinishedShard, WriteOptions

HOLDS = Holds(
    table=True,
    empty=False,
    inside=False,
    largest_id=(1 << 16) - 1,
    metadata=True,
    dtypes=("uint16",),
    shard_tokens=MOST,
)


def open_writer(root: Path, name: str, options: WriteOptions) -> HobbylmWriter:  # noqa: ARG001
    """Return a writer of ``name.bin`` below `root`; the name ends in ``_`` and digits."""
    return HobbylmWriter(root, name)


def shard_name(number: int, options: WriteOptions) -> str:
    """Return ``NAME_000001``, counted from 0; `NAME` is ``options.options["name"]``, ``corpus`` if left out."""
    return f"{name_given(options, 'corpus')}_{number:06d}"


def stands(root: Path, name: str) -> bool:
    """Return whether the lines of a shard wait as they were written, or both tables are there already."""
    path = root / _lines_path(name)
    if not path.is_file():
        return all((root / (prefix_of(name) + suffix)).is_file() for suffix in (INDEX, DOCS))
    return lines_whole(path)


def lines_whole(path: Path) -> bool:
    """Return whether a file of lines is there as it was written."""
    digest, last = hashlib.sha256(), b""
    try:
        for lines in _blocks([path], marks=True):
            digest.update(last + b"".join(lines[:-1]))
            last = lines[-1]
    except OSError:
        return False
    return last == _mark(digest.hexdigest())


def _mark(digest: str) -> bytes:
    return f"#{digest}\n".encode()


def _lines_path(name: str) -> str:
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}.{base}.docs"


class HobbylmWriter(LlmcWriter):
    """Writes one shard, and its lines of ``PREFIX_docs.jsonl`` into a hidden file."""

    def __init__(self, root: Path, name: str) -> None:
        if prefix_of(name) == name:
            raise FormatError(
                "SID006", path=root / f"{name}.bin", expected="a name that ends in _ and digits", found=name
            )
        super().__init__(root, name, "uint16")
        self._shard = name.rpartition("/")[2] + ".bin"
        self._lines = self.sink(root, _lines_path(name))
        # The lines appear first: a shard that is there has its lines.
        self.sinks.reverse()
        self._digest = hashlib.sha256()
        self._facts: list[DocumentFacts] = []

    def add_facts(self, facts: Sequence[DocumentFacts]) -> None:
        """Say what is known of the documents that the next `add_documents` brings, one for each."""
        self._facts = list(facts)

    def add_documents(
        self, ids: Ids, lengths: npt.NDArray[np.int64], weights: npt.NDArray[np.float32] | None = None
    ) -> None:
        """Append documents. Raises `FormatError` (LMC010), and what `hobbylm_facts.line_of` raises; then nothing is."""
        begins = (self.tokens + np.cumsum(lengths, dtype=np.int64) - lengths).tolist()
        facts: Sequence[DocumentFacts | None] = self._facts or [None] * len(lengths)
        rows = zip(begins, lengths.tolist(), facts, strict=True)
        lines = [
            line_of(self._shard, begin, length, fact, self.documents + k)
            for k, (begin, length, fact) in enumerate(rows)
        ]
        super().add_documents(ids, lengths, weights)
        self._add_lines(b"".join(lines))
        self._facts = []

    def _add_lines(self, data: bytes) -> None:
        self._lines.write(data)
        self._digest.update(data)

    def _complete(self) -> None:
        super()._complete()
        self._lines.write(_mark(self._digest.hexdigest()))

    def finish(self) -> tuple[WrittenFile, ...]:
        """Complete both files and give them their names; returns the shard."""
        return super().finish()[1:]


def finish_folder(root: Path, shards: Sequence[FinishedShard], options: WriteOptions) -> tuple[WrittenFile, ...]:  # noqa: ARG001
    """Write the tables of each prefix and remove the hidden files; where those are gone the tables stand as they are.

    Raises `FormatError` (SID006) where neither is there, or lines are not as they were written.
    """
    prefixes: dict[str, list[str]] = {}
    for shard in shards:
        prefixes.setdefault(prefix_of(shard.name), []).append(shard.name)
    written: list[WrittenFile] = []
    for prefix, names in prefixes.items():
        parts = [root / _lines_path(name) for name in names]
        if all(part.is_file() for part in parts):
            for part in parts:
                if not lines_whole(part):
                    raise FormatError(
                        "SID006", path=part, expected="the lines as they were written", found="other lines"
                    )
            written += _write_tables(root, prefix, parts)
        else:
            written += [_as_it_is(root, prefix + suffix) for suffix in (INDEX, DOCS)]
        for part in parts:
            part.unlink(missing_ok=True)
    return tuple(written)


def _write_tables(root: Path, prefix: str, parts: Sequence[Path]) -> tuple[WrittenFile, ...]:
    writer = SinkWriter()
    try:
        index, docs = writer.sink(root, prefix + INDEX), writer.sink(root, prefix + DOCS)
        between = b"["
        for lines in _blocks(parts):
            docs.write(b"".join(lines))
            entries = (json.dumps(_entry(json.loads(line))).encode() for line in lines)
            index.write(between + b", ".join(entries))
            between = b", "
        index.write(b"]" if between != b"[" else b"[]")
    except BaseException:
        writer.abort()
        raise
    return writer.finish()


def _entry(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in ("shard", "offset", "length")}


def _blocks(parts: Sequence[Path], *, marks: bool = False) -> Iterator[list[bytes]]:
    """Yield lines of files, some at a time; without `marks` those of documents alone."""
    for part in parts:
        with part.open("rb") as file:
            while lines := file.readlines(1 << 20):
                if marks or not lines[-1].startswith(b"#"):
                    yield lines
                elif len(lines) > 1:
                    yield lines[:-1]


def _as_it_is(root: Path, path: str) -> WrittenFile:
    if not (root / path).is_file():
        raise FormatError(
            "SID006", path=root / path, expected="the lines of every shard", found="neither lines nor table"
        )
    return WrittenFile(path, (root / path).stat().st_size, sha256_file(root / path))
