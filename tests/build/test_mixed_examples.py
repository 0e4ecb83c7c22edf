"""The recipes of ``examples/recipes``, every source of them, scaled down to local text through ``--set`` alone."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenreel
from tests.build.making import tokenizer_file
from tests.build.mixed_runs import EVAL, json_of, text
from tests.build.mixes import PROSE, write_records
from tokenreel.build.explain import explain
from tokenreel.cli.main import main
from tokenreel.config.mixed import load_mixed, mixed_schema, parse_mixed
from tokenreel.config.recipe import load_recipe
from tokenreel.formats import Boundary
from tokenreel.formats.llmc_write import open_writer
from tokenreel.formats.writing import WriteOptions
from tokenreel.hashing import sha256_file
from tokenreel.text import load_tokenizer
from tokenreel.verify import verify

RECIPES = Path(__file__).parents[2] / "examples/recipes"
TOKENIZER = 'tokenizer={path = "tokenizer.json", eod = "<eod>", eod_at = "begin"}'
FRENCH = (
    "La nuit était calme et la rivière coulait sous le vieux pont. Personne ne l'avait traversé depuis la crue, et ceux qui "
    "venaient de l'autre rive devaient marcher une heure pour atteindre la ville qu'ils voyaient de leurs fenêtres. "
    "Avec de la patience, disait le meunier, l'eau aura trouvé un autre chemin avant que le conseil ne trouve son argent."
)
GATED: dict[str, dict[str, Any]] = {
    "characters": {"text": "too short for any of them"},
    "repetition": {"text": "\n".join(["again and again the same line of words"] * 30)},
    "language": {"text": FRENCH},
    "quality": {"text": PROSE + " And yet nobody liked it.", "int_score": 1},
}
"""What each gate drops."""


def copied(folder: Path, name: str) -> Path:
    """Copy a recipe as it is: its paths are relative to it."""
    recipe = folder / name
    recipe.write_bytes((RECIPES / name).read_bytes())
    tokenizer_file(folder)
    return recipe


def run(
    recipe: Path, sets: list[str], capsys: pytest.CaptureFixture[str], *more: str, tokenizer: str = TOKENIZER
) -> dict[str, Any]:
    options = [word for one in (tokenizer, *sets) for word in ("--set", one)]
    command = ["build", str(recipe), "--out", str(recipe.parent / "out"), "--workers", "2", "--json"]
    status = main([*command, "--progress", "none", *options, *more])
    out = capsys.readouterr()
    assert status == 0, out.out + out.err
    said: dict[str, Any] = json.loads(out.out)
    return said


def prose(name: str, k: int) -> str:
    return f"{PROSE} {text(name, k)}"


def test_ounce100m_builds_from_all_its_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = copied(tmp_path, "ounce100m.toml")
    loaded = load_mixed(RECIPES / "ounce100m.toml")
    assert len(loaded.source) == 15
    sets = ["output.shard_tokens={train = 6000, val = 400}", "decontaminate.eval[0].path=dev.jsonl"]
    gates = [gate.kind for gate in loaded.gate]
    sets.append(f"gate[{gates.index('language')}].min_score=0.0")
    write_records(tmp_path / "dev.jsonl", [{"question": EVAL}])
    gated: dict[str, list[str]] = {}
    for number, table in enumerate(loaded.source):
        rows = [{table.text: prose(table.name, k), "int_score": 4} for k in range(12)]
        planted = {"int_score": 4}
        rows.insert(1, dict(rows[0]))
        rows.insert(2, {**planted, table.text: f"{prose(table.name, 100)} {EVAL}"})
        rows.insert(3, {**planted, table.text: ""})
        gated[table.name] = [gate.kind for gate in loaded.gate if table.name in gate.sources]
        for at, kind in enumerate(gated[table.name], 4):
            rows.insert(at, {**planted, **GATED[kind], table.text: GATED[kind]["text"]})
        for k, row in enumerate(rows):
            row |= {key: f"{table.name}/{k}" for key in (table.id, table.url) if key}
        write_records(tmp_path / f"local/{number}.jsonl", rows)
        sets += [
            f"source[{number}].kind=files",
            f"source[{number}].paths=['local/{number}.jsonl']",
            f"source[{number}].budget={2000 + 100 * (number % 3)}",
        ]
    said = run(recipe, sets, capsys, tokenizer=TOKENIZER.replace("begin", "end"))
    assert [one["name"] for one in said["sources"]] == [table.name for table in loaded.source]
    assert gated["fineweb-edu__sample-10BT"] == ["characters", "repetition", "language", "quality"]
    for number, one in enumerate(said["sources"]):
        assert one["complete"]
        assert one["tokens_staged"] >= one["budget"]
        assert one["docs_seen"] == one["documents"] + sum(one["dropped"].values())
        # The copy, the empty document, and one for every gate; each by its own stage.
        fates = [
            explain(tmp_path / "out", f"local/{number}.jsonl#{k}")[-1]
            for k in (1, 3, *range(4, 4 + len(gated[one["name"]])))
        ]
        assert (fates[0].stage, fates[0].rule) == ("dedup", "exact")
        assert (fates[1].stage, fates[1].rule) == ("documents", "empty")
        for fate, kind in zip(fates[2:], gated[one["name"]], strict=True):
            assert fate.stage == "gate"
            assert fate.rule.startswith({"quality": "edu-score"}.get(kind, kind))
        assert sum(one["dropped"].values()) == len(fates)
    assert said["audit"]["documents_flagged"] == said["audit"]["documents_strong"] == 15
    total = sum(one["documents"] for one in said["splits"].values())
    assert said["splits"]["val"]["documents"] == total // 50
    report = verify(tmp_path / "out", level="full")
    assert (report.status, report.findings) == ("ok", ())
    # The hash of the card is what the card says; the manifest has that of the file that was used.
    tokenizer = json_of(tmp_path / "out/manifest.json")["tokenizer"]
    assert tokenizer["sha256"] == sha256_file(tmp_path / "tokenizer.json")
    assert "9ca9acddb6525a19" in (RECIPES / "ounce100m.toml").read_text()
    record = json_of(tmp_path / "out/mix.json")
    assert record["assumptions"]["A-O8 merge order"] == "interleave"
    assert set(tokenreel.open(tmp_path / "out").splits) == {"train", "val"}


def replay_corpus(folder: Path, eod: int) -> int:
    """Write two shards as the original mix had them: documents led by the token, cut where a shard ends; returns documents."""
    tok = load_tokenizer(str(folder / "tokenizer.json"))
    stream, edges = [], [0]
    for k in range(30):
        stream += [eod, *tok.encode_batch([prose("replay", k)])[0].tolist()]
        edges.append(len(stream))
    half = len(stream) // 2 + 5
    for number, part in enumerate((stream[:half], stream[half:]), 1):
        writer = open_writer(folder / "replay", f"dclm_{number:06d}", WriteOptions("uint16", Boundary((eod,), ())))
        writer.add_documents(np.array(part, np.uint16), np.array([len(part)]))
        writer.finish()
    return 30


def test_hobbylm_longctx_builds_from_all_its_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = copied(tmp_path, "hobbylm-longctx.toml")
    loaded = load_mixed(RECIPES / "hobbylm-longctx.toml")
    names = [table.name for table in loaded.source]
    assert names == ["pg19", "arxiv", "wiki", "edu_long", "stack_python", "replay"]
    sets = ["output.shard_tokens={train = 3000, val = 3000}"]
    for number, table in enumerate(loaded.source[:4]):
        rows = [
            {
                "text": " ".join(prose(table.name, 10 * k + j) for j in range(4)),
                **{key: f"{table.name}/{k}" for key in (table.id, table.url) if key},
            }
            for k in range(8)
        ]
        rows.append({**rows[0], "text": "a short one"})
        write_records(tmp_path / f"local/{number}.jsonl", rows)
        sets += [
            f"source[{number}].kind=files",
            f"source[{number}].paths=['local/{number}.jsonl']",
            f"source[{number}].budget=100000",
        ]
        if table.min_tokens:
            sets.append(f"source[{number}].min_tokens=300")
    files = []
    for repository in range(6):
        language = "C" if repository == 5 else "Python"
        for path in ("tests/test_a.py", "a/b.py", "a/__init__.py", "setup.py"):
            body = f"# {path} of {repository}\n" + "\n".join(
                f"x{k} = {k}" for k in range(200 if repository == 0 else 10)
            )
            files.append({"repo_name": f"r{repository}", "path": path, "language": language, "content": body})
    write_records(tmp_path / "local/4.jsonl", files)
    sets += [
        "source[4].kind=files",
        "source[4].paths=['local/4.jsonl']",
        "source[4].max_doc_tokens=400",
        "source[4].budget=100000",
        "source[5].path=replay",
        "source[5].boundary=prefix=1",
        "source[5].budget=100000",
    ]
    documents = replay_corpus(tmp_path, 1)
    said = run(recipe, sets, capsys)
    by_name = {one["name"]: one for one in said["sources"]}
    for one in said["sources"]:
        assert one["docs_seen"] == one["documents"] + sum(one["dropped"].values())
    assert by_name["wiki"]["dropped"] == {"min_tokens/tokens < 300": 1}
    assert by_name["pg19"]["documents"] == 9
    # The card's 39 slices of 8 M tokens: here two shards, their documents told by the token inside; one is cut by their edge.
    assert by_name["replay"]["documents"] == documents + 1
    assert (by_name["stack_python"]["documents"], sum(by_name["stack_python"]["dropped"].values())) == (5, 1)
    out = tmp_path / "out"
    lines = [json.loads(line) for line in (out / "stack_python_docs.jsonl").read_text().splitlines()]
    assert [line["meta"].get("truncated", False) for line in lines] == [True, False, False, False, False]
    assert lines[0]["length"] == 400 < lines[0]["meta"]["original_tokens"]
    facts = {one["name"]: one for one in json_of(out / "mix.json")["sources"]}
    largest = facts["stack_python"]["largest"]
    assert largest["groups"]["top_1"] < largest["groups_before_cap"]["top_1"]
    assert facts["replay"]["lengths"]["max"] < 1000
    tok = load_tokenizer(str(tmp_path / "tokenizer.json"))
    first = np.fromfile(out / lines[1]["shard"], "<u2", offset=1024)[lines[1]["offset"] :][: lines[1]["length"]]
    whole = tok.decode(first[1:])
    places = [whole.index(f"# {path} of 1") for path in ("setup.py", "a/__init__.py", "a/b.py", "tests/test_a.py")]
    assert places == sorted(places)
    report = verify(out, level="full")
    assert (report.status, report.findings) == ("ok", ())
    assert run(recipe, sets, capsys)["nothing_to_do"]


def test_mahan_builds_as_a_plain_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_recipe(RECIPES / "mahan.toml").corpus.layout == "mahan"
    recipe = copied(tmp_path, "mahan.toml")
    for part in range(2):
        rows = [{"text": prose("m", k), "source": "web" if k % 2 else "wiki"} for k in range(part * 20, part * 20 + 20)]
        write_records(tmp_path / f"text/{part}.jsonl", rows)
    sets = ["split.modulo=5", "source[0].paths=['text/*.jsonl']"]
    said = run(recipe, sets, capsys, tokenizer='tokenizer={path = "tokenizer.json", eod = "<eod>"}')
    assert sum(one["documents"] for one in said["by_split"].values()) == 40
    report = verify(tmp_path / "out", level="full")
    assert (report.status, report.findings) == ("ok", ())


def test_the_page_s_recipe_is_one_and_names_every_key() -> None:
    page = (RECIPES.parents[1] / "docs/mixes.md").read_text("utf-8")
    parse_mixed(tomllib.loads(page.split("```toml\n")[1].split("```")[0]))
    known = page + (RECIPES.parents[1] / "docs/recipe.md").read_text("utf-8")
    for name, table in mixed_schema()["$defs"].items():
        for key in table.get("properties", {}):
            assert re.search(rf"(?<![\w-]){key}(?![\w-])", known), f"{name}.{key}"


def test_the_page_s_first_recipe_builds_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (RECIPES.parents[1] / "docs/mixes.md").read_text("utf-8")
    recipe = tmp_path / "mix.toml"
    recipe.write_text(page.split("```\n")[1])
    tokenizer_file(tmp_path)
    write_records(tmp_path / "web/a.jsonl", [{"text": prose("web", k)} for k in range(150)])
    (tmp_path / "books").mkdir()
    for k in range(50):
        (tmp_path / f"books/{k}.txt").write_text(prose("books", k))
    said = run(recipe, [], capsys, tokenizer="tokenizer.eod=<eod>")
    assert {name: one["documents"] for name, one in said["splits"].items()} == {"train": 196, "validation": 4}
    assert [one.partition(":")[0] for one in said["warnings"]] == ["web", "books"]
    command = next(line for line in page.splitlines() if "--explain" in line).partition("#0'")[0].split("'")[1]
    (fate,) = explain(tmp_path / "out", f"{command}#0")
    assert (fate.stage, fate.input) == ("corpus", command)
    assert verify(tmp_path / "out", level="full").status == "ok"
