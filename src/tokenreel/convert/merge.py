"""Merge corpora into one pair: a checked operation, documents in == documents out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.corpus.opening import open_corpus
from tokenreel.errors import UsageError
from tokenreel.formats.megatron_merge import merge

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence

    from tokenreel.formats import WrittenFile


def merge_corpora(
    sources: Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    accept: Collection[str] = (),
) -> tuple[WrittenFile, ...]:
    """Write the documents of all sources, in the order given, as the pair `destination`; returns its files.

    A source is a pair, or a folder of pairs (its shards in byte order); a root with splits is refused (SPL001). Raises
    what `formats.megatron_merge.merge` raises, and `UsageError` (USE005) for a destination that is one of the sources.
    """
    target = Path(destination)
    prefix = target.with_suffix("") if target.suffix in {".bin", ".idx"} else target
    names: list[Path] = []
    for source in sources:
        corpus = open_corpus(source, accept=accept)
        corpus.shard_tokens  # noqa: B018 (refuses a root with splits)
        names += [Path(corpus.store.root) / entry.name for entry in corpus.entries]
        corpus.close()
    if prefix.resolve() in {name.resolve() for name in names}:
        raise UsageError("USE005", path=prefix, hint="tokenreel merge SRC... NEW")
    return merge(names, prefix, dtype=dtype, accept=accept)
