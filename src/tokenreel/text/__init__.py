"""Tokenizers: declare, load, encode, decode, train; choose an engine that gives the reference's ids, and re-check it.

``TokenizerSpec.parse`` reads what a recipe says, ``load_tokenizer`` gives the tokenizer with its reference encoder,
``choose_engine`` and ``open_engine`` the fastest encoder that was seen to give the same ids.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenreel.text.engines import Batch, Encoder, open_engine
    from tokenreel.text.hub import pinned
    from tokenreel.text.probe import EngineChoice, choose_engine, probe_digest
    from tokenreel.text.recheck import Rechecked, recheck_batch
    from tokenreel.text.spec import END_OF_TEXT, TokenizerSpec
    from tokenreel.text.tokenizer import Tokenizer, decodes_back, load_tokenizer, tokenizer_from_bytes
    from tokenreel.text.train import train_bpe

_HOME = {
    "Batch": "engines",
    "END_OF_TEXT": "spec",
    "Encoder": "engines",
    "EngineChoice": "probe",
    "Rechecked": "recheck",
    "Tokenizer": "tokenizer",
    "TokenizerSpec": "spec",
    "choose_engine": "probe",
    "decodes_back": "tokenizer",
    "load_tokenizer": "tokenizer",
    "open_engine": "engines",
    "pinned": "hub",
    "probe_digest": "probe",
    "recheck_batch": "recheck",
    "tokenizer_from_bytes": "tokenizer",
    "train_bpe": "train",
}

__all__ = [
    "END_OF_TEXT",
    "Batch",
    "Encoder",
    "EngineChoice",
    "Rechecked",
    "Tokenizer",
    "TokenizerSpec",
    "choose_engine",
    "decodes_back",
    "load_tokenizer",
    "open_engine",
    "pinned",
    "probe_digest",
    "recheck_batch",
    "tokenizer_from_bytes",
    "train_bpe",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
