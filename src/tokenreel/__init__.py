"""tokenreel: build, verify, convert, mix, pack, stream and replay tokenised pretraining corpora, exact to the token.

The names below are loaded when first used: importing the package loads no numpy, and no framework.

>>> import tokenreel
>>> tokenreel.explain("DOC002").title
'boundaries are unknown'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tokenreel.errors import (
    DataError,
    DocumentError,
    FormatError,
    IncompleteError,
    ManifestError,
    MissingExtra,
    OrderError,
    RecipeError,
    SourceError,
    SplitError,
    StateError,
    StorageError,
    TokenError,
    TokenizerError,
    TokenreelError,
    UsageError,
    explain,
)

if TYPE_CHECKING:
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.corpus.opening import open_corpus as open  # noqa: A004
    from tokenreel.feed.batch import Batch
    from tokenreel.feed.feed import Feed
    from tokenreel.feed.opening import open_feed
    from tokenreel.formats.base import Boundary
    from tokenreel.hashing import Identity, IdentityHasher
    from tokenreel.order.protocol import Hits, Order
    from tokenreel.order.stream import StreamOrder
    from tokenreel.pack.policy import RowPolicy
    from tokenreel.spans import CorpusKey, DocTable, Flag, SpanTable

__version__ = "0.1.0"

_LAZY = {
    "Batch": ("tokenreel.feed.batch", "Batch"),
    "Boundary": ("tokenreel.formats.base", "Boundary"),
    "Corpus": ("tokenreel.corpus.corpus", "Corpus"),
    "CorpusKey": ("tokenreel.spans", "CorpusKey"),
    "DocTable": ("tokenreel.spans", "DocTable"),
    "Feed": ("tokenreel.feed.feed", "Feed"),
    "Flag": ("tokenreel.spans", "Flag"),
    "Hits": ("tokenreel.order.protocol", "Hits"),
    "Identity": ("tokenreel.hashing", "Identity"),
    "IdentityHasher": ("tokenreel.hashing", "IdentityHasher"),
    "Order": ("tokenreel.order.protocol", "Order"),
    "RowPolicy": ("tokenreel.pack.policy", "RowPolicy"),
    "SpanTable": ("tokenreel.spans", "SpanTable"),
    "StreamOrder": ("tokenreel.order.stream", "StreamOrder"),
    "open": ("tokenreel.corpus.opening", "open_corpus"),
    "open_feed": ("tokenreel.feed.opening", "open_feed"),
}

__all__ = [
    "Batch",
    "Boundary",
    "Corpus",
    "CorpusKey",
    "DataError",
    "DocTable",
    "DocumentError",
    "Feed",
    "Flag",
    "FormatError",
    "Hits",
    "Identity",
    "IdentityHasher",
    "IncompleteError",
    "ManifestError",
    "MissingExtra",
    "Order",
    "OrderError",
    "RecipeError",
    "RowPolicy",
    "SourceError",
    "SpanTable",
    "SplitError",
    "StateError",
    "StorageError",
    "StreamOrder",
    "TokenError",
    "TokenizerError",
    "TokenreelError",
    "UsageError",
    "__version__",
    "explain",
    "open",
    "open_feed",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module, attribute = _LAZY[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
