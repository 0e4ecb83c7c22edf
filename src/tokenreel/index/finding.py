"""Documents by what people know them by: their number, their upstream id, or the id a build gave them."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tokenreel.errors import DocumentError, require

if TYPE_CHECKING:
    from tokenreel.corpus.corpus import Corpus

DOCUMENTS = "documents.parquet"


def find_documents(corpus: Corpus, wanted: str) -> list[int]:
    """Return the numbers of the documents that `wanted` names: a number, else an id of ``documents.parquet``.

    An id of 32 hex digits is the build's, anything else an upstream one; ``id:TEXT`` is never a number. Raises
    `DocumentError`: DOC001 for a number outside, DOC007 for an id that is not there or cannot be looked up.
    """
    if wanted.isdecimal():
        number = int(wanted)
        corpus.locate_document(number)
        return [number]
    text = wanted.removeprefix("id:")
    if not corpus.store.exists(DOCUMENTS):
        raise DocumentError(
            "DOC007", path=corpus.path, expected=f"a number, or a corpus with {DOCUMENTS}", found=wanted,
            hint="tokenreel order find RUN --doc 0",
        )  # fmt: skip
    found = sorted(_numbers(corpus, text))
    if not found:
        raise DocumentError("DOC007", path=f"{corpus.path}/{DOCUMENTS}", expected="a document's id", found=text)
    return found


def _numbers(corpus: Corpus, text: str) -> list[int]:
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    compute = require("pyarrow.compute", extra="build")
    starts = dict(
        zip(
            (entry.name for entry in corpus.entries),
            accumulate((entry.documents for entry in corpus.entries), initial=-corpus.lo),
            strict=False,
        )
    )
    hexadecimal = len(text) == 32 and all(digit in "0123456789abcdef" for digit in text)
    column, value = ("id", bytes.fromhex(text)) if hexadecimal else ("upstream_id", text)
    out = []
    with parquet.ParquetFile(_place(pa, corpus)) as file:
        for batch in file.iter_batches(columns=[column, "shard", "index"]):
            held = batch.column(column)
            rows = batch.filter(compute.equal(held, pa.scalar(value, held.type)))
            for row in rows.to_pylist():
                number = starts.get(row["shard"], len(corpus)) + row["index"]
                if 0 <= number < len(corpus):
                    out.append(number)
    return out


def _place(pa: Any, corpus: Corpus) -> Any:
    root = getattr(corpus.store, "root", None)
    return pa.BufferReader(corpus.store.read(DOCUMENTS)) if root is None else f"{root}/{DOCUMENTS}"
