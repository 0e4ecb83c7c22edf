"""Checking a replay index: its metadata, its files, its rows, and that its upstreams are still there.

What the index's own ``validate.py`` does (metadata totals, the exact set of files, their sizes, hashes of a sample,
public visibility, anonymous upstream revisions), and what its rows must obey besides.
"""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StorageError, TokenreelError
from tokenreel.replay import metadata as meta
from tokenreel.replay.rows_check import Examined, RowFacts, examine
from tokenreel.store.jsonio import loads_strict
from tokenreel.verify.finding import Finding, Findings
from tokenreel.verify.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tokenreel.replay.opening import Place

SAMPLED = 16
"""Files whose SHA-256 is taken at level quick."""
BESIDE = frozenset({".gitattributes", "README.md", "LICENSE", "LICENSE.md", "validate.py", ".gitignore"})
"""Files that may lie beside an index and are no part of it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a validation is asked to do."""

    full: bool = False
    """Hash and read every file; else a sample of them."""
    seed: int = 0
    online: bool = False
    """Ask the hub whether upstream revisions are there for anyone."""
    duplicates: bool | None = None
    """Look for ids that stand twice; None: at level full."""
    workers: int = 1
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


@dataclass(eq=False)
class _Run:
    place: Place
    asked: Asked
    findings: Findings
    checked: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def check(self, what: str, do: Callable[[], None]) -> None:
        """Make one check, and remember whether it found anything."""
        before = self.findings.total
        do()
        self.checked.append(what)
        if self.findings.total > before:
            self.failed.append(what)


def validate(
    place: Place, asked: Asked = Asked(), progress: Callable[[int, int | None, int], None] | None = None
) -> Report:
    """Return what is proved, wrong and not checked of an index; reads each byte at most once besides duplicates.

    Raises `StorageError` for what cannot be read at all.
    """
    run = _Run(place, asked, Findings(asked.select, asked.ignore))
    manifest, sources, mix = _metadata(run)
    facts: dict[str, Any] = {"documents": manifest.documents, "tasks": manifest.tasks} if manifest else {}
    if manifest is not None:
        chosen = _files(run, manifest)
        known = {source.source_id: source for source in sources.sources} if sources is not None else None
        _rows(run, manifest, known, chosen, facts, progress)
    _upstream(run, sources)
    if mix is not None:
        run.check("the mixture's buckets", lambda: _mix(run, mix))
    findings = run.findings
    return Report(
        place.name,
        "full" if asked.full else "quick",
        tuple(findings.kept),
        findings.counts,
        findings.severities,
        tuple(findings.not_checked),
        tuple(run.checked),
        facts,
        findings.ignored,
        failed=tuple(run.failed),
        selected=findings.select,
    )


# -- metadata ---------------------------------------------------------------------------------------------------------


def _metadata(run: _Run) -> tuple[meta.Manifest | None, meta.Sources | None, meta.Mix | None]:
    found: dict[str, Any] = {}

    def read() -> None:
        for name, parse in (
            (meta.MANIFEST, meta.parse_manifest),
            (meta.SOURCES, meta.parse_sources),
            (meta.MIX, meta.parse_mix),
        ):
            try:
                data = run.place.store.read(name)
            except StorageError as error:
                if error.code != "STO001":
                    raise
                run.findings.error("RPL010", path=name)
                continue
            try:
                found[f"{name} bytes"] = data
                found[name] = parse(loads_strict(data, name))
            except TokenreelError as error:
                run.findings.caught(error, run.place.store.root, path=name)

    run.check("manifest.json, sources.json and mix.json", read)
    manifest: meta.Manifest | None = found.get(meta.MANIFEST)
    if manifest is not None:
        run.check("totals of the manifest", lambda: _totals(run, manifest))
        run.check("numbers of the tasks", lambda: _tasks(run, manifest))
        if manifest.metadata:
            run.check("hashes of the metadata", lambda: _metadata_hashes(run, manifest, found))
    sources: meta.Sources | None = found.get(meta.SOURCES)
    if sources is not None:
        try:
            sources.named()
        except TokenreelError as error:
            run.findings.caught(error, run.place.store.root)
    return manifest, sources, found.get(meta.MIX)


def _totals(run: _Run, manifest: meta.Manifest) -> None:
    sums = {
        "documents of its files": sum(file.documents for file in manifest.files),
        "documents_by_source": sum(manifest.documents_by_source.values()),
        "documents_by_bucket": sum(manifest.documents_by_bucket.values()),
    }
    for name, total in sums.items():
        if total != manifest.documents:
            run.findings.error("RPL011", name, path=meta.MANIFEST, expected=manifest.documents, found=total)
    if manifest.tasks != len(manifest.files):
        run.findings.error("RPL011", "files", path=meta.MANIFEST, expected=manifest.tasks, found=len(manifest.files))


