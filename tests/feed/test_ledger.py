"""The ledger: a line a batch, chained, whole after a kill, one writer, attempts sorted out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenreel
from tests.feed.feeds import corpus_of, windows_over
from tokenreel.corpus.corpus import Corpus
from tokenreel.errors import StateError, StorageError
from tokenreel.feed import ledger as ledger_module
from tokenreel.feed.ledger import Ledger
from tokenreel.feed.ledger_lines import START, Line, last_line, line_bytes, parse_lines, read_ledger, sorted_out


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus_of(tmp_path_factory.mktemp("corpus") / "a", 163)


def consume(corpus: Corpus, path: Path, count: int, state: Any = None, **options: Any) -> dict[str, Any]:
    with tokenreel.open_feed(
        windows_over(corpus), corpora=corpus, **{"batch": 4, "ledger": path, "state": state, **options}
    ) as feed:
        for _ in range(count):
            next(feed)
        return feed.state_dict()


def test_a_line_a_batch(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    consume(corpus, path, 3)
    said = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["attempt"], one["step"], one["first"], one["count"]) for one in said] == [
        (1, 0, 0, 4), (1, 1, 4, 4), (1, 2, 8, 4),
    ]  # fmt: skip
    assert {one["fingerprint"] for one in said} == {windows_over(corpus).fingerprint}
    assert said[0]["rows"]["kind"] == "plain"
    assert all(set(one) == {"run", "attempt", "step", "first", "count", "fingerprint", "sum"} for one in said[1:])


def test_a_reader_of_one_s_own_can_check_the_chain(corpus: Corpus, tmp_path: Path) -> None:
    import hashlib

    consume(corpus, tmp_path / "ledger.jsonl", 5)
    before = hashlib.sha256(b"tokenreel-ledger-1\n").hexdigest()
    for line in (tmp_path / "ledger.jsonl").read_text().splitlines():
        text, _, rest = line.rpartition(',"sum":"')
        before = hashlib.sha256(f"{before}\n{text}}}\n".encode()).hexdigest()
        assert rest == before + '"}'


def test_a_resumed_run_is_a_new_attempt(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    consume(corpus, path, 3)
    state = consume(corpus, tmp_path / "other.jsonl", 2)
    consume(corpus, path, 4, state)
    steps = read_ledger(path)
    assert [(one.attempt, one.step) for one in steps.current] == [(1, 0), (1, 1), (2, 2), (2, 3), (2, 4), (2, 5)]
    assert [(one.attempt, one.step) for one in steps.superseded] == [(1, 2)]
    assert steps.ahead == ()
    assert steps.gaps == ()
    firsts = [line for line in parse_lines(path) if line.more]
    assert [(line.attempt, line.step) for line in firsts] == [(1, 0), (2, 2)]


def test_loading_into_an_open_feed_is_a_new_attempt(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with tokenreel.open_feed(windows_over(corpus), corpora=corpus, batch=4, ledger=path) as feed:
        start = feed.state_dict()
        feed.load_state_dict(start)
        next(feed), next(feed)
        feed.load_state_dict(start)
        feed.load_state_dict(start)
        next(feed)
    steps = read_ledger(path)
    assert [(one.attempt, one.step) for one in steps.current] == [(2, 0), (1, 1)]
    assert [one.step for one in steps.ahead] == [1]
    assert len(steps.superseded) == 1


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 12)), max_size=30))
def test_the_highest_attempt_counts(pairs: list[tuple[int, int]]) -> None:
    pairs = sorted(set(pairs))
    lines = [Line("r", attempt, step, step, 1, "", f"{attempt} {step}") for attempt, step in pairs]
    steps = sorted_out(lines)
    best = {step: max(a for a, s in pairs if s == step) for _, step in pairs}
    assert [(one.step, one.attempt) for one in steps.current] == sorted(best.items())
    assert {one.sum for one in (*steps.current, *steps.superseded)} == {one.sum for one in lines}
    assert len(steps.current) + len(steps.superseded) == len(lines)
    missing = set(range(min(best, default=0), max(best, default=-1) + 1)) - set(best)
    assert {step for low, high in steps.gaps for step in range(low, high)} == missing


@given(data=st.data())
def test_a_torn_last_line_is_cut_off(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    text, before = b"", START
    ends = [0]
    for step in range(3):
        said = {"run": "r", "attempt": 1, "step": step, "first": step, "count": 1, "fingerprint": "f"}
        line, before = line_bytes(said, before)
        text += line
        ends.append(len(text))
    at = data.draw(st.integers(0, len(text)))
    path.write_bytes(text[:at])
    whole = max(end for end in ends if end <= at)
    assert [line.step for line in parse_lines(path)] == list(range(ends.index(whole)))
    with Ledger(path, run="r") as ledger:
        assert ledger.cut == at - whole
        assert ledger.attempt == (2 if whole else 1)
    assert path.read_bytes() == text[:whole]


def test_a_feed_tells_of_a_line_that_it_cut_off(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    state = consume(corpus, path, 2)
    with path.open("ab") as file:
        file.write(b'{"run":"windows@1","att')
    with pytest.warns(UserWarning, match="a torn last line of 23 bytes was cut off"):
        consume(corpus, path, 2, state)
    assert [(line.attempt, line.step) for line in parse_lines(path)] == [(1, 0), (1, 1), (2, 2), (2, 3)]


@given(data=st.data())
def test_a_line_that_was_changed_is_noticed(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    lines, before = [], START
    for step in range(4):
        said = {"run": "r", "attempt": 1, "step": step, "first": step, "count": 1, "fingerprint": "f"}
        line, before = line_bytes(said, before)
        lines.append(line)
    how = data.draw(st.sampled_from(["flip", "drop", "swap", "twice"]))
    k = data.draw(st.integers(0, 2))
    if how == "flip":
        at = data.draw(st.integers(0, len(lines[k]) - 2))
        lines[k] = lines[k][:at] + bytes([lines[k][at] ^ data.draw(st.integers(1, 127))]) + lines[k][at + 1 :]
    elif how == "drop":
        del lines[k]
    elif how == "swap":
        lines[k], lines[k + 1] = lines[k + 1], lines[k]
    else:
        lines.insert(k, lines[k])
    path.write_bytes(b"".join(lines))
    with pytest.raises(StateError) as caught:
        list(parse_lines(path))
    assert caught.value.code in ("STA020", "STA022")
    with pytest.raises(StateError):
        Ledger(path, run="r")


def test_opening_a_long_ledger_reads_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt and the sum are the last line's, wherever the part that is read begins."""
    path = tmp_path / "ledger.jsonl"
    lines, before = [], START
    for step in range(60):
        said = {"run": "r", "attempt": 1 + step // 20, "step": step, "first": step, "count": 1, "fingerprint": "f"}
        line, before = line_bytes(said, before)
        lines.append(line)
    path.write_bytes(b"".join(lines))
    for tail in range(300, 700):
        monkeypatch.setattr("tokenreel.feed.ledger_lines.TAIL", tail)
        found = last_line(path, path.stat().st_size)
        assert found is not None
        assert (found.attempt, found.sum, found.end) == (3, before, path.stat().st_size)
    lines[-2] = lines[-2].replace(b'"count":1', b'"count":2')
    path.write_bytes(b"".join(lines))
    with pytest.raises(StateError, match="STA020"):
        Ledger(path, run="r")


def test_one_writer(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, run="a"):
        with pytest.raises(StateError) as caught:
            Ledger(path, run="b")
        assert caught.value.code == "STA021"
    Ledger(path, run="b").close()
    with tokenreel.open_feed(windows_over(corpus), corpora=corpus, batch=4, ledger=path) as feed:
        next(feed)
        child = os.fork()
        if child == 0:
            try:
                next(feed)
            except StateError as error:
                os._exit(0 if error.code == "STA021" else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        next(feed)
    assert [line.step for line in parse_lines(path)] == [0, 1]


def test_only_rank_0_writes(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    consume(corpus, path, 2, rank=1, world=2)
    assert not path.exists()
    consume(corpus, path, 2, rank=0, world=2)
    assert [(line.first, line.count) for line in parse_lines(path)] == [(0, 4), (4, 4)]


def test_a_file_that_is_no_ledger_stays_as_it_is(tmp_path: Path) -> None:
    false_sum = b'{"run":"r","sum":"' + b"0" * 64 + b'"}\n'
    for text in (b"hello\n", b"hello", b'{"a":1}\n', b'{"format": "tokenreel-state-1"}', false_sum):
        path = tmp_path / "notes.txt"
        path.write_bytes(text)
        with pytest.raises(StateError) as caught:
            Ledger(path, run="r")
        assert caught.value.code in ("STA020", "STA022")
        assert path.read_bytes() == text
        with pytest.raises(StateError):
            read_ledger(path)
    with pytest.raises(StorageError):
        Ledger(tmp_path, run="r")
    with pytest.raises(StorageError, match="STO001"):
        read_ledger(tmp_path / "none.jsonl")


def test_a_line_without_its_keys_is_none(tmp_path: Path) -> None:
    for said in ({"run": "r"}, {"run": "r", "attempt": 1, "step": -1, "first": 0, "count": 1, "fingerprint": ""}):
        (tmp_path / "ledger.jsonl").write_bytes(line_bytes(said, START)[0])
        with pytest.raises(StateError) as caught:
            read_ledger(tmp_path / "ledger.jsonl")
        assert caught.value.code == "STA022"


def test_lines_are_on_the_disk_when_a_state_is_taken(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for every line, but at each state, at the end, and after some seconds."""
    synced: list[int] = []
    now = [100.0]
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr("tokenreel.feed.ledger.time.monotonic", lambda: now[0])
    with tokenreel.open_feed(windows_over(corpus), corpora=corpus, batch=2, ledger=tmp_path / "ledger.jsonl") as feed:
        synced.clear()
        for _ in range(8):
            next(feed)
        assert synced == []
        feed.state_dict(), feed.state_dict()
        assert len(synced) == 1
        next(feed)
        now[0] += ledger_module.SYNC_SECONDS
        next(feed)
        assert len(synced) == 2
        next(feed)
    assert len(synced) == 3


def test_a_full_disk_leaves_no_half_line(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    with tokenreel.open_feed(windows_over(corpus), corpora=corpus, batch=4, ledger=path) as feed:
        next(feed)
        right = os.write
        monkeypatch.setattr(os, "write", lambda handle, data: right(handle, data[:9]))
        with pytest.raises(StorageError, match="STO003"):
            next(feed)
        assert feed.step == 1
        monkeypatch.setattr(os, "write", right)
        assert next(feed).step == 1
    assert [line.step for line in parse_lines(path)] == [0, 1]


def test_a_killed_process_loses_no_line(corpus: Corpus, tmp_path: Path) -> None:
    """What was handed out is in the file, whatever the process had no time to do."""
    path = tmp_path / "ledger.jsonl"
    program = f"""
import sys, tokenreel
from tokenreel.order.windows import WindowsOrder
corpus = tokenreel.open({corpus.path!r})
order = WindowsOrder.over(corpus.table(), 4, 7, epochs=None)
for batch in tokenreel.open_feed(order, corpora=corpus, batch=2, ledger={str(path)!r}):
    print(batch.step, flush=True)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 40:
                process.send_signal(signal.SIGKILL)
                break
        told = [40, *(int(line) for line in process.stdout if line.endswith("\n"))]
    steps = [line.step for line in parse_lines(path)]
    assert steps == list(range(len(steps)))
    assert told[-1] < len(steps)
    with Ledger(path, run="again") as ledger:
        assert ledger.attempt == 2


@pytest.mark.parametrize("zeros", [1, 1000, *range((1 << 18) - 700, (1 << 18) + 1, 100), (1 << 18) + 1, 1 << 20])
def test_zeros_that_a_crash_left_take_no_line(tmp_path: Path, zeros: int) -> None:
    path, data, before = tmp_path / "ledger.jsonl", b"", START
    for step in range(2000):
        said = {"run": "r", "attempt": 1, "step": step, "first": 4 * step, "count": 4, "fingerprint": "f" * 64}
        line, before = line_bytes(said, before)
        data += line
    path.write_bytes(data + bytes(zeros))
    with Ledger(path, run="r") as ledger:
        assert (ledger.attempt, ledger.cut) == (2, zeros)
    assert path.read_bytes() == data
