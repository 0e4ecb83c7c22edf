"""What ``PREFIX_docs.jsonl`` says of documents besides where they are: id, source, metadata.

Metadata stands in an object of its own, ``meta``, so that none of its keys can be taken for a field of the entry. Other
keys of a line are taken for metadata too. Ids that this package wrote have a kind beside them, ``id_kind``; others are
upstream's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.hobbylm import DOCS, RESERVED, entry_of, sidecar_error
from tokenreel.formats.writing import DocumentFacts
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenreel.store.base import Store

_OWN = ("id", "id_kind", "upstream_id", "meta")


class _Line(msgspec.Struct):
    meta: msgspec.Raw


class SidecarFacts:
    """The facts of the documents of some shards, by number in their stream; lines are parsed when they are asked for.

    `shards` are the paths of the shards and how many documents each has; of those that no line is about nothing is known.
    Made once: it reads every ``PREFIX_docs.jsonl`` whole and keeps it, and 16 bytes a document. Raises `FormatError`
    (SID004) for another number of lines than documents, and what `hobbylm.entry_of` raises.
    """

    def __init__(self, store: Store, sidecars: Sequence[str], shards: Mapping[str, int]) -> None:
        self._store = store
        self._paths = tuple(path for path in sidecars if path.endswith(DOCS))
        self._texts = [store.read(path) for path in self._paths]
        places: dict[str, list[tuple[int, int, int, int]]] = {shard: [] for shard in shards}
        for file, (path, text) in enumerate(zip(self._paths, self._texts, strict=True)):
            folder, at = path.rpartition("/")[0], 0
            for number, line in enumerate(text.split(b"\n")):
                if line.strip():
                    shard, offset, length = entry_of(store, path, number, self._parsed(file, line))
                    place = f"{folder}/{shard}" if folder else shard
                    if place in places:
                        places[place].append((offset, length, file, at))
                at += len(line) + 1
        parts = []
        for shard, count in shards.items():
            found = sorted(places[shard]) or [(0, 0, -1, 0)] * count
            if len(found) != count:
                path = self._paths[found[0][2]]
                raise sidecar_error(store, "SID004", path, shard=shard, expected=f"{count} documents", found=len(found))
            parts += [place[2:] for place in found]
        self._lines = np.array(parts, dtype=np.int64).reshape(-1, 2)

    def _parsed(self, file: int, line: bytes) -> Any:
        return loads_strict(line, f"{self._store.root}/{self._paths[file]}")

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._lines)

    def facts(self, begin: int, end: int) -> list[DocumentFacts]:
        """Return what is known of documents [begin, end). Raises `FormatError` (SID001, SID005)."""
        out = []
        for number, (file, at) in enumerate(self._lines[begin:end].tolist(), begin):
            if file < 0:
                out.append(DocumentFacts())
                continue
            text = self._texts[file]
            stop = text.find(b"\n", at)
            line = text[at : stop if stop >= 0 else len(text)]
            out.append(self._facts(self._parsed(file, line), line, self._paths[file], number))
        return out

    def _facts(self, item: Any, line: bytes, path: str, number: int) -> DocumentFacts:
        if not isinstance(item, dict):
            return DocumentFacts()
        said = {name: item.get(name) for name in ("id", "id_kind", "upstream_id", "source")}
        if not all(value is None or isinstance(value, str) for value in said.values()):
            found = str({name: value for name, value in said.items() if value is not None})[:120]
            raise sidecar_error(self._store, "SID001", path, document=number, expected="text", found=found)
        inner = item.get("meta")
        others = {name: value for name, value in item.items() if name not in RESERVED and name not in _OWN}
        if inner is not None and not isinstance(inner, dict):
            raise sidecar_error(self._store, "SID001", path, document=number, expected="meta: an object", found=inner)
        twice = others.keys() & (inner or {}).keys()
        if twice:
            expected, found = "each key once", ", ".join(sorted(twice))
            raise sidecar_error(self._store, "SID005", path, document=number, expected=expected, found=found)
        text = None
        if others:
            text = json.dumps({**(inner or {}), **others}, ensure_ascii=False)
        elif inner is not None:
            # As it was written: parsing would respell its numbers.
            text = bytes(msgspec.json.decode(line, type=_Line).meta).decode()
        if said["id_kind"] is None:
            return DocumentFacts(None, None, said["source"], said["upstream_id"] or said["id"], text)
        return DocumentFacts(said["id"], said["id_kind"], said["source"], said["upstream_id"], text)


def line_of(shard: str, offset: int, length: int, facts: DocumentFacts | None, document: int) -> bytes:
    r"""Return one line of ``PREFIX_docs.jsonl``.

    Raises `FormatError` (SID005) for metadata that is no object or has a key of the entry's own, naming the document, and
    `ManifestError` (MAN001, MAN002) for metadata that is not JSON or says a key twice.

    >>> line_of("wiki_000000.bin", 0, 4, DocumentFacts(source="wiki", metadata='{"url": "x"}'), 0)
    b'{"shard": "wiki_000000.bin", "offset": 0, "length": 4, "source": "wiki", "meta": {"url": "x"}}\n'
    """
    said: dict[str, Any] = {"shard": shard, "offset": offset, "length": length}
    if facts is not None:
        if facts.source is not None:
            said["source"] = facts.source
        if facts.id is not None:
            said |= {"id": facts.id, "id_kind": facts.kind or "upstream"}
        if facts.upstream_id is not None:
            said["upstream_id"] = facts.upstream_id
        if facts.metadata is not None:
            meta = loads_strict(facts.metadata.encode(), f"the metadata of document {document}")
            reserved = RESERVED & meta.keys() if isinstance(meta, dict) else {type(meta).__name__}
            if reserved:
                raise FormatError(
                    "SID005",
                    shard=shard,
                    document=document,
                    expected=f"an object without {', '.join(sorted(RESERVED))}",
                    found=", ".join(sorted(reserved)),
                )
            raw = facts.metadata.strip().replace("\n", " ").replace("\r", " ")
            return f'{json.dumps(said, ensure_ascii=False)[:-1]}, "meta": {raw}}}\n'.encode()
    return json.dumps(said, ensure_ascii=False).encode() + b"\n"
