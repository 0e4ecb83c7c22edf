"""`Packing`: how documents are put into rows, and what becomes of those longer than a row. Nothing is decided silently."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tokenreel.errors import OrderError, nearest

WINDOW = 1 << 20
"""Documents that are planned together."""
WIDEST = 1 << 24
"""The longest row whose capacities are searched one by one."""

# Rows that a document gives of itself, closed form. L is its length, S what a row takes.
NONE, CHUNKS, WHOLE_CHUNKS, FIRST, FITTING, FULL, EXACT, OVER = range(8)
"""No row; ceil(L/S); L // S; 1; 1 where L <= S; 1 where L >= S; 1 where L == S; L // S where L > S. An empty document
never gives one."""

# What of a document stands in a packed row.
REST, CLIP, LAST, POWER = range(4)
"""What whole rows leave, as far as there is room; its beginning, as far as there is room; its end; the part of its length in one power of two."""

OVERSIZE = ("split", "truncate", "drop", "error")
WAIT = "wait"
"""crop: what nanochat does with a document longer than a row; it waits until it is the shortest."""
TAILS = ("pad", "drop")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "concat": ("tail",),
    "flat": (),
    "bestfit": ("oversize",),
    "firstfit": ("oversize", "open_rows"),
    "one-per-row": ("oversize",),
    "truncate": (),
    "crop": ("oversize", "buffer", "refill", "tail"),
    "bos-aligned": ("longest", "tail"),
    "levanter-greedy": ("oversize", "segments", "keep"),
    "decompose": ("shortest",),
}
POLICIES = tuple(_OPTIONS)
NAMES = ("oversize", "open_rows", "buffer", "refill", "segments", "keep", "longest", "shortest", "tail")
"""Options that some policy has."""
PLANNED = frozenset({"bestfit", "firstfit", "crop", "bos-aligned", "levanter-greedy", "decompose"})
"""Policies whose rows follow from no formula."""
OWN_AHEAD = frozenset({"crop", "bos-aligned"})
"""Policies whose rows take one token more than they have inputs: their own last label, which no other row has."""
_DEFAULTS = {"open_rows": 64, "buffer": 1000, "refill": 1, "segments": 64, "keep": "first", "shortest": 1}
_CALL = re.compile(r"([a-z-]+)\((\d{1,9})\)")
_COUNT = {"firstfit": "open_rows", "crop": "buffer", "levanter-greedy": "segments", "bos-aligned": "longest",
          "decompose": "shortest"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A policy with all its options; those that it does not have are None. See `docs/packing.md` for what each costs.

    Raises `OrderError`: PCK020 for a policy, an option or a value that cannot be, PCK021 where `oversize` is not said.

    >>> Packing.of("firstfit(8)", 2048, oversize="split")
    Packing(policy='firstfit', row_tokens=2048, oversize='split', open_rows=8, buffer=None, refill=None, segments=None,
            keep=None, longest=None, shortest=None, tail=None, window=1048576)
    >>> Packing.of("bestfit", 2048)
    Traceback (most recent call last):
    tokenreel.errors.OrderError: PCK021 bestfit: documents longer than a row (expected oversize = split, truncate, drop, error)
      try: oversize = "split"; pack stats: --oversize split
    """

    policy: str
    row_tokens: int
    oversize: str | None = None
    """What becomes of a document longer than a row takes: ``split`` into rows, ``truncate``, ``drop``, or ``error``; crop has
    ``wait`` too."""
    open_rows: int | None = None
    """firstfit: rows that are filled at a time."""
    buffer: int | None = None
    """crop: documents that wait to be chosen from."""
    refill: int | None = None
    """crop: documents that are read at a time when fewer than `buffer` wait (nanochat: 128, what it tokenises at once)."""
    segments: int | None = None
    """levanter-greedy: most documents of a row; 0 is any number."""
    keep: str | None = None
    """levanter-greedy: which end of a truncated document stays, ``first`` or ``last``."""
    longest: int | None = None
    """bos-aligned: most tokens of a document; all that a row takes where it is left out."""
    shortest: int | None = None
    """decompose: the least power of two; what is left below it is lost, and counted."""
    tail: str | None = None
    """concat, crop, bos-aligned: the last row of a pass, where documents do not fill it: ``pad``, or ``drop``. Unless it is
    said concat pads, and the others drop: neither nanochat nor modded-nanogpt has padding."""
    window: int = WINDOW
    """Documents planned together."""

    @classmethod
    def of(cls, policy: str, row_tokens: int, **options: object) -> Packing:
        """Make a policy from its name, ``firstfit(8)`` for one with its number, and options with their defaults."""
        called = _CALL.fullmatch(policy)
        if called and called[1] in _COUNT and options.get(_COUNT[called[1]]) is None:
            policy, options = called[1], {**options, _COUNT[called[1]]: int(called[2])}
        given = {name: value for name, value in options.items() if value is not None}
        mine = _OPTIONS.get(policy, ())
        filled = {name: value for name, value in _DEFAULTS.items() if name in mine}
        if policy == "bos-aligned":
            filled["longest"] = row_tokens + 1
        if "tail" in mine:
            filled["tail"] = "drop" if policy in OWN_AHEAD else "pad"
        return cls(policy=policy, row_tokens=row_tokens, **{**filled, **given})  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        if self.policy not in _OPTIONS:
            near = nearest(self.policy, POLICIES)
            said = f"there is no policy {self.policy!r}" + (f"; did you mean {near!r}?" if near else "")
            raise OrderError("PCK020", said, expected=", ".join(POLICIES), found=self.policy)
        mine = _OPTIONS[self.policy]
        for name in NAMES:
            if name not in mine and getattr(self, name) is not None:
                raise OrderError("PCK020", f"{self.policy} has no {name}", expected=", ".join(mine) or "no options")
        self._check_numbers()
        answers = (*OVERSIZE, WAIT) if self.policy == "crop" else OVERSIZE
        if "oversize" in mine and self.oversize not in answers:
            expected = f"oversize = {', '.join(answers)}"
            code = "PCK021" if self.oversize is None else "PCK020"
            message = f"{self.policy}: documents longer than a row"
            hint = 'oversize = "split"; pack stats: --oversize split'
            raise OrderError(code, message, expected=expected, found=self.oversize, hint=hint)
        if "keep" in mine and self.keep not in ("first", "last"):
            raise OrderError("PCK020", "keep", expected="first or last", found=self.keep)
        if "tail" in mine and self.tail not in TAILS:
            raise OrderError("PCK020", "tail", expected="pad or drop", found=self.tail)

    def _check_numbers(self) -> None:
        widest = WIDEST if self.policy in ("bestfit", "crop") else (1 << 31) - 1
        limits: dict[str, tuple[int, int]] = {
            "row_tokens": (1, widest),
            "open_rows": (1, 1 << 16),
            "buffer": (1, WINDOW),
            "refill": (1, WINDOW),
            "segments": (0, 1 << 31),
            "longest": (1, self.takes),
            "shortest": (1, self.row_tokens),
            "window": (64, WINDOW),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise OrderError("PCK020", f"{self.policy}: {name}", expected=f"{least} .. {most}", found=value)
        if self.window % 64:
            raise OrderError("PCK020", "window", expected="a multiple of 64", found=self.window)
        for name in ("row_tokens", "shortest") if self.policy == "decompose" else ():
            if getattr(self, name) & (getattr(self, name) - 1):
                raise OrderError("PCK020", f"decompose: {name}", expected="a power of two", found=getattr(self, name))

    @property
    def own_ahead(self) -> bool:
        """Whether a row's last label is a token of the row itself, one more than its inputs, and never another row's."""
        return self.policy in OWN_AHEAD

    @property
    def takes(self) -> int:
        """Tokens of documents that a full row takes: its inputs, and the last label where that is its own."""
        return self.row_tokens + self.own_ahead

    def in_rows_of(self, row_tokens: int) -> Packing:
        """Return the same packing for another row; a document's most tokens stay the whole row, or become it.

        >>> Packing.of("bos-aligned", 16).in_rows_of(8).longest
        9
        """
        if self.longest is None:
            return replace(self, row_tokens=row_tokens)
        whole = row_tokens + self.own_ahead
        longest = whole if self.longest == self.takes else min(self.longest, whole)
        return replace(self, row_tokens=row_tokens, longest=longest)

    @property
    def planned(self) -> bool:
        """Whether its rows have to be planned; else they follow from the lengths alone."""
        return self.policy in PLANNED

    @property
    def direct(self) -> int:
        """Which rows a document gives of itself (`NONE` .. `EXACT`)."""
        if self.policy in ("one-per-row", "truncate"):
            kinds = {"split": CHUNKS, "truncate": FIRST, None: FIRST}
            return kinds.get(self.oversize, FITTING)
        if self.policy == "decompose":
            return WHOLE_CHUNKS
        if self.policy == "crop":
            return OVER if self.oversize == "split" else NONE
        if self.policy in ("bestfit", "firstfit", "levanter-greedy") and self.oversize == "split":
            return WHOLE_CHUNKS
        if self.policy in ("bestfit", "firstfit"):
            return FULL if self.oversize == "truncate" else EXACT
        return NONE

    @property
    def piece(self) -> int:
        """What of a document stands in a packed row (`REST` .. `POWER`)."""
        if self.policy == "decompose":
            return POWER
        if self.policy == "levanter-greedy" and self.keep == "last":
            return REST if self.oversize == "split" else LAST
        return CLIP if self.direct == NONE else REST

    def as_dict(self) -> dict[str, object]:
        """Return policy and the options it has: JSON-able, what enters fingerprints and names of plans."""
        said: dict[str, object] = {"policy": self.policy, "row_tokens": self.row_tokens}
        said |= {name: getattr(self, name) for name in _OPTIONS[self.policy]}
        return said | ({"window": self.window} if self.planned else {})

    def __str__(self) -> str:
        number = getattr(self, _COUNT.get(self.policy, ""), None)
        called = f"({number})" if number is not None and number != self._default() else ""
        return f"{self.policy}{called}" + (f", {self.oversize}" if self.oversize else "")

    def _default(self) -> object:
        return self.takes if self.policy == "bos-aligned" else _DEFAULTS.get(_COUNT[self.policy], "")


def needs_oversize(policy: str) -> bool:
    """Return whether a policy, by its name with or without a number, has to be told what to do with long documents.

    >>> needs_oversize("firstfit(8)"), needs_oversize("concat")
    (True, False)
    """
    return "oversize" in _OPTIONS.get(policy.partition("(")[0], ())
