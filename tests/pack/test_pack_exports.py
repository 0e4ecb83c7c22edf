"""The names of the pack package: all there, loaded when first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tokenreel.pack as package


@pytest.mark.parametrize("name", package.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(package, name)
    assert value.__name__ == name
    assert value.__module__ == f"tokenreel.pack.{package._HOME[name]}"
    assert value.__doc__
    assert name in dir(package)


def test_a_type_checker_sees_the_same_names() -> None:
    block = next(one for one in ast.parse(Path(package.__file__).read_text()).body if isinstance(one, ast.If))
    seen = {
        a.name: (one.module or "").split(".")[-1]
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for a in one.names
    }
    assert seen == package._HOME


def test_importing_the_package_loads_no_numpy() -> None:
    program = "import sys, tokenreel.pack; raise SystemExit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing
