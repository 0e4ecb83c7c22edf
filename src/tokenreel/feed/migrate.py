"""A state taken into another order on purpose: a source was withdrawn, or changed; and what repeats or is lost by it.

Nothing repeats where cursors can be kept: a mixture goes on with every component that is still the same at its own sample,
a stream at its token (at the next shard, where its own is gone). Any other order has to be begun somewhere: at the sample
that is given, else where as many samples have been consumed; then what both runs read, and what neither reads, is counted
token by token, which takes the old run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import StateError
from tokenreel.feed.coverage import NONE, Runs, by_name, moved, read_by
from tokenreel.feed.going_on import child_until, fingerprint_at, go_on, state_of
from tokenreel.feed.schedule import Cursor
from tokenreel.order.mix import MixOrder
from tokenreel.order.stream import StreamOrder

if TYPE_CHECKING:
    from tokenreel.feed.state import State
    from tokenreel.index.assemble import Assembled


UNTOLD = "what repeats or is lost is not told: it takes the old run"


@dataclass(frozen=True, slots=True)
class Migration:
    """The new state, and what it means."""

    state: State
    how: str
    """``as it is``, ``cursors``, ``stream`` or ``sample``."""
    repeats: int | None
    """Tokens that were read and will be read again, in this pass over the new order; None: not told."""
    lost: int | None
    """Tokens of the new order's corpora that were not read and will not be, in this pass; None: not told."""
    notes: tuple[str, ...] = ()
    sources: dict[str, dict[str, int]] | None = None
    """By corpus of the new run, where tokens were counted: read, repeats, lost."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "how": self.how,
            "repeats": self.repeats,
            "lost": self.lost,
            "notes": list(self.notes),
            "sources": self.sources,
            "state": self.state.as_dict(),
        }


def migrate(state: State, new: Assembled, old: Assembled | None = None, *, at_sample: int | None = None) -> Migration:
    """Return a state for `new`, both orders prepared; `old` is the run that the state is of, where it can still be opened.

    Raises `StateError`: STA003 `at_sample` beyond the end, STA004 an `old` that is not the state's run, or an order that has
    to be begun somewhere and neither `old` nor `at_sample` says where.
    """
    if old is not None:
        go_on(state, old.order, old.corpora)
    if at_sample is None:
        try:
            order, cursor = go_on(state, new.order, new.corpora)
        except StateError as error:
            if error.code not in ("STA003", "STA004", "STA005"):
                raise
        else:
            return Migration(state_of(order, cursor, state.incomplete, corpora=new.corpora), "as it is", 0, 0)
        if isinstance(new.order, MixOrder) and state.cursors is not None:
            return _mixture(state, new, new.order, old)
        if isinstance(new.order, StreamOrder) and "name" in (state.stream or {}):
            return _stream(state, new, new.order, old)
    return _begun(state, new, old, at_sample)


def _mixture(state: State, new: Assembled, order: MixOrder, old: Assembled | None) -> Migration:
    """Begin the new mixture with every component at its own cursor."""
    said = state.cursors or {}
    names, given, until = (list(said.get(key, ())) for key in ("components", "given", "orders"))
    had = {name: (count, digest) for name, count, digest in zip(names, given, until, strict=False)}
    starts, notes, exact = [], [], True
    for component in order.components:
        name, (count, digest) = component.name, had.pop(component.name, (0, None))
        if digest is not None and child_until(component.order, count) == digest:
            starts.append(count)
            continue
        starts.append(0)
        if digest is None:
            notes.append(f"{name} is new: it begins at its first sample")
        else:
            exact = exact and count == 0
            notes.append(f"{name} is not the order it was: it begins at its first sample; it had given {count} samples")
    for name, (count, _) in had.items():
        rest = _rest(old, name)
        notes.append(f"{name} is withdrawn: it had given {count} samples{rest}")
    begun = replace(order, starts=tuple(starts))
    cursor = Cursor(0, state.cursor.step, state.cursor.tokens)
    notes.append(f"samples count from 0 again: what was sample {state.cursor.position} is sample 0")
    none = 0 if exact else None
    return Migration(
        state_of(begun, cursor, state.incomplete, corpora=new.corpora), "cursors", none, none, tuple(notes)
    )


def _rest(old: Assembled | None, name: str) -> str:
    if old is None or not isinstance(old.order, MixOrder):
        return ""
    length = next((part.order.length for part in old.order.components if part.name == name), None)
    return "" if length is None else f" of {length}"


def _stream(state: State, new: Assembled, order: StreamOrder, old: Assembled | None) -> Migration:
    """Go on at the token where the stream stood, in the shard of that name, or at the next shard's first."""
    said, corpus = state.stream or {}, new.corpora[0]
    name, offset = str(said["name"]), int(said["offset"])
    shards = [entry.name for entry in corpus.entries]
    notes: tuple[str, ...] = ()
    if name in shards and offset <= corpus.shard_tokens[shards.index(name)]:
        number = shards.index(name)
    else:
        after = [k for k, other in enumerate(shards) if other.encode() > name.encode()]
        number, offset = (after[0], 0) if after else (len(shards) - 1, corpus.shard_tokens[-1] if shards else 0)
        where = f"begins {shards[after[0]]}" if after else "is at the end of the stream"
        notes = (f"the shard {name} is withdrawn: the next token {where}",)
    token = order.at(number, offset)
    position, origin = divmod(token, order.row_tokens)
    begun = replace(order, origin=origin)
    cursor = Cursor(min(position, begun.length), state.cursor.step, state.cursor.tokens)
    made = state_of(begun, cursor, state.incomplete, corpora=new.corpora)
    if old is None:
        return Migration(made, "stream", None, None, (*notes, UNTOLD))
    read = moved(_run(0, int(said["token"])), old.corpora[0], corpus)
    before, later = _run(0, token), _run(token, corpus.tokens)
    counts = {"read": read.tokens, "repeats": read.shared(later), "lost": before.tokens - before.shared(read)}
    return Migration(made, "stream", counts["repeats"], counts["lost"], notes, {new.names[0]: counts})


