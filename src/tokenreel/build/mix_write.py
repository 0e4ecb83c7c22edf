"""Write the shards of a mix, several at a time, each with its rows of ``documents.parquet``; what stands is not written again.

A finished shard is recorded below ``.mix`` with what its files and rows were; a record counts for one plan only, and only
while everything that it names is as it was.
"""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.rows import rows_path, rows_wait
from tokenreel.corpus.documents import ID_KIND, RowsHasher, documents_schema
from tokenreel.errors import TokenError, TokenreelError
from tokenreel.formats import WrittenFile
from tokenreel.formats.hobbylm_write import lines_whole
from tokenreel.formats.writing import DocumentFacts, FactsWriter, FinishedShard
from tokenreel.hashing import sha256_file
from tokenreel.store import atomic_write, dumps_canonical, loads_strict, write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.build.mix_shards import MixShard
    from tokenreel.build.mix_table import Staged
    from tokenreel.formats.writing import WriteOptions, Writing

JOURNAL = ".mix"
BLOCK_TOKENS = 1 << 20
_COLUMNS = ("doc", "upstream_id", "url", "group", "metadata", "full_tokens")


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """One finished shard."""

    finished: FinishedShard
    """Paths below the output."""
    rows_sha256: str
    source_tokens: dict[str, int]
    source_documents: dict[str, int]
    first_id: str
    last_id: str


@dataclass(frozen=True, slots=True, eq=False)
class MixWriting:
    """What all shards share."""

    out: Path
    staged: Staged
    writing: Writing
    options: WriteOptions
    eod_id: int
    lead: bool
    """Whether the end-of-text token leads every document."""
    plan: str
    """SHA-256 of everything that decides the shards' bytes."""
    hidden: bool = False
    """Whether lines of documents wait in a hidden file beside each shard until the tables are written from them."""
    inside: str = ""
    """What readers call a shard has this at its end: the array in the folder that a shard of Levanter's is."""


def write_shards(
    mix: MixWriting, shards: Sequence[MixShard], workers: int, progress: Callable[[int], None] | None = None
) -> list[WrittenShard]:
    """Write the shards that do not stand, and return all. Raises what writers raise, and TOK046; then nothing is half there."""
    records: dict[int, WrittenShard] = {}
    stop = threading.Event()

    def work(shard: MixShard) -> None:
        if stop.is_set():
            return
        found = _standing(mix, shard)
        if found is None:
            _unrecord(mix, shard)
            found = _write(mix, shard)
            write_bytes_atomic(_record_path(mix, shard), dumps_canonical({"plan": mix.plan, **asdict(found)}))
        records[shard.number] = found
        if progress is not None:
            progress(found.finished.tokens)

    with ThreadPoolExecutor(max(1, workers)) as pool:
        tasks = [pool.submit(work, shard) for shard in shards]
        try:
            wait(tasks, return_when=FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            stop.set()
            for task in tasks:
                task.cancel()
    return [records[shard.number] for shard in shards]


def _write(mix: MixWriting, shard: MixShard) -> WrittenShard:
    writer = mix.writing.open_writer(mix.out / shard.folder, shard.name, mix.options)
    tokens = 0
    by_source: dict[str, list[int]] = {}
    ends: list[str] = []
    try:
        with contextlib.ExitStack() as stack:
            rows = _Rows(stack, mix, shard)
            for documents in _blocks(mix.staged, shard.documents):
                ids, lengths = mix.staged.stored(documents, mix.eod_id, lead=mix.lead)
                _refuse_inside(mix, shard, ids, lengths)
                batch = rows.add(documents, lengths)
                _count(mix.staged, documents, lengths, by_source)
                first, last = (batch.column("id")[k].as_py().hex() for k in (0, len(documents) - 1))
                ends = [*(ends[:1] or [first]), last]
                if isinstance(writer, FactsWriter):
                    writer.add_facts(_facts(batch))
                writer.add_documents(ids, lengths)
                tokens += len(ids)
        files = writer.finish()
    except BaseException:
        writer.abort()
        raise
    below = tuple(WrittenFile(f"{shard.folder}{file.path}", file.bytes, file.sha256) for file in files)
    return WrittenShard(
        FinishedShard(shard.folder + shard.name, len(shard.documents), tokens, below),
        rows.hexdigest(),
        {name: counts[1] for name, counts in sorted(by_source.items())},
        {name: counts[0] for name, counts in sorted(by_source.items())},
        ends[0] if ends else "",
        ends[-1] if ends else "",
    )


def _blocks(staged: Staged, documents: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.int32]]:
    """Yield runs of documents of about `BLOCK_TOKENS` tokens."""
    sums = np.cumsum(staged.lengths[documents], dtype=np.int64)
    begin = 0
    while begin < len(documents):
        before = int(sums[begin - 1]) if begin else 0
        end = min(begin + (1 << 16), max(begin + 1, int(np.searchsorted(sums, before + BLOCK_TOKENS, side="right"))))
        yield documents[begin:end]
        begin = end


