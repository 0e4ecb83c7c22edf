"""The three JSON files of a replay index: `manifest.json`, `sources.json`, `mix.json`.

Indices that others published spell some keys differently: ``schema/aliases.json`` lists the spellings that are read.
Keys that are not known are kept out and do no harm. Source of the words: Snowball's replay index.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from tokenreel.errors import ReplayError
from tokenreel.store.jsonio import dumps_canonical, loads_strict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenreel.store import Store

T = TypeVar("T", bound="_Value")

FORMAT = "tokenreel-replay-index-1"
MANIFEST, SOURCES, MIX = "manifest.json", "sources.json", "mix.json"

Count = Annotated[int, msgspec.Meta(ge=0)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value of one of the files."""


class IndexFile(_Value, frozen=True, kw_only=True):
    """One Parquet file: the documents that one task wrote."""

    path: str
    task_id: Count
    documents: Count
    bytes: Count
    sha256: Digest


class Manifest(_Value, frozen=True, kw_only=True):
    """What an index holds: files, counts and hashes."""

    format: str = FORMAT
    made_from: Annotated[str, msgspec.Meta(description="A hash of the input and the options.")] = ""
    id_kind: Annotated[str, msgspec.Meta(description="What document_id hashes: text, normalised or tokens.")] = (
        "normalised"
    )
    normalise: dict[str, Any] = {}
    documents: Count
    tasks: Count
    files: list[IndexFile]
    documents_by_source: dict[str, Count]
    documents_by_bucket: Annotated[dict[str, Count], msgspec.Meta(description="By number of the bucket.")]
    metadata: Annotated[dict[str, Digest], msgspec.Meta(description="SHA-256 of the other JSON files.")] = {}


class Source(_Value, frozen=True, kw_only=True):
    """One logical source: where its text comes from, and what is known to be inexact about it."""

    source_id: str
    repository: str | None = None
    """A dataset repository of the hub."""
    revision: str | None = None
    urls: list[str] = []
    path: str | None = None
    """A folder on this machine, relative to where joining is told to look."""
    file_patterns: list[str] = []
    """Empty: every file that `normalize_config` lets pass."""
    transform_module: str | None = None
    replay_entrypoint: str | None = None
    normalize_config: dict[str, Any] = {}
    license: str | None = None
    approximate: bool = False
    immutable: bool = True
    """Whether the upstream names one state for good."""
    needs_authentication: bool = False
    note: str | None = None


class Phase(_Value, frozen=True, kw_only=True):
    """Weights from a training update on."""

    update: Count = 0
    weights: dict[str, float]


class TokenPolicy(_Value, frozen=True, kw_only=True):
    """How documents become tokens."""

    tokenizer: dict[str, Any] = {}
    bos: str = "none"
    """none, id (prepended after encoding), string (joined with a space before encoding) or probe."""
    eos: str = "id"
    """The same; probe: id where the tokenizer adds the token to a text by itself, else string."""
    special_in_text: str = "text"
    """text or special: what a special token spelled in a document becomes; string reads special."""
    split_chars: Count = 0
    """Texts are cut at the first whitespace at or after every so many characters; 0: not at all."""
    split_runs: Count = 0
    """Runs of one kind (whitespace, or not) are cut after so many characters; 0: not at all."""


class Mix(_Value, frozen=True, kw_only=True):
    """How a run mixed the buckets."""

    format: str = FORMAT
    phases: list[Phase] = []
    batch_schedule: list[list[int]] = []
    """(update, sequences) pairs."""
    block: Count = 0
    sequence_length: Count = 0
    seed: int = 0
    data_seed: int | None = None
    stop_strategy: str = "restart"
    shuffle: Any = None
    tail: list[int] = []
    tokens: TokenPolicy = TokenPolicy()
    pins: dict[str, Any] = {}


class Sources(_Value, frozen=True, kw_only=True):
    """All sources."""

    format: str = FORMAT
    sources: list[Source]

    def named(self) -> dict[str, Source]:
        """Return them by id; raises `ReplayError` (RPL003) for an id that stands twice."""
        by_id = {source.source_id: source for source in self.sources}
        if len(by_id) < len(self.sources):
            ids = [source.source_id for source in self.sources]
            twice = next(one for one in ids if ids.count(one) > 1)
            raise ReplayError("RPL003", f"the source {twice!r} stands twice", path=SOURCES)
        return by_id


def read_manifest(store: Store) -> Manifest:
    """Return an index's manifest; raises `ReplayError` (RPL003), `ManifestError` (MAN001, MAN002), `StorageError`."""
    return parse_manifest(loads_strict(store.read(MANIFEST), MANIFEST))


