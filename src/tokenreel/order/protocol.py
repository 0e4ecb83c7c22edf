"""What an order is: a pure function from sample index to extents, with a fingerprint and an inverse."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt

    from tokenreel.spans import CorpusKey, SpanTable

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Where documents occur: parallel arrays, one row per (sample, extent) that holds part of one."""

    document: I64
    sample: I64
    extent: I64
    """Extent within its sample."""
    begin: I64
    """First token, in the corpus's stream."""
    length: I64
    """Input tokens of that document in that extent."""


@dataclass(frozen=True, slots=True)
class Node:
    """One line of an order's description, with the lines below it."""

    text: str
    children: tuple[Node, ...] = ()

    def lines(self, depth: int = 0) -> Iterator[str]:
        """Yield the tree, two spaces a level.

        >>> print("\\n".join(Node("mix", (Node("web"), Node("code"))).lines()))
        mix
          web
          code
        """
        yield "  " * depth + self.text
        for child in self.children:
            yield from child.lines(depth + 1)


class Order(Protocol):
    """A pure function from sample index to extents, named and versioned; pure after `prepare`."""

    # Properties, so that frozen values and class constants are orders too.
    @property
    def name(self) -> str:
        """Name and version: ``megatron@1``."""
        ...

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """Keys of the corpora that extents name by number."""
        ...

    @property
    def children(self) -> tuple[Order, ...]:
        """The orders this one is made of."""
        ...

    @property
    def length(self) -> int | None:
        """Samples; None is endless."""
        ...

    @property
    def row_tokens(self) -> int:
        """Input tokens of a sample; 0 where they vary."""
        ...

    @property
    def row_ahead(self) -> int:
        """1 where samples carry a look-ahead, else 0."""
        ...

    @property
    def locate_cost(self) -> Literal["closed", "index", "scan"]:
        """What `locate` costs."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of name, parameters and corpora."""
        ...

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j); raises `OrderError` (ORD001) outside the order."""
        ...

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked, repeats included."""
        ...

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield (first sample, table) over [i, j) in the order's natural blocks."""
        ...

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return which component each sample belongs to, without making spans."""
        ...

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents of corpus number `corpus` occur among samples [lo, hi)."""
        ...

    def prepare(self, cache: object = None) -> Order:
        """Return the order ready for use; the only step that may be slow or write index files."""
        ...

    def fingerprint_until(self, i: int) -> str:
        """Return a hash that equals another order's where both give the same samples [0, i)."""
        ...

    def describe(self) -> Node:
        """Return the order as a tree of lines."""
        ...


def fingerprint(name: str, parameters: Mapping[str, object], keys: tuple[CorpusKey, ...]) -> str:
    """Return SHA-256 in hex over an order's name, canonical parameters and corpus keys; floats enter as hex.

    >>> fingerprint("stream@1", {"row_tokens": 4}, ())[:12]
    '497dd86debca'
    """
    body = {
        "keys": [key.as_list() for key in keys],
        "name": name,
        "parameters": {key: _canonical(parameters[key]) for key in sorted(parameters)},
    }
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value)}
    return value
