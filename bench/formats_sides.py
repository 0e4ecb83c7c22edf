"""The side of bench/formats.py and bench/verify.py: makes the corpora, copies, converts, opens, hashes, verifies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from harness import serve

SUFFIX = 2
PARTS = 4


def make(folder: str, gigabytes: float) -> int:
    """Four pairs of uint16, documents of a lognormal length (median 700), every one ending with id 2; returns their bytes."""
    from tokenreel.formats.megatron_write import MegatronWriter

    source = Path(folder) / "source"
    rng = np.random.default_rng(0)
    block = 1 << 24
    for part in range(PARTS):
        with MegatronWriter(source / f"part-{part}", "uint16") as writer:
            while writer.tokens * 2 < gigabytes * 1e9 / PARTS:
                lengths = np.clip(rng.lognormal(np.log(700), 1.0, block // 1150), 2, 1 << 20).astype(np.int64)
                ids = rng.integers(3, 50_000, int(lengths.sum()), dtype=np.uint16)
                ids[np.cumsum(lengths) - 1] = SUFFIX
                writer.add_documents(ids, lengths)
            writer.finish()
    return sum(path.stat().st_size for path in source.iterdir())


def warm(folder: str) -> None:
    """Remove the target, bring the source into the page cache, and have free memory at hand for as much again.

    A virtual machine hands free memory back to its host within seconds; whoever writes next pays for getting it again, up
    to 2 ns a byte here. So it is taken, and freed, right before every run, of every side alike.
    """
    shutil.rmtree(Path(folder) / "target", ignore_errors=True)
    os.sync()
    size = 0
    for path in (Path(folder) / "source").iterdir():
        size += path.stat().st_size
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
    scratch, block = Path(folder) / "scratch", bytes(1 << 24)
    with scratch.open("wb", buffering=0) as file:
        for _ in range(size * 5 // 4 // len(block) + 1):
            file.write(block)
    scratch.unlink()


def copy(folder: str, sync: bool) -> None:
    target = Path(folder) / "target"
    subprocess.run(["cp", "-r", str(Path(folder) / "source"), str(target)], check=True)
    for path in target.iterdir() if sync else ():
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def convert(folder: str, to: str, proof: bool) -> str | None:
    from tokenreel.convert import convert as run

    source, target = Path(folder) / "source", Path(folder) / "target"
    return run(source, target, to=to, boundary=f"suffix={SUFFIX}", proof=proof).identity


def part(folder: str, what: str) -> float:
    """One part of a conversion alone, over 256 MiB of the source in blocks of 1 MiB; returns ns a byte."""
    import hashlib
    import time

    import blake3

    source, scratch = Path(folder) / "source/part-0.bin", Path(folder) / "scratch"
    count, size = 256, 1 << 20
    wide = np.zeros(size // 2, np.uint32).data.cast("B")
    digest = blake3.blake3() if what.startswith("blake3") else hashlib.sha256()
    if what.startswith("write"):
        warm(folder)
    with source.open("rb", buffering=0) as file, scratch.open("wb", buffering=0) as out:
        block = file.read(size)
        begin = time.perf_counter()
        for number in range(count):
            if what == "read":
                file.seek(number * size % source.stat().st_size)
                file.read(size)
            elif what.startswith("write"):
                out.write(block)
            else:
                digest.update(wide if what.startswith("blake3") else block)
        if what == "write and sync":
            os.fsync(out.fileno())
        seconds = time.perf_counter() - begin
    scratch.unlink()
    return seconds / (count * size) * 1e9


def make_many(folder: str, shards: int) -> None:
    from tokenreel.formats.megatron_write import MegatronWriter

    source = Path(folder) / "many"
    with MegatronWriter(source / "part-000000", "uint16") as writer:
        writer.add_documents(np.array([5, 6, SUFFIX], np.uint16), np.array([3]))
        writer.finish()
    for number in range(1, shards):
        for suffix in (".bin", ".idx"):
            (source / f"part-{number:06d}{suffix}").write_bytes((source / f"part-000000{suffix}").read_bytes())


def open_many(folder: str) -> int:
    import tokenreel

    corpus = tokenreel.open(Path(folder) / "many", boundary=f"suffix={SUFFIX}")
    documents = len(corpus)
    corpus.close()
    return documents


def hashed(folder: str, processes: int) -> None:
    """SHA-256 of every file by hashlib, 4 MiB at a time, in so many processes."""
    files = sorted((Path(folder) / "source").glob("part-*"), key=lambda path: -path.stat().st_size)
    script = (
        "import hashlib, sys\n"
        "for path in sys.argv[1:]:\n"
        "    digest = hashlib.sha256()\n"
        "    with open(path, 'rb', buffering=0) as file:\n"
        "        while block := file.read(1 << 22):\n"
        "            digest.update(block)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script, *map(str, files[k::processes])]) for k in range(processes)
    ]
    for one in running:
        one.wait()


def adopted(folder: str) -> None:
    from tokenreel.convert.adopt import adopt

    record = Path(folder) / "source/tokenreel.json"
    record.unlink(missing_ok=True)
    adopt(Path(folder) / "source", boundary=f"suffix={SUFFIX}")


def verified(folder: str, inside: str, level: str) -> str:
    from tokenreel.verify import verify

    return verify(Path(folder) / inside, level=level, boundary=f"suffix={SUFFIX}").status


def unadopted(folder: str) -> None:
    (Path(folder) / "source/tokenreel.json").unlink(missing_ok=True)


if __name__ == "__main__":
    serve(
        {
            one.__name__: one
            for one in (make, warm, copy, convert, part, make_many, open_many, hashed, adopted, unadopted, verified)
        }
    )
