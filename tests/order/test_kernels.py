"""Compiled kernels: the private cache, what happens without one, fused arithmetic."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.order import kernels
from tokenreel.order.kernels import Kernel, fused, inlined, kernel

PROGRAM = """
import numpy as np
from tokenreel.order import keyed
print(keyed.KeyedPermutation(10, 7).at(range(10)).tolist())
"""
EXPECTED = "[0, 2, 9, 4, 1, 8, 7, 3, 6, 5]"


def start(cache: Path) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**kept, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert not err
    return out.strip()


@pytest.mark.parametrize("processes", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_processes_that_start_together_on_a_cold_cache(tmp_path: Path, processes: int) -> None:
    started = [start(tmp_path) for _ in range(processes)]
    assert [finish(process) for process in started] == [EXPECTED] * processes
    made = sorted(path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*.nbc"))
    assert made
    assert set(made) == {("tokenreel", "kernels")}


def test_a_torn_cache_is_survived(tmp_path: Path) -> None:
    finish(start(tmp_path))
    for path in tmp_path.rglob("*.nb*"):
        path.write_bytes(path.read_bytes()[:20])
    assert finish(start(tmp_path)) == EXPECTED


def test_no_cache_is_survived(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert finish(start(blocked)) == EXPECTED


MODULE = """
import sys
from tokenreel.order.kernels import kernel, inlined

STEP = {step}

@inlined
def shifted(x):
    return x + {inner}

@kernel("int64(int64)")
def answer(x):
    return {outer} * shifted(x) + STEP

if len(sys.argv) > 1:  # an upgrade replaces the file under a process that has already read it
    open(__file__, "w").write(open(sys.argv[1]).read())
    import importlib, os
    os.utime(__file__, (1e9, 1e9))
print(answer(10))
"""


@pytest.mark.parametrize("changed", [{"outer": 3}, {"inner": 5}, {"step": 9}], ids=lambda one: next(iter(one)))
@pytest.mark.parametrize("given", [False, True], ids=["own", "NUMBA_CACHE_DIR"])
def test_an_upgrade_under_a_running_process_leaves_no_stale_code(
    tmp_path: Path, changed: dict[str, int], given: bool
) -> None:
    """numba's stamp of a source file, its time and size, is taken when the code is saved."""
    old, new = {"outer": 2, "inner": 1, "step": 4}, {"outer": 2, "inner": 1, "step": 4, **changed}
    module, upgrade = tmp_path / "module.py", tmp_path / "upgrade"
    module.write_text(MODULE.format(**old))
    upgrade.write_text(MODULE.format(**new))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    if given:
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "given")
    said = []
    for arguments in ([str(upgrade)], [], []):
        done = subprocess.run(
            [sys.executable, str(module), *arguments], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        said.append(int(done.stdout))
    wanted = [one["outer"] * (10 + one["inner"]) + one["step"] for one in (old, new, new)]
    assert said == wanted


def test_the_version_of_a_kernel_is_that_of_its_code_not_of_its_file() -> None:
    assert halves.version() == halves.version()
    assert len({halves.version(), fused_in_a_kernel.version(), not_fused.version()}) == 3


@inlined
def third(x: int) -> int:
    return x // 3


@kernel("int64(int64)", "float64(float64)")
def halves(x: float) -> float:
    return x / 2 if x > 10 else third(x)


@kernel("float64(float64, float64, float64)")
def fused_in_a_kernel(a: float, b: float, c: float) -> float:
    return fused(a, b, c)


@kernel("float64(float64, float64, float64)")
def not_fused(a: float, b: float, c: float) -> float:
    return a * b - c


def test_a_kernel_is_compiled_once_and_keeps_its_python() -> None:
    made = Kernel(lambda x: x + 1, ("int64(int64)",), exact=True)
    assert made._compiled is None
    assert made(1) == made.python(1) == 2
    first = made._compiled
    assert first is not None
    assert made(2) == 3
    assert made._compiled is first
    assert halves in kernels.KERNELS
    assert (halves(9), halves(12.0)) == (3, 6.0)


def test_what_cannot_be_compiled_says_so() -> None:
    made = Kernel(lambda x: x.nothing_like_that, ("int64(int64)",), exact=True)
    with pytest.raises(Exception, match="nothing_like_that"):
        made(1)


FLOATS = st.floats(-1e9, 1e9, allow_subnormal=False)


@given(FLOATS, FLOATS, FLOATS)
def test_fused_rounds_once(a: float, b: float, c: float) -> None:
    assert fused_in_a_kernel(a, b, c) == fused(a, b, c)


@given(FLOATS, FLOATS)
def test_unfused_kernels_round_twice(a: float, b: float) -> None:
    """The order blends are dispatched in on x86 depends on this."""
    assert not_fused(a, b, a * b) == 0.0


def test_without_numba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match=r"tokenreel\[train\]"):
        Kernel(lambda x: x, ("int64(int64)",), exact=True)(1)
