"""The acts of the demo, in order. Each is a function of the stage; each returns the facts it measured."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenreel.demo.formats import formats
from tokenreel.demo.levanter import levanter
from tokenreel.demo.mixes import mixes
from tokenreel.demo.orders import order
from tokenreel.demo.packing import pack
from tokenreel.demo.replay import replay
from tokenreel.demo.texts import write_texts
from tokenreel.demo.training import train_and_kill
from tokenreel.errors import UsageError
from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECIPE = """\
# What `tokenreel build` reads. Paths are relative to this file.
[corpus]
name = "demo"
layout = "native"

[tokenizer]
name = "train:bpe:4096"     # byte-level BPE, trained on a sample of the corpus, saved in the output
eod = "<|endoftext|>"

[split]
rule = "hash-mod"           # SHA-256 of the exact text: identical texts always share a split
modulo = 20

[[source]]
name = "library"            # the Python standard library of this machine
paths = ["text/library-*.jsonl"]
id = "id"
"""

LICENCES = """
[[source]]
name = "licences"
paths = ["text/licences.jsonl"]
id = "id"
"""


MARKER = ".tokenreel-demo"
"""A file that says that a folder is the demo's own, and may be played in again."""
OURS = frozenset({MARKER, "recipe.toml", "text", "corpus", "orders", "training", "replay", "formats", "mixes"})


@dataclass
class Stage:
    """Where the demo plays and what its acts have made so far."""

    folder: Path
    say: Callable[[str], None]
    seed: int = 0
    workers: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def recipe(self) -> Path:
        """The recipe that the first act writes."""
        return self.folder / "recipe.toml"

    @property
    def corpus(self) -> Path:
        """The corpus that the second act builds."""
        return self.folder / "corpus"


@dataclass(frozen=True, slots=True)
class Act:
    """One act: a title and what it does."""

    title: str
    play: Callable[[Stage], dict[str, Any]]


def gather(stage: Stage) -> dict[str, Any]:
    """Write text that every machine has, and a recipe over it."""
    # What an earlier demo built may be what it broke and did not come to restore.
    for name in ("corpus", "orders", "training", "replay"):
        shutil.rmtree(stage.folder / name, ignore_errors=True)
    (stage.folder / "text").mkdir(parents=True, exist_ok=True)
    files = write_texts(stage.folder / "text")
    licences = any(file.path.name == "licences.jsonl" for file in files)
    write_bytes_atomic(stage.recipe, (RECIPE + (LICENCES if licences else "")).encode())
    documents, characters = sum(f.documents for f in files), sum(f.characters for f in files)
    stage.say(f"{documents:,} documents, {characters:,} characters in {len(files)} JSONL files; {stage.recipe.name}")
    return {"files": len(files), "documents": documents, "characters": characters}


def make(stage: Stage) -> dict[str, Any]:
    """Train a tokenizer and build train and validation, with receipts."""
    from tokenreel.build import build

    stage.say(f"$ tokenreel build {stage.recipe.name} --out corpus")
    report = build(stage.recipe, out=stage.corpus, workers=stage.workers)
    for line in report.lines():
        stage.say(line)
    return dict(report.as_dict())


def check(stage: Stage) -> dict[str, Any]:
    """Verify the corpus, every byte."""
    from tokenreel.verify import verify

    stage.say("$ tokenreel verify corpus --level full")
    report = verify(stage.corpus, level="full")
    for line in report.lines():
        stage.say(line)
    return {"status": report.status, "counts": dict(report.counts)}


def look(stage: Stage) -> dict[str, Any]:
    """Show one validation document, decoded."""
    from tokenreel.corpus.opening import open_corpus
    from tokenreel.text import load_tokenizer

    corpus = open_corpus(stage.corpus).split("validation")
    tokenizer = load_tokenizer(str(stage.corpus / "tokenizer" / "tokenizer.json"))
    number = stage.seed % len(corpus)
    ids, content = corpus[number], corpus.content(number)
    text = tokenizer.decode(content)
    stage.say(f"validation document {number}: {len(ids):,} ids, the last one {int(ids[-1])} (EOD)")
    for line in text.splitlines()[:6]:
        stage.say(f"  | {line[:100]}")
    corpus.close()
    return {"document": number, "ids": len(ids), "text_sha256": hashlib.sha256(text.encode()).hexdigest()}


