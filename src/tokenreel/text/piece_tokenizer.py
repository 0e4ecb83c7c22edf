"""A SentencePiece ``.model`` with the ``sentencepiece`` package as its reference."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenizerError, require
from tokenreel.text.texts import text_array
from tokenreel.text.tokenizer import Encoded, TokenizerKind, digest, end_of_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.text.spec import TokenizerSpec
    from tokenreel.text.texts import Texts


class PieceTokenizer:
    """Implements `tokenreel.text.tokenizer.Tokenizer`; see there.

    Control symbols (``<s>``, ``</s>``) are never matched in text; user-defined symbols are ordinary vocabulary.
    """

    kind: TokenizerKind = "sentencepiece"
    reference = "sentencepiece"
    lossless = False
    # U+2581 and a space share a piece; most models also normalise and add a space.
    why_lossy = "SentencePiece spells spaces as U+2581 and may normalise"
    disabled: tuple[str, ...] = ()

    def __init__(self, data: bytes, name: str, path: object = None) -> None:
        sentencepiece = require("sentencepiece", extra="sentencepiece")
        self.data = data
        self.name = name
        self.sha256 = digest(data)
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            loaded = bool(data) and self._model.LoadFromSerializedProto(data)
            size = int(self._model.GetPieceSize()) if loaded else 0
        except RuntimeError:
            size = 0
        if not size:
            raise TokenizerError(
                "TKZ002",
                path=path or name,
                expected="a tokenizer.json or a SentencePiece .model",
                hint=f"file {path or name}",
            )
        self.vocab_size = size
        self.largest_id = size - 1

    @cached_property
    def specials(self) -> dict[str, int]:
        """Control and unknown symbols, by id."""
        model = self._model
        return {model.IdToPiece(i): i for i in range(self.vocab_size) if model.IsControl(i) or model.IsUnknown(i)}

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of `specials`."""
        return frozenset(self.specials.values())

    def token_to_id(self, token: str) -> int | None:
        """Return a piece's id, or None."""
        found = int(self._model.PieceToId(token))
        return found if self._model.IdToPiece(found) == token else None

    def id_to_token(self, token_id: int) -> str | None:
        """Return an id's piece, or None."""
        return str(self._model.IdToPiece(token_id)) if 0 <= token_id < self.vocab_size else None

    def eod(self, spec: TokenizerSpec) -> tuple[int, str]:
        """Return id and token of the declared end of document."""
        return end_of_document(self, spec)

    def encode_batch(self, texts: Texts, *, special: bool = False) -> Encoded:
        """Return reference ids and lengths; raises `TokenizerError` (TKZ007) for `special`."""
        if special:
            raise TokenizerError(
                "TKZ007",
                "SentencePiece never matches control symbols in text",
                path=self.name,
                expected='special_in_text = "text", "error" or "drop"',
                found="special",
            )
        strings = text_array(texts).to_pylist()
        if not strings:
            return np.empty(0, np.uint32), np.empty(0, np.int64)
        rows = self._model.EncodeAsIds(strings, num_threads=1)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.concatenate([np.asarray(row, np.uint32) for row in rows]), lengths

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        """Return the text of ids; control symbols decode to nothing."""
        numbers: list[int] = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        if numbers and not 0 <= min(numbers) <= max(numbers) <= self.largest_id:
            bad = next(n for n in numbers if not 0 <= n <= self.largest_id)
            raise TokenizerError("TKZ014", path=self.name, expected=f"ids of 0 to {self.largest_id}", found=bad)
        return str(self._model.DecodeIds(numbers))
