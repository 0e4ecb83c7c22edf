"""Whether a state may go on in an order, and where: fingerprints of what was consumed, compared by like keys of corpora."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from tokenreel.corpus.table import identity_key
from tokenreel.errors import StateError
from tokenreel.feed.state import State
from tokenreel.order.maxtext_joined import JoinedTable
from tokenreel.order.mix import MixOrder
from tokenreel.order.stream import StreamOrder
from tokenreel.spans import KEY_KINDS, CorpusKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.feed.schedule import Cursor
    from tokenreel.order.protocol import Order
    from tokenreel.spans import DocTable

HINT = "tokenreel state show STATE --run RUN"


def state_of(
    order: Order,
    cursor: Cursor,
    incomplete: tuple[str, ...] = (),
    *,
    corpora: Sequence[Corpus] = (),
    repeats: bool = False,
) -> State:
    """Return the state of a feed over `order` that stands at `cursor`; a stream's shard is named where `corpora` are given."""
    kinds = tuple(key.kind for key in order.corpora)
    facts: dict[str, Any] = {
        "name": order.name,
        "row_tokens": order.row_tokens,
        "row_ahead": order.row_ahead,
        "length": order.length,
        "corpora": [key.as_list() for key in order.corpora],
    }
    cursors: dict[str, Any] | None = None
    if isinstance(order, MixOrder):
        given = mix_cursors(order, cursor.position, repeats=repeats)
        cursors = {
            "components": [component.name for component in order.components],
            "given": given,
            "orders": [child_until(child, count) for child, count in zip(order.children, given, strict=True)],
        }
        if any(order.starts):
            cursors["starts"] = list(order.starts)
    stream: dict[str, Any] | None = None
    if isinstance(order, StreamOrder):
        stream = {"token": order.origin + _in_pass(cursor.position, order.length) * order.row_tokens}
        place = stream_place(order, cursor.position)
        if place is not None:
            stream |= {"shard": place[0], "offset": place[1]}
            if corpora and place[0] < len(corpora[0].entries):
                stream["name"] = corpora[0].entries[place[0]].name
    kind = kinds[0] if len(set(kinds)) == 1 else kinds
    digest = fingerprint_at(order, cursor.position)
    return State(digest, kind, cursor, facts, cursors, stream, incomplete)


def fingerprint_at(order: Order, position: int) -> str:
    """Return the hash of what decides the samples before `position`; past an order that repeats, of all of it."""
    length = order.length
    return order.fingerprint if length is not None and position > length else order.fingerprint_until(position)


def stream_place(order: Order, position: int) -> tuple[int, int] | None:
    """Return (shard, offset) of a stream's next token; None for other orders, and where the shards are not known."""
    if not isinstance(order, StreamOrder) or not order.shard_tokens:
        return None
    return order.where(order.origin + _in_pass(position, order.length) * order.row_tokens)


def _in_pass(position: int, length: int | None) -> int:
    """Return how far a position is in its pass over an order that repeats; the end of the first is its end."""
    return position % length if length and position > length else position


def mix_cursors(order: MixOrder, position: int, *, repeats: bool = False) -> list[int]:
    """Return the samples that each component has given, those before the mixture began among them."""
    at = _in_pass(position, order.length) if repeats else position
    given: list[int] = order.cursors_at([at])[0].tolist()
    return given


def child_until(child: Order, given: int) -> str:
    """Return the hash of what decides the samples that a component has given; all of it where it began again."""
    length = child.length
    return child.fingerprint if length is not None and given > length else child.fingerprint_until(given)


def go_on(state: State, order: Order, corpora: Sequence[Corpus], *, repeats: bool = False) -> tuple[Order, Cursor]:
    """Return the order and the cursor that a state goes on with, or raise `StateError`.

    It may where `fingerprint_until` of what was consumed is equal. Corpora's keys are compared by the strongest kind that
    state and corpus both have: a recorded identity with one computed now, else tables with tables. A stream goes on from
    its token with rows of any length. STA003: beyond the order's end. STA005: a corpus is another one. STA004: the order is.
    """
    if isinstance(order, StreamOrder) and state.order.get("name") == order.name and state.stream is not None:
        return _stream(state, order, corpora, repeats=repeats)
    position = state.cursor.position
    order = _with_starts(state, order)
    _check_length(order, position, repeats=repeats)
    if fingerprint_at(order, position) == state.fingerprint:
        return order, state.cursor
    lowered = _alike(state, order, corpora)
    if lowered is not None and fingerprint_at(lowered, position) == state.fingerprint:
        return order, state.cursor
    raise _another(state, lowered or order, corpora)


