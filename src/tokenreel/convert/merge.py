"""Merge corpora into one: a checked operation, documents in == documents out."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.convert.conversion import Wish, convert_many
from tokenreel.convert.lock import hold_name
from tokenreel.convert.place import refuse_records, refuse_twice
from tokenreel.convert.planning import Cut
from tokenreel.corpus.opening import open_corpus
from tokenreel.errors import EXIT_OK, UsageError
from tokenreel.formats.megatron import open_pair
from tokenreel.formats.megatron_merge import merge as merge_pairs
from tokenreel.store import LocalStore
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tokenreel.convert.conversion import Progress
    from tokenreel.convert.report import Converted
    from tokenreel.formats import Boundary, WrittenFile


@dataclass(frozen=True, slots=True)
class Merged:
    """What was merged, counted in the sources, and what stands in the result, counted in its own tables."""

    files: tuple[WrittenFile, ...]
    sources: int
    documents_in: int
    documents_out: int
    tokens_out: int

    @property
    def exit_status(self) -> int:
        """0: what goes wrong is an error."""
        return EXIT_OK

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "sources": self.sources,
            "documents_in": self.documents_in,
            "documents_out": self.documents_out,
            "tokens": self.tokens_out,
            "files": [{"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in self.files],
        }

    def lines(self) -> list[str]:
        """Return the form for people."""
        first = f"{counted(self.documents_in, 'document')} in = {self.documents_out:,} out, {counted(self.tokens_out, 'token')}"
        return [first, *(f"{file.sha256}  {file.path}  {file.bytes:,} bytes" for file in self.files)]


def merge(  # noqa: PLR0913 (the options of the command)
    sources: Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    to: str | None = None,
    tokens_per_shard: int | None = None,
    dtype: str | None = None,
    from_dtype: str | None = None,
    boundary: Boundary | str | None = None,
    to_boundary: Boundary | str | None = None,
    workers: int | None = None,
    proof: bool = True,
    force: bool = False,
    accept: Collection[str] = (),
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Merged | Converted:
    """Write the documents of all sources, in the order given, as one corpus.

    Without `to`, sources are Megatron pairs and the result is one pair: see `merge_corpora`. With it they are corpora of any
    format, of one boundary, and the result is a new folder with one shard, or several by `tokens_per_shard`: `convert` of
    them all, which raises what `convert` raises.
    """
    if to is None:
        refused = {
            "--tokens-per-shard": tokens_per_shard,
            "--boundary": boundary,
            "--to-boundary": to_boundary,
            "--from-dtype": from_dtype,
        }
        for name, value in refused.items():
            if value is not None:
                raise UsageError("USE003", f"{name} goes with --to", expected="--to FORMAT", hint="--to megatron-v1")
        return merge_corpora(sources, destination, dtype=dtype, accept=accept, force=force)
    if force:
        raise UsageError("USE003", "--force goes without --to", expected="a new folder", found=str(destination))
    wish = Wish(
        to=to,
        dtype=dtype,
        boundary=boundary,
        to_boundary=to_boundary,
        from_dtype=from_dtype,
        cut=Cut(tokens_per_shard or 1 << 62),
        workers=workers,
        proof=proof,
        accept=tuple(accept),
        options=options or {},
        progress=progress,
    )
    return convert_many(sources, destination, wish)


def merge_corpora(
    sources: Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    accept: Collection[str] = (),
    force: bool = False,
) -> Merged:
    """Write the documents of all sources, in the order given, as the pair `destination`; returns counts and files.

    A source is a pair, or a folder of pairs (its shards in byte order); a root with splits is refused (SPL001). Raises
    what `formats.megatron_merge.merge` raises, and `UsageError`: USE005 for a destination that is one of the sources, or in one,
    USE011 for one that exists (`force` writes over it), USE012 for one inside a corpus that records its files, USE018 for a
    shard that is in two sources (`accept` overrules); `StorageError` (STO007) while another command writes this pair.
    """
    target = Path(destination)
    prefix = target.with_suffix("") if target.suffix in {".bin", ".idx"} else target
    corpora = []
    documents = 0
    for source in sources:
        corpus = open_corpus(source, accept=accept)
        corpus.shard_tokens  # noqa: B018 (refuses a root with splits)
        corpora.append(corpus)
        documents += sum(entry.documents for entry in corpus.entries)
        corpus.close()
    refuse_twice(corpora, accept)
    names = [Path(corpus.store.root) / entry.name for corpus in corpora for entry in corpus.entries]
    place = Path(os.path.realpath(prefix))
    folders = {Path(os.path.realpath(source)) for source in sources if Path(source).is_dir()}
    # A shard more in a folder that was merged would count everything twice.
    if folders & set(place.parents) or _is_one_of(prefix, names):
        raise UsageError("USE005", path=prefix, hint="tokenreel merge SRC... NEW")
    refuse_records(place, prefix, "merge")
    with hold_name(prefix):
        _refuse_existing(prefix, force)
        files = merge_pairs(names, prefix, dtype=dtype, accept=accept)
        made = open_pair(LocalStore(prefix.parent), prefix.name)
        counts = made.documents, made.tokens
        made.close()
    return Merged(files, len(sources), documents, *counts)


def _is_one_of(prefix: Path, names: Sequence[Path]) -> bool:
    """Return whether a pair would be written over one that is read, under this name or another, or through a link."""
    if os.path.realpath(prefix) in {os.path.realpath(name) for name in names}:
        return True
    for suffix in (".bin", ".idx"):
        mine = prefix.with_name(prefix.name + suffix)
        if mine.exists() and any(mine.samefile(name.with_name(name.name + suffix)) for name in names):
            return True
    return False


def _refuse_existing(prefix: Path, force: bool) -> None:
    for suffix in (".bin", ".idx"):
        there = prefix.with_name(prefix.name + suffix)
        if os.path.lexists(there) and not force:
            raise UsageError("USE011", path=there, hint=f"ls -l {shlex.quote(str(there))}; tokenreel merge --force ...")
