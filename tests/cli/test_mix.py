"""The command mix: counts are those of the samples, epochs those of the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import run
from tests.cli.test_order import call, written
from tests.index.data import lengths_of, opened, write
from tokenreel.config.run import load_run
from tokenreel.index.assemble import assemble

CORPORA = "".join(f'[[corpus]]\nname = "{name}"\npath = "{name}.idx"\n' for name in ("web", "code", "math"))
MEMBERS = '[[order.member]]\ncorpus = "web"\nweight = {}\n[[order.member]]\ncorpus = "math"\nweight = {}\n' + (
    '[[order.member]]\ncorpus = "code"\nweight = {}\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(("web", "code", "math")):
        write(tmp_path / name, lengths_of(number, 40 + number))
    return tmp_path


def rows(shown: Any) -> list[dict[str, Any]]:
    return shown["segments"][0]["phases"][0]["sources"]


def counted(path: Path, lo: int, hi: int) -> list[int]:
    made = assemble(load_run(path)[0].run, path.parent)
    order = made.order.prepare()
    return np.bincount(order.components_at(np.arange(lo, hi)), minlength=len(order.children)).tolist()


@pytest.mark.parametrize("kind", ["megatron-blend", "maxtext-npy-blend", "maxtext-mmap-mix"])
def test_a_blend_s_counts(kind: str, folder: Path, capsys: Any) -> None:
    size = "" if kind == "maxtext-mmap-mix" else "samples = 30\n"
    text = CORPORA + f'[order]\nkind = "{kind}"\nrow_tokens = 8\n{size}' + MEMBERS.format(0.5, 0.3, 0.2)
    path = written(folder, text)
    status, shown = call(capsys, "mix", path)
    assert status == 0, shown
    found = rows(shown)
    total = sum(row["samples"] for row in found)
    assert [row["samples"] for row in found] == counted(path, 0, total)
    assert [row["name"] for row in found] == ["web", "math", "code"]
    for row in found:
        assert row["tokens"] == row["samples"] * 8
        assert row["share"] == row["samples"] / total
        assert row["source_tokens"] == opened(folder / row["name"]).tokens
        assert row["epochs"] == pytest.approx(row["tokens"] / row["source_tokens"])
    assert [row["weight"] for row in found] == pytest.approx([0.5, 0.3, 0.2])


def test_what_is_never_read_is_shown(folder: Path, capsys: Any) -> None:
    text = CORPORA + '[order]\nkind = "maxtext-npy-blend"\nrow_tokens = 8\nsamples = 30\n' + MEMBERS.format(0.5, 0, 0.5)
    status, shown = call(capsys, "mix", written(folder, text))
    assert status == 0
    assert [(row["name"], row["state"]) for row in rows(shown)] == [("web", ""), ("math", "never"), ("code", "")]
    assert (rows(shown)[1]["weight"], rows(shown)[1]["samples"]) == (0.0, 0)


MIX = (
    CORPORA
    + """
[order]
kind = "mix"
block = 16
[[order.component]]
name = "first"
order = {kind = "windows", corpus = "web", row_tokens = 8, epochs = 0}
[[order.component]]
name = "second"
order = {kind = "windows", corpus = "code", row_tokens = 8, epochs = 0}
[[order.component]]
name = "third"
order = {kind = "windows", corpus = "math", row_tokens = 8, epochs = 0}
[[order.phase]]
step = 0
weights = {first = 3, second = 1}
[[order.phase]]
step = 20
weights = {second = 1, third = 1}
[schedule]
batch = 8
steps = 100
"""
)


def test_phases_are_shown_apart(folder: Path, capsys: Any) -> None:
    path = written(folder, MIX)
    status, shown = call(capsys, "mix", path)
    assert status == 0, shown
    one, two = shown["segments"][0]["phases"]
    assert (one["first"], one["end"], two["first"], two["end"]) == (0, 160, 160, 800)
    assert [row["samples"] for row in one["sources"]] == [120, 40, 0] == counted(path, 0, 160)
    assert [row["samples"] for row in two["sources"]] == [0, 320, 320] == counted(path, 160, 800)
    assert [row["weight"] for row in one["sources"]] == [0.75, 0.25, 0.0]
    second = [stretch["sources"][1] for stretch in (one, two)]
    assert second[1]["epochs_before"] == second[0]["epochs"]
    tokens = opened(folder / "code").tokens
    passes = 360 * 8 / tokens
    assert second[1]["repeats"] == int(np.ceil(passes)) - 1 >= 1
    assert [row["state"] for row in two["sources"]] == ["never", "wraps", "wraps"]


def test_an_endless_run_needs_a_length(folder: Path, capsys: Any) -> None:
    path = written(folder, MIX.replace("steps = 100", ""))
    status, shown = call(capsys, "mix", path)
    assert (status, shown["error"]["code"]) == (2, "RCP045")
    status, shown = call(capsys, "mix", path, "--samples", 200)
    assert shown["segments"][0]["phases"][1]["end"] == 200


def test_one_corpus_is_one_source(folder: Path, capsys: Any) -> None:
    text = '[[corpus]]\nname = "web"\npath = "web.idx"\n[order]\nkind = "megatron"\nrow_tokens = 8\nsamples = 300\n'
    status, shown = call(capsys, "mix", written(folder, text))
    (row,) = rows(shown)
    assert (status, row["name"], row["weight"], row["share"]) == (0, "web", 1.0, 1.0)
    assert row["repeats"] >= 1


def test_a_segment_counts_from_its_first_sample(folder: Path, capsys: Any) -> None:
    lineage = MIX.replace("steps = 100", "") + "[[segment]]\nfirst = 0\nlast = 9\n[[segment]]\nfirst = 10\nlast = 29\n"
    path = written(folder, lineage)
    status, shown = call(capsys, "mix", path)
    assert status == 0, shown
    first, second = shown["segments"]
    assert [(p["first"], p["end"]) for p in first["phases"]] == [(0, 80)]
    assert [(p["first"], p["end"]) for p in second["phases"]] == [(80, 160), (160, 240)]
    assert [row["samples"] for row in second["phases"][0]["sources"]] == counted(path, 80, 160)


def test_the_table(folder: Path) -> None:
    shown = run("mix", written(folder, MIX))
    assert shown.status == 0, shown.err
    assert "samples 0 .. 159" in shown.out
    assert "75.0000%" in shown.out
    assert "wraps" in shown.out
    assert "never" in shown.out