def _check_length(order: Order, position: int, *, repeats: bool = False) -> None:
    length = order.length
    if length is not None and position > length and not repeats:
        raise StateError("STA003", expected=f"at most {length} samples", found=position, hint=HINT)


def _with_starts(state: State, order: Order) -> Order:
    """Return a mixture begun from the cursors that a state says it was begun from."""
    said = state.cursors
    if not isinstance(order, MixOrder) or said is None or not said.get("starts"):
        return order
    names = [component.name for component in order.components]
    known = dict(zip(said.get("components", ()), said["starts"], strict=False))
    return replace(order, starts=tuple(known.get(name, 0) for name in names))


def _stream(state: State, order: StreamOrder, corpora: Sequence[Corpus], *, repeats: bool) -> tuple[Order, Cursor]:
    """Return the stream from its next token on; rows of another length begin there."""
    said, position = state.order, state.cursor.position
    rows, ahead, token = said.get("row_tokens"), said.get("row_ahead"), (state.stream or {}).get("token")
    if type(rows) is not int or type(ahead) is not int or type(token) is not int:
        expected = "whole numbers: row_tokens, row_ahead, token"
        raise StateError("STA001", "stream", expected=expected, found=str(dict(state.stream or {})))
    lowered = _alike(state, order, corpora) or order
    if not isinstance(lowered, StreamOrder):
        raise TypeError(lowered)
    origin = token - _in_pass(position, said.get("length")) * rows
    if 0 <= origin <= order.key.tokens and rows >= 1 and ahead in (0, 1):
        before = replace(lowered, row_tokens=rows, row_ahead=ahead, origin=origin)
        if before.fingerprint == state.fingerprint:
            if rows != order.row_tokens:
                position, origin = divmod(token, order.row_tokens)
            now = replace(order, origin=origin)
            _check_length(now, position, repeats=repeats)
            return now, replace(state.cursor, position=position)
    raise _another(state, lowered, corpora)


# -- corpora by like keys ---------------------------------------------------------------------------------------------


def _alike(state: State, order: Order, corpora: Sequence[Corpus]) -> Order | None:
    """Return the order with its corpora's keys of the kinds that the state has; None where they are already."""
    changes: dict[CorpusKey, CorpusKey] = {}
    kinds = [state.kind] * len(order.corpora) if isinstance(state.kind, str) else list(state.kind)
    for key, kind, corpus in zip(order.corpora, kinds, corpora, strict=False):
        if kind != key.kind:
            changes[key] = key_of_kind(corpus, key, kind)
    return rekeyed(order, changes) if any(old != new for old, new in changes.items()) else None


def key_of_kind(corpus: Corpus, key: CorpusKey, kind: str) -> CorpusKey:
    """Return a corpus's key of another kind; `key` itself where it has none. An identity is computed: it reads everything."""
    if kind not in KEY_KINDS:
        raise StateError("STA001", "kind", expected=", ".join(KEY_KINDS), found=kind)
    if kind == "identity":
        return identity_key(corpus, corpus.identity().digest)
    if kind == "files":
        made = corpus.stream_table().key
    else:
        bare = replace(corpus, recorded_identity={})
        made = bare.sequences().key if key.documents != len(corpus) else bare.table().key
    return made if made.kind == kind else key


@dataclass(frozen=True, slots=True, eq=False)
class _Keyed:
    """A table under another key."""

    table: DocTable
    key: CorpusKey

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


def rekeyed(value: Any, changes: Mapping[CorpusKey, CorpusKey]) -> Any:
    """Return an order with some keys of corpora replaced, in it and in the orders it is made of."""
    if isinstance(value, CorpusKey):
        return changes.get(value, value)
    if isinstance(value, JoinedTable):
        tables = tuple(_Keyed(table, changes[table.key]) if table.key in changes else table for table in value.tables)
        return value if tables == value.tables else JoinedTable(cast("tuple[DocTable, ...]", tables))
    if isinstance(value, tuple):
        made = [rekeyed(item, changes) for item in value]
        return tuple(made) if any(new is not old for new, old in zip(made, value, strict=True)) else value
    if not is_dataclass(value) or isinstance(value, type) or not (hasattr(value, "corpora") or hasattr(value, "order")):
        return value
    new = {item.name: rekeyed(getattr(value, item.name), changes) for item in fields(value) if item.init}
    changed = {name: one for name, one in new.items() if one is not getattr(value, name)}
    return replace(value, **changed) if changed else value


