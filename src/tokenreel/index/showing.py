"""Orders, samples and steps as plain data, to be printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import OrderError, UsageError
from tokenreel.index.samples import samples_of
from tokenreel.index.segments import step_range
from tokenreel.spans import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenreel.config.run import Segment
    from tokenreel.index.assemble import Assembled
    from tokenreel.spans import SpanTable


def order_facts(number: int, segment: Segment, made: Assembled) -> dict[str, Any]:
    """Return what a segment and its order are; what is not known until it is prepared is None."""
    order = made.order
    digest, samples = _known(lambda: order.fingerprint), _known(lambda: order.length)
    return {
        "segment": number,
        "first_step": segment.first,
        "last_step": segment.last,
        "first_sample": segment.first_sample,
        "evidence": segment.evidence,
        "source": segment.source,
        "doubt": segment.doubt,
        "order": order.name,
        "samples": samples,
        "row_tokens": order.row_tokens,
        "row_ahead": order.row_ahead,
        "locate": order.locate_cost,
        "fingerprint": digest,
        "corpora": [
            {"name": name, "key": key.kind, "digest": key.digest, "units": key.documents, "tokens": key.tokens}
            for name, key in zip(made.names, order.corpora, strict=True)
        ],
        "tree": list(order.describe().lines()),
    }


def _known(ask: Callable[[], Any]) -> Any:
    """Return what an order says of itself, None where that is not known before it is prepared."""
    try:
        return ask()
    except OrderError:
        return None


def sample_facts(made: Assembled, number: int, tokenizer: Path | None, *, decode: bool) -> dict[str, Any]:
    """Return one sample of a prepared order: extents, ids, and its text where `decode`.

    Extents lie inside documents where the boundaries of all corpora are known, else their document is -1.
    """
    plain = made.order.spans(number, number + 1)
    (ids,) = samples_of(made, plain)
    known = all(corpus.boundary.known for corpus in made.corpora)
    facts: dict[str, Any] = {
        "number": number,
        "component": int(made.order.components_at([number])[0]),
        "tokens": len(ids.inputs),
        "extents": _extents(made, made.resolved(plain) if known else plain),
        "input_ids": ids.inputs.tolist(),
        "label": ids.label,
        "digest": ids.digest().hex(),
    }
    if decode:
        facts["text"] = tokenizer_of(made, tokenizer).decode(ids.inputs)
    return facts


def tokenizer_of(made: Assembled, given: Path | None) -> Any:
    """Return the tokenizer given, else the one that lies in a corpus; raises `UsageError` (USE003)."""
    from tokenreel.text import load_tokenizer, tokenizer_from_bytes

    if given is not None:
        return load_tokenizer(str(given))
    inside = "tokenizer/tokenizer.json"
    for corpus in made.corpora:
        if corpus.store.exists(inside):
            return tokenizer_from_bytes(corpus.store.read(inside), name=inside, path=Path(inside))
    raise UsageError("USE003", "--decode", expected="--tokenizer FILE", found="no tokenizer in the corpora")


def _extents(made: Assembled, table: SpanTable) -> list[dict[str, Any]]:
    out = []
    for e in range(table.extents):
        flags = Flag(int(table.flags[e]))
        out.append(
            {
                "corpus": made.names[int(table.corpus[e])],
                "begin": int(table.begin[e]),
                "length": int(table.length[e]),
                "document": int(table.document[e]),
                "start": int(table.start[e]),
                "flags": [flag.name for flag in Flag if flag in flags],
            }
        )
    return out


def step_facts(segment: Segment, made: Assembled, step: int) -> dict[str, Any]:
    """Return the samples that a step of a segment consumes, one line each."""
    lo, hi = step_range(segment, step)
    table = made.order.spans(lo, hi)
    components = made.order.components_at(range(lo, hi)).tolist()
    rows = []
    for k, component in enumerate(components):
        extents = range(int(table.splits[k]), int(table.splits[k + 1]))
        names = dict.fromkeys(made.names[int(table.corpus[e])] for e in extents)
        tokens = sum(int(table.length[e]) for e in extents)
        rows.append(
            {
                "sample": lo + k,
                "component": component,
                "corpora": list(names),
                "extents": len(extents),
                "tokens": tokens,
            }
        )
    return {"number": step, "first": lo, "end": hi, "samples": rows}


def quality_facts(segment: Segment, made: Assembled, samples: int) -> dict[str, Any]:
    """Return how well a prepared order is shuffled over its next `samples` samples."""
    from tokenreel.order.quality import shuffle_quality

    first = segment.first_sample or 0
    count = samples if made.order.length is None else min(samples, max(0, made.order.length - first))
    itemsize = max(corpus.dtype.itemsize for corpus in made.corpora)
    return shuffle_quality(made.order, first, count, itemsize=itemsize).as_dict()
