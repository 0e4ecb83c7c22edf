"""States: what may go on where, and what is said of the rest."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenreel
from tests.feed.feeds import corpus_of, mixed, row_ids, rows_of, stream_over, windows_over, write_corpus
from tokenreel import testing as documents
from tokenreel.corpus.corpus import Corpus
from tokenreel.errors import StateError, StorageError, TokenreelError
from tokenreel.feed.going_on import rekeyed, state_of
from tokenreel.feed.schedule import Cursor
from tokenreel.feed.state import FORMAT, load_state, parse_state, write_state
from tokenreel.order.protocol import Order

GOOD = {"format": FORMAT, "fingerprint": "0" * 64, "kind": "tables", "position": 8, "step": 2, "tokens": 32}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    folder = tmp_path_factory.mktemp("corpora")
    sizes = {"a": 163, "b": 181, "c": 175}
    return [corpus_of(folder / name, size, first=1000 * k) for k, (name, size) in enumerate(sizes.items())]


def state_at(order: Order, corpora: Any, samples: int) -> dict[str, Any]:
    with tokenreel.open_feed(order, corpora=corpora, batch=samples, prefetch=0) as feed:
        next(feed)
        return feed.state_dict()


# ---- form -----------------------------------------------------------------------------------------------------------


def test_a_state_keeps_all_it_says(tmp_path: Path) -> None:
    more = {
        "order": {"name": "mix@1", "length": None, "corpora": [["files", "ab", 1, 9]]},
        "cursors": {"components": ["a"], "given": [1]},
        "stream": {"token": 4},
        "incomplete": ["a"],
    }
    for said in (GOOD, {**GOOD, **more}, {**GOOD, "kind": ["identity", "tables"]}):
        assert parse_state(said).as_dict() == said
        assert parse_state(json.dumps(said)).as_dict() == said
        write_state(tmp_path / "state.json", said)
        assert load_state(tmp_path / "state.json").as_dict() == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("STA001", "{"),
        ("STA001", "[1]"),
        ("STA001", '{"position": 1, "position": 2}'),
        ("STA001", b"\xff"),
        ("STA001", 5),
        ("STA001", {}),
        ("STA001", {**GOOD, "format": 1}),
        ("STA001", {**GOOD, "format": "some-state-1"}),
        ("STA002", {**GOOD, "format": "tokenreel-state-2"}),
        ("STA001", {**GOOD, "position": -1}),
        ("STA001", {**GOOD, "position": 1 << 63}),
        ("STA001", {**GOOD, "position": "8"}),
        ("STA001", {**GOOD, "position": 8.0}),
        ("STA001", {**GOOD, "step": True}),
        ("STA001", {**GOOD, "tokens": None}),
        ("STA001", {**GOOD, "fingerprint": "0"}),
        ("STA001", {**GOOD, "fingerprint": "Z" * 64}),
        ("STA001", {**GOOD, "kind": 3}),
        ("STA001", {**GOOD, "kind": []}),
        ("STA001", {**GOOD, "order": []}),
        ("STA001", {**GOOD, "incomplete": "a"}),
        ("STA001", {**GOOD, "rank": 0}),
        ("STA001", {key: value for key, value in GOOD.items() if key != "tokens"}),
        ("STA007", {"epoch": 1, "sample_in_epoch": 512, "num_canonical_nodes": 2, "shuffle_seed": 9}),
        ("STA007", {"dataset_fingerprint": "ab", "batches_processed": 4, "seed": 0, "epoch": 1}),
        ("STA007", {"next_index": 8}),
        ("STA007", {"consumed_train_samples": 8, "iteration": 1}),
    ],
    ids=repr,
)
def test_what_is_no_state_is_refused(code: str, said: Any) -> None:
    with pytest.raises(StateError) as caught:
        parse_state(said)
    assert caught.value.code == code


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 1 << 70), st.floats(), st.text(max_size=3), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2), st.lists(st.text(max_size=2), max_size=2),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


@given(data=st.data())
def test_a_mangled_state_loads_or_is_refused_by_a_code(corpora: list[Corpus], data: st.DataObject) -> None:
    """One value of a good state replaced by anything: never another error, and never another place."""
    one = corpora[0]
    streamed, used = data.draw(st.booleans()), corpora[:2]
    order: Order = mixed(used, (0, (3.0, 1.0)))
    if streamed:
        order, used = stream_over(one), [one]
    state = json.loads(json.dumps(state_of(order, Cursor(8, 2, 32), corpora=corpora).as_dict()))
    place = data.draw(st.sampled_from(places(state)[1:]))
    at = state
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = data.draw(VALUES)
    with tokenreel.open_feed(order, corpora=used, batch=2) as feed:
        try:
            feed.load_state_dict(state)
        except TokenreelError:
            return
        assert feed.state_dict()["fingerprint"] == state["fingerprint"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="STO001"):
        load_state(tmp_path / "none.json")


# ---- other orders ---------------------------------------------------------------------------------------------------


def refused(state: dict[str, Any], order: Order, corpora: Any, **options: Any) -> TokenreelError:
    with tokenreel.open_feed(order, corpora=corpora, **{"batch": 2, **options}) as feed:
        before = feed.state_dict()
        with pytest.raises(TokenreelError) as caught:
            feed.load_state_dict(state)
        assert feed.state_dict() == before
        assert next(feed).position == 0
    return caught.value


def test_what_differs_is_said(corpora: list[Corpus]) -> None:
    one, two = corpora[:2]
    state = state_at(windows_over(one), one, 8)
    error = refused(state, windows_over(one, seed=8), one)
    assert error.code == "STA004"
    assert "seed" in str(error)
    error = refused(state, stream_over(one), one)
    assert error.code == "STA004"
    assert "windows@1" in str(error)
    assert "stream@1" in str(error)
    error = refused(state, windows_over(one, row_tokens=8), one)
    assert error.code == "STA004"
    assert "4 tokens a row, now 8" in str(error)
    error = refused(state, windows_over(two), two)
    assert error.code == "STA005"
    assert two.path in str(error)
    error = refused({**state, "position": 41}, windows_over(one), one)
    assert error.code == "STA003"


def test_a_corpus_that_changed_is_noticed(tmp_path: Path) -> None:
    write_corpus(tmp_path / "c", [[20, 20, 20]])
    corpus = tokenreel.open(tmp_path / "c")
    state = state_at(windows_over(corpus), corpus, 4)
    shutil.rmtree(tmp_path / "c")
    changed = tokenreel.open(write_corpus(tmp_path / "c", [[20, 25, 20]]))
    assert refused(state, windows_over(changed), changed).code == "STA005"
    again = tokenreel.open(write_corpus(tmp_path / "d", [[20, 20, 20]]))
    with tokenreel.open_feed(windows_over(again), corpora=again, batch=2, state=state) as feed:
        assert next(feed).position == 4


def test_more_passes_may_be_appended(corpora: list[Corpus]) -> None:
    one = corpora[0]
    state = state_at(windows_over(one), one, 8)
    for epochs in (2, 5, None):
        with tokenreel.open_feed(windows_over(one, epochs=epochs), corpora=one, batch=2, state=state) as feed:
            assert row_ids(next(feed)) == rows_of(windows_over(one), [one], range(8, 10))


def test_weights_may_change_from_here_on_in_a_phase_and_not_before(corpora: list[Corpus]) -> None:
    two = corpora[:2]
    order = mixed(two, (0, (3.0, 1.0)), samples=64)
    state = state_at(order, two, 24)
    appended = mixed(two, (0, (3.0, 1.0)), (24, (1.0, 1.0)), samples=80)
    with tokenreel.open_feed(appended, corpora=two, batch=8, state=state) as feed:
        assert row_ids(next(feed)) == rows_of(appended, two, range(24, 32))
        cursors = feed.state_dict()["cursors"]
    # Each component goes on where it stood: 18 and 6 before, four each since.
    assert state["cursors"]["given"] == [18, 6]
    assert cursors["given"] == [22, 10]
    error = refused(state, mixed(two, (0, (1.0, 1.0)), samples=80), two)
    assert error.code == "STA004"
    assert "component a had given 18 samples, and would have given 12 here" in str(error)
    assert "from sample 24 on" in str(error)
    assert refused(state, mixed(two, (0, (3.0, 1.0)), (16, (1.0, 1.0)), samples=80), two).code == "STA004"


def test_a_component_may_be_added_at_the_end(corpora: list[Corpus]) -> None:
    state = state_at(mixed(corpora[:2], (0, (3.0, 1.0)), samples=64), corpora[:2], 24)
    three = mixed(corpora, (0, (3.0, 1.0, 0.0)), (24, (1.0, 1.0, 2.0)), samples=80)
    with tokenreel.open_feed(three, corpora=corpora, batch=8, state=state) as feed:
        assert next(feed).position == 24


# ---- kinds of keys --------------------------------------------------------------------------------------------------


def with_identity(corpus: Corpus) -> Corpus:
    return replace(corpus, recorded_identity={"": corpus.identity().digest})


def test_states_compare_by_the_strongest_kind_both_have(corpora: list[Corpus]) -> None:
    one = corpora[0]
    known = with_identity(one)
    weak, strong = state_at(windows_over(one), one, 8), state_at(windows_over(known), known, 8)
    assert (weak["kind"], strong["kind"]) == ("tables", "identity")
    assert weak["fingerprint"] != strong["fingerprint"]
    # A manifest was written since, or lost.
    for state, corpus in ((weak, known), (strong, one)):
        with tokenreel.open_feed(windows_over(corpus), corpora=corpus, batch=2, state=state) as feed:
            assert row_ids(next(feed)) == rows_of(windows_over(one), [one], range(8, 10))
    other = corpora[1]
    assert refused(weak, windows_over(with_identity(other)), with_identity(other)).code == "STA005"
    assert refused(strong, windows_over(other), other).code == "STA005"


def test_a_corpus_of_the_same_documents_with_other_ids_between_them_is_another(tmp_path: Path) -> None:
    made = []
    for name, end in (("a", 0), ("b", 1)):
        documents.write_corpus(tmp_path / name, [np.array([5 + k % 7] * (3 + k % 4) + [end]) for k in range(60)])
        made.append(with_identity(tokenreel.open(tmp_path / f"{name}.idx", boundary=f"suffix={end}")))
    one, other = made
    assert one.identity().digest == other.identity().digest
    assert refused(state_at(windows_over(one), one, 4), windows_over(other), other).code == "STA005"


def test_kinds_are_one_a_corpus_where_they_differ(corpora: list[Corpus]) -> None:
    mix = [with_identity(corpora[0]), corpora[1]]
    state = state_at(mixed(mix, (0, (1.0, 1.0)), samples=40), mix, 8)
    assert state["kind"] == ["identity", "tables"]
    for two in (corpora[:2], [with_identity(corpora[0]), with_identity(corpora[1])]):
        with tokenreel.open_feed(mixed(two, (0, (1.0, 1.0)), samples=40), corpora=two, batch=8, state=state) as feed:
            assert next(feed).position == 8


def test_keys_are_replaced_everywhere(corpora: list[Corpus]) -> None:
    mix = mixed(corpora[:2], (0, (1.0, 1.0)), samples=40)
    old = mix.corpora[1]
    new = replace(old, digest="f" * 64)
    changed = rekeyed(mix, {old: new})
    assert changed.corpora == (mix.corpora[0], new)
    assert rekeyed(mix, {}) is mix


# ---- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_says_its_shard_and_offset_and_starts_there(corpora: list[Corpus]) -> None:
    one = corpora[0]
    order = stream_over(one)
    first = one.shard_tokens[0]
    with tokenreel.open_feed(order, corpora=one, batch=1) as feed:
        while feed.position * 4 < first:
            next(feed)
        assert feed.where() == (1, feed.position * 4 - first)
        place = feed.state_dict()["stream"]
        assert (place["shard"], place["offset"], place["name"]) == (1, feed.position * 4 - first, "part-001")
    with tokenreel.open_feed(order, corpora=one, batch=2, start=(1, 3)) as feed:
        assert feed.where() == (1, 3)
        assert row_ids(next(feed)) == [list(range(first + 3 + 4 * k, first + 8 + 4 * k)) for k in range(2)]
        state = feed.state_dict()
        assert feed.where() == (1, 11)
    with tokenreel.open_feed(order, corpora=one, batch=1, state=state) as feed:
        assert feed.state_dict() == state
        assert row_ids(next(feed)) == [list(range(first + 11, first + 16))]


@pytest.mark.parametrize("lengths", [(4, 6, 4), (5, 3), (3, 7, 2, 11), (8, 8)])
def test_a_stream_goes_on_with_rows_of_any_length(corpora: list[Corpus], lengths: tuple[int, ...]) -> None:
    """Exactly: not a token is read twice, or left out, but the rest at the end; and tokens are counted on."""
    one = corpora[0]
    state, ids, labels = None, [], []
    for k, row_tokens in enumerate(lengths):
        last = k == len(lengths) - 1
        with tokenreel.open_feed(stream_over(one, row_tokens), corpora=one, batch=2, state=state) as feed:
            for number, batch in enumerate(feed):
                ids += batch["input_ids"].ravel().tolist()
                labels += batch["labels"].ravel().tolist()
                if number == 1 and not last:
                    break
            state = feed.state_dict()
        assert state["tokens"] == len(ids)
    assert ids == list(range(len(ids)))
    assert labels == list(range(1, len(ids) + 1))
    assert len(ids) > 163 - 1 - lengths[-1]


def test_a_stream_s_state_is_of_its_corpus(corpora: list[Corpus]) -> None:
    one, two = corpora[:2]
    state = state_at(stream_over(one), one, 8)
    assert refused(state, stream_over(two, 8), two).code == "STA004"
    assert refused(state, stream_over(two), two).code == "STA005"
    torn = {**state, "stream": {**state["stream"], "token": state["stream"]["token"] + 1}}
    assert refused(torn, stream_over(one), one).code == "STA004"
    gone = {**state, "stream": {"shard": 0}}
    assert refused(gone, stream_over(one), one).code == "STA001"


def test_a_position_past_the_end_of_longer_rows(corpora: list[Corpus]) -> None:
    one = corpora[0]
    state = state_at(stream_over(one), one, 40)
    with tokenreel.open_feed(stream_over(one, 100), corpora=one, batch=1, state=state) as feed:
        assert list(feed) == []


# ---- orders that repeat ---------------------------------------------------------------------------------------------


def test_an_endless_stream_goes_on_in_a_later_pass(corpora: list[Corpus]) -> None:
    one = corpora[0]
    order = stream_over(one)  # 40 rows
    state: dict[str, Any] = {}
    with tokenreel.open_feed(order, corpora=one, batch=20, endless=True) as feed:
        for step in range(5):
            next(feed)
            state = feed.state_dict()
            with tokenreel.open_feed(order, corpora=one, batch=3, endless=True, state=state) as again:
                assert again.state_dict() == state
                at = 20 * (step + 1)
                assert next(again).samples.tolist() == [(at + k) % 40 for k in range(3)]
                place = again.where()
                assert place is not None
                assert order.at(*place) == (at + 3) % 40 * 4
    assert refused(state, order, one).code == "STA003"


def test_a_state_of_an_endless_feed_needs_one(corpora: list[Corpus]) -> None:
    one = corpora[0]
    order = windows_over(one)
    with tokenreel.open_feed(order, corpora=one, batch=30, endless=True) as feed:
        next(feed), next(feed)
        state = feed.state_dict()
    assert refused(state, order, one).code == "STA003"
    assert state_of(order, Cursor(60, 2, 240), repeats=True).fingerprint == state["fingerprint"]


# ---- run files ------------------------------------------------------------------------------------------------------

LINEAGE = """
corpus = [{ name = "web", path = "web" }]
order = { kind = "windows", row_tokens = 4, seed = 7 }
schedule = { batch = 4 }

