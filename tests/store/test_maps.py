"""Readers and their maps: bounded, exact, valid by themselves, and never a crash when a file changes."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import StorageError, UsageError
from tokenreel.store import LocalStore, MapPool, MemoryStore
from tokenreel.store.base import blocks
from tokenreel.store.maps import COPY_LIMIT, PooledReader

LARGE = COPY_LIMIT + 4096


def descriptors_of(folder: Path) -> int:
    count = 0
    for handle in Path("/proc/self/fd").iterdir():
        try:
            count += str(handle.readlink()).startswith(str(folder))
        except OSError:
            continue
    return count


def maps_of(folder: Path) -> int:
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def code_of(act: Any) -> str:
    with pytest.raises(StorageError) as caught:
        act()
    return caught.value.code


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large.bin"
    path.write_bytes(np.arange(LARGE // 4, dtype="<u4").tobytes())
    return path


# ---- exact reads ---------------------------------------------------------------------------------------------------


@given(st.binary(max_size=64), st.integers(-2, 70), st.integers(-2, 70), st.sampled_from(["u1", "<u2", ">u4", "<i8"]))
def test_reads_are_exact_or_refused(data: bytes, offset: int, count: int, dtype: str) -> None:
    import tempfile

    memory = MemoryStore({"f": data})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "f").write_bytes(data)
        for reader in (memory.reader("f"), LocalStore(folder).reader("f")):
            assert reader.size == len(data)
            legal = offset >= 0 and count >= 0
            if legal and offset + count <= len(data):
                assert reader.read(offset, count) == data[offset : offset + count]
            else:
                assert code_of(lambda r=reader: r.read(offset, count)) == "STO005"
            if legal and offset + count * np.dtype(dtype).itemsize <= len(data):
                found = reader.array(dtype, offset, count)
                assert found.shape == (count,)
                assert found.dtype == np.dtype(dtype)
                assert found.tobytes() == data[offset : offset + found.nbytes]
                assert not found.flags.writeable
            else:
                assert code_of(lambda r=reader: r.array(dtype, offset, count)) == "STO005"


@pytest.mark.parametrize("maps", [True, False])
@pytest.mark.parametrize("offset", [0, 1, 6])
def test_large_arrays_equal_the_file(large: Path, maps: bool, offset: int) -> None:
    reader = PooledReader(str(large), MapPool(maps=maps))
    count = (LARGE - offset) // 2
    found = reader.array("<u2", offset, count)
    assert found.nbytes + 8 > COPY_LIMIT
    assert found.tobytes() == large.read_bytes()[offset : offset + 2 * count]
    assert not found.flags.writeable
    with pytest.raises(ValueError, match=r"WRITEABLE"):
        found.flags.writeable = True
    assert (maps_of(large.parent) > 0) == maps


def test_a_read_past_the_end_says_what_there_was(large: Path) -> None:
    with pytest.raises(StorageError) as caught:
        PooledReader(str(large), MapPool()).read(LARGE - 4, 10)
    assert caught.value.where == {"path": str(large), "offset": LARGE - 4}
    assert caught.value.expected == "10 bytes"
    assert caught.value.found == "4 bytes to the end of the file"


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 50))
def test_blocks_cover_a_range_once(begin: int, end: int, step: int) -> None:
    data = bytes(range(40))
    parts = list(blocks(MemoryStore({"f": data}).reader("f"), begin, end, step))
    assert b"".join(parts) == data[begin:end]
    assert all(len(part) <= step for part in parts)


def test_short_answers_of_the_system_are_put_together(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, length, offset: real(handle, min(length, 1000), offset))
    assert PooledReader(str(large), MapPool()).read(3, 12_345) == large.read_bytes()[3 : 3 + 12_345]


def test_an_error_of_the_disk_is_named(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    reader = PooledReader(str(large), MapPool())
    monkeypatch.setattr(os, "pread", failing)
    assert code_of(lambda: reader.read(0, 4)) == "STO002"
    assert code_of(lambda: reader.array("u1", 0, 4)) == "STO002"


# ---- bounds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_the_pool_is_bounded(tmp_path: Path, limit: int) -> None:
    data = bytes(LARGE)
    for number in range(20):
        (tmp_path / f"{number}").write_bytes(data)
    store = LocalStore(tmp_path, MapPool(limit))
    readers = [store.reader(f"{number}") for number in range(20)]
    for _ in range(2):
        for reader in readers:
            assert reader.array("u1", 0, LARGE)[-1] == 0
            assert reader.read(5, 1) == b"\0"
            assert len(store.pool) <= limit
            assert maps_of(tmp_path) <= limit
            # Python's map keeps a descriptor of its own beside ours.
            assert descriptors_of(tmp_path) <= 2 * limit
    store.pool.clear()
    assert (len(store.pool), maps_of(tmp_path), descriptors_of(tmp_path)) == (0, 0, 0)
    assert readers[0].read(0, 2) == b"\0\0"  # a reader outlives its handle


def test_opening_makes_no_map(large: Path) -> None:
    reader = PooledReader(str(large), MapPool())
    reader.array("u1", 0, COPY_LIMIT)
    assert maps_of(large.parent) == 0
    reader.array("u1", 0, COPY_LIMIT + 1)
    assert maps_of(large.parent) == 1  # kept for the next large array
    reader.close()
    assert (maps_of(large.parent), descriptors_of(large.parent)) == (0, 0)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"1")
    pool = MapPool(2)
    kept = pool.handle(str(tmp_path / "a"))
    pool.handle(str(tmp_path / "b"))
    assert pool.handle(str(tmp_path / "a")) is kept
    pool.handle(str(tmp_path / "c"))
    assert pool.handle(str(tmp_path / "a")) is kept
    assert len(pool) == 2


def test_a_pool_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        MapPool(0)
    assert caught.value.code == "USE003"


def test_out_of_descriptors_gives_our_own_back(tmp_path: Path) -> None:
    script = """
