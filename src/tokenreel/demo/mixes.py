"""The act of the demo about mixes: two sources, and a duplicate, an evaluation item and an empty document that must not get in."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from tokenreel.demo.acts import Stage

FOLDER = "mixes"
DOCUMENTS = 120
"""Of each source."""
BUDGETS = {"first": 40_000, "second": 20_000}
QUESTION = (
    "Which reel of the three that stand on the upper shelf of the projection room was recorded in a single night "
    "without a pause, and who of the four operators signed for it the next morning?"
)
PLANTED = ("copy", "question", "nothing")

RECIPE = """\
layout = "ounce"

[corpus]
name = "demo-mix"

[tokenizer]
path = "../corpus/tokenizer/tokenizer.json"
eod = "<|endoftext|>"

[[gate]]
kind = "characters"
max = 20000

[dedup]
by = ["id"]
id_scope = "source"

[decontaminate]
remove = "flagged"

[[decontaminate.eval]]
name = "quiz"
path = "quiz-dev.jsonl"
split = "dev"
fields = ["question"]

[split]
rule = "every-nth"
n = 10

[documents]
empty = "drop"

[output]
shard_tokens = { train = 10000, val = 2000 }
"""


def mixes(stage: Stage) -> dict[str, Any]:
    """Build a mix of two sources to their budgets, and say of each planted document what became of it."""
    from tokenreel.build.explain import explain
    from tokenreel.build.routes import build_mix
    from tokenreel.verify import verify

    folder = stage.folder / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    recipe = _prepared(stage, folder)
    stage.say(f"$ tokenreel build {FOLDER}/mix.toml --out {FOLDER}/out")
    report = build_mix(recipe, folder / "out", stage.workers)
    for line in report.lines():
        stage.say(line)
    fates = {}
    for name in PLANTED:
        (fate,) = explain(folder / "out", name)
        stage.say(f"$ tokenreel build {FOLDER}/mix.toml --out {FOLDER}/out --explain {name}")
        stage.say(f"  {fate.line()}")
        fates[name] = f"{fate.stage}/{fate.rule}"
    checked = verify(folder / "out", level="full")
    stage.say(f"$ tokenreel verify {FOLDER}/out --level full")
    stage.say(f"  {checked.status}")
    said = report.as_dict()
    kept = ("name", "docs_seen", "documents", "tokens", "dropped", "complete")
    sources = [{key: one[key] for key in kept} for one in said["sources"]]
    return {"sources": sources, "splits": said["splits"], "fates": fates, "status": checked.status}


def _prepared(stage: Stage, folder: Path) -> Path:
    """Write two sources of texts that are there, what is planted among them, and the recipe."""
    texts = []
    for path in sorted((stage.folder / "text").glob("library-*.jsonl")):
        texts += [json.loads(line) for line in path.read_bytes().splitlines()]
    half = min(DOCUMENTS, len(texts) // 2)
    first, second = texts[:half], texts[half : 2 * half]
    planted = [first[0]["text"], f"# Asked yesterday: {QUESTION}", ""]
    rows = {"first": first, "second": [*({"id": k, "text": t} for k, t in zip(PLANTED, planted, strict=True)), *second]}
    recipe = RECIPE
    for name, budget in BUDGETS.items():
        _lines(folder / f"{name}.jsonl", rows[name])
        recipe += f'\n[[source]]\nname = "{name}"\npaths = ["{name}.jsonl"]\nid = "id"\nbudget = {budget}\n'
    _lines(folder / "quiz-dev.jsonl", [{"question": QUESTION}])
    write_bytes_atomic(folder / "mix.toml", recipe.encode())
    return folder / "mix.toml"


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    write_bytes_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
