"""Convert a corpus into another format, provably the same: plan, refuse, write, prove, record."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.convert.facts import known_facts, write_documents
from tokenreel.convert.fitting import Target, check_fit, check_vocab, choose_dtype
from tokenreel.convert.journal import Journal, begun_splits
from tokenreel.convert.lock import hold
from tokenreel.convert.place import INCOMPLETE, TWICE, refuse_incomplete, refuse_place, refuse_twice
from tokenreel.convert.planning import Cut, fingerprint, plan_shards
from tokenreel.convert.proving import identity_by_leaves
from tokenreel.convert.recording import done_before, plain_name, record, record_again, record_splits
from tokenreel.convert.report import Converted
from tokenreel.convert.shards import Plan, write_shards
from tokenreel.convert.source import Source
from tokenreel.corpus.documents import DOCUMENTS
from tokenreel.corpus.opening import open_corpus
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.corpus.unfinished import UNFINISHED
from tokenreel.errors import DocumentError, FormatError, MissingExtra, UsageError
from tokenreel.formats import Boundary, WrittenFile
from tokenreel.formats.overruling import READERS
from tokenreel.formats.registry import all_formats
from tokenreel.formats.writing import WriteOptions, Writing, writing_of
from tokenreel.hashing import Identity, sha256_file
from tokenreel.store import LocalStore, MapPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tokenreel.convert.facts import Known
    from tokenreel.convert.planning import PlannedShard
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats.registry import Format
    from tokenreel.formats.writing import FinishedShard

    Progress = Callable[[int, int | None, int], None]

OVERRULABLE = ("DOC021", "DOC023", "DOC028", "TOK046", INCOMPLETE, TWICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a conversion is asked for; see `convert`."""

    to: str
    dtype: str | None = None
    boundary: Boundary | str | None = None
    to_boundary: Boundary | str | None = None
    vocab: int | None = None
    from_dtype: str | None = None
    cut: Cut = field(default_factory=Cut)
    workers: int | None = None
    proof: bool = True
    accept: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    progress: Progress | None = None


