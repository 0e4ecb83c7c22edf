"""Whole builds: the golden corpus byte for byte; the same tree for any number of workers, hash seed and size of chunks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import tokenreel
from tests.build.making import CORPUS, leftovers, run, tokenizer_file, tree, write_jsonl, write_recipe
from tokenreel.build.report import read_log
from tokenreel.build.run import build
from tokenreel.corpus.documents import documents_digests, file_digest
from tokenreel.corpus.manifest import parse_manifest
from tokenreel.corpus.receipts import Complete, RunConfig, Stats, parse_as, parse_receipt, sum_receipts
from tokenreel.errors import UsageError
from tokenreel.hashing import sha256_file, sha256_lines
from tokenreel.text import load_tokenizer

GOLDEN = Path(__file__).parents[1] / "golden" / "mahan"
PARTS = ("part-000000", "part-000001", "part-000002")


def golden_texts(part: str) -> list[str]:
    """Decode both shards of a golden part; how its input mixed the two splits is not known, and does not matter."""
    tok = load_tokenizer(str(GOLDEN / "tokenizer" / "tokenizer.json"))
    found = []
    for split in ("validation", "train"):
        prefix = GOLDEN / "shards" / split / part
        if prefix.with_suffix(".bin").exists():
            corpus = tokenreel.open(prefix)
            found += [tok.decode(document[:-1]) for document in corpus]
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_the_golden_corpus_is_built_byte_for_byte(tmp_path: Path, workers: int) -> None:
    for part in PARTS:
        write_jsonl(tmp_path / "in" / f"{part}.jsonl", golden_texts(part))
    shutil.copy(GOLDEN / "tokenizer" / "tokenizer.json", tmp_path)
    recipe = write_recipe(tmp_path, split={"rule": "hash-mod", "modulo": 1000})
    build(recipe, tmp_path / "out", workers or None, in_process=not workers)
    ours, theirs = tree(tmp_path / "out"), tree(GOLDEN)
    assert {name: ours[name] for name in ours if name.startswith("shards/")} == {
        name: theirs[name] for name in theirs if name.startswith("shards/")
    }
    for part in PARTS:
        mine, golden = (
            parse_receipt((root / "receipts" / f"{part}.json").read_bytes()) for root in (tmp_path / "out", GOLDEN)
        )
        assert mine.splits == golden.splits
    assert (
        json.loads((tmp_path / "out" / "run_config.json").read_bytes())["split_rule"]
        == (json.loads((GOLDEN / "run_config.json").read_bytes())["split_rule"])
    )
    stats = [parse_as(Stats, (root / "stats.json").read_bytes()).by_split for root in (tmp_path / "out", GOLDEN)]
    assert stats[0] == stats[1]


def test_the_mahan_layout_is_exactly_its_files(tmp_path: Path) -> None:
    tokenizer_file(tmp_path)
    write_jsonl(tmp_path / "in" / "a.jsonl", CORPUS)
    write_jsonl(tmp_path / "in" / "b.jsonl", ["Hello world."])
    out = tmp_path / "out"
    status, report = run(write_recipe(tmp_path, split={"rule": "hash-mod"}), out, "--workers", "2")
    assert status == 0
    assert set(tree(out)) == {
        "COMPLETE.json",
        "receipts/part-000000.json",
        "receipts/part-000001.json",
        "run_config.json",
        *(f"shards/train/part-00000{k}.{suffix}" for k in (0, 1) for suffix in ("bin", "idx")),
        "stats.json",
    }
    receipts = [parse_receipt(path.read_bytes()) for path in sorted((out / "receipts").iterdir())]
    complete = parse_as(Complete, (out / "COMPLETE.json").read_bytes())
    assert complete.parts == 2
    assert complete.receipts_sha256 == sha256_lines(
        (f"receipts/part-00000{k}.json", sha256_file(out / "receipts" / f"part-00000{k}.json")) for k in (0, 1)
    )
    assert complete.stats_sha256 == sha256_file(out / "stats.json")
    assert complete.run_config_sha256 == sha256_file(out / "run_config.json") == receipts[0].run_config_sha256
    assert (complete.manifest_sha256, complete.documents_sha256, complete.tokenizer_sha256) == (None, None, None)
    stats = parse_as(Stats, (out / "stats.json").read_bytes())
    assert stats.by_split == sum_receipts(receipts).by_split
    assert report["by_split"]["train"]["documents"] == len(CORPUS) + 1
    assert leftovers(out) == [str(out / "COMPLETE.json")]


def test_nothing_that_complete_names_knows_of_machine_or_time(tmp_path: Path) -> None:
    tokenizer_file(tmp_path)
    write_jsonl(tmp_path / "in" / "a.jsonl", CORPUS)
    recipe = write_recipe(
        tmp_path,
        corpus={"name": "made", "layout": "native"},
        source={"name": "web", "paths": [f"{tmp_path}/in/*"]},
        tokenizer={"path": str(tmp_path / "tokenizer.json"), "eod": "<eod>"},
    )
    build(recipe, tmp_path / "out", in_process=True)
    for name in ("run_config.json", "tokenreel.json", "stats.json", "COMPLETE.json", "receipts/part-000000.json"):
        text = (tmp_path / "out" / name).read_text("utf-8")
        for word in (str(tmp_path), "2026", "seconds", "workers", "pyarrow"):
            assert word not in text, (name, word)


def eleven_inputs(folder: Path) -> None:
    """0 to 3 chunks of 600 bytes each, a duplicate in two files, a document longer than a chunk, five containers."""
    import gzip
    import lzma

    import zstandard

    inside = folder / "in"
    sizes = [0, 1, 3, 9, 30, 2, 5, 12, 0, 7, 20]
    for number, size in enumerate(sizes):
        texts = [f"{CORPUS[k % len(CORPUS)]} number {number}-{k}" for k in range(size)]
        if number in (2, 7):
            texts.insert(1, "a duplicate that stands in two files")
        if number == 4:
            texts.insert(3, "a long document " * 300)
        path = write_jsonl(inside / f"{number:02d}.jsonl", texts)
        data = path.read_bytes()
        if number == 3:
            path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
        elif number == 5:
            path.with_suffix(".jsonl.zst").write_bytes(zstandard.compress(data))
        elif number == 6:
            path.with_suffix(".jsonl.xz").write_bytes(lzma.compress(data))
        elif number == 7:
            ids = [f"07-{k}" for k in range(len(texts))]
            pq.write_table(pa.table({"text": texts, "id": ids}), path.with_suffix(".parquet"), row_group_size=4)
        else:
            continue
        path.unlink()


def eleven_recipe(folder: Path, layout: str, **tables: Any) -> Path:
    tokenizer_file(folder)
    if not (folder / "in").exists():
        eleven_inputs(folder)
    return write_recipe(
        folder,
        corpus={"name": "made", "layout": layout},
        documents={"empty_inputs": "allow"},
        output={"chunk_bytes": 600},
        **tables,
    )


@pytest.mark.parametrize("layout", ["mahan", "native"])
def test_the_same_tree_for_1_2_and_7_workers_and_any_hash_seed(tmp_path: Path, layout: str) -> None:
    recipe = eleven_recipe(tmp_path, layout)
    trees = []
    for workers, seed in (("1", "0"), ("2", "1"), ("7", "4242")):
        out = tmp_path / f"out{workers}"
        status, _ = run(recipe, out, "--workers", workers, env={"PYTHONHASHSEED": seed})
        assert status == 0
        trees.append(tree(out))
    build(recipe, tmp_path / "here", in_process=True, overrides=["output.chunk_bytes=8000000"])
    trees.append(tree(tmp_path / "here"))
    assert trees[0] == trees[1] == trees[2] == trees[3]
    assert sum(name.startswith("receipts/") for name in trees[0]) == 11


def test_a_duplicate_is_kept_and_shares_its_split(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "native")
    build(recipe, tmp_path / "out", in_process=True)
    rows = pq.read_table(tmp_path / "out" / "documents.parquet").to_pylist()
    wanted = xxhash.xxh3_128_digest(b"a duplicate that stands in two files")
    twins = [row for row in rows if row["id"] == wanted]
    assert len(twins) == 2
    assert len({row["split"] for row in twins}) == 1
    assert {row["shard"][-11:] for row in twins} == {"part-000002", "part-000007"}


def test_the_native_layout(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "native")
    out = tmp_path / "out"
    build(recipe, out, in_process=True, built_at="2020-02-02")
    manifest = parse_manifest((out / "tokenreel.json").read_bytes())
    complete = parse_as(Complete, (out / "COMPLETE.json").read_bytes())
    assert manifest.built_at == "2020-02-02"
    assert complete.manifest_sha256 == sha256_file(out / "tokenreel.json")
    assert complete.tokenizer_sha256 == sha256_file(out / "tokenizer" / "tokenizer.json")
    assert (out / "tokenizer" / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    assert not (out / ".documents").exists()
    rows = pq.read_table(out / "documents.parquet").to_pylist()
    digests = documents_digests(out / "documents.parquet")
    assert complete.documents_sha256 == file_digest({name: digest for name, (_, digest) in digests.items()})
    at = 0
    for split in ("train", "validation"):
        corpus = tokenreel.open(out).split(split)
        record = manifest.splits[split]
        assert (len(corpus), corpus.tokens) == (record.documents, record.tokens)
        assert corpus.identity().digest == record.identity
        assert record.statistics == corpus.statistics().as_dict()
        for shard in record.shards:
            single = tokenreel.open(out / shard.name)
            assert shard.max_id == max(int(document.max()) for document in single)
            assert digests[shard.name][0] == shard.documents
        mine = rows[at : at + len(corpus)]
        assert [row["length"] for row in mine] == corpus.lengths(0, len(corpus)).tolist()
        tok = load_tokenizer(str(tmp_path / "tokenizer.json"))
        for number, row in enumerate(mine):
            text = tok.decode(corpus.content(number))
            assert row["id"] == xxhash.xxh3_128_digest(text.encode())
            assert (row["kind"], row["source"], row["split"], row["metadata"]) == ("text", "web", split, None)
            assert row["upstream_id"].split("-")[0] == f"{int(row['shard'][-6:]):02d}"
        at += len(corpus)
    assert at == len(rows)


def test_a_change_in_documents_changes_their_digest(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "native")
    path = tmp_path / "out" / "documents.parquet"
    build(recipe, tmp_path / "out", in_process=True)
    table = pq.read_table(path)
    before = documents_digests(path)
    pq.write_table(table, path, row_group_size=5, compression="none", use_dictionary=False)
    assert documents_digests(path) == before
    for column, value in (("length", 5), ("upstream_id", None), ("source", "x"), ("metadata", "{}"), ("index", 1)):
        values = table.column(column).to_pylist()
        values[3] = value
        at = table.schema.get_field_index(column)
        pq.write_table(
            table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type)), path
        )
        changed = {name for name, digest in documents_digests(path).items() if digest != before[name]}
        assert changed == {table.column("shard")[3].as_py()}


def test_run_config_says_all_that_decides(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "mahan")
    build(recipe, tmp_path / "out", in_process=True)
    config = parse_as(RunConfig, (tmp_path / "out" / "run_config.json").read_bytes())
    assert [one.part for one in config.inputs] == [f"part-{k:06d}" for k in range(11)]
    assert config.inputs[3].path == "in/03.jsonl.gz"
    assert config.inputs[3].sha256 == sha256_file(tmp_path / "in" / "03.jsonl.gz")
    assert config.tokenizer["sha256"] == sha256_file(tmp_path / "tokenizer.json")
    assert (config.tokenizer["eod_id"], config.tokenizer["eod_token"], config.tokenizer["lossless"]) == (
        1,
        "<eod>",
        True,
    )
    assert (config.dtype, config.eod_id, config.layout) == ("uint16", 1, "mahan")
    assert config.sources == ({"name": "web", "text": "text", "id": "id", "source": "web"},)


def test_a_trained_tokenizer_is_saved_and_the_same_every_time(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "mahan", tokenizer={"name": "train:bpe:350"})
    trees = []
    for workers in (0, 2):
        build(recipe, tmp_path / f"out{workers}", workers or None, in_process=not workers)
        trees.append(tree(tmp_path / f"out{workers}"))
    assert trees[0] == trees[1]
    out = tmp_path / "out0"
    complete = parse_as(Complete, (out / "COMPLETE.json").read_bytes())
    assert complete.tokenizer_sha256 == sha256_file(out / "tokenizer" / "tokenizer.json")
    tok = load_tokenizer(str(out / "tokenizer" / "tokenizer.json"))
    assert tok.vocab_size == 350
    # Run again, the saved one is used: nothing is trained, nothing to do.
    assert build(recipe, out, in_process=True).nothing_to_do
    assert tree(out) == trees[0]


def test_bytes_and_plain_text(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("né\n")
    (tmp_path / "in" / "b.txt").write_text("x")
    recipe = write_recipe(
        tmp_path,
        corpus={"layout": "native"},
        tokenizer={"name": "bytes"},
        split={"rule": "none"},
        source={"name": "t", "paths": ["in/*.txt"]},
    )
    build(recipe, tmp_path / "out", 2)
    corpus = tokenreel.open(tmp_path / "out").split("train")
    assert [document.tolist() for document in corpus] == [[110, 195, 169, 10, 256], [120, 256]]
    assert corpus.dtype == np.uint16


@pytest.mark.parametrize(("legacy", "dtype"), [(False, "uint16"), (True, "int32")])
def test_the_legacy_rule_for_dtypes(tmp_path: Path, legacy: bool, dtype: str) -> None:
    config = json.loads(tokenizer_file(tmp_path).read_bytes())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    for number in range(400, 65_510):
        config["model"]["vocab"][f"<unused{number}>"] = number
    config["added_tokens"].append({"id": 65_509, "content": "<unused65509>", **flags})
    (tmp_path / "tokenizer.json").write_text(json.dumps(config))
    write_jsonl(tmp_path / "in" / "a.jsonl", CORPUS)
    recipe = write_recipe(tmp_path, output={"megatron_legacy_dtype": legacy})
    assert build(recipe, tmp_path / "out", in_process=True).dtype == dtype
    assert tokenreel.open(tmp_path / "out").split("train").dtype == np.dtype(dtype)


def test_split_by_id_and_every_nth(tmp_path: Path) -> None:
    tokenizer_file(tmp_path)
    write_jsonl(tmp_path / "in" / "a.jsonl", CORPUS)
    (tmp_path / "held-out.txt").write_text("a-3\na-5\n")
    recipe = write_recipe(tmp_path, split={"rule": "by-id", "file": "held-out.txt"})
    build(recipe, tmp_path / "by-id", 2)
    receipt = parse_receipt((tmp_path / "by-id" / "receipts" / "part-000000.json").read_bytes())
    assert receipt.splits["validation"].documents == 2
    recipe = write_recipe(tmp_path, split={"rule": "every-nth", "n": 3})
    build(recipe, tmp_path / "nth", 2)
    receipt = parse_receipt((tmp_path / "nth" / "receipts" / "part-000000.json").read_bytes())
    assert receipt.splits["validation"].documents == len(CORPUS) // 3


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "mahan")
    report = build(recipe, tmp_path / "out", dry_run=True)
    assert (report.parts, report.built, report.stats) == (11, 0, None)
    assert not (tmp_path / "out").exists()
    assert report.lines()[0].startswith("would build 11 parts")


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "mahan")
    seen: list[tuple[int, int | None, int]] = []
    report = build(recipe, tmp_path / "out", 2, progress=lambda *numbers: seen.append(numbers))
    assert report.stats is not None
    total = sum(path.stat().st_size for path in (tmp_path / "in").iterdir())
    assert seen[-1] == (total, total, sum(counts.total_tokens for counts in report.stats.by_split.values()))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


@pytest.mark.parametrize("workers", [0, -1])
def test_a_number_of_workers_that_cannot_be(tmp_path: Path, workers: int) -> None:
    with pytest.raises(UsageError, match="USE003"):
        build(eleven_recipe(tmp_path, "mahan"), tmp_path / "out", workers)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("date", ["yesterday", "2026-13-01", "30.11.2026"])
def test_a_date_that_is_none(tmp_path: Path, date: str) -> None:
    with pytest.raises(UsageError, match="USE003"):
        build(eleven_recipe(tmp_path, "mahan"), tmp_path / "out", in_process=True, built_at=date)


def test_equal_files_of_a_source_are_all_built(tmp_path: Path) -> None:
    """A hub's cache stores equal files once, under several names."""
    tokenizer_file(tmp_path)
    blob = write_jsonl(tmp_path / "blobs" / "x.jsonl", CORPUS)
    (tmp_path / "in").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "in" / name).symlink_to(blob)
    report = build(write_recipe(tmp_path, split={"rule": "none"}), tmp_path / "out", in_process=True)
    assert (report.parts, report.warnings) == (2, ())
    assert report.stats is not None
    assert sum(counts.documents for counts in report.stats.by_split.values()) == 2 * len(CORPUS)


