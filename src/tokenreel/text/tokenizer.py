"""Tokenizers: loaded from bytes that were hashed, encoding with the reference, decoding, proving what can be proved.

Reference ids come from ``tokenizers`` for a ``tokenizer.json``, from ``sentencepiece`` for a ``.model``, and from this
package for ``bytes``. No tokenizer adds ids of its own here: no BOS or EOS, no truncation, no padding.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tokenreel.errors import RecipeError, StorageError, TokenizerError
from tokenreel.store.atomic import read_error
from tokenreel.text.spec import END_OF_TEXT, TokenizerSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.text.texts import Texts

TokenizerKind = Literal["tokenizer.json", "sentencepiece", "bytes"]
Encoded = tuple["npt.NDArray[np.uint32]", "npt.NDArray[np.int64]"]


class Tokenizer(Protocol):
    """A tokenizer with its reference encoder. Reading its attributes is pure; encoding uses one thread."""

    kind: TokenizerKind
    name: str
    """What messages and manifests call it: a path as declared, ``repo/subfolder/file``, ``bytes``."""
    data: bytes
    """The file as read (for ``bytes``: an equivalent ``tokenizer.json``)."""
    sha256: str
    """SHA-256 of `data`, in hex."""
    vocab_size: int
    """How many ids have a token, added tokens included."""
    largest_id: int
    """The largest id it can give, added tokens included: what the width of stored ids follows."""
    lossless: bool
    """Whether `decode` gives back every text by construction: byte-level, no normaliser, nothing added or taken."""
    why_lossy: str
    """Why `lossless` is false; empty when it is true."""
    reference: str
    """The engine whose ids are right by definition: ``tokenizers``, ``sentencepiece`` or ``bytes``."""
    disabled: tuple[str, ...]
    """Settings of the file that are never applied here: ``truncation``, ``padding``."""

    @property
    def specials(self) -> dict[str, int]:
        """Special (control) tokens and their ids, by id."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of `specials`."""
        ...

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id, or None."""
        ...

    def id_to_token(self, token_id: int) -> str | None:
        """Return an id's token as the file spells it, or None."""
        ...

    def eod(self, spec: TokenizerSpec) -> tuple[int, str]:
        """Return id and token of the end of document that `spec` declares; see `end_of_document`."""
        ...

    def encode_batch(self, texts: Texts, *, special: bool = False) -> Encoded:
        """Return the reference's ids (uint32, end to end) and lengths (int64, one per text).

        With `special`, special tokens spelled in a text become their ids; without, what is spelled is ordinary text.
        Raises `TokenizerError`: TKZ005 for text that is not Unicode, TKZ007 if `special` cannot be honoured.
        """
        ...

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        """Return the text of one document's ids, special tokens spelled out; bytes that are not UTF-8 become U+FFFD."""
        ...


def load_tokenizer(
    spec: TokenizerSpec | str, base_dir: str | os.PathLike[str] = ".", *, trained: bytes | None = None
) -> Tokenizer:
    """Return the tokenizer that `spec` names; paths are relative to `base_dir`.

    A `train` spec needs `trained`: the bytes that `train_bpe` returned (or that the first run saved). Raises
    `StorageError` (STO001, STO002), `TokenizerError` (TKZ002 and what `tokenizer_from_bytes` raises; TKZ009 and TKZ010
    for the hub). Cost: reading and parsing the file, 0.05 to 0.5 s.

    >>> load_tokenizer("bytes").token_to_id("<|endoftext|>")
    256
    """
    spec = TokenizerSpec.parse(spec)
    if spec.kind == "bytes":
        from tokenreel.text.byte_tokenizer import byte_tokenizer

        return byte_tokenizer((END_OF_TEXT,))
    if spec.kind == "train":
        if trained is None:
            raise TokenizerError(
                "TKZ002",
                f"train:bpe:{spec.vocab_size} names a tokenizer that is not trained yet",
                hint="tokenreel build RECIPE",
            )
        return tokenizer_from_bytes(trained, name=f"train:bpe:{spec.vocab_size}")
    if spec.kind == "hub":
        from tokenreel.text.hub import resolve

        found = resolve(spec)
        return tokenizer_from_bytes(_read(found.path), name=found.name, path=found.path)
    path = Path(base_dir) / str(spec.path)
    return tokenizer_from_bytes(_read(path), name=str(spec.path), path=path)


def tokenizer_from_bytes(data: bytes, *, name: str, path: object = None) -> Tokenizer:
    """Return the tokenizer in the bytes of a ``tokenizer.json`` or a SentencePiece ``.model``, told apart by content.

    Raises `TokenizerError`: TKZ002 if they are neither, TKZ011 if it gives other ids from one call to the next.
    """
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        from tokenreel.text.json_tokenizer import JsonTokenizer

        return JsonTokenizer(data, name, path)
    from tokenreel.text.piece_tokenizer import PieceTokenizer

    return PieceTokenizer(data, name, path)


def end_of_document(tok: Tokenizer, spec: TokenizerSpec) -> tuple[int, str]:
    """Return id and token of the end of document that `spec` declares for `tok`.

    Raises `RecipeError` (TKZ004) if none is declared (only ``bytes`` and ``train:bpe:N`` have one by themselves) and
    `TokenizerError` (TKZ003) if the tokenizer lacks it, naming the special tokens that it has.
    """
    declared = spec.eod
    if declared is None and spec.kind in ("bytes", "train"):
        declared = END_OF_TEXT
    if declared is None:
        raise RecipeError(
            "TKZ004",
            "the recipe declares no end of document",
            path=tok.name,
            expected="eod = a token or an id",
            found=_offer(tok),
            hint=f'set eod = "{next(iter(tok.specials), END_OF_TEXT)}" in [tokenizer] of the recipe',
        )
    token_id = declared if isinstance(declared, int) else tok.token_to_id(declared)
    token = declared if isinstance(declared, str) else tok.id_to_token(declared)
    if token_id is None or token is None:
        raise TokenizerError(
            "TKZ003",
            path=tok.name,
            expected=f"a token {declared!r}" if isinstance(declared, str) else f"an id {declared}",
            found=_offer(tok),
            hint=f'set eod = "{next(iter(tok.specials), END_OF_TEXT)}" in [tokenizer] of the recipe',
        )
    return token_id, token


def decodes_back(tok: Tokenizer, text: str, ids: Sequence[int] | npt.NDArray[Any]) -> bool:
    """Return whether these ids decode to exactly this text.

    >>> tok = load_tokenizer("bytes")
    >>> decodes_back(tok, "né", [110, 195, 169]), decodes_back(tok, "ne", [110])
    (True, False)
    """
    return tok.decode(ids) == text


def digest(data: bytes) -> str:
    """Return SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError as error:
        raise StorageError(
            "STO002",
            "a folder in place of a tokenizer file",
            path=path,
            expected="tokenizer.json or a SentencePiece .model",
            hint=f"ls {path}",
        ) from error
    except OSError as error:
        raise read_error(path, error) from error


def _offer(tok: Tokenizer, most: int = 12) -> str:
    names = list(tok.specials)
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return f"special tokens {shown}" if names else "no special tokens"
