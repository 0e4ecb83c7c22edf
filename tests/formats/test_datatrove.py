"""datatrove's trios: what it wrote decodes, what does not go together has a code of its own, writing gives it back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.formats.flat_cases import documents, mutated, read, survives, write
from tokenreel.errors import FormatError, StorageError, UsageError
from tokenreel.formats.datatrove import for_people, open_file, open_writer, recognise, shard_name
from tokenreel.formats.writing import WeightsShard, WriteOptions
from tokenreel.store import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "datatrove"
DOCUMENTS = json.loads((GOLDEN / "documents.json").read_text())
LOSS = json.loads((GOLDEN / "loss.json").read_text())


def trio(
    ids: list[int], ends: list[int], *, width: int = 2, metadata: str | None = None, loss: bytes | None = None
) -> dict[str, bytes]:
    files = {"x.ds": np.array(ids, f"<u{width}").tobytes(), "x.ds.index": np.array(ends, "<u8").tobytes()}
    if metadata is not None:
        files["x.ds.metadata"] = metadata.encode()
    if loss is not None:
        files["x.ds.loss"] = loss
    return files


FILES = trio([500, 501, 502, 503, 504], [2, 2, 5], metadata="gpt2|2\n5\n5.00 T", loss=b"\1\0\1\1\1")


def code_of(files: dict[str, bytes], *accept: str) -> str:
    with pytest.raises(FormatError) as caught:
        open_file(MemoryStore(files), "x.ds", accept=accept).check_table()
    return caught.value.code


@pytest.mark.parametrize("path", sorted(DOCUMENTS))
def test_golden(path: str) -> None:
    store = LocalStore(GOLDEN)
    shard = open_file(store, path)
    assert read(shard) == DOCUMENTS[path]
    assert (shard.format, shard.tokenizer, shard.dtype.name) == ("datatrove", "gpt2", "uint16")
    found = recognise(store, store.list(path.partition("/")[0]))
    assert shard.files in [one.files for one in found]


def test_a_folder_is_a_corpus() -> None:
    corpus = tokenreel.open(GOLDEN / "merged")  # m.ds.metadata counts both files and is no shard
    assert [ids.tolist() for ids in corpus] == DOCUMENTS["merged/000_m.ds"] + DOCUMENTS["merged/001_m.ds"]
    for name in ("000_m.ds", "000_m.ds.index", "000_m.ds.metadata", "000_m"):
        assert len(tokenreel.open(GOLDEN / "merged" / name)) == 8


def test_weights() -> None:
    shard = open_file(LocalStore(GOLDEN), "loss/00000_unshuffled.ds")
    assert isinstance(shard, WeightsShard)
    weights = shard.weights(0, shard.tokens)
    assert weights is not None
    assert weights.dtype == np.float32
    assert weights.tolist() == LOSS
    assert open_file(LocalStore(GOLDEN), "plain/00000_unshuffled.ds").weights(0, 3) is None
    files = {**FILES, "x.ds.loss": b"\1\0\1\2\1"}
    with pytest.raises(FormatError, match="DTV008") as caught:
        open_file(MemoryStore(files), "x.ds").weights(1, 5)
    assert caught.value.where["offset"] == 3


def test_every_rule() -> None:
    assert read(open_file(MemoryStore(FILES), "x.ds")) == [[500, 501], [], [502, 503, 504]]
    without = {name: data for name, data in FILES.items() if name != "x.ds.metadata"}
    assert open_file(MemoryStore(without), "x.ds").dtype.name == "uint16"
    for name in ("x.ds", "x.ds.index"):
        assert code_of({other: data for other, data in FILES.items() if other != name}) == "DTV001"
    assert code_of({**FILES, "x.ds.index": FILES["x.ds.index"][:-1]}) == "DTV002"
    assert code_of(trio([5] * 5, [2, 1, 5])) == code_of(trio([5] * 5, [2, 6, 5])) == "DTV003"
    assert code_of(trio([5] * 5, [2, (1 << 64) - 1, 5])) == code_of(trio([5] * 5, [1 << 63, 5])) == "DTV003"
    assert code_of(trio([5] * 5, [2, 4])) == code_of(trio([5] * 5, [])) == "DTV004"
    assert code_of({**FILES, "x.ds": FILES["x.ds"][:-2], "x.ds.metadata": b"g|2\n4\n4"}) == "DTV004"
    for text in ("", "gpt2\n5\n", "gpt2|3\n5\n", "gpt2|2\nfive\n", "gpt2|2\n-5\n", "gpt2|2", "a|2\n" + "9" * 30):
        assert code_of({**FILES, "x.ds.metadata": text.encode()}) == "DTV005"
    assert code_of({**FILES, "x.ds.metadata": b"gpt2|2\n5\n" + b" " * 70_000}) == "DTV005"
    assert code_of({**FILES, "x.ds.metadata": b"gpt2|4\n5\n"}) == "DTV006"
    assert code_of({**FILES, "x.ds.metadata": b"gpt2|2\n6\n"}) == "DTV006"
    assert code_of({**FILES, "x.ds.loss": b"\1" * 4}) == "DTV007"


def test_datatrove_without_a_name_writes_the_width_twice() -> None:
    shard = open_file(MemoryStore({**FILES, "x.ds.metadata": b"Unknown Tokenizer|2|2\n5\n5 T"}), "x.ds")
    assert (shard.tokenizer, shard.dtype.name) == ("Unknown Tokenizer|2", "uint16")


def test_files_merged_as_if_of_two_bytes() -> None:
    # datatrove's merger without metadata took 7 ids of 32 bits for 7 of 16: the index fits the halves that are left.
    halves = np.array([131073, 131072, 7, 70000, 9, 4, 5], "<u4").view("<u2")[:7].tolist()
    files = trio([*halves[:6], 9, 0] * 4, [8, 16, 32])
    assert code_of(files) == "DTV009"
    assert read(open_file(MemoryStore(files), "x.ds", accept=["DTV009"]))[0][-1] == 0


def test_the_index_proves_the_width() -> None:
    wide = open_file(MemoryStore(trio([70_000, 5, 6], [1, 3], width=4)), "x.ds")
    assert (wide.dtype.name, read(wide)) == ("uint32", [[70_000], [5, 6]])
    empty = open_file(MemoryStore(trio([], [])), "x.ds")
    assert (empty.documents, empty.tokens) == (0, 0)
    assert read(open_file(MemoryStore(trio([], [0, 0])), "x.ds")) == [[], []]


def test_numbers_for_people() -> None:
    shown = {
        5: "5.00 T",
        48: "48.0 T",
        339: "339 T",
        1000: "1.00 kT",
        54_321: "54.3 kT",
        999_999: "1.00 MT",
        10**9: "1.00 GT",
    }
    assert {count: for_people(count) for count in shown} == shown


@given(documents(), st.booleans(), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, docs: list[list[int]], weighted: bool, calls: int
) -> None:
    root = tmp_path_factory.mktemp("datatrove")
    tokens = sum(map(len, docs))
    weights = [k % 2 for k in range(tokens)] if weighted else None
    files = write(open_writer, root, "00000_unshuffled", docs, weights=weights, calls=calls, tokenizer="gpt2")
    assert len(files) == 4 if weighted else 3
    shard = open_file(LocalStore(root), "00000_unshuffled.ds")
    assert read(shard) == docs
    got = shard.weights(0, tokens)
    assert (None if got is None else got.tolist()) == weights


@given(documents((1 << 32) - 1))
@settings(max_examples=25, deadline=None)
def test_wide_ids(tmp_path_factory: pytest.TempPathFactory, docs: list[list[int]]) -> None:
    root = tmp_path_factory.mktemp("datatrove")
    write(open_writer, root, "a/x", docs, dtype="uint32")
    assert read(open_file(LocalStore(root), "a/x.ds")) == docs


@pytest.mark.parametrize("path", sorted(DOCUMENTS))
def test_golden_written_again_is_the_same(tmp_path: Path, path: str) -> None:
    weights = LOSS if path.startswith("loss") else None
    write(open_writer, tmp_path, path.removesuffix(".ds"), DOCUMENTS[path], tokenizer="gpt2", weights=weights)
    for suffix in ("", ".index", ".metadata", *((".loss",) if weights else ())):
        assert (tmp_path / (path + suffix)).read_bytes() == (GOLDEN / (path + suffix)).read_bytes()


def test_weights_that_come_late_or_cannot_be_kept(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, "x", WriteOptions("uint16"))
    writer.add_documents(np.array([1, 2], "u2"), np.array([2]))
    with pytest.raises(FormatError, match="DTV008") as caught:
        writer.add_documents(np.array([3, 4], "u2"), np.array([1, 1]), np.array([1, 0.5], "f4"))
    assert caught.value.where["document"] == 2
    writer.add_documents(np.array([3], "u2"), np.array([1]), np.array([0], "f4"))
    writer.add_documents(np.array([4], "u2"), np.array([1]))
    writer.finish()
    weights = open_file(LocalStore(tmp_path), "x.ds").weights(0, 4)
    assert weights is not None
    assert weights.tolist() == [1, 1, 0, 1]


def test_writing_refuses(tmp_path: Path) -> None:
    for name in ("a|b", "a\nb"):
        with pytest.raises(UsageError, match="USE003"):
            open_writer(tmp_path, "x", WriteOptions("uint16", options={"tokenizer": name}))
    assert not list(tmp_path.iterdir())
    assert shard_name(7, WriteOptions("uint16")) == "00007_unshuffled"


def test_a_finish_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, "x", WriteOptions("uint16"))
    writer.add_documents(np.array([1, 2], "u2"), np.array([2]))
    (tmp_path / "x.ds.index").mkdir()  # the second file cannot get its name
    (tmp_path / "x.ds.index" / "y").touch()
    with pytest.raises(StorageError, match="STO003"):
        writer.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["x.ds.index"]


@pytest.mark.parametrize("target", sorted(FILES))
@given(st.data())
def test_no_damage_crashes(target: str, data: st.DataObject) -> None:
    survives(open_file, FILES, "x.ds", data.draw(mutated(FILES[target])), target, ["DTV"])
