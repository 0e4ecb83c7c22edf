"""Readers: every format gives the same records, in chunks of any size; whatever is wrong is named with its place."""

from __future__ import annotations

import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.build.blocks import InputBytes, stamp_of
from tokenreel.build.records import Records, SourceShape
from tokenreel.build.sources import in_two_sources, plan_inputs, read_records
from tokenreel.config.recipe import parse_recipe
from tokenreel.errors import RecipeError, SourceError, StorageError, TokenreelError

TEXTS = ["one", "", "two\nlines", "سلام دنیا", "tab\tand \u0000 and \U0001f469\u200d\U0001f467", "x" * 3000, "last"]


def records(path: Path, chunk_bytes: int = 1 << 20, **shape: Any) -> list[Records]:
    shape.setdefault("format", "parquet" if ".parquet" in path.name else "text" if ".txt" in path.name else "jsonl")
    file = InputBytes(path)
    found = list(read_records(file, SourceShape(name="s", **shape), chunk_bytes))
    for one in found:
        one.check()
    file.check(path.stat().st_size, sha256_of(path))
    return found


def sha256_of(path: Path) -> str:
    file = InputBytes(path)
    file.drain()
    return file.sha256


def texts(found: list[Records]) -> list[str]:
    return [text for one in found for text in one.texts.to_pylist()]


def jsonl(texts: list[str], end: str = "\n") -> bytes:
    return "".join(
        json.dumps({"text": text, "n": 1}, ensure_ascii=k % 2 == 0) + end for k, text in enumerate(texts)
    ).encode()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("chunk_bytes", [1, 64, 1 << 20])
def test_jsonl_in_any_compression_and_chunk(tmp_path: Path, suffix: str, chunk_bytes: int) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](jsonl(TEXTS)))
    found = records(path, chunk_bytes)
    assert texts(found) == TEXTS
    assert [line for one in found for line in one.lines or ()] == list(range(1, len(TEXTS) + 1))
    assert [one.first for one in found] == [sum(map(len, found[:k])) for k in range(len(found))]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_several_members_and_a_name_that_does_not_say(tmp_path: Path, suffix: str) -> None:
    data = jsonl(TEXTS)
    path = tmp_path / "a.jsonl"
    path.write_bytes(COMPRESS[suffix](data[:100]) + COMPRESS[suffix](data[100:]))
    assert texts(records(path, 64)) == TEXTS


def test_padding_after_gzip_and_skippable_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(TEXTS)) + bytes(100))
    assert texts(records(path)) == TEXTS
    skip = bytes([0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0]) + b"abcd"
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(skip + zstandard.compress(jsonl(TEXTS)) + skip)
    assert texts(records(path)) == TEXTS


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("cut", [1, 3, 9, 40])
def test_truncated_compressed_files_are_errors(tmp_path: Path, suffix: str, cut: int) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](jsonl(TEXTS))[:-cut])
    with pytest.raises(SourceError) as caught:
        records(path)
    assert caught.value.code == "SRC010"


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_damaged_compressed_files_are_errors(tmp_path: Path, suffix: str) -> None:
    data = bytearray(COMPRESS[suffix](jsonl(TEXTS)))
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        records(path)
    assert caught.value.code in ("SRC010", "SRC011")


def test_a_name_that_promises_compression(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(jsonl(TEXTS))
    with pytest.raises(SourceError, match="SRC011"):
        records(path)


def test_mark_crlf_blank_lines_and_no_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + jsonl(["a", "b"], "\r\n") + b"\r\n  \n" + jsonl(["c"], ""))
    for chunk_bytes in (1, 1 << 20):
        found = records(path, chunk_bytes)
        assert texts(found) == ["a", "b", "c"]
        assert sum(one.blank for one in found) == 2
        assert [line for one in found for line in one.lines or ()] == [1, 2, 5]


