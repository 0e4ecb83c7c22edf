"""What can be saved of a damaged shard: where its ids are, and which whole documents they still hold.

One function for each format, each given the files as they are and believing as little of them as it can: what a header or a
table says is held against the bytes that are there. Nothing is written here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.scanning import find_pattern
from tokenreel.errors import FormatError, TokenreelError
from tokenreel.formats.llmc import HEADER_BYTES, KINDS
from tokenreel.formats.megatron_check import examine, scan_table
from tokenreel.formats.megatron_layout import DTYPES, LENGTH, LENGTHS_AT, MAGIC, WIDE, Layout, unpack_header
from tokenreel.formats.raw import WIDTHS, is_npy

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokenreel.formats import Boundary, Found
    from tokenreel.formats.base import Edges
    from tokenreel.store.base import Reader, Store


@dataclass(frozen=True, slots=True)
class Saved:
    """The documents of one shard that are whole."""

    format: str
    payload: str
    """The file with the ids."""
    begin: int
    """Byte of the first id."""
    dtype: str
    edges: Edges
    """Where documents begin, in ids of the payload, and the end of the last: the first may be more than 0."""
    tokens: int
    """Ids that the payload holds, whole ones."""
    said: int | None
    """Ids that the header or the table promises; None where nothing says."""
    changes: tuple[str, ...]
    """What had to be mended, in words."""
    from_separators: bool = False
    """Whether documents were found by the ids around them."""
    owners: npt.NDArray[np.int64] | None = None
    """Of a pair, how many sequences each document has, where not one; `edges` are then of sequences."""
    options: dict[str, object] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Documents saved."""
        return len(self.edges) - 1 if self.owners is None else len(self.owners)

    @property
    def lost(self) -> int:
        """Ids that the shard had, or promised, and that no saved document holds."""
        return max(self.said or 0, self.tokens) - int(self.edges[-1] - self.edges[0])


def salvage(store: Store, found: Found, boundary: Boundary, dtype: str | None = None, *, go_on: bool = True) -> Saved:
    """Return what can be saved of a shard that is not whole.

    `dtype` is that of a file that does not say its own. With `go_on` a stream goes on in another file: what follows the
    last separator is then no loss. Raises `FormatError` (FLT020) where nothing can be.
    """
    for prefix, save in _SAVE.items():
        if found.format.startswith(prefix):
            return save(store, found, boundary, dtype, go_on)
    raise _no_way(found, "nothing is known of how its files break", f"a format that can be mended: {', '.join(_SAVE)}")


def _no_way(found: Found, why: str, expected: str) -> FormatError:
    return FormatError("FLT020", why, path=found.files[0], shard=found.name, expected=expected, found=found.format)


def by_separators(
    reader: Reader, begin: int, dtype: str, tokens: int, boundary: Boundary, *, cut: bool, found: Found
) -> Edges:
    """Return the edges of documents in a payload: split before each prefix, else behind each suffix.

    Where the payload was `cut`, what follows the last separator is no whole document and left out; else it counts. What
    comes before the first prefix is a document whose beginning is elsewhere, and counts.
    """
    width = np.dtype(dtype).itemsize

    def read(first: int, end: int) -> npt.NDArray[Any]:
        return reader.array(dtype, begin + first * width, end - first)

    if boundary.prefix:
        at = find_pattern(read, tokens, boundary.prefix)
        edges = np.unique(np.concatenate(([0], at, [] if cut else [tokens]))).astype(np.int64)
    elif boundary.suffix:
        at = find_pattern(read, tokens, boundary.suffix) + len(boundary.suffix)
        edges = np.unique(np.concatenate(([0], at, [] if cut else [tokens]))).astype(np.int64)
    else:
        raise _no_way(found, "nothing says where its documents are", "--boundary prefix=ID or suffix=ID")
    return edges