def _run(begin: int, end: int) -> Runs:
    return Runs.of(np.array([begin], dtype=np.int64), np.array([end], dtype=np.int64))


def _begun(state: State, new: Assembled, old: Assembled | None, at_sample: int | None) -> Migration:
    """Begin another order at a sample, and count what repeats and is lost where the old run tells."""
    order, consumed = new.order, state.cursor.position
    if at_sample is None and old is None:
        raise StateError(
            "STA004",
            "the orders share no samples, so the new one has to be begun somewhere",
            expected="the old run, or a sample to begin at",
            found=f"fingerprint {fingerprint_or_end(new, consumed)}",
            hint="tokenreel state migrate STATE RUN --from OLD_RUN",
        )
    position = at_sample if at_sample is not None else _as_far(consumed, old, new)
    if order.length is not None and position > order.length:
        raise StateError("STA003", "at_sample", expected=f"at most {order.length}", found=position)
    cursor = Cursor(position, state.cursor.step, state.cursor.tokens)
    made = state_of(order, cursor, state.incomplete, corpora=new.corpora)
    note = f"{order.name} begins at sample {position}"
    if old is None or order.length is None:
        return Migration(made, "sample", None, None, (note, UNTOLD))
    sources = _counted(new, old, position, consumed)
    repeats, lost = (sum(one[key] for one in sources.values()) for key in ("repeats", "lost"))
    return Migration(made, "sample", repeats, lost, (note,), sources)


def _as_far(consumed: int, old: Assembled | None, new: Assembled) -> int:
    """Return the sample of the new order that as great a part of it lies before as of the old one."""
    was, now = old.order.length if old else None, new.order.length
    if not was or now is None:
        return consumed if now is None else min(consumed, now)
    return min(now, (consumed * now + was // 2) // was)


def _counted(new: Assembled, old: Assembled, position: int, consumed: int) -> dict[str, dict[str, int]]:
    length = new.order.length or 0
    was = by_name(old.names, read_by(old.order, 0, min(consumed, old.order.length or consumed)))
    before = by_name(new.names, read_by(new.order, 0, position))
    later = by_name(new.names, read_by(new.order, position, length))
    corpora_old, corpora_new = (
        dict(zip(old.names, old.corpora, strict=True)),
        dict(zip(new.names, new.corpora, strict=True)),
    )
    out = {}
    for name, corpus in corpora_new.items():
        read = moved(was[name], corpora_old[name], corpus) if name in was else NONE
        covered = read.joined(later[name])
        out[name] = {
            "read": read.tokens,
            "repeats": read.shared(later[name]),
            "lost": before[name].tokens - before[name].shared(covered),
        }
    return out


def fingerprint_or_end(made: Assembled, position: int) -> str:
    """Return the start of a fingerprint at a position, for a message."""
    length = made.order.length
    at = position if length is None else min(position, length)
    return fingerprint_at(made.order, at)[:16]