def test_ids_and_sources(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for ids in (["x", "y"], [1, -2], ["x", 2], [1 << 70, 3]):
        rows = [{"text": "t", "k": one, "lang": "fa"} for one in ids]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (found,) = records(path, id="k", source_field="lang")
        assert found.ids == [str(one) for one in ids]
        assert found.sources == ["fa", "fa"]


def test_one_field_may_be_text_and_id(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "same"}\n')
    (found,) = records(path, id="text", source_field="text")
    assert (found.ids, found.sources) == (["same"], ["same"])


BAD_LINES = [
    (b'{"text": "a\xffb"}', "SRC001", 11),
    (b'{"text": "\xed\xa0\x80"}', "SRC001", 10),
    (b'{"text": "\\ud800"}', "SRC002", 10),
    (b'{"text": "\\\\\\udc00 x"}', "SRC002", 12),
    (b'{"text": "\\ud83d\\ude00\\ud83d"}', "SRC002", 22),
    (b'{"text": "a"', "SRC003", None),
    (b'{"text": "a"} x', "SRC003", 14),
    (b'{"text": "a"}{"text": "b"}', "SRC003", None),
    (b"text", "SRC003", 0),
    (b'["a"]', "SRC004", None),
    (b'"a"', "SRC004", None),
    (b"null", "SRC004", None),
    (b'{"txt": "a"}', "SRC005", None),
    (b'{"x": {"text": "a"}}', "SRC005", None),
    (b'{"text": null}', "SRC006", None),
    (b'{"text": 5}', "SRC006", None),
    (b'{"text": ["a"]}', "SRC006", None),
    (b'{"text": "a", "text": "b"}', "SRC007", 14),
    (b'{"text": "a\nb"}', "SRC003", None),
    (b"\xff\xfe{\x00", "SRC001", None),
]


@pytest.mark.parametrize(("line", "code", "at"), BAD_LINES, ids=[repr(line)[2:-1] for line, _, _ in BAD_LINES])
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_bad_lines_are_named_with_line_and_byte(
    tmp_path: Path, line: bytes, code: str, at: int | None, chunk_bytes: int
) -> None:
    before = jsonl(["fine", "fine too"])
    path = tmp_path / "a.jsonl"
    path.write_bytes(before + line + b"\n" + jsonl(["after"]))
    with pytest.raises(SourceError) as caught:
        records(path, chunk_bytes)
    where = caught.value.where
    assert (caught.value.code, where["line"], where["path"]) == (code, 3, str(path))
    if at is not None:
        assert where["offset"] == len(before) + at


@pytest.mark.parametrize(
    ("row", "code"),
    [('{"text": "a"}', "SRC005"), ('{"text": "a", "k": null}', "SRC006"), ('{"text": "a", "k": 1.5}', "SRC006")],
)
def test_bad_ids(tmp_path: Path, row: str, code: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "k": "x"}\n' + row + "\n")
    with pytest.raises(SourceError) as caught:
        records(path, id="k")
    assert (caught.value.code, caught.value.where["line"]) == (code, 2)


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "k": "x"}\n{"text": "a", "k": ""}\n')
    with pytest.raises(SourceError, match="SRC006"):
        records(path, source_field="k")


def test_the_same_key_deeper_down_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "meta": {"text": "b", "text": "c"}} \n')
    assert texts(records(path)) == ["a"]


@given(
    st.lists(
        st.one_of(
            st.text(max_size=8).map(lambda text: json.dumps({"text": text}).encode()),
            st.sampled_from([line for line, _, _ in BAD_LINES] + [b"", b" ", b"{", b"}", b'{"text":', b'"a"}', b"{}"]),
            st.binary(max_size=6),
        ),
        max_size=5,
    ),
    st.sampled_from([1, 20, 1 << 20]),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_the_fast_parser_never_sees_more_than_the_careful_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], chunk_bytes: int, end: bytes
) -> None:
    """Same texts or the same refusal, whatever the size of chunks: the parser that is fast is only ever used where it is sure."""
    from tokenreel.build import jsonl as module

    data = b"".join(line + end for line in lines)

    def outcome(chunk: int, careful: bool) -> object:
        shape = SourceShape(name="s", format="jsonl")
        try:
            with pytest.MonkeyPatch.context() as patch:
                if careful:
                    patch.setattr(module, "_brace_lines", lambda data: None)
                found = list(module.read_jsonl(iter([data]), "p", shape, chunk))
                for one in found:
                    one.check()
                return texts(found)
        except SourceError as error:
            return error.code, error.where.get("line")

    assert outcome(chunk_bytes, False) == outcome(1 << 20, True)


# ---- plain text ---------------------------------------------------------------------------------------------------


