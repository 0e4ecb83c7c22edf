"""Data sets of a hub as sources: over real http, at one commit, no further than they are read, and by name when they fail."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.build import hub_source_bytes
from tokenreel.build.hub_pinning import pin_sources
from tokenreel.build.hub_source import open_hub
from tokenreel.build.hub_source_files import commit_of, matches
from tokenreel.build.staging_run import StagedSource, stage_all
from tokenreel.build.staging_settings import settle_mixed
from tokenreel.build.text_batches import Place, Source, SourceInput, open_source
from tokenreel.config.mixed import MixedSourceTable, parse_mixed
from tokenreel.errors import RecipeError, SourceError, StorageError, TokenreelError
from tokenreel.store import http
from tokenreel.testing.hub_server import HubServer, Repository


def lines(*texts: str) -> bytes:
    return b"".join(json.dumps({"text": text, "id": f"n{k}", "q": k}).encode() + b"\n" for k, text in enumerate(texts))


def parquet(*texts: str) -> bytes:
    table = pa.table({"text": list(texts), "id": [f"n{k}" for k in range(len(texts))], "q": list(range(len(texts)))})
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


FILES = {
    "data/a.jsonl": lines("one", "two", "three"),
    "data/b.jsonl.gz": gzip.compress(lines("four"), mtime=0),
    "data/c.parquet": parquet("five", "six"),
    "README.md": b"# about\n",
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the local cache an empty folder, and waits short."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(http, "WAIT_SECONDS", 0.0)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer({"me/web": Repository(dict(FILES))}, page=2) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def table(**more: Any) -> MixedSourceTable:
    return MixedSourceTable(**{"name": "web", "kind": "hub", "repo": "me/web", "paths": ["data/*"], "id": "id", **more})


def place(folder: Path) -> Place:
    return Place(folder=str(folder), cache=str(folder / "pulled"))


def texts_of(source: Source, one: SourceInput, start: int = 0) -> list[str]:
    return [text for batch in source.read(one, start) for text in batch.texts.to_pylist()]


def file_requests(hub: HubServer) -> list[str]:
    return sorted(path.partition("/resolve/")[2].partition("/")[2] for path in hub.requests if "/resolve/" in path)


def cache(folder: Path, commit: str, *names: str, ref: str | None = None) -> Path:
    """Put files into the local cache as the hub's own client does: large files by their SHA-256, linked from a snapshot."""
    root = folder / "cache" / "datasets--me--web"
    for name in names:
        blob = root / "blobs" / hashlib.sha256(FILES[name]).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(FILES[name])
        link = root / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    if ref is not None:
        (root / "refs").mkdir(parents=True, exist_ok=True)
        (root / "refs" / ref).write_text(commit)
    return root


def test_every_file_of_a_pattern_is_read_at_the_commit_it_was_then(hub: HubServer, tmp_path: Path) -> None:
    source = open_source(table(metadata=["q"]), place(tmp_path), ("q",))
    commit = hub.repository("me/web").commit
    inputs = source.inputs()
    assert [one.path for one in inputs] == [
        f"hf://datasets/me/web@{commit}/data/{n}" for n in ("a.jsonl", "b.jsonl.gz", "c.parquet")
    ]
    hub.repository("me/web").revisions = ()  # the branch is gone; the commit is not
    found = []
    for one in inputs:
        for batch in source.read(one):
            found += list(zip(batch.texts.to_pylist(), batch.upstream or [], batch.columns["q"], strict=True))
            assert batch.metadata == [{"q": value} for value in batch.columns["q"]]
        facts = source.facts(one)
        data = FILES[one.path.partition(commit + "/")[2]]
        assert (facts.bytes, facts.sha256, facts.whole) == (len(data), hashlib.sha256(data).hexdigest(), True)
        assert facts.position["revision"] == commit
    assert found == [("one", "n0", 0), ("two", "n1", 1), ("three", "n2", 2), ("four", "n0", 0), ("five", "n0", 0), ("six", "n1", 1)]  # fmt: skip
    assert list((tmp_path / "pulled").iterdir()) == []


