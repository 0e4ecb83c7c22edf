"""The act of the demo about order: Megatron's and MaxText's index files for one shard, read back and compared."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING, Any

from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokenreel.config.run import Segment
    from tokenreel.corpus.layout import ShardEntry
    from tokenreel.demo.acts import Stage
    from tokenreel.index.assemble import Assembled
    from tokenreel.index.mixture import MixRow

FOLDER = "orders"
ROW_TOKENS = 512
EPOCHS = 2.5
"""Passes over the shard: more than one, so that the last epoch is shuffled apart."""
SEED = 1234
"""Megatron's own, and MaxText's builder's."""
BATCH = 8

FILES_RUN = """\
# The order that {engine}'s index files give, whoever made them.
[[corpus]]
name = "web"
path = "{corpus}"

[order]
kind = "megatron-files"
folder = "{engine}"
row_tokens = {row_tokens}
unit = "{unit}"
"""

MIX_RUN = """\
# Two shards, nine samples of the first to one of the second, as Megatron blends them.
{corpora}
[order]
kind = "megatron-blend"
row_tokens = {row_tokens}
samples = {samples}
per_split = true
{members}
[schedule]
batch = {batch}
steps = {steps}
"""


def order(stage: Stage) -> dict[str, Any]:
    """Build both engines' indices of one shard, compare their samples; show one sample and a mixture."""
    from tokenreel.corpus.opening import open_corpus
    from tokenreel.index.samples import compare
    from tokenreel.index.showing import sample_facts

    shutil.rmtree(stage.folder / FOLDER, ignore_errors=True)
    corpus = open_corpus(stage.corpus).split("train")
    first, second = _two_largest(corpus.entries)
    samples = int(EPOCHS * first.tokens) // ROW_TOKENS
    sides = [_engine(stage, first, engine, samples) for engine in ("megatron", "maxtext")]
    count = min(made.order.length or 0 for made in sides)
    stage.say(f"$ tokenreel order compare {FOLDER}/megatron.toml {FOLDER}/maxtext.toml")
    compared = compare(sides[0], sides[1], (0, 0), count, whole=False)
    stage.say(f"{compared.same:,} of {compared.samples:,} samples hold the same tokens at the same place")
    number = _across(sides[0], stage.seed % count, count)
    stage.say(f"$ tokenreel order show {FOLDER}/megatron.toml --sample {number}")
    sample = sample_facts(sides[0], number, None, decode=False)
    for extent in sample["extents"]:
        stage.say(
            f"  document {extent['document']}, tokens {extent['start']:,} .. {extent['start'] + extent['length'] - 1:,}"
            f" {' '.join(extent['flags'])}"
        )
    rows = _mixture(stage, (first, second), samples)
    for made in sides:
        for one in made.corpora:
            one.close()
    corpus.close()
    return {
        "shard": first.name,
        "row_tokens": ROW_TOKENS,
        "compared": compared.as_dict(),
        "sample": {name: sample[name] for name in ("number", "tokens", "extents", "digest")},
        "mix": [row.as_dict() for row in rows],
    }


def _two_largest(entries: Sequence[ShardEntry]) -> tuple[ShardEntry, ShardEntry]:
    """Return the two shards with the most tokens; the first twice where there is only one."""
    by_size = sorted(entries, key=lambda entry: (-entry.tokens, entry.name))
    return by_size[0], by_size[min(1, len(by_size) - 1)]


def _across(made: Assembled, first: int, count: int) -> int:
    """Return the next sample from `first` on that has tokens of several documents; `first` where there is none near."""
    for number in range(first, min(count, first + 256)):
        if made.resolved(made.order.spans(number, number + 1)).extents > 1:
            return number
    return first


def _engine(stage: Stage, shard: ShardEntry, engine: str, samples: int) -> Assembled:
    """Write one engine's index files and a run file that reads them; return the order they give."""
    from tokenreel.index.files import put
    from tokenreel.index.maxtext import convert
    from tokenreel.index.megatron import MegatronJob, job_files, job_order, open_prefixes

    prefix = str((stage.corpus / shard.name).resolve())  # whole: names of index files come from it, as typed
    stage.say(
        f"$ tokenreel index convert --layout {engine} --input {shlex.quote(prefix)} --output-dir {FOLDER}/{engine} "
        f"--seq-length {ROW_TOKENS} --num-samples {samples} --seed {SEED}{' --per-split' if engine == 'megatron' else ''}"
    )
    if engine == "maxtext":
        sets = convert([prefix], ROW_TOKENS, num_samples=samples, seed=SEED)
    else:
        job = MegatronJob((prefix,), ROW_TOKENS, samples, split=None, seed=SEED)
        corpora = open_prefixes(job.prefixes)
        sets = job_files(job, job_order(job, corpora).prepare(), corpora)
        for corpus in corpora:
            corpus.close()
    written = put(stage.folder / FOLDER / engine, sets)
    text = FILES_RUN.format(
        engine=engine,
        corpus=f"../corpus/{shard.name}.idx",
        row_tokens=ROW_TOKENS,
        unit="sequence" if engine == "megatron" else "document",
    )
    _, made = _run(stage, f"{engine}.toml", text)
    stage.say(f"{len((*written.written, *written.kept))} files: {made.order.length:,} samples of {ROW_TOKENS} tokens")
    return made


def _mixture(stage: Stage, shards: tuple[ShardEntry, ShardEntry], samples: int) -> Sequence[MixRow]:
    from tokenreel.index.mixture import mix_table
    from tokenreel.index.segments import sample_range

    names = ("a", "b")
    corpora = "".join(
        f'[[corpus]]\nname = "{name}"\npath = "../corpus/{shard.name}.idx"\n\n'
        for name, shard in zip(names, shards, strict=True)
    )
    members = "".join(
        f'\n[[order.member]]\ncorpus = "{name}"\nweight = {weight}\n'
        for name, weight in zip(names, (0.9, 0.1), strict=True)
    )
    steps = samples // BATCH
    text = MIX_RUN.format(
        corpora=corpora, members=members, row_tokens=ROW_TOKENS, samples=steps * BATCH, batch=BATCH, steps=steps
    )
    segment, made = _run(stage, "mix.toml", text)
    stage.say(f"$ tokenreel mix {FOLDER}/mix.toml")
    (stretch,) = mix_table(segment.run, made, *sample_range(segment, made.order))
    for row in stretch.rows:
        stage.say(
            f"  {row.name}: asked {row.weight:.2%}, has {row.share:.4%}: {row.samples:,} samples, "
            f"{row.tokens:,} of its {row.source_tokens:,} tokens, {row.epochs:.2f} epochs {row.state}".rstrip()
        )
    for corpus in made.corpora:
        corpus.close()
    return stretch.rows


def _run(stage: Stage, name: str, text: str) -> tuple[Segment, Assembled]:
    """Write a run file and return its one segment and the prepared order."""
    from tokenreel.config.run import load_run
    from tokenreel.index.assemble import assemble
    from tokenreel.index.ready import make_ready

    path: Path = stage.folder / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(path, text.encode())
    (segment,) = load_run(path)
    made, _ = make_ready(segment.run, assemble(segment.run, path.parent), path.parent)
    return segment, made
