"""The public surface: which names there are, what importing them costs, and what a wheel ships."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tokenreel
from tests.structure import ALLOWED, modules, part_of

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "src" / "tokenreel"

# A name added to, or taken from, the public surface is changed here too: on purpose.
PUBLIC = [
    "Batch",
    "Boundary",
    "Corpus",
    "CorpusKey",
    "DataError",
    "DocTable",
    "DocumentError",
    "Feed",
    "Flag",
    "FormatError",
    "Hits",
    "Identity",
    "IdentityHasher",
    "IncompleteError",
    "ManifestError",
    "MissingExtra",
    "Order",
    "OrderError",
    "RecipeError",
    "RowPolicy",
    "SourceError",
    "SpanTable",
    "SplitError",
    "StateError",
    "StorageError",
    "StreamOrder",
    "TokenError",
    "TokenizerError",
    "TokenreelError",
    "UsageError",
    "__version__",
    "explain",
    "open",
    "open_feed",
]

FORBIDDEN_AT_START = {"numpy", "numba", "pyarrow", "tokenizers", "torch"}
SCRIPT = Path(sys.executable).with_name("tokenreel")


# ---- names ----------------------------------------------------------------------------------------------------------


def test_the_public_names_are_these() -> None:
    assert tokenreel.__all__ == PUBLIC


def test_the_list_has_no_repeats() -> None:
    assert len(set(PUBLIC)) == len(PUBLIC)


def test_dir_shows_every_public_name() -> None:
    assert set(PUBLIC) <= set(dir(tokenreel))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_resolves_to_something_documented(name: str) -> None:
    value = getattr(tokenreel, name)
    if isinstance(value, type) or callable(value):
        assert (value.__module__ or "").split(".")[0] == "tokenreel"
        assert (value.__doc__ or "").strip(), f"{name} has no docstring"


def test_no_public_function_bears_the_name_of_a_package() -> None:
    # Importing tokenreel.x sets the attribute x of tokenreel: it would replace a function of that name.
    parts = {*ALLOWED, "testing", *(part_of(path, TREE) for path in modules(TREE))}
    clashes = [name for name in PUBLIC if name in parts and not isinstance(getattr(tokenreel, name), ModuleType)]
    assert clashes == []


def test_a_type_checker_sees_the_names_that_are_loaded_lazily() -> None:
    block = next(n for n in ast.parse((TREE / "__init__.py").read_text("utf-8")).body if isinstance(n, ast.If))
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == tokenreel._LAZY


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tokenreel.no_such_name


def test_the_version_is_the_project_s() -> None:
    assert tokenreel.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


# ---- what starting costs --------------------------------------------------------------------------------------------


def loaded_by(*command: str) -> set[str]:
    """Return the top-level packages that a command imports, as the interpreter itself reports them."""
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    said = [line for line in result.stderr.splitlines() if not line.startswith("import time:")]
    assert result.returncode == 0, "\n".join(said)
    names = re.findall(r"^import time:.*\| +([\w.]+)$", result.stderr, re.MULTILINE)
    assert "encodings" in names, "the interpreter reported no imports"
    return {name.split(".")[0] for name in names}


def test_the_report_of_imports_sees_a_heavy_one() -> None:
    assert "numpy" in loaded_by(sys.executable, "-c", "import tokenreel, numpy")


def test_import_loads_nothing_heavy() -> None:
    loaded = loaded_by(sys.executable, "-c", "import tokenreel")
    assert "tokenreel" in loaded
    assert loaded & FORBIDDEN_AT_START == set()


@pytest.mark.parametrize("command", [[sys.executable, "-m", "tokenreel"], [str(SCRIPT)]], ids=["module", "script"])
@pytest.mark.parametrize(
    "arguments", [["--help"], ["inspect", "--help"], ["verify", "--help"], ["build", "--help"]], ids=" ".join
)
def test_help_loads_nothing_heavy(command: list[str], arguments: list[str]) -> None:
    assert loaded_by(*command, *arguments) & FORBIDDEN_AT_START == set()


# ---- what ships -----------------------------------------------------------------------------------------------------


def test_a_built_wheel_holds_the_whole_package(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, source)
    shutil.copytree(TREE, source / "src" / "tokenreel", ignore=shutil.ignore_patterns("__pycache__", "*.tokenreel-tmp"))
    made = [f"tokenreel/{path.relative_to(TREE).as_posix()}" for path in sorted(TREE.rglob("*")) if path.is_file()]
    wanted = {name for name in made if "__pycache__" not in name}
    assert {"tokenreel/py.typed", "tokenreel/codes.toml"} <= wanted

    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    result = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    with zipfile.ZipFile(next(tmp_path.glob("tokenreel-*.whl"))) as wheel:
        names = wheel.namelist()
    assert {name for name in names if name.startswith("tokenreel/")} == wanted
    assert any(name.endswith(".dist-info/entry_points.txt") for name in names)
    assert any(name.endswith("/LICENSE") for name in names)


@pytest.mark.parametrize(
    ("extra", "files"),
    [("", ["base"]), ("build", ["base", "build"]), ("dev", ["base", "build", "dev"])],
)
def test_the_pins_satisfy_what_the_project_asks_for(extra: str, files: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    lines = [line for name in files for line in (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").splitlines()]
    pins = {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", "\n".join(lines), re.MULTILINE)
    }

    waiting = [Requirement(text) for text in (extras[extra] if extra else project["dependencies"])]
    while waiting:
        wanted = waiting.pop()
        if wanted.name == "tokenreel":
            waiting += [Requirement(text) for name in wanted.extras for text in extras[name]]
        else:
            version = pins.get(canonicalize_name(wanted.name))
            assert version is not None, f"{wanted} is not pinned"
            assert wanted.specifier.contains(version), f"{wanted} is pinned to {version}"