def check_corpora(order: Order, corpora: Sequence[Corpus]) -> None:
    """Raise `StateError` (STA005) unless each corpus is the one that an order was made over, as far as keys tell."""
    for number, (key, corpus) in enumerate(zip(order.corpora, corpora, strict=True)):
        candidates = _keys(corpus)
        alike = [one for one in candidates if one.kind == key.kind]
        if key in alike:
            continue
        if alike or all(one.tokens != key.tokens for one in candidates):
            raise StateError(
                "STA005",
                f"corpus {number} of {order.name}",
                path=corpus.path,
                expected=_told(key),
                found=_told((alike or candidates)[0]),
                hint="make the order again from the run file",
            )


def _keys(corpus: Corpus) -> list[CorpusKey]:
    bare = replace(corpus, recorded_identity={})
    tables = [corpus.stream_table()]
    if corpus.boundary.known:
        tables += [corpus.table(), bare.table(), corpus.sequences()]
    return [table.key for table in tables]


# -- what differs -----------------------------------------------------------------------------------------------------


def _another(state: State, order: Order, corpora: Sequence[Corpus]) -> StateError:
    """Return the error that says in what a state's order is not this one."""
    said = state.order
    differs = []
    if said.get("name", order.name) != order.name:
        differs.append(f"the order was {said['name']}, and is {order.name}")
    for name, word in (("row_tokens", "tokens a row"), ("row_ahead", "tokens ahead")):
        if said.get(name, getattr(order, name)) != getattr(order, name):
            differs.append(f"{said[name]} {word}, now {getattr(order, name)}")
    changed, added = _corpora_changed(said.get("corpora"), order, corpora)
    only_corpora = not differs and bool(changed)
    differs += changed
    if not differs:
        differs += added + _cursors_changed(state, order)
    if not differs and said.get("length", order.length) != order.length:
        differs.append(f"{said['length']} samples, now {order.length}")
    if not differs:
        differs.append(f"parameters of {order.name}: seed, weights, phases or others that no state tells apart")
    text = "; ".join(differs[:6]) + (f"; and {len(differs) - 6} more" if len(differs) > 6 else "")
    return StateError(
        "STA005" if only_corpora else "STA004",
        text,
        expected=f"fingerprint {state.fingerprint[:16]} at sample {state.cursor.position}",
        found=fingerprint_or_none(order, state.cursor.position),
        hint="tokenreel state migrate STATE RUN --from OLD_RUN",
    )


def fingerprint_or_none(order: Order, position: int) -> str:
    """Return the start of a fingerprint, for a message."""
    length = order.length
    if length is not None and position > length:
        return f"an order of {length} samples"
    return fingerprint_at(order, position)[:16]


def _corpora_changed(said: Any, order: Order, corpora: Sequence[Corpus]) -> tuple[list[str], list[str]]:
    """Return what is said of corpora that are not what they were, and of those that came or went at the end."""
    if not isinstance(said, list):
        return [], []
    keys = order.corpora
    changed = []
    for number, (was, key) in enumerate(zip(said, keys, strict=False)):
        if isinstance(was, list) and len(was) == len(key.as_list()) and was != key.as_list():
            path = corpora[number].path if number < len(corpora) else ""
            changed.append(f"corpus {number} ({path}) was {_told(CorpusKey(*was))}, and is {_told(key)}")
    added = [f"{len(said)} corpora, now {len(keys)}"] if len(said) != len(keys) else []
    return changed, added


def _cursors_changed(state: State, order: Order) -> list[str]:
    said = state.cursors
    if not isinstance(order, MixOrder) or not said or (order.length or state.cursor.position) < state.cursor.position:
        return []
    names = [component.name for component in order.components]
    here = dict(zip(names, mix_cursors(order, state.cursor.position), strict=True))
    out = []
    for name, given in zip(said.get("components", ()), said.get("given", ()), strict=False):
        if name not in here:
            out.append(f"component {name} is not there any more")
        elif here[name] != given:
            out.append(f"component {name} had given {given} samples, and would have given {here[name]} here")
    at = state.cursor.position
    if out:
        out.append(f"weights may change from sample {at} on, in a phase of their own, and not before it")
    return out


def _told(key: CorpusKey) -> str:
    return f"{key.documents:,} documents, {key.tokens:,} tokens, {key.kind} {key.digest[:12]}"
