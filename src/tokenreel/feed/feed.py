"""`Feed`: what a training loop iterates. Its state is the cursor after the last batch that it returned."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from tokenreel.errors import StateError
from tokenreel.feed.batch import batches
from tokenreel.feed.prefetch import Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from tokenreel.config.run import Schedule
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.feed.batch import Batch, Lends
    from tokenreel.feed.gather import Gatherer
    from tokenreel.feed.ledger import Ledger
    from tokenreel.feed.placement import Share
    from tokenreel.feed.schedule import Cursor, Steps
    from tokenreel.feed.state import State
    from tokenreel.order.protocol import Order
    from tokenreel.pack.policy import RowPolicy


class Feed:
    """Batches of one rank, step after step. Made by `open_feed`; iterate it, and close it or leave its ``with`` block.

    ``iter(feed)`` goes on where the feed stands, and `step`, `position` and `tokens` are what the last returned batch has
    brought them to, whatever was made ahead. An error while a batch is made is raised where the batch would have come, and
    the next call tries the same step again. Not for several threads at once. After a fork the child's copy goes on by itself.
    """

    def __init__(
        self,
        order: Order,
        corpora: tuple[Corpus, ...],
        policy: RowPolicy,
        steps: Steps,
        *,
        share: Share,
        gatherer: Callable[[], Gatherer],
        buffers: Callable[[], Lends],
        prefetch: int = 2,
        incomplete: tuple[str, ...] = (),
        ledger: Ledger | None = None,
        owned: tuple[Corpus, ...] = (),
    ) -> None:
        self.order = order
        self.corpora = corpora
        self.policy = policy
        self.steps = steps
        """Which samples each step takes."""
        self.share = share
        """Which rank of how many, and how samples are dealt."""
        self.incomplete = incomplete
        """Corpora taken without their COMPLETE.json."""
        self.ledger = ledger
        self._cursor = steps.cursor
        self._loaded: State | None = None
        self._new_gatherer, self._new_buffers, self._depth = gatherer, buffers, prefetch
        self._gatherer: Gatherer | None = None
        self._prefetch: Prefetch | None = None
        self._made: Iterator[Batch] | None = None
        self._process = os.getpid()
        self._closed = False
        self._owned = owned

    # -- where it stands ------------------------------------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """Samples of each step."""
        return self.steps.schedule

    @property
    def rank(self) -> int:
        """Which of the data-parallel ranks this is."""
        return self.share.rank

    @property
    def world(self) -> int:
        """Data-parallel ranks."""
        return self.share.world

    @property
    def cursor(self) -> Cursor:
        """Position, step and tokens after the last batch returned."""
        return self._cursor

    @property
    def position(self) -> int:
        """Samples consumed, over all ranks."""
        return self._cursor.position

    @property
    def step(self) -> int:
        """Steps done: the number of the next one."""
        return self._cursor.step

    @property
    def tokens(self) -> int:
        """Input tokens consumed, over all ranks, padding among them."""
        return self._cursor.tokens

    @property
    def stop(self) -> int | None:
        """Step that the feed ends before, the same on every rank; None where it has no end."""
        return self.steps.stop

    def where(self) -> tuple[int, int] | None:
        """Return (shard number, token offset) of the next token of a `stream@1`; None for other orders."""
        from tokenreel.feed.going_on import stream_place

        return stream_place(self.order, self._cursor.position)

    # -- batches --------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        """Return the feed itself."""
        return self

    def __next__(self) -> Batch:
        """Return the next batch. Raises `StateError` (STA015) when closed, and what orders, storage and policies raise."""
        self._check_open()
        cursor = self._cursor
        if self.steps.over(cursor.step):
            self._drop()
            raise StopIteration
        try:
            batch = self._next_made()
            # A call that was interrupted may have taken a batch and not returned it.
            if batch is not None and batch.step != cursor.step:
                self._drop()
                batch = self._next_made()
            if batch is None:
                raise RuntimeError(cursor)
            if self.ledger is not None:
                self.ledger.record(batch)
        except BaseException:
            self._drop()
            raise
        self._cursor = self.steps.after(batch.position, batch.count, batch.step, self.order.row_tokens)
        self._loaded = None
        return batch

    def batch_at(self, step: int) -> Batch:
        """Return any step's batch; the feed stays where it is, and nothing is written to its ledger.

        Raises `StateError` (STA003) for a step before the one loaded or after the last.
        """
        self._check_open()
        if step < self.steps.cursor.step or self.steps.over(step):
            stop = "" if self.stop is None else self.stop - 1
            raise StateError("STA003", f"step {step}", expected=f"{self.steps.cursor.step} .. {stop}", found=step)
        return next(self._batches(step))

    def rows(self, samples: npt.ArrayLike) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of any samples of the order, in the order asked, repeats included; the feed stays where it is."""
        self._check_open()
        if self._gatherer is None:
            self._gatherer = self._new_gatherer()
        return self._gatherer.batch(self.order.spans_at(samples))

    def took(self, batch: Batch) -> None:
        """Move past the next step's batch, which another process made and this one returns to its caller.

        Any object with `step`, `position` and `count` will do. Raises `StateError` (STA003) unless it is the next step's.
        """
        self._check_open()
        if batch.step != self._cursor.step:
            raise StateError("STA003", "a batch", expected=f"step {self._cursor.step}", found=batch.step)
        if self.ledger is not None:
            self.ledger.record(batch)
        self._cursor = self.steps.after(batch.position, batch.count, batch.step, self.order.row_tokens)
        self._loaded = None

    def state_after(self, batch: Batch) -> dict[str, Any]:
        """Return the state that describes a batch of `batch_at`, as if it had been the last one returned."""
        from tokenreel.feed.going_on import state_of

        cursor = self.steps.after(batch.position, batch.count, batch.step, self.order.row_tokens)
        return state_of(self.order, cursor, self.incomplete, repeats=self.steps.repeats).as_dict()

    def _batches(self, step: int) -> Iterator[Batch]:
        if self._gatherer is None:
            self._gatherer = self._new_gatherer()
        return batches(self.order, self.steps, self.share, self._gatherer, self._new_buffers(), step)

    def _next_made(self) -> Batch | None:
        if self._prefetch is None and self._made is None:
            made = self._batches(self._cursor.step)
            if self._depth:
                self._prefetch = Prefetch(made, self._depth)
            else:
                self._made = made
        if self._prefetch is not None:
            return self._prefetch.get()
        return next(self._made, None) if self._made is not None else None

    def _drop(self) -> None:
        """Give up what was made ahead."""
        prefetch, self._prefetch, self._made = self._prefetch, None, None
        if prefetch is not None:
            prefetch.stop()

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("STA015", expected="an open feed", hint="open_feed(..., state=STATE)")
        if self._process != os.getpid():
            # A forked child has neither the thread nor what it held.
            self._process = os.getpid()
            self._prefetch = self._made = self._gatherer = None

    # -- state ----------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch returned: a small dict that JSON takes.

        Loaded and asked for again, it is the same. What the ledger holds is on the disk when this returns.
        """
        if self.ledger is not None:
            self.ledger.sync()
        if self._loaded is None:
            from tokenreel.feed.going_on import state_of

            self._loaded = state_of(
                self.order, self._cursor, self.incomplete, corpora=self.corpora, repeats=self.steps.repeats
            )
        return self._loaded.as_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after a state, whatever batch size, world and workers it was made with.

        Raises `StateError`: STA001, STA002 and STA007 for what is no state of ours, STA003 beyond the order's end, STA004
        for another order (with what differs), STA005 for another corpus.
        """
        from dataclasses import replace

        from tokenreel.feed.going_on import go_on
        from tokenreel.feed.state import parse_state

        self._check_open()
        said = parse_state(state)
        order, cursor = go_on(said, self.order, self.corpora, repeats=self.steps.repeats)
        length = order.length
        steps = replace(self.steps, cursor=cursor, length=length)
        for count in steps.sizes():
            self.share.check(count)
        self._drop()
        self.order, self.steps, self._cursor = order, steps, cursor
        same = cursor == said.cursor and said.incomplete == self.incomplete
        self._loaded = said if same else None
        if self.ledger is not None:
            self.ledger.new_attempt(self)

    # -- the end --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the thread, give buffers and files back, and close the ledger. A closed feed still has its state."""
        if self._closed:
            return
        if self._process == os.getpid():
            self._drop()
        if self.ledger is not None:
            self.ledger.close()
        self._closed = True
        if self._gatherer is not None and self._process == os.getpid():
            self._gatherer.close()
        self._gatherer = None
        for corpus in self._owned:
            corpus.close()

    def __enter__(self) -> Self:
        """Return the feed itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the feed."""
        self.close()

    def __repr__(self) -> str:
        """Return one short line."""
        stop = "" if self.stop is None else f" of {self.stop:,}"
        ranks = "" if self.world == 1 else f", rank {self.rank} of {self.world}"
        return f"<Feed {self.order.name}: step {self.step:,}{stop}, sample {self.position:,}{ranks}>"
