"""The embedded tokenizer: id = byte, then the special tokens. Needs no package and no file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenizerError
from tokenreel.text.lossless import byte_characters
from tokenreel.text.special import count_special, pattern
from tokenreel.text.texts import text_array, text_bytes
from tokenreel.text.tokenizer import Encoded, TokenizerKind, digest, end_of_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.text.spec import TokenizerSpec
    from tokenreel.text.texts import Texts


def byte_tokenizer(specials: tuple[str, ...]) -> ByteTokenizer:
    """Return the byte tokenizer with these special tokens at 256, 257 and so on; pure.

    >>> byte_tokenizer(("<|endoftext|>",)).decode([72, 105, 256])
    'Hi<|endoftext|>'
    """
    return ByteTokenizer(specials)


class ByteTokenizer:
    """Implements `tokenreel.text.tokenizer.Tokenizer`; see there. Its `data` is an equivalent ``tokenizer.json``."""

    kind: TokenizerKind = "bytes"
    reference = "bytes"
    name = "bytes"
    lossless = True
    why_lossy = ""
    disabled: tuple[str, ...] = ()

    def __init__(self, specials: tuple[str, ...]) -> None:
        self.specials = {token: 256 + k for k, token in enumerate(specials)}
        self.data = _as_json(self.specials)
        self.sha256 = digest(self.data)
        self.vocab_size = 256 + len(specials)
        self.largest_id = self.vocab_size - 1
        self._names = {256 + k: token for k, token in enumerate(specials)}
        self._spelled = [bytes([byte]) for byte in range(256)] + [token.encode() for token in specials]

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of `specials`."""
        return frozenset(self._names)

    def token_to_id(self, token: str) -> int | None:
        """Return a special token's id, or that of a byte as byte-level vocabularies spell it, or None."""
        return self.specials.get(token, byte_characters().get(token))

    def id_to_token(self, token_id: int) -> str | None:
        """Return an id's token, or None."""
        if 0 <= token_id < 256:
            return next(char for char, byte in byte_characters().items() if byte == token_id)
        return self._names.get(token_id)

    def eod(self, spec: TokenizerSpec) -> tuple[int, str]:
        """Return id and token of the declared end of document."""
        return end_of_document(self, spec)

    def encode_batch(self, texts: Texts, *, special: bool = False) -> Encoded:
        """Return bytes as ids, and lengths; about 1 ms a MB."""
        array = text_array(texts)
        blob, offsets = text_bytes(array)
        if special and self.specials and count_special(array, self.specials).any():
            return self._encode_special(array)
        return blob.astype(np.uint32), np.diff(offsets)

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        """Return the text of ids."""
        numbers: list[int] = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        if numbers and not 0 <= min(numbers) <= max(numbers) <= self.largest_id:
            bad = next(n for n in numbers if not 0 <= n <= self.largest_id)
            raise TokenizerError("TKZ014", path=self.name, expected=f"ids of 0 to {self.largest_id}", found=bad)
        return b"".join(map(self._spelled.__getitem__, numbers)).decode("utf-8", "replace")

    def _encode_special(self, array: Any) -> Encoded:
        wanted = re.compile(f"({pattern(self.specials)})")
        documents = []
        for text in array.to_pylist():
            ids: list[int] = []
            for k, part in enumerate(wanted.split(text)):
                ids += [self.specials[part]] if k % 2 else part.encode()
            documents.append(np.asarray(ids, np.uint32))
        return np.concatenate(documents), np.fromiter(map(len, documents), np.int64, len(documents))


def _as_json(specials: dict[str, int]) -> bytes:
    by_byte = sorted(byte_characters().items(), key=lambda item: item[1])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token_id, "content": token, **flags} for token, token_id in specials.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {**dict(by_byte), **specials}, "merges": []},
    }
    return (json.dumps(definition, indent=1, ensure_ascii=False) + "\n").encode()