def _refuse_inside(mix: MixWriting, shard: MixShard, ids: Any, lengths: Any) -> None:
    """Raise `TokenError` (TOK046) where the format tells documents by a token that one has inside."""
    if mix.writing.holds.inside and mix.writing.holds.table:
        return
    at = np.flatnonzero(ids == mix.eod_id)
    ends = np.cumsum(lengths)
    own = ends - lengths if mix.lead else ends - 1
    if len(at) > len(own):
        inside = int(np.setdiff1d(at, own)[0])
        number = int(np.searchsorted(ends, inside, side="right"))
        raise TokenError(
            "TOK046",
            "the format tells documents by this token",
            path=mix.out / f"{shard.folder}{shard.name}",
            document=number,
            expected=f"no {mix.eod_id} inside a document",
            found=mix.eod_id,
        )


def _count(staged: Staged, documents: Any, lengths: Any, by_source: dict[str, list[int]]) -> None:
    sources = staged.source_of(documents)
    counts = np.bincount(sources, minlength=len(staged.names))
    sums = np.zeros(len(staged.names), np.int64)
    np.add.at(sums, sources, lengths)
    for number in np.flatnonzero(counts).tolist():
        one = by_source.setdefault(staged.names[number], [0, 0])
        one[0] += int(counts[number])
        one[1] += int(sums[number])


class _Rows:
    """The rows of one shard, on their way to ``documents.parquet``."""

    def __init__(self, stack: contextlib.ExitStack, mix: MixWriting, shard: MixShard) -> None:
        import pyarrow as pa

        self._mix, self._shard = mix, shard
        self._schema = documents_schema()
        self._hasher = RowsHasher()
        file = stack.enter_context(
            atomic_write(rows_path(mix.out, f"{shard.number:06d}", shard.split or "all"), durable=False)
        )
        self._writer = stack.enter_context(pa.ipc.new_stream(file, self._schema))

    def add(self, documents: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64]) -> Any:
        """Append rows, and return them as a record batch."""
        import pyarrow as pa

        staged, shard = self._mix.staged, self._shard
        table = staged.take(documents, _COLUMNS)
        count = len(documents)
        columns = [
            _one(table.column("doc")),
            _word([ID_KIND], np.zeros(count)),
            _word(list(staged.names), staged.source_of(documents)),
            _one(table.column("upstream_id")).cast(pa.large_string()),
            _word([shard.split], np.zeros(count)),
            _word([shard.folder + shard.name + self._mix.inside], np.zeros(count)),
            pa.array(np.arange(self._hasher.rows, self._hasher.rows + count)),
            pa.array(lengths),
            pa.array(_metadata(table, lengths), pa.large_string()),
        ]
        batch = pa.record_batch(columns, schema=self._schema)
        self._hasher.update(batch)
        self._writer.write_batch(batch)
        return batch

    def hexdigest(self) -> str:
        return self._hasher.hexdigest()


def _one(column: Any) -> Any:
    """Return a chunked column as one array."""
    whole = column.combine_chunks()
    return whole.combine_chunks() if hasattr(whole, "chunks") else whole


def _facts(batch: Any) -> list[DocumentFacts]:
    names = ("id", "source", "upstream_id", "metadata")
    rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return [DocumentFacts(one.hex(), ID_KIND, source, upstream, said) for one, source, upstream, said in rows]


def _word(words: list[str], codes: Any) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(np.asarray(codes, np.int32)), pa.array(words, pa.string()))


def _metadata(table: Any, lengths: npt.NDArray[np.int64]) -> list[str | None]:
    """Return each document's metadata: what its source gave, its url and group, and whether it was cut and from how many."""
    full = table.column("full_tokens").to_numpy() + 1
    given, urls, groups = (table.column(name).to_pylist() for name in ("metadata", "url", "group"))
    said_of = any(table.column(name).null_count < table.num_rows for name in ("metadata", "url", "group"))
    if not said_of and bool((full == lengths).all()):
        return [None] * table.num_rows
    out: list[str | None] = []
    for said, url, group, whole, length in zip(given, urls, groups, full.tolist(), lengths.tolist(), strict=True):
        more: dict[str, Any] = {}
        if url is not None:
            more["url"] = url
        if group is not None:
            more["group"] = group
        if whole != length:
            more |= {"truncated": True, "original_tokens": whole}
        if not more:
            out.append(said)
            continue
        out.append(json.dumps({**(json.loads(said) if said else {}), **more}, ensure_ascii=False, sort_keys=True))
    return out


def _record_path(mix: MixWriting, shard: MixShard) -> Path:
    return mix.out / JOURNAL / f"{shard.number:06d}.json"


def _unrecord(mix: MixWriting, shard: MixShard) -> None:
    _record_path(mix, shard).unlink(missing_ok=True)


def _standing(mix: MixWriting, shard: MixShard) -> WrittenShard | None:
    """Return the record of a shard that stands as it was written, for this plan; its files are read again."""
    path = _record_path(mix, shard)
    try:
        said = loads_strict(path.read_bytes(), path)
        if said.pop("plan") != mix.plan:
            return None
        finished = said.pop("finished")
        files = tuple(WrittenFile(**file) for file in finished["files"])
        found = WrittenShard(FinishedShard(finished["name"], finished["documents"], finished["tokens"], files), **said)
        for file in files:
            place = mix.out / file.path
            if place.stat().st_size != file.bytes or sha256_file(place) != file.sha256:
                return None
    except (OSError, TokenreelError, KeyError, TypeError, AttributeError):
        return None
    if mix.hidden and not lines_whole(mix.out / shard.folder / f".{shard.name}.docs"):
        return None
    return found if rows_wait(mix.out, f"{shard.number:06d}", shard.split or "all", found.rows_sha256) else None