def _tasks(run: _Run, manifest: meta.Manifest) -> None:
    paths: dict[str, int] = {}
    for file in manifest.files:
        first = paths.setdefault(file.path, file.task_id)
        if first != file.task_id:
            message = f"{file.path} is that of two tasks"
            run.findings.error(
                "RPL022", message, path=meta.MANIFEST, expected=f"task {first}", found=f"task {file.task_id}"
            )
    numbers = sorted(file.task_id for file in manifest.files)
    for wanted, found in enumerate(numbers):
        if wanted != found:
            run.findings.error("RPL022", path=meta.MANIFEST, expected=f"task {wanted}", found=f"task {found}")
            return


def _metadata_hashes(run: _Run, manifest: meta.Manifest, found: dict[str, Any]) -> None:
    for name, wanted in manifest.metadata.items():
        data = found.get(f"{name} bytes")
        digest = hashlib.sha256(data).hexdigest() if data is not None else None
        if digest is not None and digest != wanted:
            run.findings.error("RPL015", path=name, expected=wanted, found=digest)


def _mix(run: _Run, mix: meta.Mix) -> None:
    from tokenreel.replay.buckets import BUCKETS

    for bucket in mix.tail:
        if not 0 <= bucket < BUCKETS:
            run.findings.error("RPL018", "the tail", path=meta.MIX, expected=f"0 .. {BUCKETS - 1}", found=bucket)


# -- files ------------------------------------------------------------------------------------------------------------


def _files(run: _Run, manifest: meta.Manifest) -> list[meta.IndexFile]:
    """Check set and sizes; return the files to read, those whose bytes are there."""
    there = _there(run, manifest)
    whole = [file for file in manifest.files if there.get(file.path) == file.bytes]
    chosen = whole
    if not run.asked.full and len(whole) > SAMPLED:
        chosen = sorted(random.Random(run.asked.seed).sample(whole, SAMPLED), key=lambda file: file.task_id)  # noqa: S311
        run.findings.skip(
            "hashes and rows of all files", f"{SAMPLED} of {len(whole):,} files were read", "--level full"
        )

    return chosen


def _there(run: _Run, manifest: meta.Manifest) -> dict[str, int]:
    """Return the sizes of the files that are there, and check the set and the sizes."""
    wanted = {file.path: file.bytes for file in manifest.files}
    sizes: dict[str, int] = {}

    def look() -> None:
        if run.place.listed:
            sizes.update({entry.path: entry.size for entry in run.place.store.list()})
            own = {*wanted, meta.MANIFEST, meta.SOURCES, meta.MIX}
            for path in sorted(set(sizes) - own):
                if path not in BESIDE and not path.startswith((".git/", ".cache/")):
                    run.findings.error("RPL013", path=path)
        else:
            run.findings.skip("that no other files are there", "a plain server cannot be asked for a listing")
            with ThreadPoolExecutor(8) as pool:
                asked = zip(wanted, pool.map(lambda one: _size(run, one), wanted), strict=True)
                sizes.update({path: size for path, size in asked if size is not None})
        for path, size in wanted.items():
            if path not in sizes:
                run.findings.error("RPL012", path=path)
            elif sizes[path] != size:
                run.findings.error("RPL014", path=path, expected=f"{size} bytes", found=f"{sizes[path]} bytes")

    run.check("the set of files and the size of each", look)
    return sizes


def _size(run: _Run, path: str) -> int | None:
    try:
        return run.place.store.size(path)
    except StorageError as error:
        if error.code not in ("STO001", "STO006"):
            raise
        return None


# -- rows -------------------------------------------------------------------------------------------------------------


