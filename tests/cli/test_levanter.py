"""Levanter's mixture on the command line: the pre-flight, Snowball's lineage and levels, records, imports, feeds, traces."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import run
from tests.cli.test_order import call, written
from tests.index.data import lengths_of, write
from tests.order import levanter_reference as slow
from tokenreel.config.run import load_run, parse_run
from tokenreel.errors import DocumentError, RecipeError, TokenreelError
from tokenreel.feed.opening import open_feed
from tokenreel.index.assemble import assemble
from tokenreel.index.segments import chosen
from tokenreel.replay.levels import APPROXIMATE, DECLARED

CORPORA = "".join(f'[[corpus]]\nname = "{name}"\npath = "{name}.idx"\n' for name in ("web", "code", "math"))
STATED = "".join(
    f'[[corpus]]\nname = "{name}"\ntokens = {n}\n' for name, n in (("web", 6400), ("code", 900), ("math", 70))
)
ORDER = """
[order]
kind = "levanter"
row_tokens = 8
block = {block}
seed = 3
shuffle = {{ io_block = 2, window_blocks = 4 }}
component = [
  {{ name = "web", corpus = "web" }}, {{ name = "code", corpus = "code" }}, {{ name = "math", corpus = "math" }},
]
stage = [{{ step = 0, weights = "early" }}, {{ step = 8, weights = {{ web = 1, code = 1 }} }}]
[order.weights.early]
web = 0.9
code = 0.09
math = 0.01
[schedule]
batch = 4
steps = 20
"""
SNOWBALL = Path(__file__).parents[2] / "examples" / "runs" / "snowball.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("levanter")
    for number, name in enumerate(("web", "code", "math")):
        write(place / name, lengths_of(number, 40 + number))
    return place


# -- pre-flight --------------------------------------------------------------------------------------------------------


def test_components_that_round_to_zero_and_what_mends_them(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path, STATED + ORDER.format(block=16))
    status, shown = call(capsys, "mix", path)
    assert status == 0, shown
    check = shown["segments"][0]["preflight"]
    first, second = check["stages"]
    assert (first["never"], second["never"]) == (["math"], [])
    assert (first["first"], second["first"], second["components"]) == (0, 32, 2)
    assert first["furthest"] == {"name": "web", "asked": 0.9, "realised": 15 / 16, "per_block": 15}
    # 100 would do, but the phase changes at 32: nothing above it divides that.
    assert check["smallest_block"] is None
    rows = {row["name"]: row for row in shown["segments"][0]["phases"][0]["sources"]}
    assert (rows["math"]["state"], rows["math"]["samples"]) == ("never", 0)
    assert rows["web"]["samples"] == 30
    status, shown = call(capsys, "mix", path, "--set", 'order.stage=[{step=0, weights="early"}]')
    assert shown["segments"][0]["preflight"]["smallest_block"] == 100
    status, shown = call(
        capsys, "mix", path, "--set", 'order.stage=[{step=0, weights="early"}]', "--set", "order.block=100"
    )
    assert shown["segments"][0]["preflight"]["stages"][0]["never"] == []


def test_the_pre_flight_is_read_by_people(tmp_path: Path) -> None:
    path = written(tmp_path, STATED + ORDER.format(block=16))
    shown = run("mix", path)
    assert shown.status == 0
    assert "never sampled: math" in shown.out
    assert "no block below 65,536" in shown.out


def test_counts_are_those_of_the_samples(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path, STATED + ORDER.format(block=8))
    (segment,) = load_run(path)
    made = assemble(segment.run, tmp_path)
    counted = np.bincount(made.order.components_at(np.arange(80)), minlength=3)
    status, shown = call(capsys, "mix", path)
    assert status == 0
    total = np.zeros(3, dtype=int)
    for phase in shown["segments"][0]["phases"]:
        total += [row["samples"] for row in phase["sources"]]
    assert total.tolist() == counted.tolist()


# -- Snowball ----------------------------------------------------------------------------------------------------------


def test_snowball_is_the_golden_mixture() -> None:
    golden, segments = slow.arrays("mixture.npz"), load_run(SNOWBALL)
    main = assemble(segments[1].run).order
    component, number = main.places_at(golden["snowball_at"])  # type: ignore[attr-defined]
    assert (component == golden["snowball_dataset"]).all()
    assert (number == golden["snowball_index"]).all()
    assert len(main.children) == 168
    assert len(main.children[167].corpora) == 33
    cooldown = assemble(segments[3].run).order
    component, number = cooldown.mixture.numbers_at(golden["snowball_cooldown_at"])  # type: ignore[attr-defined]
    assert (component == golden["snowball_cooldown_dataset"]).all()
    assert (number == golden["snowball_cooldown_raw_index"]).all()
    before, after = (assemble(segments[k].run).order.fingerprint_until(61_440_000) for k in (0, 1))
    assert before == after


def test_snowball_s_levels_and_branches(capsys: Any) -> None:
    status, shown = call(capsys, "mix", SNOWBALL)
    assert status == 0
    levels = [segment["level"] for segment in shown["segments"]]
    assert levels == [DECLARED, APPROXIMATE, APPROXIMATE, APPROXIMATE]
    reasons = [segment["reasons"] for segment in shown["segments"]]
    assert "step 15,000" in reasons[1][0]
    assert "sample 104,448,000 where sample 774,144,000 was next" in reasons[3][0]
    phases = shown["segments"][1]["phases"]
    assert [(phase["first"], phase["end"]) for phase in phases] == [
        (61_440_000, 983_040_000), (983_040_000, 1_228_800_000),
    ]  # fmt: skip
    assert all(stage["never"] == [] for stage in shown["segments"][1]["preflight"]["stages"])
    segments = load_run(SNOWBALL)
    assert chosen(segments, step=15_000)[0] == 1
    assert chosen(segments, step=102_500, segment=3)[0] == 3
    with pytest.raises(RecipeError, match="RCP044"):
        chosen(segments, step=102_500)


def test_the_step_at_which_snowball_s_phase_changes(capsys: Any) -> None:
    status, shown = call(capsys, "order", "show", SNOWBALL, "--segment", "1", "--step", "127500")
    assert status == 0, shown
    step = shown["segments"][0]["step"]
    assert (step["first"], step["end"]) == (983_040_000, 983_048_192)
    status, shown = call(capsys, "trace", SNOWBALL, "--step", "14999")
    assert status == 0, shown
    assert (shown["first_sample"], shown["level"]) == (61_440_000 - 4096, DECLARED)
    status, shown = call(capsys, "trace", SNOWBALL, "--step", "102500", "--segment", "3")
    assert status == 0, shown
    assert (shown["first_sample"], shown["end_sample"]) == (102_500 * 1024, 102_501 * 1024)
    assert shown["level"] == APPROXIMATE
    assert call(capsys, "trace", SNOWBALL, "--step", "102500")[1]["error"]["code"] == "RCP044"


def test_the_page_s_run_file_is_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "levanter.md").read_text("utf-8")
    (segment,) = parse_run(tomllib.loads(text.split("```toml\n")[1].partition("```")[0]))
    assert segment.last == 149_999


# -- records -----------------------------------------------------------------------------------------------------------

LINEAGE = """
[[segment]]
first = 0
last = 9
[[segment]]
first = 10
last = 19
schedule = { batch = 8, ramp = [] }
at_sample = 40
"""


def lineage(place: Path, more: str = "") -> Path:
    return written(place, STATED + ORDER.format(block=8).replace("steps = 20\n", "") + LINEAGE + more)


def test_a_checkpoint_s_state_lifts_a_segment(tmp_path: Path, capsys: Any) -> None:
    path = lineage(tmp_path)
    assert load_run(path)[1].doubt is not None
    status, _ = call(
        capsys, "state", "import", path, "--levanter", "10", "--segment", "1", "-o", tmp_path / "step-10.json"
    )
    assert status == 0
    said = json.loads((tmp_path / "step-10.json").read_text())
    assert (said["step"], said["position"], said["tokens"]) == (10, 40, 320)
    path = lineage(tmp_path, 'evidence = "checkpoint"\nrecord = "step-10.json"\n')
    assert load_run(path)[1].doubt is None
    status, shown = call(capsys, "mix", path)
    assert status == 0, shown
    assert [segment["level"] for segment in shown["segments"]] == [DECLARED, DECLARED]
    # The state is one of this order: with another seed it is refused.
    status, shown = call(capsys, "mix", path, "--set", "order.seed=4")
    assert (status, shown["error"]["code"]) == (1, "STA004")


@pytest.mark.parametrize(
    "record",
    ['{"step": 10, "position": 41}', '{"step": 9, "position": 40}', "[]", "{", '{"step": "10", "position": 40}'],
)
def test_a_state_that_says_something_else_is_refused(record: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(record)
    path = lineage(tmp_path, 'evidence = "checkpoint"\nrecord = "s.json"\n')
    with pytest.raises(RecipeError, match="RCP046"):
        load_run(path)


def test_a_ledger_lifts_a_segment(tmp_path: Path) -> None:
    lines = [{"attempt": a, "step": s, "first": f, "count": 8} for a, s, f in ((0, 10, 36), (1, 10, 40), (1, 11, 48))]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    more = 'evidence = "ledger"\nrecord = "l.jsonl"\n'
    assert load_run(lineage(tmp_path, more))[1].doubt is None
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:1]))
    with pytest.raises(RecipeError, match="RCP046"):
        load_run(lineage(tmp_path, more))


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("RCP041", 'evidence = "checkpoint"\n'),
        ("RCP041", 'record = "s.json"\n'),
        ("RCP046", 'evidence = "ledger"\nrecord = "missing"\n'),
        ("RCP004", 'evidence = "a log"\n'),
        ("RCP043", "after = 1\n"),
        ("RCP043", "[[segment]]\nfirst = 21\nlast = 30\n"),
        ("RCP043", "[[segment]]\nafter = 0\nfirst = 0\nlast = 30\n"),
        ("RCP043", "[[segment]]\nafter = 0\nfirst = 11\nlast = 30\n"),
    ],
)
def test_segments_that_do_not_follow(code: str, more: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=code):
        load_run(lineage(tmp_path, more))


def test_a_branch_takes_the_keys_of_what_it_leaves(tmp_path: Path) -> None:
    path = lineage(tmp_path, "[[segment]]\nafter = 0\nfirst = 5\nlast = 7\n")
    branch = load_run(path)[2]
    assert (branch.first_sample, branch.after, branch.doubt) == (20, 0, None)
    assert branch.run.schedule is not None
    assert branch.run.schedule.batch == 4


# -- imports -----------------------------------------------------------------------------------------------------------


def test_levanter_s_checkpoints_are_imported(tmp_path: Path, capsys: Any) -> None:
    path = lineage(tmp_path)
    for step, position, tokens in ((0, 0, 0), (9, 36, 288), (10, 40, 320), (12, 56, 448), (20, 120, 960)):
        status, said = call(capsys, "state", "import", path, "--levanter", step)
        assert (status, said["step"], said["position"], said["tokens"]) == (0, step, position, tokens)
    checkpoint = tmp_path / "step-12"
    checkpoint.mkdir()
    (checkpoint / "metadata.json").write_text('{"step": 12, "timestamp": "2026-05-01"}')
    for place in (checkpoint, checkpoint / "metadata.json"):
        assert call(capsys, "state", "import", path, "--levanter", place)[1]["position"] == 56
    for said, code in (
        ({"step": 12, "sequences": 55}, "STA008"),
        ({"step": 13}, "STA008"),
        ({"steps": 12}, "STA001"),
        ([], "STA001"),
    ):
        (checkpoint / "metadata.json").write_text(json.dumps(said))
        status, shown = call(capsys, "state", "import", path, "--levanter", checkpoint)
        assert (status, shown["error"]["code"]) == (1, code)
    status, shown = call(capsys, "state", "import", path, "--levanter", 21)
    assert shown["error"]["code"] == "RCP044"
    text = '[[corpus]]\nname = "web"\ntokens = 100\n[order]\nkind = "stream"\nrow_tokens = 8\n[schedule]\nbatch = 1\nsteps = 9\n'
    other = written(tmp_path, text, "o.toml")
    assert call(capsys, "state", "import", other, "--levanter", 2)[1]["error"]["code"] == "STA007"
    assert call(capsys, "state", "import", other, "--levanter", 2, "--megatron", 2)[1]["error"]["code"] == "USE003"


# -- corpora that are not there, and those that are --------------------------------------------------------------------


def test_a_stated_corpus_has_no_ids(tmp_path: Path) -> None:
    (segment,) = load_run(written(tmp_path, STATED + ORDER.format(block=8)))
    made = assemble(segment.run, tmp_path)
    assert [corpus.tokens for corpus in made.corpora] == [6400, 900, 70]
    assert made.order.corpora[0].kind == "declared"
    for corpus in made.corpora:
        for call_it in (
            lambda c=corpus: c.stream(0, 1),
            lambda c=corpus: list(c.batches()),
            lambda c=corpus: c.shard(0),
        ):
            with pytest.raises(DocumentError, match="DOC026"):
                call_it()
        table = corpus.table()
        assert table.lengths(0, 1).tolist() == [corpus.tokens]
        assert table.offsets_at(np.array([0, 1])).tolist() == [0, corpus.tokens]
    with pytest.raises(TokenreelError), open_feed(made, batch=4) as feed:
        next(feed)


@pytest.mark.parametrize("corpus", ["", 'path = "web.idx"\ntokens = 5\n', "tokens = 0\n"])
def test_a_corpus_is_a_path_or_a_size(corpus: str, tmp_path: Path) -> None:
    text = f'[[corpus]]\nname = "web"\n{corpus}[order]\nkind = "stream"\nrow_tokens = 8\n'
    with pytest.raises(RecipeError, match=r"RCP0(41|04)"):
        load_run(written(tmp_path, text))


def test_it_feeds_traces_and_goes_on(folder: Path, capsys: Any) -> None:
    path = written(folder, 'row_policy = { kind = "levanter", eod = 2 }\n' + CORPORA + ORDER.format(block=8))
    (segment,) = load_run(path)
    made = assemble(segment.run, folder)
    with open_feed(path, prefetch=0) as feed:
        first = [next(feed) for _ in range(3)]
        state = feed.state_dict()
        rest = [batch for _, batch in zip(range(4), feed, strict=False)]
    table = made.order.spans(0, 4)
    for row, batch_row in enumerate(first[0]["tokens"]):
        corpus, begin = made.corpora[int(table.corpus[row])], int(table.begin[row])
        assert batch_row.tolist() == corpus.stream(begin, begin + 8).tolist()
    assert first[0]["loss_weight"][:, -1].tolist() == [0.0] * 4
    assert first[0].sources.tolist() == made.order.components_at(range(4)).tolist()
    with open_feed(path, prefetch=0, state=state, batch=8) as feed:
        again = next(feed)
    assert again.samples.tolist() == [*rest[0].samples.tolist(), *rest[1].samples.tolist()]
    status, shown = call(capsys, "trace", path, "--step", 3)
    assert status == 0, shown
    corpus = made.names[int(made.resolved(table).corpus[0])]
    document = int(made.resolved(table).document[0])
    status, found = call(capsys, "order", "find", path, "--corpus", corpus, "--doc", document)
    assert status == 0, found


@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("RCP041", "order.stage[0].weights=late"),
        ("RCP041", "order.stage[0].weights={x = 1}"),
        ("RCP041", "order.stage[0].sample=0"),
        ("RCP041", "order.component[0].weight=1"),
        ("RCP041", "order.component[0].name=code"),
        ("RCP041", "order.experiment_budget=5"),
        ("RCP041", 'order.component[0].order={kind = "stream", row_tokens = 8, corpus = "web"}'),
        ("RCP042", "order.component[0].corpus=wob"),
        ("RCP003", "order.component[0].weigth=1"),
        ("RCP004", "order.block=65536"),
    ],
)
def test_tables_that_are_refused(code: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=code):
        load_run(written(tmp_path, STATED + ORDER.format(block=8)), [key])


def test_packed_documents_and_what_is_kept(folder: Path) -> None:
    packed = '{kind = "packed", corpus = "%s", row_tokens = 32, policy = "levanter-greedy", oversize = "truncate", shuffle = false}'
    parts = ", ".join(f'{{name = "{name}", weight = 1.0, order = {packed % name}}}' for name in ("web", "code"))
    text = CORPORA + f'[order]\nkind = "levanter"\nrow_tokens = 32\nblock = 8\ncomponent = [{parts}]\n'
    (segment,) = load_run(written(folder, text, "packed.toml"))
    made = assemble(segment.run, folder)
    assert made.order.length is None
    table = made.order.prepare().spans(0, 16)
    assert (table.document >= -1).all()
    assert table.samples == 16
    text = STATED + ORDER.format(block=8)
    (kept,) = load_run(
        written(folder, text, "kept.toml"),
        ["order.experiment_budget=3", "order.target_budget=10", "order.component[0].max_train_batches=2"],
    )
    lengths = assemble(kept.run, folder).order.mixture.lengths  # type: ignore[attr-defined]
    assert lengths == (8, int(900 // 8 * 3 / 10), int(70 // 8 * 3 / 10))


def test_a_launcher_that_normalises(tmp_path: Path) -> None:
    (plain,) = load_run(written(tmp_path, STATED + ORDER.format(block=8)))
    (twice,) = load_run(written(tmp_path, STATED + ORDER.format(block=8)), ["order.launcher_normalises=true"])
    one, other = (assemble(segment.run).order for segment in (plain, twice))
    assert one.fingerprint == other.fingerprint
