"""What is wrong in one batch of ids, as findings: where it stands, what was expected, and the first few of each code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.verify.boundaries import Trouble, check_batch
from tokenreel.verify.finding import KEPT, Finding, Findings
from tokenreel.verify.streamed import StreamUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.formats import Boundary, Shard
    from tokenreel.verify.stream import Read
    from tokenreel.verify.target import Target

    Ids = npt.NDArray[np.integer[Any]]

MEANING = {
    "TOK020": "id {found} is not below the vocabulary",
    "TOK021": "the document does not end with its suffix",
    "TOK022": "the suffix stands inside the document",
    "TOK023": "the document does not begin with its prefix",
    "TOK024": "the prefix stands inside the document",
}


def report(
    target: Target,
    read: Read,
    findings: Findings,
    shard: Shard,
    at: tuple[int, int],
    ids: Ids,
    lengths: npt.NDArray[np.int64],
) -> None:
    """Add the findings of one batch that begins at (document, token) of the shard."""
    first, begin = at
    boundary, vocab = target.read_boundary(shard), vocab_of(target, shard)
    for trouble in _troubles(findings, shard, (first, begin), check_batch(ids, lengths, boundary, vocab)):
        if trouble.code == "TOK022" and shard.name in target.excused:
            read.inside[shard.name] += len(trouble.tokens)
            continue
        if trouble.code == "TOK021":
            lengths_there = lengths[trouble.documents]
            lasts = ids[trouble.tokens] if len(ids) else np.empty(0, np.int64)
            values, counts = np.unique(lasts[lengths_there > 0] if len(ids) else lasts, return_counts=True)
            read.lacking.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        shown = min(KEPT, len(trouble.tokens))
        for k in range(shown):
            path, offset = shard.byte_at(min(begin + int(trouble.tokens[k]), max(0, shard.tokens - 1)))
            value = trouble.found[k]
            findings.add(
                Finding(
                    trouble.code,
                    "error",
                    MEANING[trouble.code].format(found=value),
                    path,
                    offset,
                    _name_at(shard, begin + int(trouble.tokens[k])),
                    first + int(trouble.documents[k]),
                    _expected(trouble.code, boundary, vocab),
                    "an empty document" if value < 0 and trouble.code != "TOK020" else value,
                ),
                # The last one kept stands for those that are not shown.
                1 if k < shown - 1 else len(trouble.tokens) - k,
            )


def _troubles(findings: Findings, shard: Shard, at: tuple[int, int], found: list[Trouble]) -> Iterator[Trouble]:
    """Yield what is wrong; where a stream begins or ends inside a document is said apart."""
    for trouble in found:
        one = trouble
        if isinstance(shard, StreamUnit) and not shard.boundary.table:
            one = _fragments(findings, shard, *at, trouble)
        if len(one.tokens):
            yield one


def _fragments(findings: Findings, unit: StreamUnit, first: int, begin: int, trouble: Trouble) -> Trouble:
    """Say where a stream begins or ends inside a document, and return what else is wrong: some of many shards look so."""
    at_edge = {"TOK023": 0, "TOK021": unit.documents - 1}.get(trouble.code)
    edge = trouble.documents + first == at_edge
    if at_edge is None or not bool(edge.any()):
        return trouble
    token = begin + int(trouble.tokens[edge.argmax()])
    path, offset = unit.byte_at(min(token, max(0, unit.tokens - 1)))
    side, what = ("begins", "prefix") if trouble.code == "TOK023" else ("ends", "suffix")
    findings.warning(
        "TOK027",
        f"the stream {side} inside a document, which has no {what} here",
        path=path,
        offset=offset,
        shard=_name_at(unit, token),
        document=at_edge,
    )
    rest = ~edge
    return Trouble(trouble.code, trouble.tokens[rest], trouble.documents[rest], trouble.found)


def beyond(ids: Ids, highest: int | None, vocab: int | None) -> bool:
    """Return whether an id is negative, or not below the vocabulary."""
    if highest is None:
        return False
    return (vocab is not None and highest >= vocab) or (ids.dtype.kind == "i" and int(ids.min()) < 0)


def vocab_of(target: Target, shard: Shard) -> int | None:
    """Return what ids are below: as given or recorded, else as the shard's own header says."""
    said: int | None = getattr(shard, "vocab", None)
    return target.vocab if said is None else said if target.vocab is None else min(said, target.vocab)


def _name_at(shard: Shard, token: int) -> str:
    return shard.shard_at(token)[0] if isinstance(shard, StreamUnit) else shard.name


def _expected(code: str, boundary: Boundary, vocab: int | None) -> str:
    if code == "TOK020":
        return "0 <= id" if vocab is None else f"0 <= id < {vocab}"
    side, name = (boundary.suffix, "suffix") if code in ("TOK021", "TOK022") else (boundary.prefix, "prefix")
    ids = " ".join(map(str, side))
    if code in ("TOK022", "TOK024"):
        return f"{name} {ids} only at the {'end' if name == 'suffix' else 'beginning'}"
    return f"{name} {ids}"
