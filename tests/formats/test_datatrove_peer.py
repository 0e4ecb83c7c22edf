"""datatrove itself reads and merges what we wrote, and we read what it wrote: the same bytes.

Runs in an environment of its own, ``.venv-peers/datatrove`` (see ``requirements/peers-datatrove.txt``), as a child process.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.flat_cases import read, write
from tokenreel.formats.datatrove import for_people, open_file, open_writer
from tokenreel.store import LocalStore

PEER = """
import json, sys
import humanize
from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from datatrove.tools.check_dataset import load_dataset_bytes, load_doc_ends

folder, work = sys.argv[1], json.load(sys.stdin)
for name, width, documents, weights in work["write"]:
    file = TokenizedFile(folder, f"{name}.ds", save_loss_metadata=weights is not None, tokenizer_name_or_path="gpt2",
                         save_final_metadata=True, token_size=width)
    at = 0
    for ids in documents:
        data = b"".join(i.to_bytes(width, "little") for i in ids)
        file.write_bytes(data)
        if weights is not None:
            file.write_loss_bytes(bytes(weights[at : at + len(ids)]))
        at += len(ids)
    file.close()
    file.write_final_metadata()
out = {}
for name, width in work["read"]:
    with open(f"{folder}/{name}.ds.index", "rb") as file:
        ends = list(load_doc_ends(file))
    with open(f"{folder}/{name}.ds", "rb") as file:
        out[name] = [
            [int.from_bytes(data[k : k + width], "little") for k in range(0, len(data), width)]
            for data in load_dataset_bytes(file, ends, width)
        ]
for source, target in work["merge"]:
    DocumentTokenizerMerger(f"{folder}/{source}", f"{folder}/{target}", "m", shuffle=False, progress=False).run()
out["numbers"] = [humanize.metric(count, unit="T") for count in work["numbers"]]
print(json.dumps(out))
"""


@pytest.fixture(scope="session")
def peer(repository: Path) -> Path:
    python = repository / ".venv-peers" / "datatrove" / "bin" / "python"
    if not python.is_file():
        pytest.skip("no .venv-peers/datatrove: make it from requirements/peers-datatrove.txt")
    return python


def run(peer: Path, folder: Path, work: dict[str, Any]) -> dict[str, Any]:
    command = [str(peer), "-c", PEER, str(folder)]
    done = subprocess.run(command, input=json.dumps(work), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.slow
def test_datatrove_reads_what_we_wrote_and_we_read_what_it_wrote(tmp_path: Path, peer: Path) -> None:
    rng = np.random.default_rng(5)
    narrow = [rng.integers(0, 65_536, size).tolist() for size in rng.integers(1, 60, 300)]
    wide = [rng.integers(0, 200_000, size).tolist() for size in rng.integers(1, 60, 300)]
    weights = rng.integers(0, 2, sum(map(len, narrow))).tolist()
    for folder in ("ours", "merging", "theirs"):
        (tmp_path / folder).mkdir()
    cases: dict[str, tuple[int, list[list[int]], list[int] | None]] = {
        "narrow": (2, narrow, None),
        "wide": (4, wide, None),
        "weighted": (2, narrow, weights),
    }
    for name, (width, documents, loss) in cases.items():
        dtype = "uint16" if width == 2 else "uint32"
        write(open_writer, tmp_path, f"ours/{name}", documents, dtype=dtype, weights=loss, tokenizer="gpt2")
    for number, documents in enumerate((narrow, narrow[:7])):
        write(open_writer, tmp_path, f"merging/{number:05d}_unshuffled", documents, tokenizer="gpt2")
    numbers = [0, 7, 99, 999, 1000, 54_321, 999_499, 999_999, 10**6, 123_456_789, 10**9, 5 * 10**12]
    work = {
        "write": [[f"theirs/{name}", *case] for name, case in cases.items()],
        "read": [[f"ours/{name}", case[0]] for name, case in cases.items()],
        "merge": [["merging", "merged"]],
        "numbers": numbers,
    }
    out = run(peer, tmp_path, work)

    assert [for_people(count) for count in numbers] == out["numbers"]
    for name, (_, documents, loss) in cases.items():
        assert out[f"ours/{name}"] == documents
        shard = open_file(LocalStore(tmp_path), f"theirs/{name}.ds")
        assert read(shard) == documents
        for suffix in (".ds", ".ds.index", ".ds.metadata", *((".ds.loss",) if loss else ())):
            ours, theirs = ((tmp_path / side / (name + suffix)).read_bytes() for side in ("ours", "theirs"))
            assert ours == theirs, suffix
    assert read(open_file(LocalStore(tmp_path), "merged/000_m.ds")) == [*narrow, *narrow[:7]]
