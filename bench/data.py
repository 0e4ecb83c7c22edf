"""Make the benchmarks' text: at least 200 MB of real documents from Debian's documentation packages.

Packages are fetched with `apt-get download` and unpacked with `dpkg-deb -x` (no root, nothing is installed) under `bench/.data`. A document is one
page, chapter, manual page or source file; markup is taken off. Documents more than half of which was seen before are dropped, the rest put in the order of the SHA-256
of their ids, and dealt to the shards in turn: the same packages give the same bytes. `manifest.json` says which versions were used and what came out.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from harness import HERE, note
from results import table

DATA = HERE / ".data"
SHARDS = 8
WANTED = 200_000_000
SLICE = 30_000_000
SPARK = 300  # documents; over 2 MB, so that a build's choice of an engine has its whole sample
LEAST = 200  # characters; shorter pages are redirects and tables of contents

# Package -> what is read of it: prose of many kinds, by the translated ones in some forty languages, and a twentieth of the kernel's C.
MANUAL = ("**/man/**/*.gz",)
PACKAGES = {
    "linux-doc-6.1": ("**/Documentation/**/*.gz", "**/html/**/*.html"),
    "linux-source-6.1": ("**/*.tar.xz",),
    "python3.11-doc": ("**/html/**/*.html",),
    "debian-handbook": ("**/html/*/*.html",),
    "gnome-user-docs": ("**/help/**/*.page",),
    "dict-gcide": ("**/*.dict.dz",),
    "anarchism": ("**/html/*.html",),
    "postgresql-doc-15": ("**/html/*.html",),
    "debian-policy": ("**/*.html",),
    "perl-doc": ("**/*.pod",),
    "git-doc": ("**/*.html",),
    **{f"manpages{language}": MANUAL for language in ("", "-dev", "-de", "-es", "-fr", "-ja", "-pl", "-ru", "-zh")},
}
CODE = 20  # one source file in CODE is taken

# What says the same twice: page sources beside pages.
TWICE = re.compile(r"/_sources/|/Documentation/.*\.rst\.gz$")
DROPPED = re.compile(r"<(script|style|head|nav|footer|svg|mal:credit|info)\b.*?</\1\s*>|<!--.*?-->", re.S | re.I)
BREAK = re.compile(
    r"</?(?:p|div|h[1-6]|li|tr|br|pre|table|ul|ol|dl|dt|dd|section|title|item|note|steps|blockquote)\b[^>]*>", re.I
)
TAG = re.compile(r"<[^>]*>")
BLANK = re.compile(r"[ \t\u00a0]*\n\s*\n\s*")
ROFF_FONT = re.compile(r"\\f(?:\[[^]]*\]|\(..|.)|\\s[-+]?\d+|\\[&|^%:/,]")
ROFF_MACRO = re.compile(r"^[.']\s*\\\".*\n?|^[.'][ \t]*[A-Za-z]{1,3}\b[ \t]*", re.M)


@dataclass(frozen=True, slots=True)
class Document:
    id: str
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """One set of shards, in both containers. `bytes` and `documents` are of the text alone."""

    name: str
    folder: Path
    documents: int
    bytes: int

    def files(self, container: str) -> list[Path]:
        return sorted(self.folder.glob(f"{container}/*.{container}"))


def plain(path: Path, data: str) -> str:
    """Text without markup, by the kind of the file."""
    if path.suffix in (".html", ".page"):
        main = data.find('role="main"')
        text = DROPPED.sub(" ", data[max(0, data.rfind("<", 0, main)) if main > 0 else 0 :])
        text = html.unescape(TAG.sub("", BREAK.sub("\n", text)))
    elif "man" in path.parts:
        text = (
            ROFF_MACRO.sub("", ROFF_FONT.sub("", data)).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")
        )
    else:
        text = data
    return BLANK.sub("\n\n", text).strip()


def chapters(path: Path, data: str) -> Iterator[str]:
    """A dictionary is cut into chapters of about 16 KB at a blank line; any other file is one document."""
    if path.suffix != ".dz":
        yield plain(path, data)
        return
    begin = 0
    while begin < len(data):
        cut = data.find("\n\n", begin + 16_384)
        end = len(data) if cut < 0 else cut
        yield data[begin:end].strip()
        begin = end


def contents(package: str, folder: Path) -> Iterator[tuple[Path, bytes]]:
    """The package's files, by path, unpacked."""
    for path in sorted({path for pattern in PACKAGES[package] for path in folder.glob(pattern)}):
        if not path.is_file() or path.is_symlink() or TWICE.search(path.as_posix()):
            continue
        if path.suffix == ".xz":
            with tarfile.open(path, "r|xz") as archive:
                for member in archive:
                    wanted = member.isfile() and member.name.endswith((".c", ".h"))
                    file = archive.extractfile(member) if wanted else None
                    if file and hashlib.sha256(member.name.encode()).digest()[0] * CODE < 256:
                        yield Path(member.name), file.read()
            continue
        raw = path.read_bytes()
        yield path.relative_to(folder), gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def documents(package: str, folder: Path, lost: Counter[str]) -> Iterator[Document]:
    for path, raw in contents(package, folder):
        try:
            # the dictionary has three stray bytes in 40 MB
            data = raw.decode("utf-8", "replace" if path.suffix == ".dz" else "strict")
        except UnicodeDecodeError:
            lost["not UTF-8"] += 1
            continue
        for number, text in enumerate(chapters(path, data)):
            if len(text) < LEAST:
                lost["short"] += 1
            else:
                yield Document(f"{package}/{path.as_posix()}#{number}", package, text)


