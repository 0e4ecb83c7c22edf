"""Files of repositories as documents: put together wherever their records stand, in the order of classes and paths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.build.repositories import SourceFile, document_of, in_order, is_majority
from tokenreel.build.repository_source import RepositorySource
from tokenreel.build.staging_run import StagedSource, stage_all
from tokenreel.build.staging_settings import settle_mixed
from tokenreel.build.text_batches import Place, TextBatch, open_source
from tokenreel.config.mixed import GroupTable, MixedSourceTable, parse_mixed
from tokenreel.errors import RecipeError, SourceError
from tokenreel.testing.hub_server import HubServer

Record = dict[str, Any]


def record(repo: str, path: str, text: str, language: str = "Python", **more: Any) -> Record:
    return {"text": text, "repo": repo, "path": path, "language": language, **more}


RECORDS = [
    record("me/one", "pkg/core.py", "core", licence="mit"),
    record("you/two", "main.c", "int main", "C", licence="mit"),
    record("me/one", "tests/test_core.py", "test", licence="mit"),
    record("me/one", "setup.py", "setup", licence="mit"),
    record("me/one", "README.md", "read", "Markdown", licence="mit"),
    record("you/two", "a.py", "a"),
    record("they/three", "LICENCE", "words", "Python"),
    record("me/one", "pkg/__init__.py", "init", licence="bsd"),
    record("we/four", "z.py", "é", licence="mit"),
]


def jsonl(path: Path, records: Sequence[Record] = RECORDS) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    return path


def table(**more: Any) -> MixedSourceTable:
    group = {"by": "repo", **more.pop("group", {})}
    return MixedSourceTable(name="code", group=GroupTable(**group), **{"paths": ["in.*"], **more})


def opened(folder: Path, chunk_bytes: int = 1 << 20, columns: Sequence[str] = (), **more: Any) -> RepositorySource:
    place = Place(folder=str(folder), chunk_bytes=chunk_bytes, cache=str(folder / "stage"))
    source = open_source(table(**more), place, columns)
    assert isinstance(source, RepositorySource)
    return source


def batches(source: RepositorySource, start: int = 0) -> list[TextBatch]:
    (one,) = source.inputs()
    return list(source.read(one, start))


def documents(found: list[TextBatch]) -> list[tuple[int, str | None, str]]:
    rows: list[tuple[int, str | None, str]] = []
    for batch in found:
        assert batch.numbers is not None
        assert batch.upstream is not None
        assert batch.groups == batch.upstream
        rows += zip(batch.numbers.tolist(), batch.upstream, batch.texts.to_pylist(), strict=True)
    return rows


def test_one_document_a_repository(tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl")
    source = opened(tmp_path, columns=("licence",), metadata=["licence"])
    found = batches(source)
    assert documents(found) == [(0, "me/one", "setup\ninit\ncore\ntest"), (3, "we/four", "é")]
    (batch,) = found
    assert [(one.record, one.stage, one.rule, one.value, one.upstream) for one in batch.dropped] == [
        (1, "group", "no majority of Python", "1 of 9 bytes", "you/two"),
        (2, "group", "no file of a class", "0 of 1 files", "they/three"),
    ]
    assert batch.metadata is not None
    assert batch.metadata[0] == {
        "files": 4,
        "files_left_out": 1,
        "repository_bytes": 21,
        "language_bytes": 17,
        "licence": ["mit", "bsd"],
    }
    # A gate sees what the files agree on.
    assert batch.columns == {"licence": [None, "mit"]}
    assert source.facts(source.inputs()[0]).whole


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("chunk_bytes", [1, 12, 1 << 20])
def test_batches_and_where_reading_begins_change_nothing(tmp_path: Path, kind: str, chunk_bytes: int) -> None:
    if kind == "jsonl":
        jsonl(tmp_path / "in.jsonl")
    else:
        pq.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "in.parquet", row_group_size=2)
    source = opened(tmp_path, chunk_bytes)
    for start in range(6):
        found = batches(source, start)
        assert documents(found) == [row for row in documents(batches(opened(tmp_path))) if row[0] >= start]
        assert [one.record for batch in found for one in batch.dropped] == [k for k in (1, 2) if k >= start]
    assert source.facts(source.inputs()[0]).whole


FILES = st.tuples(
    st.sampled_from(["r1", "r2", "r3"]),
    st.sampled_from(["a.py", "b/__init__.py", "setup.py", "tests/c.py", "x.md", "a_test.py"]),
    st.sampled_from(["Python", "C"]),
    st.text(st.characters(codec="utf-8"), max_size=4),
)


@given(rows=st.lists(FILES, min_size=1, max_size=14), chunk=st.integers(1, 200))
def test_documents_are_those_of_the_pure_functions(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str, str]], chunk: int
) -> None:
    folder = tmp_path_factory.mktemp("code")
    jsonl(folder / "in.jsonl", [record(repo, path, text, language) for repo, path, language, text in rows])
    wanted, gone = [], []
    for number, repo in enumerate(dict.fromkeys(row[0] for row in rows)):
        files = [SourceFile(path, language, text) for name, path, language, text in rows if name == repo]
        ordered = in_order(files)
        if is_majority(files) and ordered:
            wanted.append((number, repo, document_of(ordered)))
        else:
            gone.append(number)
    found = batches(opened(folder, chunk))
    assert documents(found) == wanted
    assert [one.record for batch in found for one in batch.dropped] == gone


def test_choices_of_the_recipe(tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl")
    chosen = {"separator": "--", "headers": True, "majority": 0.0}
    assert documents(batches(opened(tmp_path, group=chosen)))[:2] == [
        (0, "me/one", "# setup.py\nsetup--# pkg/__init__.py\ninit--# pkg/core.py\ncore--# tests/test_core.py\ntest"),
        (1, "you/two", "# a.py\na"),
    ]
    other = {"language": "C", "suffix": ".c"}
    assert documents(batches(opened(tmp_path, group=other))) == [(1, "you/two", "int main")]


def test_texts_wait_where_nothing_is_left_behind(tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl")
    source = opened(tmp_path, 1)
    (one,) = source.inputs()
    reading = source.read(one)
    next(reading)
    assert list((tmp_path / "stage").iterdir()) == []
    reading.close()  # type: ignore[attr-defined]
    assert source.facts(one).whole is False


@pytest.mark.parametrize("bad", [{"repo": None}, {"path": 7}, {"repo": ""}])
def test_a_file_without_repository_or_path_is_named(tmp_path: Path, bad: Record) -> None:
    jsonl(tmp_path / "in.jsonl", [*RECORDS, {**RECORDS[0], **bad}])
    with pytest.raises(SourceError, match=r"SRC006|in\.jsonl.*line 10.*'code'") as caught:
        batches(opened(tmp_path))
    assert (caught.value.code, caught.value.where["line"], caught.value.where["document"]) == ("SRC006", 10, 9)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    texts = pa.array([b"fine", b"\xff"], pa.binary()).view(pa.string())
    rest = {name: ["r", "r"] for name in ("repo", "language")}
    pq.write_table(pa.table({"text": texts, "path": ["a.py", "b.py"], **rest}), tmp_path / "in.parquet")
    with pytest.raises(SourceError, match=r"SRC001.*document 1"):
        batches(opened(tmp_path))


def test_fields_of_files_are_not_those_of_repositories(tmp_path: Path) -> None:
    for name in ("url", "id"):
        with pytest.raises(RecipeError, match=r"RCP006.*'repo'"):
            opened(tmp_path, **{name: "blob"})  # type: ignore[arg-type]
    opened(tmp_path, id="repo")
    (tmp_path / "in.txt").write_text("plain")
    with pytest.raises(RecipeError, match=r"RCP006.*no fields"):
        opened(tmp_path).inputs()


def test_repositories_of_a_hub_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = jsonl(tmp_path / "x.jsonl").read_bytes()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with HubServer({"me/code": {"data/a.jsonl": data}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        source = opened(tmp_path, kind="hub", repo="me/code", paths=["data/*"])
        found = documents(batches(source))
        assert [name for _, name, _ in found] == ["me/one", "we/four"]
        assert source.facts(source.inputs()[0]).position["file"] == "data/a.jsonl"


def staged(folder: Path, workers: int = 0, **more: Any) -> StagedSource:
    source = {"name": "code", "paths": ["in.jsonl"], "group": {"by": "repo"}, **more}
    recipe = parse_mixed({"tokenizer": {"name": "bytes"}, "source": [source]})
    return stage_all(recipe, folder, folder / "stage", settle_mixed(recipe, folder), workers=workers)[0]


def test_through_staging_every_repository_is_kept_or_dropped_for_a_reason(tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl")
    found = staged(tmp_path, max_doc_tokens=10, min_tokens=2)
    assert (found.totals.docs_seen, found.totals.kept, found.totals.capped) == (4, 2, 1)
    assert found.totals.dropped == {"group/no file of a class": 1, "group/no majority of Python": 1}
    (part,) = found.parts
    with pa.ipc.open_file(part.folder / part.receipt.data.path) as file:
        rows = file.read_all()
    assert rows.column("group").to_pylist() == ["me/one", "we/four"]
    assert rows.column("full_tokens").to_pylist() == [20, 2]
    few = staged(tmp_path, budget=3)
    assert (few.totals.docs_seen, few.totals.tokens_staged, few.totals.complete) == (1, 21, True)
    assert staged(tmp_path, budget=3).built == 0
