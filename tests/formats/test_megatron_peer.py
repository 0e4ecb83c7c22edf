"""Megatron's own IndexedDataset reads what we wrote, and we read what its builder wrote, document by document.

Runs in an environment of its own, ``.venv-peers/megatron`` (torch, then megatron-core from PyPI; see
``requirements/peers-megatron.txt``), as a child process.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.megatron_cases import documents_of
from tests.formats.megatron_reference import CODES, Documents
from tokenreel.formats.megatron import open_pair
from tokenreel.formats.megatron_check import check_pair
from tokenreel.formats.megatron_merge import merge
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.store import LocalStore

PEER = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import numpy, torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

folder, work = sys.argv[1], json.load(sys.stdin)
for name, dtype, documents in work["write"]:
    builder = IndexedDatasetBuilder(f"{folder}/{name}.bin", dtype=getattr(numpy, dtype))
    for document in documents:
        for sequence in document:
            builder.add_item(torch.tensor(sequence, dtype=torch.int64))
        builder.end_document()
    builder.finalize(f"{folder}/{name}.idx")
read = {}
for name in work["read"]:
    for mmap in (True, False):
        data = IndexedDataset(f"{folder}/{name}", mmap=mmap)
        sequences = [data[k].tolist() for k in range(len(data))]
        bounds = data.document_indices.tolist()
        read[f"{name} {mmap}"] = [sequences[a:b] for a, b in zip(bounds[:-1], bounds[1:])]
        read[f"{name} dtype"] = numpy.dtype(data.index.dtype).name
json.dump(read, sys.stdout)
"""

DOCUMENTS: Documents = [[[1, 2, 3]], [[4], [5, 6]], [], [[], [7]], [[100]], [[8, 9, 10, 11]]]


@pytest.fixture(scope="session")
def peer(repository: Path) -> Path:
    python = repository / ".venv-peers" / "megatron" / "bin" / "python"
    if not python.is_file():
        pytest.skip("no .venv-peers/megatron: make it from requirements/peers-megatron.txt")
    return python


def run(peer: Path, folder: Path, work: dict[str, Any]) -> dict[str, Any]:
    command = [str(peer), "-c", PEER, str(folder)]
    done = subprocess.run(command, input=json.dumps(work), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_megatron_reads_what_we_wrote_and_we_read_what_it_wrote(tmp_path: Path, peer: Path) -> None:
    rng = np.random.default_rng(5)
    many: Documents = [[rng.integers(0, 60_000, size).tolist()] for size in rng.integers(1, 50, 500)]
    ours = {dtype: (dtype, DOCUMENTS) for dtype in CODES} | {"many": ("uint16", many)}
    for name, (dtype, documents) in ours.items():
        plain = all(len(document) == 1 for document in documents)
        with MegatronWriter(tmp_path / f"ours-{name}", dtype, one_sequence_per_document=plain) as writer:
            for document in documents:
                writer.add_document([np.array(sequence, dtype=np.int64) for sequence in document])
            writer.finish()
    merge([tmp_path / "ours-uint16", tmp_path / "ours-many"], tmp_path / "ours-merged")
    theirs = [[f"theirs-{name}", dtype, documents] for name, (dtype, documents) in ours.items()]
    names = [*(f"ours-{name}" for name in ours), "ours-merged"]
    read = run(peer, tmp_path, {"write": theirs, "read": names})

    for name, (dtype, documents) in ours.items():
        assert read[f"ours-{name} True"] == read[f"ours-{name} False"] == documents
        assert read[f"ours-{name} dtype"] == dtype
        store = LocalStore(tmp_path)
        assert list(check_pair(store, f"theirs-{name}")) == []
        assert documents_of(open_pair(store, f"theirs-{name}")) == documents
        for suffix in ("bin", "idx"):
            pair = [(tmp_path / f"{side}-{name}.{suffix}").read_bytes() for side in ("ours", "theirs")]
            assert pair[0] == pair[1]
    assert read["ours-merged True"] == DOCUMENTS + many