def test_a_text_file_is_one_document_exactly(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf two\r\n lines \n")
    assert texts(records(path, 1)) == [" two\r\n lines \n"]
    path.write_bytes(b"")
    assert texts(records(path)) == []


@given(
    st.lists(st.text("ab-\r\n", max_size=6), max_size=6), st.sampled_from(["-", "--", "\n\n", "ab-"]), st.integers(1, 9)
)
def test_separators_wherever_blocks_end(pieces: list[str], separator: str, size: int) -> None:
    from tokenreel.build.plain_text import read_text

    data = separator.join(pieces).encode()
    blocks = iter([data[k : k + size] for k in range(0, len(data), size)])
    found = list(read_text(blocks, "p", SourceShape(name="s", separator=separator), 3))
    whole = data.decode().split(separator)
    assert texts(found) == [piece for piece in whole if piece]
    assert sum(one.blank for one in found) == len([piece for piece in whole[:-1] if not piece])


def test_lines_as_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\n\nthree")
    found = records(path, separator="\n")
    assert texts(found) == ["one", "two", "three"]
    assert sum(one.blank for one in found) == 1


@pytest.mark.parametrize("separator", [None, "\n"])
def test_text_that_is_not_utf8(tmp_path: Path, separator: str | None) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\nbad \xff\n")
    with pytest.raises(SourceError, match="SRC001") as caught:
        records(path, separator=separator)
    assert caught.value.where["offset"] == 9


# ---- Parquet ------------------------------------------------------------------------------------------------------

KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("chunk_bytes", [1, 500, 1 << 20])
def test_parquet_of_any_string_type(tmp_path: Path, kind: pa.DataType, chunk_bytes: int) -> None:
    path = tmp_path / "a.parquet"
    column = pa.array(TEXTS).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(TEXTS).dictionary_encode()
    table = pa.table({"text": column, "k": list(range(len(TEXTS))), "lang": ["fa"] * len(TEXTS)})
    pq.write_table(table, path, row_group_size=3)
    found = records(path, chunk_bytes, id="k", source_field="lang")
    assert texts(found) == TEXTS
    assert [one for part in found for one in part.ids or ()] == [str(k) for k in range(len(TEXTS))]
    assert {one for part in found for one in part.sources or ()} == {"fa"}
    assert [one.first for one in found] == [sum(map(len, found[:k])) for k in range(len(found))]


def test_parquet_without_the_column_names_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"texts": ["a"]}), path)
    with pytest.raises(SourceError, match="SRC008") as caught:
        records(path)
    assert caught.value.found == "texts"
    assert 'text = "texts"' in str(caught.value.hint)


@pytest.mark.parametrize("values", [[1, 2], [b"a", b"b"], [["a"], ["b"]]])
def test_parquet_column_of_another_type(tmp_path: Path, values: list[Any]) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": values}), path)
    with pytest.raises(SourceError, match="SRC008"):
        records(path)


def test_parquet_null_names_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b", None]}), path, row_group_size=1)
    with pytest.raises(SourceError, match="SRC006") as caught:
        records(path)
    assert caught.value.where["document"] == 2


def test_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    raw = pa.array([b"fine", b"ba\xffd"])
    pq.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 2, raw.buffers())}), path)
    with pytest.raises(SourceError, match="SRC001") as caught:
        records(path)
    assert caught.value.where["document"] == 1


@pytest.mark.parametrize("change", ["cut", "text", "middle"])
def test_damaged_parquet(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a" * 500, "b" * 700]}), path, compression="zstd")
    data = bytearray(path.read_bytes())
    if change == "cut":
        data = data[:-20]
    elif change == "text":
        data = bytearray(b"not parquet at all")
    else:
        data[4:40] = bytes(36)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="SRC013"):
        records(path)


# ---- which files --------------------------------------------------------------------------------------------------