def parse_manifest(table: Any) -> Manifest:
    """Return a manifest of parsed JSON, other spellings of its keys understood; raises `ReplayError` (RPL003)."""
    known = _renamed(table, "manifest", MANIFEST)
    listed = known.get("files")
    if isinstance(listed, dict):
        listed = [{"path": path, **row} if isinstance(row, dict) else row for path, row in listed.items()]
    if isinstance(listed, list):
        rows = [_renamed(row, "file", MANIFEST) for row in listed]
        for row in rows:
            if "task_id" not in row and isinstance(row.get("path"), str):
                row["task_id"] = task_number(row["path"])
        known["files"] = rows
        known.setdefault("tasks", len(rows))
    return _converted(known, Manifest, MANIFEST)


def read_sources(store: Store) -> Sources:
    """Return an index's sources; raises as `read_manifest`."""
    return parse_sources(loads_strict(store.read(SOURCES), SOURCES))


def parse_sources(table: Any) -> Sources:
    """Return the sources of parsed JSON: a list, an object by id, or either under ``sources``."""
    known = _renamed(table, "sources", SOURCES) if isinstance(table, dict) else {"sources": table}
    listed = known.get("sources", known)
    if isinstance(listed, dict):
        listed = [{"source_id": name, **row} for name, row in listed.items() if isinstance(row, dict)]
    if not isinstance(listed, list):
        raise ReplayError("RPL003", path=SOURCES, expected="a list of sources", found=type(listed).__name__)
    rows = [_renamed(row, "source", SOURCES) for row in listed]
    for row in rows:
        if isinstance(row.get("urls"), str):
            row["urls"] = [row["urls"]]
        if isinstance(row.get("fidelity"), dict):
            row.update(_renamed(row.pop("fidelity"), "source", SOURCES))
    return _converted({"sources": rows}, Sources, SOURCES)


def read_mix(store: Store) -> Mix:
    """Return an index's mixture; raises as `read_manifest`."""
    return parse_mix(loads_strict(store.read(MIX), MIX))


def parse_mix(table: Any) -> Mix:
    """Return a mixture of parsed JSON; phases may be (update, weights) pairs, the tail may name its buckets."""
    from tokenreel.replay.buckets import bucket_named

    known = _renamed(table, "mix", MIX)
    if isinstance(known.get("phases"), list):
        pairs = (
            dict(zip(("update", "weights"), one, strict=False)) if isinstance(one, list) else one
            for one in known["phases"]
        )
        known["phases"] = [_renamed(one, "phase", MIX) for one in pairs]
    if isinstance(known.get("tail"), list):
        known["tail"] = [bucket_named(one) if isinstance(one, str) else one for one in known["tail"]]
    return _converted(known, Mix, MIX)


def task_number(path: str) -> int:
    """Return the task that a file's name tells: its last run of digits; raises `ReplayError` (RPL004).

    >>> task_number("index/task-000012.parquet"), task_number("part-00003-of-06301.parquet")
    (12, 3)
    """
    import re

    stem = path.rpartition("/")[2].partition(".")[0]
    stem = re.sub(r"-of-\d+$", "", stem)
    digits = re.findall(r"\d+", stem)
    if not digits:
        raise ReplayError("RPL004", path=path, expected="a name with a number")
    return int(digits[-1])


def encoded(value: Manifest | Sources | Mix) -> bytes:
    """Return a file's bytes: one spelling, keys in the order of their declaration."""
    return dumps_canonical(msgspec.to_builtins(value))


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of the three files by name: what ``schema/*-1.json`` hold."""
    kinds: dict[str, Any] = {"manifest": Manifest, "sources": Sources, "mix": Mix}
    return {name: msgspec.json.schema(kind) for name, kind in kinds.items()}


@cache
def aliases() -> dict[str, dict[str, list[str]]]:
    """Return other spellings of keys, by kind of object and key."""
    text = files("tokenreel.replay").joinpath("schema/aliases.json").read_text("utf-8")
    table: dict[str, dict[str, list[str]]] = json.loads(text)
    return table


def _renamed(table: Any, kind: str, path: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ReplayError("RPL003", f"a {kind} that is no object", path=path, found=type(table).__name__)
    out = dict(table)
    for key, others in aliases()[kind].items():
        if key not in out:
            found = next((other for other in others if other in out), None)
            if found is not None:
                out[key] = out[found]
    return out


def _converted(table: Mapping[str, Any], kind: type[T], path: str) -> T:
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ReplayError("RPL003", str(error), path=path, hint="tokenreel explain RPL003") from error
