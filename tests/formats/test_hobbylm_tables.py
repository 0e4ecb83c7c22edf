"""HobbyLM's tables: what they say of documents, written and read; metadata that could be taken for a field is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.formats.flat_cases import documents, write
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.errors import FormatError, TokenreelError
from tokenreel.formats.hobbylm_facts import line_of
from tokenreel.formats.hobbylm_write import finish_folder, open_writer, shard_name
from tokenreel.formats.writing import DocumentFacts, FinishedShard, WriteOptions
from tokenreel.store import MemoryStore

LONG = Path(__file__).parents[1] / "golden" / "hobbylm" / "longctx"
OPTIONS = WriteOptions("uint16")


def made(
    root: Path, shards: list[list[list[int]]], facts: list[list[DocumentFacts]] | None = None
) -> list[FinishedShard]:
    out = []
    for number, docs in enumerate(shards):
        name = "a/" + shard_name(number, WriteOptions("uint16", options={"name": "wiki"}))
        mine = None if facts is None else facts[number]
        files = write(open_writer, root, name, docs, facts=mine)
        out.append(FinishedShard(name, len(docs), sum(map(len, docs)), files))
    return out


def opened(path: Path) -> StreamCorpus:
    corpus = tokenreel.open(path)
    assert isinstance(corpus, StreamCorpus)
    return corpus


def known(corpus: StreamCorpus) -> list[DocumentFacts]:
    facts = corpus.facts()
    assert facts is not None
    return facts.facts(0, len(facts))


def test_golden() -> None:
    corpus = opened(LONG / "wiki_000000.bin")
    assert corpus.entries[0].format == "hobbylm-v1"
    assert known(corpus) == [
        DocumentFacts(source="wiki", metadata=f'{{"id": "{name}"}}') for name in ("en-short", "fa")
    ]
    assert opened(LONG / "replay_000000.bin").facts() is None  # has no docs.jsonl
    facts = known(opened(LONG))  # of the replayed documents nothing is known
    assert [fact.source for fact in facts] == ["pg19"] * 2 + [None] * 7 + ["stack_python"] * 2 + ["wiki"] * 3
    assert opened(LONG).documents_by_shard() == [1, 1, 7, 2, 2, 1]


def test_golden_written_again_is_the_same(tmp_path: Path) -> None:
    shards = []
    for name in ("pg19", "stack_python", "wiki"):
        for path in sorted(LONG.glob(f"{name}_0*.bin")):
            corpus = opened(path)
            docs = [ids.tolist() for ids in corpus]
            files = write(open_writer, tmp_path, path.stem, docs, facts=known(corpus))
            shards.append(FinishedShard(path.stem, len(docs), corpus.tokens, files))
    written = finish_folder(tmp_path, shards, OPTIONS)
    assert len(written) == 6
    for path in tmp_path.iterdir():
        ours, golden = path.read_bytes(), (LONG / path.name).read_bytes()
        assert ours == golden or ours == golden.rstrip(b"\n")
    assert len(list(tmp_path.iterdir())) == 11


@settings(max_examples=25, deadline=None)
@given(st.lists(documents(empty=False), min_size=1, max_size=3))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, shards: list[list[list[int]]]) -> None:
    root = tmp_path_factory.mktemp("hobbylm")
    written = finish_folder(root, made(root, shards), OPTIONS)
    assert [file.path for file in written] == ["a/wiki_index.json", "a/wiki_docs.jsonl"]
    corpus = opened(root)
    assert [ids.tolist() for ids in corpus] == [document for docs in shards for document in docs]
    assert known(corpus) == [DocumentFacts()] * len(corpus)
    index = json.loads((root / "a/wiki_index.json").read_text())
    assert [entry["length"] for entry in index] == [len(document) for docs in shards for document in docs]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NAMES, lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
RESERVED = ("shard", "shard_file", "file", "offset", "start", "length", "num_tokens", "n_tokens", "source")
METADATA = st.dictionaries(NAMES.filter(lambda name: name not in RESERVED), VALUES, max_size=3)
FACTS = st.builds(
    lambda known_id, **others: DocumentFacts(*known_id, **others),
    st.sampled_from([(None, None), ("ab" * 16, "text"), ("x", "upstream")]),
    source=st.none() | NAMES,
    upstream_id=st.none() | NAMES,
    metadata=st.none() | METADATA.map(lambda value: json.dumps(value, ensure_ascii=False)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(FACTS, min_size=1, max_size=4))
def test_facts_come_back(tmp_path_factory: pytest.TempPathFactory, facts: list[DocumentFacts]) -> None:
    root = tmp_path_factory.mktemp("hobbylm")
    finish_folder(root, made(root, [[[k + 1] for k in range(len(facts))]], [facts]), OPTIONS)
    assert known(opened(root)) == facts


def test_metadata_keeps_its_spelling() -> None:
    raw = '{"n": 1.10, "big": 123456789012345678901234567890,\n "x":"é"}'
    line = line_of("x_0.bin", 0, 1, DocumentFacts(metadata=raw), 0)
    assert b'"meta": {"n": 1.10, "big": 123456789012345678901234567890,  "x":"\xc3\xa9"}' in line


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        *((f'{{"{name}": 1}}', "SID005") for name in RESERVED),
        ("[1]", "SID005"),
        ('{"a": 1, "a": 2}', "MAN002"),
        ("{", "MAN001"),
        ('{"a": NaN}', "MAN001"),
    ],
)
def test_metadata_that_is_refused(tmp_path: Path, metadata: str, code: str) -> None:
    facts = [DocumentFacts(), DocumentFacts(metadata=metadata)]
    with pytest.raises(TokenreelError, match=code) as caught:
        write(open_writer, tmp_path, "x_000000", [[5], [6]], facts=facts)
    assert caught.value.where.get("document", 1) == 1
    assert not list(tmp_path.iterdir())


def store_of(*lines: object) -> MemoryStore:
    from tests.formats.test_llmc import made as shard

    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return MemoryStore({"x_0.bin": shard([5, 6]), "x_docs.jsonl": text.encode()})


def facts_of(*lines: object) -> list[DocumentFacts]:
    from tokenreel.formats.hobbylm_facts import SidecarFacts

    facts = SidecarFacts(store_of(*lines), ["x_index.json", "x_docs.jsonl"], {"x_0.bin": len(lines)})
    return facts.facts(0, len(facts))


def test_lines_of_other_writers() -> None:
    at = {"shard": "x_0.bin", "offset": 0, "length": 1}
    behind = {"shard": "x_0.bin", "offset": 1, "length": 1}
    assert facts_of({**behind, "id": "b", "source": "s"}, {**at, "url": "u", "meta": {"k": 1}}) == [
        DocumentFacts(metadata='{"k": 1, "url": "u"}'),
        DocumentFacts(source="s", upstream_id="b"),
    ]
    assert facts_of(["x_0.bin", 0, 1], {**behind, "meta": None}) == [DocumentFacts(), DocumentFacts()]
    for wrong, code in (
        ({**at, "source": 3}, "SID001"),
        ({**at, "meta": [1]}, "SID001"),
        ({**at, "meta": {"k": 1}, "k": 2}, "SID005"),
        ({**at, "meta": {"offset": 1}}, "SID005"),
        ('{"shard": "x_0.bin", "offset": 3, "offset": 0, "length": 1}', "MAN002"),
        ("{", "MAN001"),
    ):
        with pytest.raises(TokenreelError, match=code):
            facts_of(wrong)


def test_a_name_without_a_number(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="SID006"):
        open_writer(tmp_path, "wiki", OPTIONS)


def test_the_tables_are_made_once(tmp_path: Path) -> None:
    shards = made(tmp_path, [[[5, 6], [7]], [[8]]])
    assert len(list(tmp_path.rglob(".*.docs"))) == 2
    first = finish_folder(tmp_path, shards, OPTIONS)
    assert not list(tmp_path.rglob(".*"))
    assert finish_folder(tmp_path, shards, OPTIONS) == first  # run again after a kill: the tables are there
    (tmp_path / "a/wiki_docs.jsonl").unlink()
    with pytest.raises(FormatError, match="SID006"):
        finish_folder(tmp_path, shards, OPTIONS)


def test_an_unfinished_shard_leaves_nothing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, "wiki_000000", OPTIONS)
    writer.add_documents(np.array([1], "u2"), np.array([1]))
    writer.abort()
    assert not list(tmp_path.iterdir())
