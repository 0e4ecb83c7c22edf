"""Split rules: which documents are validation, decided by the document alone, never by where work happened to run.

| rule | a document is validation when |
|---|---|
| ``hash-mod`` | the first eight bytes of the SHA-256 of its exact UTF-8 text, big-endian, modulo `modulo` equal `validation_when_equal` |
| ``every-nth`` | its number within its input file (kept documents, from 0) modulo `n` is ``n - 1`` |
| ``by-id`` | its upstream id is in a list |
| ``none`` | never |

Others come from the entry-point group ``tokenreel.split_rules``: a callable that takes the options of the recipe as
keywords and returns a `SplitRule`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokenreel.errors import SplitError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

ENTRY_POINTS = "tokenreel.split_rules"


@dataclass(frozen=True, slots=True)
class SplitInput:
    """A run of documents as a rule sees them: UTF-8 end to end, where each begins, upstream ids if there are any."""

    text: memoryview | bytes
    """UTF-8 of all documents, end to end."""
    offsets: Sequence[int]
    """n + 1 byte offsets into `text`."""
    first: int = 0
    """Number of the first document among the kept documents of its input file."""
    ids: Sequence[str | None] | None = None
    """Upstream ids, one a document, where the recipe names a field for them."""

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    @classmethod
    def of(cls, texts: Iterable[str], *, first: int = 0, ids: Sequence[str | None] | None = None) -> SplitInput:
        """Return the input for a list of texts."""
        encoded = [text.encode() for text in texts]
        offsets = np.cumsum([0, *map(len, encoded)]).tolist()
        return cls(b"".join(encoded), offsets, first, ids)


class SplitRule(Protocol):
    """Pure: the same document is always in the same split."""

    def validation(self, documents: SplitInput) -> npt.NDArray[np.bool_]:
        """Return, per document, whether it is validation."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form that ``run_config.json`` records; equal for rules that decide equally."""
        ...


@dataclass(frozen=True, slots=True)
class HashMod:
    """SHA-256 of the exact text, first eight bytes big-endian, modulo; identical texts always share a split.

    >>> HashMod().validation(SplitInput.of(["Hello world.", "English document 80"])).tolist()
    [False, True]
    """

    modulo: int = 1000
    validation_when_equal: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.modulo < 1 << 64 or not 0 <= self.validation_when_equal < self.modulo:
            raise SplitError(
                "SPL011",
                "split.modulo: rule hash-mod",
                expected="1 <= modulo < 2**64 and 0 <= validation_when_equal < modulo",
                found=f"modulo {self.modulo}, validation_when_equal {self.validation_when_equal}",
            )

    def validation(self, documents: SplitInput) -> npt.NDArray[np.bool_]:
        """Return, per document, whether it is validation; about 0.6 ms a MB and 0.6 us a document."""
        view = memoryview(documents.text)
        new, edges = hashlib.sha256, documents.offsets
        digests = b"".join([new(view[i:j]).digest() for i, j in pairwise(edges)])
        heads = np.frombuffer(digests, ">u8")[::4].astype(np.uint64)
        chosen: npt.NDArray[np.bool_] = (heads % np.uint64(self.modulo)) == np.uint64(self.validation_when_equal)
        return chosen

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as the first corpora of this kind published it."""
        return {
            "hash": "sha256",
            "input": "exact utf-8 text",
            "bytes": [0, 8],
            "endian": "big",
            "modulo": self.modulo,
            "validation_when_equal": self.validation_when_equal,
        }


@dataclass(frozen=True, slots=True)
class EveryNth:
    """The last of every `n` documents of an input file.

    >>> EveryNth(2).validation(SplitInput.of("abc", first=1)).tolist()
    [True, False, True]
    """

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SplitError("SPL011", "split.n: rule every-nth", expected="n >= 1", found=self.n)

    def validation(self, documents: SplitInput) -> npt.NDArray[np.bool_]:
        """Return, per document, whether it is validation."""
        numbers = np.arange(documents.first, documents.first + len(documents))
        chosen: npt.NDArray[np.bool_] = numbers % self.n == self.n - 1
        return chosen

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"rule": "every-nth", "n": self.n}


@dataclass(frozen=True, slots=True)
class ById:
    """Documents whose upstream id is listed.

    >>> ById(frozenset({"b"})).validation(SplitInput.of("xy", ids=["a", "b"])).tolist()
    [False, True]
    """

    listed: frozenset[str]

    def validation(self, documents: SplitInput) -> npt.NDArray[np.bool_]:
        """Return, per document, whether it is validation; raises `SplitError` (SPL013) without ids."""
        if documents.ids is None:
            raise SplitError("SPL013", hint="set id in [[source]] to the field that holds it")
        return np.fromiter((one in self.listed for one in documents.ids), np.bool_, len(documents))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: the number of ids and the SHA-256 of the sorted ids, each with a newline."""
        lines = "".join(sorted(f"{one}\n" for one in self.listed)).encode()
        return {"rule": "by-id", "ids": len(self.listed), "sha256": hashlib.sha256(lines).hexdigest()}


