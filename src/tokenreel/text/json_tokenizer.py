"""A ``tokenizer.json`` with the ``tokenizers`` package as its reference."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenizerError, require
from tokenreel.text.environment import environment
from tokenreel.text.lossless import byte_characters, why_lossy
from tokenreel.text.texts import text_array, text_bytes
from tokenreel.text.tokenizer import Encoded, TokenizerKind, digest, end_of_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.text.spec import TokenizerSpec
    from tokenreel.text.texts import Texts


class JsonTokenizer:
    """Implements `tokenreel.text.tokenizer.Tokenizer`; see there."""

    kind: TokenizerKind = "tokenizer.json"
    reference = "tokenizers"

    def __init__(self, data: bytes, name: str, path: object = None) -> None:
        self.data = data
        self.name = name
        self.sha256 = digest(data)
        self._config = _parse(data, path or name)
        self.why_lossy = why_lossy(self._config)
        self.lossless = not self.why_lossy
        self.disabled = tuple(key for key in ("truncation", "padding") if self._config.get(key))
        self._plain = self._open(path or name, special=False)
        vocab = self._plain.get_vocab(with_added_tokens=True)
        self.vocab_size = len(set(vocab.values()))
        self.largest_id = max(vocab.values(), default=-1)
        if self.largest_id < 0:
            raise TokenizerError("TKZ002", "its vocabulary is empty", path=path or name)
        self._check_added(path or name)

    @cached_property
    def engine_json(self) -> str:
        """The file's text with truncation and padding taken out, as other engines must see it."""
        if not self.disabled:
            return self.data.decode("utf-8-sig")
        return json.dumps({**self._config, "truncation": None, "padding": None})

    @cached_property
    def specials(self) -> dict[str, int]:
        """Added tokens that the file marks as special, by id. Other added tokens are ordinary vocabulary."""
        added = self._plain.get_added_tokens_decoder()
        return {token.content: token_id for token_id, token in sorted(added.items()) if token.special}

    @cached_property
    def added(self) -> tuple[str, ...]:
        """All added tokens, special or not, by id."""
        return tuple(token.content for _, token in sorted(self._plain.get_added_tokens_decoder().items()))

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of `specials`."""
        return frozenset(self.specials.values())

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id, or None."""
        found: int | None = self._plain.token_to_id(token)
        return found

    def id_to_token(self, token_id: int) -> str | None:
        """Return an id's token as the file spells it, or None."""
        found: str | None = self._plain.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None
        return found

    def eod(self, spec: TokenizerSpec) -> tuple[int, str]:
        """Return id and token of the declared end of document."""
        return end_of_document(self, spec)

    def encode_batch(self, texts: Texts, *, special: bool = False) -> Encoded:
        """Return reference ids and lengths; 1 to 4 MB a CPU second."""
        encoder = self._special if special else self._plain
        pieces: list[npt.NDArray[np.uint32]] = []
        # The package is told to use one thread: workers are processes, and its pool does not survive a fork.
        with environment("TOKENIZERS_PARALLELISM", "false"):
            for strings in _portions(text_array(texts)):
                encodings = encoder.encode_batch_fast(strings, add_special_tokens=False)
                pieces += [np.asarray(encoding.ids, np.uint32) for encoding in encodings]
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return (np.concatenate(pieces) if pieces else np.empty(0, np.uint32)), lengths

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        """Return the text of ids; by a table of bytes (20 M ids a second) when lossless, else by the reference."""
        numbers: list[int] = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        try:
            spelled = list(map(self._token_bytes.__getitem__, numbers))
        except KeyError as error:  # the package would leave the id out and say nothing
            raise TokenizerError(
                "TKZ014", path=self.name, expected=f"ids of 0 to {self.largest_id}", found=error.args[0]
            ) from None
        if self.lossless:
            return b"".join(spelled).decode("utf-8", "replace")
        text: str = self._plain.decode(numbers, skip_special_tokens=False)
        return text

    @cached_property
    def _token_bytes(self) -> dict[int, bytes]:
        table = byte_characters()
        spelled = {}
        for token, token_id in self._plain.get_vocab(with_added_tokens=True).items():
            if all(char in table for char in token):
                spelled[token_id] = bytes(table[char] for char in token)
            else:
                spelled[token_id] = token.encode()
        return spelled

    @cached_property
    def _special(self) -> Any:
        return self._open(self.name, special=True)

    def _check_added(self, path: object) -> None:
        """Refuse a file whose added tokens get other ids than it says: the package numbers them anew and is silent."""
        for token in self._config.get("added_tokens") or []:
            given, declared = self._plain.token_to_id(token.get("content", "")), token.get("id")
            if given != declared:
                message = f"the added token {token.get('content')!r} does not get the id that the file says"
                raise TokenizerError("TKZ015", message, path=path, expected=declared, found=given)

    def _open(self, path: object, *, special: bool) -> Any:
        tokenizers = require("tokenizers", extra="build")
        try:
            opened = tokenizers.Tokenizer.from_str(self.data.decode("utf-8-sig"))
        except Exception as error:  # the package raises plain Exception for a file it does not understand
            raise TokenizerError(
                "TKZ002", f"tokenizers cannot load it: {error}", path=path, hint="pip install -U tokenizers"
            ) from error
        opened.no_truncation()
        opened.no_padding()
        opened.encode_special_tokens = not special
        return opened


def _portions(array: Any, most: int = 1 << 20) -> Iterator[list[str]]:
    """Yield runs of documents of about `most` bytes: an encoding takes a hundred times the memory of its text."""
    _, offsets = text_bytes(array)
    begin = 0
    while begin < len(array):
        end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + most, side="right")) - 1)
        yield array[begin:end].to_pylist()
        begin = end


def _parse(data: bytes, path: object) -> dict[str, Any]:
    try:
        config = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(
            "TKZ002", f"not valid JSON: {error}", path=path, hint=f"python -m json.tool {path}"
        ) from error
    model = config.get("model") if isinstance(config, dict) else None
    if not isinstance(model, dict):
        raise TokenizerError(
            "TKZ002", "no model in it: this is not a tokenizer.json", path=path, expected="the key 'model'"
        )
    if model.get("dropout"):
        raise TokenizerError("TKZ011", path=path, expected="BPE dropout null or 0", found=model["dropout"])
    return dict(config)
