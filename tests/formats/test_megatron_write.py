from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.megatron_cases import GOLDEN, MANIFEST, READABLE, corpora, documents_of, golden
from tests.formats.megatron_reference import Documents, build, parse
from tokenreel.errors import FormatError, StorageError, TokenError, UsageError
from tokenreel.formats import megatron_write
from tokenreel.formats.megatron import open_pair
from tokenreel.formats.megatron_check import check_pair
from tokenreel.formats.megatron_write import MegatronWriter, choose_dtype
from tokenreel.store import LocalStore, MapPool, remove_leftovers


def bytes_of(prefix: Path) -> tuple[bytes, bytes]:
    return prefix.with_name(f"{prefix.name}.idx").read_bytes(), prefix.with_name(f"{prefix.name}.bin").read_bytes()


def everything_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208 (hidden files too)


@given(corpora())
def test_add_document_writes_what_the_reference_writes(tmp_path_factory: Any, corpus: tuple[str, Documents]) -> None:
    dtype, documents = corpus
    prefix = tmp_path_factory.mktemp("w") / "p"
    with MegatronWriter(prefix, dtype, one_sequence_per_document=False) as writer:
        for document in documents:
            writer.add_document([np.array(sequence, dtype=np.int64) for sequence in document])
        files = writer.finish()
    assert bytes_of(prefix) == build(documents, dtype)
    assert everything_in(prefix.parent) == ["p.bin", "p.idx"]
    for file, data in zip(files, reversed(bytes_of(prefix)), strict=True):
        assert (file.bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert documents_of(open_pair(LocalStore(prefix.parent, MapPool()), "p")) == documents


@given(corpora(plain=True), st.data())
def test_add_documents_in_any_batches_writes_the_same(
    tmp_path_factory: Any, corpus: tuple[str, Documents], data: st.DataObject
) -> None:
    dtype, documents = corpus
    prefix = tmp_path_factory.mktemp("w") / "p"
    width = data.draw(st.sampled_from(["int64", dtype]))
    with MegatronWriter(prefix, dtype) as writer:
        begin = 0
        while begin < len(documents):
            end = data.draw(st.integers(begin + 1, len(documents)))
            batch = [document[0] for document in documents[begin:end]]
            ids = np.array([i for sequence in batch for i in sequence], dtype=width)
            writer.add_documents(ids, np.array([len(sequence) for sequence in batch]))
            begin = end
        writer.finish()
    assert bytes_of(prefix) == build(documents, dtype)


@given(corpora())
def test_add_documents_of_several_sequences(tmp_path_factory: Any, corpus: tuple[str, Documents]) -> None:
    dtype, documents = corpus
    prefix = tmp_path_factory.mktemp("w") / "p"
    sequences = [sequence for document in documents for sequence in document]
    with MegatronWriter(prefix, dtype, one_sequence_per_document=False) as writer:
        writer.add_documents(
            np.array([i for sequence in sequences for i in sequence], dtype=dtype),
            np.array([len(sequence) for sequence in sequences], dtype=np.uint32),
            sequences=np.array([len(document) for document in documents], dtype=np.int16),
        )
        writer.finish()
    assert bytes_of(prefix) == build(documents, dtype)


@pytest.mark.parametrize("name", READABLE)
def test_golden_pairs_are_rewritten_byte_for_byte(tmp_path: Path, name: str) -> None:
    shard = open_pair(LocalStore(GOLDEN), f"data/{name}")
    with MegatronWriter(tmp_path / "p", shard.dtype, one_sequence_per_document=shard.plain) as writer:
        for document in documents_of(shard):
            writer.add_document([np.array(sequence, dtype=shard.dtype) for sequence in document])
        payload, index = writer.finish()
    facts = MANIFEST["datasets"][name]
    assert (payload.sha256, index.sha256) == (facts["sha256_bin"], facts["sha256_idx"])
    assert bytes_of(tmp_path / "p") == golden(f"data/{name}")


def test_chunks_and_buffers_leave_no_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron_write, "_BUFFER_BYTES", 8)
    monkeypatch.setattr(megatron_write, "_TABLE_CHUNK", 3)
    documents: Documents = [[list(range(k % 5))] * (k % 4) for k in range(40)]
    with MegatronWriter(tmp_path / "p", "int16", one_sequence_per_document=False) as writer:
        for document in documents:
            writer.add_document([np.array(sequence, dtype="i8") for sequence in document])
        writer.finish()
    assert bytes_of(tmp_path / "p") == build(documents, "int16")


