"""What the pages say holds: keys, orders, commands, the tour of the README, the list of benchmarks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import run
from tokenreel.cli.app import command
from tokenreel.cli.examples import EXAMPLES
from tokenreel.config import recipe_schema
from tokenreel.demo.texts import write_texts

ROOT = Path(__file__).resolve().parent.parent


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def keys(schema: dict[str, Any]) -> set[str]:
    """Return every key of every table of a JSON Schema, as ``Table.key``."""
    return {f"{name}.{key}" for name, table in schema["$defs"].items() for key in table.get("properties", {})}


@pytest.mark.parametrize("key", sorted(keys(recipe_schema())))
def test_the_recipe_page_names_every_key(key: str) -> None:
    name = key.split(".")[1]
    assert re.search(rf"(?<![\w-])`?{name}`?(?![\w-])", page("docs/recipe.md")), name


def test_the_recipe_of_the_page_is_one() -> None:
    import tomllib

    from tokenreel.config.reading import override
    from tokenreel.config.recipe import parse_recipe

    text = page("docs/recipe.md")
    table = tomllib.loads(text.split("```toml\n")[1].split("```")[0])
    parse_recipe(table)
    for form in re.findall(r"`((?:split|tokenizer|documents|source)[.\[][^`]*=[^`]*)`", text):
        override(table, form.replace("...", "['x']"))
    parse_recipe(table)
    assert table["documents"]["empty"] == "drop"
    assert table["source"][0]["paths"] == ["x"]


def test_the_readme_names_the_orders_there_are() -> None:
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src/tokenreel").rglob("*.py"))
    there = set(re.findall(r'"([a-z][a-z0-9-]*@[0-9]+)"', sources))
    assert set(re.findall(r"`([a-z][a-z0-9-]*@[0-9]+)`", page("README.md"))) == there


def leaves(group: Any, before: str = "") -> list[str]:
    return [
        one
        for name, inner in group.commands.items()
        for one in (leaves(inner, f"{before}{name} ") if hasattr(inner, "commands") else [before + name])
    ]


ROWS = re.findall(r"^\| `([a-z -]+)` \| .* \| `tokenreel ([^`]*)` \|$", page("docs/commands.md"), re.MULTILINE)


def test_the_page_of_commands_lists_them_in_the_order_of_help() -> None:
    assert [name for name, _ in ROWS] == leaves(command())
    assert {name: f"tokenreel {example}" for name, example in ROWS} == EXAMPLES


@pytest.mark.parametrize(("name", "example"), ROWS)
def test_an_example_s_options_are_options(name: str, example: str) -> None:
    helped = run(*name.split(), "--help")
    assert helped.status == 0
    assert example.startswith(name)
    assert f"  tokenreel {example}" in helped.out
    for option in re.findall(r"(?<= )--?[a-z][a-z-]*", example):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", helped.out), option


def test_the_tour_of_the_readme_is_true(tmp_path: Path) -> None:
    text = page("README.md").split("## Twenty lines")[1].split("```sh\n")[1].split("```")[0]
    assert len(text.splitlines()) <= 25
    (tmp_path / "demo/text").mkdir(parents=True)
    write_texts(tmp_path / "demo/text", 800_000)
    activated = ". .venv/bin/activate\n"
    assert text.startswith(activated)
    here = f'export PATH="{Path(sys.executable).parent}:$PATH"\n'
    script = f"set -e\n{here}{text.removeprefix(activated)}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "corpus/shards/validation").is_dir()
    verified = subprocess.run(
        [sys.executable, "-m", "tokenreel", "verify", "corpus"], cwd=tmp_path, capture_output=True
    )
    assert verified.returncode == 0
    assert re.fullmatch(r"[0-9]+ [0-9]+ \[.*\] [0-9a-f]{64}", done.stdout.strip().splitlines()[-1])


def test_the_benchmarks_listed_are_those_that_record() -> None:
    done = subprocess.run(["sh", str(ROOT / "run"), "bench"], capture_output=True, text=True)
    assert done.returncode == 2
    listed = done.stderr.split()[done.stderr.split().index("of:") + 1 :]
    scripts = sorted((ROOT / "bench").glob("*.py"))
    assert listed == [
        path.stem for path in scripts if re.search(r"^from results import.*\brecord\b", path.read_text(), re.MULTILINE)
    ]
    assert {"build", "write_read"} <= set(listed)
    assert not {"data", "peers", "results", "harness"} & set(listed)
