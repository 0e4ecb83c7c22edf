"""The house rules hold here, and each rule catches a tree that breaks it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import structure

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "src" / "tokenreel"

ROW = 'title = "t"\nmeaning = "m"\nwhy = "w"\nmend = "x"\n'
PACKAGE_RULES = [
    structure.import_direction,
    structure.heavy_imports,
    structure.impurities,
    structure.too_long,
    structure.vague_names,
    structure.asserts,
    structure.pickles,
    structure.unknown_codes,
    structure.unused_codes,
    structure.faulty_rows,
]


@pytest.mark.parametrize("rule", PACKAGE_RULES, ids=lambda rule: rule.__name__)
def test_the_package_obeys(rule: Callable[[Path], list[str]]) -> None:
    assert structure.modules(TREE), "no modules found: the rule would hold of nothing"
    bad = rule(TREE)
    assert not bad, "\n" + "\n".join(bad)


@pytest.mark.parametrize(
    "rule", [structure.forbidden_text, structure.loose_requirements], ids=lambda rule: rule.__name__
)
def test_the_repository_obeys(rule: Callable[[Path], list[str]]) -> None:
    bad = rule(ROOT)
    assert not bad, "\n" + "\n".join(bad)


def test_pages_mention_only_codes_of_the_table() -> None:
    bad = structure.codes_mentioned_outside(ROOT, TREE)
    assert not bad, "\n" + "\n".join(bad)


# ---- each rule can fail -------------------------------------------------------------------------------------------


@pytest.fixture
def grow(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a small package: file name -> text."""

    def write(files: dict[str, str], codes: str = "") -> Path:
        tree = tmp_path / "src" / "tokenreel"
        for name, text in {"__init__.py": "", "codes.toml": codes, **files}.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return tree

    return write


