"""OLMo's headerless files with tables: two dialects decode, tables that do not tile are refused, writing gives it back."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.formats.flat_cases import documents, mutated, read, survives, write
from tokenreel.errors import FormatError, UsageError
from tokenreel.formats import recognising
from tokenreel.formats.olmo import open_file, open_uint16, open_uint32, open_writer, prove_dtype, recognise, shard_name
from tokenreel.formats.olmo_table import fact_columns, read_edges
from tokenreel.formats.writing import DocumentFacts, FactsShard, WriteOptions
from tokenreel.store import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "olmo"
DOCUMENTS = json.loads((GOLDEN / "documents.json").read_text())["part-000-00000.npy"]
DOLMA = gzip.decompress((GOLDEN / "dolma-style-000.csv.gz").read_bytes())


def packed(text: str | bytes) -> bytes:
    return gzip.compress(text.encode() if isinstance(text, str) else text, mtime=0)


def files(text: str | bytes, tokens: int = 5, width: int = 2) -> dict[str, bytes]:
    return {"x.npy": np.arange(300, 300 + tokens, dtype=f"<u{width}").tobytes(), "x.csv.gz": packed(text)}


def code_of(given_files: dict[str, bytes], dtype: str = "uint16") -> str:
    with pytest.raises(FormatError) as caught:
        open_file(MemoryStore(given_files), "x.npy", dtype)
    return caught.value.code


def test_golden() -> None:
    shard = open_uint16(LocalStore(GOLDEN), "part-000-00000.npy")
    assert read(shard) == DOCUMENTS
    assert not isinstance(shard, FactsShard)
    corpus = tokenreel.open(GOLDEN / "part-000-00000.npy")
    assert (corpus.dtype.name, corpus.entries[0].format, len(corpus)) == ("uint16", "olmo-uint16", 10)
    assert len(tokenreel.open(GOLDEN / "part-000-00000.csv.gz")) == 10


def test_golden_of_five_columns(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "part-000-00000.npy", tmp_path)
    shutil.copy(GOLDEN / "dolma-style-000.csv.gz", tmp_path / "part-000-00000.csv.gz")
    shard = open_uint16(LocalStore(tmp_path), "part-000-00000.npy")
    assert read(shard) == DOCUMENTS
    assert isinstance(shard, FactsShard)
    assert shard.facts(1, 3) == [
        DocumentFacts(None, None, "s3://bucket/src.jsonl.gz", "doc-1", '{"loc": "2"}'),
        DocumentFacts(None, None, "s3://bucket/src.jsonl.gz", "doc-2", '{"loc": "3"}'),
    ]


def test_no_final_end_loses_nothing() -> None:
    corpus = tokenreel.open(GOLDEN / "no-final-eos.npy", dtype="uint16", boundary="suffix=50256")
    assert [ids.tolist() for ids in corpus][:10] == DOCUMENTS
    assert (len(corpus), corpus.tokens) == (11, 348)
    with pytest.raises(FormatError, match="FLT001"):
        tokenreel.open(GOLDEN / "no-final-eos.npy")


def test_tables_that_do_not_tile_or_cannot_be_read() -> None:
    assert read(open_file(MemoryStore(files("0,2\n2,2\n2,5\n")), "x.npy", "uint16")) == [
        [300, 301],
        [],
        [302, 303, 304],
    ]
    assert read(open_file(MemoryStore(files("0,2\r\n2,5")), "x.npy", "uint16")) == [[300, 301], [302, 303, 304]]
    assert code_of({"x.npy": b"ab"}) == "OLM001"
    assert code_of({"x.csv.gz": packed("0,1\n")}) == "OLM001"
    for text in ("0,2,3\n2,5,3\n", "0,2\n\n2,5\n", "a,2\n", "0\n", "0,+2\n", "0,2\n2,5,a,b,c\n", '0,2,"a\n', "0,2,a,b\n",
                 "0," + "9" * 19 + "\n", "0,2,\xff\n".encode("latin-1"), "x" * (1 << 21)):  # fmt: skip
        assert code_of(files(text)) == "OLM002", text[:20]
    assert code_of(files("0,2\n2,6\n")) == code_of(files("0,999999999999999999\n")) == "OLM003"
    for text in ("1,5\n", "0,2\n3,5\n", "0,3\n2,5\n", "2,5\n0,2\n", "0,2\n2,1\n1,5\n", '0,2,a,b,c\n"3",5,a,b,c\n'):
        assert code_of(files(text)) == "OLM004", text
    assert code_of(files("0,0\n" * 70_000)) == "OLM005"
    whole = files("0,2\n2,5\n")
    for broken in (b"", b"no gzip", whole["x.csv.gz"][:-1], whole["x.csv.gz"][:12] + b"?" + whole["x.csv.gz"][13:]):
        assert code_of({**whole, "x.csv.gz": broken}) in ({"OLM006", "OLM007"} if not broken else {"OLM006"})
    assert code_of(files("0,2\n2,4\n")) == code_of(files("")) == "OLM007"
    assert code_of({**whole, "x.npy": b"abc"}) == "FLT002"


def test_the_table_proves_the_dtype() -> None:
    def told(given_files: dict[str, bytes]) -> str | None:
        return prove_dtype(MemoryStore(given_files), "x")

    assert told(files("0,2\n2,5\n")) == "uint16"
    assert told(files("0,2\n2,5\n", width=4)) == "uint32"
    assert told(files("0,2\n2,4\n")) is told(files("?")) is told(files("", tokens=0)) is None
    store = MemoryStore(files("0,2\n2,5\n", width=4))
    assert [found.format for found in recognise(store, store.list())] == ["olmo-uint32"]
    assert open_uint32(store, "x.npy").tokens == 5
    with pytest.raises(FormatError, match="OLM007"):
        open_uint16(store, "x.npy")


def test_a_folder_where_one_lost_its_table_or_its_ids(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    with pytest.raises(FormatError, match=r"OLM001.*dolma-style-000\.npy"):
        tokenreel.open(tmp_path)
    (tmp_path / "dolma-style-000.csv.gz").unlink()
    with pytest.raises(FormatError, match=r"OLM001.*no-final-eos\.csv\.gz"):
        tokenreel.open(tmp_path)
    (tmp_path / "no-final-eos.npy").unlink()
    np.save(tmp_path / "other.npy", np.arange(5))  # NumPy's own: no shard here
    assert len(tokenreel.open(tmp_path)) == 10


def test_a_table_alone() -> None:
    with pytest.raises(FormatError, match=r"OLM001.*dolma-style-000\.npy"):
        tokenreel.open(GOLDEN / "dolma-style-000.csv.gz")
    store = MemoryStore({"x.csv.gz": packed("0,5\n"), "notes.txt": b"a"})
    assert not recognising.recognise(store, store.list()).found


def test_numpy_s_own_files_are_never_taken(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5, dtype="<u2"))
    (tmp_path / "x.csv.gz").write_bytes(packed("0,5\n"))
    assert tokenreel.open(tmp_path).entries[0].format == "npy"


def test_large_tables_of_both_kinds() -> None:
    ends = np.arange(1, 200_001)
    plain = "".join(f"{end - 1},{end}\n" for end in ends)
    long = "".join(f'{end - 1},{end},"a,{end}",s,"1\n2"\n' for end in ends)
    for text, columns in ((plain, 2), (long, 5)):
        reader = MemoryStore({"t": packed(text)}).reader("t")
        edges, found = read_edges(reader, "t", 200_000)
        assert (len(edges), int(edges[-1]), found) == (200_001, 200_000, columns)


@given(documents(empty=False), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, docs: list[list[int]], calls: int) -> None:
    root = tmp_path_factory.mktemp("olmo")
    write(open_writer, root, "a/part-000-00000", docs, calls=calls)
    assert read(open_uint16(LocalStore(root), "a/part-000-00000.npy")) == docs


def test_golden_written_again_is_the_same(tmp_path: Path) -> None:
    write(open_writer, tmp_path, "part-000-00000", DOCUMENTS)
    assert (tmp_path / "part-000-00000.npy").read_bytes() == (GOLDEN / "part-000-00000.npy").read_bytes()
    ours, golden = (gzip.decompress((at / "part-000-00000.csv.gz").read_bytes()) for at in (tmp_path, GOLDEN))
    assert ours == golden
    facts = [
        DocumentFacts(None, None, "s3://bucket/src.jsonl.gz", f"doc-{k}", f'{{"loc": "{k + 1}"}}') for k in range(10)
    ]
    write(open_writer, tmp_path, "five", DOCUMENTS, facts=facts)
    assert gzip.decompress((tmp_path / "five.csv.gz").read_bytes()) == DOLMA
    again = (tmp_path / "five.csv.gz").read_bytes()
    write(open_writer, tmp_path, "five", DOCUMENTS, facts=facts)
    assert (tmp_path / "five.csv.gz").read_bytes() == again


TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
FACTS = st.builds(
    DocumentFacts,
    id=TEXT,
    kind=st.sampled_from([None, "text", "upstream"]),
    source=TEXT,
    upstream_id=TEXT,
    metadata=st.sampled_from([None, "{}", '{"loc": "7"}', '{"loc": 7}', '{"loc": "{}"}', '{"a": "b,\\n"}', "broken"]),
)


@given(FACTS)
@settings(max_examples=25, deadline=None)
def test_facts_come_back(tmp_path_factory: pytest.TempPathFactory, facts: DocumentFacts) -> None:
    root = tmp_path_factory.mktemp("olmo")
    write(open_writer, root, "x", [[5, 6], [7]], facts=[facts, DocumentFacts()])
    shard = open_uint16(LocalStore(root), "x.npy")
    assert isinstance(shard, FactsShard)
    assert shard.facts(0, 2) == [facts, DocumentFacts()]


def test_a_place_like_ours_that_is_not() -> None:
    for place in ('{"kind": 3}', '{"other": "x"}', "{", "[]", "{" * 5000):
        text = io.StringIO(f'0,5,a,b,"{place.replace(chr(34), chr(34) * 2)}"\n').read()
        shard = open_file(MemoryStore(files(text)), "x.npy", "uint16")
        assert isinstance(shard, FactsShard)
        assert shard.facts(0, 1)[0].metadata == json.dumps({"loc": place})
    assert fact_columns(DocumentFacts()) == ("", "", "")


def test_facts_that_come_late(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, "x", WriteOptions("uint16"))
    writer.add_documents(np.array([1], "u2"), np.array([1]))
    writer.add_facts([DocumentFacts("a")])
    with pytest.raises(UsageError, match="USE003"):
        writer.add_documents(np.array([1], "u2"), np.array([1]))
    writer.abort()
    assert not list(tmp_path.iterdir())
    assert shard_name(12, WriteOptions("uint16")) == "part-000-00012"


FILES = files("0,2,a,s,1\r\n2,5,b,s,2\r\n")


@pytest.mark.parametrize("target", sorted(FILES))
@given(st.data())
def test_no_damage_crashes(target: str, data: st.DataObject) -> None:
    survives(open_uint16, FILES, "x.npy", data.draw(mutated(FILES[target])), target, ["OLM", "FLT"])


@given(mutated(gzip.decompress(FILES["x.csv.gz"])))
def test_no_damage_to_the_text_crashes(text: bytes) -> None:
    survives(open_uint16, FILES, "x.npy", packed(text), "x.csv.gz", ["OLM"])
