"""Where documents occur in a segment's order: `Order.locate`, with names, steps and ids put to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.errors import UsageError, nearest
from tokenreel.index.finding import find_documents
from tokenreel.index.segments import step_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenreel.config.run import Segment
    from tokenreel.index.assemble import Assembled


def find_in_order(
    made: Assembled, segment: Segment, wanted: Sequence[str], corpus: str | None, lo: int, hi: int
) -> Iterator[dict[str, Any]]:
    """Yield where documents occur among samples [lo, hi) of a prepared order, by corpus and document as asked.

    `wanted` are numbers or ids (see `find_documents`). A corpus that the order reads in several components is searched in
    each. Raises `UsageError` (USE003) where `corpus` is needed or not among those read, and what finding raises.
    """
    names = list(dict.fromkeys(made.names))
    if corpus is None and len(names) > 1:
        hint = f"--corpus {names[0]}"
        raise UsageError("USE003", "--corpus", expected=f"one of: {', '.join(names)}", found="none", hint=hint)
    name = corpus or names[0]
    if name not in names:
        near = nearest(name, names)
        nearby = f"--corpus {near}" if near else None
        raise UsageError("USE003", "--corpus", expected=f"one of: {', '.join(names)}", found=name, hint=nearby)
    numbers = [k for k, one in enumerate(made.names) if one == name]
    documents = [number for text in wanted for number in find_documents(made.corpora[numbers[0]], text)]
    for number in numbers:
        hits = made.order.locate(number, documents, lo, hi)
        for document, sample, extent, begin, length in zip(
            hits.document.tolist(),
            hits.sample.tolist(),
            hits.extent.tolist(),
            hits.begin.tolist(),
            hits.length.tolist(),
            strict=True,
        ):
            yield {
                "step": step_of(segment, sample),
                "sample": sample,
                "extent": extent,
                "corpus": name,
                "document": document,
                "begin": begin,
                "length": length,
            }
