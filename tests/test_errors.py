"""Errors: what they say, how they travel, and the one table of codes."""

from __future__ import annotations

import copy
import json
import multiprocessing
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel import errors
from tokenreel.errors import (
    Code,
    DataError,
    IncompleteError,
    MissingExtra,
    RecipeError,
    StorageError,
    TokenreelError,
    UsageError,
    codes,
    describe,
    explain,
    nearest,
    require,
)

TABLE = Path(errors.__file__).with_name("codes.toml")


def every_class() -> list[type[TokenreelError]]:
    found: list[type[TokenreelError]] = []
    todo: list[type[TokenreelError]] = [TokenreelError]
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo += [sub for sub in cls.__subclasses__() if sub.__module__ == "tokenreel.errors"]
    return sorted(found, key=lambda cls: cls.__name__)


CLASSES = every_class()


# ---- the table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", codes().values(), ids=lambda row: row.code)
def test_every_row_is_complete(row: Code) -> None:
    for text in (row.title, row.meaning, row.why, row.mend):
        assert text.strip() == text != ""
    assert "\n" not in row.title
    assert not row.title.endswith(".")
    for sentence in (row.meaning, row.why, row.mend):
        assert sentence[-1] in ".?!", sentence
    assert row.exit in (None, 1, 2, 3, 4)


def test_headers_of_the_file_are_unique_and_sorted() -> None:
    """On the raw text: a TOML parser would say little about order, and nothing about blocks."""
    lines = TABLE.read_text("utf-8").splitlines()
    headers = [line[1:-1] for line in lines if line.startswith("[")]
    assert headers
    assert all(re.fullmatch(r"[A-Z]{3}[0-9]{3}", header) for header in headers)
    assert len(headers) == len(set(headers))
    assert headers == sorted(headers)
    assert headers == list(codes())


def test_every_family_has_one_block_in_the_file() -> None:
    family, blocks = "", []
    for line in TABLE.read_text("utf-8").splitlines():
        if block := re.match(r"# -{2,} ([A-Z]{3}) \S", line):
            family = block[1]
            blocks.append(family)
        elif line.startswith("["):
            assert line[1:4] == family, f"{line} stands in the block of {family}"
    assert len(blocks) == len(set(blocks))
    assert {code[:3] for code in codes()} == set(blocks)


def test_numbers_of_a_family_have_no_duplicates_in_title() -> None:
    for family in {code[:3] for code in codes()}:
        titles = [row.title for code, row in codes().items() if code.startswith(family)]
        assert len(titles) == len(set(titles)), family


# ---- explain and nearest -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["STO004", "sto004", " Sto004\n"])
def test_explain_takes_any_case(spelling: str) -> None:
    assert explain(spelling) == codes()["STO004"]


@pytest.mark.parametrize(("code", "near"), [("STO044", "STO004"), ("ST0004", "STO004"), ("MAN01", "MAN001")])
def test_explain_names_the_nearest_code(code: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(code)
    assert caught.value.code == "USE001"
    assert caught.value.found == code
    assert caught.value.hint is not None
    assert re.fullmatch(r"tokenreel explain [A-Z]{3}\d{3}", caught.value.hint)
    assert nearest(code, ["USE001", "ORD002", near]) == near


def test_explain_of_nothing_alike_names_the_list() -> None:
    with pytest.raises(UsageError, match=r"tokenreel explain --list"):
        explain("????????????")


def test_nearest() -> None:
    assert nearest("tokeniser", ["tokenizer", "sources", "out"]) == "tokenizer"
    assert nearest("zzzz", ["tokenizer"]) is None
    assert nearest("x", []) is None


# ---- exit statuses -------------------------------------------------------------------------------------------------

EXITS = {
    "DataError": 1,
    "DocumentError": 1,
    "FormatError": 1,
    "IncompleteError": 4,
    "ManifestError": 1,
    "MissingExtra": 2,
    "OrderError": 1,
    "RecipeError": 2,
    "ReplayError": 1,
    "SourceError": 1,
    "SplitError": 1,
    "StateError": 1,
    "StorageError": 3,
    "TokenError": 1,
    "TokenizerError": 1,
    "TokenreelError": 1,
    "UsageError": 2,
}
BUILTINS = {
    "UsageError": ValueError,
    "DataError": ValueError,
    "DocumentError": IndexError,
    "StorageError": OSError,
    "IncompleteError": RuntimeError,
    "MissingExtra": ImportError,
}


def test_exit_status_of_every_class() -> None:
    # A code that is not in the table leaves the class's own.
    assert {cls.__name__: cls("ZZZ999").exit_status for cls in CLASSES} == EXITS


def test_exit_status_of_every_code() -> None:
    for cls in CLASSES:
        for code, row in codes().items():
            assert cls(code).exit_status == (cls.default_exit if row.exit is None else row.exit)
    assert StorageError("STO006").exit_status == 1  # a path that a manifest got wrong is data, not a disk


def test_classes_are_the_builtins_they_say() -> None:
    for name, builtin in BUILTINS.items():
        assert issubclass(getattr(errors, name), builtin)
    assert all(issubclass(cls, TokenreelError) for cls in CLASSES)
    assert issubclass(RecipeError, UsageError)
    tree = errors.__doc__ or ""
    assert [cls.__name__ for cls in CLASSES if cls.__name__ not in tree] == []


# ---- what an error says --------------------------------------------------------------------------------------------


def test_the_message_has_place_facts_and_a_command() -> None:
    error = DataError(
        "TOK001",
        "an id is wrong",
        path=Path("a/b.bin"),
        offset=34,
        shard="b",
        document=7,
        line=2,
        expected=">= 0",
        found=-1,
        hint="tokenreel verify a",
    )
    assert str(error) == (
        "TOK001 a/b.bin line 2 byte 34 shard b document 7: an id is wrong (expected >= 0, found -1)\n"
        "  try: tokenreel verify a"
    )
    assert error.where == {"path": "a/b.bin", "offset": 34, "shard": "b", "document": 7, "line": 2}


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_prints_alike(cls: type[TokenreelError]) -> None:
    error = cls("STO004", path="x", found=0)
    assert str(error) == f"STO004 x: {codes()['STO004'].title} (found 0)"
    assert error.title == codes()["STO004"].title
    assert isinstance(error, Exception)


def test_zero_is_a_place_and_a_fact() -> None:
    error = DataError("TOK001", offset=0, document=0, line=0, expected=0, found=False)
    assert error.where == {"offset": 0, "document": 0, "line": 0}
    assert "byte 0 document 0" in str(error)
    assert error.as_dict()["expected"] == 0
    assert error.as_dict()["found"] is False


def test_describe_without_a_place() -> None:
    assert describe("m", {}) == "m"
    assert describe("m", {}, found="f") == "m (found f)"
    assert describe("m", {"document": 3}, hint="h") == "document 3: m\n  try: h"


def test_as_dict_falls_back_to_the_table() -> None:
    shown = StorageError("STO001", path="p").as_dict()
    assert shown == {
        "code": "STO001",
        "message": codes()["STO001"].title,
        "where": {"path": "p"},
        "hint": "tokenreel explain STO001",
    }


odd = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.binary(max_size=4),
        st.just(np.int64(3)),
        st.just(np.float32(0.5)),
        st.just(np.arange(3)),
        st.just(np.dtype("u2")),
        st.just({1, 2}),
        st.just(Path("a")),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(st.integers(), inner)),
    max_leaves=6,
)