@pytest.mark.parametrize("plain", [True, False])
def test_nothing_written_is_an_empty_pair(tmp_path: Path, plain: bool) -> None:
    with MegatronWriter(tmp_path / "p", "uint16", one_sequence_per_document=plain) as writer:
        writer.add_documents(np.array([], dtype=np.uint16), np.array([], dtype=np.int64))
        writer.finish()
    assert bytes_of(tmp_path / "p") == build([], "uint16")
    shard = open_pair(LocalStore(tmp_path), "p")
    assert (shard.documents, shard.sequences, shard.tokens) == (0, 0, 0)
    assert list(check_pair(LocalStore(tmp_path), "p")) == []


@pytest.mark.parametrize(
    ("dtype", "bad"),
    [("uint16", 65536), ("uint16", -1), ("uint8", 256), ("int8", 128), ("int32", 1 << 31), ("int16", -32769)],
)
def test_an_id_that_does_not_fit_is_named(tmp_path: Path, dtype: str, bad: int) -> None:
    with MegatronWriter(tmp_path / "p", dtype) as writer:
        writer.add_documents(np.array([1, 2]), np.array([1, 1]))
        with pytest.raises(TokenError) as caught:
            writer.add_documents(np.array([3, 4, 5, bad, bad, 6]), np.array([0, 2, 3, 1]))
        error = caught.value
        assert (error.code, error.where["document"], error.found) == ("TOK010", 4, bad)
        assert "token 1 of sequence 4" in error.message
        assert dtype in error.message
        assert (writer.documents, writer.tokens) == (2, 2)  # refused input changes nothing
        writer.finish()
    assert bytes_of(tmp_path / "p") == build([[[1]], [[2]]], dtype)


def test_an_id_that_does_not_fit_is_named_by_document_of_several_sequences(tmp_path: Path) -> None:
    with MegatronWriter(tmp_path / "p", "uint16", one_sequence_per_document=False) as writer:
        writer.add_document([])
        with pytest.raises(TokenError) as caught:
            writer.add_documents(np.array([1, 2, 70000]), np.array([1, 0, 2]), sequences=np.array([1, 0, 2]))
        assert (caught.value.where["document"], caught.value.found) == (3, 70000)
        assert "token 1 of sequence 2" in caught.value.message
        with pytest.raises(TokenError, match="TOK010"):
            writer.add_document([np.array([1]), np.array([2**64 - 1], dtype=np.uint64)])