def test_a_reader_that_is_closed_pulls_no_further(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lines(*(f"document {k}" for k in range(400)))
    hub.repository("me/web").files = {"data/a.jsonl": data, "data/c.parquet": parquet("five", "six")}
    monkeypatch.setattr(hub_source_bytes, "PULL_BYTES", 1000)
    source = open_hub(table(), msgspec.structs.replace(place(tmp_path), chunk_bytes=500), ())
    text, whole = source.inputs()
    batches = source.read(text)
    first = next(batches)
    batches.close()  # type: ignore[attr-defined]
    facts = source.facts(text)
    assert first.texts[0].as_py() == "document 0"
    assert (facts.bytes, facts.position["byte"], facts.whole) == (1000, 1000, False)
    assert facts.sha256 == hashlib.sha256(data).hexdigest()  # as the hub publishes it
    batches = source.read(whole)
    next(batches)
    assert [path.name.endswith(".tokenreel-tmp") for path in (tmp_path / "pulled").iterdir()] == [True]
    batches.close()  # type: ignore[attr-defined]
    assert list((tmp_path / "pulled").iterdir()) == []
    assert source.facts(whole).whole is False


@pytest.mark.parametrize("number", [0, 1, 2])
def test_reading_goes_on_where_it_was(hub: HubServer, tmp_path: Path, number: int) -> None:
    source = open_hub(table(), place(tmp_path), ())
    one = source.inputs()[number]
    whole = texts_of(source, one)
    for start in range(len(whole) + 2):
        assert texts_of(source, one, start) == whole[start:]
    assert hub.requests


def test_dropped_connections_and_a_busy_hub_are_tried_again(hub: HubServer, tmp_path: Path) -> None:
    source = open_hub(table(), place(tmp_path), ())
    hub.busy = 2
    inputs = source.inputs()
    for one in inputs:
        hub.drops, hub.busy = 2, 1
        assert texts_of(source, one)
        assert hub.drops == hub.busy == 0
        assert source.facts(one).whole


def refused(one: SourceInput, source: Source) -> TokenreelError:
    with pytest.raises(TokenreelError) as caught:
        texts_of(source, one)
    said = str(caught.value)
    assert "'web'" in said
    assert one.path in said
    return caught.value


@pytest.mark.parametrize("number", [0, 2])
def test_what_fails_names_source_and_file(hub: HubServer, tmp_path: Path, number: int) -> None:
    source = open_hub(table(), place(tmp_path), ())
    one = source.inputs()[number]
    hub.repository("me/web").gated = True
    error = refused(one, source)
    assert (error.code, error.exit_status) == ("SRC050", 3)
    hub.repository("me/web").gated = False
    hub.drops = 99
    assert refused(one, source).code == "STO002"
    hub.drops = 0
    hub.repository("me/web").files.pop(one.key.partition("/")[2])  # and with it, here, the commit
    assert refused(one, source).code == "SRC051"
    assert not list((tmp_path / "pulled").glob("*"))


def test_repositories_that_are_not_there_or_not_open(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"SRC051.*me/none@main.*'web'"):
        open_hub(table(repo="me/none"), place(tmp_path), ()).inputs()
    with pytest.raises(StorageError, match=r"SRC051.*@v2"):
        open_hub(table(revision="v2"), place(tmp_path), ()).inputs()
    with pytest.raises(SourceError, match=r"SRC014.*data/\*\.txt"):
        open_hub(table(paths=["data/*.txt", "data/*"]), place(tmp_path), ()).inputs()
    with pytest.raises(RecipeError, match=r"RCP006.*paths"):
        open_hub(table(paths=[]), place(tmp_path), ()).inputs()
    hub.repository("me/web").private = True
    with pytest.raises(StorageError, match="SRC050"):
        open_hub(table(), place(tmp_path), ()).inputs()


def test_a_token_opens_what_is_gated(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repository("me/web").gated = True
    monkeypatch.setenv("HF_TOKEN", "hf_made_up")
    source = open_hub(table(), place(tmp_path), ())
    assert texts_of(source, source.inputs()[0]) == ["one", "two", "three"]


@pytest.mark.parametrize("number", [0, 2])
def test_bytes_that_the_hub_does_not_publish_are_refused(hub: HubServer, tmp_path: Path, number: int) -> None:
    source = open_hub(table(), place(tmp_path), ())
    one = msgspec.structs.replace(source.inputs()[number], sha256="0" * 64)
    error = refused(one, source)
    assert (error.code, error.expected) == ("SRC052", f"SHA-256 {'0' * 64}")
    assert hub.requests


def test_errors_of_records_name_the_file_not_the_temporary(hub: HubServer, tmp_path: Path) -> None:
    hub.repository("me/web").files = {"data/c.parquet": b"PAR1 no parquet PAR1", "data/a.jsonl": b"{}\n"}
    source = open_hub(table(), place(tmp_path), ())
    for one, code in zip(source.inputs(), ("SRC005", "SRC013"), strict=True):
        with pytest.raises(SourceError, match=code) as caught:
            texts_of(source, one)
        assert caught.value.where["path"] == one.path


def test_files_in_the_local_cache_are_not_pulled(hub: HubServer, tmp_path: Path) -> None:
    commit = hub.repository("me/web").commit
    cache(tmp_path, commit, "data/a.jsonl", "data/c.parquet")
    source = open_hub(table(), place(tmp_path), ())
    pulled = {one.path: texts_of(source, one) for one in source.inputs()}
    assert list(pulled.values()) == [["one", "two", "three"], ["four"], ["five", "six"]]
    assert file_requests(hub) == ["data/b.jsonl.gz"]


def test_a_cached_file_that_was_changed_is_refused(hub: HubServer, tmp_path: Path) -> None:
    root = cache(tmp_path, hub.repository("me/web").commit, "data/a.jsonl")
    blob = next((root / "blobs").iterdir())
    blob.write_bytes(FILES["data/a.jsonl"].replace(b"two", b"TWO"))
    source = open_hub(table(paths=["data/a.jsonl"]), place(tmp_path), ())
    assert refused(source.inputs()[0], source).code == "SRC052"


def test_a_commit_whose_files_are_all_cached_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "c" * 40
    cache(tmp_path, commit, "data/a.jsonl", "data/c.parquet", ref="main")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    named = table(revision=commit, paths=["data/c.parquet", "data/a.jsonl"])
    source = open_hub(named, place(tmp_path), ())
    assert [texts_of(source, one) for one in source.inputs()] == [["one", "two", "three"], ["five", "six"]]
    # A branch is what the cache says only where the hub must not be asked; a pattern never is.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert commit_of(msgspec.structs.replace(named, revision=None)) == commit
    assert [one.key for one in open_hub(msgspec.structs.replace(named, revision="main"), place(tmp_path), ()).inputs()]
    for bad in ({"paths": ["data/*"]}, {"paths": ["data/b.jsonl.gz"]}, {"revision": "v2"}):
        with pytest.raises(StorageError, match="SRC053"):
            open_hub(msgspec.structs.replace(named, **bad), place(tmp_path), ()).inputs()


# -- through staging ----------------------------------------------------------------------------------------------


def staged(folder: Path, workers: int = 0, **more: Any) -> StagedSource:
    source = {"name": "web", "kind": "hub", "repo": "me/web", "paths": ["data/*"], **more}
    recipe = parse_mixed({"tokenizer": {"name": "bytes"}, "source": [source]})
    return stage_all(recipe, folder, folder / "stage", settle_mixed(recipe, folder), workers=workers)[0]


def test_files_behind_the_budget_and_finished_files_are_not_pulled(hub: HubServer, tmp_path: Path) -> None:
    # one, two and their boundaries are 8 tokens.
    found = staged(tmp_path, budget=8)
    assert (found.totals.docs_seen, found.totals.tokens_staged, found.totals.complete) == (2, 8, True)
    assert len(found.inputs) == 3
    assert file_requests(hub) == ["data/a.jsonl"]
    hub.requests.clear()
    assert staged(tmp_path, budget=8).built == 0
    assert file_requests(hub) == []
    assert [part.receipt.input.position["file"] for part in found.parts] == ["data/a.jsonl"]


def test_a_build_that_lost_its_hub_goes_on_with_the_files_it_lacks(hub: HubServer, tmp_path: Path) -> None:
    def die(handler: Any, *, body: bool) -> None:
        if handler.path.endswith("c.parquet"):
            hub._send(handler, 404, b"", {}, body=body)
        else:
            HubServer.answer(hub, handler, body=body)

    hub.answer = die  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="SRC051") as caught:
        staged(tmp_path)
    assert "'web'" in str(caught.value)
    assert "data/c.parquet" in str(caught.value)
    del hub.answer
    hub.requests.clear()
    found = staged(tmp_path, workers=1)
    assert (found.built, found.totals.docs_seen, found.totals.complete) == (1, 6, True)
    assert file_requests(hub) == ["data/c.parquet"]
    assert not list((tmp_path / "stage").rglob("*.tokenreel-tmp"))
    shutil.rmtree(tmp_path / "stage")
    again = staged(tmp_path)
    assert [part.receipt for part in again.parts] == [part.receipt for part in found.parts]


def test_a_moving_revision_is_resolved_once_for_a_build(hub: HubServer, tmp_path: Path) -> None:
    before = hub.repository("me/web").commit
    found = staged(tmp_path, budget=3)
    assert found.table.revision == before
    # The branch moves on; the commit stays. The build that goes on is of the commit.
    hub.repository("me/web").files["data/0.jsonl"] = lines("later")
    hub.repository("me/web").revisions = ("main", before)
    again = staged(tmp_path, budget=14)
    assert again.table.revision == before != hub.repository("me/web").commit
    assert all(f"@{before}/" in part.path for part in again.parts)
    other = parse_mixed(
        {
            "tokenizer": {"name": "bytes"},
            "source": [{"name": "web", "kind": "hub", "repo": "me/web", "paths": ["data/*"], "revision": before[:7]}],
        }
    )
    with pytest.raises(StorageError, match="SRC051"):
        pin_sources(other, tmp_path / "stage")
    fixed = msgspec.structs.replace(other, source=[table(revision=before), MixedSourceTable(name="f", paths=["x"])])
    assert pin_sources(fixed, tmp_path / "nowhere") == fixed
    assert not (tmp_path / "nowhere").exists()


NAMES = st.lists(st.sampled_from(["a", "b.x", "data", ".h"]), min_size=1, max_size=4)


@given(path=NAMES)
def test_patterns_are_those_of_files(path: list[str]) -> None:
    whole = "/".join(path)
    hidden = any(part.startswith(".") for part in path)
    assert matches(whole, whole)
    assert matches("**", whole) is not hidden
    assert matches("**/" + path[-1], whole) is not any(part.startswith(".") for part in path[:-1])
    assert matches("/".join("*" * len(path)), whole) is not hidden
    assert not matches("/".join("*" * (len(path) + 1)), whole)