def test_a_file_in_two_sources_is_a_warning(tmp_path: Path) -> None:
    tokenizer_file(tmp_path)
    write_jsonl(tmp_path / "in" / "a.jsonl", CORPUS)
    recipe = write_recipe(tmp_path, split={"rule": "none"})
    recipe.write_text(recipe.read_text() + '[[source]]\nname = "again"\npaths = ["in/a.jsonl"]\n')
    wanted = "1 file stands in two sources, and so twice in the corpus: in/a.jsonl in again is in/a.jsonl in web"
    assert build(recipe, tmp_path / "out", dry_run=True).warnings == (wanted,)
    report = build(recipe, tmp_path / "out", in_process=True)
    assert report.warnings == (wanted,)
    assert f"warning: {wanted}" in report.lines()
    assert [event["message"] for event in read_log(tmp_path / "out", "warning")] == [wanted]


def test_same_named_inputs_of_absolute_patterns_are_told_apart(tmp_path: Path) -> None:
    near = tmp_path / "near"
    near.mkdir()
    tokenizer_file(near)
    for name in ("one", "two"):
        write_jsonl(tmp_path / name / "x.jsonl", [f"text {name} {k}" for k in range(9)])
    recipe = write_recipe(near, source={"name": "s", "paths": [f"{tmp_path}/one/*", f"{tmp_path}/two/x.jsonl"]})
    build(recipe, tmp_path / "out", in_process=True)
    config = parse_as(RunConfig, (tmp_path / "out" / "run_config.json").read_bytes())
    assert [one.path for one in config.inputs] == ["one/x.jsonl", "two/x.jsonl"]
    assert [one.sha256 for one in config.inputs] == [sha256_file(tmp_path / one.path) for one in config.inputs]


