"""`open_feed`: from a run file, or an order and its corpora, to batches."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.config.run import Run, Schedule, Segment
from tokenreel.corpus.opening import COMPLETE, MIX_COMPLETE, MIX_CONFIG, RUN_CONFIG
from tokenreel.errors import IncompleteError, StateError, UsageError
from tokenreel.feed.buffers import buffers_of
from tokenreel.feed.feed import Feed
from tokenreel.feed.opened import Opened
from tokenreel.feed.placement import Share, check_rank, placement
from tokenreel.feed.schedule import Cursor, Steps
from tokenreel.feed.state import State, load_state, parse_state
from tokenreel.order.stream import StreamOrder
from tokenreel.pack.policy import RowPolicy, row_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.feed.ledger import Ledger
    from tokenreel.feed.placement import Deal, Placement
    from tokenreel.feed.schedule import Last
    from tokenreel.index.assemble import Assembled
    from tokenreel.order.protocol import Order

INT32 = (1 << 31) - 1
RECEIPTS = "receipts/"


def open_feed(  # noqa: PLR0913 (all that can be said of a feed)
    run: str | os.PathLike[str] | Run | Segment | Assembled | Order,
    *,
    corpora: Corpus | Sequence[Corpus] | None = None,
    batch: int | None = None,
    schedule: Schedule | None = None,
    rows: str | Mapping[str, object] | RowPolicy | None = None,
    rank: int = 0,
    world: int = 1,
    placement: str | Placement | Deal = "contiguous",
    micro_batch: int | None = None,
    dtype: Any = "int32",
    threads: int = 1,
    prefetch: int = 2,
    endless: bool = False,
    steps: int | None = None,
    last: Last = "short",
    start: int | tuple[int, int] | None = None,
    state: Mapping[str, Any] | State | str | os.PathLike[str] | None = None,
    ledger: str | os.PathLike[str] | Ledger | None = None,
    vocab: int | None = None,
    document_weights: Sequence[npt.NDArray[np.float32] | None] | None = None,
    allow_incomplete: bool = False,
    out: Any = None,
    folder: str | os.PathLike[str] = ".",
    cache: str | os.PathLike[str] | None = None,
    segment: int | None = None,
    accept: Sequence[str] = (),
) -> Feed:
    """Return a feed over a run: the path of a run file, a `Run`, an `Assembled`, or an `Order` with its `corpora`.

    `batch` (samples of a step over all ranks) or `schedule`, `rows` (a row policy) and `steps` are the run's where they are
    left out. `steps` counts from step 0 of the run. A rank takes its part of every global batch by `placement`:
    ``contiguous``, ``strided``, ``megatron`` (with `micro_batch`) or a function. Arrays of ids have `dtype`; `prefetch` batches
    are made ahead in one thread (0: none). With `endless` the order begins again at its end; without, `last` says what
    becomes of a step that the order ends inside: ``short``, ``drop`` or ``error``. `start` is a sample, or (shard, token
    offset) of a `stream@1`; `state` a state to go on from, its file or dict. `ledger` is a file that rank 0 writes.
    `out` gives buffers (`feed.buffers.buffers_of`). `document_weights` are one array a corpus, or None for one, for a row
    policy with `weights`; weights of tokens come with the corpus. A lineage is opened at the segment that holds the state's next step; where
    that is its first, the state may be of the segment before.

    What could not be read or kept on the way (a cache, a dispatch elsewhere) is a warning of Python's.
    Raises what opening corpora, making orders and row policies raise; `StateError` as `Feed.load_state_dict`;
    `IncompleteError` (STA006) for a corpus whose build did not finish, unless `allow_incomplete`; `UsageError`: STA010 a
    rank that is none, STA011 fewer samples a batch than ranks, STA012 rows without one length of 1 .. 2**31 - 1, STA014 a
    placement that does not deal every sample once, STA016 buffers that do not fit, STA017 no batch size.

    >>> import tokenreel, tempfile
    >>> from tokenreel.formats.megatron_write import MegatronWriter
    >>> import numpy as np
    >>> with MegatronWriter(f"{tempfile.mkdtemp()}/web", np.uint16) as writer:
    ...     writer.add_documents(np.arange(9), np.array([5, 4]))
    ...     files = writer.finish()
    >>> corpus = tokenreel.open(files[0].path)
    >>> order = tokenreel.StreamOrder.over(corpus.table(), row_tokens=2)
    >>> with tokenreel.open_feed(order, corpora=corpus, batch=2) as feed:
    ...     [batch["input_ids"].tolist() for batch in feed]
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    """
    check_rank(rank, world)
    _check_counts(batch=(batch, 1), steps=(steps, 0), threads=(threads, 1), prefetch=(prefetch, 0))
    if start is not None and state is not None:
        raise UsageError("USE003", "start", expected="start or state", found="both")
    said = _state(state)
    opened = Opened.of(run, corpora, Path(folder), cache, segment, said, accept)
    sizes = _schedule(opened.run, batch, schedule)
    policy = row_policy(rows if rows is not None else opened.run.row_policy if opened.run else "plain")
    if document_weights is not None and not policy.weights:
        raise UsageError("USE003", "document_weights", expected="a row policy with weights", found=policy.kind)
    order, cursor = _started(opened.order, opened.cursor, start)
    row_tokens = _row_tokens(order)
    incomplete = _incomplete(opened.corpora, allowed=allow_incomplete)
    end = steps if steps is not None else opened.end if opened.end is not None else sizes.steps
    share = Share(rank, world, _placed(placement, micro_batch))
    plan = Steps(sizes, cursor, order.length, endless, end, last)
    if not plan.over(plan.cursor.step):
        for count in plan.sizes():
            share.check(count)

    def gatherer() -> Any:
        from tokenreel.feed.gather import Gatherer

        return Gatherer(
            opened.corpora,
            policy,
            row_tokens=row_tokens,
            row_ahead=order.row_ahead,
            dtype=dtype,
            threads=threads,
            vocab=vocab,
            document_weights=document_weights,
        )

    feed = Feed(
        order,
        opened.corpora,
        policy,
        plan,
        share=share,
        gatherer=gatherer,
        buffers=lambda: buffers_of(out, policy, row_tokens, dtype, prefetch),
        prefetch=prefetch,
        incomplete=incomplete,
        owned=opened.corpora if opened.owns else (),
    )
    buffers_of(out, policy, row_tokens, dtype, prefetch)
    for told in opened.warnings:
        warnings.warn(str(told), stacklevel=2)
    if opened.state is not None:
        feed.load_state_dict(opened.state.as_dict())
    if ledger is not None and rank == 0:
        feed.ledger = _ledger(ledger, opened.name, feed)
    return feed


def _placed(said: str | Placement | Deal, micro_batch: int | None) -> Placement:
    return placement(said, micro_batch)


def _state(said: Mapping[str, Any] | State | str | os.PathLike[str] | None) -> State | None:
    if said is None or isinstance(said, State):
        return said
    return load_state(said) if isinstance(said, str | os.PathLike) else parse_state(said)


def _check_counts(**given: tuple[object, int]) -> None:
    for name, (value, least) in given.items():
        if value is not None and (type(value) is not int or value < least):
            raise UsageError("USE003", name, expected=f"{least} or more", found=str(value))


def _schedule(run: Run | None, batch: int | None, schedule: Schedule | None) -> Schedule:
    if batch is not None and schedule is not None:
        raise UsageError("USE003", "batch", expected="batch or schedule", found="both")
    if batch is not None:
        return Schedule(batch=batch, steps=run.schedule.steps if run and run.schedule else None)
    made = schedule or (run.schedule if run else None)
    if made is None:
        raise UsageError("STA017", expected="batch=, schedule=, or a [schedule] in the run file")
    return made


def _started(order: Order, cursor: Cursor, start: int | tuple[int, int] | None) -> tuple[Order, Cursor]:
    """Return order and cursor for a feed that begins at a sample, or at a token of a stream."""
    if start is None:
        return order, cursor
    if isinstance(start, tuple):
        if not isinstance(order, StreamOrder):
            raise UsageError("USE003", "start", expected=f"a sample: {order.name} is no stream", found=str(start))
        position, origin = divmod(order.at(*start), order.row_tokens)
        return replace(order, origin=origin), Cursor(position, cursor.step, position * order.row_tokens + origin)
    _check_counts(start=(start, 0))
    if order.length is not None and start > order.length:
        raise StateError("STA003", "start", expected=f"at most {order.length} samples", found=start)
    return order, Cursor(start, cursor.step, start * order.row_tokens)


def _row_tokens(order: Order) -> int:
    if not 1 <= order.row_tokens <= INT32:
        expected = "rows of one length of 1 .. 2**31 - 1 tokens"
        raise UsageError("STA012", order.name, expected=expected, found=order.row_tokens)
    return order.row_tokens


def _incomplete(corpora: Sequence[Corpus], *, allowed: bool) -> tuple[str, ...]:
    """Return the corpora that a build began and did not finish; raises `IncompleteError` (STA006) unless allowed."""
    lacking = []
    for corpus in dict.fromkeys(corpora):
        mixed = corpus.store.exists(MIX_CONFIG)
        last = MIX_COMPLETE if mixed else COMPLETE
        if corpus.store.exists(last):
            continue
        if mixed or corpus.store.exists(RUN_CONFIG) or corpus.store.list(RECEIPTS):
            if not allowed:
                raise IncompleteError(
                    "STA006",
                    path=corpus.path,
                    expected=last,
                    found="no such file",
                    hint=f"tokenreel verify {corpus.path}",
                )
            lacking.append(corpus.path)
    return tuple(lacking)


def _ledger(said: str | os.PathLike[str] | Ledger, name: str, feed: Feed) -> Ledger:
    from tokenreel.feed.ledger import Ledger

    ledger = said if isinstance(said, Ledger) else Ledger(said, run=name)
    if ledger.cut:
        warnings.warn(f"{ledger.path}: a torn last line of {ledger.cut} bytes was cut off", stacklevel=3)
    ledger.begin(feed)
    return ledger
