"""Engines: other people's encoders behind one protocol, one thread each, failures turned into errors.

| engine | reads | text in | limit of threads |
|---|---|---|---|
| reference | all | list of str | no pool is used (TOKENIZERS_PARALLELISM=false for the call) |
| gigatoken | byte-level and SentencePiece BPE | Arrow strings, no copy | an argument of each call; no pool when 1 |
| fastokens | byte-level and SentencePiece BPE, Digits | list of str | RAYON_NUM_THREADS when its pool starts, once a process |

gigatoken always honours special tokens, so documents that spell one are given to the reference when they must be
ordinary text. fastokens keeps its pool for ever: a process forked after its first use would wait for threads that it
does not have, which is an error here (TKZ013), not a hang. Workers are therefore spawned, or forked before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokenreel.errors import MissingExtra, TokenizerError, require
from tokenreel.text.environment import environment
from tokenreel.text.special import screen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokenreel.text.probe import EngineChoice
    from tokenreel.text.spec import SpecialInText
    from tokenreel.text.texts import Texts
    from tokenreel.text.tokenizer import Encoded, Tokenizer


class Engine(Protocol):
    """Encodes Arrow strings with one tokenizer; what a candidate's factory returns."""

    honours_special: bool
    """Whether special tokens spelled in text become their ids whatever was asked."""

    def encode(self, texts: Any) -> Encoded:
        """Return uint32 ids end to end and int64 lengths for a ``LargeStringArray``."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine that may be chosen."""

    name: str
    """Also the name of its distribution, whose version is recorded."""
    factory: str
    """``module:function``; called as ``function(tok, special, threads)`` and returns an `Engine`."""

    def version(self) -> str | None:
        """Return the installed version, or None if it is not installed."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None

    def open(self, tok: Tokenizer, *, special: bool, threads: int = 1) -> Engine:
        """Return the engine; anything it raises, a Rust panic included, becomes `TokenizerError` (TKZ013)."""
        module, function = self.factory.split(":")
        opened: Engine = guarded(self.name, getattr(import_module(module), function), tok, special, threads)
        return opened


CANDIDATES: tuple[Candidate, ...] = (
    Candidate("gigatoken", "tokenreel.text.engines:open_gigatoken"),
    Candidate("fastokens", "tokenreel.text.engines:open_fastokens"),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What `Encoder.encode_counted` returns for n documents."""

    ids: npt.NDArray[np.uint32]
    """Ids of all documents, end to end."""
    lengths: npt.NDArray[np.int64]
    """Ids per document; their sum is ``len(ids)``."""
    special: npt.NDArray[np.int64]
    """Special tokens spelled in each document as it came."""
    texts: Any
    """The texts that were encoded, as a ``LargeStringArray``: with ``drop``, without the special tokens."""


class Encoder:
    """One engine, one tokenizer, one way with special tokens in text; made by `open_engine`."""

    def __init__(self, tok: Tokenizer, engine: Engine, name: str, version: str, mode: SpecialInText) -> None:
        self.tok = tok
        self.name = name
        self.version = version
        self.special_in_text = mode
        self._engine = engine
        self._specials = tuple(tok.specials)

    def encode(self, texts: Texts) -> Encoded:
        """Return ids (uint32, end to end) and lengths (int64, one per text) of a batch; see `encode_counted`."""
        batch = self.encode_counted(texts)
        return batch.ids, batch.lengths

    def encode_counted(self, texts: Texts, *, first_document: int = 0, checked: bool = False) -> Batch:
        """Return ids, lengths and how many special tokens were spelled; documents are numbered from `first_document`.

        Takes a pyarrow string array (``LargeStringArray`` without a copy) or a list of str; empty texts and empty
        batches are fine. `checked`: the texts are known to be valid UTF-8. Raises `TokenizerError`: TKZ005 text that is not Unicode, TKZ006 a special token under
        ``error``, TKZ013 an engine that failed.
        """
        array, counts = screen(
            texts, self._specials, self.special_in_text, first_document=first_document, checked=checked
        )
        spelled = counts > 0 if self.special_in_text == "text" else np.zeros(len(counts), np.bool_)
        if self._engine.honours_special and spelled.any():
            ids, lengths = self._around(array, spelled)
        else:
            ids, lengths = self._run(array)
        return Batch(ids, lengths, counts, array)

    def _run(self, array: Any) -> Encoded:
        if not len(array):
            return np.empty(0, np.uint32), np.empty(0, np.int64)
        ids, lengths = guarded(self.name, self._engine.encode, array)
        if len(lengths) != len(array) or int(lengths.sum()) != len(ids):
            raise TokenizerError(
                "TKZ013",
                f"{self.name} {self.version} lost count",
                expected=f"{len(array)} documents",
                found=f"{len(lengths)} documents of {int(lengths.sum())} tokens, {len(ids)} ids",
            )
        return ids, lengths

    def _around(self, array: Any, spelled: npt.NDArray[np.bool_]) -> Encoded:
        """Encode the documents in `spelled` with the reference, the others with the engine, and put them in order."""
        import pyarrow as pa

        fast_ids, fast_lengths = self._run(array.filter(pa.array(~spelled)))
        slow_ids, slow_lengths = self.tok.encode_batch(array.filter(pa.array(spelled)))
        lengths = np.empty(len(array), np.int64)
        lengths[~spelled], lengths[spelled] = fast_lengths, slow_lengths
        slow = np.repeat(spelled, lengths)
        ids = np.empty(len(slow), np.uint32)
        ids[~slow], ids[slow] = fast_ids, slow_ids
        return ids, lengths


