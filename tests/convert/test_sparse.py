"""A corpus of gigabytes under a limit of address space: killed at a third, run again, no finished shard written twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30
LIMIT = 512 << 20
SHARDS = 16
DOCUMENT = 1 << 14
"""Ids of a document."""

CONVERT = """
import resource, sys
from tokenreel.convert import convert
import blake3, numpy, msgspec, xxhash  # what is imported lazily is part of the interpreter here
import tokenreel.formats.megatron_writer, tokenreel.formats.tabled, tokenreel.formats.datatrove
with open("/proc/self/statm") as file:
    before = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (before + {limit},) * 2)
done = convert(sys.argv[1], sys.argv[2], to="datatrove", workers=2)
print(done.identity, done.kept_shards, done.tokens)
"""


def sparse_pairs(folder: Path, payload: int) -> None:
    """Write pairs whose payloads are holes: every id is 0, and no block is used on the disk."""
    from tokenreel.formats.megatron_layout import pack_header

    folder.mkdir()
    each = payload // SHARDS // (2 * DOCUMENT)
    for number in range(SHARDS):
        with (folder / f"part-{number:03d}.bin").open("wb") as file:
            file.truncate(each * DOCUMENT * 2)
        lengths = np.full(each, DOCUMENT, dtype="<i4")
        pointers = np.arange(each, dtype="<i8") * DOCUMENT * 2
        index = np.arange(each + 1, dtype="<i8")
        data = pack_header(8, each, each + 1) + lengths.tobytes() + pointers.tobytes() + index.tobytes()
        (folder / f"part-{number:03d}.idx").write_bytes(data)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that is removed at once: pytest would keep these gigabytes for three more runs."""
    yield tmp_path / "sparse"
    shutil.rmtree(tmp_path / "sparse", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's here")
def test_gigabytes_under_a_limit(place: Path) -> None:
    place.mkdir()
    free = shutil.disk_usage(place).free
    payload = int(os.environ.get("SPARSE_GIB", "0")) * GIB or (20 * GIB if free >= 45 * GIB else 4 * GIB)
    print(f"{payload / GIB:.0f} GiB of ids; {free / GIB:.0f} GiB free")
    sparse_pairs(place / "in", payload)
    script = place / "convert.py"
    script.write_text(CONVERT.format(limit=LIMIT))
    command = [sys.executable, str(script), str(place / "in"), str(place / "out")]
    journal = place / "out/.convert"
    first = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"})
    finished = 0
    while first.poll() is None and finished < 0.3 * SHARDS:
        time.sleep(0.02)
        finished = len(list(journal.glob("0*.json"))) if journal.is_dir() else 0
    assert first.poll() is None, "it must still be at work at a third"
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {}
    for path in journal.glob("0*.json"):
        for file in json.loads(path.read_text())["files"]:
            kept[file["path"]] = (place / "out" / file["path"]).stat().st_mtime_ns
    assert kept
    second = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "MALLOC_ARENA_MAX": "2"}
    )
    assert second.returncode == 0, second.stderr
    identity, shards, tokens = second.stdout.split()
    assert int(shards) >= 0.3 * SHARDS - 1
    assert int(tokens) == payload // 2 // DOCUMENT // SHARDS * SHARDS * DOCUMENT
    assert len(identity) == 64
    assert {path: (place / "out" / path).stat().st_mtime_ns for path in kept} == kept
