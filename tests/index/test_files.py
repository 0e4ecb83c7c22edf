"""Index files as values: atomic, shared by many hosts, surviving what a directory refuses; arrays read strictly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.index.data import lengths_of, write
from tokenreel.errors import FormatError, StorageError
from tokenreel.index.arrays import first_difference, read_array, write_array
from tokenreel.index.files import IndexFiles, differences, put, put_or_warn
from tokenreel.index.maxtext import convert


def files(**arrays: list[int]) -> IndexFiles:
    made = {f"{name}.npy": np.array(values, dtype=np.int32) for name, values in arrays.items()}
    return IndexFiles("sub", made, texts={"t.txt": b"one\ntwo\n"}, notes={"n.json": b"{}"})


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("shape", [(0,), (5,), (3, 2)])
def test_arrays_are_numpy_s_own_bytes(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    write_array(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", array)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    stored = read_array(tmp_path / "a.npy")
    assert stored.dtype == array.dtype
    assert np.array_equal(stored, array)
    if array.size:
        with pytest.raises(ValueError, match="read-only"):
            stored[0] = 1


def test_a_missing_array(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="IDX001"):
        read_array(tmp_path / "absent.npy")


@given(cut=st.integers(0, 207))
def test_a_cut_array_is_refused(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cut")
    write_array(folder / "a.npy", np.arange(20, dtype=np.int32))
    whole = (folder / "a.npy").read_bytes()
    assert len(whole) == 208
    (folder / "a.npy").write_bytes(whole[:cut])
    with pytest.raises(FormatError, match="IDX002"):
        read_array(folder / "a.npy")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3),
        np.array(3),
        np.zeros((2, 2, 2), np.int8),
        np.array([1], ">i4"),
        np.asfortranarray(np.eye(2, dtype=int)),
    ],
    ids=["floats", "scalar", "three dimensions", "big endian", "by column"],
)
def test_arrays_of_another_kind_are_refused(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(FormatError, match="IDX002"):
        read_array(tmp_path / "a.npy")


def test_an_array_of_objects_is_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([None, {}], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match="IDX002"):
        read_array(tmp_path / "a.npy")


@pytest.mark.parametrize(
    "shape", [b"(999999999999999999,), }", b"(9, 999999999999999999), }", b"(-1,), }", b"(4,) + (4,), }", b"(4,), ;"]
)
def test_a_header_that_claims_too_much_allocates_nothing(shape: bytes, tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", np.arange(4, dtype=np.int64))
    data = (tmp_path / "a.npy").read_bytes()
    begin = data.index(b"(4,), }")
    (tmp_path / "a.npy").write_bytes(data[:begin] + shape + data[begin + len(shape) :])
    with pytest.raises(FormatError, match="IDX002"):
        read_array(tmp_path / "a.npy")


def test_the_first_difference() -> None:
    made = np.arange(6, dtype=np.int32)
    assert first_difference(made.copy(), made) is None
    assert first_difference(made.astype(np.int64), made) == ("dtype", "int32", "int64")
    assert first_difference(made[:5], made) == ("shape", [6], [5])
    rows = made.reshape(3, 2)
    other = rows.copy()
    other[1, 1] = 9
    assert first_difference(other, rows) == ("entry 1", [2, 3], [2, 9])


def test_what_is_right_is_left_alone(tmp_path: Path) -> None:
    sets = [files(a=[1, 2], b=[3])]
    first = put(tmp_path, sets)
    assert first.written == ("sub/n.json", "sub/t.txt", "sub/a.npy", "sub/b.npy")
    before = (tmp_path / "sub/a.npy").stat().st_mtime_ns
    (tmp_path / "sub/b.npy").write_bytes(b"damaged")
    second = put(tmp_path, sets)
    assert second.written == ("sub/b.npy",)
    assert (tmp_path / "sub/a.npy").stat().st_mtime_ns == before
    assert list(differences(tmp_path, sets)) == []


def test_differences_say_which_file_and_what(tmp_path: Path) -> None:
    put(tmp_path, [files(a=[1, 2, 3], b=[3], c=[4])])
    (tmp_path / "sub/b.npy").unlink()
    (tmp_path / "sub/c.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "sub/t.txt").write_text("one\n2\n")
    (tmp_path / "sub/n.json").unlink()
    found = list(differences(tmp_path, [files(a=[1, 5, 3], b=[3], c=[4])]))
    assert [(one.file, one.code) for one in found] == [
        ("sub/a.npy", "IDX004"),
        ("sub/b.npy", "IDX001"),
        ("sub/c.npy", "IDX002"),
        ("sub/t.txt", "IDX004"),
    ]
    assert (found[0].what, found[0].expected, found[0].found) == ("entry 1", 5, 2)
    assert (found[3].what, found[3].expected, found[3].found) == ("line 2", "two", "2")


def test_a_folder_that_cannot_be_written_is_survived(tmp_path: Path) -> None:
    # A file stands where a folder is needed: refused for everyone, root too.
    (tmp_path / "sub").write_text("")
    with pytest.raises(StorageError, match="STO003"):
        put(tmp_path, [files(a=[1])])
    warning = put_or_warn(tmp_path, [files(a=[1])])
    assert warning is not None
    assert warning.code == "IDX005"
    assert "memory" in str(warning)
    assert put_or_warn(tmp_path / "other", [files(a=[1])]) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tokenreel.index.files as module

    def full(path: Path, array: np.ndarray) -> None:
        with Path("/dev/full").open("wb", buffering=0) as file:
            try:
                file.write(array.tobytes())
            except OSError as error:
                raise StorageError("STO003", f"could not write: {error.strerror}", path=path) from error

    monkeypatch.setattr(module, "write_array", full)
    warning = put_or_warn(tmp_path, [files(a=[1])])
    assert warning is not None
    assert "space" in str(warning).lower()
    assert not (tmp_path / "sub/a.npy").exists()


BUILD = """
import sys
from tokenreel.index.files import put
from tokenreel.index.maxtext import convert
put(sys.argv[2], convert([sys.argv[1]], 16, num_samples=400))
"""


def test_hosts_that_build_at_once_need_no_barrier(tmp_path: Path) -> None:
    prefix = write(tmp_path / "web", lengths_of(1, 300))
    out = tmp_path / "cache"
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    hosts = [
        subprocess.Popen([sys.executable, "-c", BUILD, str(prefix), str(out)], env=environment, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for host in hosts:
        assert host.communicate(timeout=120)[1] == b""
        assert host.returncode == 0
    sets = convert([str(prefix)], 16, num_samples=400)
    assert list(differences(out, sets)) == []
    expected = {*sets[0].arrays, *sets[0].notes}
    assert {path.name for path in out.iterdir()} == expected
    # A fourth build somewhere else gives the same bytes, notes included.
    put(tmp_path / "again", sets)
    for name in expected:
        assert (out / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
