"""Headerless files and .npy files: the width is given, proved or refused; nothing in a header is run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import FormatError
from tokenreel.formats.raw import open_npy, open_raw, open_uint16, open_uint32, prove_dtype, sample
from tokenreel.store import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "raw"
TOKENS = json.loads((GOLDEN / "tokens.json").read_text())
RNG = np.random.default_rng(5)


def code_of(data: bytes, dtype: str | None = None) -> str:
    store = MemoryStore({"x.bin": data})
    with pytest.raises(FormatError) as caught:
        _ = open_npy(store, "x.bin") if dtype is None else open_raw(store, "x.bin", dtype)
    return caught.value.code


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def test_golden() -> None:
    store = LocalStore(GOLDEN)
    flat = open_uint16(store, "train.bin")
    assert (flat.format, flat.read(0, flat.tokens).tolist()) == ("raw-uint16", TOKENS["train.bin"])
    numpy_s = open_npy(store, "edufineweb_train_000001.npy")
    assert numpy_s.read(0, numpy_s.tokens).tolist() == TOKENS["edufineweb_train_000001.npy"]
    assert numpy_s.byte_at(1) == ("edufineweb_train_000001.npy", 130)


def test_sizes() -> None:
    assert code_of(b"", "uint16") == code_of(b"abc", "uint16") == code_of(b"abcdef", "uint32") == "FLT002"


def test_ids_of_another_width_are_noticed() -> None:
    narrow = RNG.integers(300, 50257, 4000).astype("<u2").tobytes()
    wide = RNG.integers(0, 50257, 4000).astype("<u4").tobytes()
    assert code_of(wide, "uint16") == code_of(narrow, "uint32") == "FLT003"
    store = MemoryStore({"narrow": narrow, "wide": wide})
    assert open_uint16(store, "narrow").tokens == open_uint32(store, "wide").tokens == 4000
    assert open_uint16(store, "wide", accept=["FLT003"]).tokens == 8000


def test_the_vocabulary_may_prove_the_width() -> None:
    narrow = MemoryStore({"x": RNG.integers(300, 50257, 4000).astype("<u2").tobytes()}).reader("x")
    wide = MemoryStore({"x": RNG.integers(0, 50257, 4000).astype("<u4").tobytes()}).reader("x")
    assert (prove_dtype(narrow, 50257), prove_dtype(wide, 50257)) == ("uint16", "uint32")
    assert prove_dtype(narrow, 100) is prove_dtype(wide, 100) is None
    odd = MemoryStore({"x": np.array([5, 1, 6, 1], "<u2").tobytes()}).reader("x")
    assert prove_dtype(odd, 1 << 20) is None  # both would do
    assert prove_dtype(MemoryStore({"x": b"abcd"}).reader("x"), 50257) is None


def test_the_sample_is_of_the_whole_file_and_bounded() -> None:
    data = np.arange(1 << 20, dtype="<u4").tobytes()
    taken = np.frombuffer(sample(MemoryStore({"x": data}).reader("x")), "<u4")
    assert len(taken) == 64 * 4096
    assert (taken[0], taken[-1]) == (0, (1 << 20) - 1)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3), "<u2"),
        np.zeros(3, ">u2"),
        np.zeros(3, "<f4"),
        np.zeros(0, "<u2"),
        np.array([{}, None], dtype=object),
        np.zeros(3, [("a", "<u2")]),
        np.zeros((), "<u2"),
    ],
    ids=["two dimensions", "big-endian", "float", "empty", "pickled", "structured", "scalar"],
)
def test_npy_files_without_ids(array: object) -> None:
    assert code_of(npy(array)) == "FLT004"


def test_npy_headers_that_cannot_be_read() -> None:
    whole = npy(np.arange(5, dtype="<u2"))
    assert code_of(whole[:-1]) == code_of(whole + b"\0") == "FLT005"
    for broken in (
        b"",
        whole[:40],
        whole[:6] + b"\7\7" + whole[8:],
        whole.replace(b"{", b"("),
        b"\x93NUMPY\x01\x00\xff\xff",
    ):
        assert code_of(broken) == "FLT004"
    huge = whole.replace(b"(5,)", b"(9999999999,)")
    assert code_of(huge) in {"FLT004", "FLT005"}


@given(st.binary(max_size=200))
def test_no_header_crashes(data: bytes) -> None:
    try:
        open_npy(MemoryStore({"x.npy": b"\x93NUMPY" + data}), "x.npy")
    except FormatError as error:
        assert error.code in {"FLT004", "FLT005"}  # noqa: PT017


@pytest.mark.parametrize("dtype", ["<u1", "<i1", "<u2", "<i2", "<i4", "<u4", "<i8"])
def test_every_integer_of_npy(dtype: str) -> None:
    array = np.arange(100).astype(dtype)
    shard = open_npy(MemoryStore({"x.npy": npy(array)}), "x.npy")
    assert shard.dtype == array.dtype
    assert shard.read(10, 20).tolist() == array[10:20].tolist()