def damage(stage: Stage) -> dict[str, Any]:
    """Flip one byte, see it caught, put it back, see the corpus whole again."""
    from tokenreel.verify import verify

    shards = sorted((stage.corpus / "shards").rglob("part-*.*"))
    digest = hashlib.sha256(f"tokenreel demo {stage.seed}".encode()).digest()
    path = shards[digest[0] % len(shards)]
    data = path.read_bytes()
    at = int.from_bytes(digest[1:9], "big") % len(data)
    name = path.relative_to(stage.corpus).as_posix()
    flipped = bytes([data[at] ^ (1 << digest[9] % 8)])
    stage.say(f"flip one bit of byte {at:,} of {name} (--seed {stage.seed})")
    write_bytes_atomic(path, data[:at] + flipped + data[at + 1 :])
    try:
        broken = verify(stage.corpus, level="full")
        for finding in broken.findings[:4]:
            stage.say(f"  {finding.line()}")
    finally:
        write_bytes_atomic(path, data)
    restored = verify(stage.corpus, level="full")
    stage.say(f"caught: {', '.join(sorted(broken.counts)) or 'nothing'}; restored: {restored.status}")
    return {
        "path": name,
        "offset": at,
        "caught": dict(broken.counts),
        "status": broken.status,
        "restored": restored.status,
    }


ACTS: tuple[Act, ...] = (
    Act("Text and a recipe", gather),
    Act("Build: train a tokenizer, split, tokenise, receipts", make),
    Act("Verify: every byte", check),
    Act("Look at a document", look),
    Act("Mix: two sources to a budget; a duplicate, a quiz item and an empty document stay out", mixes),
    Act("Order: Megatron's and MaxText's index files, compared; a mixture", order),
    Act("Train, kill -9, resume: the same labels, the same losses", train_and_kill),
    Act("Pack: documents in rows, two ways", pack),
    Act("Levanter's mixture without JAX: three components, two phases", levanter),
    Act("Replay: index, delete, rebuild from text, prove it the same; trace", replay),
    Act("Five formats and back, the same identity; two historic bugs found and mended", formats),
    Act("Break it, catch it, restore it", damage),
)


def _claim(folder: Path) -> None:
    """Make `folder` the demo's own, or refuse it: nothing that somebody else made is ever written over."""
    if folder.is_dir():
        there = {entry.name for entry in folder.iterdir()}
        recipe = folder / "recipe.toml"
        foreign = sorted(there - OURS if MARKER in there else there)
        if not foreign and recipe.exists() and recipe.read_bytes().decode("utf-8", "replace") not in _RECIPES:
            foreign = [recipe.name]
        if foreign:
            raise UsageError(
                "USE010",
                path=folder,
                expected="a new or empty folder, or an earlier demo's",
                found=", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else ""),
                hint=f"tokenreel demo {shlex.quote(str(folder / 'demo'))}",
            )
    elif folder.exists():
        raise UsageError("USE010", path=folder, expected="a folder", found="a file", hint="tokenreel demo NEW_FOLDER")
    write_bytes_atomic(folder / MARKER, b"Made by `tokenreel demo`, which may play here again.\n")


_RECIPES = (RECIPE, RECIPE + LICENCES)


def run_demo(
    folder: Path, say: Callable[[str], None], *, seed: int = 0, workers: int | None = None
) -> list[dict[str, Any]]:
    """Play all acts in `folder`; returns one dictionary of facts per act. Raises what the acts raise.

    The folder is new or empty, or one that an earlier demo made and nobody changed since: else `UsageError` (USE010).
    """
    _claim(folder)
    stage = Stage(folder, say, seed, workers)
    facts = []
    for number, act in enumerate(ACTS, 1):
        say(f"\n{number}. {act.title}")
        began = time.monotonic()
        fact = act.play(stage)
        seconds = round(time.monotonic() - began, 2)
        say(f"   [{seconds:.1f} s]")
        facts.append({"act": act.title, "seconds": seconds, **fact})
    return facts
