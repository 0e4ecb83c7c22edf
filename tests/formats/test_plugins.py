"""Formats that other packages add: the template of the page, as it stands there, installed and used."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.formats.indexed_cases import look, opened, read, write
from tokenreel.corpus.opening import open_corpus
from tokenreel.errors import FormatError
from tokenreel.formats import shards_of
from tokenreel.formats.plugins import added, others
from tokenreel.formats.registry import FORMATS, all_formats, format_named
from tokenreel.store import LocalStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
CODE, POINTS = (re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1] for kind in ("python", "toml"))  # type: ignore[index]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Return a function that installs a package `my_package.toy` with an entry point."""

    def make(code: str, points: str) -> None:
        package = tmp_path / "site" / "my_package"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "toy.py").write_text(code, "utf-8")
        info = tmp_path / "site" / "my_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(tmp_path / "site")
        importlib.invalidate_caches()
        added.cache_clear()

    yield make
    added.cache_clear()
    for name in ("my_package", "my_package.toy"):
        sys.modules.pop(name, None)


def points() -> str:
    """The page's lines for pyproject.toml, as an installer writes them."""
    found = re.search(r'entry-points\."(.*?)"\]\n(\w+) = "(.*?)"', POINTS)
    assert found is not None
    return f"[{found[1]}]\n{found[2]} = {found[3]}\n"


def test_the_template_is_short_and_works(
    install: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(CODE.splitlines()) < 40
    install(CODE, points())
    assert [row.name for row in added()] == ["toy"]
    assert others() == ("my_package.toy:recognise",)
    assert all_formats() == FORMATS + added()
    assert (format_named("toy").reads, format_named("toy").writes) == (True, True)

    shards = [[[1, 2], [], [65535]], [[7] * 300]]
    write(tmp_path / "out", "toy", shards, "uint16")
    store = LocalStore(tmp_path / "out")
    assert read(store) == shards
    corpus = open_corpus(tmp_path / "out")
    assert [ids.tolist() for ids in corpus] == shards[0] + shards[1]
    assert corpus.boundary.table

    data = store.read("part-000000.toy")
    assert look({"a.toy": data[:-1]}) == "TOY001"
    assert look({"a.toy": b"\xff" * 8 + data[8:]}) == "TOY001"
    assert look({"a.toy": data[:16] + data[24:32] + data[16:24] + data[32:]}) == "TOY002"


def test_ours_come_first(install: Callable[[str, str], None]) -> None:
    install(CODE.replace(".toy", ".pbin"), points())
    found = shards_of(store := MemoryStore({"a.pbin": b""}), store.list())
    assert [shard.format for shard in found] == ["pbin"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("FORMAT = 3", "int"),
        (CODE.replace('Format("toy"', 'Format("mds"'), "the name mds again"),
        ("", "AttributeError"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(install: Callable[[str, str], None], code: str, said: str) -> None:
    install(code, points())
    with pytest.raises(FormatError, match="FLT010") as caught:
        all_formats()
    assert "my_package.toy:FORMAT" in str(caught.value)
    assert said in str(caught.value.found)
    # What is ours is still read.
    index = b'{"chunks": [{"filename": "c.bin", "chunk_bytes": 14, "chunk_size": 1, "dim": 1}], "config": {"data_format": ["no_header_tensor:20"]}}'
    data = np.array([1, 12, 14], "<u4").tobytes() + b"ab"
    assert len(opened(MemoryStore({"index.json": index, "c.bin": data}))) == 1
