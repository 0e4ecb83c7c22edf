"""Batches of text as Arrow strings: checked UTF-8, no nulls, one chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokenreel.errors import TokenizerError, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

Texts: TypeAlias = Any
"""A pyarrow string array (any of its kinds, chunked or not) or a sequence of `str`."""


def text_array(texts: Texts, first_document: int = 0, *, checked: bool = False) -> Any:
    """Return `texts` as one ``pyarrow.LargeStringArray`` of valid UTF-8 without nulls.

    No copy for a ``LargeStringArray`` of one chunk; the validity check costs about 0.2 ms a MB, and is left out where
    the caller `checked`. Raises `TokenizerError` (TKZ005) for a null, a lone surrogate or bytes that are not UTF-8, naming the document
    (`first_document` is the number of the first one).
    """
    pa = require("pyarrow", extra="build")
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
        if isinstance(texts, pa.ChunkedArray):
            texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], texts.type)
    if not isinstance(texts, pa.Array):
        texts = _from_strings(texts, first_document)
    if texts.null_count:
        raise _not_text("null in place of a text", first_document + int(np.argmax(texts.is_null())))
    texts = _as_large_strings(texts, first_document)
    try:
        texts.validate(full=not checked)
    except pa.ArrowInvalid:
        raise _first_invalid(texts, first_document) from None
    return texts


def text_bytes(texts: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the UTF-8 of a ``LargeStringArray`` end to end, and the ``n + 1`` offsets into it; no copy of the text."""
    offsets_buffer, data = texts.buffers()[1:]
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(offsets_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    blob = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return blob[offsets[0] : offsets[-1]], offsets - offsets[0]


def _from_strings(texts: Sequence[str], first_document: int) -> Any:
    import pyarrow as pa

    texts = list(texts)
    try:
        return pa.array(texts, pa.large_string())
    except (UnicodeEncodeError, pa.ArrowException):
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise _not_text(f"{type(text).__name__} in place of a text", first_document + number) from None
            try:
                text.encode()
            except UnicodeEncodeError as error:
                at = len(text[: error.start].encode())
                message = f"lone surrogate U+{ord(text[error.start]):04X}"
                raise _not_text(message, first_document + number, at) from None
        raise


def _as_large_strings(texts: Any, first_document: int) -> Any:
    import pyarrow as pa

    kind = texts.type
    if kind == pa.large_string():
        return texts
    if pa.types.is_dictionary(kind):
        return _as_large_strings(texts.dictionary_decode(), first_document)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return texts.cast(pa.large_binary()).view(pa.large_string())  # validated as UTF-8 by the caller
    if not (pa.types.is_string(kind) or pa.types.is_string_view(kind)):
        raise _not_text(f"{kind} in place of text", first_document)
    return texts.cast(pa.large_string())


def _first_invalid(texts: Any, first_document: int) -> TokenizerError:
    blob, offsets = text_bytes(texts)
    for number in range(len(texts)):
        try:
            bytes(blob[offsets[number] : offsets[number + 1]]).decode()
        except UnicodeDecodeError as error:
            return _not_text("bytes that are not UTF-8", first_document + number, error.start)
    return _not_text("a damaged Arrow array", first_document)


def _not_text(message: str, document: int, offset: int | None = None) -> TokenizerError:
    return TokenizerError("TKZ005", message, document=document, offset=offset, expected="valid Unicode text")
