"""Strict JSON: one meaning on the way in, one spelling on the way out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import ManifestError
from tokenreel.store import MemoryStore, dumps_canonical, loads_strict, read_json

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(text, inner, max_size=4)),
    max_leaves=12,
)


def refused(data: bytes, code: str) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        loads_strict(data, "m.json")
    assert caught.value.code == code
    assert caught.value.where["path"] == "m.json"
    return caught.value


@given(values)
def test_canonical_round_trip(value: Any) -> None:
    data = dumps_canonical(value)
    assert loads_strict(data) == value
    assert dumps_canonical(loads_strict(data)) == data
    assert data.endswith(b"\n")
    assert not data.endswith(b"\n\n")


@given(st.permutations(["a", "b", "c", "d"]))
def test_keys_keep_their_order(keys: list[str]) -> None:
    data = dumps_canonical(dict.fromkeys(keys, 1))
    assert list(loads_strict(data)) == keys


@given(values)
def test_escaped_text_reads_as_the_same(value: Any) -> None:
    """Other writers escape what we write as UTF-8; pairs of surrogates are a character."""
    assert loads_strict(json.dumps(value, ensure_ascii=True).encode()) == value


@pytest.mark.parametrize(
    "data",
    [b'{"a": 1, "a": 1}', b'[{"b": {"x": 1, "y": 2, "x": 3}}]', b'{"a": 1, "\\u0061": 2}', b'{"": 1, "": 2}'],
)
def test_duplicate_keys(data: bytes) -> None:
    assert "twice" in refused(data, "MAN002").message


def test_the_duplicate_key_is_named() -> None:
    assert "'sha256'" in refused(b'{"path": 1, "sha256": 2, "bytes": 3, "sha256": 2}', "MAN002").message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400 + ".0"])
def test_numbers_that_are_none(number: str) -> None:
    refused(f'{{"x": [{number}]}}'.encode(), "MAN001")


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b'{"a": "\xff"}', 7),
        (b"\xc3", 0),
        (b'"\xed\xa0\x80"', 1),  # a surrogate spelt in UTF-8
        ('{"é": '.encode() + b"\xfe", 7),
    ],
)
def test_invalid_utf8_names_the_byte(data: bytes, offset: int) -> None:
    assert refused(data, "MAN001").where["offset"] == offset


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b"", 0), (b"{", 1), (b'{"a" 1}', 5), ('{"é" 1}'.encode(), 6), (b"[1] 2", 4), (b"\xef\xbb\xbf{}", 0)],
)
def test_invalid_json_names_the_byte_not_the_character(data: bytes, offset: int) -> None:
    assert refused(data, "MAN001").where["offset"] == offset


@pytest.mark.parametrize("data", [b'"\\ud800"', b'{"\\udfff": 1}', b'[{"a": ["x\\uD83D"]}]'])
def test_lone_surrogates(data: bytes) -> None:
    assert "surrogate" in refused(data, "MAN001").message
    assert loads_strict(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


@pytest.mark.parametrize("open_and_close", [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting_is_refused_not_a_crash(open_and_close: tuple[bytes, bytes]) -> None:
    before, after = open_and_close
    assert "deep" in refused(before * 200_000 + b"1" + after * 200_000, "MAN001").message


def test_a_number_of_many_digits_is_refused() -> None:
    refused(b"1" * 10_000, "MAN001")


@given(st.binary(max_size=30))
def test_any_bytes_parse_or_are_refused(data: bytes) -> None:
    try:
        value = loads_strict(data)
    except ManifestError:
        return
    assert loads_strict(dumps_canonical(value)) == value


def test_output_that_is_no_json_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps_canonical({"x": float("nan")})


def test_read_json_names_the_file() -> None:
    store = MemoryStore({"a.json": b"[1]", "b.json": b"["})
    assert read_json(store, "a.json") == [1]
    with pytest.raises(ManifestError) as caught:
        read_json(store, "b.json")
    assert caught.value.where["path"] == "b.json"
