"""States taken into other data: a source withdrawn, weights rewritten, another order; and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenreel
from tests.feed.feeds import corpus_of, mixed, row_ids, rows_of, stream_over, windows_over, write_corpus
from tokenreel.corpus.corpus import Corpus
from tokenreel.errors import StateError
from tokenreel.feed.coverage import Runs, moved, read_by
from tokenreel.feed.migrate import Migration, migrate
from tokenreel.feed.state import parse_state
from tokenreel.index.assemble import Assembled
from tokenreel.order.protocol import Order


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    folder = tmp_path_factory.mktemp("corpora")
    sizes = {"a": 163, "b": 181, "c": 175}
    return [corpus_of(folder / name, size, first=1000 * k) for k, (name, size) in enumerate(sizes.items())]


def assembled(order: Order, corpora: list[Corpus], names: str = "abc") -> Assembled:
    return Assembled(order, tuple(corpora), tuple(names[: len(corpora)]))


def state_at(order: Order, corpora: Any, samples: int) -> dict[str, Any]:
    with tokenreel.open_feed(order, corpora=corpora, batch=samples, prefetch=0) as feed:
        next(feed)
        return feed.state_dict()


def rows_after(done: Migration, order: Order, corpora: list[Corpus]) -> list[list[int]]:
    with tokenreel.open_feed(order, corpora=corpora, batch=8, state=done.state.as_dict()) as feed:
        assert feed.state_dict() == done.state.as_dict()
        return [row for batch in feed for row in row_ids(batch)]


# ---- runs of tokens -------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=12),
)
def test_runs_are_sets_of_tokens(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    def runs(pairs: list[tuple[int, int]]) -> Runs:
        begin = np.array([b for b, _ in pairs], dtype=np.int64)
        return Runs.of(begin, begin + np.array([n for _, n in pairs], dtype=np.int64))

    def tokens(pairs: list[tuple[int, int]]) -> set[int]:
        return {t for b, n in pairs for t in range(b, b + n)}

    a, b = runs(one), runs(two)
    assert a.tokens == len(tokens(one))
    assert a.joined(b).tokens == len(tokens(one) | tokens(two))
    assert a.shared(b) == len(tokens(one) & tokens(two))
    assert bool((a.begin[1:] > a.end[:-1]).all())


def test_tokens_read_follow_their_shard(tmp_path: Path) -> None:
    old = tokenreel.open(write_corpus(tmp_path / "old", [[20], [30], [25]], names=["a", "b", "c"]))
    new = tokenreel.open(write_corpus(tmp_path / "new", [[20], [25]], names=["a", "c"]))
    read = read_by(stream_over(old, 5), 2, 12)[0]
    assert list(zip(read.begin.tolist(), read.end.tolist(), strict=True)) == [(10, 60)]
    there = moved(read, old, new)
    assert list(zip(there.begin.tolist(), there.end.tolist(), strict=True)) == [(10, 30)]


# ---- mixtures -------------------------------------------------------------------------------------------------------


def test_a_mixture_without_one_of_its_sources_goes_on_with_the_others(corpora: list[Corpus]) -> None:
    order = mixed(corpora, (0, (2.0, 1.0, 1.0)), samples=64)
    state = state_at(order, corpora, 24)
    kept = [corpora[0], corpora[2]]
    without = replace(mixed(kept, (0, (2.0, 1.0)), samples=30))
    without = replace(without, components=(without.components[0], replace(without.components[1], name="c")))
    done = migrate(parse_state(state), assembled(without, kept, "ac"))
    assert (done.how, done.repeats, done.lost) == ("cursors", 0, 0)
    assert any("b is withdrawn: it had given 6 samples" in note for note in done.notes)
    assert (done.state.cursor.step, done.state.cursor.tokens) == (1, 96)
    seen = rows_after(done, without, kept)
    for number, corpus in enumerate(kept):
        mine = [row for row in seen if row[0] // 1000 == (0, 2)[number]]
        first = (12, 6)[number]
        expected = rows_of(windows_over(corpus), [corpus], range(min(40, first + len(mine))))
        assert mine[: 40 - first] == expected[first:]


def test_weights_rewritten_without_a_phase_keep_their_cursors(corpora: list[Corpus]) -> None:
    two = corpora[:2]
    state = state_at(mixed(two, (0, (3.0, 1.0)), samples=64), two, 24)
    rewritten = mixed(two, (0, (1.0, 1.0)), samples=16)
    done = migrate(parse_state(state), assembled(rewritten, two))
    assert done.how == "cursors"
    seen = rows_after(done, rewritten, two)
    assert [row for row in seen if row[0] < 1000] == rows_of(windows_over(two[0]), two[:1], range(18, 26))
    assert [row for row in seen if row[0] >= 1000] == rows_of(windows_over(two[1]), two[1:], range(6, 14))
    # And once more, from a state of the mixture that was begun so.
    with tokenreel.open_feed(rewritten, corpora=two, batch=8, state=done.state.as_dict()) as feed:
        next(feed)
        again = feed.state_dict()
    other = mixed(two, (0, (1.0, 3.0)), samples=8)
    twice = migrate(parse_state(again), assembled(other, two))
    assert twice.state.cursors is not None
    assert twice.state.cursors["starts"] == [22, 10]


def test_a_source_that_is_another_begins_anew_and_that_is_said(corpora: list[Corpus]) -> None:
    state = state_at(mixed(corpora[:2], (0, (3.0, 1.0)), samples=64), corpora[:2], 24)
    other = [corpora[0], corpora[2]]
    done = migrate(parse_state(state), assembled(mixed(other, (0, (3.0, 1.0)), samples=24), other))
    assert (done.repeats, done.lost) == (None, None)
    assert any("b is not the order it was" in note for note in done.notes)
    assert done.state.cursors is not None
    assert done.state.cursors["starts"] == [18, 0]


# ---- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kept", "next_token"), [("acd", 38), ("abc", 68), ("cd", 18), ("abd", 50), ("ad", 20)])
def test_a_stream_goes_on_after_a_withdrawn_shard(tmp_path: Path, kept: str, next_token: int) -> None:
    """At token 18 of shard c; the shards have 20, 30, 25 and 10 tokens."""
    sizes = {"a": 20, "b": 30, "c": 25, "d": 10}
    old = tokenreel.open(write_corpus(tmp_path / "old", [[n] for n in sizes.values()], names=list(sizes)))
    state = state_at(stream_over(old), old, 17)
    new = tokenreel.open(write_corpus(tmp_path / "new", [[sizes[k]] for k in kept], names=list(kept)))
    order = stream_over(new)
    untold = migrate(parse_state(state), assembled(order, [new]))
    assert (untold.how, untold.repeats, untold.lost) == ("stream", None, None)
    done = migrate(parse_state(state), assembled(order, [new]), assembled(stream_over(old), [old]))
    assert (done.how, done.repeats, done.lost) == ("stream", 0, 0)
    assert done.state == untold.state
    assert done.state.stream is not None
    assert done.state.stream["token"] == next_token
    assert [row[0] for row in rows_after(done, order, [new])] == list(range(next_token, new.tokens - 4, 4))
    assert ("c" in kept) == (not done.notes)


def test_a_stream_with_shards_that_came_says_what_is_lost(tmp_path: Path) -> None:
    """A shard put before the cursor is not read in this pass; one that was cut is not the shard that was read."""
    old = tokenreel.open(write_corpus(tmp_path / "old", [[20], [30], [25]], names=["a", "c", "d"]))
    state = parse_state(state_at(stream_over(old), old, 8))
    new = tokenreel.open(write_corpus(tmp_path / "new", [[18], [7], [30], [25]], names=["a", "b", "c", "d"]))
    done = migrate(state, assembled(stream_over(new), [new]), assembled(stream_over(old), [old]))
    assert done.state.stream is not None
    assert done.state.stream["token"] == 18 + 7 + 12
    assert (done.repeats, done.lost) == (0, 18 + 7)


def test_a_stream_whose_last_shards_are_withdrawn_is_over(tmp_path: Path) -> None:
    old = tokenreel.open(write_corpus(tmp_path / "old", [[20], [30]], names=["a", "b"]))
    new = tokenreel.open(write_corpus(tmp_path / "new", [[20]], names=["a"]))
    done = migrate(parse_state(state_at(stream_over(old), old, 6)), assembled(stream_over(new), [new]))
    assert rows_after(done, stream_over(new), [new]) == []
    assert "is at the end of the stream" in done.notes[0]


# ---- any order ------------------------------------------------------------------------------------------------------


def test_what_repeats_and_is_lost_is_counted_token_by_token(tmp_path: Path) -> None:
    old = tokenreel.open(write_corpus(tmp_path / "old", [[40], [40], [41]], names=["a", "b", "c"]))
    new = tokenreel.open(write_corpus(tmp_path / "new", [[40], [41]], names=["a", "c"]))
    before, after = windows_over(old), windows_over(new)
    state = parse_state(state_at(before, old, 12))
    with pytest.raises(StateError) as caught:
        migrate(state, assembled(after, [new]))
    assert caught.value.code == "STA004"
    for at in (None, 0, 5, 20):
        done = migrate(state, assembled(after, [new]), assembled(before, [old]), at_sample=at)
        position = done.state.cursor.position
        assert position == (8 if at is None else at)
        read = {t for w in before.window_at(range(12)).tolist() for t in range(4 * w, 4 * w + 4)}
        # Shard b held tokens 40 .. 79.
        read = {t - 40 if t >= 80 else t for t in read if not 40 <= t < 80}
        skipped = {t for w in after.window_at(range(position)).tolist() for t in range(4 * w, 4 * w + 4)}
        later = {t for w in after.window_at(range(position, 20)).tolist() for t in range(4 * w, 4 * w + 4)}
        assert done.repeats == len(read & later)
        assert done.lost == len(skipped - read)
        assert done.sources == {"a": {"read": len(read), "repeats": done.repeats, "lost": done.lost}}
        with tokenreel.open_feed(after, corpora=new, batch=3, state=done.state.as_dict()) as feed:
            assert [batch.position for batch in feed] == list(range(position, 20, 3))


def test_without_the_old_run_a_sample_has_to_be_said(corpora: list[Corpus]) -> None:
    one = corpora[0]
    state = parse_state(state_at(windows_over(one), one, 8))
    done = migrate(state, assembled(windows_over(one, seed=9), [one]), at_sample=8)
    assert (done.how, done.repeats, done.lost, done.state.cursor.position) == ("sample", None, None, 8)
    with pytest.raises(StateError, match="STA003"):
        migrate(state, assembled(windows_over(one, seed=9), [one]), at_sample=41)
    with pytest.raises(StateError, match="STA004"):
        migrate(state, assembled(windows_over(one, seed=9), [one]), assembled(windows_over(one, seed=1), [one]))


def test_a_state_that_may_go_on_stays_as_it_is(corpora: list[Corpus]) -> None:
    one = corpora[0]
    state = state_at(windows_over(one), one, 8)
    done = migrate(parse_state(state), assembled(windows_over(one, epochs=3), [one]))
    assert (done.how, done.repeats, done.lost) == ("as it is", 0, 0)
    assert done.state.cursor.position == 8
