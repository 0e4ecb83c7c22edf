"""convert: what it keeps, how it goes on, where it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenreel
from tests.convert.test_pairs import CASES, make
from tokenreel.convert import convert, merge
from tokenreel.convert import shards as shards_module
from tokenreel.convert.adopt import adopt
from tokenreel.convert.conversion import Wish, convert_many
from tokenreel.convert.framing import Separable, contents, reframe
from tokenreel.convert.planning import Cut, PlannedShard
from tokenreel.convert.proving import identity_by_leaves
from tokenreel.convert.source import Source
from tokenreel.errors import DocumentError, TokenError, UsageError
from tokenreel.formats import Boundary
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.hashing import IdentityHasher

SEVERAL = CASES[0]
IDS = st.lists(st.integers(0, 4), max_size=6)
SIDES = st.lists(st.integers(0, 4), max_size=2).map(tuple)


def slow_frame(documents: list[list[int]], old: Boundary, new: Boundary) -> list[list[int]]:
    """The definition: one prefix off, then one suffix from what remains; the new ones around it."""
    out = []
    for document in documents:
        content = list(document)
        if old.prefix and tuple(content[: len(old.prefix)]) == old.prefix:
            content = content[len(old.prefix) :]
        if old.suffix and tuple(content[len(content) - len(old.suffix) :]) == old.suffix:
            content = content[: len(content) - len(old.suffix)]
        out.append([*new.prefix, *content, *new.suffix])
    return out


@given(st.lists(IDS, max_size=6), SIDES, SIDES, SIDES, SIDES)
def test_reframe_is_its_definition(
    documents: list[list[int]], a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...], d: tuple[int, ...]
) -> None:
    old, new = Boundary(a, b), Boundary(c, d)
    ids = np.array([i for document in documents for i in document], dtype=np.uint16)
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    weights = np.arange(len(ids), dtype=np.float32) + 2
    made, sizes, _, (cut,) = reframe(ids, lengths, old, new, weights)
    edges = np.cumsum(sizes)[:-1] if len(sizes) else []
    assert [part.tolist() for part in np.split(made, edges)][: len(documents)] == slow_frame(documents, old, new)
    assert len(cut) == len(made)
    assert int((cut >= 2).sum()) == sum(len(one) for one in slow_frame(documents, old, Boundary()))


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=6),
    st.sampled_from([((0,), ()), ((), (0,)), ((1,), (0,)), ((), (0, 1))]),
    st.integers(1, 6),
)
def test_separable_is_what_a_reader_finds(
    documents: list[list[int]], sides: tuple[tuple[int, ...], tuple[int, ...]], step: int
) -> None:
    from tokenreel.corpus.scanning import scan_edges
    from tokenreel.errors import FormatError

    boundary = Boundary(*sides)
    ids = np.array([i for document in documents for i in document], dtype=np.uint16)
    edges = np.concatenate(([0], np.cumsum([len(document) for document in documents])))
    try:
        found = scan_edges(lambda begin, end: ids[begin:end], len(ids), boundary, "here").tolist()
    except FormatError:
        found = [0, len(ids)]
    check = Separable(boundary)
    wrong = None
    for first in range(0, len(documents), step):
        part = documents[first : first + step]
        flat = np.array([i for document in part for i in document], dtype=np.uint16)
        wrong = wrong or check.first_wrong(flat, np.array([len(document) for document in part], dtype=np.int64))
    assert (wrong is None) == (found == edges.tolist())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(st.lists(IDS, min_size=1, max_size=8), SIDES, SIDES)
def test_the_two_ways_to_an_identity_agree(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    folder = tmp_path_factory.mktemp("identity")
    with MegatronWriter(folder / "a", "uint16") as writer:
        for document in documents:
            writer.add_document([np.array(document, dtype=np.uint16)])
        writer.finish()
    corpus = tokenreel.open(folder, boundary=Boundary(a, b, table=True))
    for exceptions, threads in ((True, 2), (False, 2), (True, 1)):
        assert identity_by_leaves(Source.of([corpus]), exceptions=exceptions, threads=threads) == corpus.identity(
            exceptions=exceptions
        )


@pytest.mark.parametrize(("longest", "lacking"), [(7, 0), (7, 1), (9, 0), (12, 5), (1, 0)])
@pytest.mark.parametrize("boundary", ["prefix=1,suffix=2", "suffix=2", ""])
def test_leaves_that_begin_inside_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int, lacking: int, boundary: str
) -> None:
    from tokenreel import hashing
    from tokenreel.convert import proving

    for module in (proving, hashing):
        monkeypatch.setattr(module, "TOKEN_LEAF", 7)
        monkeypatch.setattr(module, "DOCUMENT_LEAF", 3)
    monkeypatch.setattr(proving, "PIECE", 5)
    side_by_side = []
    real = proving._side_by_side
    monkeypatch.setattr(proving, "_side_by_side", lambda *args: side_by_side.append(real(*args)) or side_by_side[-1])
    rng = np.random.default_rng(longest)
    known = Boundary.parse(boundary) if boundary else Boundary(table=True)
    with MegatronWriter(tmp_path / "a", "uint16") as writer:
        for number, length in enumerate(rng.integers(0, longest + 1, 60).tolist()):
            content = rng.integers(3, 9, length).tolist()
            whole = number % 60 >= lacking
            writer.add_document([np.array([*known.prefix * whole, *content, *known.suffix], dtype=np.uint16)])
        writer.finish()
    corpus = tokenreel.open(tmp_path, boundary=known)
    hasher = IdentityHasher(known.prefix, known.suffix)
    for ids, lengths in corpus.batches():
        hasher.update(ids, lengths)
    wanted = hasher.finish()
    assert len(wanted.tokens) > 3
    assert identity_by_leaves(Source.of([corpus]), threads=3) == wanted
    assert identity_by_leaves(Source.of([corpus]), threads=1) == wanted
    (found,) = side_by_side
    assert (found is None) == (longest > 7 or (lacking > 0 and bool(known.prefix)))


def test_contents_of_one_token_with_both_sides_alike() -> None:
    found = contents(np.array([7]), np.array([1]), Boundary((7,), (7,)))
    assert (found.begins.tolist(), found.ends.tolist(), found.lacking.tolist()) == ([1], [1], [True])


# ---- shards ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "documents"),
    [
        ({}, [2, 1, 2]),
        ({"tokens_per_shard": 5}, [2, 2, 1]),
        ({"docs_per_shard": 2}, [2, 2, 1]),
        ({"docs_per_shard": 99}, [5]),
    ],
)
def test_how_the_target_is_cut(tmp_path: Path, cut: dict[str, int], documents: list[int]) -> None:
    convert(make(tmp_path / "in", SEVERAL), tmp_path / "out", to="megatron-v1", boundary="suffix=2", **cut)
    assert [entry.documents for entry in tokenreel.open(tmp_path / "out").entries] == documents


def test_a_shard_never_holds_more_than_its_format_can(tmp_path: Path) -> None:
    from dataclasses import replace

    from tokenreel.convert.fitting import Target
    from tokenreel.convert.planning import plan_shards
    from tokenreel.formats.registry import format_named
    from tokenreel.formats.writing import writing_of

    writing = writing_of(format_named("megatron-v1"))
    source = Source.of([tokenreel.open(make(tmp_path / "in", SEVERAL), boundary="suffix=2")])
    target = Target("megatron-v1", replace(writing.holds, shard_tokens=4), "uint16", source.boundary)
    shards = plan_shards(source, target, Cut(documents=99), writing)
    lengths = source.lengths(0, 5)
    assert [(s.begin, s.end) for s in shards] == [(0, 1), (1, 3), (3, 4), (4, 5)]
    assert all(int(lengths[s.begin : s.end].sum()) <= 4 or s.end == s.begin + 1 for s in shards)


# ---- going on ----------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """A conversion that was killed."""


def stop_after(count: int) -> Iterator[None]:
    yield from (None for _ in range(count))
    raise Stopped


def test_it_goes_on_and_writes_no_finished_shard_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path / "in", SEVERAL)
    steps = stop_after(2)
    real = shards_module.write_shard

    def write(*args: object, **kwargs: object) -> object:
        next(steps)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(shards_module, "write_shard", write)
    with pytest.raises((Stopped, RuntimeError)):
        convert(source, tmp_path / "out", to="mds", boundary="suffix=2", workers=1)
    there = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("*.mds")}
    assert len(there) == 2
    monkeypatch.setattr(shards_module, "write_shard", real)
    done = convert(source, tmp_path / "out", to="mds", boundary="suffix=2", workers=1)
    assert done.kept_shards == 2
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in there} == there
    again = convert(source, tmp_path / "out", to="mds", boundary="suffix=2", workers=1)
    assert again.kept_shards == 3
    assert again.identity == done.identity
    assert not (tmp_path / "out/.convert").exists()


def test_another_conversion_is_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenreel.convert import conversion as engine

    source = make(tmp_path / "in", SEVERAL)
    monkeypatch.setattr(engine, "identity_by_leaves", lambda *_, **__: (_ for _ in ()).throw(Stopped()))
    with pytest.raises(Stopped):
        convert(source, tmp_path / "out", to="megatron-v1", boundary="suffix=2")
    with pytest.raises(UsageError, match="USE015"):
        convert(source, tmp_path / "out", to="megatron-v1", boundary="suffix=2", docs_per_shard=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("x")
    with pytest.raises(UsageError, match="USE011"):
        convert(source, tmp_path / "full", to="megatron-v1", boundary="suffix=2")
    with pytest.raises(UsageError, match="USE005"):
        convert(source, source / "inside", to="megatron-v1", boundary="suffix=2")


def test_an_error_in_one_shard_gives_up_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shards_module.write_shard

    def write(*args: object, **kwargs: object) -> object:
        shard: PlannedShard = args[1]  # type: ignore[assignment]
        if shard.number == 1:
            raise Stopped
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(shards_module, "write_shard", write)
    with pytest.raises(Stopped):
        convert(make(tmp_path / "in", SEVERAL), tmp_path / "out", to="megatron-v1", boundary="suffix=2", workers=2)
    assert not list((tmp_path / "out").glob(".*tokenreel-tmp")), "no temporary stays"


@pytest.mark.parametrize("workers", [1, 2, 9])
@pytest.mark.parametrize("lacking", [(), (0,), (1, 5, 6), tuple(range(8))])
def test_the_identity_of_what_was_read_is_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, lacking: tuple[int, ...]
) -> None:
    """Shards are begun before those ahead of them are read: where a document lacks its suffix they begin elsewhere."""
    from tokenreel import hashing
    from tokenreel.convert import proving

    for module in (proving, hashing):
        monkeypatch.setattr(module, "TOKEN_LEAF", 7)
        monkeypatch.setattr(module, "DOCUMENT_LEAF", 3)
    for number in range(8):
        documents = [[5, 6, 7, *[2] * (number not in lacking)], [2], [8, 2]]
        with MegatronWriter(tmp_path / f"in/part-{number}", "uint16") as writer:
            writer.add_documents(np.concatenate(documents).astype(np.uint16), np.array([len(d) for d in documents]))
            writer.finish()
    done = convert(tmp_path / "in", tmp_path / "out", to="megatron-v1", boundary="suffix=2", workers=workers)
    with tokenreel.open(tmp_path / "in", boundary="suffix=2") as corpus:
        assert done.identity == corpus.identity().digest
    assert done.shards == 8


def test_a_source_that_is_not_what_its_manifest_says(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    adopt(source, boundary="suffix=2")
    payload = next(source.glob("*.bin"))
    data = bytearray(payload.read_bytes())
    data[0] ^= 1
    payload.write_bytes(data)
    with pytest.raises(DocumentError, match="DOC028") as caught:
        convert(source, tmp_path / "out", to="megatron-v1")
    assert caught.value.where["path"] == str(source)
    assert not (tmp_path / "out/tokenreel.json").exists()
    # What was asked for without a proof is written; asked for later, it is found.
    convert(source, tmp_path / "plain", to="megatron-v1", proof=False)
    with pytest.raises(DocumentError, match="DOC028"):
        convert(source, tmp_path / "plain", to="megatron-v1")
    done = convert(source, tmp_path / "out", to="megatron-v1", accept=["DOC028"])
    with tokenreel.open(source) as corpus:
        assert done.identity == corpus.identity().digest
    assert "DOC028" in done.accepted


def test_what_becomes_of_sequences_is_said(tmp_path: Path) -> None:
    with MegatronWriter(tmp_path / "in/a", "uint16", one_sequence_per_document=False) as writer:
        writer.add_document([np.array([5, 6], np.uint16), np.array([7, 2], np.uint16)])
        writer.finish()
    done = convert(tmp_path / "in", tmp_path / "out", to="megatron-v1", boundary="suffix=2")
    assert done.lost == ("edges of sequences inside documents: every document is one sequence",)
    assert done.identity == tokenreel.open(tmp_path / "in", boundary="suffix=2").identity().digest


def test_a_difference_is_found_and_leaves_no_record_of_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenreel.convert import writing

    real = writing.FinishedShard

    def spoil(name: str, documents: int, tokens: int, files: tuple[object, ...]) -> object:
        path = next((tmp_path / "out").glob("*.bin"))
        data = bytearray(path.read_bytes())
        data[2] ^= 1
        path.write_bytes(data)
        return real(name, documents, tokens, files)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "FinishedShard", spoil)
    with pytest.raises(DocumentError, match="DOC024") as caught:
        convert(make(tmp_path / "in", CASES[1]), tmp_path / "out", to="megatron-v1", boundary="suffix=2")
    assert "tokens 0 .. " in caught.value.message
    assert not (tmp_path / "out/convert.json").exists()


# ---- what is kept and what is said -------------------------------------------------------------------------------------


def test_another_boundary_and_what_it_loses(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "a document without its suffix")
    source = make(tmp_path / "in", case)
    done = convert(source, tmp_path / "a", to="llmc", boundary="suffix=2", to_boundary="prefix=9")
    assert (done.exceptions, done.exception_documents, done.exit_status) == (1, (1,), 1)
    assert done.exceptions_in_identity is False
    accepted = convert(
        source, tmp_path / "b", to="llmc", boundary="suffix=2", to_boundary="prefix=9", accept=["TOK046"]
    )
    assert accepted.exit_status == 0
    assert [ids.tolist() for ids in tokenreel.open(tmp_path / "b")] == [[9, 5], [9, 6], [9, 7]]
    assert (
        tokenreel.open(tmp_path / "b").identity().digest
        == json.loads((tmp_path / "b/tokenreel.json").read_text())["splits"][""]["identity"]
    )


def test_a_root_with_splits_keeps_them(tmp_path: Path) -> None:
    for split in ("train", "val"):
        make(tmp_path / "in" / split, SEVERAL)
    done = convert(tmp_path / "in", tmp_path / "out", to="olmo", boundary="suffix=2")
    assert set(done.splits) == {"train", "val"}
    assert done.documents == 10
    corpus = tokenreel.open(tmp_path / "out")
    assert set(corpus.splits) == {"train", "val"}
    assert len(corpus.split("val")) == 5


def test_metadata_goes_out_and_comes_back(tmp_path: Path) -> None:
    import struct

    pytest.importorskip("pyarrow")
    ids = [50256, 5, 50256, 6, 7]
    header = struct.pack("<3i", 20240520, 1, len(ids)).ljust(1024, bytes(1))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/wiki_000000.bin").write_bytes(header + np.array(ids, "<u2").tobytes())
    rows = [("wiki_000000.bin", 0, 2, {"title": "a"}), ("wiki_000000.bin", 2, 3, {"title": "b", "n": 1})]
    lines = [{"shard": s, "offset": o, "length": n, "source": "wiki", "meta": meta} for s, o, n, meta in rows]
    (tmp_path / "in/wiki_docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    convert(tmp_path / "in", tmp_path / "pairs", to="megatron-v1", boundary="prefix=50256")
    assert (tmp_path / "pairs/documents.parquet").is_file()
    convert(tmp_path / "pairs", tmp_path / "back", to="hobbylm")
    back = [json.loads(line) for line in next((tmp_path / "back").glob("*_docs.jsonl")).read_text().splitlines()]
    assert [{key: line["meta"].get(key) for key in ("title", "n")} for line in back] == [
        {"title": "a", "n": None},
        {"title": "b", "n": 1},
    ]
    assert [line["source"] for line in back] == ["wiki", "wiki"]


def test_weights_are_kept_or_refused(tmp_path: Path) -> None:
    convert(make(tmp_path / "in", SEVERAL), tmp_path / "ds", to="datatrove", boundary="suffix=2")
    for path in sorted((tmp_path / "ds").glob("*.ds")):
        Path(f"{path}.loss").write_bytes(bytes([1, 0] * 9)[: path.stat().st_size // 2])
    for record in ("tokenreel.json", "convert.json"):
        (tmp_path / "ds" / record).unlink()
    with pytest.raises(DocumentError, match="DOC021"):
        convert(tmp_path / "ds", tmp_path / "no", to="megatron-v1", boundary="suffix=2")
    kept = convert(tmp_path / "ds", tmp_path / "again", to="datatrove", boundary="suffix=2", docs_per_shard=99)
    assert (
        next((tmp_path / "again").glob("*.loss")).read_bytes()
        == b"\x01\x00\x01\x00\x01" + b"\x01\x00" + b"\x01\x00\x01\x00\x01\x00"
    )
    assert kept.lost == ()
    lost = convert(tmp_path / "ds", tmp_path / "yes", to="megatron-v1", boundary="suffix=2", accept=["DOC021"])
    assert "weights" in lost.lost[0]


# ---- merge -------------------------------------------------------------------------------------------------------------


def test_merge_of_any_formats(tmp_path: Path) -> None:
    make(tmp_path / "a", SEVERAL)
    convert(tmp_path / "a", tmp_path / "b", to="parquet", boundary="suffix=2")
    convert(tmp_path / "a", tmp_path / "c", to="npy", boundary="suffix=2")
    done = merge([tmp_path / name for name in "abc"], tmp_path / "out", to="litdata", boundary="suffix=2")
    assert done.as_dict()["documents"] == 15
    assert done.as_dict()["shards"] == 1
    one = [document for shard in SEVERAL.shards for document in shard]
    assert [tuple(ids.tolist()) for ids in tokenreel.open(tmp_path / "out")] == one * 3


@pytest.fixture
def few_files() -> Iterator[None]:
    """Let the process open 128 files: fewer than there are sources."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 128), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_merge_of_many_shards(tmp_path: Path) -> None:
    sources = []
    for k in range(300):
        with MegatronWriter(tmp_path / f"in/{k:03d}/a", "uint16") as writer:
            writer.add_documents(np.array([k, 2], dtype=np.uint16), np.array([2]))
            writer.finish()
        sources.append(tmp_path / f"in/{k:03d}")
    done = convert_many(sources, tmp_path / "out", Wish(to="megatron-v1", boundary="suffix=2", cut=Cut(tokens=1 << 40)))
    assert (done.documents, done.shards) == (300, 1)
    assert [int(ids[0]) for ids in tokenreel.open(tmp_path / "out")] == list(range(300))


def test_merge_refuses_other_boundaries(tmp_path: Path) -> None:
    for name, boundary in (("a", "suffix=2"), ("b", "prefix=2")):
        convert(make(tmp_path / "in" / name, CASES[1]), tmp_path / name, to="megatron-v1", boundary=boundary)
    with pytest.raises(TokenError, match="TOK004"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out", to="megatron-v1")
