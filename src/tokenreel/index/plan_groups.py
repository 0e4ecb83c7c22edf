"""What documents belong to besides themselves: sources and groups, from ``documents.parquet``, the shards, or tables beside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.documents import DOCUMENTS, runs_by_shard
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.errors import UsageError, require
from tokenreel.formats.writing import FactsShard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats.writing import DocumentFacts
    from tokenreel.pack.plan_sizes import Sizes

    Codes = tuple[npt.NDArray[np.int64], list[str]]

READ = 1 << 16
_NUMBER = re.compile(r"[_-]?\d+$")


def sources_of(corpus: Corpus, sizes: Sizes) -> Codes:
    """Return the number of each document's source, and the sources' names.

    A built corpus says them in ``documents.parquet``; else shards whose names differ in their number alone are one source.
    """
    said = _parquet(corpus, "source")
    if said is not None:
        return _coded(said)
    edges = np.cumsum(corpus.shard_tokens) - corpus.first_token
    begins = sizes.offsets_at(np.arange(sizes.documents, dtype=np.int64))
    shard = np.minimum(np.searchsorted(edges, begins, side="right"), max(0, len(edges) - 1))
    families = [_NUMBER.sub("", entry.name) for entry in corpus.entries]
    names = list(dict.fromkeys(families)) or [corpus.path]
    of_shard = np.array([names.index(family) for family in families] or [0], dtype=np.int64)
    return of_shard[shard], names


def groups_of(corpus: Corpus, key: str) -> Codes:
    """Return the number of each document's group, by a key of its metadata; a document without it is one group.

    Raises `UsageError` (USE003) where no document has the key.
    """
    values = metadata_values(corpus, key)
    if all(value is None for value in values):
        expected = "source, or a key of the documents' metadata"
        raise UsageError("USE003", key, expected=expected, found="no document has it", path=corpus.path)
    return _coded(values)


def metadata_values(corpus: Corpus, key: str) -> list[Any]:
    """Return a key of every document's metadata, None where a document has none. About 2 us a document."""
    texts = _parquet(corpus, "metadata")
    if texts is None:
        texts = [fact.metadata for fact in _facts(corpus)] or [None] * len(corpus)
    return [None if text is None else json.loads(text).get(key) for text in texts]


def _coded(values: Sequence[Any]) -> Codes:
    """Number values as they come; None is a value of its own every time."""
    numbers: dict[str, int] = {}
    codes = np.empty(len(values), dtype=np.int64)
    names: list[str] = []
    for k, value in enumerate(values):
        word = f"\0{k}" if value is None else str(value)
        codes[k] = numbers.setdefault(word, len(numbers))
        if codes[k] == len(names):
            names.append(f"document {k}" if value is None else word)
    return codes, names


def _facts(corpus: Corpus) -> Iterator[DocumentFacts]:
    """Yield what shards, or the tables beside them, say of each document; nothing where they say nothing."""
    if isinstance(corpus, StreamCorpus):
        held = corpus.facts()
        if held is not None:
            for low in range(corpus.lo, corpus.lo + len(corpus), READ):
                yield from held.facts(low, min(corpus.lo + len(corpus), low + READ))
        return
    for number, first, last in corpus.parts():
        shard = corpus.shard(number)
        if not isinstance(shard, FactsShard):
            return
        for low in range(first, last, READ):
            yield from shard.facts(low, min(last, low + READ))


def _parquet(corpus: Corpus, column: str) -> list[Any] | None:
    """Return a column of ``documents.parquet`` in the corpus's order; None where there is no such file of this corpus."""
    path = Path(corpus.store.root) / DOCUMENTS
    if isinstance(corpus, StreamCorpus) or not path.is_file():
        return None
    parquet = require("pyarrow.parquet", extra="build")
    by_shard: dict[str, list[Any]] = {entry.name: [] for entry in corpus.entries}
    with parquet.ParquetFile(path) as file:
        if not {"shard", column} <= set(file.schema_arrow.names):
            return None
        for batch in file.iter_batches(batch_size=READ, columns=["shard", column]):
            for shard, rows in runs_by_shard(batch):
                if shard in by_shard:
                    by_shard[shard] += rows.column(column).to_pylist()
    if any(len(by_shard[entry.name]) != entry.documents for entry in corpus.entries):
        return None
    values = [value for entry in corpus.entries for value in by_shard[entry.name]]
    return values[corpus.lo : corpus.hi]