@pytest.mark.parametrize("workers", [None, 2])
def test_ids_that_never_occur_are_counted(tmp_path: Path, workers: int | None) -> None:
    tokenizer_file(tmp_path)
    for name in ("a", "b"):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", CORPUS)
    (tmp_path / "held-out.txt").write_text("a-3\nb-3\na-3o\nb-5\nnowhere\n")
    recipe = write_recipe(tmp_path, split={"rule": "by-id", "file": "held-out.txt"})
    out = tmp_path / "out"
    wanted = "2 of the 5 ids that are validation occur in no document; the first is 'a-3o'"
    assert build(recipe, out, workers, in_process=workers is None).warnings == (wanted,)
    assert wanted in [event["message"] for event in read_log(out, "warning")]
    assert build(recipe, out, in_process=True).warnings == (wanted,)
    # What a part of an earlier run met is known from its log; without it, only a lower bound is.
    (out / "receipts" / "part-000000.json").unlink()
    assert build(recipe, out, in_process=True).warnings == (wanted,)
    (out / "build.log.jsonl").unlink()
    assert build(recipe, out, in_process=True).warnings == (
        "at least 2 of the 5 ids that are validation occur in no document",
    )


def test_a_rule_that_gives_no_validation_document_is_told(tmp_path: Path) -> None:
    tokenizer_file(tmp_path)
    write_jsonl(tmp_path / "in" / "a.jsonl", ["one", "two"])
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"rule": "hash-mod", "modulo": 1 << 60}, ("split rule hash-mod gave no validation document of 2",)),
        ({"rule": "hash-mod", "modulo": 1}, ("split rule hash-mod gave no train document of 2",)),
        ({"rule": "every-nth", "n": 3}, ("split rule every-nth gave no validation document of 2",)),
        ({"rule": "none"}, ()),
    ]
    for number, (split, wanted) in enumerate(cases):
        recipe = write_recipe(tmp_path, split=split)
        assert build(recipe, tmp_path / str(number), in_process=True).warnings == wanted