import resource, sys
from tokenreel.store import LocalStore
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
store = LocalStore(sys.argv[1])
readers = [store.reader(str(number)) for number in range(60)]
print(sum(reader.read(0, 1) == b"1" for reader in readers), len(store.pool) < 30)
"""
    for number in range(60):
        (tmp_path / str(number)).write_bytes(b"1")
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.split() == ["60", "True"], done.stderr


def test_many_threads_share_a_small_pool(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / str(number)).write_bytes(bytes([number]) * LARGE)
    store = LocalStore(tmp_path, MapPool(2))
    readers = [store.reader(str(number)) for number in range(9)]
    wrong: list[object] = []

    def read(seed: int) -> None:
        for step in range(60):
            number = (seed * 7 + step * 5) % 9
            length = LARGE if step % 3 == 0 else 100
            found = readers[number].array("u1", 0, length)
            if found[0] != number or found[-1] != number or len(found) != length:
                wrong.append((number, step))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(store.pool) <= 2


# ---- when mapping fails --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOMEM, errno.ENODEV, errno.EMFILE])
def test_reads_go_on_when_the_fifth_map_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real, calls = mmap.mmap, []

    def refusing(*arguments: Any, **options: Any) -> mmap.mmap:
        calls.append(1)
        if len(calls) >= 5:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    monkeypatch.setattr(mmap, "mmap", refusing)
    store = LocalStore(tmp_path)
    arrays = []
    for k in range(8):
        (tmp_path / str(k)).write_bytes(bytes([k]) * LARGE)
        reader = store.reader(str(k))
        arrays += [(k, reader.array("u1", 0, LARGE)) for _ in range(3)]
    assert all(len(array) == LARGE and (array == k).all() for k, array in arrays)
    assert not any(array.flags.writeable for _, array in arrays)
    # A file that was refused once is not tried again.
    assert store.pool.fallbacks == 4
    assert len(calls) == 8


# ---- views outlive everything --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_view_outlives_reader_pool_store_and_file(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    (tmp_path / "f").write_bytes(data.tobytes())
    store = LocalStore(tmp_path, MapPool(1))
    reader = store.reader("f")
    whole = reader.array("u1", 0, size)
    tail = whole[size // 2 :]
    reader.close()
    store.pool.clear()
    (tmp_path / "f").unlink()
    del store, reader, whole
    gc.collect()
    assert descriptors_of(tmp_path) <= 1
    assert np.array_equal(tail, data[size // 2 :])
    del tail
    gc.collect()
    assert (maps_of(tmp_path), descriptors_of(tmp_path)) == (0, 0)


def test_a_view_survives_eviction(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, MapPool(1))
    views = []
    for k in range(6):
        (tmp_path / str(k)).write_bytes(bytes([k]) * LARGE)
        views.append(store.reader(str(k)).array("u1", 0, LARGE))
    assert len(store.pool) == 1
    assert all((view == k).all() for k, view in enumerate(views))


# ---- files that change ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10, COPY_LIMIT, LARGE])
@pytest.mark.parametrize("size", [0, 5, LARGE - 1, LARGE + 1])
def test_another_size_is_an_error_at_the_next_access(large: Path, length: int, size: int) -> None:
    reader = PooledReader(str(large), MapPool())
    first = reader.array("u1", 0, 10)
    before = first.tobytes()
    os.truncate(large, size)
    assert code_of(lambda: reader.read(0, 10)) == "STO004"
    assert code_of(lambda: reader.array("u1", 0, length)) == "STO004"
    assert first.tobytes() == before  # a copy: it cannot fault


def test_a_file_cut_in_the_middle_of_a_read(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    reader = PooledReader(str(large), MapPool())

    def cutting(handle: int, length: int, offset: int) -> bytes:
        part = real(handle, min(length, 1000), offset)
        os.truncate(large, 1500)
        return part

    monkeypatch.setattr(os, "pread", cutting)
    assert code_of(lambda: reader.read(0, 10_000)) == "STO004"


def test_a_file_system_that_answers_short_without_a_new_size(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = PooledReader(str(large), MapPool())
    monkeypatch.setattr(os, "pread", lambda handle, length, offset: b"")
    assert code_of(lambda: reader.read(0, 10)) == "STO005"


SHRINK = """
import os, sys
import numpy as np
from tokenreel.errors import StorageError
from tokenreel.store import LocalStore, MapPool
folder, kind = sys.argv[1:]
size = 6 << 20
with open(folder + "/f", "wb") as file:
    file.write(b"7" * size)
