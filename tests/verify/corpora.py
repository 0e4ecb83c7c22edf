"""Small corpora for the tests of verification: really built, or only pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tokenreel.build.run import build
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.store import MemoryStore

TEXTS = (
    "Hello world.", "English document 80", "", "café سلام", "a", "a", "The end.", "x" * 9, "né", "y y y",
    "0123456789", "", "one more", "and one", "last", "z",
)  # fmt: skip
RECIPE = """\
[corpus]
name = "small"
layout = "{layout}"
[tokenizer]
name = "bytes"
[split]
rule = "hash-mod"
modulo = {modulo}
[[source]]
name = "letters"
paths = ["in*.jsonl"]
id = "id"
"""


def built(folder: Path, layout: str, modulo: int = 5) -> Path:
    """Build a corpus of two parts and four shards, about 4 KB, as a user does; return its folder."""
    for part in range(2):
        mine = TEXTS[part * 8 : part * 8 + 8]
        lines = [json.dumps({"text": text, "id": f"{part}-{k}"}, ensure_ascii=False) for k, text in enumerate(mine)]
        (folder / f"in{part}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / "recipe.toml").write_text(RECIPE.format(layout=layout, modulo=modulo))
    build(folder / "recipe.toml", out=folder / "out", workers=1)
    return folder / "out"


def files_of(folder: Path) -> dict[str, bytes]:
    """Return a folder's files by relative path."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def changed(files: dict[str, bytes], path: str, data: bytes | None) -> MemoryStore:
    """Return a store with one file replaced, or taken away."""
    out = {name: value for name, value in files.items() if name != path}
    if data is not None:
        out[path] = data
    return MemoryStore(out)


def flipped(files: dict[str, bytes], path: str, at: int, mask: int) -> MemoryStore:
    """Return a store with some bits of one byte flipped."""
    data = bytearray(files[path])
    data[at] ^= mask
    return changed(files, path, bytes(data))


def write_pair(prefix: Path, documents: Sequence[Sequence[int]], dtype: str = "uint16") -> None:
    """Write documents as a pair."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with MegatronWriter(prefix, np.dtype(dtype)) as writer:
        flat = np.array([token for document in documents for token in document], dtype=np.int64)
        writer.add_documents(flat, np.array([len(document) for document in documents], dtype=np.int64))
        writer.finish()
