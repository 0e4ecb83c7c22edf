"""Modalities' packed files, made here by their description: every way to pickle such a list is read, nothing else is."""

from __future__ import annotations

import io
import pickle  # noqa: TID251 (to make files, never to read them)
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.indexed_cases import LARGEST, MANY, broken, documents, look, look_at, opened, peak, read
from tokenreel.errors import FormatError
from tokenreel.formats.pbin import open_file
from tokenreel.store import MemoryStore

WIDTHS = {"uint8": 1, "uint16": 2, "uint32": 4}


def packed(members: list[list[int]], dtype: str = "uint16", protocol: int = 4, base: int = 0) -> bytes:
    width = WIDTHS[dtype]
    ends = np.cumsum([0, *(width * len(ids) for ids in members)])
    index = [(base + int(at), width * len(ids)) for at, ids in zip(ends, members, strict=False)]
    ids = np.array([i for one in members for i in one], dtype=dtype)
    return around(ids.tobytes(), pickle.dumps(index, protocol), width)


def around(ids: bytes, index: bytes, width: int = 2) -> bytes:
    return len(ids).to_bytes(8, "little") + width.to_bytes(4, "little") + ids + index


def code_of(data: bytes) -> tuple[str, object]:
    with pytest.raises(FormatError) as caught:
        open_file(MemoryStore({"a.pbin": data}), "a.pbin")
    return caught.value.code, caught.value.where.get("offset")


@given(documents("uint8").map(lambda shards: shards[0]), st.sampled_from([2, 3, 4, 5]), st.sampled_from([0, 12]))
def test_lists_of_pairs_are_read(members: list[list[int]], protocol: int, base: int) -> None:
    for dtype, width in WIDTHS.items():
        store = MemoryStore({"a/b.pbin": packed(members, dtype, protocol, base)})
        assert read(store) == [members]
        (shard,) = opened(store)
        assert (shard.name, shard.dtype.name, shard.byte_at(1)) == ("a/b", dtype, ("a/b.pbin", 12 + width))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_long_lists_come_in_batches_and_frames(protocol: int) -> None:
    """A pickle of a long list goes on after a thousand items, and after 64 KiB; places past 2**31 take more bytes."""
    members = [[k % 251] * (k % 5) for k in range(30_000)]
    assert read(MemoryStore({"a.pbin": packed(members, "uint8", protocol)})) == [members]


def test_the_slow_pickler_of_python_is_read_too() -> None:
    file = io.BytesIO()
    pickle._Pickler(file, 4).dump([(0, 4), (4, 2)])  # type: ignore[attr-defined]
    assert read(MemoryStore({"a.pbin": around(b"abcdef", file.getvalue())})) == [[[25185, 25699], [26213]]]


def test_numbers_of_every_length() -> None:
    """A list of one document of an absurd place is parsed, and then refused for its place."""
    for begin in (255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**40, 2**62, -1, -(2**40)):
        code, _ = code_of(around(b"ab", pickle.dumps([(begin, 2)])))
        assert code == "PBN004"
    assert code_of(around(b"ab", pickle.dumps([(2**70, 2)])))[0] == "PBN003"


class Bad:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("/tmp/never"),))


@pytest.mark.parametrize(
    "value",
    [
        Bad(),
        [Bad()],
        [(0, Bad())],
        (0, 2),
        [[0, 2]],
        [(0, 2, 2)],
        [(0, 2.0)],
        [(0, True)],
        [("0", 2)],
        {0: 2},
        [(0, None)],
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_anything_else_is_refused_and_never_run(value: object, protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = around(b"ab", pickle.dumps(value, protocol))
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.delattr(pickle, name)
    code, offset = code_of(data)
    assert code == "PBN003"
    assert isinstance(offset, int)
    assert offset >= 14
    assert not Path("/tmp/never").exists()


def test_malformed_files_have_their_codes() -> None:
    good = pickle.dumps([(0, 4), (4, 2)])
    assert code_of(b"")[0] == code_of(around(b"abcdef", b""))[0] == code_of(around(b"abc", good))[0] == "PBN001"
    assert code_of((1 << 63).to_bytes(8, "little") + around(b"abcdef", good)[8:]) == ("PBN001", 0)
    assert code_of(around(b"abcdef", good, width=3)) == ("PBN002", 8)
    for index in (good[:-1], good + b"\0", good.replace(b"\x86", b"\x87"), b"\x80\x04N.", good[:12]):
        assert code_of(around(b"abcdef", index))[0] == "PBN003"
    for pairs in (
        [(0, 4)],
        [(0, 4), (5, 1)],
        [(0, 4), (2, 4)],
        [(2, 4), (0, 2)],
        [(0, 6), (6, 2)],
        [],
        [(0, -2), (0, 8)],
    ):
        assert code_of(around(b"abcdef", pickle.dumps(pairs)))[0] == "PBN004"
    assert code_of(around(b"abcdef", pickle.dumps([(0, 3), (3, 3)])))[0] == "PBN005"


FILES = {"a.pbin": packed([[5, 6, 7], [], [300] * 40, [8]] * 3)}


def test_broken_files_are_refused_or_read() -> None:
    codes = {found for files in broken(FILES, 1, 1500) if isinstance(found := look(files), str)}
    assert {"PBN001", "PBN002", "PBN003", "PBN004"} <= codes
    for files in broken(FILES, 2, 30):
        assert peak(files) < LARGEST


@pytest.mark.slow
def test_many_broken_files() -> None:
    codes = {look_at(open_file, one, "a.pbin") for one in broken(FILES, 7, MANY)}
    assert codes > {"", "PBN001", "PBN002", "PBN003", "PBN004"}
