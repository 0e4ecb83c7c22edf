"""`State`: a feed's cursor and what it is a cursor of, as a small JSON-able dict; and whether it may go on in an order.

Always there: ``format``, ``fingerprint`` (of what decides the samples consumed so far), ``kind`` (which keys of corpora
entered it, strongest first: identity, tables, files), ``position``, ``step``, ``tokens``. ``order`` says what the order was, so
that a refusal can say what differs. A mixture adds ``cursors`` by component, a stream ``stream`` (shard and token offset),
and a corpus that was accepted without its COMPLETE.json adds ``incomplete``. Rank, world, workers and batch size are not
in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StateError
from tokenreel.feed.schedule import Cursor

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

FORMAT = "tokenreel-state-1"
_FAMILY = "tokenreel-state-"
KNOWN = ("format", "fingerprint", "kind", "position", "step", "tokens", "order", "cursors", "stream", "incomplete")
MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class State:
    """A state, checked for form; `as_dict` gives the dict it came from."""

    fingerprint: str
    kind: str | tuple[str, ...]
    """Kind of the corpora's keys: one where they are of one kind, else one a corpus."""
    cursor: Cursor
    order: Mapping[str, Any] = field(default_factory=dict)
    """What the order was: name, row_tokens, row_ahead, length, corpora."""
    cursors: Mapping[str, Any] | None = None
    """mix: names of components, samples each had given, the hash of what decides them, and samples given before it began."""
    stream: Mapping[str, Any] | None = None
    """stream: its next token, counted over the corpus, and as shard, offset and the shard's name where they are known."""
    incomplete: tuple[str, ...] = ()
    """Corpora taken without their COMPLETE.json."""

    def as_dict(self) -> dict[str, Any]:
        """Return the dict that JSON keeps."""
        said: dict[str, Any] = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "kind": self.kind if isinstance(self.kind, str) else list(self.kind),
            "position": self.cursor.position,
            "step": self.cursor.step,
            "tokens": self.cursor.tokens,
        }
        if self.order:
            said["order"] = dict(self.order)
        if self.cursors is not None:
            said["cursors"] = dict(self.cursors)
        if self.stream is not None:
            said["stream"] = dict(self.stream)
        if self.incomplete:
            said["incomplete"] = list(self.incomplete)
        return said


def parse_state(said: object, path: object = None) -> State:
    """Return a state from its dict, its JSON text, or a `State`.

    Raises `StateError`: STA001 not a state (not JSON, a key missing or of the wrong type), STA002 one of a newer version,
    STA007 another system's.
    """
    if isinstance(said, State):
        return said
    if isinstance(said, str | bytes):
        said = parse_json(said.encode() if isinstance(said, str) else said, path)
    if not isinstance(said, Mapping):
        raise StateError("STA001", path=path, expected="an object", found=type(said).__name__)
    name = said.get("format")
    if name != FORMAT:
        _refuse_format(said, name, path)
    unknown = sorted(set(map(str, said)) - set(KNOWN))
    if unknown:
        raise StateError("STA001", f"unknown key {unknown[0]}", path=path, expected=", ".join(KNOWN), found=unknown[0])
    cursor = Cursor(*(_count(said, key, path) for key in ("position", "step", "tokens")))
    kind: Any = said.get("kind")
    kinds: tuple[Any, ...] = tuple(kind) if isinstance(kind, list | tuple) else (kind,)
    if not kinds or not all(isinstance(one, str) for one in kinds):
        raise StateError("STA001", "kind", path=path, expected="a kind of keys, or one a corpus", found=str(kind))
    tables = {key: _table(said, key, path) for key in _TABLES}
    lacking = said.get("incomplete", [])
    if not isinstance(lacking, list | tuple) or not all(isinstance(one, str) for one in lacking):
        raise StateError("STA001", "incomplete", path=path, expected="names of corpora", found=str(lacking))
    return State(
        _digest(said, path),
        kind if isinstance(kind, str) else kinds,
        cursor,
        tables["order"] or {},
        tables["cursors"],
        tables["stream"],
        tuple(lacking),
    )