def _llmc(store: Store, found: Found, boundary: Boundary, dtype: str | None, go_on: bool) -> Saved:  # noqa: ARG001
    path = found.files[0]
    reader = store.reader(path)
    try:
        if reader.size < HEADER_BYTES:
            raise _no_way(found, "there is no whole header, and no id behind it", f"{HEADER_BYTES} bytes and more")
        magic, version, count = struct.unpack("<3i", reader.read(0, 12))
        if magic not in KINDS or KINDS[magic][1] != version:
            raise _no_way(found, "its header does not say what it is", "a magic and a version that go together")
        form, _, kind = KINDS[magic]
        return _flat(reader, found, form, kind, HEADER_BYTES, count if count > 0 else None, boundary)
    finally:
        reader.close()


def _raw(store: Store, found: Found, boundary: Boundary, dtype: str | None, go_on: bool) -> Saved:  # noqa: ARG001
    kind = WIDTHS[found.format.removeprefix("raw-")]
    reader = store.reader(found.files[0])
    try:
        return _flat(reader, found, found.format, kind, 0, None, boundary)
    finally:
        reader.close()


def _npy(store: Store, found: Found, boundary: Boundary, dtype: str | None, go_on: bool) -> Saved:  # noqa: ARG001
    from tokenreel.formats.raw import _npy_header

    reader = store.reader(found.files[0])
    try:
        if not is_npy(reader):
            raise _no_way(found, "its header does not say what it is", "NumPy's magic")
        begin, kind, shape = _npy_header(reader, found.files[0])
        return _flat(reader, found, "npy", np.dtype(kind).str, begin, int(shape[0]) if shape else None, boundary)
    finally:
        reader.close()


def _flat(
    reader: Reader, found: Found, form: str, kind: str, begin: int, said: int | None, boundary: Boundary
) -> Saved:
    """Save a file of one stream: ids that are there, up to the last whole document where it was cut."""
    width = np.dtype(kind).itemsize
    tokens, odd = divmod(max(0, reader.size - begin), width)
    cut = (said is not None and tokens < said) or (said is None and odd > 0)
    changes = []
    if said is not None and (tokens > said or (odd and not cut)):
        changes.append(f"{reader.size - begin - said * width} bytes behind the last id taken off")
        tokens = said
    if cut:
        promised = f" of {said}" if said is not None else " and a part of one"
        changes.append(f"cut short: {tokens} ids{promised} are there; kept to the last whole document")
    if not cut and not (boundary.prefix or boundary.suffix):
        edges = np.array([0, tokens], dtype=np.int64)
    else:
        edges = by_separators(reader, begin, kind, tokens, boundary, cut=cut, found=found)
    return Saved(form, found.files[0], begin, kind, edges, tokens, said, tuple(changes), from_separators=True)


def _pair(store: Store, found: Found, boundary: Boundary, dtype: str | None, go_on: bool) -> Saved:  # noqa: ARG001
    payload, index = f"{found.name}.bin", f"{found.name}.idx"
    if not store.exists(payload):
        raise _no_way(found, "its ids are gone", payload)
    reader = store.reader(payload)
    try:
        kind, why = dtype, f"{index} is missing"
        if store.exists(index):
            idx = store.reader(index)
            try:
                saved = _by_index(idx, reader, found, payload)
                kind, why = _dtype_said(idx) or dtype, f"{index} cannot be used"
            finally:
                idx.close()
            if saved is not None:
                return saved
        if kind is None:
            raise _no_way(found, f"{why}, and nothing says how wide an id is", "--dtype uint16 or int32")
        code = np.dtype(kind).newbyteorder("<").str
        tokens, odd = divmod(reader.size, np.dtype(code).itemsize)
        changes = [f"{why}: made anew from separators"]
        if odd:
            changes.append("cut short inside an id; kept to the last whole document")
        edges = by_separators(reader, 0, code, tokens, boundary, cut=odd > 0, found=found)
        return Saved(found.format, payload, 0, code, edges, tokens, None, tuple(changes), from_separators=True)
    finally:
        reader.close()


def _dtype_said(idx: Reader) -> str | None:
    """Return the dtype that a header names, if it is one that a pair may have."""
    if idx.size < 34 or idx.read(0, len(MAGIC)) != MAGIC:
        return None
    kind = DTYPES.get(unpack_header(idx.read(0, 34))[1])
    return None if kind is None else np.dtype(kind).str