def plan(folder: Path, *sources: dict[str, Any]) -> list[tuple[str, str, str]]:
    recipe = parse_recipe({"tokenizer": {"name": "bytes"}, "source": list(sources)})
    return [(one.shape.name, one.path, one.shape.format) for one in plan_inputs(recipe, folder)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b/10.jsonl", "b/9.jsonl.gz", "b/é.parquet", "a/z.txt", "a/deep/y.md", "a/.hidden.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


def test_sources_in_order_files_in_byte_order(folder: Path) -> None:
    assert plan(
        folder, {"name": "two", "paths": ["b/*"]}, {"name": "one", "paths": ["a/**/*.md", "a/z.txt", "a/*.txt"]}
    ) == [
        ("two", "b/10.jsonl", "jsonl"),
        ("two", "b/9.jsonl.gz", "jsonl"),
        ("two", "b/é.parquet", "parquet"),
        ("one", "a/deep/y.md", "text"),
        ("one", "a/z.txt", "text"),
    ]


def test_absolute_patterns_are_recorded_without_their_folder(folder: Path) -> None:
    assert plan(folder / "a", {"name": "s", "paths": [f"{folder}/b/*.jsonl", f"{folder}/a/z.txt"]}) == [
        ("s", "10.jsonl", "jsonl"),
        ("s", "z.txt", "text"),
    ]


def test_absolute_patterns_below_the_recipe_are_relative_to_it(folder: Path) -> None:
    assert plan(folder, {"name": "s", "paths": [f"{folder}/b/1*.jsonl", f"{folder}/b/../a/z.txt"]}) == [
        ("s", "a/z.txt", "text"),
        ("s", "b/10.jsonl", "jsonl"),
    ]


def test_files_of_one_name_in_several_absolute_folders_keep_their_folders(tmp_path: Path) -> None:
    for name in ("far/one/x.jsonl", "far/two/x.jsonl", "far/two/y.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(jsonl([name]))
    (tmp_path / "near").mkdir()
    far = tmp_path / "far"
    one = {"name": "one", "paths": [f"{far}/one/*.jsonl"]}
    two = {"name": "two", "paths": [f"{far}/two/x.jsonl", f"{far}/two/y*"]}
    assert [path for _, path, _ in plan(tmp_path / "near", one, two)] == ["one/x.jsonl", "two/x.jsonl", "two/y.jsonl"]
    both = {"name": "both", "paths": [*one["paths"], *two["paths"]]}
    assert [path for _, path, _ in plan(tmp_path / "near", both)] == ["one/x.jsonl", "two/x.jsonl", "two/y.jsonl"]


def test_two_files_under_one_recorded_path_are_refused(tmp_path: Path) -> None:
    for name in ("near/x.jsonl", "far/x.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(jsonl([name]))
    for tables in (
        [{"name": "s", "paths": ["x.jsonl", f"{tmp_path}/far/x.jsonl"]}],
        [{"name": "s", "paths": ["x.jsonl"]}, {"name": "t", "paths": [f"{tmp_path}/far/*"]}],
    ):
        with pytest.raises(SourceError, match="SRC021") as caught:
            plan(tmp_path / "near", *tables)
        assert caught.value.exit_status == 2


def test_links_to_one_file_are_inputs_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(jsonl(["same"]))
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).symlink_to("blob")
    assert [path for _, path, _ in plan(tmp_path, {"name": "s", "paths": ["*.jsonl", "a.*"]})] == ["a.jsonl", "b.jsonl"]


def test_a_file_in_two_sources_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl(["same"]))
    (tmp_path / "b.jsonl").symlink_to("a.jsonl")
    tables = [{"name": "s", "paths": ["a.jsonl"]}, {"name": "t", "paths": ["*.jsonl"]}]
    recipe = parse_recipe({"tokenizer": {"name": "bytes"}, "source": tables})
    pairs = in_two_sources(plan_inputs(recipe, tmp_path))
    assert [(one.shape.name, one.path, two.shape.name, two.path) for one, two in pairs] == [
        ("s", "a.jsonl", "t", "a.jsonl"),
        ("s", "a.jsonl", "t", "b.jsonl"),
    ]


@pytest.mark.parametrize("pattern", ["none/*.jsonl", "b/*.csv", "none/**/*.jsonl"])
def test_a_pattern_without_files_is_an_error(folder: Path, pattern: str) -> None:
    with pytest.raises(SourceError, match="SRC014") as caught:
        plan(folder, {"name": "s", "paths": ["b/10.jsonl", pattern]})
    assert caught.value.exit_status == 2


def test_a_file_named_outright_that_is_not_there(folder: Path) -> None:
    with pytest.raises(StorageError, match=r"STO001 .*absent\.jsonl") as caught:
        plan(folder, {"name": "s", "paths": ["b/10.jsonl", "b/absent.jsonl"]})
    assert caught.value.exit_status == 3


def test_a_link_to_nothing_is_an_error_and_not_passed_over(folder: Path) -> None:
    (folder / "b" / "lost.jsonl").symlink_to("nowhere")
    for pattern in ("b/*.jsonl", "b/lost.jsonl"):
        with pytest.raises(StorageError, match=r"STO001 .*lost\.jsonl"):
            plan(folder, {"name": "s", "paths": [pattern]})


@pytest.mark.parametrize("pattern", ["b/*.jsonl", "**/*.jsonl", "*/10.jsonl"])
def test_a_folder_that_cannot_be_listed_is_an_error_and_not_passed_over(
    folder: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenreel.build import sources as module

    listed = module.os.listdir

    def refuse(path: str) -> list[str]:
        if Path(path).name == ("b" if pattern != "*/10.jsonl" else folder.name):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    # The superuser, who may run this, is refused nothing: the system's answer is put in its mouth.
    monkeypatch.setattr(module.os, "listdir", refuse)
    with pytest.raises(StorageError, match="STO002"):
        plan(folder, {"name": "s", "paths": [pattern]})


def test_a_recipe_in_a_folder_with_wildcards_in_its_name(tmp_path: Path) -> None:
    inside = tmp_path / "a[1]*"
    inside.mkdir()
    (inside / "x.jsonl").write_bytes(jsonl(["a"]))
    assert [path for _, path, _ in plan(inside, {"name": "s", "paths": ["*.jsonl"]})] == ["x.jsonl"]


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.jsonl", "wb") as file:  # noqa: PTH123
        file.write(jsonl(["a"]))
    with pytest.raises(SourceError, match=r"SRC019 .*\\xff\.jsonl"):
        plan(tmp_path, {"name": "s", "paths": ["*.jsonl"]})


def test_a_folder_or_a_pipe_is_an_error(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jsonl")
    for name, found in (("b", "a folder"), ("pipe.jsonl", "a device or a pipe")):
        with pytest.raises(SourceError, match="SRC018") as caught:
            plan(folder, {"name": "s", "paths": [name]})
        assert (caught.value.found, caught.value.exit_status) == (found, 2)


def test_a_format_that_cannot_be_told(folder: Path) -> None:
    (folder / "data.bin").write_text("x")
    with pytest.raises(RecipeError, match="SRC015"):
        plan(folder, {"name": "s", "paths": ["data.bin"]})
    assert plan(folder, {"name": "s", "paths": ["data.bin"], "format": "text"}) == [("s", "data.bin", "text")]


def test_fields_of_plain_text_told_by_name(folder: Path) -> None:
    with pytest.raises(RecipeError, match="RCP006"):
        plan(folder, {"name": "s", "paths": ["a/z.txt"], "id": "k"})
    with pytest.raises(RecipeError, match="RCP006"):
        plan(folder, {"name": "s", "paths": ["b/10.jsonl"], "separator": "x"})


# ---- what was planned is what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, stamped: bool, name: str) -> None:
    path = tmp_path / name

    def fill(word: str) -> None:
        if name == "a.jsonl":
            path.write_bytes(jsonl([word * (1 << 20)] * 3))  # more than one block
        else:
            pq.write_table(pa.table({"text": [word]}), path)

    fill("one")
    size, sha256 = path.stat().st_size, sha256_of(path)
    file = InputBytes(path, stamp_of(path) if stamped else None)
    shape = SourceShape(name="s", format=name.partition(".")[2])
    reading = read_records(file, shape, 1)
    next(reading)
    fill("two")

    def read_on() -> None:
        list(reading)
        file.check(size, sha256)

    with pytest.raises(TokenreelError) as caught:
        read_on()
    assert caught.value.code == "SRC012"


def test_a_mark_across_members_of_plain_text(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbfone\ntwo\n"
    for separator in (None, "\n"):
        path = tmp_path / "a.txt.gz"
        path.write_bytes(b"".join(gzip.compress(data[k : k + 1]) for k in range(len(data))))
        assert "".join(texts(records(path, separator=separator))).startswith("one")


def test_a_window_that_takes_too_much_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    parameters = zstandard.ZstdCompressionParameters(window_log=28, strategy=1)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path.write_bytes(writer.compress(jsonl(TEXTS)) + writer.flush())
    with pytest.raises(SourceError, match="SRC011") as caught:
        records(path)
    assert "128 MiB" in caught.value.message
    assert "--long" in str(caught.value.hint)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_text_that_is_something_else(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    for data, hint in (("سلام".encode("utf-16"), "iconv -f UTF-16"), (b"PAR1\x15\xffPAR1", 'format = "parquet"')):
        path.write_bytes(COMPRESS[suffix](data))
        with pytest.raises(SourceError, match="SRC001") as caught:
            records(path)
        assert hint in str(caught.value.hint)
        assert ("decompressed data" in caught.value.message) == bool(suffix)
