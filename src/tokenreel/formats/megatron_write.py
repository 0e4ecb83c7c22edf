"""Write Megatron IndexedDataset v1 pairs: streaming, checked, and complete or absent.

Memory is some 10 MiB of buffers whatever is written: ids go to the temporary ``.bin``, lengths straight to their place in the
temporary ``.idx``, boundaries of documents that are not one sequence to a third temporary; pointers are a prefix sum
made at the end. Both files appear, under their names, only in `MegatronWriter.finish`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokenreel.errors import FormatError, TokenError, UsageError
from tokenreel.formats.base import WrittenFile
from tokenreel.formats.megatron_layout import HEADER_BYTES, LENGTH, MAX_LENGTH, WIDE, dtype_code, pack_header
from tokenreel.hashing import sha256_file
from tokenreel.store.atomic import commit, fsync_folder, temporary_name, write_error
from tokenreel.store.writeback import WriteBack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import numpy.typing as npt

    from tokenreel.formats.base import Ids

_BUFFER_BYTES = 1 << 20
_TABLE_CHUNK = 1 << 16
_LEGACY_LIMIT = 65_500


def choose_dtype(largest_id: int, vocab_size: int | None = None, *, legacy: bool = False) -> np.dtype[Any]:
    """Return the integer type of a corpus: uint16 when every id up to `largest_id` fits, else int32.

    `largest_id` counts added tokens and EOD. With ``legacy=True`` the choice is Megatron's own, by `vocab_size`:
    uint16 below 65,500, else int32. Raises `TokenError` (TOK010) when the largest id fits neither int32 nor, under
    the legacy rule, the type that rule gives; `UsageError` (USE003) for the legacy rule without a vocabulary size.

    >>> choose_dtype(65_535).name, choose_dtype(65_536).name, choose_dtype(65_520, 65_521, legacy=True).name
    ('uint16', 'int32', 'int32')
    """
    if legacy:
        if vocab_size is None:
            raise UsageError("USE003", "the legacy rule needs the size of the vocabulary", expected="vocab_size")
        chosen = np.dtype("<u2") if vocab_size < _LEGACY_LIMIT else np.dtype("<i4")
    else:
        chosen = np.dtype("<u2") if largest_id <= np.iinfo(np.uint16).max else np.dtype("<i4")
    if not 0 <= largest_id <= np.iinfo(chosen).max:
        raise TokenError(
            "TOK010",
            f"the largest id does not fit {chosen.name}",
            expected=f"0..{np.iinfo(chosen).max}",
            found=largest_id,
            hint="tokenreel explain TOK010",
        )
    return chosen


class MegatronWriter:
    """Writes one pair; use as a context manager, which aborts when `finish` was not reached.

    `prefix` is the path without suffix, `dtype` one of the format's integer types (`UsageError` MEG030 otherwise).
    With ``one_sequence_per_document=False`` documents may have none or several sequences.

    Input that is refused changes nothing and the writer can go on. An error of the disk, or leaving the block without
    `finish`, removes the temporaries; a killed process leaves them hidden, for `store.remove_leftovers`. Existing
    files of that name stay until `finish` replaces them. Zero tokens make an empty ``.bin``, which this package reads
    and Megatron's mapping reader does not.

    >>> import tempfile
    >>> with MegatronWriter(tempfile.mkdtemp() + "/part", "uint16") as writer:
    ...     writer.add_documents(np.array([5, 6, 0, 7, 0]), np.array([3, 2]))
    ...     files = writer.finish()
    >>> [(Path(file.path).name, file.bytes) for file in files]
    [('part.bin', 10), ('part.idx', 82)]
    """

    def __init__(
        self, prefix: str | os.PathLike[str], dtype: npt.DTypeLike, *, one_sequence_per_document: bool = True
    ) -> None:
        wanted = np.dtype(dtype).newbyteorder("<")
        code = dtype_code(wanted)
        if code is None:
            raise UsageError("MEG030", expected="uint8, int8, int16, int32, int64 or uint16", found=wanted.name)
        self.dtype: np.dtype[Any] = wanted
        self.documents = 0
        self.sequences = 0
        self.tokens = 0
        self._code = code
        self._plain = one_sequence_per_document
        base = Path(prefix)
        self._bin_path, self._idx_path = (base.with_name(base.name + suffix) for suffix in (".bin", ".idx"))
        self._done = False
        self._sha = hashlib.sha256()
        with self._guard(self._bin_path):
            base.parent.mkdir(parents=True, exist_ok=True)
            self._bin = _Sink(self._bin_path, wanted, _BUFFER_BYTES // wanted.itemsize, self._sha.update)
            self._idx = _Sink(self._idx_path, LENGTH, _TABLE_CHUNK)
            self._idx.raw(bytes(HEADER_BYTES))
            self._index = None if self._plain else _Sink(base.with_name(base.name + ".documents"), WIDE, _TABLE_CHUNK)

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.integer[Any]],
        *,
        sequences: npt.NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Append documents: `ids` end to end, `lengths` of their sequences.

        Without `sequences` every length is a document; with it, `sequences[d]` says how many of the lengths belong to
        document d. Nothing is written unless all of it can be. Raises `TokenError` (TOK010 an id that does not fit,
        with document, position and id; TOK011 not integers) and `FormatError` (MEG025 sums, MEG026 2**31 tokens and
        more in a sequence). Cost: about 2 ns a token, 15 ns a document, SHA-256 apart; best with a million tokens a call.
        """
        self._open()
        sizes = self._check_lengths(ids, lengths, sequences)
        self._check_ids(ids, sizes, sequences)
        with self._guard(self._bin_path):
            if self._index is not None:
                ends = np.arange(1, len(sizes) + 1) if sequences is None else np.cumsum(sequences, dtype=np.int64)
                self._index.add(ends + self.sequences)
            self._idx.add(sizes)
            self._bin.add(ids)
        self.documents += len(sizes if sequences is None else sequences)
        self.sequences += len(sizes)
        self.tokens += len(ids)

    def add_document(self, sequences: Sequence[Ids]) -> None:
        """Append one document of any number of sequences, each possibly empty; errors as in `add_documents`.

        Raises `UsageError` (MEG029) for other than one sequence when the writer is made for one per document.
        """
        if self._plain and len(sequences) != 1:
            raise UsageError("MEG029", document=self.documents, expected="1 sequence", found=len(sequences))
        for part in sequences:
            _require_ids(part, self.documents)
        parts = [part for part in sequences if len(part)] or [np.empty(0, dtype=self.dtype)]
        lengths = np.array([len(part) for part in sequences], dtype=np.int64)
        # Checked one by one: joining int64 with uint64 would make floats of both.
        for part in parts:
            self._check_ids(part, np.array([len(part)]), None)
        joined = np.concatenate([part.astype(self.dtype, copy=False) for part in parts])
        self.add_documents(joined, lengths, sequences=np.array([len(sequences)]))

    def finish(self, check: Callable[[Path, Path], None] | None = None) -> tuple[WrittenFile, WrittenFile]:
        """Complete both files and give them their names; returns ``.bin`` and ``.idx`` with sizes and SHA-256.

        `check` is called with the paths of the finished temporaries, ``.bin`` and ``.idx``; when it raises, nothing
        appears. An old index of the same name is removed before the new payload appears, so that a kill between the
        two renames leaves a pair that is visibly incomplete, never one whose halves do not belong together.
        """
        self._open()
        try:
            with self._guard(self._bin_path):
                self._bin.flush()
                self._bin.sync()
            with self._guard(self._idx_path):
                self._write_tables()
                self._idx.sync()
                written = (
                    WrittenFile(str(self._bin_path), self._bin.bytes, self._sha.hexdigest()),
                    WrittenFile(str(self._idx_path), self._idx.bytes, sha256_file(self._idx.temporary)),
                )
            if check is not None:
                check(self._bin.temporary, self._idx.temporary)
            with self._guard(self._bin_path):
                self._publish()
        except BaseException:
            self.abort()
            raise
        self._done = True
        self._close()
        return written

    def abort(self) -> None:
        """Remove everything written so far; harmless when finished or aborted before."""
        if not self._done:
            self._done = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _open(self) -> None:
        if self._done:
            raise UsageError("MEG031", path=self._bin_path)

    def _guard(self, path: Path) -> _Guard:
        return _Guard(self, path)

    def _close(self) -> None:
        for name in ("_bin", "_idx", "_index"):
            sink = getattr(self, name, None)
            if sink is not None:
                sink.discard()

    def _check_lengths(
        self, ids: Ids, lengths: npt.NDArray[np.integer[Any]], sequences: npt.NDArray[np.integer[Any]] | None
    ) -> npt.NDArray[np.int64]:
        _require_ids(ids, self.documents)
        sizes, total = self._sizes(lengths, "lengths")
        if total != len(ids):
            raise self._misfit("lengths do not add up to the ids", len(ids), total)
        longest = int(sizes.max(initial=0))
        if longest > MAX_LENGTH:
            at = int(sizes.argmax())
            message = f"sequence {self.sequences + at} of the pair is too long"
            raise FormatError("MEG026", message, path=self._bin_path, expected=f"<= {MAX_LENGTH}", found=longest)
        if sequences is not None:
            counts, total = self._sizes(sequences, "numbers of sequences")
            if total != len(sizes):
                raise self._misfit("numbers of sequences do not add up to the lengths", len(sizes), total)
            if self._plain and not bool((counts == 1).all()):
                at = int((counts != 1).argmax())
                found = int(counts[at])
                raise UsageError("MEG029", document=self.documents + at, expected="1 sequence", found=found)
        return sizes

    def _sizes(self, given: npt.NDArray[np.integer[Any]], what: str) -> tuple[npt.NDArray[np.int64], int]:
        values = np.asarray(given)
        if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
            raise self._misfit(f"{what} are not a one-dimensional array of integers", "integers", values.dtype.name)
        if values.size and int(values.min()) < 0:
            raise self._misfit(f"{what} hold a negative number", ">= 0", int(values.min()))
        # A sum of int64 can wrap around; one of Python's cannot, and is only needed for absurd values.
        absurd = values.size and int(values.max()) > (1 << 62) // values.size
        total = sum(values.tolist()) if absurd else int(values.sum(dtype=np.int64))
        if absurd:
            raise self._misfit(f"{what} do not add up", "at most 2**62", total)
        return values.astype(np.int64, copy=False), total

    def _misfit(self, message: str, expected: object, found: object) -> FormatError:
        document = self.documents
        return FormatError("MEG025", message, path=self._bin_path, document=document, expected=expected, found=found)

    def _check_ids(
        self, ids: Ids, sizes: npt.NDArray[np.int64], sequences: npt.NDArray[np.integer[Any]] | None
    ) -> None:
        if not len(ids) or np.can_cast(ids.dtype, self.dtype, casting="safe"):
            return
        low, high = int(np.iinfo(self.dtype).min), int(np.iinfo(self.dtype).max)
        if int(ids.min()) >= low and int(ids.max()) <= high:
            return
        bad = int(((ids < low) | (ids > high)).argmax())
        sequence = int(np.searchsorted(np.cumsum(sizes), bad, side="right"))
        begin = int(sizes[:sequence].sum())
        document = sequence
        if sequences is not None:
            document = int(np.searchsorted(np.cumsum(sequences), sequence, side="right"))
        raise TokenError(
            "TOK010",
            f"token {bad - begin} of sequence {self.sequences + sequence} has id {int(ids[bad])}, "
            f"which does not fit {self.dtype.name}",
            path=self._bin_path,
            document=self.documents + document,
            expected=f"{low}..{high}",
            found=int(ids[bad]),
            hint="tokenreel explain TOK010",
        )

    def _write_tables(self) -> None:
        self._idx.flush()
        begin = 0
        for at in range(0, self.sequences, _TABLE_CHUNK):
            count = min(_TABLE_CHUNK, self.sequences - at)
            sizes = self._idx.read(HEADER_BYTES + 4 * at, count) * np.int64(self.dtype.itemsize)
            ends = np.cumsum(sizes)
            self._idx.raw((begin + ends - sizes).astype(WIDE, copy=False).data.cast("B"))
            begin += int(ends[-1])
        if self._index is None:
            for at in range(0, self.documents + 1, _TABLE_CHUNK):
                end = min(self.documents + 1, at + _TABLE_CHUNK)
                self._idx.raw(np.arange(at, end, dtype=WIDE).data.cast("B"))
        else:
            self._index.flush()
            self._idx.raw(bytes(WIDE.itemsize))
            for at in range(0, self.documents, _TABLE_CHUNK):
                entries = self._index.read(8 * at, min(_TABLE_CHUNK, self.documents - at))
                self._idx.raw(entries.data.cast("B"))
        self._idx.overwrite(pack_header(self._code, self.sequences, self.documents + 1))

    def _publish(self) -> None:
        aside = temporary_name(self._idx_path.with_name(f"{self._idx_path.name}.old"))
        with contextlib.suppress(FileNotFoundError):
            self._idx_path.replace(aside)
            fsync_folder(self._idx_path.parent)
        try:
            self._bin.temporary.replace(self._bin_path)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.replace(self._idx_path)
            raise
        try:
            commit(self._idx.temporary, self._idx_path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._bin_path.unlink()
            raise
        finally:
            aside.unlink(missing_ok=True)


class _Guard:
    """Turns an operating-system error into a `StorageError` (STO003), and any error into an aborted writer."""

    def __init__(self, writer: MegatronWriter, path: Path) -> None:
        self._writer = writer
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        self._writer.abort()
        if isinstance(error, OSError):
            raise write_error(self._path, error) from error


class _Sink:
    """One temporary file, written through a fixed buffer of one dtype. Short writes are completed."""

    def __init__(
        self, target: Path, dtype: np.dtype[Any], room: int, seen: Callable[[memoryview], object] | None = None
    ) -> None:
        self.temporary = temporary_name(target)
        self.bytes = 0
        self._seen = seen
        self._buffer = np.empty(room, dtype=dtype)
        self._used = 0
        self._file = open(self.temporary, "w+b", buffering=0)  # noqa: PTH123, SIM115 (raw; closed by discard)
        self._written = WriteBack(self.temporary)

    def add(self, values: npt.NDArray[np.integer[Any]]) -> None:
        """Append values that were checked to fit; many of this very dtype are not copied."""
        begin, room = 0, len(self._buffer)
        if len(values) >= room // 2 and values.dtype == self._buffer.dtype and values.flags.c_contiguous:
            self.flush()
            self._out(values.data.cast("B"))
            return
        while begin < len(values):
            take = min(room - self._used, len(values) - begin)
            self._buffer[self._used : self._used + take] = values[begin : begin + take]
            self._used += take
            begin += take
            if self._used == room:
                self.flush()

    def flush(self) -> None:
        if self._used:
            self._out(self._buffer[: self._used].data.cast("B"))
            self._used = 0

    def _out(self, data: memoryview) -> None:
        if self._seen is not None:
            self._seen(data)
        self.raw(data)

    def raw(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self.bytes += len(data)
        self._written.wrote(len(data))

    def read(self, offset: int, count: int) -> npt.NDArray[Any]:
        """Return `count` values written before, from byte `offset`."""
        length = count * self._buffer.itemsize
        data = os.pread(self._file.fileno(), length, offset)
        if len(data) != length:
            raise OSError(f"{self.temporary}: {len(data)} of {length} bytes at {offset}")
        return np.frombuffer(data, dtype=self._buffer.dtype)

    def overwrite(self, data: bytes) -> None:
        """Replace the first bytes of the file."""
        if os.pwrite(self._file.fileno(), data, 0) != len(data):
            raise OSError(f"{self.temporary}: short write of the header")

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def discard(self) -> None:
        """Close the file and remove it if it still has its temporary name."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)


def _require_ids(ids: object, document: int) -> None:
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        found = f"{getattr(ids, 'ndim', '?')}-D {getattr(ids, 'dtype', type(ids).__name__)}"
        raise TokenError("TOK011", document=document, expected="a one-dimensional integer array", found=found)
