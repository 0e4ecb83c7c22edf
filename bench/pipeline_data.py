"""Data of bench/pipeline.py: the benchmarks' documents with a number for a quality gate, more of them, and evaluation items.

`text` are the documents of bench/data.py; `grown` are these with the rest of the kernel's sources, dealt so that every file has the same mix: sets of
50, 200 and 800 MB are its first files. The number of a document follows from its id.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from data import CODE, DATA, LEAST, Dataset
from harness import note

HOME = DATA / "pipeline"
GROWN = 32
WANTED = 820_000_000
LARGEST = 1_000_000
"""Characters; longer documents are left out of the large set: one of them would outweigh a file."""
ITEMS, ITEM_WORDS = 10_000, 112
"""100 13-grams of words an item: a million."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Files of JSON lines with text, id, source and quality; `bytes` are those of the files."""

    name: str
    files: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    def first(self, files: int) -> Texts:
        return Texts(f"{self.name}-{files}", self.files[:files])


def quality(name: str) -> float:
    """A number from 0 to 1; documents stand in the order of another hash."""
    return round(int.from_bytes(hashlib.sha256(b"quality" + name.encode()).digest()[:2]) / 65535, 4)


def texts(dataset: Dataset) -> Texts:
    """The documents of a data set, each with its quality; made if absent."""
    folder = HOME / dataset.name
    wanted = [folder / path.name for path in dataset.files("jsonl")]
    if not all(path.exists() for path in wanted):
        folder.mkdir(parents=True, exist_ok=True)
        for source, path in zip(dataset.files("jsonl"), wanted, strict=True):
            with source.open(encoding="utf-8") as lines, path.open("w", encoding="utf-8") as out:
                out.writelines(_line(json.loads(line)) for line in lines)
    return Texts(dataset.name, tuple(wanted))


def _line(row: dict[str, str]) -> str:
    return json.dumps({**row, "quality": quality(row["id"])}, ensure_ascii=False) + "\n"


def grown(full: Dataset) -> Texts | None:
    """The large set, made if absent; None where there is not enough text for it."""
    folder = HOME / "grown"
    wanted = tuple(folder / f"part-{number:05d}.jsonl" for number in range(GROWN))
    if not all(path.exists() for path in wanted):
        note("the large set: the kernel's sources are read")
        folder.mkdir(parents=True, exist_ok=True)
        waiting = [path.with_suffix(".tmp") for path in wanted]
        sizes = [0] * GROWN
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("w", encoding="utf-8")) for path in waiting]
            for row in _all_rows(full):
                # The smallest file so far: all end alike.
                number = sizes.index(min(sizes))
                sizes[number] += len(line := _line(row))
                files[number].write(line)
                if sum(sizes) >= WANTED:
                    break
        if sum(sizes) < WANTED * 0.95:
            return None
        for path, made in zip(wanted, waiting, strict=True):
            made.rename(path)
    return Texts("grown", wanted)


def _all_rows(full: Dataset) -> Iterator[dict[str, str]]:
    """Documents of the data set, and between each two of them as many of the kernel's as keep the mix even."""
    kernel = _kernel()
    share = (WANTED - full.bytes) / full.bytes
    owed = 0.0
    for path in full.files("jsonl"):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if len(row["text"]) <= LARGEST:
                    yield row
                owed += share * len(row["text"])
                while owed > 0 and (more := next(kernel, None)) is not None:
                    owed -= len(more["text"])
                    yield more


def _kernel() -> Iterator[dict[str, str]]:
    """Source files that bench/data.py did not take, in the archive's order."""
    for archive in sorted((DATA / "unpacked" / "linux-source-6.1").glob("**/*.tar.xz")):
        with tarfile.open(archive, "r|xz") as members:
            for member in members:
                taken = hashlib.sha256(member.name.encode()).digest()[0] * CODE < 256
                file = None if taken or not member.isfile() else members.extractfile(member)
                if file is None or not member.name.endswith((".c", ".h")):
                    continue
                try:
                    text = file.read().decode().strip()
                except UnicodeDecodeError:
                    continue
                if LEAST <= len(text) <= LARGEST:
                    yield {"text": text, "id": member.name, "source": "linux-source-6.1"}


def items(dataset: Dataset) -> Path:
    """Evaluation items of random short words of the data, the same ones every time: a million 13-grams of words."""
    path = HOME / "items.jsonl"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        word = re.compile(r"[a-z]{2,6}")
        with dataset.files("jsonl")[0].open(encoding="utf-8") as lines:
            first = [json.loads(line)["text"] for _, line in zip(range(200), lines, strict=False)]
        words = sorted({one for text in first for one in text.split() if word.fullmatch(one)})
        drawn = random.Random(13)
        made = (" ".join(drawn.choices(words, k=ITEM_WORDS)) for _ in range(ITEMS))
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in made), "utf-8")
    return path