def _by_index(idx: Reader, payload: Reader, found: Found, path: str) -> Saved | None:
    """Save a pair by its index, as far as that can be believed; None where it cannot."""
    layout = examine(idx, found.name, payload.size).layout
    if layout is None:
        return None
    width = layout.dtype.itemsize
    lengths = idx.array(LENGTH, LENGTHS_AT, layout.sequences).astype(np.int64)
    if len(lengths) and int(lengths.min()) < 0:
        return None
    ends = np.concatenate(([0], np.cumsum(lengths)))
    said, tokens = int(ends[-1]), payload.size // width
    changes = []
    if not scan_table(layout, idx).sound:
        if said * width != payload.size:
            return None  # neither pointers nor lengths fit the ids
        if _pointers_tile(layout, idx, payload.size, lengths):
            return None  # both fit, and say different things: nothing tells which is right
        changes.append("pointers or document index did not fit the lengths, which fit the ids: made anew from them")
    first = idx.array(WIDE, layout.index_at, layout.entries)
    rising = len(first) and first[0] == 0 and first[-1] == layout.sequences and bool((np.diff(first) >= 0).all())
    if not rising:
        first = np.arange(layout.sequences + 1, dtype=np.int64)
    if tokens < said:
        kept = int(np.searchsorted(ends, tokens, side="right")) - 1
        whole = int(np.searchsorted(first, kept, side="right")) - 1
        changes.append(f"cut short: {tokens} ids of {said} are there; kept to the last whole document")
        first, ends = first[: whole + 1], ends[: int(first[whole]) + 1]
    elif payload.size > said * width:
        changes.append(f"{payload.size - said * width} bytes behind the last id taken off")
    owners = np.diff(first)
    plain = bool((owners == 1).all())
    return Saved(
        found.format, path, 0, layout.dtype.str, ends, tokens, said, tuple(changes), owners=None if plain else owners
    )


def _pointers_tile(layout: Layout, idx: Reader, size: int, lengths: npt.NDArray[np.int64]) -> bool:
    """Return whether pointers alone say where sequences are, otherwise than the lengths do."""
    if not layout.sequences:
        return False
    steps = np.diff(idx.array(WIDE, layout.pointers_at, layout.sequences), prepend=0, append=size)
    width = layout.dtype.itemsize
    sound = int(steps[0]) == 0 and bool((steps[1:] >= 0).all()) and not bool((steps % width).any())
    return sound and not bool(np.array_equal(steps[1:], lengths * width))