def _rows(
    run: _Run,
    manifest: meta.Manifest,
    known: dict[str, meta.Source] | None,
    chosen: Sequence[meta.IndexFile],
    facts: dict[str, Any],
    progress: Callable[[int, int | None, int], None] | None,
) -> None:
    found, of = RowFacts(), f"{len(chosen):,} of {len(manifest.files):,} files"
    examined = list(_examined(run, known, chosen, progress)) if chosen else []

    def hashes() -> None:
        for file, one in zip(chosen, examined, strict=True):
            if one.sha256 != file.sha256:
                run.findings.error("RPL015", path=file.path, expected=file.sha256, found=one.sha256)

    def read() -> None:
        for one in examined:
            found.add(one.facts)
            run.findings.merge(one.findings)

    if chosen:
        run.check(f"SHA-256 of {of}", hashes)
        facts["bytes_hashed"] = sum(file.bytes for file in chosen)
        run.check(f"rows of {of}", read)
    facts["documents_read"] = found.rows
    # Of the files themselves: what is found may not be asked for.
    readable = not any({"RPL016", "RPL017"} & set(one.findings.counts) for one in examined)
    complete = len(chosen) == len(manifest.files) and readable
    if complete:
        run.check("documents by source and by bucket", lambda: _sums(run, manifest, found))
    else:
        run.findings.skip("documents by source and by bucket", "not every file was read", "--level full")
    look = run.asked.full if run.asked.duplicates is None else run.asked.duplicates
    if look and complete:
        from tokenreel.replay.duplicates import duplicates

        paths, threads = [file.path for file in chosen], max(1, run.asked.workers)
        facts["duplicates"] = duplicates(run.place.store, paths, manifest.documents, threads=threads).as_dict()
        twice = facts["duplicates"]["documents"]
        if twice:
            message = f"{twice:,} documents are there before, under {facts['duplicates']['ids']:,} ids"
            run.findings.add(Finding("RPL023", "information", message, path=meta.MANIFEST))
        run.checked.append("ids that stand twice")
    else:
        run.findings.skip(
            "ids that stand twice", "not every file was read" if look else "not asked for", "--level full"
        )


def _examined(
    run: _Run,
    known: dict[str, meta.Source] | None,
    chosen: Sequence[meta.IndexFile],
    progress: Callable[[int, int | None, int], None] | None,
) -> Iterator[Examined]:
    total, done = sum(file.bytes for file in chosen), 0
    with ThreadPoolExecutor(max(1, run.asked.workers)) as pool:
        jobs = pool.map(lambda file: examine(run.place.store, file, known), chosen)
        for file, one in zip(chosen, jobs, strict=True):
            yield one
            done += file.bytes
            if progress is not None:
                progress(done, total, 0)


def _sums(run: _Run, manifest: meta.Manifest, found: RowFacts) -> None:
    by_bucket = {str(bucket): count for bucket, count in found.by_bucket.items()}
    for name, wanted, counted in (
        ("documents_by_source", manifest.documents_by_source, dict(found.by_source)),
        ("documents_by_bucket", manifest.documents_by_bucket, by_bucket),
    ):
        for key in sorted({*wanted, *counted}):
            if wanted.get(key, 0) != counted.get(key, 0):
                run.findings.error(
                    "RPL020",
                    f"{name}: {key}",
                    path=meta.MANIFEST,
                    expected=wanted.get(key, 0),
                    found=counted.get(key, 0),
                )


# -- upstream ---------------------------------------------------------------------------------------------------------


def _upstream(run: _Run, sources: meta.Sources | None) -> None:
    if run.place.public is not None:

        def visible() -> None:
            if not run.place.public:
                run.findings.error("RPL025", path=run.place.name)

        run.check("that anyone can read it", visible)
    if sources is None:
        return
    hosted = [source for source in sources.sources if source.repository]
    if not run.asked.online:
        if hosted:
            run.findings.skip(f"upstream revisions of {len(hosted):,} sources", "offline", "--online")
        return
    run.check(f"upstream revisions of {len(hosted):,} sources", lambda: _revisions(run, hosted))


def _revisions(run: _Run, hosted: Iterable[meta.Source]) -> None:
    from tokenreel.store.hub_repository import open_repository

    for source in hosted:
        where = f"{source.repository}@{source.revision or 'main'}"
        try:
            found = open_repository(str(source.repository), source.revision or "main", anonymous=True, listed=False)
        except StorageError as error:
            if error.code == "STO020":
                _gated(run, source, where, str(error.found))
            elif error.code == "STO001":
                run.findings.error(
                    "RPL024", f"source {source.source_id}", path=meta.SOURCES, expected=where, found="none"
                )
            else:
                run.findings.skip(f"upstream of {source.source_id}", str(error), asked=True)
            continue
        if found.private or found.gated:
            _gated(run, source, where, "gated" if found.gated else "private")


def _gated(run: _Run, source: meta.Source, where: str, found: str) -> None:
    add = run.findings.warning if source.needs_authentication else run.findings.error
    add(
        "RPL025",
        f"source {source.source_id} needs terms",
        path=meta.SOURCES,
        expected=f"{where} for anyone",
        found=found,
    )
