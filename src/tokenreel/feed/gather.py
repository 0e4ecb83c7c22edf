"""`Gatherer`: from extents to the arrays of a batch; the one place that touches tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokenreel.errors import OrderError, TokenError, UsageError
from tokenreel.feed.gather_kernels import ADDRESS, DONE, HIGHEST, LOWEST, gather_rows
from tokenreel.feed.gather_shards import ShardMemory
from tokenreel.feed.gather_stored import KINDS
from tokenreel.pack.policy import RowPolicy, row_policy
from tokenreel.pack.rows import fills, finish, lay_out
from tokenreel.spans import Flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.feed.gather_documents import DocumentEdges
    from tokenreel.feed.gather_weights import ShardWeights
    from tokenreel.spans import SpanTable

    Arrays = dict[str, npt.NDArray[Any]]
    Layout = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]

INT32_MAX = (1 << 31) - 1
DTYPES = ("int32", "int64")
QUICK_EXTENTS = 1024
_NONE, _NO_PIECES = np.empty(0, dtype=np.int64), np.empty((0, 5), dtype=np.int64)


class Gatherer:
    """Writes samples into rows under a row policy. Safe to use from several threads; `close` it, or use it with ``with``.

    `corpora` stand at the numbers that extents use. Rows are `row_tokens` wide, shorter samples are padded. With `vocab`
    every id read is checked. Raises `UsageError` (USE003) for arguments.

    >>> from tokenreel.formats.megatron_write import MegatronWriter
    >>> import numpy as np, tempfile, tokenreel
    >>> folder = tempfile.mkdtemp()
    >>> with MegatronWriter(f"{folder}/web", np.uint16) as writer:
    ...     writer.add_documents(np.arange(1, 11), np.array([4, 6]))
    ...     files = writer.finish()
    >>> table = tokenreel.SpanTable.of([0, 1], [2], [4], flags=tokenreel.Flag.AHEAD)
    >>> with Gatherer([tokenreel.open(folder)], "plain", row_tokens=4, row_ahead=1) as gatherer:
    ...     batch = gatherer.batch(table)
    >>> batch["input_ids"].tolist(), batch["labels"].tolist()
    ([[3, 4, 5, 6]], [[4, 5, 6, 7]])
    """

    def __init__(
        self,
        corpora: Sequence[Corpus],
        policy: RowPolicy | Mapping[str, object] | str,
        *,
        row_tokens: int,
        row_ahead: int,
        dtype: npt.DTypeLike = "int32",
        threads: int = 1,
        vocab: int | None = None,
        maps: int | None = None,
        document_weights: Sequence[npt.NDArray[np.float32] | None] | None = None,
    ) -> None:
        if not 1 <= row_tokens <= INT32_MAX:
            raise UsageError("USE003", "row_tokens", expected=f"1 .. {INT32_MAX}", found=row_tokens)
        if row_ahead not in (0, 1):
            raise UsageError("USE003", "row_ahead", expected="0 or 1", found=row_ahead)
        if threads < 1:
            raise UsageError("USE003", "threads", expected="1 or more", found=threads)
        if vocab is not None and not 1 <= vocab <= 1 << 63:
            raise UsageError("USE003", "vocab", expected="1 or more", found=vocab)
        self.policy = row_policy(policy)
        self._by_document = self.policy.by_document
        self.row_tokens = row_tokens
        self.row_ahead = row_ahead
        self.dtype = _dtype(dtype)
        self.vocab = vocab
        self._corpora = tuple(corpora)
        self._documents: DocumentEdges | None = None
        self._memory = ShardMemory(self._corpora, maps)
        self._tables_of_shards = row_tokens, self._memory.corpora, self._memory.edges, self._memory.shards
        self._bound()
        self._fills = fills(self.policy, row_ahead)
        self._names = self.policy.ids_name, self.policy.labels_name
        self._more = set(self.policy.arrays()) > {name for name in self._names if name is not None}
        self._layout: tuple[int, Layout] = (-1, {})
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "tokenreel-gather") if threads > 1 else None
        self._weights: ShardWeights | None = None
        if self.policy.weights:
            from tokenreel.feed.gather_weights import ShardWeights

            self._weights = ShardWeights(
                self._corpora, self._memory, document_weights, own_ends=self.policy.ends == "token"
            )

    def batch(self, table: SpanTable, out: Mapping[str, npt.NDArray[Any]] | None = None) -> Arrays:
        """Return the arrays of a table's samples, one row each, new or in the buffers of `out`.

        Every buffer must have the shape and the dtype that ``policy.layout(samples, row_tokens, dtype)`` says, be
        contiguous and writable (`UsageError` USE003). Raises `OrderError`: ORD003, ORD004 a table that is not well formed
        over these corpora, PCK001 a sample longer than a row; `StorageError` (STO004) a shard that changed size;
        `TokenError` (TOK041) an id outside the vocabulary, or beyond the dtype. Nothing is promised of buffers after an
        error. Cost: about that of copying the bytes of the arrays; one call of the system for each shard read.
        """
        if self._by_document:
            table = self._resolved(table)
        arrays = self._buffers(len(table.splits) - 1, out)
        if not self._quick(table, arrays):
            self._gather(table, arrays)
        if self._more:
            finish(table, self.policy, self.row_tokens, arrays)
        if self._weights is not None:
            self._weights.multiply(table, arrays["loss_mask"])
        return arrays

    def _quick(self, table: SpanTable, arrays: Arrays) -> bool:
        """Gather in one call, where that is faster: all shards are mapped already, extents are few, there is one thread.

        Return False where nothing was done.
        """
        known = self._memory.quick
        if known is None or self._pool is not None or len(table.begin) > QUICK_EXTENTS:
            return False
        bases, files = known
        for file in files:
            file.check()
        samples = len(table.splits) - 1
        done = gather_rows(
            0, samples, table.splits, table.corpus, table.begin, table.length, table.flags, *self._tables_of_shards, bases,
            _NONE, _NO_PIECES, *self._fills, *self._written(arrays),
        )  # fmt: skip
        if done == DONE and self._more:
            lay_out(table, self.policy, self.row_tokens, self.row_ahead, arrays, 0, samples)
        return bool(done == DONE)

    def _gather(self, table: SpanTable, arrays: Arrays) -> None:
        """Gather whatever there is, from any number of threads, and say what is wrong."""
        memory = self._memory
        first, pieces, kept = memory.pieces(table, self.row_tokens)
        written = self._written(arrays)

        def rows(low: int, high: int) -> None:
            bad = gather_rows(
                low, high, table.splits, table.corpus, table.begin, table.length, table.flags, *self._tables_of_shards,
                memory.bases, first, pieces, *self._fills, *written,
            )  # fmt: skip
            if bad != DONE:
                raise self._outside(*pieces[bad, :ADDRESS].tolist())
            if self._more:
                lay_out(table, self.policy, self.row_tokens, self.row_ahead, arrays, low, high)

        self._each(rows, table.samples)
        del kept

    def _written(self, arrays: Arrays) -> tuple[Any, Any]:
        """Return the arrays that ids and labels are written to."""
        ids_name, labels_name = self._names
        ids = arrays[ids_name]
        return ids, ids[:0] if labels_name is None else arrays[labels_name]

    def _each(self, rows: Any, samples: int) -> None:
        """Run `rows` over ranges of rows, one a thread."""
        parts = min(self._threads, samples)
        if self._pool is None or parts < 2:
            rows(0, samples)
            return
        edges = [samples * k // parts for k in range(parts + 1)]
        waiting = [self._pool.submit(rows, edges[k], edges[k + 1]) for k in range(1, parts)]
        try:
            rows(0, edges[1])
        finally:
            # All have to be done before memory may go, whatever the first one raised.
            failed = [one.exception() for one in waiting]
        for error in failed:
            if error is not None:
                raise error

    def _resolved(self, table: SpanTable) -> SpanTable:
        """Return the table with every extent inside one document."""
        if not len(table.document) == len(table.start) == len(table.flags) == len(table.begin):
            table.check([corpus.tokens for corpus in self._corpora])
        if self._documents is None:
            from tokenreel.feed.gather_documents import DocumentEdges

            if not bool(((table.document < 0) & ((table.flags & Flag.PAD) == 0)).any()):
                return table
            self._documents = DocumentEdges(self._corpora)
        return self._documents.resolve(table)

    def _bound(self) -> None:
        """Have ids checked where the stored type can hold one that must not be."""
        limits = np.iinfo(self.dtype)
        low, high = (limits.min, limits.max) if self.vocab is None else (0, min(self.vocab - 1, limits.max))
        for number, kind in enumerate(KINDS):
            held = np.iinfo(kind)
            if held.min < low or held.max > high:
                self._memory.allow(number, low, high)

    def _outside(self, shard: int, low: int, tokens: int) -> TokenError:
        """Return the error that names the first id out of range among `tokens` of a shard."""
        corpus, number = self._memory.owner(shard)
        ids = self._memory.read(shard, low, low + tokens)
        lowest, highest = self._memory.shards[shard, [LOWEST, HIGHEST]].tolist()
        k = int(((ids < lowest) | (ids > highest)).argmax())
        there = corpus.shard(number)
        path, offset = there.byte_at(low + k)
        return TokenError(
            "TOK041",
            f"token {low + k} of the shard",
            path=f"{corpus.path}: {path}",
            offset=offset,
            shard=there.name,
            expected=f"ids below {self.vocab}" if self.vocab is not None else f"ids that fit {self.dtype}",
            found=int(ids[k]),
        )

    def _buffers(self, samples: int, out: Mapping[str, npt.NDArray[Any]] | None) -> Arrays:
        known, layout = self._layout
        if known != samples:
            layout = self.policy.layout(samples, self.row_tokens, self.dtype)
            self._layout = samples, layout
        if samples < 0:
            raise OrderError("ORD004", "a table without splits")
        if out is None:
            return {name: np.empty(shape, dtype) for name, (shape, dtype) in layout.items()}
        for name, (shape, dtype) in layout.items():
            given = out.get(name)
            if given is None:
                raise UsageError("USE003", "out", expected=", ".join(layout), found=f"no {name}")
            if (
                given.shape != shape
                or given.dtype != dtype
                or not given.flags.c_contiguous
                or not given.flags.writeable
            ):
                state = "" if given.flags.c_contiguous and given.flags.writeable else ", not contiguous or not writable"
                found = f"{given.dtype} {given.shape}{state}"
                raise UsageError(
                    "USE003", f"out[{name!r}]", expected=f"{dtype} {shape}, contiguous, writable", found=found
                )
        return {name: out[name] for name in layout}

    def close(self) -> None:
        """Give maps and threads back; arrays handed out stay valid."""
        if self._pool is not None:
            self._pool.shutdown()
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    made = np.dtype(dtype)
    if made.name not in DTYPES or not made.isnative:
        raise UsageError("USE003", "dtype", expected=" or ".join(DTYPES), found=str(made))
    return made
