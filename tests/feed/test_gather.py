"""The gatherer: every policy equals its reference over corpora of every stored type; what it refuses; its buffers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenreel
from tests.feed.gather_corpora import EOD, Made, made, tables, write_pair
from tests.pack.rows_reference import reference
from tokenreel.corpus.resolve import resolve
from tokenreel.errors import OrderError, StorageError, TokenError, UsageError
from tokenreel.feed.gather import Gatherer
from tokenreel.pack.policy import row_policy
from tokenreel.spans import Flag, SpanTable

DOCUMENTS: dict[str, Any] = {"kind": "documents"}
MEGATRON: dict[str, Any] = {"kind": "megatron", "eod": EOD}
OURS = [
    {"kind": "plain"},
    {"kind": "plain", "loss_mask": True, "pad_id": 5, "ignore_index": -1},
    DOCUMENTS,
    {**DOCUMENTS, "positions": "running", "segments": "zero", "ends": "next", "pad_id": 9},
    {**DOCUMENTS, "positions": "offset", "ends": "token", "end_id": 77, "cu_seqlens": "rows"},
    {**DOCUMENTS, "cu_seqlens": "batch", "attention": "mask"},
    {**DOCUMENTS, "ends": "next", "cu_seqlens": "batch", "cu_seqlens_length": 120, "attention": "bias"},
]
THEIRS = [
    MEGATRON,
    {**MEGATRON, "reset_position_ids": True, "reset_attention_mask": True, "create_attention_mask": True},
    {**MEGATRON, "eod_mask_loss": True, "pad": 7, "create_attention_mask": True},
    {**MEGATRON, "pad": EOD, "allow_ambiguous_pad_tokens": True, "reset_position_ids": True},
    {**MEGATRON, "inter_document_masking": True, "eod_mask_loss": True},
    {"kind": "maxtext", "eod": EOD, "packing_max_segments_per_sample": 0},
    {"kind": "maxtext", "eod": EOD, "packing_max_segments_per_sample": 5, "eod_mask_loss": True},
    {"kind": "maxtext", "eod": EOD, "reset_attention_mask": False, "eod_mask_loss": True},
    {"kind": "levanter"},
    {"kind": "levanter", "eod": EOD},
    {"kind": "levanter", "eod": EOD, "block_cross_document_attention": False},
    {"kind": "levanter", "packed": True},
]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory.mktemp("corpora"))


def check(made: Made, said: dict[str, Any], table: SpanTable, width: int, ahead: int, dtype: str, threads: int) -> None:
    policy = row_policy(said)
    with Gatherer(made.corpora, policy, row_tokens=width, row_ahead=ahead, dtype=dtype, threads=threads) as gatherer:
        found = gatherer.batch(table)
        assert tuple(found) == policy.arrays()
        known = resolve(table, [corpus.table() for corpus in made.corpora]) if policy.by_document else table
        expected = reference(known, made.streams, policy, width, ahead)
        for name, (shape, kind) in policy.layout(table.samples, width, dtype).items():
            assert found[name].dtype == kind
            if name != "cu_seqlens" or policy.cu_seqlens != "batch":
                assert found[name].shape == shape
            assert found[name].tolist() == expected[name], name


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_equal_their_reference(corpora: Made, data: st.DataObject) -> None:
    ours = data.draw(st.booleans())
    said = data.draw(st.sampled_from(OURS if ours else THEIRS))
    width, ahead = data.draw(st.integers(1, 24)), data.draw(st.integers(0, 1))
    if said["kind"] == "maxtext":
        said = {**said, "direct": not ahead}
    table = data.draw(tables([len(stream) for stream in corpora.streams], width, ahead, ours=ours))
    check(
        corpora, said, table, width, ahead, data.draw(st.sampled_from(["int32", "int64"])), data.draw(st.integers(1, 3))
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_batch_of_everything_is_the_same_from_any_number_of_threads(corpora: Made, dtype: str) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    sizes = np.array([len(stream) for stream in corpora.streams])
    corpus = generator.integers(0, len(sizes), 64)
    begin = generator.integers(0, sizes[corpus] - 33)
    table = SpanTable.of(np.arange(65), begin, 32, corpus=corpus, flags=Flag.AHEAD)
    for said in ({**DOCUMENTS, "cu_seqlens": "rows"}, {"kind": "plain", "loss_mask": True}, MEGATRON):
        found = []
        for threads in (1, 2, 5):
            with Gatherer(corpora.corpora, said, row_tokens=32, row_ahead=1, dtype=dtype, threads=threads) as gatherer:
                found.append(gatherer.batch(table))
        for other in found[1:]:
            assert all(np.array_equal(found[0][name], other[name]) for name in other)


# ---- buffers ----------------------------------------------------------------------------------------------------------


def one(corpora: Made, policy: Any = "plain", **options: Any) -> Gatherer:
    return Gatherer(corpora.corpora, policy, **{"row_tokens": 8, "row_ahead": 1, **options})


TABLE = SpanTable.of([0, 1, 2], [5, 40], [8, 8], flags=Flag.AHEAD)


def test_buffers_of_the_caller_are_written_and_returned(corpora: Made) -> None:
    with one(corpora, {**DOCUMENTS, "cu_seqlens": "batch"}) as gatherer:
        fresh = gatherer.batch(TABLE)
        out = {name: np.full(shape, 99, dtype) for name, (shape, dtype) in gatherer.policy.layout(2, 8).items()}
        given_back = gatherer.batch(TABLE, out)
        for name, array in given_back.items():
            assert np.array_equal(array, fresh[name])
            assert np.shares_memory(array, out[name])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: a.astype(np.int64),
        lambda a: a[:1],
        np.asfortranarray,
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: np.zeros((2, 16), np.int32)[:, ::2],
        lambda a: None,
    ],
)
def test_buffers_that_do_not_fit_are_refused(corpora: Made, spoil: Any) -> None:
    with one(corpora) as gatherer:
        out = gatherer.batch(TABLE)
        out["labels"] = spoil(out["labels"])
        with pytest.raises(UsageError) as caught:
            gatherer.batch(TABLE, out)
        assert caught.value.code == "USE003"
        assert "labels" in str(caught.value)


# ---- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"row_tokens": 0}, {"row_tokens": 1 << 31}, {"row_ahead": 2}, {"threads": 0}, {"vocab": 0}, {"dtype": "uint16"},
        {"dtype": ">i4"}, {"dtype": "float32"},
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_right(corpora: Made, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        one(corpora, **options)
    assert caught.value.code == "USE003"


def columns(**changes: Any) -> SpanTable:
    said: dict[str, Any] = {"splits": [0, 1], "begin": [3], "length": [8], "corpus": 0, "flags": Flag.AHEAD, **changes}
    return SpanTable.of(said.pop("splits"), said.pop("begin"), said.pop("length"), **said)


BAD = [
    (columns(length=[9]), "PCK001"),
    (columns(splits=[0, 2], begin=[3, 9], length=[4, 5], flags=[0, 0]), "PCK001"),
    (columns(splits=[0, 2], begin=[3, 0], length=[4, 5], flags=[0, Flag.PAD]), "PCK001"),
    (columns(corpus=7), "ORD003"),
    (columns(corpus=-1), "ORD003"),
    (columns(begin=[-1]), "ORD003"),
    (columns(begin=[1 << 62]), "ORD003"),
    (columns(length=[-1]), "ORD004"),
    (columns(length=[0], flags=0), "ORD004"),
    (columns(splits=[0, 2], begin=[3, 9], length=[4, 4], flags=[Flag.AHEAD, 0]), "ORD004"),
    (columns(splits=[0]), "ORD004"),
    (columns(splits=[]), "ORD004"),
    (columns(splits=[1, 1]), "ORD004"),
    (columns(splits=[0, 5]), "ORD004"),
    (columns(splits=[0, 2, 1], begin=[3, 9], length=[4, 4], flags=0), "ORD004"),
]


@pytest.mark.parametrize(("table", "code"), BAD)
def test_tables_that_are_not_well_formed(corpora: Made, table: SpanTable, code: str) -> None:
    with one(corpora) as gatherer, pytest.raises(OrderError) as caught:
        gatherer.batch(table)
    assert caught.value.code == code


@pytest.mark.parametrize("short", range(1, 7))
@pytest.mark.parametrize("policy", ["plain", "documents"])
@pytest.mark.parametrize("document", [-1, 0])
def test_columns_of_different_lengths_are_refused(corpora: Made, short: int, policy: str, document: int) -> None:
    whole = columns(splits=[0, 2], begin=[3, 9], length=[4, 4], flags=0, document=document, start=document)
    cut_short = SpanTable(*(column[:-1] if k == short else column for k, column in enumerate(whole.columns())))
    # Plain rows never look at documents.
    if policy == "plain" and short in (4, 5):
        return
    with one(corpora, policy) as gatherer, pytest.raises(OrderError) as caught:
        gatherer.batch(cut_short)
    assert caught.value.code == "ORD004"


def test_a_look_ahead_past_the_end_is_refused(corpora: Made) -> None:
    size = len(corpora.streams[0])
    with one(corpora) as gatherer:
        gatherer.batch(columns(begin=[size - 8], flags=0))
        with pytest.raises(OrderError) as caught:
            gatherer.batch(columns(begin=[size - 8]))
    assert caught.value.code == "ORD003"


def test_more_pieces_than_the_edges_have_room_for(corpora: Made) -> None:
    for how in ("rows", "batch"):
        with one(corpora, {**DOCUMENTS, "cu_seqlens": how, "cu_seqlens_length": 2}) as gatherer:
            crowded = columns(splits=[0, 3], begin=[3, 30, 60], length=[2, 2, 4], flags=0)
            with pytest.raises(OrderError) as caught:
                gatherer.batch(crowded)
            assert caught.value.code == "PCK002"


# ---- ids that the model or the dtype cannot hold ------------------------------------------------------------------------


def test_an_id_beyond_the_vocabulary_is_named_with_its_shard_and_byte(tmp_path: Path) -> None:
    for shard in range(2):
        ids = np.arange(50) + 100 * shard
        ids[20] += 900 * shard
        write_pair(tmp_path, f"part_{shard}", "uint16", ids, [50])
    corpus = tokenreel.open(tmp_path)
    options: dict[str, Any] = {"row_tokens": 10, "row_ahead": 1, "vocab": 200}
    with Gatherer([corpus], "plain", **options) as gatherer:
        gatherer.batch(SpanTable.of([0, 1, 2], [0, 59], [10, 10], flags=Flag.AHEAD))
        for begin in (60, 62, 65):
            with pytest.raises(TokenError) as caught:
                gatherer.batch(SpanTable.of([0, 1], [begin], [10], flags=Flag.AHEAD))
            error = caught.value
            assert (error.code, error.where["shard"], error.where["offset"], error.found) == (
                "TOK041",
                "part_1",
                40,
                1020,
            )


def test_a_look_ahead_beyond_the_vocabulary_is_found_too(tmp_path: Path) -> None:
    write_pair(tmp_path, "part", "uint16", np.array([1, 2, 3, 4, 999]), [5])
    with Gatherer([tokenreel.open(tmp_path)], "plain", row_tokens=4, row_ahead=1, vocab=10) as gatherer:
        gatherer.batch(SpanTable.of([0, 1], [0], [4]))
        with pytest.raises(TokenError):
            gatherer.batch(SpanTable.of([0, 1], [0], [4], flags=Flag.AHEAD))


@pytest.mark.parametrize(("dtype", "found"), [("int16", -5), ("int64", -5), ("int32", -5)])
def test_negative_ids_are_outside_every_vocabulary(tmp_path: Path, dtype: str, found: int) -> None:
    write_pair(tmp_path, "part", dtype, np.array([1, 2, found, 4]), [4])
    corpus = tokenreel.open(tmp_path)
    with Gatherer([corpus], "plain", row_tokens=4, row_ahead=0, vocab=1 << 40, dtype="int64") as gatherer:
        with pytest.raises(TokenError) as caught:
            gatherer.batch(SpanTable.of([0, 1], [0], [4]))
    assert caught.value.found == found


@pytest.mark.parametrize("dtype", ["int64", "uint32"])
def test_an_id_that_does_not_fit_is_an_error_and_no_wrap(tmp_path: Path, dtype: str) -> None:
    ids = np.array([1, (1 << 31) + 5, 7, 8])
    if dtype == "uint32":
        ids.astype("<u4").tofile(tmp_path / "part.bin")
        corpus = tokenreel.open(tmp_path, dtype="uint32", boundary="suffix=8", accept=["FLT003"])
    else:
        write_pair(tmp_path, "part", dtype, ids, [4])
        corpus = tokenreel.open(tmp_path)
    table = SpanTable.of([0, 1], [0], [4])
    with Gatherer([corpus], "plain", row_tokens=4, row_ahead=0, dtype="int64") as gatherer:
        assert gatherer.batch(table)["input_ids"].tolist() == [ids.tolist()]
    with Gatherer([corpus], "plain", row_tokens=4, row_ahead=0, dtype="int32") as gatherer:
        with pytest.raises(TokenError) as caught:
            gatherer.batch(table)
    assert (caught.value.code, caught.value.found) == ("TOK041", (1 << 31) + 5)


# ---- shards -----------------------------------------------------------------------------------------------------------


def test_a_shard_that_shrinks_while_it_is_mapped_is_an_error(tmp_path: Path) -> None:
    write_pair(tmp_path, "part", "uint16", np.arange(1000), [1000])
    corpus = tokenreel.open(tmp_path)
    table = SpanTable.of([0, 1], [0], [8], flags=Flag.AHEAD)
    with Gatherer([corpus], "plain", row_tokens=8, row_ahead=1) as gatherer:
        assert gatherer.batch(table)["input_ids"].tolist() == [list(range(8))]
        with (tmp_path / "part.bin").open("r+b") as file:
            file.truncate(100)
        with pytest.raises(StorageError) as caught:
            gatherer.batch(table)
    assert caught.value.code == "STO004"


def test_another_file_in_a_shards_place_is_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_pair(tmp_path, name, "uint16", np.arange(1000), [1000])
    corpus = tokenreel.open(tmp_path)
    assert corpus[1][0] == 0
    (tmp_path / "b.bin").rename(tmp_path / "other")
    (tmp_path / "b.bin").write_bytes((tmp_path / "other").read_bytes())
    with Gatherer([corpus], "plain", row_tokens=8, row_ahead=1) as gatherer:
        gatherer.batch(SpanTable.of([0, 1], [0], [8], flags=Flag.AHEAD))
        with pytest.raises(StorageError) as caught:
            gatherer.batch(SpanTable.of([0, 1], [1000], [8], flags=Flag.AHEAD))
    assert caught.value.code == "STO004"


def many_shards(folder: Path, count: int) -> tuple[Any, np.ndarray]:
    for number in range(count):
        write_pair(folder, f"part_{number:03d}", "uint16", np.arange(50) + 100 * number, [50])
    corpus = tokenreel.open(folder)
    return corpus, corpus.stream(0, corpus.tokens)


@pytest.mark.parametrize("maps", [1, 3, 64])
def test_no_more_shards_are_mapped_than_allowed(tmp_path: Path, maps: int) -> None:
    corpus, stream = many_shards(tmp_path, 20)
    generator = np.random.Generator(np.random.PCG64(0))
    with Gatherer([corpus], "plain", row_tokens=60, row_ahead=1, maps=maps) as gatherer:
        for _ in range(30):
            begin = generator.integers(0, len(stream) - 61, 8)
            batch = gatherer.batch(SpanTable.of(np.arange(9), begin, 60, flags=Flag.AHEAD))
            expected = stream[begin[:, None] + np.arange(61)]
            assert np.array_equal(batch["input_ids"], expected[:, :-1])
            assert np.array_equal(batch["labels"], expected[:, 1:])
            assert gatherer._memory.maps <= maps


@pytest.mark.parametrize("maps", [0, 2, 64])
def test_several_threads_may_ask_at_once(tmp_path: Path, maps: int) -> None:
    corpus, stream = many_shards(tmp_path, 12)
    policy = {**DOCUMENTS, "ends": "next"}
    with Gatherer([corpus], policy, row_tokens=60, row_ahead=1, maps=maps) as gatherer:

        def read(seed: int) -> bool:
            generator = np.random.Generator(np.random.PCG64(seed))
            right = True
            for _ in range(40):
                begin = generator.integers(0, len(stream) - 61, seed % 3 + 1)
                table = SpanTable.of(np.arange(len(begin) + 1), begin, 60, flags=Flag.AHEAD)
                expected = stream[begin[:, None] + np.arange(61)]
                batch = gatherer.batch(table)
                right &= np.array_equal(batch["input_ids"], expected[:, :-1])
                right &= np.array_equal(batch["labels"], expected[:, 1:])
            return right

        with ThreadPoolExecutor(6) as threads:
            assert all(threads.map(read, range(12)))


def test_maps_follow_a_stream_through_its_shards(tmp_path: Path) -> None:
    corpus, stream = many_shards(tmp_path, 6)
    with Gatherer([corpus], "plain", row_tokens=5, row_ahead=0, maps=2) as gatherer:
        for shard in range(6):
            for _ in range(70):
                batch = gatherer.batch(SpanTable.of([0, 1], [50 * shard], [5]))
                assert batch["input_ids"][0].tolist() == stream[50 * shard : 50 * shard + 5].tolist()
            assert shard in gatherer._memory._mapped


def test_without_maps_everything_is_read_all_the_same(tmp_path: Path) -> None:
    corpus, stream = many_shards(tmp_path, 3)
    with Gatherer([corpus], "plain", row_tokens=120, row_ahead=1, maps=0) as gatherer:
        batch = gatherer.batch(SpanTable.of([0, 1], [10], [120], flags=Flag.AHEAD))
        assert batch["input_ids"][0].tolist() == stream[10:130].tolist()
        assert gatherer._memory.maps == 0


def test_a_slice_is_read_from_where_it_begins(corpora: Made) -> None:
    corpus = corpora.corpora[0]
    part = corpus[10:40]
    begin = corpus.table().offsets_at(np.array([10]))[0]
    with Gatherer([part], "plain", row_tokens=8, row_ahead=1) as gatherer:
        batch = gatherer.batch(SpanTable.of([0, 1], [2], [8], flags=Flag.AHEAD))
        assert batch["input_ids"][0].tolist() == corpora.streams[0][begin + 2 : begin + 10]
        with pytest.raises(OrderError):
            gatherer.batch(SpanTable.of([0, 1], [part.tokens - 8], [8], flags=Flag.AHEAD))


def test_arrays_stay_when_the_gatherer_is_gone(tmp_path: Path) -> None:
    corpus, stream = many_shards(tmp_path, 2)
    gatherer = Gatherer([corpus], "plain", row_tokens=8, row_ahead=1)
    batch = gatherer.batch(SpanTable.of([0, 1], [3], [8], flags=Flag.AHEAD))
    gatherer.close()
    corpus.close()
    for path in tmp_path.iterdir():
        path.unlink()
    assert batch["input_ids"][0].tolist() == stream[3:11].tolist()


# ---- weights ----------------------------------------------------------------------------------------------------------


class WeightedShard:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def weights(self, begin: int, end: int) -> np.ndarray:
        return (np.arange(begin, end) % 5).astype(np.float32)


def test_weights_of_labels_and_documents_enter_the_mask(tmp_path: Path) -> None:
    write_pair(tmp_path, "part", "uint16", np.arange(30), [12, 18])
    corpus = tokenreel.open(tmp_path)
    corpus._shards[0] = WeightedShard(corpus.shard(0))  # type: ignore[assignment]
    per_document = [np.array([1.0, 10.0], dtype=np.float32)]
    policy = {**DOCUMENTS, "weights": True, "ends": "next"}
    with Gatherer([corpus], policy, row_tokens=10, row_ahead=1, document_weights=per_document) as gatherer:
        mask = gatherer.batch(SpanTable.of([0, 1, 2], [0, 6], [10, 10], flags=Flag.AHEAD))["loss_mask"]
    assert mask[0].tolist() == [float(k % 5) for k in range(1, 11)]
    # The label of token 11, the last of the first document, is token 12, of the second one.
    assert mask[1].tolist() == [float(k % 5) * (1.0 if k < 12 else 10.0) for k in range(7, 17)]


def test_a_document_of_no_weight_leaves_the_next_one_s_label(tmp_path: Path) -> None:
    """Across the row's edge too, where that label is the look-ahead."""
    write_pair(tmp_path, "part", "uint16", np.arange(30), [12, 18])
    policy = {**DOCUMENTS, "weights": True, "ends": "next"}
    weights = [np.array([0.0, 3.0], dtype=np.float32)]
    options: dict[str, Any] = {"row_tokens": 6, "row_ahead": 1, "document_weights": weights}
    with Gatherer([tokenreel.open(tmp_path)], policy, **options) as gatherer:
        mask = gatherer.batch(SpanTable.of([0, 1, 2], [6, 9], [6, 6], flags=Flag.AHEAD))["loss_mask"]
    assert mask.tolist() == [[0, 0, 0, 0, 0, 3], [0, 0, 3, 3, 3, 3]]


def test_weights_have_to_be_as_many_as_documents(tmp_path: Path) -> None:
    write_pair(tmp_path, "part", "uint16", np.arange(30), [12, 18])
    wrong = [np.ones(3, dtype=np.float32)]
    with pytest.raises(UsageError) as caught:
        Gatherer(
            [tokenreel.open(tmp_path)],
            {**DOCUMENTS, "weights": True},
            row_tokens=4,
            row_ahead=1,
            document_weights=wrong,
        )
    assert caught.value.code == "USE003"