store = LocalStore(folder, MapPool(maps=kind != "copied"))
reader = store.reader("f")
large = reader.array("u1", 0, size)            # a map
small = reader.array("u1", size - (4 << 20), 4 << 20)  # the largest copy
os.truncate(folder + "/f", 4096)
if kind == "held":
    print(int(large[-1]))
if kind == "copied":
    assert (large == 55).all()
assert (small == 55).all()
for act in (lambda: reader.array("u1", 0, size), lambda: reader.array("u1", 0, 5), lambda: reader.read(size - 5, 5)):
    try:
        act()
    except StorageError as error:
        print(error.code, end=" ")
print(store.reader("f").size)
"""


@pytest.mark.parametrize("kind", ["reread", "copied"])
def test_a_file_that_shrinks_under_its_map_is_an_error_not_a_crash(tmp_path: Path, kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", SHRINK, str(tmp_path), kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["STO004", "STO004", "STO004", "4096"]


def test_the_documented_limit_is_real(tmp_path: Path) -> None:
    """What `PooledReader.array` says no check can prevent; should it ever be prevented, its text must change."""
    done = subprocess.run([sys.executable, "-c", SHRINK, str(tmp_path), "held"], capture_output=True, text=True)
    assert done.returncode == -signal.SIGBUS
    assert "SIGBUS" in (PooledReader.array.__doc__ or "")


@pytest.mark.parametrize("size", [100, 90])
def test_a_file_replaced_by_another(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(b"1" * 100)
    os.utime(tmp_path / "f", ns=(1, 1))
    (tmp_path / "other").write_bytes(b"o")
    store = LocalStore(tmp_path, MapPool(1))
    reader = store.reader("f")
    (tmp_path / "new").write_bytes(b"2" * size)
    (tmp_path / "new").rename(tmp_path / "f")
    # The pool still holds the first file: its bytes, all of them.
    assert reader.read(0, 100) == b"1" * 100
    store.reader("other")
    assert len(store.pool) == 1
    # Never some bytes of one file and some of the other.
    assert code_of(lambda: reader.read(0, 90)) == "STO004"
    assert code_of(lambda: reader.array("u1", 0, 90)) == "STO004"
    assert store.reader("f").read(0, 5) == b"22222"


def test_a_new_reader_reads_the_new_file(tmp_path: Path) -> None:
    """A pool that lives on must not answer from a file that is no longer there."""
    store = LocalStore(tmp_path)
    (tmp_path / "f").write_bytes(b"one")
    assert store.reader("f").read(0, 3) == b"one"
    (tmp_path / "new").write_bytes(b"two")
    (tmp_path / "new").rename(tmp_path / "f")
    assert store.reader("f").read(0, 3) == b"two"
    with (tmp_path / "f").open("ab") as file:
        file.write(b"!")
    assert store.reader("f").read(0, 4) == b"two!"
    (tmp_path / "f").unlink()
    assert code_of(lambda: store.reader("f")) == "STO001"


def test_touching_a_file_is_no_change(tmp_path: Path) -> None:
    """Files are touched to keep them from being purged; a run must not end for it."""
    (tmp_path / "f").write_bytes(b"1" * 100)
    store = LocalStore(tmp_path)
    reader = store.reader("f")
    os.utime(tmp_path / "f", ns=(1, 1))
    assert reader.read(0, 3) == b"111"
    store.pool.clear()
    os.utime(tmp_path / "f", ns=(2, 2))
    assert reader.read(0, 3) == b"111"


def test_a_file_removed_after_eviction(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    store = LocalStore(tmp_path)
    reader = store.reader("f")
    (tmp_path / "f").unlink()
    assert reader.read(0, 1) == b"1"
    store.pool.clear()
    assert code_of(lambda: reader.read(0, 1)) == "STO001"


# ---- what is no file -----------------------------------------------------------------------------------------------


def test_folders_pipes_and_absent_files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # opening one blocks for ever, if nobody takes care
    store = LocalStore(tmp_path)
    assert code_of(lambda: store.reader("folder")) == "STO002"
    assert code_of(lambda: store.reader("pipe")) == "STO002"
    assert code_of(lambda: store.reader("none")) == "STO001"
    assert code_of(lambda: store.reader("folder/none")) == "STO001"
    gc.collect()
    assert descriptors_of(tmp_path) == 0
