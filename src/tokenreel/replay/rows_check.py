"""What the rows of one file of a replay index must obey."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokenreel.errors import ReplayError
from tokenreel.replay.buckets import BUCKETS
from tokenreel.replay.files import Rows, read_batches, rows_of
from tokenreel.verify.finding import Findings

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from tokenreel.replay.metadata import IndexFile, Source
    from tokenreel.store import Store

RISING = 8
"""Rows a run of rising ids has at least, on average, where a normaliser wrote them; by chance it has 2."""
FEW = 64
"""Rows of a source below which nothing is said of its runs."""


@dataclass(eq=False)
class RowFacts:
    """What rows add up to."""

    rows: int = 0
    by_source: Counter[str] = field(default_factory=Counter)
    by_bucket: Counter[int] = field(default_factory=Counter)

    def add(self, other: RowFacts) -> None:
        """Add another file's."""
        self.rows += other.rows
        self.by_source.update(other.by_source)
        self.by_bucket.update(other.by_bucket)


def check_rows(store: Store, file: IndexFile, known: Mapping[str, Source] | None) -> tuple[RowFacts, Findings]:
    """Return a file's counts and what is wrong with its rows; `known` are the sources described, by id.

    Rising ids are expected of sources that say how they were normalised: that step sorts its shards.
    """
    import numpy as np

    findings, facts = Findings(), RowFacts()
    runs, last = Counter[str](), dict[str, tuple[int, int]]()
    try:
        for batch in read_batches(store, file.path):
            rows = rows_of(batch, file.path, facts.rows)
            if not len(rows):
                continue
            counts = np.bincount(rows.source, minlength=len(rows.sources)).tolist()
            facts.by_source.update({name: n for name, n in zip(rows.sources, counts, strict=True) if n})
            buckets, numbers = np.unique(rows.bucket, return_counts=True)
            facts.by_bucket.update(dict(zip(buckets.tolist(), numbers.tolist(), strict=True)))
            _buckets(findings, file, rows, facts.rows)
            _count_runs(rows, runs, last)
            facts.rows += len(rows)
    except ReplayError as error:
        findings.caught(error, store.root, path=file.path)
        return facts, findings
    if facts.rows != file.documents:
        findings.error("RPL026", path=file.path, expected=file.documents, found=facts.rows)
    if known is not None:
        for name in sorted(set(facts.by_source) - set(known)):
            findings.error("RPL019", path=file.path, expected="a source of sources.json", found=name)
    for name, count in facts.by_source.items():
        if known is None or name not in known or not known[name].normalize_config:
            continue
        if count >= FEW and count < RISING * runs[name]:
            message = f"source {name}: {count:,} rows in {runs[name]:,} runs of rising ids"
            findings.warning(
                "RPL021", message, path=file.path, expected=f"at most {count // RISING:,}", found=runs[name]
            )
    return facts, findings


def _buckets(findings: Findings, file: IndexFile, rows: Rows, first: int) -> None:
    wrong = (rows.bucket < 0) | (rows.bucket >= BUCKETS)
    if bool(wrong.any()):
        row = int(wrong.argmax())
        found = int(rows.bucket[row])
        findings.error("RPL018", path=file.path, document=first + row, expected=f"0 .. {BUCKETS - 1}", found=found)


def _count_runs(rows: Rows, runs: Counter[str], last: dict[str, tuple[int, int]]) -> None:
    """Count runs of rising ids by source; `last` is each source's last id so far."""
    for number, name in enumerate(rows.sources):
        ids = rows.ids[rows.source == number]
        if not len(ids):
            continue
        falls = int(_falls(ids).sum())
        begin = (int(ids[0, 0]), int(ids[0, 1]))
        runs[name] += falls + int(name not in last or begin < last[name])
        last[name] = (int(ids[-1, 0]), int(ids[-1, 1]))


def _falls(ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    high, low = ids[:, 0], ids[:, 1]
    fall: npt.NDArray[np.bool_] = (high[1:] < high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] < low[:-1]))
    return fall
