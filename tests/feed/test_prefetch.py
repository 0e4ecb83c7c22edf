"""The thread that makes batches ahead: bounded, quiet at every kind of end, and safe around a fork."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokenreel
from tests.feed.feeds import corpus_of, row_ids, rows_of, windows_over
from tokenreel.corpus.corpus import Corpus
from tokenreel.feed import prefetch
from tokenreel.feed.batch import Batch
from tokenreel.feed.prefetch import Prefetch


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus_of(tmp_path_factory.mktemp("corpus") / "a", 163)


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "tokenreel-feed"]


def ended(made: list[threading.Thread]) -> bool:
    for thread in made:
        thread.join(20)
    return not any(thread.is_alive() for thread in made)


class Source:
    """Makes plain objects, and knows how many."""

    def __init__(self, count: int) -> None:
        self.made = 0
        self.count = count
        self.enough = threading.Event()
        self.at = count

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.made == self.count:
            raise StopIteration
        self.made += 1
        if self.made == self.at:
            self.enough.set()
        return self.made


def test_no_more_is_made_ahead_than_asked() -> None:
    source = Source(100)
    source.at = 3
    made = Prefetch(source, 3)
    assert source.enough.wait(20)
    thread = threads()[-1]
    # Without a credit the thread waits: it is in `get` for good.
    thread.join(0.05)
    assert source.made == 3
    source.at = 4
    source.enough.clear()
    assert made.get() == 1  # type: ignore[comparison-overlap]
    assert source.enough.wait(20)
    made.stop()
    assert source.made == 4
    assert not thread.is_alive()


def test_the_end_and_an_error_come_in_their_turn() -> None:
    made = Prefetch(iter([1, 2]), 5)  # type: ignore[list-item]
    got: list[Any] = [made.get(), made.get(), made.get()]
    assert got == [1, 2, None]

    def failing() -> Iterator[Batch]:
        yield 7  # type: ignore[misc]
        raise KeyError("lost")

    made = Prefetch(failing(), 5)
    assert made.get() == 7  # type: ignore[comparison-overlap]
    with pytest.raises(KeyError, match="lost"):
        made.get()


@pytest.mark.parametrize("depth", [0, 3])
def test_an_error_comes_where_its_batch_would_have_and_may_be_tried_again(corpus: Corpus, depth: int) -> None:
    order = windows_over(corpus)
    feed = tokenreel.open_feed(order, corpora=corpus, batch=4, prefetch=depth)
    right = feed._new_gatherer
    broken = {"left": 1}

    class Failing:
        def __init__(self) -> None:
            self.right, self.calls = right(), 0

        def batch(self, table: Any, out: Any = None) -> Any:
            self.calls += 1
            if self.calls == 3 and broken["left"]:
                broken["left"] -= 1
                raise OSError("the disk went away")
            return self.right.batch(table, out)

        def close(self) -> None:
            self.right.close()

    feed._new_gatherer = Failing  # type: ignore[assignment]
    with feed:
        assert [next(feed).step, next(feed).step] == [0, 1]
        with pytest.raises(OSError, match="the disk went away"):
            next(feed)
        assert feed.state_dict()["step"] == 2
        assert [batch.step for batch in feed] == list(range(2, 10))


def test_a_call_that_was_interrupted_loses_nothing(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between taking a batch from the queue and returning it."""
    order = windows_over(corpus)
    with tokenreel.open_feed(order, corpora=corpus, batch=4, prefetch=3) as feed:
        next(feed)
        right = Prefetch.get

        def taken(self: Prefetch) -> Batch | None:
            right(self)
            raise KeyboardInterrupt

        monkeypatch.setattr(Prefetch, "get", taken)
        with pytest.raises(KeyboardInterrupt):
            next(feed)
        monkeypatch.setattr(Prefetch, "get", right)
        assert feed.step == 1
        assert row_ids(next(feed)) == rows_of(order, [corpus], range(4, 8))


def test_closing_ends_the_thread(corpus: Corpus) -> None:
    before = set(threads())
    with tokenreel.open_feed(windows_over(corpus), corpora=corpus, batch=4, prefetch=3) as feed:
        assert set(threads()) == before
        next(feed)
        made = [one for one in threads() if one not in before]
        assert len(made) == 1
    assert ended(made)


def test_the_end_of_the_order_ends_the_thread(corpus: Corpus) -> None:
    before = set(threads())
    feed = tokenreel.open_feed(windows_over(corpus), corpora=corpus, batch=4, prefetch=3)
    assert len(list(feed)) == 10
    assert ended([one for one in threads() if one not in before])
    assert list(feed) == []


@pytest.mark.parametrize("rows", ["plain", "documents"])
def test_a_feed_that_is_dropped_ends_its_thread(corpus: Corpus, rows: str) -> None:
    before = set(threads())
    feed = tokenreel.open_feed(windows_over(corpus), corpora=corpus, batch=1, rows=rows, prefetch=3)
    next(feed)
    made = [one for one in threads() if one not in before]
    gone = weakref.ref(feed)
    del feed
    gc.collect()
    assert gone() is None
    assert ended(made)
    assert not any(one in prefetch._threads for one in made)


@pytest.mark.parametrize("depth", [0, 4])
def test_a_fork_s_child_goes_on_by_itself(corpus: Corpus, depth: int) -> None:
    """Both go on with the same batches; neither waits for a thread, or a lock, that it has not."""
    order = windows_over(corpus, epochs=None)
    with tokenreel.open_feed(order, corpora=corpus, batch=4, steps=40, prefetch=depth, threads=2) as feed:
        for _ in range(3):
            next(feed)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                rest = [k for batch in feed for k in batch.samples.tolist()]
                os.write(write, repr((rest, feed.state_dict()["step"])).encode())
            finally:
                os._exit(0)
        os.close(write)
        rest = [k for batch in feed for k in batch.samples.tolist()]
        with os.fdopen(read, "rb") as pipe:
            told = pipe.read()
        assert os.waitpid(child, 0)[1] == 0
    assert rest == list(range(12, 160))
    assert told == repr((rest, 40)).encode()


def test_forks_while_batches_are_made(corpus: Corpus) -> None:
    """A fork waits for the batch that is being made, so the child finds every lock free."""
    order = windows_over(corpus, epochs=None)
    with tokenreel.open_feed(order, corpora=corpus, batch=4, prefetch=4) as feed:
        for _ in range(20):
            next(feed)
            child = os.fork()
            if child == 0:
                os._exit(0 if next(feed).step == feed.step - 1 else 1)
            assert os.waitpid(child, 0)[1] == 0


EXITS = {
    "end": "feed = None",
    "exception": "raise SystemExit(3)",
    "exit": "import os; os._exit(3)",
    "in a thread": "import threading; threading.Thread(target=lambda: next(feed)).start()",
}


@pytest.mark.parametrize("how", EXITS)
def test_a_process_with_an_open_feed_ends(corpus: Corpus, how: str) -> None:
    """Whatever way it goes, within the time limit, and without a word on stderr."""
    program = f"""
import tokenreel
from tokenreel.order.windows import WindowsOrder
corpus = tokenreel.open({corpus.path!r})
order = WindowsOrder.over(corpus.table(), 4, 7, epochs=None)
feed = tokenreel.open_feed(order, corpora=corpus, batch=8, prefetch=8)
other = tokenreel.open_feed(order, corpora=corpus, batch=8, prefetch=8, threads=2)
next(feed), next(other)
{EXITS[how]}
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.stderr == b""
    assert done.returncode == (3 if how in ("exception", "exit") else 0)