@dataclass(frozen=True, slots=True)
class NoSplit:
    """All documents are training documents."""

    def validation(self, documents: SplitInput) -> npt.NDArray[np.bool_]:
        """Return all false."""
        return np.zeros(len(documents), np.bool_)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"rule": "none"}


def _by_id(ids: Iterable[str]) -> ById:
    listed = [] if isinstance(ids, str) else list(ids)
    if isinstance(ids, str) or not all(isinstance(one, str) for one in listed):
        raise SplitError("SPL011", "split.ids: rule by-id takes a list of ids, each a string", found=repr(ids)[:80])
    return ById(frozenset(listed))


_BUILT_IN: dict[str, Callable[..., SplitRule]] = {
    "hash-mod": HashMod,
    "every-nth": EveryNth,
    "by-id": _by_id,
    "none": NoSplit,
}
_OPTIONS = {"hash-mod": ("modulo", "validation_when_equal"), "every-nth": ("n",), "by-id": ("ids",), "none": ()}
_NEEDED = {"every-nth": "n", "by-id": "ids"}


def rule_names() -> list[str]:
    """Return the names of all rules, those of installed plug-ins too."""
    from importlib.metadata import entry_points

    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def split_rule(name: str, options: Mapping[str, Any] | None = None) -> SplitRule:
    """Return a rule by name. Raises `SplitError`: SPL010 no such rule, SPL011 options that it does not take.

    >>> split_rule("every-nth", {"n": 50})
    EveryNth(n=50)
    """
    from importlib.metadata import entry_points

    factory = _BUILT_IN.get(name)
    if factory is None:
        for point in entry_points(group=ENTRY_POINTS, name=name):
            factory = point.load()
    if factory is None:
        known = rule_names()
        near = nearest(name, known)
        hint = f'rule = "{near}"' if near else None
        raise SplitError("SPL010", expected=", ".join(known), found=name, hint=hint)
    given = dict(options or {})
    if name in _BUILT_IN:
        _check_options(name, given)
        return factory(**given)
    try:
        return factory(**given)
    except TypeError as error:
        said = str(error).removeprefix(f"{getattr(factory, '__qualname__', '')}.__init__() ")
        found = ", ".join(map(str, given)) or "no options"
        raise SplitError("SPL011", f"split.options: rule {name}: {said}", found=found) from error


def _check_options(name: str, given: Mapping[str, Any]) -> None:
    """Raise `SplitError` (SPL011), naming the recipe's key, for an option that a rule of ours does not take or lacks."""
    allowed = _OPTIONS[name]
    for key, value in given.items():
        if key not in allowed:
            expected = " and ".join(allowed) or "no options"
            hint = f"remove {key} from [split], or choose another rule"
            raise SplitError("SPL011", f"split.{key}: rule {name} takes no {key}", expected=expected, hint=hint)
        if key != "ids" and (not isinstance(value, int) or isinstance(value, bool)):
            raise SplitError("SPL011", f"split.{key}: not an integer", expected="an integer", found=value)
    needed = _NEEDED.get(name)
    if needed is not None and needed not in given:
        hint = "n = 1000" if needed == "n" else 'file = "held-out.txt"'
        raise SplitError("SPL011", f"split.{needed}: rule {name} needs {needed}", hint=f"{hint} in [split]")


def rule_from_dict(recorded: Mapping[str, Any], *, ids: Iterable[str] | None = None) -> SplitRule | None:
    """Return the rule that ``run_config.json`` records; for ``by-id`` from the list `ids`, or None without it.

    The record of ``by-id`` holds the number of ids and the hash of the sorted list: a list that is not the recorded one
    is refused. Raises `SplitError`: SPL010, SPL011, SPL014 another list.

    >>> rule_from_dict(HashMod(50).as_dict())
    HashMod(modulo=50, validation_when_equal=0)
    >>> rule_from_dict(ById(frozenset("ab")).as_dict(), ids=["b", "a"]) == ById(frozenset("ab"))
    True
    """
    if recorded.get("hash") == "sha256" and recorded.get("bytes") == [0, 8] and recorded.get("endian") == "big":
        options = {key: recorded[key] for key in ("modulo", "validation_when_equal") if key in recorded}
        return split_rule("hash-mod", options)
    name = recorded.get("rule")
    if name == "by-id" and ids is not None:
        rule = split_rule("by-id", {"ids": list(ids)})
        if rule.as_dict() != dict(recorded):
            raise SplitError("SPL014", expected=dict(recorded), found=rule.as_dict())
        return rule
    if not isinstance(name, str) or name == "by-id":
        return None
    return split_rule(name, {key: value for key, value in recorded.items() if key != "rule"})
