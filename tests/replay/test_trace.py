"""What a step saw and when a document was seen: against reading everything; by configuration and by ledger."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tokenreel
from tests.cli.command import run
from tokenreel.config.run import load_run
from tokenreel.feed.placement import placement
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.index.segments import sample_range
from tokenreel.replay.ledgers import diff, exposure, ranges, read_ledger
from tokenreel.replay.trace import Traced, resolved, trace_document, trace_step
from tokenreel.spans import Flag

ORDERS = {
    "stream": 'kind = "stream"\ncorpus = "web"\nrow_tokens = 16',
    "windows": 'kind = "windows"\ncorpus = "web"\nrow_tokens = 16\nseed = 3\nepochs = 2',
    "megatron": 'kind = "megatron"\ncorpus = "web"\nrow_tokens = 16\nsamples = 40\nsplit = "1"',
    "nested": (
        'kind = "mix"\nsamples = 48\nblock = 8\n'
        '[[order.component]]\nname = "a"\nweight = 0.5\nat_end = "repeat"\norder = { kind = "windows", corpus = "web", row_tokens = 16 }\n'
        '[[order.component]]\nname = "b"\nweight = 0.5\nat_end = "repeat"\norder = { kind = "windows", corpus = "code", row_tokens = 16, seed = 9 }'
    ),
    "packed": 'kind = "packed"\ncorpus = "web"\nrow_tokens = 16\npolicy = "bestfit"\noversize = "split"',
    "crop": 'kind = "packed"\ncorpus = "web"\nrow_tokens = 16\npolicy = "crop"\noversize = "wait"\nbuffer = 4',
}


def write(folder: Path, name: str, documents: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, documents)
    ids = rng.integers(1, 500, int(lengths.sum())).astype(np.uint16)
    ids[np.cumsum(lengths) - 1] = 0
    with MegatronWriter(folder / name, np.uint16) as writer:
        writer.add_documents(ids, lengths)
        writer.finish()


def run_file(folder: Path, order: str, more: str = "") -> Path:
    for seed, name in enumerate(("web", "code")):
        if not (folder / f"{name}.idx").exists():
            write(folder, name, 60, seed)
    text = "".join(
        f'[[corpus]]\nname = "{name}"\npath = "{name}.idx"\nboundary = "suffix=0"\n{more}' for name in ("web", "code")
    )
    path = folder / "run.toml"
    path.write_text(f"{text}[order]\n{order}\n[schedule]\nbatch = 4\n")
    return path


def traced(path: Path, lines: dict | None = None) -> Traced:
    return Traced(load_run(path), path.parent, None, (), lines)


@pytest.mark.parametrize("kind", ORDERS)
def test_documents_are_found_where_reading_finds_them(tmp_path: Path, kind: str) -> None:
    path = run_file(tmp_path, ORDERS[kind])
    one = traced(path)
    made = one.made(0)
    lo, hi = sample_range(one.segments[0], made.order)
    table = resolved(made, made.order.spans(lo, hi))
    rows = table.sample_of()
    for number, name in enumerate(made.names):
        documents = len(made.corpora[number])
        found = trace_document(one, [str(d) for d in range(documents)], name)["hits"]
        told = {(hit["document"], hit["sample"], hit["begin"], hit["length"]) for hit in found}
        read = {
            (int(table.document[e]), lo + int(rows[e]), int(table.begin[e]), int(table.length[e]))
            for e in range(table.extents)
            if table.corpus[e] == number and table.length[e] and not table.flags[e] & Flag.PAD
        }
        if made.names.count(name) == 1:
            assert told == read


def test_a_step_has_its_samples_documents_and_text(tmp_path: Path) -> None:
    path = run_file(tmp_path, ORDERS["windows"])
    facts = trace_step(traced(path), 3)
    assert (facts["first_sample"], facts["end_sample"]) == (12, 16)
    assert facts["says"] == "what the configuration says"
    assert facts["level"] == "exact under declared configuration"
    corpus = tokenreel.open(tmp_path / "web.idx", boundary="suffix=0")
    for row in facts["samples"]:
        assert sum(extent["length"] for extent in row["extents"]) == 16
        for extent in row["extents"]:
            document = corpus[extent["document"]]
            ids = corpus.stream(extent["begin"], extent["begin"] + extent["length"])
            assert np.array_equal(document[extent["start"] : extent["start"] + extent["length"]], ids)
    halves = [trace_step(traced(path), 3, rank=rank, world=2)["samples"] for rank in (0, 1)]
    assert halves[0] + halves[1] == facts["samples"]


@pytest.mark.parametrize(("placed", "micro_batch"), [("contiguous", None), ("strided", None), ("megatron", 1)])
def test_a_rank_is_told_what_its_feed_read(tmp_path: Path, placed: str, micro_batch: int | None) -> None:
    path = run_file(tmp_path, ORDERS["windows"])
    more = [] if micro_batch is None else ["--micro-batch", micro_batch]
    for rank in range(2):
        way = placement(placed, micro_batch)
        with tokenreel.open_feed(path, rank=rank, world=2, placement=way) as feed:
            batch = [next(feed) for _ in range(3)][2]
        ran = run("trace", path, "--step", 2, "--rank", rank, "--world", 2, "--placement", placed, *more, "--json")
        assert ran.status == 0, ran.err
        assert [row["sample"] for row in ran.json["samples"]] == batch.samples.tolist()
    assert run("trace", path, "--step", 2, "--rank", 2, "--world", 2, "--json").json["error"]["code"] == "RPL052"


def test_what_is_inexact_reaches_every_step(tmp_path: Path) -> None:
    path = run_file(tmp_path, ORDERS["nested"], 'fidelity = "upstream changes"\n')
    ran = run("trace", path, "--step", 1, "--json")
    assert ran.status == 0, ran.err
    assert ran.json["level"] == "approximate"
    assert "web: upstream changes" in ran.json["reasons"]


def consumed(path: Path, ledger: Path, steps: int, state: dict | None = None) -> dict:
    with tokenreel.open_feed(path, ledger=ledger, state=state) as feed:
        for _ in range(steps):
            next(feed)
        return feed.state_dict()


def test_a_ledger_says_what_happened(tmp_path: Path) -> None:
    path, ledger = run_file(tmp_path, ORDERS["windows"]), tmp_path / "ledger.jsonl"
    state = consumed(path, ledger, 5)
    consumed(path, ledger, 4)
    consumed(path, ledger, 3, state)
    steps = read_ledger(ledger)
    assert ranges(steps) == [(0, 32)]
    ran = run("trace", ledger, "--run", path, "--step", 6, "--json")
    assert ran.status == 0, ran.err
    assert ran.json["says"] == "what happened (ledger)"
    assert ran.json["level"] == "exact: a ledger recorded it"
    assert run("trace", ledger, "--run", path, "--step", 9).status == 2
    ran = run("trace", ledger, "--run", path, "--doc", "#7", "--corpus", "web", "--json")
    assert all(hit["step"] < 8 for hit in ran.json["hits"])
    declared = run("trace", path, "--doc", "7", "--corpus", "web", "--json").json["hits"]
    assert [hit for hit in declared if hit["step"] < 8] == ran.json["hits"]
    other = tmp_path / "other"
    other.mkdir()
    assert (
        run("trace", ledger, "--run", run_file(other, ORDERS["stream"]), "--step", 1, "--json").json["error"]["code"]
        == "RPL050"
    )


def test_two_ledgers_and_their_first_difference(tmp_path: Path) -> None:
    path = run_file(tmp_path, ORDERS["windows"])
    one, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    consumed(path, one, 6)
    consumed(path, other, 6)
    assert diff(read_ledger(one), read_ledger(other)).equal
    changed = tmp_path / "changed"
    changed.mkdir()
    with tokenreel.open_feed(run_file(changed, ORDERS["windows"]), batch=8, ledger=tmp_path / "c.jsonl") as feed:
        next(feed)
    ran = run("ledger", "diff", one, tmp_path / "c.jsonl", "--json")
    assert ran.status == 1
    assert ran.json["first_difference"] == 0


def test_exposure_counts_every_token_once(tmp_path: Path) -> None:
    path, ledger = run_file(tmp_path, ORDERS["nested"]), tmp_path / "ledger.jsonl"
    consumed(path, ledger, 10)
    found = exposure(traced(path, {line.step: line for line in read_ledger(ledger).current}), read_ledger(ledger))
    assert sum(found.tokens.values()) == 10 * 4 * 16
    for name, read in found.read.items():
        assert int(read.sum()) == found.tokens[name]
    ran = run("ledger", "exposure", ledger, "--run", path, "--json")
    assert ran.status == 0, ran.err
    assert sum(row["tokens"] for row in ran.json["corpora"].values()) == 640
    out = tmp_path / "ledger.parquet"
    assert run("ledger", "export", ledger, "-o", out, "--json").json["lines"] == 10


def test_unusual_rows_stand_out(tmp_path: Path) -> None:
    path = run_file(tmp_path, ORDERS["stream"])
    rng = np.random.default_rng(5)
    ids = rng.integers(1, 400, 4000).astype(np.uint16)
    ids[2000:2128] = 499
    ids[79::80] = 0
    with MegatronWriter(tmp_path / "web", np.uint16) as writer:
        writer.add_documents(ids, np.full(50, 80))
        writer.finish()
    ran = run("trace", path, "--steps", "31:33", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["rare_ids"][0]["id"] == 499
    assert any(2000 // 16 <= row["sample"] <= 2128 // 16 for row in ran.json["monotonous"])
    assert run("trace", path, "--steps", "5:3").status == 2


KILLED = """
import sys, tokenreel, json, pathlib
run, ledger, state = sys.argv[1:4]
kept = json.loads(pathlib.Path(state).read_text()) if pathlib.Path(state).exists() else None
with tokenreel.open_feed(run, ledger=ledger, state=kept) as feed:
    for batch in feed:
        print(batch.step, flush=True)
        if batch.step % 3 == 2:
            text = json.dumps(feed.state_dict())
            pathlib.Path(state + ".new").write_text(text)
            pathlib.Path(state + ".new").replace(state)