[[segment]]
first = 0
last = 2

[[segment]]
first = 3
last = 5
at_sample = 2
order = { row_tokens = 8, seed = 9 }
row_policy = { kind = "plain", loss_mask = true }
"""


def test_a_lineage_goes_on_from_segment_to_segment(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "web", 163)
    (tmp_path / "run.toml").write_text(LINEAGE)
    with tokenreel.open_feed(tmp_path / "run.toml") as feed:
        assert [(b.step, b.position) for b in feed] == [(0, 0), (1, 4), (2, 8)]
        state = feed.state_dict()
    order = windows_over(corpus, row_tokens=8, seed=9)
    with tokenreel.open_feed(tmp_path / "run.toml", state=state) as feed:
        batch = next(feed)
        assert (batch.step, batch.position) == (3, 2)
        assert row_ids(batch) == rows_of(order, [corpus], range(2, 6))
        assert batch["loss_mask"].shape == (4, 8)
        assert feed.tokens == 12 * 4 + 4 * 8
        later = feed.state_dict()
    for told, steps in ((later, [4, 5]), ({**later, "step": 6}, [])):
        with tokenreel.open_feed(tmp_path / "run.toml", state=told) as feed:
            assert [b.step for b in feed] == steps
    with tokenreel.open_feed(tmp_path / "run.toml", segment=1) as feed:
        assert (feed.step, feed.position, feed.tokens) == (3, 2, 48)
    branch = "\n[[segment]]\nafter = 0\nfirst = 2\nlast = 3\norder = { seed = 11 }\n"
    (tmp_path / "branch.toml").write_text(LINEAGE + branch)
    with tokenreel.open_feed(tmp_path / "branch.toml", steps=2) as feed:
        assert len(list(feed)) == 2
        early = feed.state_dict()
    with tokenreel.open_feed(tmp_path / "branch.toml", segment=2, state=early) as feed:
        assert [(b.step, b.position) for b in feed] == [(2, 8), (3, 12)]
        assert feed.tokens == 16 * 4
    # A state that is not of the segment before.
    other = {**state, "fingerprint": "0" * 64}
    with pytest.raises(StateError, match="STA004"):
        tokenreel.open_feed(tmp_path / "run.toml", state=other)


def test_what_could_not_be_kept_is_warned_of(tmp_path: Path) -> None:
    corpus_of(tmp_path / "web", 163)
    text = LINEAGE.partition("[[segment]]")[0].replace('kind = "windows"', 'kind = "megatron"')
    (tmp_path / "run.toml").write_text(text)
    (tmp_path / "file").write_text("no folder")
    with pytest.warns(UserWarning, match="IDX005"):
        feed = tokenreel.open_feed(tmp_path / "run.toml", cache=tmp_path / "file")
    assert len(next(feed)) == 4
    feed.close()


def test_a_run_may_be_given_in_every_form(tmp_path: Path) -> None:
    from tokenreel.config.run import load_run
    from tokenreel.index.assemble import assemble

    corpus = corpus_of(tmp_path / "web", 163)
    (tmp_path / "run.toml").write_text(LINEAGE.partition("[[segment]]")[0])
    one = load_run(tmp_path / "run.toml")[0]
    made = assemble(one.run, tmp_path)
    forms: list[tuple[Any, dict[str, Any]]] = [
        (tmp_path / "run.toml", {}),
        (str(tmp_path / "run.toml"), {}),
        (one.run, {"folder": tmp_path}),
        (one, {"folder": tmp_path}),
        (made, {"batch": 4}),
        (made.order, {"batch": 4, "corpora": made.corpora}),
    ]
    states = []
    for form, options in forms:
        with tokenreel.open_feed(form, **options) as feed:
            assert row_ids(next(feed)) == rows_of(windows_over(corpus), [corpus], range(4))
            states.append(feed.state_dict())
    assert all(state == states[0] for state in states)
