"""A rim whose framework is not installed says which extra to install; the others work without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

ABSENT = """
import sys
for name in ("torch", "jax", "grain"):
    sys.modules[name] = None
from tokenreel.errors import MissingExtra

def said(what):
    try:
        what()
    except MissingExtra as error:
        return f"{error.code} {error.expected}"

def torch():
    import tokenreel.feed.torch

def grain():
    import tokenreel.feed.grain

def jax():
    from tokenreel.feed.jax import open_jax_feed
    open_jax_feed(None, None)

import tokenreel.feed.megatron, tokenreel.feed.maxtext, tokenreel.testing
print(said(torch), said(grain), said(jax), sep="; ")
"""


def test_what_is_missing_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "USE002 the extra [torch]; USE002 the extra [grain]; USE002 the extra [jax]"


@pytest.mark.parametrize("module", ["megatron", "maxtext", "context_parallel", "jax"])
def test_importing_a_rim_loads_no_framework(module: str) -> None:
    code = f"import sys, tokenreel.feed.{module}; print([n for n in ('torch', 'jax', 'grain', 'numba') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
