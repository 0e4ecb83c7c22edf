"""Feeds: every sample once, in order, whatever ranks, batches and stops; and what a state says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.feed.feeds import (
    corpus_of,
    global_rows,
    mixed,
    open_all,
    row_ids,
    rows_of,
    stream_over,
    windows_over,
    write_corpus,
)
from tests.formats.flat_cases import write
from tokenreel.config.run import Schedule, Stage
from tokenreel.corpus.corpus import Corpus
from tokenreel.errors import IncompleteError, StateError, StorageError, TokenError, TokenreelError, UsageError
from tokenreel.feed.schedule import Cursor, Steps
from tokenreel.formats.datatrove import open_writer
from tokenreel.order.protocol import Order

TOKENS = 163
PLACEMENTS = st.sampled_from(["contiguous", "strided", "megatron"])


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    folder = tmp_path_factory.mktemp("corpora")
    return [corpus_of(folder / "a", TOKENS), corpus_of(folder / "b", 90, first=10_000)]


@pytest.fixture(scope="module")
def orders(corpora: list[Corpus]) -> dict[str, tuple[Order, list[Corpus]]]:
    """A stream, a permutation and a mixture whose weights change."""
    one = corpora[:1]
    return {
        "stream": (stream_over(one[0]), one),
        "windows": (windows_over(one[0]), one),
        "mix": (mixed(corpora, (0, (3.0, 1.0)), (13, (1.0, 1.0)), samples=40), corpora),
    }


# ---- steps ----------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), max_size=3),
    st.integers(0, 60),
    st.integers(0, 30),
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(0, 12)),
    st.sampled_from(["short", "drop"]),
)
def test_steps_are_those_of_a_loop(
    batch: int, ramp: list[tuple[int, int]], length: int, position: int, step: int, end: int | None, last: Any
) -> None:
    stages = [Stage(step=s, batch=b) for s, b in sorted(dict(ramp).items())]
    schedule = Schedule(batch=batch, ramp=stages)
    position = min(position, length)
    expected, at, number = [], position, step
    while at < length and (end is None or number < end):
        count = min(schedule.batch_at(number), length - at)
        if last == "drop" and count < schedule.batch_at(number):
            break
        expected.append((at, count))
        at, number = at + count, number + 1
    steps = Steps(schedule, Cursor(position, step, 0), length, end=end, last=last)
    assert steps.ranges(step, 1000) == expected
    assert steps.stop == step + len(expected)
    for number, (begin, _) in enumerate(expected):
        assert not steps.over(step + number)
        assert steps.begin_of(step + number) == begin
    assert steps.over(step + len(expected))


# ---- the whole sequence ---------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.sampled_from(["stream", "windows", "mix"]),
    PLACEMENTS,
    st.integers(1, 4),
    st.integers(0, 8),
    st.integers(0, 12),
    PLACEMENTS,
    st.integers(1, 4),
    st.integers(0, 8),
    st.sampled_from([0, 2]),
)
def test_every_row_once_and_in_order_across_a_stop(
    orders: dict[str, tuple[Order, list[Corpus]]],
    kind: str,
    placement: str,
    world: int,
    more: int,
    stop: int,
    new_placement: str,
    new_world: int,
    new_more: int,
    prefetch: int,
) -> None:
    """Any world and batch until any step, then any other world and batch: rows and labels are those of one reader."""
    order, corpora = orders[kind]
    length = order.length
    assert length is not None
    batch = (world + more) // world * world if placement == "megatron" else world + more
    new_batch = (new_world + new_more) // new_world * new_world if new_placement == "megatron" else new_world + new_more
    seen: list[list[int]] = []
    feeds = open_all(order, corpora, world, batch=batch, placement=placement, prefetch=prefetch)
    for _ in range(stop):
        made = [next(feed, None) for feed in feeds]
        assert len({one is None for one in made}) == 1
        if made[0] is None:
            break
        seen += global_rows([one for one in made if one is not None])
    states = [feed.state_dict() for feed in feeds]
    assert all(state == states[0] for state in states)
    assert states[0]["position"] == len(seen)
    for feed in feeds:
        feed.close()
    state = json.loads(json.dumps(states[0]))
    feeds = open_all(
        order, corpora, new_world, batch=new_batch, placement=new_placement, state=state, prefetch=prefetch
    )
    assert [feed.state_dict() for feed in feeds] == [state] * new_world
    for step in range(state["step"], 10**6):
        made = [next(feed, None) for feed in feeds]
        assert len({one is None for one in made}) == 1
        if made[0] is None:
            break
        assert {one.step for one in made if one} == {step}
        seen += global_rows([one for one in made if one is not None])
    assert seen == rows_of(order, corpora, range(length))
    for feed in feeds:
        feed.close()


def test_labels_are_every_position_once(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0])
    with tokenreel.open_feed(order, corpora=corpora[0], batch=7) as feed:
        labels = np.concatenate([batch["labels"].ravel() for batch in feed])
    assert sorted(labels.tolist()) == list(range(1, order.windows * 4 + 1))


def test_a_batch_says_what_it_is(corpora: list[Corpus]) -> None:
    order = mixed(corpora, (0, (1.0, 1.0)), samples=24)
    with tokenreel.open_feed(order, corpora=corpora, batch=6, world=2, rank=1, placement="strided") as feed:
        next(feed)
        batch = next(feed)
    assert (batch.step, batch.position, batch.count, len(batch)) == (1, 6, 6, 3)
    assert batch.samples.tolist() == [7, 9, 11]
    assert batch.sources.tolist() == order.components_at([7, 9, 11]).tolist()
    assert batch["input_ids"].shape == (3, 4)
    assert batch["input_ids"].dtype == np.int32
    table = order.spans_at([7, 9, 11])
    assert all(np.array_equal(a, b) for a, b in zip(batch.table.columns(), table.columns(), strict=True))
    assert not batch.samples.flags.writeable
    assert not batch.table.begin.flags.writeable


def test_an_endless_feed_begins_again(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0])
    length = order.windows
    with tokenreel.open_feed(order, corpora=corpora[0], batch=16, endless=True, steps=9) as feed:
        batches = list(feed)
        state = feed.state_dict()
    assert [k for batch in batches for k in batch.samples.tolist()] == [k % length for k in range(9 * 16)]
    assert state["position"] == 9 * 16 > length
    with tokenreel.open_feed(order, corpora=corpora[0], batch=4, endless=True, state=state) as feed:
        assert next(feed).samples.tolist() == [k % length for k in range(144, 148)]


def test_an_endless_order_is_endless_as_it_is(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0], epochs=None)
    with tokenreel.open_feed(order, corpora=corpora[0], batch=30, endless=True, steps=3) as feed:
        assert [batch.samples.tolist() for batch in feed][-1] == list(range(60, 90))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_state_at_the_end_of_a_pass(corpora: list[Corpus], at: int) -> None:
    """At the last sample of an epoch, and one before and after: the next epoch is neither skipped nor repeated."""
    order = windows_over(corpora[0], epochs=2)
    length = order.windows
    position = length - 1 + at
    whole = rows_of(order, corpora, range(2 * length))
    with tokenreel.open_feed(order, corpora=corpora[0], batch=position) as feed:
        next(feed)
        state = feed.state_dict()
    with tokenreel.open_feed(order, corpora=corpora[0], batch=5, state=state) as feed:
        assert row_ids(next(feed)) == whole[position : position + 5]


def test_a_ramp_and_the_run_s_last_step(corpora: list[Corpus]) -> None:
    schedule = Schedule(batch=2, steps=6, ramp=[Stage(step=3, batch=5)])
    with tokenreel.open_feed(windows_over(corpora[0]), corpora=corpora[0], schedule=schedule) as feed:
        assert [(b.step, b.position, b.count) for b in feed] == [
            (0, 0, 2), (1, 2, 2), (2, 4, 2), (3, 6, 5), (4, 11, 5), (5, 16, 5),
        ]  # fmt: skip
        assert feed.stop == 6
        assert (feed.step, feed.position, feed.tokens) == (6, 21, 84)
        assert next(feed, None) is None


# ---- the end of an order --------------------------------------------------------------------------------------------


def test_a_short_last_batch_gives_some_ranks_nothing_and_all_as_many_steps(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0])  # 40 samples
    assert order.length == 40
    sizes = [[len(b) for b in feed] for feed in open_all(order, corpora[:1], 4, batch=19)]
    assert sizes == [[5, 5, 1], [5, 5, 1], [5, 5, 0], [4, 4, 0]]
    empty = open_all(order, corpora[:1], 4, batch=19)[3].batch_at(2)
    assert empty["input_ids"].shape == (0, 4)


def test_a_last_batch_may_be_left_out_or_refused(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0])
    with tokenreel.open_feed(order, corpora=corpora[0], batch=19, last="drop") as feed:
        assert [len(batch) for batch in feed] == [19, 19]
        assert feed.state_dict()["position"] == 38
    with pytest.raises(StateError) as caught:
        tokenreel.open_feed(order, corpora=corpora[0], batch=19, last="error")
    assert caught.value.code == "STA013"
    for options in ({"batch": 20}, {"batch": 19, "steps": 2}):
        with tokenreel.open_feed(order, corpora=corpora[0], last="error", **options) as feed:  # type: ignore[arg-type]
            assert len(list(feed)) == 2


def test_an_order_without_samples_is_over(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", 3)
    with tokenreel.open_feed(stream_over(corpus, 4), corpora=corpus, batch=2) as feed:
        assert list(feed) == []
        assert feed.state_dict()["position"] == 0


# ---- states ---------------------------------------------------------------------------------------------------------


def test_the_state_is_that_of_the_last_batch_returned(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0])
    for k in range(5):
        with tokenreel.open_feed(order, corpora=corpora[0], batch=3, prefetch=64) as feed:
            rows = [row for _ in range(k) for row in row_ids(next(feed))]
            state = feed.state_dict()
        assert (state["position"], state["step"], state["tokens"]) == (3 * k, k, 12 * k)
        assert rows == rows_of(order, corpora, range(3 * k))


def test_a_state_saved_after_loading_is_the_one_loaded(corpora: list[Corpus]) -> None:
    order = mixed(corpora, (0, (3.0, 1.0)), samples=40)
    with tokenreel.open_feed(order, corpora=corpora, batch=4) as feed:
        assert feed.state_dict()["position"] == 0
        next(feed)
        state = feed.state_dict()
        next(feed)
        feed.load_state_dict(state)
        assert feed.state_dict() == state
        assert next(feed).position == 4
    with tokenreel.open_feed(order, corpora=corpora, batch=6, state=state) as feed:
        assert feed.state_dict() == state
        feed.load_state_dict(feed.state_dict())
        assert feed.state_dict() == state


def test_a_state_is_small_and_says_nothing_of_ranks(corpora: list[Corpus]) -> None:
    with tokenreel.open_feed(windows_over(corpora[0]), corpora=corpora[0], batch=8, world=4, rank=3) as feed:
        next(feed)
        state = feed.state_dict()
    assert {"format", "fingerprint", "kind", "position", "step", "tokens"} <= set(state)
    assert not {"rank", "world", "batch", "workers"} & set(state)
    assert len(json.dumps(state)) < 1000


def test_going_on_after_a_break(corpora: list[Corpus]) -> None:
    """Breaking out of a loop and looping again goes on; nothing is lost in the queue."""
    order = windows_over(corpora[0])
    seen: list[int] = []
    with tokenreel.open_feed(order, corpora=corpora[0], batch=3, prefetch=5) as feed:
        for _ in range(20):
            for count, batch in enumerate(feed):
                seen += batch.samples.tolist()
                if count == 1:
                    break
    assert seen == list(range(40))


def test_any_step_may_be_looked_at(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0])
    with tokenreel.open_feed(order, corpora=corpora[0], batch=3) as feed:
        next(feed)
        assert row_ids(feed.batch_at(11)) == rows_of(order, corpora, range(33, 36))
        assert feed.step == 1
        assert next(feed).step == 1
        for step in (-1, 14):
            with pytest.raises(StateError, match="STA003"):
                feed.batch_at(step)


# ---- buffers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_that_are_kept_stay_as_they_were(corpora: list[Corpus], prefetch: int) -> None:
    """Buffers are used again only when nobody holds them, a view of one included."""
    order = windows_over(corpora[0], epochs=None)
    with tokenreel.open_feed(order, corpora=corpora[0], batch=3, steps=60, prefetch=prefetch) as feed:
        kept, views, seen = [], [], set()
        for batch in feed:
            seen.add(id(batch["input_ids"]))
            if batch.step % 3 == 0:
                kept.append(batch)
            elif batch.step % 3 == 1:
                views.append((batch.step, batch["input_ids"][1:, 2]))
            del batch
    for batch in kept:
        assert row_ids(batch) == rows_of(order, corpora, range(3 * batch.step, 3 * batch.step + 3))
    for step, view in views:
        rows = rows_of(order, corpora, range(3 * step + 1, 3 * step + 3))
        assert view.tolist() == [row[2] for row in rows]


def test_buffers_are_used_again(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0], epochs=None)
    with tokenreel.open_feed(order, corpora=corpora[0], batch=3, steps=200, prefetch=2) as feed:
        places = {batch["input_ids"].__array_interface__["data"][0] for batch in feed}
    assert len(places) <= 12


def test_the_caller_s_buffers_are_filled(corpora: list[Corpus]) -> None:
    order = windows_over(corpora[0])
    policy = tokenreel.RowPolicy(kind="plain")

    def made(rows: int) -> dict[str, np.ndarray]:
        return {name: np.empty(shape, dtype) for name, (shape, dtype) in policy.layout(rows, 4, "int64").items()}

    ring = [made(7) for _ in range(4)]
    with tokenreel.open_feed(order, corpora=corpora[0], batch=7, dtype="int64", prefetch=2, out=ring) as feed:
        for number, batch in enumerate(feed):
            assert np.shares_memory(batch["labels"], ring[number % 4]["labels"])
            assert row_ids(batch) == rows_of(order, corpora, range(7 * number, min(40, 7 * number + 7)))
    with tokenreel.open_feed(order, corpora=corpora[0], batch=7, dtype="int64", out=made) as feed:
        assert [k for batch in feed for k in row_ids(batch)] == rows_of(order, corpora, range(40))
    for out in (ring[:3], [{"input_ids": ring[0]["input_ids"]}] * 4, 5, [made(6)] * 4):
        with pytest.raises(UsageError) as caught:
            next(tokenreel.open_feed(order, corpora=corpora[0], batch=7, dtype="int64", out=out))
        assert caught.value.code == "STA016"


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["plain", "documents"])
def test_memory_stays_as_it_is(corpora: list[Corpus], tmp_path: Path, rows: str) -> None:
    """A million batches, half of them with a ledger, in the resident memory of the first thousands."""
    order = windows_over(corpora[0], epochs=None)
    page = os.sysconf("SC_PAGE_SIZE")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    ledger = tmp_path / "ledger.jsonl" if rows == "plain" else None
    before = 0
    with tokenreel.open_feed(order, corpora=corpora[0], batch=2, rows=rows, ledger=ledger, steps=500_000) as feed:
        for batch in feed:
            if batch.step == 5000:
                before = resident()
    assert resident() - before < 2 << 20


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("STA010", {"rank": 2, "world": 2}),
        ("STA010", {"rank": -1}),
        ("STA010", {"world": 0}),
        ("STA011", {"world": 9}),
        ("STA011", {"schedule": Schedule(batch=8, ramp=[Stage(step=2, batch=3)]), "batch": None, "world": 4}),
        ("STA014", {"placement": "random"}),
        ("STA014", {"placement": "megatron", "micro_batch": 3}),
        ("STA017", {"batch": None}),
        ("USE003", {"batch": 0}),
        ("USE003", {"schedule": Schedule(batch=8)}),
        ("USE003", {"prefetch": -1}),
        ("USE003", {"threads": 0}),
        ("USE003", {"steps": -1}),
        ("USE003", {"last": "some"}),
        ("USE003", {"start": -1}),
        ("USE003", {"start": (0, 0)}),
        ("STA003", {"start": 41}),
        ("USE003", {"start": 4, "state": {}}),
        ("RCP040", {"rows": "planes"}),
    ],
)
def test_what_cannot_be_is_refused(corpora: list[Corpus], code: str, options: dict[str, Any]) -> None:
    with pytest.raises(TokenreelError) as caught:
        tokenreel.open_feed(windows_over(corpora[0]), corpora=corpora[0], **{"batch": 8, **options})
    assert caught.value.code == code


@pytest.mark.parametrize("row_tokens", [0, -1, 1 << 31])
def test_rows_without_a_length_are_refused(corpora: list[Corpus], row_tokens: int) -> None:
    class Varied:
        """An order whose rows have no one length."""

        def __init__(self, order: Order) -> None:
            self.order, self.row_tokens = order, row_tokens

        def prepare(self, cache: object = None) -> Varied:
            return self

        def __getattr__(self, name: str) -> Any:
            return getattr(self.order, name)

    with pytest.raises(UsageError) as caught:
        tokenreel.open_feed(Varied(windows_over(corpora[0])), corpora=corpora[0], batch=2)
    assert caught.value.code == "STA012"


def test_other_corpora_than_the_order_s_are_refused(corpora: list[Corpus], tmp_path: Path) -> None:
    order = windows_over(corpora[0])
    with pytest.raises(StateError) as caught:
        tokenreel.open_feed(order, corpora=corpora[1], batch=2)
    assert caught.value.code == "STA005"
    with pytest.raises(UsageError, match="USE003"):
        tokenreel.open_feed(order, corpora=corpora, batch=2)
    # As many tokens in other documents.
    same_size = tokenreel.open(write_corpus(tmp_path / "c", [[TOKENS - 3, 3]]))
    with pytest.raises(StateError, match="STA005"):
        tokenreel.open_feed(order, corpora=same_size, batch=2)


def test_a_corpus_whose_build_did_not_finish_is_refused(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", 50)
    (tmp_path / "c" / "receipts").mkdir()
    (tmp_path / "c" / "receipts" / "part-000000.json").write_text("{}")
    order = windows_over(corpus)
    with pytest.raises(IncompleteError) as caught:
        tokenreel.open_feed(order, corpora=corpus, batch=2)
    assert caught.value.code == "STA006"
    with tokenreel.open_feed(order, corpora=corpus, batch=2, allow_incomplete=True) as feed:
        assert feed.state_dict()["incomplete"] == [str(tmp_path / "c")]
    (tmp_path / "c" / "COMPLETE.json").write_text("{}")
    with tokenreel.open_feed(order, corpora=corpus, batch=2) as feed:
        assert "incomplete" not in feed.state_dict()


@pytest.mark.parametrize("prefetch", [0, 3])
def test_ids_beyond_the_model_s_vocabulary_are_an_error_of_their_batch(corpora: list[Corpus], prefetch: int) -> None:
    """The batches before it are good, and the state stands before it."""
    options: dict[str, Any] = {"corpora": corpora[0], "batch": 2, "prefetch": prefetch}
    with tokenreel.open_feed(stream_over(corpora[0]), vocab=100, **options) as feed:
        seen: list[int] = []
        with pytest.raises(TokenError) as caught:
            seen.extend(int(batch["labels"].max()) for batch in feed)
        assert (caught.value.code, caught.value.found) == ("TOK041", 100)
        assert max(seen) < 100
        assert feed.state_dict()["step"] == len(seen) == 12
    with tokenreel.open_feed(stream_over(corpora[0]), vocab=TOKENS, **options) as feed:
        assert len(list(feed)) == 20


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_shard_that_shrinks_under_a_feed_is_an_error_and_no_end(tmp_path: Path, prefetch: int) -> None:
    corpus = corpus_of(tmp_path / "c", 4000)
    with tokenreel.open_feed(stream_over(corpus), corpora=corpus, batch=2, prefetch=prefetch) as feed:
        first = next(feed)
        for path in (tmp_path / "c").glob("*.bin"):
            os.truncate(path, 400)
        steps = [first.step]
        with pytest.raises(StorageError) as caught:
            steps.extend(batch.step for batch in feed)
        assert caught.value.code == "STO004"
        # No more than was made before.
        assert len(steps) <= 2 + prefetch
        assert feed.state_dict()["step"] == len(steps)


def test_weights_of_tokens_and_documents_reach_the_loss_mask(tmp_path: Path) -> None:
    """datatrove's loss flags, through the public feed; and one array of weights a corpus."""
    flags = [1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1]
    folder = tmp_path / "c"
    documents = [[5, 6, 7, 2], [8, 9, 10, 11, 2], [12, 13, 14, 2]]
    write(open_writer, folder, "00000_unshuffled", documents, weights=flags, tokenizer="gpt2")
    corpus = tokenreel.open(folder)
    rows = {"kind": "documents", "weights": True, "ends": "next"}
    options: dict[str, Any] = {"corpora": corpus, "batch": 3, "rows": rows}
    with tokenreel.open_feed(stream_over(corpus, 4), **options) as feed:
        assert next(feed)["loss_mask"].ravel().tolist() == [float(one) for one in flags[1:]]
    each = [np.array([1.0, 0.0, 0.5], dtype=np.float32)]
    with tokenreel.open_feed(stream_over(corpus, 4), document_weights=each, **options) as feed:
        of_document = [1.0] * 4 + [0.0] * 5 + [0.5] * 4
        expected = [one * two for one, two in zip(flags, of_document, strict=True)]
        assert next(feed)["loss_mask"].ravel().tolist() == expected[1:]
    with pytest.raises(UsageError, match="USE003"):
        tokenreel.open_feed(stream_over(corpus, 4), **{**options, "rows": "documents"}, document_weights=each)


def test_a_closed_feed_has_its_state_and_no_batches(corpora: list[Corpus]) -> None:
    feed = tokenreel.open_feed(windows_over(corpora[0]), corpora=corpora[0], batch=2)
    next(feed)
    feed.close()
    feed.close()
    state = feed.state_dict()
    assert state["step"] == 1
    for call in (lambda: next(feed), lambda: feed.load_state_dict(state), lambda: feed.batch_at(1)):
        with pytest.raises(StateError) as caught:
            call()
        assert caught.value.code == "STA015"