def lossy_tokenizer(folder: Path) -> None:
    config = json.loads(tokenizer_file(folder).read_bytes())
    config["normalizer"] = {"type": "Lowercase"}
    (folder / "tokenizer.json").write_text(json.dumps(config))


@pytest.mark.parametrize("recheck", [1, 2, 0])
def test_a_tokenizer_that_loses_text_is_told(tmp_path: Path, recheck: int) -> None:
    lossy_tokenizer(tmp_path)
    write_jsonl(tmp_path / "in" / "a.jsonl", ["plain", "text"])
    write_jsonl(tmp_path / "in" / "b.jsonl", ["plain", "", "Then A Capital", "plain"])
    table = {"path": "tokenizer.json", "eod": "<eod>", "recheck": recheck}
    recipe = write_recipe(tmp_path, tokenizer=table, split={"rule": "none"})
    (said,) = build(recipe, tmp_path / "out", in_process=True).warnings
    why = "(it normalises text (Lowercase))"
    if recheck == 0:
        assert said == f"tokenizer.json may lose text {why[1:-1].join('()')}, and no document was re-checked"
        return
    checked = 6 if recheck == 1 else 3
    assert said == (
        f"1 of {checked} re-checked documents do not decode to their text {why}; first in in/b.jsonl line 3 document 2, "
        "from character 0 on: 'Then A Capital' became 'then a capital'"
    )
    assert said in [event["message"] for event in read_log(tmp_path / "out", "warning")]


def test_a_tokenizer_that_may_lose_text_and_did_not(tmp_path: Path) -> None:
    lossy_tokenizer(tmp_path)
    write_jsonl(tmp_path / "in" / "a.jsonl", ["plain"])
    recipe = write_recipe(tmp_path, split={"rule": "none"})
    assert build(recipe, tmp_path / "out", in_process=True).warnings == ()
