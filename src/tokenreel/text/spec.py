"""What a recipe says about its tokenizer, checked and nothing more: no file is opened here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tokenreel.errors import RecipeError, nearest

Kind = Literal["file", "hub", "bytes", "train"]
SpecialInText = Literal["text", "special", "error", "drop"]
SPECIAL_IN_TEXT: tuple[SpecialInText, ...] = ("text", "special", "error", "drop")

END_OF_TEXT = "<|endoftext|>"
"""The special token that `bytes` and trained tokenizers hold, and their end of document unless one is declared."""

SMALLEST_TRAINED = 257
"""256 bytes and one special token: the smallest vocabulary that `train:bpe:N` can have."""

_KEYS = ("name", "path", "repo", "subfolder", "revision", "file", "eod", "sample_bytes")
_TRAIN = re.compile(r"train:bpe:(\d{1,7})")
_REPO = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?")


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """Which tokenizer, as declared; made by `TokenizerSpec.parse`."""

    kind: Kind
    path: str | None = None
    """For ``file``: a ``tokenizer.json`` or SentencePiece ``.model``, relative to the recipe's folder."""
    repo: str | None = None
    """For ``hub``: ``organisation/name``."""
    subfolder: str = ""
    revision: str | None = None
    """For ``hub``: 40 hex digits, or a branch or tag, which is resolved once and recorded."""
    file: str = "tokenizer.json"
    vocab_size: int | None = None
    """For ``train``: ids in the trained vocabulary, special tokens included."""
    sample_bytes: int = 64 << 20
    """For ``train``: how much text, in UTF-8 bytes, to train on."""
    eod: str | int | None = None
    """End of document: a token or an id. Needed, but for ``bytes`` and ``train``, which have `END_OF_TEXT`."""

    @classmethod
    def parse(cls, value: object) -> TokenizerSpec:
        """Return the spec that a string or a recipe's ``[tokenizer]`` table stands for.

        A string is ``bytes``, ``train:bpe:N`` or a path. A table has one of ``name`` (``bytes`` or ``train:bpe:N``),
        ``path`` or ``repo``; with ``repo`` also ``subfolder``, ``revision`` and ``file``; with any of them ``eod``;
        with ``train:bpe:N`` also ``sample_bytes``. Raises `RecipeError` (TKZ001) for anything else.

        >>> TokenizerSpec.parse("train:bpe:4096").vocab_size
        4096
        >>> TokenizerSpec.parse({"path": "tokenizer.json", "eod": "</s>"}).eod
        '</s>'
        """
        if isinstance(value, TokenizerSpec):
            return value
        if isinstance(value, str):
            return _named(value, {}) or _from_table({"path": value})
        if isinstance(value, Mapping):
            return _from_table(value)
        raise _wrong("a tokenizer is a string or a table", found=type(value).__name__)

    def as_dict(self) -> dict[str, object]:
        """Return the declared fields that differ from their defaults, as a table that `parse` reads back."""
        named = {"bytes": "bytes", "train": f"train:bpe:{self.vocab_size}"}.get(self.kind)
        table: dict[str, object] = {"name": named} if named else {}
        for key in _KEYS[1:]:
            given = getattr(self, key)
            if given != getattr(_DEFAULTS, key):
                table[key] = given
        return table


_DEFAULTS = TokenizerSpec("file")


def _named(name: str, table: Mapping[str, object]) -> TokenizerSpec | None:
    eod = _eod(table.get("eod"))
    if name == "bytes":
        return TokenizerSpec("bytes", eod=eod)
    if not name.startswith("train:"):
        return None
    match = _TRAIN.fullmatch(name)
    if match is None or int(match[1]) < SMALLEST_TRAINED:
        raise _wrong(
            "a trained tokenizer is named train:bpe:N",
            expected=f"train:bpe:N with N >= {SMALLEST_TRAINED}",
            found=name,
        )
    sample = table.get("sample_bytes", _DEFAULTS.sample_bytes)
    if not isinstance(sample, int) or isinstance(sample, bool) or sample <= 0:
        raise _wrong("sample_bytes is a number of bytes above 0", found=sample)
    return TokenizerSpec("train", vocab_size=int(match[1]), sample_bytes=sample, eod=eod)


def _from_table(table: Mapping[str, object]) -> TokenizerSpec:
    for key in table:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            raise _wrong(f"unknown key {key!r}" + (f"; did you mean {near!r}?" if near else ""), expected=_KEYS)
    chosen = [key for key in ("name", "path", "repo") if table.get(key) is not None]
    if len(chosen) != 1:
        raise _wrong("a tokenizer has exactly one of name, path and repo", found=chosen or "none")
    for key in ("name", "path", "repo", "subfolder", "revision", "file"):
        if table.get(key) is not None and (not isinstance(table[key], str) or not table[key]):
            raise _wrong(f"{key} is a string that is not empty", found=table[key])
    allowed = {"name": ("sample_bytes",), "path": (), "repo": ("subfolder", "revision", "file")}[chosen[0]]
    for key in table:
        if key not in (*allowed, chosen[0], "eod"):
            raise _wrong(f"{key!r} does not go with {chosen[0]!r}")
    if chosen[0] == "name":
        spec = _named(str(table["name"]), table)
        if spec is None or (spec.kind == "bytes" and "sample_bytes" in table):
            raise _wrong("name is bytes or train:bpe:N; a file is given as path", found=table["name"])
        return spec
    eod = _eod(table.get("eod"))
    if chosen[0] == "path":
        return TokenizerSpec("file", path=str(table["path"]), eod=eod)
    return _hub(table, eod)


def _hub(table: Mapping[str, object], eod: str | int | None) -> TokenizerSpec:
    repo = str(table["repo"])
    if not _REPO.fullmatch(repo):
        raise _wrong("repo is organisation/name", found=repo)
    subfolder, file = str(table.get("subfolder") or ""), str(table.get("file") or _DEFAULTS.file)
    revision = str(table.get("revision") or "main")
    for key, name in (("subfolder", subfolder), ("file", file), ("revision", revision)):
        if name.startswith("/") or ".." in name.split("/") or "\\" in name:
            raise _wrong(f"{key} stays inside the repository", found=name)
    return TokenizerSpec("hub", repo=repo, subfolder=subfolder.strip("/"), revision=revision, file=file, eod=eod)


def _eod(value: object) -> str | int | None:
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _wrong("eod is a token or an id", found=value)


def _wrong(message: str, *, expected: object = None, found: object = None) -> RecipeError:
    return RecipeError(
        "TKZ001",
        message,
        expected=", ".join(expected) if isinstance(expected, tuple) else expected,
        found=found,
        hint="tokenreel schema recipe",
    )