BAD_IMPORTS = [
    ("order/a.py", "import tokenreel.store", "order imports store"),
    ("order/a.py", "from tokenreel.pack import rows", "order imports pack"),
    ("order/a.py", "from tokenreel import corpus", "order imports corpus"),
    ("order/a.py", "def f():\n    from tokenreel.formats.base import Shard", "order imports formats"),
    ("order/deep/a.py", "from ...store import atomic", "order imports store"),
    ("order/a.py", "from .. import store", "order imports store"),
    ("order/a.py", "import importlib\nimportlib.import_module('tokenreel.cli')", "order imports cli"),
    ("order/a.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import tokenreel.store", "order imports store"),
    ("text/a.py", "import tokenreel.formats", "text imports formats"),
    ("formats/a.py", "import tokenreel.corpus", "formats imports corpus"),
    ("store/a.py", "import tokenreel.order", "store imports order"),
    ("errors.py", "import tokenreel.spans", "errors imports spans"),
    ("convert/a.py", "import tokenreel.build", "convert imports build"),
    ("verify/a.py", "import tokenreel.convert", "verify imports convert"),
    ("feed/a.py", "import tokenreel.replay", "feed imports replay"),
    ("demo.py", "import tokenreel.cli", "demo imports cli"),
    ("corpus/a.py", "from tokenreel import open", "corpus imports __init__"),
    ("cli/a.py", "from tokenreel.testing import tiny", "cli imports testing"),
    ("__init__.py", "import tokenreel.testing", "__init__ imports testing"),
    ("shed/a.py", "", "shed: not a part of the house"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD_IMPORTS)
def test_a_wrong_import_is_caught(grow: Callable[..., Path], name: str, text: str, message: str) -> None:
    bad = structure.import_direction(grow({name: text}))
    assert len(bad) == 1
    assert message in bad[0]


def test_right_imports_pass(grow: Callable[..., Path]) -> None:
    tree = grow(
        {
            "__init__.py": "if TYPE_CHECKING:\n    from tokenreel.corpus import Corpus\n",
            "__main__.py": "from tokenreel.cli import main",
            "order/a.py": "import os.path, numpy\nimport tokenreel.spans\nfrom tokenreel.order.b import c\n"
            "if TYPE_CHECKING:\n    from tokenreel.corpus import Corpus",
            "corpus/a.py": "from tokenreel import __version__, errors\nfrom tokenreel.formats import base",
            "build/a.py": "from tokenreel.verify import verify\nfrom tokenreel.config import recipe",
            "cli/a.py": "def f():\n    from tokenreel.demo import run",
            "testing/a.py": "import tokenreel.cli, tokenreel.build",
        }
    )
    assert structure.import_direction(tree) == []


def test_the_allowed_table_has_no_cycle() -> None:
    done: set[str] = set()
    waiting = dict(structure.ALLOWED)
    while waiting:
        ready = {part for part, needs in waiting.items() if needs <= done}
        assert ready, f"a cycle among {sorted(waiting)}"
        done |= ready
        for part in ready:
            del waiting[part]


BAD_PACKAGES: list[tuple[Callable[[Path], list[str]], dict[str, str], str]] = [
    (structure.heavy_imports, {"build/a.py": "import pyarrow.parquet as pq"}, "build/a.py:1: pyarrow imported"),
    (structure.heavy_imports, {"feed/torch.py": "import jax"}, "feed/torch.py:1: jax imported"),
    (structure.heavy_imports, {"build/a.py": "class A:\n    import torch"}, "build/a.py:2: torch imported"),
    (structure.heavy_imports, {"build/a.py": "from tokenreel.errors import require\nrequire('ray')"}, "a.py:2: ray"),
    (structure.heavy_imports, {"verify/a.py": "def f():\n    import numba"}, "verify/a.py:2: verify imports numba"),
    (structure.impurities, {"order/a.py": "import time"}, "imports time"),
    (structure.impurities, {"pack/a.py": "def f():\n    from pathlib import Path"}, "imports pathlib.Path"),
    (structure.impurities, {"spans.py": "def f():\n    return open('x')"}, "spans.py:2: pure code calls open"),
    (structure.impurities, {"order/a.py": "np.random.seed(0)"}, "calls np.random.seed"),
    (structure.too_long, {"order/a.py": "x = 1\n" * 501}, "order/a.py:1: 501 lines"),
    (structure.vague_names, {"text/utils.py": ""}, "a module named utils"),
    (structure.vague_names, {"text/a.py": "class MapManager: ..."}, "text/a.py:1: a class named MapManager"),
    (structure.vague_names, {"text/a.py": "def f():\n    class _Helper: ..."}, "a class named _Helper"),
    (structure.asserts, {"text/a.py": "def f(x):\n    assert x"}, "text/a.py:2: assert"),
    (structure.pickles, {"text/a.py": "def f():\n    import pickle"}, "text/a.py:2: imports pickle"),
    (structure.pickles, {"text/a.py": "from pickle import loads"}, "imports pickle.loads"),
    (structure.pickles, {"text/a.py": "np.load(x, allow_pickle=True)"}, "allow_pickle=True"),
    (structure.unknown_codes, {"text/a.py": "raise E('TKZ999')"}, "text/a.py:1: TKZ999 is not in codes.toml"),
    (structure.unknown_codes, {"text/a.py": '"""Raises TKZ998."""'}, "text/a.py:1: TKZ998 is not in codes.toml"),
    (structure.unknown_codes, {"text/a.py": "raise E('QQQ001')"}, "text/a.py:1: QQQ001 is not in codes.toml"),
]


@pytest.mark.parametrize(("rule", "files", "message"), BAD_PACKAGES)
def test_a_bad_package_is_caught(
    grow: Callable[..., Path], rule: Callable[[Path], list[str]], files: dict[str, str], message: str
) -> None:
    bad = rule(grow(files))
    assert len(bad) == 1
    assert message in bad[0]


def test_a_good_package_passes_every_rule(grow: Callable[..., Path]) -> None:
    tree = grow(
        {
            "feed/torch.py": "import torch",
            "build/a.py": "def f():\n    import pyarrow\n    raise E('SRC001')\nname = 'SHA256'",
            "text/a.py": "np.load(x, allow_pickle=False)\ndef f():\n    open('x')",
            "order/a.py": "import numpy as np\nr = np.random.Generator(np.random.Philox(0))\n" + "#\n" * 498,
        },
        codes=f"[SRC001]\n{ROW}",
    )
    assert [bad for rule in PACKAGE_RULES for bad in rule(tree)] == []


BAD_TABLES = [
    (f"[SRC001]\n{ROW}", structure.unused_codes, "SRC001 is used nowhere"),
    (f"[XYZ001]\n{ROW}", structure.faulty_rows, "XYZ001 belongs to no family"),
    (f"[SRC1]\n{ROW}", structure.faulty_rows, "SRC1 belongs to no family"),
    ('[SRC001]\ntitle = "t"\nmeaning = "m"\nwhy = " "\nmend = "x"', structure.faulty_rows, "SRC001 has no why"),
    ('[SRC001]\ntitle = "t"\nmeaning = "m"\nwhy = "w"', structure.faulty_rows, "SRC001 has no mend"),
    (f"[SRC001]\n{ROW}exit = 70", structure.faulty_rows, "SRC001 has exit 70"),
    (f'[SRC001]\n{ROW}note = "n"', structure.faulty_rows, "SRC001 has an unknown key note"),
    (f"[SRC002]\n{ROW}[SRC001]\n{ROW}", structure.faulty_rows, "not sorted, first at SRC002"),
]


@pytest.mark.parametrize(("codes", "rule", "message"), BAD_TABLES)
def test_a_bad_table_is_caught(
    grow: Callable[..., Path], codes: str, rule: Callable[[Path], list[str]], message: str
) -> None:
    bad = rule(grow({}, codes=codes))
    assert len(bad) == 1
    assert message in bad[0]


@pytest.mark.parametrize("in_git", [True, False])
def test_forbidden_text_is_caught(tmp_path: Path, in_git: bool) -> None:
    if in_git:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        (tmp_path / ".gitignore").write_text("skipped\n")
        (tmp_path / "skipped").write_text("/" + "work/x")
    (tmp_path / "good.md").write_text("a/" + "root/b, /" + "workers, net" + "work/x\n")
    (tmp_path / "a.py").write_text("x = 1\ny = '/" + "work/main'\n")
    (tmp_path / "b.bin").write_bytes(b"\xff\0see /" + b"root")
    (tmp_path / "c.txt").write_text("https://files.python" + "hosted.org/x\nhttps://mirror.example/simple" + "/\n")
    found = structure.forbidden_text(tmp_path)
    assert [place.split(": ")[0] for place in found] == ["a.py:2", "b.bin:1", "c.txt:1", "c.txt:2"]


def test_loose_requirements_are_caught(tmp_path: Path) -> None:
    folder = tmp_path / "requirements"
    folder.mkdir()
    good = "# a comment\n-r base.txt\nnumpy==2.4.6\nx[y]==1.0.post1 ; python_version < '3.12'  # why\n\n"
    bad = ["numpy", "numpy>=2", "--index-url https://mirror.example", "x @ file:///a.whl", "git+https://a.example/b"]
    (folder / "a.txt").write_text(good + "\n".join(bad))
    assert [place.split(": ", 1)[1] for place in structure.loose_requirements(tmp_path)] == bad


def test_a_page_with_an_unknown_code_is_caught(grow: Callable[..., Path]) -> None:
    tree = grow({}, codes=f"[SRC001]\n{ROW}")
    root = tree.parent.parent
    (root / "README.md").write_text("SRC001 and SRC777, computed with SHA256 and GPT200")
    assert structure.codes_mentioned_outside(root, tree) == ["README.md:1: SRC777 is not in codes.toml"]