@given(expected=odd, found=odd)
def test_as_dict_is_always_json(expected: Any, found: Any) -> None:
    error = DataError("TOK001", offset=np.int64(5), document=np.uint32(7), expected=expected, found=found)  # type: ignore[arg-type]
    shown = json.loads(json.dumps(error.as_dict(), allow_nan=False))
    assert shown["where"] == {"offset": 5, "document": 7}
    assert ("expected" in shown) == (expected is not None)
    assert str(error)


# ---- across processes ----------------------------------------------------------------------------------------------


def _fail(name: str) -> None:
    raise getattr(errors, name)(
        "STO004",
        "from a worker",
        path="a.bin",
        offset=3,
        shard="s",
        document="id-7",
        line=9,
        expected=(1, 2),
        # A view cannot be sent; the error must arrive all the same.
        found=memoryview(b"abc") if name == "DataError" else np.int64(2),
        hint="try this",
    )


def test_every_class_keeps_every_field_across_processes() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for cls in CLASSES:
            with pytest.raises(cls) as caught:
                pool.submit(_fail, cls.__name__).result()
            error = caught.value
            assert type(error) is cls
            assert (error.code, error.message, error.hint) == ("STO004", "from a worker", "try this")
            assert error.where == {"path": "a.bin", "offset": 3, "shard": "s", "document": "id-7", "line": 9}
            assert error.expected == [1, 2]
            assert str(error.found).startswith("<memory at" if cls is DataError else "2")
            assert error.exit_status == cls("STO004").exit_status


@pytest.mark.parametrize("cls", CLASSES)
def test_copies_keep_every_field(cls: type[TokenreelError]) -> None:
    error = cls("STO004", "m", path="p", offset=1, expected="e", found=2, hint="h")
    twin = copy.copy(error)
    assert type(twin) is cls
    assert twin.as_dict() == error.as_dict()
    assert str(twin) == str(error)


# ---- optional packages ---------------------------------------------------------------------------------------------


def test_require_names_the_extra() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("tokenreel_no_such_package", extra="build")
    assert caught.value.code == "USE002"
    assert caught.value.hint == "pip install '.[build]' in a clone; elsewhere pip install 'tokenreel[build]'"
    assert caught.value.exit_status == 2
    assert isinstance(caught.value, ImportError)


def test_incomplete_is_no_failure_of_data() -> None:
    assert IncompleteError("ZZZ999").exit_status == 4
    assert not isinstance(IncompleteError("ZZZ999"), DataError)


def test_errors_import_nothing_heavy() -> None:
    code = "import sys, tokenreel.errors; print([m for m in ('numpy', 'difflib', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("path", "hint", "quoted"),
    [
        ("/a b/c", "ls -l /a b/c", "ls -l '/a b/c'"),
        ("/a b/c", "ls -l /a b", "ls -l '/a b'"),
        ("/x/$(id)/c", "tokenreel verify /x/$(id)/c --level full", "tokenreel verify '/x/$(id)/c' --level full"),
        ("/a b/c", "ls -l '/a b/c'", "ls -l '/a b/c'"),
        ("/a/b", "ls -l /a/b", "ls -l /a/b"),
        ("/a b/c", "tokenreel explain STO001", "tokenreel explain STO001"),
        (None, "ls", "ls"),
    ],
)
def test_a_path_in_a_hint_is_one_word_of_the_shell(path: str | None, hint: str, quoted: str) -> None:
    error = StorageError("STO001", path=path, hint=hint)
    assert error.hint == quoted
    again = copy.copy(error)
    assert again.hint == quoted
