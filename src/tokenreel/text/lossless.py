"""Decide from a ``tokenizer.json`` alone whether every text comes back from its ids. Strict: unknown means no."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def byte_characters() -> dict[str, int]:
    """Return the 256 characters by which byte-level vocabularies spell bytes, and the byte each stands for.

    Printable Latin-1 characters stand for themselves; the other 68 bytes get U+0100 and up, in order (GPT-2's table).

    >>> byte_characters()["A"], byte_characters()["Ġ"], len(byte_characters())
    (65, 32, 256)
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + k): byte for k, byte in enumerate(others)})
    return table


def why_lossy(config: dict[str, Any]) -> str:
    """Return why ids of this ``tokenizer.json`` may not decode to their text; empty if they always do.

    They do when the model is BPE over all 256 byte characters, the pre-tokenizer has one byte-level step without a
    prefix space and only splits otherwise, nothing normalises, added tokens take no whitespace with them, and the
    decoder is the byte-level one.
    """
    model = config.get("model") or {}
    if model.get("type", "BPE") != "BPE":
        return f"its model is {model.get('type')}, not byte-level BPE"
    if _steps(config.get("normalizer"), "normalizers"):
        return f"it normalises text ({config['normalizer'].get('type')})"
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return "its tokens carry a prefix or suffix that text does not have"
    missing = sum(char not in model.get("vocab", {}) for char in byte_characters())
    if missing:
        return f"{missing} of 256 bytes have no token"
    return _lossy_steps(config) or _lossy_added(config.get("added_tokens") or [])


def _lossy_steps(config: dict[str, Any]) -> str:
    steps = _steps(config.get("pre_tokenizer"), "pretokenizers")
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    if len(byte_level) != 1:
        return "its pre-tokenizer has no byte-level step" if not byte_level else "it spells bytes twice"
    if byte_level[0].get("add_prefix_space", True):
        return "it puts a space before text"
    for step in steps:
        if step.get("type") not in ("ByteLevel", "Split", "Digits"):
            return f"its pre-tokenizer has a step {step.get('type')}"
        if step.get("behavior") == "Removed":
            return "its pre-tokenizer removes what it splits at"
    decoders = _steps(config.get("decoder"), "decoders")
    if [step.get("type") for step in decoders] != ["ByteLevel"]:
        return "its decoder is not the byte-level one"
    return ""


def _lossy_added(added: list[dict[str, Any]]) -> str:
    table = byte_characters()
    for token in added:
        content = token.get("content", "")
        if token.get("lstrip") or token.get("rstrip"):
            return f"its token {content!r} takes whitespace beside it"
        if all(char in table for char in content) and not content.isascii():
            return f"its token {content!r} decodes as if it spelled bytes"
    return ""


def _steps(config: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    """Return a pipeline's steps, sequences flattened; None and empty sequences have none."""
    if not config:
        return []
    if config.get("type") != "Sequence":
        return [config]
    return [step for part in config.get(key) or [] for step in _steps(part, key)]
