"""Offset shards: the golden ones decode, the bad ones have codes of their own, what is written is read back."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.formats.flat_cases import documents, mutated, read, survives, write
from tokenreel.errors import DocumentError, FormatError, OrderError, StorageError, TokenError, TokenreelError
from tokenreel.formats import ounce
from tokenreel.formats.ounce import open_file, open_writer, recognise, shard_name
from tokenreel.formats.ounce_manifest import read_manifest
from tokenreel.formats.writing import FinishedShard, WriteOptions
from tokenreel.store import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "ounce"
DOCUMENTS = json.loads((GOLDEN / "documents.json").read_text())
BAD = {
    "offsets0_nonzero": ("OFF004", 16),
    "offsets_last": ("OFF006", 308),
    "short": ("OFF002", 3491),
    "unknown_flags": ("OFF003", 12),
    "vocab_violation": ("OFF007", 312),
}
SMALL = struct.pack("<4I4I5H", 100, 3, 5, 0, 0, 2, 2, 5, 5, 6, 7, 8, 9)


def code_of(data: bytes) -> str:
    with pytest.raises(FormatError) as caught:
        open_file(MemoryStore({"x.bin": data}), "x.bin").check_table()
    return caught.value.code


@pytest.mark.parametrize("path", sorted(DOCUMENTS))
def test_golden(path: str) -> None:
    shard = open_file(LocalStore(GOLDEN), path)
    assert read(shard) == DOCUMENTS[path]
    assert (shard.format, shard.vocab, shard.dtype.name, shard.boundary.table) == ("ounce-v1", 49152, "uint16", True)
    assert recognise(LocalStore(GOLDEN), LocalStore(GOLDEN).list(path))[0].files == (path,)


@pytest.mark.parametrize("name", sorted(BAD))
def test_each_bad_shard_has_a_code_of_its_own(name: str) -> None:
    with pytest.raises(FormatError) as caught:
        tokenreel.open(GOLDEN / "bad" / f"{name}.bin")
    assert (caught.value.code, caught.value.where["offset"]) == BAD[name]


def test_codes_are_distinct() -> None:
    assert len({code for code, _ in BAD.values()}) == len(BAD)


def test_the_folder_has_the_manifest_s_splits(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("bad"))
    corpus = tokenreel.open(tmp_path)
    assert corpus.splits == ("train", "val")
    assert [ids.tolist() for ids in corpus.split("val")] == DOCUMENTS["val/shard_00000.bin"]
    assert len(corpus.split("train")) == 226
    assert read_manifest(LocalStore(tmp_path))[4].split == "val"
    (tmp_path / "shard_00001.bin").rename(tmp_path / "shard_00009.bin")
    with pytest.raises(FormatError, match="OFF010"):
        tokenreel.open(tmp_path)
    (tmp_path / "shard_00009.bin").unlink()
    with pytest.raises(FormatError, match="OFF010"):
        tokenreel.open(tmp_path)
    (tmp_path / "manifest.json").unlink()
    assert tokenreel.open(tmp_path).documents == 162


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[", "MAN001"),
        ('{"train": {"shards": [{"file": 3}]}}', "OFF009"),
        ('{"train": {"shards": [{"file": "shard_00000.bin", "bytes": true}]}}', "OFF009"),
        ('{"train": {"shards": [{"file": "shard_00000.bin", "bytes": 3}]}}', "OFF010"),
        ('{"train": {"shards": [{"file": "shard_00000.bin"}, {"file": "shard_00000.bin"}]}}', "OFF010"),
        ('{"train": {"shards": []}, "train": 1}', "MAN002"),
    ],
)
def test_wrong_manifests(tmp_path: Path, text: str, code: str) -> None:
    shutil.copy(GOLDEN / "shard_00000.bin", tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(TokenreelError, match=code):
        tokenreel.open(tmp_path)


def test_another_s_manifest_says_nothing(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "shard_00000.bin", tmp_path)
    (tmp_path / "manifest.json").write_text('{"train": 3, "val": {"shards": {}}}')
    assert tokenreel.open(tmp_path).documents == 73


def test_every_rule() -> None:
    assert read(open_file(MemoryStore({"x.bin": SMALL}), "x.bin")) == [[5, 6], [], [7, 8, 9]]
    words = [100, 3, 5, 0, 0, 2, 2, 5]

    def with_word(number: int, value: int) -> bytes:
        changed = [*words[:number], value, *words[number + 1 :]]
        return struct.pack("<8I", *changed) + SMALL[32:]

    assert code_of(with_word(0, 0)) == code_of(with_word(0, 65537)) == "OFF001"
    assert code_of(with_word(1, 4)) == code_of(with_word(2, 6)) == code_of(SMALL + b"\0") == "OFF002"
    assert code_of(with_word(1, (1 << 32) - 1)) == code_of(b"") == "OFF002"
    assert code_of(with_word(3, 1)) == "OFF003"
    assert code_of(with_word(4, 1)) == "OFF004"
    assert code_of(with_word(6, 1)) == code_of(with_word(5, (1 << 32) - 1)) == "OFF005"
    assert code_of(with_word(7, 4)) == "OFF006"
    assert code_of(with_word(0, 9)) == "OFF007"


def test_a_large_shard_is_sampled() -> None:
    ids = np.zeros(1 << 20, "<u2")
    ids[-1] = 500
    data = struct.pack("<4I2I", 500, 1, len(ids), 0, 0, len(ids)) + ids.tobytes()
    assert code_of(data) == "OFF007"
    ids[-1], ids[2_000] = 0, 500  # between the stretches: for `verify`
    data = data[:24] + ids.tobytes()
    assert open_file(MemoryStore({"x.bin": data}), "x.bin").vocab == 500


def test_what_is_taken_for_one() -> None:
    def meant(data: bytes) -> bool:
        store = MemoryStore({"x.bin": data})
        return bool(recognise(store, store.list()))

    assert meant(SMALL)
    assert meant(SMALL[:-1])
    assert meant(b"\xff" * 4 + SMALL[4:])  # the vocabulary is wrong, all else fits
    assert meant(SMALL[:28] + b"\1" + SMALL[29:])
    assert meant(struct.pack("<4I1I", 100, 0, 0, 0, 0))
    assert not meant(bytes(20))
    assert not meant(np.arange(400, dtype="<u2").tobytes())
    assert not meant(np.arange(400, dtype="<u4").tobytes())
    assert not meant(b"")


@given(documents(), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, docs: list[list[int]], calls: int) -> None:
    root = tmp_path_factory.mktemp("ounce")
    (file,) = write(open_writer, root, "a/shard_00000", docs, calls=calls)
    assert file.path == "a/shard_00000.bin"
    shard = open_file(LocalStore(root), file.path)
    assert read(shard) == docs
    assert shard.vocab == 65536


def test_golden_written_again_is_the_same(tmp_path: Path) -> None:
    for path, docs in DOCUMENTS.items():
        write(open_writer, tmp_path, path.removesuffix(".bin"), docs, vocab=49152)
        assert (tmp_path / path).read_bytes() == (GOLDEN / path).read_bytes()


def test_the_manifest_that_is_written(tmp_path: Path) -> None:
    options = WriteOptions("uint16", options={"vocab": 49152, "audit": {"method": "13-grams"}, "seed": 7})
    shards = []
    for path, docs in DOCUMENTS.items():
        files = write(open_writer, tmp_path, path.removesuffix(".bin"), docs, vocab=49152)
        shards.append(FinishedShard(path.removesuffix(".bin"), len(docs), sum(map(len, docs)), files))
    written = ounce.finish_folder(tmp_path, shards, options)
    assert [file.path for file in written] == ["manifest.json", "audit.json"]
    golden = json.loads((GOLDEN / "manifest.json").read_text())
    ours = json.loads((tmp_path / "manifest.json").read_text())
    for split in ("train", "val"):
        assert ours[split]["tokens"] == golden[split]["tokens"]
        keep = ("file", "bytes", "sha256", "n_docs", "n_tokens")
        assert ours[split]["shards"] == [{key: entry[key] for key in keep} for entry in golden[split]["shards"]]
    assert tokenreel.open(tmp_path).splits == ("train", "val")
    assert shard_name(3, options) == "shard_00003"
    (tmp_path / "mine.json").write_text('{"n": 13}')
    ounce.finish_folder(tmp_path, shards, WriteOptions("uint16", options={"audit": str(tmp_path / "mine.json")}))
    assert json.loads((tmp_path / "audit.json").read_text()) == {"n": 13}
    for audit, code in (("absent", "STO001"), ([1], "USE003"), (str(GOLDEN / "README.md"), "MAN001")):
        with pytest.raises(TokenreelError, match=code):
            ounce.finish_folder(tmp_path, shards, WriteOptions("uint16", options={"audit": audit}))


def test_writing_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TokenError, match="TOK041") as caught:
        write(open_writer, tmp_path, "a", [[1], [2, 100]], vocab=100)
    assert caught.value.where["document"] == 1
    for vocab in (65537, -1, "x"):
        with pytest.raises(FormatError, match="OFF001"):
            open_writer(tmp_path, "a", WriteOptions("uint16", options={"vocab": vocab}))
    monkeypatch.setattr(ounce, "MOST", 3)
    with pytest.raises(FormatError, match="OFF008"):
        write(open_writer, tmp_path, "a", [[1, 2], [3, 4]])


def test_abort_leaves_nothing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, "a", WriteOptions("uint16"))
    writer.add_documents(np.array([1, 2], "u2"), np.array([2]))
    writer.abort()
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="STO003"):
        open_writer(tmp_path / "file", "a", WriteOptions("uint16"))


def test_positions_outside() -> None:
    shard = open_file(MemoryStore({"x.bin": SMALL}), "x.bin")
    with pytest.raises(DocumentError, match="DOC001"):
        shard.document_edges(0, 4)
    with pytest.raises(DocumentError, match="DOC001"):
        shard.document_sequences(-1, 1)
    with pytest.raises(OrderError, match="ORD003"):
        shard.read(0, 6)
    with pytest.raises(OrderError, match="ORD003"):
        shard.documents_at(np.array([5]))
    assert shard.read(1, 1).size == shard.documents_at(np.array([], dtype=np.int64)).size == 0
    with pytest.raises(FormatError, match="OFF005"):
        open_file(MemoryStore({"x.bin": SMALL[:24] + b"\7" + SMALL[25:]}), "x.bin")


def test_a_large_table_is_checked_when_it_is_used() -> None:
    edges = np.zeros(6001, "<u4")
    edges[5000] = 1
    broken = open_file(MemoryStore({"x.bin": struct.pack("<4I", 9, 6000, 0, 0) + edges.tobytes()}), "x.bin")
    for _ in range(2):
        with pytest.raises(FormatError, match="OFF005") as caught:
            broken.document(0)
        assert (caught.value.where["document"], caught.value.where["offset"]) == (5000, 16 + 4 * 5001)


@given(mutated(SMALL))
def test_no_damage_crashes(data: bytes) -> None:
    shard = survives(open_file, {}, "x.bin", data, "x.bin", ["OFF"])
    assert (
        shard is None
        or data[16:32] != SMALL[16:32]
        or data[:4] != SMALL[:4]
        or data[32:] != SMALL[32:]
        or data == SMALL
    )


def test_many_documents_and_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenreel.formats import tabled

    monkeypatch.setattr(tabled, "CHUNK", 4)
    lengths = np.random.default_rng(3).integers(0, 4, 50)
    edges = np.concatenate(([0], np.cumsum(lengths)))
    total = int(edges[-1])
    data = struct.pack("<4I", 9, 50, total, 0) + edges.astype("<u4").tobytes() + bytes(2 * total)
    shard = open_file(MemoryStore({"x.bin": data}), "x.bin")
    assert shard.documents_at(np.arange(total)).tolist() == np.repeat(np.arange(50), lengths).tolist()