def fresh(text: str, seen: set[bytes]) -> bool:
    """Whether at most half of the text, by paragraphs, was in earlier documents; repeats would flatter an engine that caches."""
    known = 0
    for paragraph in text.split("\n\n"):
        data = paragraph.encode()
        digest = hashlib.blake2b(data, digest_size=8).digest()
        known += len(paragraph) if digest in seen else 0
        seen.add(digest)
    return 2 * known <= len(text)


def fetch(package: str) -> tuple[Path | None, str]:
    """Folder of the unpacked package and its version; no folder, and the reason, where it cannot be had."""
    debs, folder = DATA / "debs", DATA / "unpacked" / package
    debs.mkdir(parents=True, exist_ok=True)
    found = sorted(debs.glob(f"{package}_*.deb"))
    try:
        if not found:
            subprocess.run(["apt-get", "download", "-q", package], cwd=debs, check=True, capture_output=True, text=True)
            found = sorted(debs.glob(f"{package}_*.deb"))
        if not folder.exists():
            folder.parent.mkdir(exist_ok=True)
            subprocess.run(["dpkg-deb", "-x", found[-1], folder], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        return None, f"no {error.filename}"
    except subprocess.CalledProcessError as error:
        shutil.rmtree(folder, ignore_errors=True)
        return None, (error.stderr.strip().splitlines() or [f"{error.cmd[0]} failed"])[-1]
    return folder, unquote(found[-1].name.split("_")[1])


def collect() -> tuple[list[Document], dict[str, Any]]:
    seen: set[bytes] = set()
    kept: list[Document] = []
    packages: dict[str, Any] = {}
    lost: Counter[str] = Counter()
    for package in PACKAGES:
        folder, version = fetch(package)
        if folder is None:
            note(f"{package}: not used: {version}")
            packages[package] = {"absent": version}
            continue
        before, size = len(kept), 0
        for document in documents(package, folder, lost):
            if not fresh(document.text, seen):
                lost["repeated"] += 1
                continue
            kept.append(document)
            size += len(document.text.encode())
        packages[package] = {"version": version, "documents": len(kept) - before, "bytes": size}
        note(f"{package} {version}: {len(kept) - before} documents, {size / 1e6:.1f} MB")
    kept.sort(key=lambda document: hashlib.sha256(document.id.encode()).digest())
    return kept, {"packages": packages, "left_out": dict(lost)}


def write(name: str, kept: list[Document], facts: dict[str, Any]) -> Dataset:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    for container in ("jsonl", "parquet"):
        (folder / container).mkdir(parents=True)
    files = {}
    for shard in range(SHARDS):
        rows = [
            {"text": document.text, "id": document.id, "source": document.source} for document in kept[shard::SHARDS]
        ]
        stem = f"part-{shard:05d}"
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        (folder / "jsonl" / f"{stem}.jsonl").write_bytes(lines)
        pq.write_table(pa.Table.from_pylist(rows), folder / "parquet" / f"{stem}.parquet", row_group_size=1000)
        files[stem] = {
            "documents": len(rows),
            "jsonl_bytes": len(lines),
            "jsonl_sha256": hashlib.sha256(lines).hexdigest(),
        }
    size = sum(len(document.text.encode()) for document in kept)
    (folder / "manifest.json").write_text(
        json.dumps({"documents": len(kept), "bytes": size, "files": files} | facts, indent=1) + "\n"
    )
    return Dataset(name, folder, len(kept), size)


def load(name: str) -> Dataset | None:
    folder = DATA / name
    if not (folder / "manifest.json").exists():
        return None
    facts = json.loads((folder / "manifest.json").read_text())
    return Dataset(name, folder, facts["documents"], facts["bytes"])


def prepare() -> dict[str, Dataset]:
    """The data sets `full` (all), `slice` (its first 30 MB) and `spark` (its first 300, what any run costs); made if absent."""
    found = {name: load(name) for name in ("full", "slice", "spark")}
    if found["full"] and found["full"].bytes >= WANTED and all(found.values()):
        return {name: dataset for name, dataset in found.items() if dataset}
    kept, facts = collect()
    size = count = 0
    while count < len(kept) and size < SLICE:
        size += len(kept[count].text.encode())
        count += 1
    return {
        "spark": write("spark", kept[:SPARK], facts),
        "slice": write("slice", kept[:count], facts),
        "full": write("full", kept, facts),
    }


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    made = prepare()
    print(
        table(
            ("set", "documents", "MB of text"),
            [(name, dataset.documents, f"{dataset.bytes / 1e6:.1f}") for name, dataset in made.items()],
        )
    )
    if made["full"].bytes < WANTED:
        print(
            f"only {made['full'].bytes / 1e6:.0f} MB could be had; the claims need {WANTED / 1e6:.0f} MB",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