def convert(  # noqa: PLR0913 (the options of the command)
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    to: str,
    tokens_per_shard: int | None = None,
    docs_per_shard: int | None = None,
    dtype: str | None = None,
    boundary: Boundary | str | None = None,
    to_boundary: Boundary | str | None = None,
    vocab: int | None = None,
    from_dtype: str | None = None,
    workers: int | None = None,
    proof: bool = True,
    accept: Collection[str] = (),
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Converted:
    """Write the documents of `source` in the format `to` into the new folder `destination`, and prove them the same.

    Cut as the source is, or by tokens or documents; a root with splits gives one folder for each. `dtype` is the target's
    (and the source's where that does not say its own, unless `from_dtype` does); `boundary` is the source's, `to_boundary`
    the target's, the source's where left out. Killed at any moment and run again with the same arguments it goes on:
    finished shards are not written again; when it was at its end, what it wrote is read and held against its record. Memory: some 64 MiB a worker, or the longest document.

    Refuses before anything is written: see `fitting.check_fit` and `place`; `UsageError`: USE005, USE011, USE012, USE014,
    USE015, USE018; `StorageError` (STO007) where another command writes there; `DocumentError` (DOC025) where it was at its end
    and a file changed since. Afterwards: `DocumentError` DOC024 where the identities differ, DOC028 where the source's is not what its manifest
    records; both leave no record of success.

    >>> import numpy as np, tempfile
    >>> from tokenreel.formats.megatron_write import MegatronWriter
    >>> folder = tempfile.mkdtemp()
    >>> with MegatronWriter(f"{folder}/a/web", "uint16") as writer:
    ...     writer.add_documents(np.array([5, 6, 0, 7, 0]), np.array([3, 2]))
    ...     _ = writer.finish()
    >>> done = convert(f"{folder}/a", f"{folder}/b", to="megatron-v1", dtype="int32", boundary="suffix=0")
    >>> done.documents, done.tokens, done.dtype, done.identity[:8]
    (2, 5, 'int32', 'd98da5cf')
    """
    wish = Wish(
        to=to,
        dtype=dtype,
        boundary=boundary,
        to_boundary=to_boundary,
        vocab=vocab,
        from_dtype=from_dtype,
        cut=Cut(tokens_per_shard, docs_per_shard),
        workers=workers,
        proof=proof,
        accept=tuple(accept),
        options=options or {},
        progress=progress,
    )
    return convert_many([source], destination, wish)


def convert_many(
    sources: Sequence[str | os.PathLike[str]], destination: str | os.PathLike[str], wish: Wish
) -> Converted:
    """Write the documents of all sources, in the order given, as one corpus; see `convert`."""
    root = Path(destination)
    for code in wish.accept:
        if code not in OVERRULABLE and code not in READERS:
            known = ", ".join(sorted({*OVERRULABLE, *READERS}))
            raise UsageError("USE003", "--accept: this cannot be overruled", expected=known, found=code)
    rows = _formats(wish.to)
    refuse_place(root, sources, command="convert" if len(sources) == 1 else "merge")
    with hold(root):
        return _convert_held(sources, root, rows, wish)


def _convert_held(sources: Sequence[str | os.PathLike[str]], root: Path, rows: list[Format], wish: Wish) -> Converted:
    # One pool for all: ten thousand sources need no more open files than one. A map of a large shard would count against
    # a limit of address space.
    pool = MapPool(maps=False)
    corpora = [_opened(source, wish, pool) for source in sources]
    try:
        refuse_twice(corpora, wish.accept)
        refuse_incomplete(corpora, wish.accept)
        row, writing = _chosen(rows, wish.dtype or corpora[0].dtype.name)
        alike = [source for source, corpus in zip(sources, corpora, strict=True) if row.name in _formats_of(corpus)]
        refuse_place(root, alike, command="convert" if len(sources) == 1 else "merge", beside=True)
        splits = {corpus.splits for corpus in corpora}
        if len(splits) > 1:
            raise UsageError("USE016", found="; ".join(f"{c.path}: {', '.join(c.splits) or 'none'}" for c in corpora))
        names = splits.pop()
        if not names:
            return _convert_one(Source.of(corpora), root, row, writing, wish)
        with begun_splits(root, names, row.name):
            parts = {
                name: _convert_one(Source.of([c.split(name) for c in corpora]), root / name, row, writing, wish)
                for name in names
            }
            return _together(root, parts)
    finally:
        for corpus in corpora:
            corpus.close()


def _formats_of(corpus: Corpus) -> set[str]:
    parts = corpus.split_entries.values() if corpus.splits else [corpus.entries]
    return {entry.format for part in parts for entry in part}


def _formats(name: str) -> list[Format]:
    """Return the format of this name, or those that are written whose names begin like it: one for each width."""
    exact = [row for row in all_formats() if row.name == name]
    alike = exact or [row for row in all_formats() if row.writer and row.name.startswith(f"{name}-")]
    if not alike:
        known = ", ".join(row.name for row in all_formats() if row.writer)
        raise UsageError("USE003", "--to", expected=known, found=name, hint="tokenreel formats")
    return alike


def _chosen(rows: list[Format], dtype: str) -> tuple[Format, Writing]:
    """Return the format that has the dtype, else the last one, which is the widest."""
    known = [(row, writing_of(row)) for row in rows]
    return next((one for one in known if dtype in one[1].holds.dtypes), known[-1])


def _opened(source: str | os.PathLike[str], wish: Wish, pool: MapPool) -> Corpus:
    accept = tuple(code for code in wish.accept if code not in OVERRULABLE)
    given: dict[str, Any] = {"boundary": wish.boundary, "vocab": wish.vocab, "accept": accept}
    try:
        corpus = open_corpus(source, dtype=wish.from_dtype, **given)
    except FormatError as error:
        if error.code != "FLT001" or wish.from_dtype is not None or wish.dtype is None:
            raise
        corpus = open_corpus(source, dtype=wish.dtype, **given)
    if isinstance(corpus.store, LocalStore):
        corpus.store.pool = pool
    return corpus


def _convert_one(source: Source, root: Path, row: Format, writing: Writing, wish: Wish) -> Converted:
    dtype = choose_dtype(source, writing.holds, wish.dtype, row.name)
    wanted = wish.to_boundary
    parsed = Boundary.parse(wanted) if isinstance(wanted, str) else wanted
    target = Target(
        row.name,
        writing.holds,
        dtype,
        replace(parsed or source.boundary, table=writing.holds.table),
        dict(wish.options),
    )
    shards = plan_shards(source, target, wish.cut, writing)
    mark = fingerprint(source, target, shards)
    done = done_before(root, mark, wish.workers or os.cpu_count() or 1, wish.progress)
    if done is not None:
        return _again(done, root, shards, source, target, writing, wish)
    counter = _Counter(source, wish.progress, passes=1 + wish.proof)
    check_vocab(source, wish.vocab)
    exceptions = check_fit(source, target, wish.accept)
    known, lost = _facts(source, wish.accept)
    threads = wish.workers or os.cpu_count() or 1
    journal = Journal.begin(root, mark)
    plan = Plan(root=root, shards=shards, source=source, target=target, writing=writing, journal=journal, known=known)
    try:
        written = write_shards(plan, threads, counter, identity=wish.proof)
    except UsageError:
        journal.forget()
        raise
    read = _attested(source, written.identity, wish.accept)
    options = WriteOptions(target.dtype, target.boundary, target.options)
    extra = writing.finish_folder(root, written.shards, options) if writing.finish_folder else ()
    identity = _prove(source, root, target, threads, counter, read)
    finished = written.shards
    if known is not None and not target.holds.metadata:
        extra = (*extra, _write_facts(root, shards, finished, source, target, known))
    weighed = "weights of tokens: the format has no place for them" if "DOC021" in wish.accept else None
    report = Converted(
        path=plain_name(root),
        format=row.name,
        dtype=dtype,
        boundary=target.boundary.as_dict(),
        shards=len(finished),
        documents=source.documents,
        tokens=sum(shard.tokens for shard in finished),
        files=(*(file for shard in finished for file in shard.files), *extra),
        identity=None if identity is None else identity.digest,
        exceptions_in_identity=not target.reframes(source),
        kept_shards=written.kept,
        exceptions=exceptions.count,
        exception_documents=tuple(exceptions.documents),
        lost=tuple(filter(None, (*lost, weighed, _sequences_lost(source)))),
        accepted=tuple(code for code in wish.accept if code in OVERRULABLE),
    )
    with contextlib.closing(_reopened(root, target)) as made:
        report = record(root, mark, report, source, made, target, finished, identity)
    journal.end()
    return report


def _again(
    done: Converted,
    root: Path,
    shards: list[PlannedShard],
    source: Source,
    target: Target,
    writing: Writing,
    wish: Wish,
) -> Converted:
    """Return an earlier run's report, with the proof where that run was not asked for one, and what is accepted by now."""
    accepted = tuple(dict.fromkeys((*done.accepted, *(code for code in wish.accept if code in OVERRULABLE))))
    identity = None
    if wish.proof and done.identity is None:
        threads = wish.workers or os.cpu_count() or 1
        counter = _Counter(source, wish.progress, passes=2)
        plan = Plan(root=root, shards=shards, source=source, target=target, writing=writing, journal=None)
        read = write_shards(plan, threads, counter, identity=True).identity
        identity = _prove(source, root, target, threads, counter, _attested(source, read, wish.accept))
    if identity is None and accepted == done.accepted:
        return done
    return record_again(root, replace(done, accepted=accepted), identity)


def _sequences_lost(source: Source) -> str | None:
    several = any(
        entry.sequences != entry.documents
        for corpus in source.corpora
        if not isinstance(corpus, StreamCorpus)
        for entry in corpus.entries
    )
    return "edges of sequences inside documents: every document is one sequence" if several else None


@dataclass(slots=True)
class _Counter:
    """Adds up what threads have done and shows it."""

    source: Source
    show: Progress | None
    passes: int
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, tokens: int) -> None:
        if self.show is None:
            return
        import numpy as np

        width = np.dtype(self.source.dtypes[0]).itemsize
        with self.lock:
            self.done += tokens
            total = self.source.tokens * width * self.passes
            self.show(min(total, self.done * width), total, self.done // self.passes)


def _facts(source: Source, accept: Collection[str]) -> tuple[Known | None, tuple[str, ...]]:
    """Return the facts of a source's documents, and what is lost of them; raises `DocumentError` (DOC023)."""
    try:
        return known_facts(source), ()
    except MissingExtra as error:
        if "DOC023" not in accept:
            raise DocumentError(
                "DOC023", path=source.corpora[0].path, expected="the extra [build]", hint="--accept DOC023"
            ) from error
        return None, (f"ids, sources and metadata in {DOCUMENTS}: pyarrow is not installed",)


def _write_facts(
    root: Path,
    shards: list[PlannedShard],
    finished: list[FinishedShard],
    source: Source,
    target: Target,
    known: Known,
) -> WrittenFile:
    from tokenreel.corpus.layout import split_of

    grown = 0
    if target.reframes(source):
        grown = len(target.boundary.prefix) + len(target.boundary.suffix)

    def lengths(begin: int, end: int) -> Any:
        if not target.reframes(source):
            return source.lengths(begin, end)
        import numpy as np

        from tokenreel.convert.framing import contents

        parts = [contents(b.ids, b.lengths, source.boundary) for b in source.batches(begin, end)]
        return np.concatenate([one.ends - one.begins for one in parts]) + grown

    split = split_of(f"{root.name}/x") or ""
    path = write_documents(root, split, finished, [(s.begin, s.end) for s in shards], known, lengths)
    return WrittenFile(DOCUMENTS, path.stat().st_size, sha256_file(path))


def _reopened(root: Path, target: Target) -> Corpus:
    """Open what was written by its bytes: nothing that was recorded here is believed."""
    boundary = Boundary(target.boundary.prefix, target.boundary.suffix, table=target.holds.table)
    # What ids look like is no question here: their width is known. Nor is it that the conversion is not at its end yet.
    corpus = open_corpus(root, dtype=target.dtype, boundary=boundary, accept=("FLT003", UNFINISHED))
    if len(corpus.splits) == 1:  # names that say a split, as loaders of llm.c's files look for them
        corpus = corpus.split(corpus.splits[0])
    if isinstance(corpus.store, LocalStore):
        corpus.store.pool = MapPool(maps=False)
    return corpus


def _attested(source: Source, read: Identity | None, accept: Collection[str]) -> Identity | None:
    """Return the identity that was read; raises `DocumentError` (DOC028) where it is not what the source's manifest says."""
    corpus = source.corpora[0]
    if read is None or len(source.corpora) > 1 or corpus.manifest is None:
        return read
    said, boundary = corpus.recorded_identity.get(corpus.split_name or ""), corpus.manifest.boundary
    alike = (boundary.prefix, boundary.suffix) == (source.boundary.prefix, source.boundary.suffix)
    if said is not None and alike and said != read.digest and "DOC028" not in accept:
        hint = f"tokenreel verify {corpus.path} --level full"
        raise DocumentError("DOC028", path=corpus.path, expected=said, found=read.digest, hint=hint)
    return read


def _prove(
    source: Source, root: Path, target: Target, threads: int, counter: Callable[[int], None], read: Identity | None
) -> Identity | None:
    """Return the identity of source and target; raises `DocumentError` (DOC024) where they are not the same."""
    if read is None:
        return None
    flags = not target.reframes(source)
    wanted = read if flags else read.without_flags()
    written = _reopened(root, target)
    try:
        found = identity_by_leaves(Source.of([written]), exceptions=flags, threads=threads)
        counter(source.tokens)
    finally:
        written.close()
    if found.digest != wanted.digest:
        where = wanted.first_difference(found)
        said = "" if where is None else f"the first difference is in {where[0]} {where[1]} .. {where[2]}"
        raise DocumentError(
            "DOC024",
            said,
            path=root,
            expected=f"{wanted.digest}, {wanted.documents} documents, {wanted.content_tokens} tokens of content",
            found=f"{found.digest}, {found.documents} documents, {found.content_tokens} tokens of content",
        )
    return found


def _together(root: Path, parts: dict[str, Converted]) -> Converted:
    record_splits(root, parts)
    one = next(iter(parts.values()))
    return Converted(
        path=plain_name(root),
        format=one.format,
        dtype=one.dtype,
        boundary=one.boundary,
        shards=sum(part.shards for part in parts.values()),
        documents=sum(part.documents for part in parts.values()),
        tokens=sum(part.tokens for part in parts.values()),
        files=(),
        identity=None,
        exceptions_in_identity=one.exceptions_in_identity,
        kept_shards=sum(part.kept_shards for part in parts.values()),
        exceptions=sum(part.exceptions for part in parts.values()),
        accepted=one.accepted,
        splits=parts,
    )
