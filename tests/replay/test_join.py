"""From an index back to its text, and on to token streams whose identity is that of the original."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

import tokenreel
from tests.cli.command import run
from tests.replay.made import Made, expected_ids, make
from tokenreel.build.id_spill import IdSpill
from tokenreel.replay import join as join_module
from tokenreel.replay import metadata
from tokenreel.replay.buckets import bucket_name, bucket_named
from tokenreel.replay.files import read_batches, rows_of
from tokenreel.replay.join import Joined, JoinPlan, join
from tokenreel.store import LocalStore
from tokenreel.testing.hub_server import HubServer, Repository


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("join"))


def joined(made: Made, out: Path | None, plan: JoinPlan) -> Joined:
    store = LocalStore(made.index)
    return join(store, metadata.read_manifest(store), metadata.read_sources(store), plan, out)


def test_index_holds_the_documents_in_order(made: Made) -> None:
    store = LocalStore(made.index)
    manifest = metadata.read_manifest(store)
    rows = [row for file in manifest.files for batch in read_batches(store, file.path) for row in batch.to_pylist()]
    assert [row["document_id"] for row in rows] == expected_ids(made)
    assert [(row["source_id"], row["bucket_id"]) for row in rows] == [
        (source, bucket) for source, _, bucket in made.rows
    ]
    assert rows_of(next(read_batches(store, manifest.files[0].path)), "x").ids.dtype == np.uint64


def test_every_document_is_found_and_stands_in_order(made: Made, tmp_path: Path) -> None:
    ran = run("replay", "join", made.index, "--source-root", made.upstream, "--out", tmp_path, "--json")
    assert ran.status == 0, ran.err
    assert ran.json["complete"]
    found = [row for name in ran.json["files"] for row in parquet.read_table(tmp_path / name).to_pylist()]
    assert [row["text"] for row in found] == [text for _, text, _ in made.rows]
    assert [row["bucket_id"] for row in found] == [bucket for _, _, bucket in made.rows]
    for name, row in ran.json["sources"].items():
        mine = [text for source, text, _ in made.rows if source == name]
        assert row["wanted"] == len(mine) == row["hits"]
        assert row["texts"] == len(mine) + 1
        assert row["extra"] == 1
        assert row["repeated"] == len(mine) - len(set(mine))
        assert row["missing"] == row["elsewhere"] == 0


def test_what_is_missing_is_told_from_what_cannot_be_read(made: Made, tmp_path: Path) -> None:
    partial = tmp_path / "upstream"
    (partial / "org/web/data").mkdir(parents=True)
    whole = (made.upstream / "org/web/data/a.jsonl").read_text().splitlines()
    (partial / "org/web/data/a.jsonl").write_text("\n".join(whole[:5]))
    store = LocalStore(made.index)
    table = json.loads((made.index / "sources.json").read_text())
    for source in table["sources"]:
        if source["source_id"] == "code":
            source["transform_module"] = "their.module"
    sources = metadata.parse_sources(table)
    found = join(store, metadata.read_manifest(store), sources, JoinPlan(root=partial), None)
    states = {name: counts.state for name, counts in found.by_source.items()}
    assert states == {"web": "read", "code": "not joinable here", "books": "not here"}
    assert found.by_source["web"].missing > 0
    assert found.by_source["code"].missing == found.by_source["books"].missing == 0
    assert not found.complete


def test_from_a_hub_with_terms(made: Made, tmp_path: Path) -> None:
    repositories = {}
    for source in ("web", "code", "books"):
        root = made.upstream / f"org/{source}"
        files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        repositories[f"org/{source}"] = Repository(files, gated=source == "books")
    with HubServer(repositories, drops=3) as hub:
        ran = run("replay", "join", made.index, "--online", "--json", env={"HF_ENDPOINT": hub.url, "HF_TOKEN": ""})
    assert ran.status == 4, ran.err
    states = {name: row["state"] for name, row in ran.json["sources"].items()}
    assert states == {"web": "read", "code": "read", "books": "needs terms"}
    assert ran.json["sources"]["web"]["hits"] == ran.json["sources"]["web"]["wanted"]


def test_a_transform_in_a_checkout(made: Made, tmp_path: Path) -> None:
    checkout = tmp_path / "theirs"
    (checkout / "pack").mkdir(parents=True)
    (checkout / "pack/mod.py").write_text(
        "def replay(record):\n    print('noise')\n    if 'bad' in record: raise ValueError('no')\n    return record['text']\n"
    )
    git = ["git", "-C", str(checkout), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git[:3], "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    table = json.loads((made.index / "sources.json").read_text())
    for source in table["sources"]:
        source.update(transform_module="pack.mod", replay_entrypoint="pack.mod:replay")
    index = tmp_path / "index"
    index.mkdir()
    for path in made.index.rglob("*"):
        if path.is_file():
            target = index / path.relative_to(made.index)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    (index / "sources.json").write_text(json.dumps(table))
    common = ("replay", "join", index, "--source-root", made.upstream, "--transforms", checkout, "--json")
    ran = run(*common, "--commit", commit)
    assert ran.status == 0, ran.err
    other = run(*common, "--commit", "0" * 40)
    assert other.status == 1
    assert other.json["error"]["code"] == "RPL032"


def test_streams_have_the_identity_of_the_original(made: Made, tmp_path: Path) -> None:
    assert run("replay", "join", made.index, "--source-root", made.upstream, "--out", tmp_path / "found").status == 0
    ran = run(
        "replay", "streams", tmp_path / "found", "--index", made.index, "--out", tmp_path / "streams",
        "--tokenizer", "bytes", "--eos", "<|endoftext|>", "--json",
    )  # fmt: skip
    assert ran.status == 0, ran.err
    assert ran.json["documents"] == len(made.rows)
    for stream in ran.json["buckets"]:
        texts = [text for _, text, bucket in made.rows if bucket == stream["bucket"]]
        corpus = tokenreel.open(tmp_path / "streams" / stream["name"], boundary="suffix=256")
        assert [bytes(corpus.content(k).tolist()).decode() for k in range(len(corpus))] == texts
        assert corpus.tokens == stream["tokens"] == sum(len(text.encode()) + 1 for text in texts)
    mixed = run("mix", tmp_path / "streams/run.toml", "--json")
    assert mixed.status == 0, mixed.err


def test_a_mixture_of_phases_becomes_levanters_order(made: Made, tmp_path: Path) -> None:
    index = tmp_path / "index"
    for path in made.index.rglob("*"):
        if path.is_file():
            target = index / path.relative_to(made.index)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    sizes = dict.fromkeys(range(200), 0)
    for _, text, bucket in made.rows:
        sizes[bucket] += len(text) + 1
    chosen = sorted(sizes, key=lambda bucket: -sizes[bucket])[:6]
    names = [bucket_name(bucket) for bucket in sorted(chosen)]
    weights = {name: 1.0 + k for k, name in enumerate(names[:4])} | {"tail": 2.0}
    mix = {
        "sequence_length": 8,
        "block": 64,
        "batch_schedule": [[0, 4], [10, 8]],
        "phases": [{"update": 0, "weights": weights}, {"update": 13, "weights": weights | {names[0]: 9.0}}],
        "tail": [bucket_named(name) for name in names[4:]],
        "tokens": {"eos": "id"},
    }
    (index / "mix.json").write_text(json.dumps(mix))
    sources = json.loads((index / "sources.json").read_text())
    for source in sources["sources"]:
        source["approximate"] = source["source_id"] == "web"
    (index / "sources.json").write_text(json.dumps(sources))
    assert run("replay", "join", index, "--source-root", made.upstream, "--out", tmp_path / "found").status == 0
    ran = run(
        "replay", "streams", tmp_path / "found", "--index", index, "--out", tmp_path / "streams", "--tokenizer", "bytes",
        "--eos", "<|endoftext|>",
    )  # fmt: skip
    assert ran.status == 0, ran.err
    shown = run("trace", tmp_path / "streams/run.toml", "--step", 11, "--json")
    assert shown.status == 0, shown.err
    facts = shown.json
    assert (facts["first_sample"], facts["end_sample"]) == (48, 56)
    used = {extent["corpus"] for row in facts["samples"] for extent in row["extents"]}
    assert used <= set(names)
    doubtful = {bucket_name(bucket) for source, _, bucket in made.rows if source == "web"}
    assert (facts["level"] == "approximate") == bool(used & doubtful)


def test_sources_at_addresses(made: Made, tmp_path: Path) -> None:
    """A source without a repository is read from its addresses; one of them asks for terms."""
    files = {path.relative_to(made.upstream).as_posix(): path.read_bytes() for path in made.upstream.rglob("*.*")}
    with HubServer({"me/web": files, "me/books": Repository(files, gated=True)}) as hub:
        table = json.loads((made.index / "sources.json").read_text())
        for source in table["sources"]:
            name = source["source_id"]
            where = "me/books" if name == "books" else "me/web"
            base = f"{hub.url}/datasets/{where}/resolve/main/org/{name}/data"
            source.pop("repository")
            source["urls"] = [f"{base}/a.jsonl", f"{base}/b.parquet"]
        store = LocalStore(made.index)
        sources = metadata.parse_sources(table)
        found = join(store, metadata.read_manifest(store), sources, JoinPlan(online=True), None)
    states = {name: counts.state for name, counts in found.by_source.items()}
    assert states == {"web": "read", "code": "read", "books": "needs terms"}
    assert found.by_source["code"].hits == found.by_source["code"].wanted
    assert found.by_source["books"].missing == 0


def test_row_groups_are_cut_by_bytes(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenreel.replay import emit, text_spill

    monkeypatch.setattr(emit, "GROUP_BYTES", 300)
    monkeypatch.setattr(emit, "WAITING", 7)
    monkeypatch.setattr(text_spill, "BUFFER_BYTES", 500)
    found = joined(made, tmp_path, JoinPlan(root=made.upstream, threads=1))
    read = [row for name in found.files for row in parquet.read_table(tmp_path / name).to_pylist()]
    assert [(row["text"], row["bucket_id"], row["source_id"]) for row in read] == [
        (text, bucket, source) for source, text, bucket in made.rows
    ]
    assert parquet.ParquetFile(tmp_path / found.files[0]).num_row_groups > 3


def test_rows_that_are_not_as_many_as_the_manifest_says_are_not_joined(made: Made, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shutil.copytree(made.index, index)
    said = json.loads((index / "manifest.json").read_text())
    said["files"][0]["documents"] -= 1
    said["files"][1]["documents"] += 1
    (index / "manifest.json").write_text(json.dumps(said))
    ran = run("replay", "join", index, "--source-root", made.upstream, "--out", tmp_path / "out", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (1, "RPL026")
    assert not (tmp_path / "out").exists()


def test_a_small_index_of_much_text_is_matched_in_many_parts(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    largest = partial(_largest, plain=join_module._matched, sizes=sizes)
    monkeypatch.setattr(join_module, "_matched", largest)
    joined(made, None, JoinPlan(root=made.upstream))
    assert max(sizes) < sum(sizes) / 10


def _largest(rows: IdSpill, texts: IdSpill, number: int, *, plain: Any, sizes: list[int]) -> Any:
    sizes.append(len(texts.part(number)))
    return plain(rows, texts, number)


def test_texts_cannot_wait_in_a_file(made: Made, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    ran = run("replay", "join", made.index, "--source-root", made.upstream, "--temporary", tmp_path / "file", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (3, "STO003")
