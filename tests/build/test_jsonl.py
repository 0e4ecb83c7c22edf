"""JSON lines: whether a line is taken depends on that line alone; what is wrong is said with its place and what mends it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenreel.build.blocks import InputBytes
from tokenreel.build.jsonl import read_jsonl
from tokenreel.build.records import SourceShape
from tokenreel.build.sources import read_records
from tokenreel.errors import SourceError

DEEP = b"[" * 3000 + b"]" * 3000

BEYOND = [
    (b'{"text": "a", "x": NaN}', "SRC003", 19),
    (b'{"text": "NaN,", "x": [1, -Infinity]}', "SRC003", 26),
    (b'{"text": "a", "x": Inf}', "SRC003", 19),
    (b'{"text": "a", "x": "b\xffc"}', "SRC001", 21),
    (b'{"text": "a", "x\xff": 1}', "SRC001", 16),
    (b'{"text": "a", "x": "\xed\xa0\x80"}', "SRC001", 20),
    (b'{"text": "a", "x": "\\ud800"}', "SRC002", 20),
    (b'{"text": "a", "x": 01}', "SRC003", 20),
    (b'{"text": "a", "te\\u0078t": "b"}', "SRC007", 14),
    (b'{"te\\u0078t": "a", "text": "b"}', "SRC007", 19),
    (b'{"x": {"text": 1, "text": 2}, "\\u0074ext": "a", "text": "b"}', "SRC007", 48),
    (b'{"text": "a", "text": "b", "x": ' + DEEP + b"}", "SRC003", None),
    (b'{"text": "a", "x": ' + DEEP[:-1] + b"}", "SRC003", None),
]
TAKEN = [
    (b'{"text": "a", "x": ' + DEEP + b"}", "a"),
    (b'{"te\\u0078t": "\\u0074"}', "t"),
    (b'{"text": "NaN, Inf] and \\"text\\": \\"\\u0078\\""}', 'NaN, Inf] and "text": "x"'),
    (b'  {"text": "a", "x": {"text": 1, "text": 2}, "y": 1, "y": 2}\t', "a"),
    (b'{"text": "a", "x": ' + b"1" * 5000 + b"}", "a"),
    (b'{"text": "\\ud83d\\ude00", "x": "\x7f"}', "\U0001f600"),
]


def outcome(data: bytes, chunk_bytes: int, block: int = 1 << 20, **shape: Any) -> object:
    """Return the texts, or code and line of the refusal."""
    blocks = iter([data[k : k + block] for k in range(0, len(data), block)])
    texts, line = [], 0
    try:
        for one in read_jsonl(blocks, "p", SourceShape(name="s", format="jsonl", **shape), chunk_bytes):
            one.check()
            texts += one.texts.to_pylist()
            line += len(one) + one.blank
    except SourceError as error:
        return error.code, error.where["line"]
    return texts


@pytest.mark.parametrize(("line", "code", "at"), BEYOND, ids=[repr(line)[2:40] for line, _, _ in BEYOND])
def test_what_strict_json_is_not(line: bytes, code: str, at: int | None) -> None:
    for before, after in ((b"", b""), (b'{"text": "fine"}\n', b""), (b"\n", b'\n{"text": "x"}\n'), (b"", b"\n\n")):
        for chunk_bytes in (1, 1 << 20):
            with pytest.raises(SourceError) as caught:
                list(read_jsonl(iter([before + line + after]), "p", SourceShape(name="s"), chunk_bytes))
            where = caught.value.where
            assert (caught.value.code, where["line"]) == (code, 1 + before.count(b"\n"))
            if at is not None:
                assert where["offset"] == len(before) + at


@pytest.mark.parametrize(("line", "text"), TAKEN, ids=[repr(line)[2:40] for line, _ in TAKEN])
def test_what_strict_json_is(line: bytes, text: str) -> None:
    for before, after in ((b"", b""), (b'{"text": "fine"}\n', b""), (b"\n", b'\n{"text": "x"}\n'), (b"", b"\n\n")):
        wanted = ["fine"] * before.count(b"fine") + [text] + ["x"] * after.count(b'"x"')
        assert outcome(before + line + after, 1 << 20) == outcome(before + line + after, 1) == wanted


POOL = [line for line, *_ in BEYOND] + [line for line, _ in TAKEN]
POOL += [b"", b" ", b"{", b"}", b"{}", b'{"text": "a"}{"text": "b"}', b'{"text": 1}', b"[]", b'{"text": "a"} x']
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
RECORDS = st.fixed_dictionaries({}, optional={"text": st.text(max_size=6) | VALUES, "x": VALUES, "id": VALUES})
LINES = st.one_of(
    st.tuples(RECORDS, st.booleans()).map(
        lambda one: json.dumps(one[0], ensure_ascii=one[1]).encode("utf-8", "replace")
    ),
    st.sampled_from(POOL),
    st.binary(max_size=8).map(lambda junk: b'{"text": "a", "x": ' + junk.replace(b"\n", b"") + b"}"),
    st.text('"\\u0078{}[]:, \ttex', max_size=12).map(lambda junk: ('{"text": "a", ' + junk + "}").encode()),
)


@pytest.mark.parametrize("identified", [False, True])
@given(st.lists(LINES, max_size=6), st.sampled_from([1, 30, 200, 1 << 20]), st.sampled_from([7, 1 << 20]))
@example([POOL[0], POOL[1]], 1, 7)
def test_neighbours_and_chunks_decide_nothing(
    identified: bool, lines: list[bytes], chunk_bytes: int, block: int
) -> None:
    shape: dict[str, Any] = {"id": "id"} if identified else {}
    wanted: list[str] = []
    refused = None
    for number, line in enumerate(lines, 1):
        alone = outcome(line, 1, **shape)
        if isinstance(alone, tuple):
            refused = alone[0], number
            break
        wanted += alone  # type: ignore[arg-type]
    found = outcome(b"".join(line + b"\n" for line in lines), chunk_bytes, block, **shape)
    assert found == (refused if refused is not None else wanted)


# ---- what a newcomer reads ----------------------------------------------------------------------------------------


def said(path: Path, data: bytes, **shape: Any) -> SourceError:
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        list(read_records(InputBytes(path), SourceShape(name="s", format="jsonl", **shape), 1 << 20))
    return caught.value


def test_an_array_and_a_pretty_printed_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for data, code in (
        (b'[\n {"text": "a"}\n]\n', "SRC003"),
        (b'[{"text": "a"}]\n', "SRC004"),
        (b'[{"text":\n', "SRC003"),
    ):
        error = said(path, data)
        assert (error.code, error.hint) == (code, f"jq -c '.[]' {path} > lines.jsonl")
    error = said(path, b'{\n  "text": "a"\n}\n')
    assert "one object per line" in error.message
    assert error.hint == f"jq -c . {path} > lines.jsonl"


@pytest.mark.parametrize(
    "rest", [b'{"text": "a', b'{"text"', b'{"text": "a"', b'{"text": "\\u00', b"{", b'{"text": tr']
)
def test_a_last_line_that_is_cut(tmp_path: Path, rest: bytes) -> None:
    error = said(tmp_path / "a.jsonl", b'{"text": "whole"}\n' + rest)
    assert (error.code, error.where["line"]) == ("SRC003", 2)
    assert ("seems to be cut" in error.message) == (rest not in (b'{"text": tr', b'{"text": "\\u00'))
    assert "seems to be cut" not in said(tmp_path / "a.jsonl", b'{"text": "whole"}\n' + rest + b"\n").message


def test_a_field_of_another_name(tmp_path: Path) -> None:
    error = said(tmp_path / "a.jsonl", b'{"meta": {}, "txt": "a", "title": "b"}\n')
    assert (error.code, error.found, error.hint) == (
        "SRC005",
        "the fields meta, txt, title",
        'set text = "txt" in [[source]]',
    )
    error = said(tmp_path / "a.jsonl", b'{"n": 1, "content": "a long one", "title": "b"}\n')
    assert error.hint == 'set text = "content" in [[source]]'
    error = said(tmp_path / "a.jsonl", b'{"text": "a", "uid": "b"}\n', id="id")
    assert error.hint == 'set id = "uid" in [[source]]'
    assert said(tmp_path / "a.jsonl", b"{}\n").found == "no fields"


def test_messages_are_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert said(path, b'{"text": 5}').message == "The field 'text' must hold a string, and holds a number."
    assert said(path, b'{"text": "a", "text": ""}').message == "The key 'text' stands twice in one object."
    error = said(path, b'{"text": "a", "id": 1.5}', id="id")
    assert error.message == "The field 'id' must hold a string or an integer, and holds a number."


def test_parquet_and_utf16(tmp_path: Path) -> None:
    error = said(tmp_path / "a.jsonl", b"PAR1\x15\x04\n\xff\nPAR1")
    assert (error.code, error.found) == ("SRC003", "PAR1")
    assert "Parquet" in error.message
    error = said(tmp_path / "a.jsonl", '{"text": "a"}\n'.encode("utf-16"))
    assert error.code == "SRC001"
    assert str(error.hint).startswith("iconv -f UTF-16")


def test_offsets_inside_a_compressed_file_say_so(tmp_path: Path) -> None:
    data = b'{"text": "a"}\n{"text": "\xff"}\n'
    plain = said(tmp_path / "a.jsonl", data)
    inside = said(tmp_path / "a.jsonl.gz", gzip.compress(data))
    assert plain.where["offset"] == inside.where["offset"] == 24
    assert "decompressed data (gz)" in inside.message
    assert "decompressed" not in plain.message


def test_a_mark_across_members(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"text": "a"}\n'
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"".join(gzip.compress(data[k : k + 1]) for k in range(len(data))))

    def read(blocks: Iterator[Any]) -> list[str]:
        return [text for one in blocks for text in one.texts.to_pylist()]

    assert read(read_records(InputBytes(path), SourceShape(name="s", format="jsonl"), 1)) == ["a"]


@given(st.lists(st.integers(0, 700), max_size=40), st.booleans())
def test_newlines_of_short_and_of_long_lines(lengths: list[int], ended: bool) -> None:
    from tokenreel.build import jsonl as module

    data = b"\n".join(b"x" * length for length in lengths) + b"\n" * ended
    wanted = [at for at, byte in enumerate(data) if byte == 10]
    for block, long_line in ((64, 1), (64, 1 << 20), (1 << 17, 512)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_BLOCK", block)
            patch.setattr(module, "_LONG_LINE", long_line)
            assert module._newlines(data, np.frombuffer(data, np.uint8)).tolist() == wanted
