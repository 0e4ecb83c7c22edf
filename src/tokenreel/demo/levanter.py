"""The act of the demo about Levanter's order: three components, two phases, and the step at which the phase changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from tokenreel.demo.acts import Stage

FOLDER = "orders"
RUN = """\
# Levanter's mixture without JAX: blocks of 64 sequences, weights that change at step {change}, a batch that doubles at step 8.
{corpora}
[order]
kind = "levanter"
row_tokens = 256
block = 64
seed = {seed}
component = [{components}]
stage = [{{ step = 0, weights = "early" }}, {{ step = {change}, weights = "late" }}]

[order.weights.early]
a = 0.7
b = 0.295
c = 0.005

[order.weights.late]
a = 0.2
b = 0.3
c = 0.5

[schedule]
batch = 16
steps = 40
ramp = [{{ step = 8, batch = 32 }}]
"""
CHANGE = 20


def levanter(stage: Stage) -> dict[str, Any]:
    """Mix three parts of the corpus as Levanter does, and show the steps around the change of phase."""
    from tokenreel.config.run import load_run
    from tokenreel.index.assemble import assemble
    from tokenreel.index.preflight import preflight
    from tokenreel.index.segments import step_range

    path: Path = stage.folder / FOLDER / "levanter.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(path, _text(stage).encode())
    (segment,) = load_run(path)
    made = assemble(segment.run, path.parent)
    stage.say(f"$ tokenreel mix {FOLDER}/{path.name}")
    check = preflight(made.order)
    for line in check.lines() if check is not None else ():
        stage.say(f"  {line}")
    steps = []
    for step in (CHANGE - 2, CHANGE - 1, CHANGE, CHANGE + 1):
        first, end = step_range(segment, step)
        counts = [0, 0, 0]
        for component in made.order.components_at(range(first, end)).tolist():
            counts[component] += 1
        steps.append({"step": step, "first": first, "end": end, "components": counts})
        named = ", ".join(f"{name} {n}" for name, n in zip("abc", counts, strict=True))
        mark = "   <- the phase changes here" if step == CHANGE else ""
        stage.say(f"  step {step}: samples {first:,} .. {end - 1:,}: {named}{mark}")
    for corpus in made.corpora:
        corpus.close()
    return {"change": CHANGE, "steps": steps, "preflight": None if check is None else check.as_dict()}


def _text(stage: Stage) -> str:
    """Return the run file: a component for each of the three largest shards; fewer shards come more than once."""
    from tokenreel.corpus.opening import open_corpus

    corpus = open_corpus(stage.corpus).split("train")
    shards = sorted(corpus.entries, key=lambda entry: (-entry.tokens, entry.name))
    named = {name: shards[k % len(shards)].name for k, name in enumerate("abc")}
    corpus.close()
    corpora = "".join(
        f'\n[[corpus]]\nname = "{name}"\npath = "../corpus/{shard}.idx"\n' for name, shard in named.items()
    )
    components = ", ".join(f'{{ name = "{name}", corpus = "{name}" }}' for name in named)
    return RUN.format(corpora=corpora, components=components, change=CHANGE, seed=stage.seed)
