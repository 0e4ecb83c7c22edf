"""Mixes end to end: each stage drops what was planted for it, the sums hold, and the bytes are the same however it was built."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenreel
from tests.build.making import tokenizer_file
from tests.build.mixed_runs import EVAL, all_files, build, json_of, records, sources, text, whole
from tests.build.mixes import write_records
from tokenreel.build import build as front_door
from tokenreel.build import dedup
from tokenreel.build.explain import explain
from tokenreel.cli.main import main
from tokenreel.corpus.splits import HashMod, SplitInput
from tokenreel.errors import ManifestError, RecipeError, SourceError, UsageError
from tokenreel.text import load_tokenizer
from tokenreel.text.normalise import text_id
from tokenreel.verify import verify

PLANTED = {
    "copy": ({"text": text("web", 3)}, "dedup", "exact"),
    "same-url": ({"text": "another text of a page that is there", "url": "https://web/5"}, "dedup", "url"),
    "item": ({"text": f"as they asked: {EVAL}, and more"}, "decontaminate", "overlap"),
    "empty": ({"text": ""}, "documents", "empty"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mix")
    tables = sources(folder)
    write_records(folder / "in/books-2.jsonl", [{"id": k, "url": None, **v[0]} for k, v in PLANTED.items()])
    build(folder, whole(folder, source=tables))
    return folder


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_document_is_dropped_by_its_stage(built: Path, name: str) -> None:
    (fate,) = explain(built / "out", name)
    assert (fate.stage, fate.rule, fate.dropped) == (PLANTED[name][1], PLANTED[name][2], True)


def test_a_document_of_the_mix_is_found_by_its_input_and_by_every_name(built: Path) -> None:
    out = built / "out"
    corpus, tok = tokenreel.open(out), load_tokenizer(str(built / "tokenizer.json"))
    for name, record in (("web-0", 0), ("web-1", 7), ("books-0", 19)):
        source, number = name.split("-")
        k = record + int(number) * 30
        (by_record,) = explain(out, f"in/{name}.jsonl#{record}")
        (by_id,) = explain(out, f"{source}{k}")
        assert by_record == by_id == explain(out, str(by_id.id))[0]
        assert (by_id.stage, by_id.rule, by_id.input, by_id.record) == ("corpus", "kept", f"in/{name}.jsonl", record)
        split, shard, document = re.fullmatch(r"\d+ tokens, (\w+), (\S+) document (\d+)", by_id.value).groups()  # type: ignore[union-attr]
        entry = next(one for one in corpus.split(split).entries if one.name == shard)
        begin = sum(one.documents for one in corpus.split(split).entries if one.name < entry.name)
        assert tok.decode(corpus.split(split)[begin + int(document)][:-1]) == text(source, k)


def test_what_is_not_recorded_is_told_by_what_was_seen(built: Path) -> None:
    with pytest.raises(SourceError, match=r"SRC031 .*: 30 documents of this input were seen .*#30.*\n.*--explain 'in/"):
        explain(built / "out", "in/web-0.jsonl#30")
    with pytest.raises(SourceError, match=r"SRC031 .*no part is of this input"):
        explain(built / "out", "in/elsewhere.jsonl#0")
    with pytest.raises(SourceError, match="SRC031"):
        explain(built / "out", "nobody")


def test_seen_are_those_kept_and_those_dropped(built: Path) -> None:
    record = json_of(built / "out/mix.json")
    dropped: dict[str, int] = {}
    for one in record["sources"]:
        assert one["docs_seen"] == one["documents"] + sum(one["dropped"].values())
        assert one["documents"] == sum(split["documents"] for split in one["splits"].values())
        assert one["tokens"] == sum(split["tokens"] for split in one["splits"].values())
        dropped |= one["dropped"]
    assert dropped == {"dedup/exact": 1, "dedup/url": 1, "decontaminate/overlap": 1, "documents/empty": 1}
    assert sum(one["documents"] for one in record["sources"]) == 100


def test_it_verifies_clean_and_is_recorded(built: Path) -> None:
    report = verify(built / "out", level="full")
    assert (report.status, report.findings) == ("ok", ())
    assert "vocabulary" not in "".join(one.what for one in report.not_checked)
    corpus = tokenreel.open(built / "out")
    record = json_of(built / "out/mix.json")
    for name in corpus.splits:
        assert corpus.split(name).identity().digest == record["splits"][name]["identity"]
    for shard in record["shards"]:
        assert sum(shard["source_tokens"].values()) == shard["tokens"]
    for page in ("ATTRIBUTION.md", "MIX_PLAN.md"):
        assert all(name in (built / "out" / page).read_text() for name in ("web", "books"))
    assert record["assumptions"]["A-O5 split rule"].startswith("merged document i is validation where i % 10 == 9")


def test_the_audit_names_document_item_and_span(built: Path) -> None:
    (found,) = json_of(built / "out/audit.json")["evals"]
    (evidence,) = found["evidence"]
    assert (found["items"], found["items_hit"], found["items_without_ngrams"], found["docs_hit"]) == (2, 1, 1, 1)
    assert (evidence["upstream_id"], evidence["source"], evidence["item"], evidence["share"]) == ("item", "books", 0, 1)
    assert evidence["span"] == [3, 16]
    assert [one["path"] for one in found["files"]] == ["evals/dev.jsonl"]


def test_every_tenth_survivor_is_held_out_and_its_text_is_right(built: Path) -> None:
    from pyarrow import parquet

    corpus, tok = tokenreel.open(built / "out"), load_tokenizer(str(built / "tokenizer.json"))
    rows = parquet.read_table(built / "out/documents.parquet").to_pylist()
    texts = {row["id"]: row["text"] for name in ("web", "books") for row in records(name, 60)}
    held = [row for row in rows if row["split"] == "validation"]
    assert len(held) == 10
    at = 0
    for split in ("train", "validation"):
        for k, ids in enumerate(corpus.split(split)):
            assert tok.decode(ids[:-1]) == texts[rows[at + k]["upstream_id"]]
        at += k + 1
    assert {row["upstream_id"] for row in held}.isdisjoint(
        row["upstream_id"] for row in rows if row["split"] == "train"
    )


@pytest.mark.parametrize("how", ["interleave", "sequential", "shuffle"])
def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path, how: str) -> None:
    recipe = whole(tmp_path, merge={"how": how, "seed": 5}, source=sources(tmp_path, {"a": 30, "b": 20}))
    build(tmp_path, recipe, "none")
    for workers in (1, 2, 7) if how == "interleave" else (2,):
        build(tmp_path, recipe, str(workers), workers=workers)
        assert all_files(tmp_path / str(workers)) == all_files(tmp_path / "none")


def test_a_finished_mix_is_left_alone_and_another_recipe_refused(tmp_path: Path) -> None:
    recipe = whole(tmp_path)
    build(tmp_path, recipe)
    before = all_files(tmp_path / "out")
    assert build(tmp_path, recipe).nothing_to_do
    assert all_files(tmp_path / "out") == before
    build(tmp_path, recipe, built_at="2026-11-30")
    assert json_of(tmp_path / "out/tokenreel.json")["built_at"] == "2026-11-30"
    assert build(tmp_path, recipe).nothing_to_do
    with pytest.raises(ManifestError, match=r"MAN010 .*recipe.merge.how"):
        build(tmp_path, whole(tmp_path, merge={"how": "shuffle"}))
    question = (tmp_path / "evals/dev.jsonl").read_bytes()
    write_records(tmp_path / "evals/dev.jsonl", [{"text": "another"}])
    with pytest.raises(ManifestError, match=r"MAN010 .*files of evaluation set 'quiz'"):
        build(tmp_path, recipe)
    (tmp_path / "evals/dev.jsonl").write_bytes(question)
    with (tmp_path / "in/web-0.jsonl").open("a") as file:
        file.write('{"text": "one more", "id": "x", "url": null}\n')
    with pytest.raises(ManifestError, match=r"MAN010 .*'web'"):
        build(tmp_path, recipe)


def test_a_file_that_changed_is_built_again(tmp_path: Path) -> None:
    recipe = whole(tmp_path)
    build(tmp_path, recipe, built_at="2026-11-30")
    before = all_files(tmp_path / "out")
    shard = next((tmp_path / "out/shards/train").glob("*.bin"))
    shard.write_bytes(bytes([shard.read_bytes()[0] ^ 1]) + shard.read_bytes()[1:])
    assert not build(tmp_path, recipe).nothing_to_do
    assert all_files(tmp_path / "out") == before


def test_what_is_somebody_else_s_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    with pytest.raises(ManifestError, match="MAN014"):
        build(tmp_path, whole(tmp_path))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_source_that_would_lose_too_much_stops_the_build(tmp_path: Path) -> None:
    rows = records("web", 20)
    write_records(tmp_path / "in/a.jsonl", rows)
    write_records(tmp_path / "in/b.jsonl", [*rows[:11], *records("b", 9)])
    tables = [{"name": name, "paths": [f"in/{name}.jsonl"]} for name in "ab"]
    common: dict[str, Any] = {"source": tables, "merge": {"how": "sequential"}}
    with pytest.raises(
        SourceError, match=r"SRC030 source 'b': 11 of 20 documents \(in/b.jsonl#0 \(b\) is in/a.jsonl#0"
    ):
        build(tmp_path, whole(tmp_path, dedup={}, **common))
    assert not (tmp_path / "out/tokenreel.json").exists()
    checked = verify(tmp_path / "out")
    assert (checked.status, list(checked.counts)) == ("incomplete", ["MAN046"])
    (fate,) = explain(tmp_path / "out", "in/b.jsonl#0")
    assert (fate.stage, fate.rule) == ("staged", "kept")
    # What was staged is kept: only the merge is another now.
    report = build(tmp_path, whole(tmp_path, dedup={"allow": ["b"]}, **common))
    assert report.built == 0
    assert [one["dropped"] for one in report.record["sources"]] == [{}, {"dedup/exact": 11}]


def test_an_unfinished_mix_says_which_key_of_staged_parts_is_another(tmp_path: Path) -> None:
    rows = [{"text": ""}, *records("a", 3)]
    write_records(tmp_path / "in/a.jsonl", rows)
    tables = [{"name": "a", "paths": ["in/a.jsonl"]}]
    common: dict[str, Any] = {"source": tables, "dedup": {"max_removal": 0.0}}
    write_records(tmp_path / "in/a.jsonl", [*rows, rows[1]])
    with pytest.raises(SourceError, match="SRC030"):
        build(tmp_path, whole(tmp_path, **common))
    with pytest.raises(ManifestError, match=r"MAN010 .*recipe.gate differs|MAN010 .*length of recipe.gate"):
        build(tmp_path, whole(tmp_path, gate=[{"kind": "characters", "min": 2}], **common))
    build(tmp_path, whole(tmp_path, source=tables, dedup={"max_removal": 0.5}))


def test_one_function_builds_recipes_of_both_kinds(tmp_path: Path) -> None:
    tokenizer_file(tmp_path)
    write_records(tmp_path / "in/a.jsonl", records("a", 4))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[tokenizer]\npath = "tokenizer.json"\neod = "<eod>"\n[[source]]\nname = "a"\npaths = ["in/*"]\n')
    plain = front_door(recipe, tmp_path / "plain", in_process=True)
    mixed = front_door(recipe, tmp_path / "mix", overrides=["merge.how=sequential"], in_process=True)
    planned = front_door(recipe, tmp_path / "none", overrides=["merge.how=sequential"], dry_run=True)
    assert [type(one).__name__ for one in (plain, mixed, planned)] == ["BuildReport", "MixReport", "MixPlan"]
    for one in (plain, mixed, planned):
        assert one.lines()
        assert one.as_dict()["name"] == "corpus"
    assert not (tmp_path / "none").exists()
    digests = [tokenreel.open(tmp_path / name).identity().digest for name in ("plain/train", "mix")]
    assert digests[0] == digests[1]
    for options in ({"workers": 0}, {"built_at": "yesterday"}):
        for overrides in ([], ["merge.how=sequential"]):
            with pytest.raises(UsageError, match="USE003"):
                front_door(recipe, tmp_path / "none", overrides=overrides, **options)


def test_keys_that_wait_on_disk_give_the_same_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = whole(tmp_path)
    build(tmp_path, recipe)
    monkeypatch.setattr(dedup, "IN_MEMORY", 10)
    build(tmp_path, recipe, "spilled")
    assert all_files(tmp_path / "spilled") == all_files(tmp_path / "out")


@pytest.mark.parametrize("how", ["interleave", "shuffle"])
def test_equal_texts_share_a_split_where_the_text_decides(tmp_path: Path, how: str) -> None:
    rows = records("a", 40)
    write_records(tmp_path / "in/a.jsonl", rows)
    write_records(tmp_path / "in/b.jsonl", [*rows[20:], *records("b", 20)])
    tables = [{"name": name, "paths": [f"in/{name}.jsonl"], "id": "id"} for name in "ab"]
    rule = HashMod(4)
    build(
        tmp_path,
        whole(tmp_path, source=tables, dedup=None, merge={"how": how}, split={"rule": "hash-mod", "modulo": 4}),
    )
    texts = [
        *(text("a", k) for k in range(40)),
        *(text("a", k) for k in range(20, 40)),
        *(text("b", k) for k in range(20)),
    ]
    held = sorted(one for one, chosen in zip(texts, rule.validation(SplitInput.of(texts)), strict=True) if chosen)
    tok = load_tokenizer(str(tmp_path / "tokenizer.json"))
    assert sorted(tok.decode(ids[:-1]) for ids in tokenreel.open(tmp_path / "out").split("validation")) == held


@pytest.mark.parametrize(("scope", "lost"), [("source", 0), ("family", 1), ("global", 2)])
@pytest.mark.parametrize("by", ["url", "id"])
def test_keys_are_the_same_within_their_scope_alone(tmp_path: Path, by: str, scope: str, lost: int) -> None:
    for name in "abc":
        rows = records(name, 3)
        rows[1] |= {"url": "https://one/page", "id": "one"}
        write_records(tmp_path / f"in/{name}.jsonl", rows)
    tables = [
        {"name": name, "paths": [f"in/{name}.jsonl"], "id": "id", "url": "url", "family": "f" if name in "ab" else None}
        for name in "abc"
    ]
    recipe = whole(tmp_path, source=tables, dedup={"by": [by], f"{by}_scope": scope}, merge={"how": "sequential"})
    said = build(tmp_path, recipe).record["sources"]
    assert [one["dropped"].get(f"dedup/{by}", 0) for one in said] == [[0, 0, 0], [0, 1, 0], [0, 1, 1]][lost]


def test_listed_ids_are_held_out(tmp_path: Path) -> None:
    recipe = whole(tmp_path, split={"rule": "by-id", "ids": ["web3", "books7", "nowhere"]})
    build(tmp_path, recipe)
    assert [explain(tmp_path / "out", name)[0].value.split(", ")[1] for name in ("web3", "books7", "web4")] == [
        "validation",
        "validation",
        "train",
    ]


def test_near_duplicates_go_after_exact_ones(tmp_path: Path) -> None:
    long = " ".join(text("long", k) for k in range(8))
    write_records(tmp_path / "in/a.jsonl", [{"text": long}, *records("a", 5), {"text": long}, {"text": long + " End."}])
    tables = [{"name": "a", "paths": ["in/a.jsonl"]}]
    recipe = whole(tmp_path, source=tables, dedup={"near": {"threshold": 0.8}})
    (one,) = build(tmp_path, recipe).record["sources"]
    assert one["dropped"] == {"dedup/exact": 1, "dedup/near": 1}
    assert explain(tmp_path / "out", "in/a.jsonl#7")[0].rule == "near"


def test_an_audit_by_ids_only_counts_unless_it_is_to_remove(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", [{"text": f"{EVAL} and more"}, *records("a", 5)])
    tables = [{"name": "a", "paths": ["in/a.jsonl"]}]
    evals = [{"name": "quiz", "path": "evals/dev.jsonl", "split": "validation"}]
    for remove, kept in (("none", 6), ("strong", 5)):
        asked = {"by": "ids", "remove": remove, "eval": evals}
        report = build(tmp_path, whole(tmp_path, source=tables, dedup={}, decontaminate=asked), remove)
        assert report.record["audit"]["documents_strong"] == 1
        assert sum(one["documents"] for one in report.record["splits"].values()) == kept


def test_a_mix_of_nothing_is_an_error_that_can_be_explained(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", [{"text": "", "id": "nothing"}])
    tables = [{"name": "a", "paths": ["in/a.jsonl"], "id": "id"}]
    with pytest.raises(SourceError, match=r"SRC042 .*none of 1 seen"):
        build(tmp_path, whole(tmp_path, source=tables, dedup=None))
    assert explain(tmp_path / "out", "nothing")[0].rule == "empty"


def test_a_test_split_is_never_opened(tmp_path: Path) -> None:
    write_records(tmp_path / "evals/quiz_test.jsonl", [{"text": EVAL}])
    evals = [{"name": "quiz", "path": "evals/quiz_test.jsonl", "split": "dev"}]
    with pytest.raises(SourceError, match="SRC040"):
        build(tmp_path, whole(tmp_path, decontaminate={"eval": evals}))
    assert not (tmp_path / "out").exists()


def test_special_tokens_spelled_in_texts_stay_text(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", [{"text": "an <eod> in a text"}, *records("a", 3)])
    build(tmp_path, whole(tmp_path, source=[{"name": "a", "paths": ["in/a.jsonl"]}], split=None, dedup=None))
    corpus, eod = tokenreel.open(tmp_path / "out"), tokenreel.open(tmp_path / "out").boundary.suffix[0]
    assert corpus.splits == ()
    assert [np.flatnonzero(ids == eod).tolist() for ids in corpus] == [[len(ids) - 1] for ids in corpus]


def test_the_command_builds_explains_and_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources(tmp_path, {"web": 12})
    tokenizer_file(tmp_path)
    recipe = tmp_path / "mix.toml"
    recipe.write_text(
        'layout = "ounce"\n[tokenizer]\npath = "tokenizer.json"\neod = "<eod>"\n[split]\nrule = "every-nth"\nn = 4\n'
        '[[source]]\nname = "web"\npaths = ["in/web-*.jsonl"]\nid = "id"\n'
    )
    command = ["build", str(recipe), "--out", str(tmp_path / "out"), "--workers", "1", "--json", "--progress", "none"]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert {name: one["documents"] for name, one in said["splits"].items()} == {"train": 9, "val": 3}
    assert main(["build", str(recipe), "--out", str(tmp_path / "out"), "--explain", "web3"]) == 0
    assert "val, val/shard_00000 document 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        ({"layout": "ounce", "output": {"format": "megatron-v1"}}, "output.format"),
        ({"output": {"format": "llmc-v1", "dtype": "int32"}}, "output.dtype"),
        ({"output": {"format": "hobbylm-v1"}}, "a layout of their own"),
        ({"output": {"format": "levanter", "dtype": "uint16"}}, "output.dtype"),
        ({"split": {"rule": "by-id", "ids": []}, "merge": {"how": "sideways"}}, "merge.how"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_read(tmp_path: Path, tables: dict[str, Any], what: str) -> None:
    with pytest.raises(RecipeError, match=what):
        build(tmp_path, whole(tmp_path, **tables))
    assert not (tmp_path / "out").exists()


def test_progress_names_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources(tmp_path, {"web": 12})
    tokenizer_file(tmp_path)
    write_records(tmp_path / "dev.jsonl", [{"text": EVAL}])
    recipe = tmp_path / "mix.toml"
    recipe.write_text(
        '[tokenizer]\npath = "tokenizer.json"\neod = "<eod>"\n'
        '[[decontaminate.eval]]\nname = "quiz"\npath = "dev.jsonl"\nsplit = "dev"\n'
        '[[source]]\nname = "web"\npaths = ["in/web-*.jsonl"]\n'
    )
    command = ["build", str(recipe), "--out", str(tmp_path / "out"), "--workers", "1", "--json", "--progress", "json"]
    assert main(command) == 0
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    begun = list(dict.fromkeys(one["stage"] for one in events if "stage" in one))
    assert begun == ["stage", "merge", "audit", "write", "read again"]
    last = [one for one in events if one.get("stage") == "write" and "bytes" in one][-1]
    assert last["bytes"] == last["total_bytes"] > 0


@pytest.mark.parametrize(("whitespace", "blank", "characters"), [("python", 1, 6), ("columnar", 0, 11)])
def test_marin_s_normalisation_with_both_classes_of_whitespace(
    tmp_path: Path, whitespace: str, blank: int, characters: int
) -> None:
    rows = [{"id": "run", "text": "a" + "  \x1c" * 3 + "b"}, {"id": "blank", "text": "\x1c"}]
    write_records(tmp_path / "in/a.jsonl", rows)
    kind = {"kind": "marin", "whitespace": whitespace, "max_run": 4}
    tables = [{"name": "a", "paths": ["in/a.jsonl"], "id": "id"}]
    (said,) = build(tmp_path, whole(tmp_path, source=tables, normalise=kind, split=None, dedup=None)).record["sources"]
    assert said["dropped"] == ({"normalise/marin: blank": 1} if blank else {})
    tok = load_tokenizer(str(tmp_path / "tokenizer.json"))
    first = tok.decode(next(iter(tokenreel.open(tmp_path / "out")))[:-1])
    assert len(first) == characters
    # The id is that of the text as it is after normalisation.
    assert explain(tmp_path / "out", "run")[0].id == text_id(first).hex()