def load_state(path: str | os.PathLike[str]) -> State:
    """Return a state from a file; raises as `parse_state`, and `StorageError` (STO001, STO002)."""
    return parse_state(read_text(path), path)


def read_text(path: str | os.PathLike[str]) -> bytes:
    """Return a file's bytes; raises `StorageError` (STO001, STO002)."""
    from tokenreel.store.atomic import read_error

    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise read_error(path, error) from error


def write_state(path: str | os.PathLike[str], state: State | Mapping[str, Any]) -> None:
    """Write a state to a file, atomically; raises `StorageError` (STO003)."""
    from tokenreel.store import write_bytes_atomic

    said = state.as_dict() if isinstance(state, State) else dict(state)
    write_bytes_atomic(path, (json.dumps(said, indent=1) + "\n").encode())


def parse_json(text: bytes, path: object = None) -> Any:
    """Return what JSON text says; raises `StateError` (STA001)."""
    from tokenreel.errors import ManifestError
    from tokenreel.store.jsonio import loads_strict

    try:
        return loads_strict(text, path)
    except ManifestError as error:
        offset = error.where.get("offset")
        raise StateError(
            "STA001", error.message, path=path, offset=offset if isinstance(offset, int) else None
        ) from error


def _refuse_format(said: Mapping[Any, Any], name: object, path: object) -> None:
    from tokenreel.feed.foreign import foreign

    if isinstance(name, str) and name.startswith(_FAMILY):
        raise StateError("STA002", path=path, expected=FORMAT, found=name, hint="pip install --upgrade tokenreel")
    other = foreign(said)
    if other is not None:
        raise StateError("STA007", other.reason, path=path, expected=FORMAT, found=other.system, hint=other.hint)
    found = repr(name)[:60] if name is not None else f"keys {', '.join(map(str, list(said)[:6]))}"
    raise StateError("STA001", "format", path=path, expected=FORMAT, found=found)


def _count(said: Mapping[Any, Any], key: str, path: object) -> int:
    value = said.get(key)
    if type(value) is not int or not 0 <= value <= MOST:
        expected = "a whole number of 0 .. 2**63 - 1"
        raise StateError("STA001", key, path=path, expected=expected, found=repr(value)[:60])
    return value


def _table(said: Mapping[Any, Any], key: str, path: object) -> Mapping[str, Any] | None:
    value = said.get(key)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise StateError("STA001", key, path=path, expected="an object", found=type(value).__name__)
    for name, right in _TABLES[key].items():
        if name in value and not right(value[name]):
            raise StateError("STA001", f"{key}.{name}", path=path, found=repr(value[name])[:60])
    if key == "cursors" and len({len(value[name]) for name in _TABLES[key] if name in value}) > 1:
        raise StateError("STA001", key, path=path, expected="as many values as components")
    return value


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_key(value: object) -> bool:
    kinds = (_is_text, _is_text, _is_count, _is_count)
    if not isinstance(value, list | tuple) or len(value) != len(kinds):
        return False
    return all(right(one) for right, one in zip(kinds, value, strict=True))


def _listed(right: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list | tuple) and all(right(one) for one in value)


_TABLES: dict[str, dict[str, Callable[[object], bool]]] = {
    "order": {
        "name": _is_text,
        "row_tokens": _is_count,
        "row_ahead": _is_count,
        "length": lambda value: value is None or _is_count(value),
        "corpora": _listed(_is_key),
    },
    "cursors": {
        "components": _listed(_is_text),
        "given": _listed(_is_count),
        "orders": _listed(_is_text),
        "starts": _listed(_is_count),
    },
    "stream": {"token": _is_count, "shard": _is_count, "offset": _is_count, "name": _is_text},
}
"""What the values of inner tables are."""


def _digest(said: Mapping[Any, Any], path: object) -> str:
    value = said.get("fingerprint")
    if not isinstance(value, str) or len(value) != 64 or set(value) - set("0123456789abcdef"):
        expected = "a SHA-256 of 64 hex digits"
        raise StateError("STA001", "fingerprint", path=path, expected=expected, found=repr(value)[:80])
    return value