@pytest.mark.parametrize(
    ("ids", "lengths", "words"),
    [
        ([1, 2, 3, 4], [2, 1], "do not add up to the ids"),
        ([1], [2], "do not add up to the ids"),
        ([], [1], "do not add up to the ids"),
        ([1], [2, -1], "negative"),
        ([1, 2], [[1, 1]], "one-dimensional"),
        ([1], [1.0], "one-dimensional array of integers"),
        ([1], [1 << 62, 1 << 62, 1 << 62, 1 << 62, 1], "do not add up"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(tmp_path: Path, ids: Any, lengths: Any, words: str) -> None:
    with MegatronWriter(tmp_path / "p", "uint16") as writer:
        with pytest.raises(FormatError, match="MEG025") as caught:
            writer.add_documents(np.array(ids, dtype=np.int64), np.array(lengths))
        assert words in caught.value.message
        assert writer.documents == 0
    assert everything_in(tmp_path) == []


@pytest.mark.parametrize("ids", [np.array([1.0]), np.array([[1]]), np.array([True]), np.array(["a"]), [1]])
def test_ids_must_be_integers(tmp_path: Path, ids: Any) -> None:
    with MegatronWriter(tmp_path / "p", "uint16") as writer:
        with pytest.raises(TokenError, match="TOK011"):
            writer.add_documents(ids, np.array([1]))
        with pytest.raises(TokenError, match="TOK011"):
            writer.add_document([ids])


def test_one_sequence_per_document_is_held_to(tmp_path: Path) -> None:
    with MegatronWriter(tmp_path / "p", "uint16") as writer:
        writer.add_document([np.array([1])])
        for document in ([], [np.array([1]), np.array([2])]):
            with pytest.raises(UsageError, match="MEG029"):
                writer.add_document(document)
        with pytest.raises(UsageError, match="MEG029"):
            writer.add_documents(np.array([1, 2]), np.array([1, 1]), sequences=np.array([2]))


def test_types_the_format_lacks(tmp_path: Path) -> None:
    for dtype in ("uint32", "uint64", "float32", "bool"):
        with pytest.raises(UsageError, match="MEG030"):
            MegatronWriter(tmp_path / "p", dtype)
    assert everything_in(tmp_path) == []


def test_big_endian_input_is_stored_little_endian(tmp_path: Path) -> None:
    with MegatronWriter(tmp_path / "p", ">u2") as writer:
        writer.add_documents(np.array([1, 2, 300], dtype=">u2"), np.array([3], dtype=">i4"))
        writer.finish()
    assert parse(*bytes_of(tmp_path / "p")) == [[[1, 2, 300]]]


def without_payload(writer: MegatronWriter) -> None:
    """Let the writer count tokens without writing them: for sizes that no test disk has."""
    writer._bin.add = lambda values: None  # type: ignore[method-assign]


def test_pointers_beyond_32_bits(tmp_path: Path) -> None:
    longest = (1 << 31) - 1
    ids = np.broadcast_to(np.int32(7), longest)
    with MegatronWriter(tmp_path / "p", "int32") as writer:
        without_payload(writer)
        for _ in range(3):
            writer.add_documents(ids, np.array([longest]))
        writer.finish()
    idx, _ = bytes_of(tmp_path / "p")
    assert np.frombuffer(idx, "<i4", 3, 34).tolist() == [longest] * 3
    assert np.frombuffer(idx, "<i8", 3, 46).tolist() == [0, 4 * longest, 8 * longest]


def test_a_sequence_of_two_to_the_31_is_refused(tmp_path: Path) -> None:
    too_long = 1 << 31
    ids = np.broadcast_to(np.uint16(7), too_long)
    with MegatronWriter(tmp_path / "p", "uint16", one_sequence_per_document=False) as writer:
        without_payload(writer)
        with pytest.raises(FormatError, match="MEG026"):
            writer.add_documents(ids, np.array([too_long]))
        writer.add_documents(ids, np.array([too_long - 1, 1]), sequences=np.array([2]))  # the way out


def test_memory_does_not_grow_with_documents(tmp_path: Path) -> None:
    lengths = np.full(10_000, 3)
    ids = np.arange(30_000) % 50_000

    def peak(calls: int) -> int:
        tracemalloc.start()
        with MegatronWriter(tmp_path / "p", "uint16", one_sequence_per_document=False) as writer:
            for _ in range(calls):
                writer.add_documents(ids, lengths)
            writer.finish()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(30), peak(120)
    assert large < small + (1 << 18)  # 900,000 documents more
    assert large < 16 << 20


def test_nothing_appears_before_finish_nor_without_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with MegatronWriter(tmp_path / "p", "uint16") as writer:
        writer.add_documents(np.array([1]), np.array([1]))
        assert store.list() == []
    assert everything_in(tmp_path) == []
    with pytest.raises(UsageError, match="MEG031"):
        writer.add_documents(np.array([1]), np.array([1]))
    with pytest.raises(UsageError, match="MEG031"):
        writer.finish()
    with pytest.raises(RuntimeError, match="mine"):
        with MegatronWriter(tmp_path / "p", "uint16"):
            raise RuntimeError("mine")
    assert everything_in(tmp_path) == []


class Trickle:
    """A file that takes at most five bytes at a time, as a nearly full disk or a signal may make one do."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def write(self, data: memoryview) -> int:
        return int(self.inner.write(data[:5]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_short_writes_are_completed(tmp_path: Path) -> None:
    documents: Documents = [[[1, 2, 3, 4]], [[5, 6]], [[7]]]
    with MegatronWriter(tmp_path / "p", "uint16") as writer:
        for sink in (writer._bin, writer._idx):
            sink._file = Trickle(sink._file)  # type: ignore[assignment]
        writer.add_documents(np.arange(1, 8), np.array([4, 2, 1]))
        payload, index = writer.finish()
    assert bytes_of(tmp_path / "p") == build(documents, "uint16")
    assert (payload.bytes, index.bytes) == (14, 34 + 12 * 3 + 8 * 4)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="names of open files are read from /proc")
def test_both_files_are_durable_before_they_get_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name  # noqa: PTH115
        done.append(f"sync {name.split('.')[2] if name.startswith('.') else 'folder'}")
        fsync(handle)

    def replaced(self: Path, target: Path) -> Path:
        made = replace(self, target)
        done.append(f"name {target.suffix[1:]}")
        return made

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    with MegatronWriter(tmp_path / "p", "uint16") as writer:
        writer.add_documents(np.array([1]), np.array([1]))
        writer.finish()
    assert done == ["sync bin", "sync idx", "name bin", "name idx", "sync folder"]


def test_a_refusing_check_leaves_nothing(tmp_path: Path) -> None:
    seen: list[int] = []

    def check(payload: Path, index: Path) -> None:
        seen.extend([payload.stat().st_size, index.stat().st_size])
        raise FormatError("MEG028")

    with MegatronWriter(tmp_path / "p", "uint16") as writer:
        writer.add_documents(np.array([1]), np.array([1]))
        with pytest.raises(FormatError, match="MEG028"):
            writer.finish(check)
    assert seen == [2, 62]
    assert everything_in(tmp_path) == []


def test_an_existing_pair_is_replaced_whole_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(value: int) -> None:
        with MegatronWriter(tmp_path / "p", "uint16") as writer:
            writer.add_documents(np.array([value]), np.array([1]))
            writer.finish()

    write(1)
    write(2)
    assert parse(*bytes_of(tmp_path / "p")) == [[[2]]]
    assert everything_in(tmp_path) == ["p.bin", "p.idx"]

    real = Path.replace

    def refuse_payload(self: Path, target: Path) -> Path:
        if Path(target).name == "p.bin":
            raise PermissionError(1, "refused")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", refuse_payload)
    with pytest.raises(StorageError, match="STO003"):
        write(3)
    assert parse(*bytes_of(tmp_path / "p")) == [[[2]]]
    assert everything_in(tmp_path) == ["p.bin", "p.idx"]

    def refuse_index(self: Path, target: Path) -> Path:
        if Path(target).name == "p.idx":
            raise PermissionError(1, "refused")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", refuse_index)
    with pytest.raises(StorageError, match="STO003"):
        write(4)
    assert everything_in(tmp_path) == []  # never one half of a pair, nor halves of two


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="STO003"):
        MegatronWriter(tmp_path / "file" / "p", "uint16")


CHILD = """
import sys, numpy as np
from tokenreel.formats.megatron_write import MegatronWriter
writer = MegatronWriter(sys.argv[1], "uint16", one_sequence_per_document=False)
ids, lengths = np.ones(1 << 20, dtype=np.uint16), np.full(1 << 10, 1 << 10)
"""

KILLED = (
    CHILD
    + """
while True:
    writer.add_documents(ids, lengths)
    print(writer.documents, flush=True)
"""
)

FULL = (
    """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (int(5e6), int(5e6)))
"""
    + CHILD
    + """
from tokenreel.errors import StorageError
try:
    for _ in range(int(sys.argv[2])):
        writer.add_documents(ids, lengths)
    for _ in range(int(sys.argv[3])):
        writer.add_documents(ids[:0], np.zeros(1 << 16, dtype=np.int64))
    writer.finish()
except StorageError as error:
    print(error)
"""
)


def test_killed_while_writing_leaves_no_file_but_hidden_temporaries(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "p")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(3):
            assert child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    assert LocalStore(tmp_path).list() == []
    left = everything_in(tmp_path)
    assert left
    assert all(name.startswith(".p.") for name in left)
    assert remove_leftovers(tmp_path) == 3
    assert everything_in(tmp_path) == []


@pytest.mark.parametrize(("payloads", "tables"), [(10, 0), (1, 30), (2, 4)])
def test_a_full_disk_leaves_nothing(tmp_path: Path, payloads: int, tables: int) -> None:
    # The limit on file size stands for the disk: met in the payload, in the lengths, and in the pointers at the end.
    arguments = [sys.executable, "-c", FULL, str(tmp_path / "p"), str(payloads), str(tables)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "STO003" in done.stdout
    assert "could not write" in done.stdout
    assert everything_in(tmp_path) == []


def test_choose_dtype() -> None:
    assert choose_dtype(0) == choose_dtype(65_535) == np.dtype("<u2")
    assert choose_dtype(65_536) == choose_dtype((1 << 31) - 1) == np.dtype("<i4")
    assert choose_dtype(65_499, 65_500) == np.dtype("<u2")  # the size alone decides nothing
    for size in (65_499, 65_500, 65_536):
        legacy = choose_dtype(size - 1, size, legacy=True)
        assert legacy == np.dtype("<u2" if size < 65_500 else "<i4")
    with pytest.raises(TokenError, match="TOK010"):
        choose_dtype(1 << 31)
    with pytest.raises(TokenError, match="TOK010"):
        choose_dtype(-1)
    with pytest.raises(TokenError, match="TOK010"):
        choose_dtype(65_600, 65_400, legacy=True)  # added tokens beyond the vocabulary's size
    with pytest.raises(UsageError, match="USE003"):
        choose_dtype(1, legacy=True)