def open_engine(
    tok: Tokenizer,
    choice: EngineChoice | str | None = None,
    *,
    special_in_text: SpecialInText = "text",
    threads: int = 1,
    candidates: Sequence[Candidate] = CANDIDATES,
) -> Encoder:
    """Return the encoder that was chosen (None: the reference); call it in the process that will use it.

    Raises `TokenizerError` (TKZ007, TKZ013) and `MissingExtra` for an engine that is not installed.

    >>> from tokenreel.text import load_tokenizer
    >>> ids, lengths = open_engine(load_tokenizer("bytes")).encode(["Hi", ""])
    >>> ids.tolist(), lengths.tolist()
    ([72, 105], [2, 0])
    """
    name = tok.reference if choice is None else choice if isinstance(choice, str) else choice.name
    special = special_in_text == "special"
    if name == tok.reference:
        if special:
            tok.encode_batch([], special=True)  # refuses now, not at the first batch
        return Encoder(tok, _Reference(tok, special), name, reference_version(tok), special_in_text)
    candidate = next((c for c in candidates if c.name == name), None)
    version = candidate.version() if candidate else None
    if candidate is None or version is None:
        raise MissingExtra(
            "USE002",
            f"the engine {name} is not installed",
            expected=", ".join([tok.reference, *(c.name for c in candidates)]),
            hint='pip install "tokenreel[fast]"',
        )
    return Encoder(tok, candidate.open(tok, special=special, threads=threads), name, version, special_in_text)


def reference_version(tok: Tokenizer) -> str:
    """Return the version of the package whose ids are right by definition; this package's own for ``bytes``."""
    try:
        return metadata.version("tokenreel" if tok.reference == "bytes" else tok.reference)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "source"


def guarded(name: str, call: Callable[..., Any], *args: Any) -> Any:
    """Return ``call(*args)``; what it raises becomes `TokenizerError` (TKZ013), a Rust panic (BaseException) too."""
    try:
        return call(*args)
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, TokenizerError, MissingExtra):
        raise
    except BaseException as error:
        message = f"{name} failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise TokenizerError(
            "TKZ013", message, hint="tokenreel build RECIPE --set tokenizer.engine=reference"
        ) from error


class _Reference:
    honours_special = False

    def __init__(self, tok: Tokenizer, special: bool) -> None:
        self._tok = tok
        self._special = special

    def encode(self, texts: Any) -> Encoded:
        return self._tok.encode_batch(texts, special=self._special)


class _Gigatoken:
    honours_special = True

    def __init__(self, tokenizer: Any, threads: int) -> None:
        self._tokenizer = tokenizer
        self._parallel = threads > 1

    def encode(self, texts: Any) -> Encoded:
        import awkward

        rows = self._tokenizer.encode_batch(awkward.from_arrow(texts), parallel=self._parallel)
        layout = rows.layout
        if isinstance(layout, awkward.contents.ListOffsetArray) and layout.content.is_numpy:
            # What it returns as a rule: its own buffers, without the copies of the general way below.
            edges = np.asarray(layout.offsets.data, np.int64)
            flat = np.asarray(layout.content.data)[edges[0] : edges[-1]]
            return flat.astype(np.uint32, copy=False), np.diff(edges)
        lengths = awkward.to_numpy(awkward.num(rows, axis=1)).astype(np.int64, copy=False)
        return awkward.to_numpy(awkward.flatten(rows, axis=1)).astype(np.uint32, copy=False), lengths


def open_gigatoken(tok: Tokenizer, special: bool, threads: int) -> Engine:  # noqa: ARG001 (it honours them always)
    """Return gigatoken on `tok`; raises what it raises for tokenizers it does not read."""
    gigatoken = require("gigatoken", extra="fast")
    if tok.kind == "sentencepiece":
        return _Gigatoken(gigatoken.Tokenizer.from_sentencepiece(tok.data), threads)
    return _Gigatoken(gigatoken.Tokenizer.from_json(_engine_json(tok)), threads)


class _Fastokens:
    honours_special = False

    def __init__(self, tokenizer: Any, special: bool) -> None:
        self._tokenizer = tokenizer
        self._split = not special

    def encode(self, texts: Any) -> Encoded:
        _check_pool()
        ids, offsets = self._tokenizer.encode_batch_flat(texts.to_pylist(), split_special_tokens=self._split)
        edges: npt.NDArray[np.int64] = np.frombuffer(offsets, "<u8").astype(np.int64)
        return np.frombuffer(ids, "<u4").astype(np.uint32, copy=False), edges[1:] - edges[:-1]


def open_fastokens(tok: Tokenizer, special: bool, threads: int) -> Engine:
    """Return fastokens on `tok`; starts its pool with `threads`, or takes the pool that this process already has."""
    fastokens = require("fastokens", extra="fast")
    if tok.kind == "sentencepiece":
        raise TokenizerError("TKZ013", "fastokens does not read SentencePiece models")
    _check_pool()
    with environment("RAYON_NUM_THREADS", str(threads)):
        tokenizer = fastokens.Tokenizer.from_json_str(_engine_json(tok))
        tokenizer.encode_batch_flat(["a", "b"])
    _POOL_OWNER.setdefault("fastokens", os.getpid())
    return _Fastokens(tokenizer, special)


_POOL_OWNER: dict[str, int] = {}


def _check_pool() -> None:
    owner = _POOL_OWNER.get("fastokens", os.getpid())
    if owner != os.getpid():
        raise TokenizerError(
            "TKZ013",
            "fastokens was used before this process was forked; its threads are not here",
            expected=f"process {owner}",
            found=f"process {os.getpid()}",
            hint='start workers with multiprocessing.get_context("spawn")',
        )


def _engine_json(tok: Tokenizer) -> str:
    text: str = getattr(tok, "engine_json", "") or tok.data.decode("utf-8-sig")
    return text
