"""Bucket streams: the documents of a join, by bucket, in numeric task order, tokenised, in any writable format.

Every bucket becomes a corpus ``cXXqY/``; ``run.toml`` beside them mixes them as the index says, with the tail as the
ordered concatenation of its buckets. ``streams.json`` holds counts of documents and tokens, and what was missing.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import ReplayError, require
from tokenreel.formats.base import Boundary
from tokenreel.formats.registry import format_named
from tokenreel.formats.writing import FinishedShard, WriteOptions, writing_of
from tokenreel.replay.buckets import bucket_name
from tokenreel.replay.emit import FOLDER
from tokenreel.replay.metadata import MIX, task_number
from tokenreel.store.atomic import make_folder, write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tokenreel.formats.writing import ShardWriter, Writing
    from tokenreel.replay.metadata import Manifest, Mix, Source, Sources
    from tokenreel.replay.tokens import Tokeniser

STREAMS = "streams.json"
BATCH = 1 << 12
ROW_TOKENS = 1024
"""Of the run file, where the index says none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """How streams are written."""

    format: str = "megatron-v1"
    dtype: str | None = None
    """None: the narrowest that holds the tokenizer's largest id."""


@dataclass(eq=False)
class Stream:
    """One bucket's stream."""

    bucket: int
    documents: int = 0
    tokens: int = 0
    expected: int = 0
    """Documents that the index has."""
    files: list[str] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    """Sources of its documents."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "name": bucket_name(self.bucket),
            "bucket": self.bucket,
            "documents": self.documents,
            "expected": self.expected,
            "tokens": self.tokens,
            "files": self.files,
        }


def write_streams(
    joined: Path,
    out: Path,
    manifest: Manifest,
    mix: Mix,
    tokens: Tokeniser,
    plan: StreamPlan,
    progress: Callable[[int, int | None, int], None] | None = None,
    sources: Sources | None = None,
) -> list[Stream]:
    """Write every bucket's stream and return them by bucket; `joined` is what `join` wrote to.

    With `sources`, what is known to be inexact about them stands with each bucket in the run file, as its `fidelity`.

    Raises `ReplayError`: RPL041 no joined documents, RPL042 an output that is there already, RPL040 ids that do not fit.
    """
    files = sorted((joined / FOLDER).glob("*.parquet"), key=lambda path: task_number(path.name))
    if not files:
        raise ReplayError("RPL041", path=joined, expected=f"{FOLDER}/*.parquet", hint="tokenreel replay join")
    if (out / STREAMS).exists():
        raise ReplayError("RPL042", path=out / STREAMS, hint="name another folder with --out")
    writing = writing_of(format_named(plan.format))
    dtype = plan.dtype or _narrowest(writing, tokens.tokenizer.largest_id)
    options = WriteOptions(dtype, _boundary(tokens, table=writing.holds.table))
    streams = {int(b): Stream(int(b), expected=n) for b, n in manifest.documents_by_bucket.items()}
    writers: dict[int, ShardWriter] = {}
    try:
        for done, path in enumerate(files, 1):
            for buckets, names, texts in _documents(path):
                _add(buckets, texts, tokens, streams, writers, (writing, options, out))
                for bucket, name in set(zip(buckets, names, strict=True)):
                    streams[bucket].sources.add(name)
            if progress is not None:
                progress(done, len(files), sum(stream.tokens for stream in streams.values()))
        for bucket, writer in sorted(writers.items()):
            _finish(streams[bucket], writer, writing, options, out)
    finally:
        for writer in writers.values():
            writer.abort()
    present = [stream for _, stream in sorted(streams.items())]
    facts = {
        "format": "tokenreel-streams-1",
        "shard_format": plan.format,
        "dtype": dtype,
        "boundary": options.boundary.as_dict(),
        "complete": all(stream.documents == stream.expected for stream in present),
        "streams": [stream.as_dict() for stream in present],
    }
    doubts = {} if sources is None else {one.source_id: said for one in sources.sources if (said := doubt_of(one))}
    write_bytes_atomic(out / "run.toml", run_file(present, mix, options.boundary, doubts).encode())
    write_bytes_atomic(out / STREAMS, (json.dumps(facts, indent=1) + "\n").encode())
    return present


def doubt_of(source: Source) -> str:
    """Return what is inexact about a source; empty: nothing that is known.

    >>> from tokenreel.replay.metadata import Source
    >>> doubt_of(Source(source_id="a", immutable=False)), doubt_of(Source(source_id="b"))
    ('no immutable upstream', '')
    """
    said = [
        "approximate" if source.approximate else "",
        "" if source.immutable else "no immutable upstream",
        "needs authentication" if source.needs_authentication else "",
    ]
    return ", ".join(word for word in said if word)


def _documents(path: Path) -> Iterator[tuple[list[int], list[str], list[str]]]:
    parquet = require("pyarrow.parquet", extra="build")
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=BATCH, columns=["bucket_id", "source_id", "text"]):
            yield tuple(batch.column(name).to_pylist() for name in ("bucket_id", "source_id", "text"))


def _add(
    buckets: list[int],
    texts: list[str],
    tokens: Tokeniser,
    streams: dict[int, Stream],
    writers: dict[int, ShardWriter],
    how: tuple[Writing, WriteOptions, Path],
) -> None:
    writing, options, out = how
    by_bucket: dict[int, list[str]] = {}
    for bucket, text in zip(buckets, texts, strict=True):
        by_bucket.setdefault(bucket, []).append(text)
    for bucket, mine in by_bucket.items():
        ids, lengths = tokens.encode(mine)
        if bucket not in writers:
            folder = out / bucket_name(bucket)
            make_folder(folder)
            writers[bucket] = writing.open_writer(folder, "stream", options)
        writers[bucket].add_documents(ids.astype(options.dtype, copy=False), lengths)
        stream = streams.setdefault(bucket, Stream(bucket))
        stream.documents += len(mine)
        stream.tokens += len(ids)


def _finish(stream: Stream, writer: ShardWriter, writing: Writing, options: WriteOptions, out: Path) -> None:
    folder = out / bucket_name(stream.bucket)
    files = writer.finish()
    if writing.finish_folder is not None:
        shard = FinishedShard("stream", stream.documents, stream.tokens, files)
        files = (*files, *writing.finish_folder(folder, [shard], options))
    stream.files = [f"{bucket_name(stream.bucket)}/{file.path}" for file in files]


def _narrowest(writing: Writing, largest: int) -> str:
    for name in writing.holds.dtypes:
        if largest <= np.iinfo(name).max:
            return name
    raise ReplayError("RPL040", expected=f"a format that holds ids to {largest}", found=", ".join(writing.holds.dtypes))


def _boundary(tokens: Tokeniser, *, table: bool) -> Boundary:
    prefix = (tokens.bos[0],) if tokens.bos is not None else ()
    suffix = (tokens.eos[0],) if tokens.eos is not None else ()
    return Boundary(prefix, suffix, table=table)


def run_file(streams: list[Stream], mix: Mix, boundary: Boundary, doubts: Mapping[str, str] = {}) -> str:
    """Return the run file over the streams: one corpus a bucket; the mixture where the index has weights."""
    lines = ["# Made by `tokenreel replay streams`: the buckets of a replay index, mixed as it says.", ""]
    said = ",".join(
        f"{side}={'+'.join(map(str, ids))}"
        for side, ids in (("prefix", boundary.prefix), ("suffix", boundary.suffix))
        if ids
    )
    window = mix.sequence_length or ROW_TOKENS
    present = [stream for stream in streams if stream.tokens > window]
    short = [bucket_name(stream.bucket) for stream in streams if 0 < stream.tokens <= window]
    if short:
        lines.insert(1, f"# Left out, no whole window of {window} tokens: {', '.join(short)}.")
    whole = _not_here([bucket_name(stream.bucket) for stream in present], mix)
    for stream in present:
        name = bucket_name(stream.bucket)
        lines += ["[[corpus]]", f'name = "{name}"', f'path = "{name}"']
        lines += [f'boundary = "{said}"'] if said else []
        known = [f"{source}: {doubts[source]}" for source in sorted(stream.sources) if source in doubts]
        if stream.documents < stream.expected:
            known.append(f"{stream.expected - stream.documents} of {stream.expected} documents were not found")
        known += whole
        lines += [f"fidelity = {json.dumps('; '.join(known))}", ""] if known else [""]
    return "\n".join([*lines, *_order_lines(present, mix)]) + "\n"


def _not_here(names: list[str], mix: Mix) -> list[str]:
    """Return what makes every step doubtful: buckets of the mixture without a stream change the shares of all others."""
    wanted = {name for phase in mix.phases for name, weight in phase.weights.items() if weight > 0}
    if "tail" in wanted:
        wanted |= {bucket_name(bucket) for bucket in mix.tail}
    lost = sorted(wanted - {"tail", *names})
    return [f"not here, of the mixture: {', '.join(lost)}"] if lost else []


def _order_lines(streams: list[Stream], mix: Mix) -> list[str]:
    names = [bucket_name(stream.bucket) for stream in streams]
    length = mix.sequence_length or ROW_TOKENS
    if not mix.phases:
        weights = Counter({bucket_name(stream.bucket): stream.tokens for stream in streams})
        samples = sum(max(1, (stream.tokens - 1) // length) for stream in streams)
        lines = ["[order]", 'kind = "mix"', f"samples = {samples}", ""]
        for name in names:
            lines += ["[[order.component]]", f'name = "{name}"', f"weight = {float(weights[name])!r}"]
            lines += [
                'at_end = "repeat"',
                f'order = {{ kind = "windows", corpus = "{name}", row_tokens = {length} }}',
                "",
            ]
        return lines
    return _levanter_lines(names, mix, length)


def _levanter_lines(names: list[str], mix: Mix, length: int) -> list[str]:
    """Return the mixture as Levanter orders it: components by name, then the tail, with stages in updates."""
    tail = [bucket_name(bucket) for bucket in mix.tail if bucket_name(bucket) in names]
    weighted = {name for phase in mix.phases for name, weight in phase.weights.items() if weight > 0}
    alone = [name for name in names if name in weighted]
    lines = [
        "[order]",
        'kind = "levanter"',
        f"row_tokens = {length}",
        f"block = {mix.block or 2048}",
        f"seed = {mix.seed}",
    ]
    if mix.data_seed is not None:
        lines.append(f"data_seed = {mix.data_seed}")
    if mix.stop_strategy != "restart":
        lines.append(f'stop = "{mix.stop_strategy}"')
    lines += [*_shuffle_lines(mix.shuffle), ""]
    for name in alone:
        lines += ["[[order.component]]", f'name = "{name}"', f'corpus = "{name}"', ""]
    if tail:
        listed = ", ".join(f'"{name}"' for name in tail)
        lines += ["[[order.component]]", 'name = "tail"', f"corpus = [{listed}]", ""]
    kept = {*alone, *(["tail"] if tail else [])}
    for phase in mix.phases:
        weights = ", ".join(f"{name} = {weight!r}" for name, weight in phase.weights.items() if name in kept)
        lines += ["[[order.stage]]", f"step = {phase.update}", f"weights = {{ {weights} }}", ""]
    if mix.batch_schedule:
        first, *later = mix.batch_schedule
        lines += ["[schedule]", f"batch = {first[1]}"]
        if later:
            stages = ", ".join(f"{{ step = {step}, batch = {batch} }}" for step, batch in later)
            lines.append(f"ramp = [{stages}]")
    return lines


def _shuffle_lines(said: Any) -> list[str]:
    """Return Levanter's `shuffle` as the run file spells it: false, true, an era's length, or a block configuration.

    >>> _shuffle_lines(True), _shuffle_lines({"io_block_size": 4, "window_blocks": 8, "perm_type": "linear"})
    (['shuffle = { kind = "full" }'], ['shuffle = { kind = "block", io_block = 4, window_blocks = 8, permutation = "linear" }'])
    """
    if said is None:
        return []
    if isinstance(said, bool):
        return [f'shuffle = {{ kind = "{"full" if said else "none"}" }}']
    if isinstance(said, int):
        return [f'shuffle = {{ kind = "era", era_length = {said} }}']
    if not isinstance(said, dict):
        raise ReplayError("RPL003", "shuffle", path=MIX, expected="false, true, a number or an object", found=said)
    words = {"io_block_size": "io_block", "window_blocks": "window_blocks", "perm_type": "permutation"}
    kept = ['kind = "block"', *(f"{word} = {json.dumps(said[key])}" for key, word in words.items() if key in said)]
    return [f"shuffle = {{ {', '.join(kept)} }}"]


def summary(streams: list[Stream]) -> dict[str, Any]:
    """Return what a command shows."""
    return {
        "streams": len([stream for stream in streams if stream.documents]),
        "documents": sum(stream.documents for stream in streams),
        "expected": sum(stream.expected for stream in streams),
        "tokens": sum(stream.tokens for stream in streams),
    }
