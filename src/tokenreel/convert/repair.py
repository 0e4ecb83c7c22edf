"""Repair a corpus into a new folder: what is whole is copied, what is not is saved as far as it goes; the source stays.

Every shard that is written anew is read again: the SHA-256 of its ids is that of the ids that were kept. The report says
what changed and what was lost; nothing is guessed that separators or tables do not say.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.convert.repair_indexed import INDEXED, Wish, family_of, ids_digest, mend, without_index
from tokenreel.convert.repair_tables import MendedTable, edges_said, mend_tables
from tokenreel.convert.salvage import Saved, salvage
from tokenreel.convert.workplace import Workplace
from tokenreel.corpus.unfinished import refuse_unfinished
from tokenreel.errors import EXIT_DATA, EXIT_OK, DocumentError, FormatError, TokenError, TokenreelError, UsageError
from tokenreel.formats import Boundary, Found, open_shard
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.formats.registry import format_named
from tokenreel.formats.writing import WriteOptions, writing_of
from tokenreel.hashing import sha256_file
from tokenreel.store.atomic import atomic_write
from tokenreel.verify.finding import Findings
from tokenreel.verify.hobbylm_tables import check_tables
from tokenreel.verify.options import known_dtype
from tokenreel.verify.pairs import problems_of
from tokenreel.verify.target import open_target
from tokenreel.verify.verify import verify
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokenreel.store import Store
    from tokenreel.verify.target import Target

ASKED = ("megatron", "olmo", "hobbylm", "litdata", "mds", "levanter")
"""What `as_format` may begin with."""
STEP = 1 << 21
"""Ids copied at a time."""
BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class MendedShard:
    """One shard that was written anew, or could not be."""

    name: str
    changes: tuple[str, ...]
    documents: int
    tokens: int
    """Ids that were kept."""
    lost: int | None
    """Ids that were there, or promised, and are in no document now; None where nothing says how many."""
    sha256: str
    """Of the ids that were kept, before and after alike."""
    lost_documents: int | None = None
    """Where a table says how many there were."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was repaired."""

    path: str
    out: str
    mended: tuple[MendedShard, ...] = ()
    tables: tuple[MendedTable, ...] = ()
    index: str = ""
    """What was wrong with the index of all shards, in words; empty for nothing."""
    beyond: tuple[str, ...] = ()
    """Shards that nothing can be saved of, and why."""
    copied: int = 0
    """Shards that were whole and copied byte for byte."""
    hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 of every file that was copied, before and after alike."""
    verified: str = ""
    """What `verify` says of the result: ok, broken or incomplete."""
    findings: tuple[str, ...] = field(default=())

    @property
    def anything(self) -> bool:
        """Whether anything was changed or lost."""
        return bool(self.mended or self.tables or self.index or self.beyond)

    @property
    def exit_status(self) -> int:
        """1 where anything was changed or lost."""
        return EXIT_DATA if self.anything else EXIT_OK

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        from dataclasses import asdict

        return {**asdict(self), "changed": self.anything}

    def lines(self) -> list[str]:
        """Return the form for people."""
        if not self.anything:
            return [f"{self.path}: nothing to repair, nothing written"]
        out = []
        for shard in self.mended:
            kept = f"{counted(shard.documents, 'document')} and {counted(shard.tokens, 'id')} kept"
            lost = f", {counted(shard.lost, 'id')} lost" if shard.lost else ", nothing lost"
            if shard.lost_documents:
                more = "their ids are not counted" if shard.lost is None else counted(shard.lost, "id")
                lost = f", {counted(shard.lost_documents, 'document')} lost ({more})"
            elif shard.lost is None:
                lost = "; how much is lost nothing says"
            out.append(f"{shard.name}: {'; '.join(shard.changes)}")
            out.append(f"  {kept}{lost}; SHA-256 of the ids before and after {shard.sha256}")
        for table in self.tables:
            out += table.lines()
        if self.index:
            out.append(self.index)
        out += [f"not saved: {what}" for what in self.beyond]
        if self.copied:
            out.append(f"{counted(self.copied, 'shard')} copied byte for byte, SHA-256 the same before and after")
        out.append(f"{self.out}: {self.verified}" + (f": {'; '.join(self.findings)}" if self.findings else ""))
        return out


def repair(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    boundary: Boundary | str | None = None,
    dtype: str | None = None,
    vocab: int | None = None,
    as_format: str | None = None,
    progress: Callable[[int, int | None, int], None] | None = None,
) -> Repaired:
    """Write what can be saved of a corpus into the new folder `out`; the source is never changed.

    Truncated shards are kept to their last whole document; a missing or damaged ``.idx``, ``.ds.index``, ``.ds.metadata``,
    ``.csv.gz`` or offset table is made anew, from what is left of it or from the separators of `boundary`; so are the
    ``index.json`` of MDS and LitData and Levanter's ledger, from the shards; HobbyLM's tables are rebuilt where they are wrong
    (see `repair_tables`). `dtype` is that of files that do not say theirs; `as_format` what ids without a header are:
    ``megatron-v1`` for a pair that lost its index; ``hobbylm-v1`` makes tables of documents for llm.c shards that have none.
    A shard of which nothing can be saved is left out and named. Nothing is written where nothing is wrong. `out` appears when
    all is done, by one rename; killed before and run again, what was copied is not copied again (see `workplace`).

    Raises `UsageError`: USE003, USE005, USE011, USE012; `StorageError` (STO007) while another repair works for `out`;
    `IncompleteError` (DOC029) for a conversion that has to be finished; `DocumentError` (DOC006) where there is no shard; `FormatError` (FLT020) where
    nothing at all can be saved.
    """
    if as_format is not None and not any(as_format.split("-")[0] == name for name in ASKED):
        raise UsageError("USE003", "--as", expected=", ".join(ASKED), found=as_format, hint="tokenreel repair -h")
    findings = Findings()
    target = open_target(path, findings, boundary=boundary, vocab=vocab, dtype=known_dtype(dtype))
    try:
        if target.only is None:
            refuse_unfinished(target.sizes, str(path))
        with Workplace(path, Path(out)) as place:
            work = _Work(target, place, str(out), dtype, as_format, progress)
            if not work.shards:
                what = "" if not findings.kept else findings.kept[0].line()
                raise DocumentError("DOC006", what, path=path, hint="tokenreel formats")
            report = work.run()
            if report.anything and place.result.exists():
                report = _verified(report, place.result, target, boundary, dtype)
                place.publish()
            return report
    finally:
        target.close()


def _verified(
    report: Repaired, made: Path, target: Target, boundary: Boundary | str | None, dtype: str | None
) -> Repaired:
    checked = verify(made, level="full", boundary=boundary, dtype=dtype, vocab=target.vocab)
    wrong = tuple(finding.line() for finding in checked.findings if finding.severity == "error")
    return replace(report, verified=checked.status, findings=wrong)


class _Work:
    """One repair under way."""

    def __init__(
        self,
        target: Target,
        place: Workplace,
        shown: str,
        dtype: str | None,
        as_format: str | None,
        progress: Callable[[int, int | None, int], None] | None,
    ) -> None:
        self.target = target
        self.store: Store = target.store
        self.place = place
        self.out = place.result
        self.shown = shown
        self.dtype = dtype
        self.wish = Wish(target.boundary, dtype, as_format)
        self.shards = [_as_asked(found, as_format) for found in target.files]
        self.index = ""
        if not self.shards or as_format or family_of(self.shards[0].format) in INDEXED:
            found, self.index = without_index(target.store, list(target.sizes), self.wish)
            self.shards = found or self.shards
        self.progress = progress
        self.tables_asked = bool(as_format and as_format.startswith("hobbylm"))
        self.copied = 0
        self.hashes: dict[str, str] = {}
        self.mended: list[MendedShard] = []
        self.beyond: list[str] = []
        self.kept: list[Found] = []
        self.total = sum(target.sizes.get(file, 0) for found in self.shards for file in found.files)
        self.done = 0

    def run(self) -> Repaired:
        """Mend shards, then tables; write nothing where nothing is wrong."""
        wrong = {found.name: bool(self.index) or self._is_wrong(found) for found in self.shards}
        if self.shards and all(family_of(found.format) for found in self.shards):
            return self._indexed(wrong)
        tables = self._tables_wrong({name for name, bad in wrong.items() if bad})
        report = Repaired(str(self.target.path), self.shown)
        if not any(wrong.values()) and not tables:
            return report
        self.place.begin(self._fingerprint())
        cut = False
        # What is only read is written as something else, so all of it is.
        anew = any(wrong[found.name] and not format_named(found.format).writes for found in self.shards)
        for found in self.shards:
            streamed = format_named(found.format).streamed
            try:
                if wrong[found.name] or anew or (cut and streamed):
                    saved = salvage(self.store, found, self._boundary(found), self.dtype)
                    edges = edges_said(self.target, found, saved.said)
                    if edges is not None:  # documents are where the table says, and none goes on in another file
                        saved, streamed = replace(saved, edges=edges[edges <= saved.tokens]), False
                    saved, headless = self._without_head(saved) if cut and streamed else (saved, "")
                    self._mend(found, saved, headless)
                    cut = streamed and saved.said is not None and saved.tokens < saved.said
                else:
                    self._copy(found)
                    cut = False
                self.kept.append(found)
            except (FormatError, TokenError) as error:
                self.beyond.append(f"{found.name}: {error.code} {error.message or error.title} ({error.expected})")
                cut = streamed
        if not self.kept:
            raise FormatError(
                "FLT020", "nothing of it can be saved", path=self.target.path, found="; ".join(self.beyond[:3])
            )
        mended = mend_tables(self.target, self.kept, self.out, every=self.tables_asked) if tables else ()
        return replace(
            report,
            mended=tuple(self.mended),
            tables=tuple(mended),
            beyond=tuple(self.beyond),
            copied=self.copied,
            hashes=self.hashes,
        )

    def _indexed(self, wrong: dict[str, bool]) -> Repaired:
        """Mend shards of formats with a module of their own; see `repair_indexed`."""
        report = Repaired(str(self.target.path), self.shown, index=self.index)
        if not any(wrong.values()):
            return report
        self.place.begin(self._fingerprint())
        done = mend(self.store, self.out, self.shards, wrong, self.wish, self._copy)
        mended = [
            MendedShard(one.found.name, one.changes, documents, tokens, one.lost, digest, one.lost_documents)
            for one, documents, tokens, digest in done.shards
        ]
        return replace(
            report, mended=tuple(mended), beyond=tuple(done.beyond), copied=self.copied, hashes=dict(self.hashes)
        )

    def _boundary(self, found: Found) -> Boundary:
        known = self.target.boundary
        if known.prefix or known.suffix or not found.format.startswith("hobbylm"):
            return known
        from tokenreel.verify.hobbylm_tables import EOT

        return Boundary((EOT,), (), table=True)

    def _is_wrong(self, found: Found) -> bool:
        if any(not self.store.exists(file) for file in found.files):
            return True
        if found.format == "datatrove" and not self.store.exists(f"{found.name}.ds.metadata"):
            return True
        try:
            if next(iter(problems_of(self.target, found)), None) is not None:
                return True
            if found.format == "levanter":  # its chunks are only looked at when they are decoded
                shard = open_shard(self.store, found)
                ids_digest(shard)
                shard.close()
        except TokenreelError:
            return True
        return False

    def _tables_wrong(self, broken: set[str]) -> bool:
        """Return whether tables beside a stream's shards are wrong, or will be when its shards are mended."""
        if not self.target.streamed:
            return False
        has_tables = any(path.endswith(("_index.json", "_docs.jsonl")) for path in self.target.sizes)
        if self.tables_asked or (has_tables and broken):
            return True  # and a shard that is not whole cannot be held against them
        findings = Findings()
        for unit in self.target.shards:
            check_tables(self.target, unit, findings)
        return has_tables and bool(findings.total)

    def _without_head(self, saved: Saved) -> tuple[Saved, str]:
        """Leave out the first document of a file whose beginning was lost with the end of the file before."""
        edges = saved.edges
        if len(edges) < 2:
            return saved, ""
        lost = int(edges[1] - edges[0])
        prefix = self.target.boundary.prefix
        if prefix:
            reader = self.store.reader(saved.payload)
            width = np.dtype(saved.dtype).itemsize
            first = reader.array(saved.dtype, saved.begin + int(edges[0]) * width, min(lost, len(prefix)))
            reader.close()
            if tuple(first.tolist()) == prefix:
                return saved, ""
        said = f"its first {lost} ids left out: their document began in the file before, which was cut short"
        return replace(saved, edges=edges[1:]), said

    def _mend(self, found: Found, saved: Saved, headless: str) -> None:
        if saved.documents < 1:
            self.beyond.append(f"{found.name}: no whole document is left of it")
            return
        changes = (*saved.changes, *([headless] if headless else []))
        before = hashlib.sha256()
        if saved.format == "megatron-v1":
            self._write_pair(found, saved, before)
        else:
            self._write(found, saved, before)
        after = self._reread(found, saved)
        if before.hexdigest() != after:
            raise DocumentError("DOC024", path=self.shown, shard=found.name, expected=before.hexdigest(), found=after)
        tokens = int(saved.edges[-1] - saved.edges[0])
        self.mended.append(MendedShard(found.name, changes, saved.documents, tokens, saved.lost, after))

    def _runs(self, saved: Saved, before: Any) -> Iterator[tuple[Any, Any, int, int]]:
        """Yield (ids, lengths, first entry, end entry) of runs of whole entries, hashing the ids."""
        reader = self.store.reader(saved.payload)
        width = np.dtype(saved.dtype).itemsize
        edges = saved.edges
        at = 0
        try:
            while at + 1 < len(edges):
                end = max(at + 1, int(np.searchsorted(edges, edges[at] + STEP, side="right")) - 1)
                ids = reader.array(saved.dtype, saved.begin + int(edges[at]) * width, int(edges[end] - edges[at]))
                before.update(np.ascontiguousarray(ids).data.cast("B"))
                yield ids, np.diff(edges[at : end + 1]), at, end
                at = end
                self._tick(len(ids) * width, len(ids))
        finally:
            reader.close()

    def _write(self, found: Found, saved: Saved, before: Any) -> None:
        row = format_named(saved.format)
        kind = np.dtype(saved.dtype).name
        options = WriteOptions(kind, self.target.boundary, saved.options)
        writer = writing_of(row).open_writer(self.out, found.name, options)
        try:
            for ids, lengths, _, _ in self._runs(saved, before):
                writer.add_documents(ids, lengths)
            writer.finish()
        except BaseException:
            writer.abort()
            raise

    def _write_pair(self, found: Found, saved: Saved, before: Any) -> None:
        plain = saved.owners is None
        with MegatronWriter(self.out / found.name, saved.dtype, one_sequence_per_document=plain) as writer:
            if saved.owners is None:
                for ids, lengths, _, _ in self._runs(saved, before):
                    writer.add_documents(ids, lengths)
            else:
                first = np.concatenate(([0], np.cumsum(saved.owners)))
                by_document = replace(saved, edges=saved.edges[first])
                for ids, _, at, end in self._runs(by_document, before):
                    sizes = np.diff(saved.edges[first[at] : first[end] + 1])
                    writer.add_documents(ids, sizes, sequences=saved.owners[at:end])
            writer.finish()

    def _reread(self, found: Found, saved: Saved) -> str:
        """Return the SHA-256 of the ids that the shard holds now, read as any reader does."""
        from tokenreel.store import LocalStore

        store = LocalStore(self.out)
        row = format_named(saved.format)
        if saved.format != found.format and saved.format == "megatron-v1":
            found = Found(saved.format, found.name, (f"{found.name}.bin", f"{found.name}.idx"))
            saved = replace(saved, payload=found.files[0])
        payload = Path(saved.payload).suffix
        files = tuple(file for file in found.files if file.endswith(payload)) or (f"{found.name}{payload}",)
        more = tuple(entry.path for entry in store.list(found.name) if entry.path not in files)
        shard = open_shard(store, Found(row.name, found.name, (*files, *more)))
        digest = hashlib.sha256()
        try:
            for begin in range(0, shard.tokens, STEP):
                ids = shard.read(begin, min(shard.tokens, begin + STEP))
                digest.update(np.ascontiguousarray(ids).data.cast("B"))
        finally:
            shard.close()
        return digest.hexdigest()

    def _copy(self, found: Found) -> None:
        for file in found.files:
            place = self.out / file
            source = Path(self.store.root) / file
            before = sha256_file(source)
            if not self.place.stands(file, before):
                with atomic_write(place) as copy, source.open("rb") as original:
                    shutil.copyfileobj(original, copy, BLOCK)
                after = sha256_file(place)
                if before != after:
                    raise DocumentError("DOC024", path=self.shown, shard=file, expected=before, found=after)
                self.place.copied(file, after)
            self.hashes[file] = before
            self._tick(self.target.sizes.get(file, 0), 0)
        self.copied += 1

    def _fingerprint(self) -> str:
        """Return what tells one repair from another: the source's files by size and time, and what was asked for."""
        said = [os.path.realpath(self.store.root), self.target.only, self.target.split, self.wish.as_format, self.dtype]
        digest = hashlib.sha256(
            repr((*said, self.target.boundary, self.target.vocab)).encode("utf-8", "surrogateescape")
        )
        for file, size in self.target.sizes.items():
            time = (Path(self.store.root) / file).stat().st_mtime_ns
            digest.update(os.fsencode(f"{file} {size} {time}\n"))
        return digest.hexdigest()

    def _tick(self, count: int, tokens: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total, tokens)


def _as_asked(found: Found, as_format: str | None) -> Found:
    """Return a shard of ids without a header as what it is said to be: a pair or an OLMo file that lost its table."""
    if not found.format.startswith("raw-"):
        return found
    kind = found.format.removeprefix("raw-")
    if as_format and as_format.startswith("megatron"):
        return Found("megatron-v1", found.name, (f"{found.name}.bin", f"{found.name}.idx"))
    if (as_format and as_format.startswith("olmo")) or found.files[0].endswith(".npy"):
        return Found(f"olmo-{kind}", found.name, (f"{found.name}.npy", f"{found.name}.csv.gz"))
    return found
