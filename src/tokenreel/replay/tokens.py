"""Documents as tokens under the policies that pipelines had: BOS and EOS by id or by spelling, long texts cut up.

Three ways of BOS are on record for one corpus: joined to the text with a space before encoding, missing, and put before
the ids. A text over 10,000 characters was cut at the first whitespace at or after every 10,000th, later versions also cut
runs of 25,000 characters that are all whitespace, or all not. Each of these changes ids. Source: Marin's datakit.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokenreel.errors import ReplayError, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.replay.metadata import TokenPolicy
    from tokenreel.text import Tokenizer

WAYS = ("none", "id", "string", "probe")
PROBE = "hi there"
"""What the pipeline encoded to see whether a tokenizer adds its tokens by itself."""
BOS = ("<|begin_of_text|>", "<s>", "<|startoftext|>")
EOS = ("<|end_of_text|>", "</s>", "<|endoftext|>")
_SPACE = re.compile(r"\s")
_RUNS = re.compile(r"\s+|\S+")


@dataclass(frozen=True, slots=True, eq=False)
class Tokeniser:
    """A tokenizer with a policy; `bos` and `eos` are its ids and spellings, where the policy needs them."""

    tokenizer: Tokenizer
    policy: TokenPolicy
    bos: tuple[int, str] | None
    eos: tuple[int, str] | None

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return ids end to end and lengths, one a text."""
        policy = self.policy
        spelled = [self._spelled(text) for text in texts]
        pieces = [split_text(text, policy.split_chars, policy.split_runs) for text in spelled]
        flat = [piece for one in pieces for piece in one]
        if flat:
            # What the policy spells out is meant as the token it spells.
            special = "string" in (policy.bos, policy.eos) or policy.special_in_text == "special"
            ids, sizes = self.tokenizer.encode_batch(flat, special=special)
        else:
            ids, sizes = np.empty(0, np.uint32), np.empty(0, np.int64)
        counts = np.array([len(one) for one in pieces], dtype=np.int64)
        ends = np.concatenate(([0], np.cumsum(sizes)))[np.concatenate(([0], np.cumsum(counts)))]
        return self._framed(ids, np.diff(ends))

    def _spelled(self, text: str) -> str:
        if self.policy.bos == "string" and self.bos is not None:
            text = f"{self.bos[1]} {text}"
        if self.policy.eos == "string" and self.eos is not None:
            text = f"{text} {self.eos[1]}"
        return text

    def _framed(
        self, ids: npt.NDArray[np.uint32], lengths: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        before = [self.bos[0]] if self.policy.bos == "id" and self.bos is not None else []
        after = [self.eos[0]] if self.policy.eos == "id" and self.eos is not None else []
        if not before and not after:
            return ids, lengths
        ends = np.cumsum(lengths)
        out = (
            np.insert(ids, np.repeat(ends, len(after)), np.array(after * len(lengths), dtype=np.uint32))
            if after
            else ids
        )
        if before:
            begins = np.concatenate(([0], np.cumsum(lengths + len(after))[:-1])) if len(lengths) else ends
            out = np.insert(out, begins, np.array(before * len(lengths), dtype=np.uint32))
        return out, lengths + len(before) + len(after)


def tokeniser(tokenizer: Tokenizer, policy: TokenPolicy, bos: str | None = None, eos: str | None = None) -> Tokeniser:
    """Return a tokeniser; `bos` and `eos` are spellings of tokens, found in the tokenizer when left out.

    Raises `ReplayError` (RPL040) for a policy that does not exist, or a token the tokenizer does not have.
    """
    for name, way in (("bos", policy.bos), ("eos", policy.eos)):
        if way not in WAYS:
            raise ReplayError("RPL040", f"tokens.{name}", expected=", ".join(WAYS), found=way)
    if policy.special_in_text not in ("text", "special"):
        raise ReplayError("RPL040", "tokens.special_in_text", expected="text or special", found=policy.special_in_text)
    first = None if policy.bos == "none" else _token(tokenizer, bos, "bos", BOS)
    last = None if policy.eos == "none" else _token(tokenizer, eos, "eos", EOS)
    if "probe" in (policy.bos, policy.eos):
        own = _own_tokens(tokenizer)
        changed = {
            name: "id" if token is not None and own[end : end + 1 or None] == [token[0]] else "string"
            for name, token, end in (("bos", first, 0), ("eos", last, -1))
            if getattr(policy, name) == "probe"
        }
        policy = msgspec.structs.replace(policy, **changed)
    return Tokeniser(tokenizer, policy, first, last)


def _own_tokens(tokenizer: Tokenizer) -> list[int]:
    """Return a short text's ids with what the tokenizer adds by itself; a tokenizer without such a rule adds nothing."""
    try:
        rule = json.loads(tokenizer.data).get("post_processor")
    except (ValueError, AttributeError):
        rule = None
    if not rule:
        return []
    engine = require("tokenizers", extra="build").Tokenizer.from_str(tokenizer.data.decode())
    ids: list[int] = engine.encode(PROBE).ids
    return ids


def _token(tokenizer: Tokenizer, said: str | None, what: str, usual: tuple[str, ...]) -> tuple[int, str]:
    if said is not None:
        number = tokenizer.token_to_id(said)
        if number is None:
            raise ReplayError("RPL040", f"the {what} token", expected="a token of the tokenizer", found=said)
        return number, said
    there = [(one, token) for token in usual if (one := tokenizer.token_to_id(token)) is not None]
    if len(there) != 1:
        found = ", ".join(token for _, token in there) or "none of the usual ones"
        raise ReplayError(
            "RPL040", f"the {what} token", expected="one that is certain", found=found, hint=f"--{what} TOKEN"
        )
    return there[0]


def split_text(text: str, chars: int, runs: int = 0) -> list[str]:
    """Return a text cut at the first whitespace at or after every `chars` characters; 0 does not cut.

    The whitespace goes with what follows. `runs` cuts runs of whitespace, or of anything else, after as many characters.

    >>> split_text("abc def ghi", 4), split_text("aaaaaa", 0, 4)
    (['abc def', ' ghi'], ['aaaa', 'aa'])
    """
    pieces = [text]
    if chars and len(text) > chars:
        pieces, at = [], 0
        while len(text) - at > chars:
            match = _SPACE.search(text, at + chars)
            if match is None:
                break
            pieces.append(text[at : match.start()])
            at = match.start()
        pieces.append(text[at:])
    return pieces if not runs else [part for piece in pieces for part in _split_runs(piece, runs)]


def _split_runs(text: str, longest: int) -> list[str]:
    cuts = [0]
    for run in _RUNS.finditer(text):
        cuts += range(run.start() + longest, run.end(), longest)
    cuts.append(len(text))
    return [text[a:b] for a, b in pairwise(cuts) if a < b or len(cuts) == 2]


def widest(ids: Any) -> int:
    """Return the largest id, or -1."""
    return int(ids.max()) if len(ids) else -1