def _ounce(store: Store, found: Found, boundary: Boundary, dtype: str | None, go_on: bool) -> Saved:  # noqa: ARG001
    path = found.files[0]
    reader = store.reader(path)
    try:
        if reader.size < 20:
            raise _no_way(found, "there is no whole header", "20 bytes and more")
        vocab, documents, said, flags = struct.unpack("<4I", reader.read(0, 16))
        if flags or not 0 < vocab <= 1 << 16:
            raise _no_way(found, "its header does not say where the ids are", "vocabulary, counts and no flags")
        changes = []
        documents, said, wrong = _ounce_counts(reader, found, documents, said)
        if wrong:
            changes.append(wrong)
        begin = 16 + 4 * (documents + 1)
        table = reader.array("<u4", 16, documents + 1).astype(np.int64)
        tokens = min(said, (reader.size - begin) // 2)
        sound = _ounce_table(reader, documents, said)
        if sound:
            edges = table[: int(np.searchsorted(table, tokens, side="right"))]
        else:
            changes.append("its table of offsets was damaged: made anew from separators")
            edges = by_separators(reader, begin, "<u2", tokens, boundary, cut=tokens < said, found=found)
        if tokens < said:
            changes.append(f"cut short: {tokens} ids of {said} are there; kept to the last whole document")
        elif reader.size > begin + 2 * said:
            changes.append(f"{reader.size - begin - 2 * said} bytes behind the last id taken off")
        return Saved(
            found.format,
            path,
            begin,
            "<u2",
            edges,
            tokens,
            said,
            tuple(changes),
            from_separators=not sound,
            options={"vocab": vocab},
        )
    finally:
        reader.close()


def _ounce_table(reader: Reader, documents: int, said: int) -> bool:
    """Return whether a table of so many documents rises from 0 to so many ids."""
    if documents < 0 or said < 0 or 16 + 4 * (documents + 1) > reader.size:
        return False
    table = reader.array("<u4", 16, documents + 1).astype(np.int64)
    return int(table[0]) == 0 and int(table[-1]) == said and bool((np.diff(table) >= 0).all())


def _ounce_counts(reader: Reader, found: Found, documents: int, said: int) -> tuple[int, int, str]:
    """Return counts of documents and ids, and what was wrong in the header: where only one is, size and table tell it.

    Raises `FormatError` (FLT020) where ids would begin at a place that nothing confirms.
    """
    if _ounce_table(reader, documents, said):
        return documents, said, ""
    end = 16 + 4 * (documents + 1)
    more, odd = divmod(reader.size - end, 2)
    if not odd and _ounce_table(reader, documents, more):
        return documents, more, f"its header said {said} ids: {more}, as its table and its size say"
    other, odd = divmod(reader.size - 20 - 2 * said, 4)
    if not odd and _ounce_table(reader, other, said):
        return other, said, f"its header said {documents} documents: {other}, as its table and its size say"
    if end > reader.size or reader.size - end > 2 * said:
        raise _no_way(found, "neither its size nor its table confirms the counts of its header", "counts that fit")
    return documents, said, ""


def _pbin(store: Store, found: Found, boundary: Boundary, dtype: str | None, go_on: bool) -> Saved:  # noqa: ARG001
    """Save a packed file of Modalities as a Megatron pair: its own format is only read here."""
    from tokenreel.formats.pbin import HEADER_BYTES as HEAD
    from tokenreel.formats.pbin import WIDTHS as KINDS_OF_PBIN
    from tokenreel.formats.pbin import open_file, read_pairs

    path = found.files[0]
    changes = ["written as a Megatron pair, since its own format is only read"]
    try:
        shard = open_file(store, path)
    except TokenreelError:
        pass
    else:
        edges = shard.document_edges(0, shard.documents)
        kind, tokens = shard.dtype, shard.tokens
        shard.close()
        return Saved("megatron-v1", path, HEAD, _stored(kind), edges, tokens, tokens, tuple(changes))
    reader = store.reader(path)
    try:
        if reader.size < HEAD:
            raise _no_way(found, "there is no whole header", f"{HEAD} bytes and more")
        size, width = (int.from_bytes(reader.read(at, count), "little") for at, count in ((0, 8), (8, 4)))
        if width not in KINDS_OF_PBIN:
            raise _no_way(found, "its header does not say how wide an id is", "1, 2 or 4 bytes")
        cut = HEAD + size > reader.size
        tokens = min(size, reader.size - HEAD) // width
        ends: Edges | None = None
        if not cut:
            try:
                pairs = read_pairs(reader, HEAD + size, path)
                ends = np.cumsum(pairs[:, 1]) // width
                sound = bool((pairs[:, 1] >= 0).all() and (pairs[:, 1] % width == 0).all())
                ends = ends[ends <= tokens] if sound and len(ends) else None
            except TokenreelError:
                ends = None
        code = _stored(np.dtype(KINDS_OF_PBIN[width]))
        if ends is not None:
            edges = np.concatenate(([0], ends)).astype(np.int64)
            changes.append("its index did not cover all of its ids: the documents in it are kept")
        else:
            changes.append("its index, the last thing in the file, was gone or damaged: made anew from separators")
            edges = by_separators(reader, HEAD, code, tokens, boundary, cut=cut, found=found)
        return Saved(
            "megatron-v1", path, HEAD, code, edges, tokens, size // width, tuple(changes), from_separators=True
        )
    finally:
        reader.close()


def _stored(kind: np.dtype[Any]) -> str:
    """Return the type of a pair that holds ids of a type: it has no uint32, and no vocabulary has 2**31 ids."""
    return "<i4" if kind.itemsize == 4 else kind.newbyteorder("<").str


def _datatrove(store: Store, found: Found, boundary: Boundary, dtype: str | None, go_on: bool) -> Saved:  # noqa: ARG001
    path, index, metadata = (found.name + suffix for suffix in (".ds", ".ds.index", ".ds.metadata"))
    if not store.exists(path):
        raise _no_way(found, "its ids are gone", path)
    changes = []
    ends = None
    if store.exists(index):
        data = store.read(index)
        ends = np.frombuffer(data[: len(data) // 8 * 8], "<u8").astype(np.int64)
        if len(data) % 8 or bool((np.diff(ends, prepend=0) < 0).any()):
            changes.append(f"{index} was damaged: made anew from separators")
            ends = None
    else:
        changes.append(f"{index} was missing: made anew from separators")
    kind, name = _datatrove_dtype(store, path, metadata, dtype, ends)
    if kind is None:
        raise _no_way(found, "nothing says how wide an id is", "--dtype uint16 or uint32")
    if not store.exists(metadata):
        changes.append(f"{metadata} was missing")
    return _tabled(store, found, path, kind, ends, boundary, changes, {"tokenizer": name} if name else {})


def _datatrove_dtype(
    store: Store, path: str, metadata: str, dtype: str | None, ends: Edges | None
) -> tuple[str | None, str | None]:
    if store.exists(metadata):
        first = store.read(metadata)[: 1 << 16].decode("utf-8", "replace").split("\n")[0]
        name, _, size = first.partition("|")
        size = size.split("|")[0]
        if size in ("2", "4"):
            return f"<u{size}", name
    if dtype in WIDTHS:
        return WIDTHS[dtype], None
    if ends is not None and len(ends) and ends[-1] > 0:
        width, rest = divmod(store.size(path), int(ends[-1]))
        if not rest and width in (2, 4):
            return f"<u{width}", None
    return None, None


def _olmo(store: Store, found: Found, boundary: Boundary, dtype: str | None, go_on: bool) -> Saved:  # noqa: ARG001
    from tokenreel.formats.olmo_table import TableError, read_edges

    path, index = f"{found.name}.npy", f"{found.name}.csv.gz"
    if not store.exists(path):
        raise _no_way(found, "its ids are gone", path)
    told = found.format.rpartition("-")[2]
    kind = WIDTHS.get(told) or WIDTHS.get(dtype or "")
    if kind is None:
        raise _no_way(found, "nothing says how wide an id is", "--dtype uint16 or uint32")
    changes, ends = [], None
    if store.exists(index):
        reader = store.reader(index)
        try:
            ends = read_edges(reader, index, 1 << 62, exact=False)[0][1:]
        except (TableError, TokenreelError, OSError, EOFError, ValueError):
            changes.append(f"{index} was damaged: made anew from separators")
        finally:
            reader.close()
    else:
        changes.append(f"{index} was missing: made anew from separators")
    return _tabled(store, found, path, kind, ends, boundary, changes, {})


def _tabled(
    store: Store,
    found: Found,
    path: str,
    kind: str,
    ends: Edges | None,
    boundary: Boundary,
    changes: list[str],
    options: dict[str, object],
) -> Saved:
    """Save a file of ids with a table beside it."""
    reader = store.reader(path)
    try:
        width = np.dtype(kind).itemsize
        tokens, odd = divmod(reader.size, width)
        said = int(ends[-1]) if ends is not None and len(ends) else None
        cut = odd > 0 or (said is not None and tokens < said)
        if cut:
            promised = f" of {said}" if said is not None else " and a part of one"
            changes.append(f"cut short: {tokens} ids{promised} are there; kept to the last whole document")
        if ends is not None:
            edges = np.concatenate(([0], ends[ends <= tokens])).astype(np.int64)
            if said is not None and tokens > said:
                changes.append(f"{tokens - said} ids behind the last document of the table are in no document")
        else:
            edges = by_separators(reader, 0, kind, tokens, boundary, cut=cut, found=found)
        return Saved(
            f"{found.format}",
            path,
            0,
            kind,
            edges,
            tokens,
            said,
            tuple(changes),
            from_separators=ends is None,
            options=options,
        )
    finally:
        reader.close()


_SAVE: dict[str, Callable[[Store, Found, Boundary, str | None, bool], Saved]] = {
    "megatron": _pair,
    "llmc": _llmc,
    "hobbylm": _llmc,
    "raw": _raw,
    "npy": _npy,
    "ounce": _ounce,
    "datatrove": _datatrove,
    "olmo": _olmo,
    "pbin": _pbin,
}
"""By the beginning of a format's name."""
