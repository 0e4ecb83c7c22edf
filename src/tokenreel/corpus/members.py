"""Which members of a numbered set of shards are not there, told by names alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OF = re.compile(r"(?<![0-9])(\d+)([-_]of[-_])(\d+)(?![0-9])")
_HASH = re.compile(r"^-[0-9a-f]{16}(?![0-9a-f])")
"""What datasets on the hub have behind the number: another for each member."""
# A number of its own, or behind a word: `part-07`, `part07`, `train_000001`; not one inside a hash or a version.
_NUMBER = re.compile(r"(?:(?<=[A-Za-z]{3})|(?<![0-9A-Za-z]))\d+(?![0-9A-Za-z])")
_YEAR = re.compile(r"(?:19|20)\d\d")
FEW = 3
"""Members that make a set whose gaps are worth a word."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A set of shards that is not what the names of its members say."""

    name: str
    """Of its first member, with ``*`` for the number."""
    first: str
    """A member that is there."""
    said: int
    """Members that there should be."""
    there: int
    missing: tuple[int, ...]
    surplus: tuple[str, ...] = ()
    """Members that cannot be of this set."""

    @property
    def numbers(self) -> str:
        """The missing numbers, the first few of many."""
        few = ", ".join(map(str, self.missing[:8]))
        return few + (f" and {len(self.missing) - 8} more" if len(self.missing) > 8 else "")


MOST = 1000
"""Missing numbers that are listed: a name may say any number of members."""


def of_sets(names: Iterable[str]) -> Iterator[Incomplete]:
    """Yield every set named ``NAME-00003-of-00012`` that lacks members, or has some that cannot be its own.

    Members count from 0 or from 1. Two sets of one name and different sizes in a folder are each other's surplus: they
    are two versions of one corpus, or what is left of one. Cost: O(names), whatever a name says.

    >>> [(one.name, one.missing) for one in of_sets(["train-00000-of-00003", "train-00002-of-00003"])]
    [('train-*-of-00003', (1,))]
    >>> list(of_sets(["a-1-of-2", "a-2-of-2", "b-0-of-1"]))
    []
    """
    sets: dict[tuple[str, str, str], dict[int, str]] = {}
    twice: dict[tuple[str, str, str], list[str]] = {}
    versions: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for name in names:
        folder, slash, last = name.rpartition("/")
        found = list(_OF.finditer(last))
        if not found:
            continue
        match = found[-1]
        before, after = folder + slash + last[: match.start()], match[2] + "*" + _HASH.sub("", last[match.end() :])
        key = (before, match[3], after)
        if key not in sets:
            versions.setdefault((before, after), []).append(key)
        members = sets.setdefault(key, {})
        if members.setdefault(int(match[1]), name) != name:
            twice.setdefault(key, []).append(name)
    for key, members in sets.items():
        before, said, after = key
        size = int(said)
        start = 1 if 0 not in members and size in members else 0
        surplus = [
            *twice.get(key, []),
            *(name for number, name in members.items() if not start <= number < start + size),
        ]
        mine = [number for number in members if start <= number < start + size]
        lacking = size - len(mine)
        rivals = versions[before, after]
        if len(rivals) > 1 and rivals[0] != key:
            surplus += [members[number] for number in sorted(members) if members[number] not in surplus]
        if lacking or surplus:
            missing = _absent(set(mine), start, size)
            shown = f"{before}*{after.replace('*', said, 1)}"
            yield Incomplete(shown, members[min(members)], size, len(mine), missing, tuple(surplus))


def _absent(members: set[int], start: int, size: int) -> tuple[int, ...]:
    last = start + min(size, MOST + len(members))
    return tuple(number for number in range(start, last) if number not in members)[:MOST]


def gaps(names: Iterable[str]) -> Iterator[Incomplete]:
    """Yield every run of numbered names with numbers missing between its first and its last.

    A set may begin anywhere and end anywhere: people take part of one on purpose. Where more is missing than there is,
    or fewer than `FEW` are there, the numbers are no run; years and what stands behind them are dates.

    >>> [(one.name, one.missing) for one in gaps(["part-0000", "part-0001", "part-0003"])]
    [('part-*', (2,))]
    >>> [(one.name, one.missing) for one in gaps(["part-0-00000", "part-1-00000", "part-3-00000"])]
    [('part-*-00000', (2,))]
    >>> list(gaps(["web-000007", "web-000008", "web-000009"])), list(gaps(["s-100", "s-200", "s-300"]))
    ([], [])
    """
    runs: dict[str, dict[int, str]] = {}
    for name in names:
        at = name.rfind("/") + 1
        if _OF.search(name, at):
            continue
        for match in _NUMBER.finditer(name, at):
            if _YEAR.fullmatch(match[0]):
                break
            if len(match[0]) < 19:  # longer ones are hashes
                runs.setdefault(name[: match.start()], {}).setdefault(int(match[0]), name)
    for before, members in runs.items():
        low, high = min(members), max(members)
        size = high - low + 1
        if len(members) < FEW or size == len(members) or size - len(members) >= len(members):
            continue
        first = members[low]
        number = _NUMBER.match(first, len(before))
        shown = f"{before}*{first[number.end() :] if number else ''}"
        yield Incomplete(shown, first, size, len(members), _absent(set(members), low, size))