"""


def killed(tmp_path: Path, times: int) -> None:
    path = run_file(tmp_path, ORDERS["windows"].replace("epochs = 2", "epochs = 40"))
    ledger, state = tmp_path / "ledger.jsonl", tmp_path / "state.json"
    rng = random.Random(11)
    told = []
    command = [sys.executable, "-c", KILLED, str(path), str(ledger), str(state)]
    for _ in range(times):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            told += [int(child.stdout.readline()) for _ in range(rng.randrange(1, 9))]
            time.sleep(rng.random() * 0.002)
            os.kill(child.pid, signal.SIGKILL)
            told += [int(line) for line in child.stdout.read().split()]
    steps = read_ledger(ledger)
    # Every step that the loop was handed is in the ledger, and every line but the last attempt's is told apart.
    assert {line.step for line in steps.current} >= set(told)
    assert [line.step for line in steps.current] == list(range(max(told) + 1)) or not steps.gaps
    for line in steps.current:
        assert line.first == 4 * line.step
    repeats = len(told) - len(set(told))
    assert len(steps.superseded) >= repeats
    assert json.loads(state.read_text())["step"] >= 0


def test_a_ledger_survives_being_killed(tmp_path: Path) -> None:
    killed(tmp_path, 4)


@pytest.mark.slow
def test_a_ledger_survives_being_killed_a_hundred_times(tmp_path: Path) -> None:
    killed(tmp_path, 100)


def hits_read(path: Path, batches: list, document: int) -> set[tuple[int, int]]:
    """(step, sample) of what batches read of a document of web."""
    table = traced(path).made(0).corpora[0].table()
    begin = int(table.offsets_at(np.array([document]))[0])
    end = begin + int(table.lengths(document, document + 1)[0])
    found = set()
    for batch in batches:
        spans = batch.table
        rows = spans.sample_of()
        for e in range(spans.extents):
            low, high = int(spans.begin[e]), int(spans.begin[e] + spans.length[e])
            if low < end and begin < high:
                found.add((batch.step, int(batch.samples[rows[e]])))
    return found


def test_a_ledger_of_other_batches_than_the_run_file_says(tmp_path: Path) -> None:
    path, ledger = run_file(tmp_path, ORDERS["windows"]), tmp_path / "ledger.jsonl"
    with tokenreel.open_feed(path, ledger=ledger, batch=7) as feed:
        batches = [next(feed) for _ in range(9)]
        state = feed.state_dict()
    with tokenreel.open_feed(path, ledger=ledger, batch=3, state=state) as feed:
        batches += [next(feed) for _ in range(4)]
    for document in (0, 7, 31, 59):
        for more, steps in (((), range(13)), (("--steps", "4:11"), range(4, 11))):
            ran = run("trace", ledger, "--run", path, "--doc", f"#{document}", *more, "--json")
            assert ran.status == 0, ran.err
            told = [(hit["step"], hit["sample"]) for hit in ran.json["hits"]]
            assert len(told) == len(set(told))
            assert set(told) == {hit for hit in hits_read(path, batches, document) if hit[0] in steps}
    ran = run("trace", ledger, "--run", path, "--steps", "8:11", "--json")
    assert ran.json["samples"] == 7 + 3 + 3


def test_a_ledger_of_another_order_says_nothing_of_a_document(tmp_path: Path) -> None:
    path, ledger = run_file(tmp_path, ORDERS["windows"]), tmp_path / "ledger.jsonl"
    consumed(path, ledger, 3)
    path.write_text(path.read_text().replace("seed = 3", "seed = 4"))
    ran = run("trace", ledger, "--run", path, "--doc", "#7", "--corpus", "web", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (1, "RPL050")


def test_a_feed_that_began_again_is_traced(tmp_path: Path) -> None:
    path, ledger = run_file(tmp_path, ORDERS["stream"]), tmp_path / "ledger.jsonl"
    length = traced(path).made(0).order.length
    assert length
    with tokenreel.open_feed(path, ledger=ledger, endless=True) as feed:
        batches = [next(feed) for _ in range(length // 2 + 3)]
    assert batches[-1].position > 2 * length - 4
    for step in (0, length // 4, len(batches) - 1):
        ran = run("trace", ledger, "--run", path, "--step", step, "--json")
        assert ran.status == 0, ran.err
        assert [row["sample"] for row in ran.json["samples"]] == batches[step].samples.tolist()
    hits = run("trace", ledger, "--run", path, "--doc", "#7", "--json").json["hits"]
    told = {(hit["step"], hit["sample"]) for hit in hits}
    assert told == hits_read(path, batches, 7)
    assert len({step for step, _ in told}) >= 2
    ran = run("ledger", "exposure", ledger, "--run", path, "--json")
    assert ran.status == 0, ran.err
    assert ran.json["corpora"]["web"]["tokens"] == len(batches) * 4 * 16
    assert run("trace", ledger, "--run", path, "--steps", f"{length // 4}:{length // 4 + 2}", "--json").status == 0


@pytest.mark.parametrize("by_ledger", [False, True])
def test_the_short_last_step_has_the_ranks_that_its_feed_had(tmp_path: Path, by_ledger: bool) -> None:
    path, ledger = run_file(tmp_path, ORDERS["windows"]), tmp_path / "ledger.jsonl"
    length = traced(path).made(0).order.length
    assert length
    batch = next(size for size in range(4, 40) if length % size == 1)
    path.write_text(path.read_text().replace("batch = 4", f"batch = {batch}"))
    for rank in range(3):
        with tokenreel.open_feed(path, rank=rank, world=3, ledger=ledger) as feed:
            *_, last = feed
        where = ("trace", ledger, "--run", path) if by_ledger else ("trace", path)
        ran = run(*where, "--step", last.step, "--rank", rank, "--world", 3, "--json")
        assert ran.status == 0, ran.err
        assert [row["sample"] for row in ran.json["samples"]] == last.samples.tolist()
        assert ran.json["end_sample"] == length


def test_a_stretch_lies_in_one_segment(tmp_path: Path) -> None:
    path = run_file(tmp_path, ORDERS["windows"])
    more = "[[segment]]\nfirst = 0\nlast = 4\n[[segment]]\nfirst = 5\nlast = 9\nschedule = { batch = 2 }\n"
    path.write_text(path.read_text() + more)
    assert run("trace", path, "--steps", "5:8", "--json").status == 0
    far = run("trace", run_file(tmp_path, ORDERS["windows"]), "--steps", "0:1000000000000", "--json")
    assert (far.status, far.json["error"]["code"]) == (2, "ORD001")
    path.write_text(path.read_text() + more)
    ran = run("trace", path, "--steps", "3:8", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "USE003")


@pytest.mark.parametrize("kind", ["windows", "nested", "packed"])
def test_a_ledger_is_read_after_its_corpus_was_adopted(tmp_path: Path, kind: str) -> None:
    for seed, name in enumerate(("web", "code")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "part", 60, seed)
    path = tmp_path / "run.toml"
    text = "".join(f'[[corpus]]\nname = "{n}"\npath = "{n}"\nboundary = "suffix=0"\n' for n in ("web", "code"))
    path.write_text(f"{text}[order]\n{ORDERS[kind]}\n[schedule]\nbatch = 4\n")
    with tokenreel.open_feed(path, ledger=tmp_path / "ledger.jsonl", steps=6) as feed:
        read = [batch.samples.tolist() for batch in feed]
    for name in ("web", "code"):
        assert run("adopt", tmp_path / name, "--boundary", "suffix=0").status == 0
    seen = run("trace", tmp_path / "ledger.jsonl", "--run", path, "--step", "5", "--json")
    assert [row["sample"] for row in seen.json["samples"]] == read[5]
    assert run("ledger", "exposure", tmp_path / "ledger.jsonl", "--run", path).status == 0
    path.write_text(path.read_text().replace("row_tokens = 16", "row_tokens = 17"))
    assert (
        run("trace", tmp_path / "ledger.jsonl", "--run", path, "--step", "5", "--json").json["error"]["code"]
        == "RPL050"
    )
