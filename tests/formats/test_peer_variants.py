"""Forms that the programs themselves write, far from what we do: recognised, whole, converted; and what was repaired is read by them.

Each program runs in its own environment, as in ``test_indexed_peers.py``.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tokenreel
from tests.formats.indexed_cases import write
from tests.formats.test_indexed_peers import DATASETS, LITDATA, STREAMING, TENSORSTORE, run
from tokenreel.convert import convert, repair
from tokenreel.verify import verify
from tokenreel.verify.inspect import inspect

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run"]
pytestmark = pytest.mark.slow
RNG = np.random.default_rng(11)
SIZES = [5, 2, 1, 700, 3, 256, 255, 2047, 1, 2, 33, 12_000, 7]


def members(largest: int, sizes: list[int] = SIZES) -> list[list[int]]:
    return [RNG.integers(1, largest, size).tolist() for size in sizes]


SMALL, MIDDLE, ROWS = members(120), members(30_000), members(100, [33] * 40)


def look(folder: Path, wanted: list[list[int]], form: str, **given: Any) -> None:
    """Hold everything that commands say of a folder against what was written into it."""
    assert inspect(folder, **given).formats == (form,), folder
    assert [ids.tolist() for ids in tokenreel.open(folder, **given)] == wanted, folder
    assert verify(folder, level="full", **given).status == "ok", folder
    out = folder.parent / f"{folder.name}.converted"
    done = convert(folder, out, to="megatron-v1", from_dtype=given.get("dtype"))
    assert done.documents == len(wanted)
    assert [ids.tolist() for ids in tokenreel.open(out)] == wanted


MORE_STREAMING = (
    STREAMING.partition("answers = []")[0]
    + """
from streaming.base.util import merge_index
folder, small, middle, rows = json.load(sys.stdin)
def put(name, columns, documents, row, **options):
    with MDSWriter(out=f"{folder}/{name}", columns=columns, size_limit=4000, **options) as out:
        for k, ids in enumerate(documents):
            out.write(row(k, ids))
for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
    array = lambda k, ids: {"tokens": np.array(ids, dtype=dtype)}
    put(f"mds-{dtype}", {"tokens": "ndarray"}, small, array)
    put(f"mds-said-{dtype}", {"tokens": f"ndarray:{dtype}"}, small, array)
    put(f"mds-rows-{dtype}", {"tokens": f"ndarray:{dtype}:33"}, rows, array)
columns = {"attention_mask": "ndarray:uint8", "id": "str", "input_ids": "ndarray:int32", "n": "int", "f": "float64",
           "meta": "json", "pk": "bytes", "z": "uint16"}
put("mds-columns", columns, middle, lambda k, ids: {
    "attention_mask": np.ones(len(ids), np.uint8), "id": f"d{k}", "input_ids": np.array(ids, np.int32), "n": k, "f": k / 2,
    "meta": {"k": k}, "pk": b"x" * k, "z": np.uint16(k)})
put("mds-labels", {"input_ids": "bytes", "labels": "bytes"}, middle, lambda k, ids: {
    "input_ids": np.array(ids, np.int64).tobytes(), "labels": np.array(ids, np.int64).tobytes()}, compression="zstd")
for part in range(3):
    put(f"mds-merged/{part}", {"tokens": "ndarray:uint16"}, middle[4 * part : 4 * part + 4],
        lambda k, ids: {"tokens": np.array(ids, np.uint16)})
merge_index(f"{folder}/mds-merged", keep_local=True)
print(1)
"""
)


def test_what_mosaicml_streaming_writes(tmp_path: Path, run: Any) -> None:
    run("streaming", MORE_STREAMING, given=[str(tmp_path), SMALL, MIDDLE, ROWS])
    for path in sorted(tmp_path.glob("mds-*")):
        wanted = ROWS if "rows" in path.name else SMALL if "int" in path.name else MIDDLE
        given = {"dtype": "int64"} if path.name == "mds-labels" else {}
        form = "mds-int64" if given else "mds"
        look(path, wanted[:12] if path.name == "mds-merged" else wanted, form, **given)


MORE_LITDATA = """
import json, sys
import numpy as np, torch
from litdata.streaming import Cache
from litdata.streaming.item_loader import TokensLoader
for folder, kind, dtype, options, documents in json.load(sys.stdin):
    cache = Cache(input_dir=folder, item_loader=TokensLoader(block_size=33), **options)
    for k, ids in enumerate(documents):
        cache[k] = np.array(ids, dtype=dtype) if kind == "numpy" else torch.tensor(ids, dtype=getattr(torch, dtype))
    cache.done(); cache.merge()
print(1)
"""


def test_what_litdata_writes(tmp_path: Path, run: Any) -> None:
    cases: list[tuple[str, str, dict[str, Any], list[list[int]]]] = []
    with_empty = [[], *SMALL, []]
    signed = ("int8", "int16", "int32", "int64", "uint8", "uint16")
    cases += (("torch", dtype, {"chunk_bytes": 3000}, with_empty) for dtype in signed)
    cases += (("numpy", dtype, {"chunk_bytes": 3000}, with_empty) for dtype in (*signed, "uint32", "uint64"))
    cases.append(("torch", "int32", {"chunk_bytes": 1 << 20}, MIDDLE))
    cases.append(("torch", "uint16", {"chunk_size": 13_000}, MIDDLE))
    cases.append(("torch", "uint16", {"chunk_size": 100}, members(3000, [9] * 400)))
    packed = {"chunk_bytes": 4000, "compression": "zstd:9", "compression_level": "chunk"}
    cases.append(("torch", "uint16", packed, MIDDLE))
    run("litdata", MORE_LITDATA, given=[(str(tmp_path / f"lit-{k}"), *case) for k, case in enumerate(cases)])
    for k, (_, _, _, wanted) in enumerate(cases):
        look(tmp_path / f"lit-{k}", wanted, "litdata")


MORE_DATASETS = """
import json, sys
import datasets
from datasets import Features, Sequence, Value
folder, middle, rows = json.load(sys.stdin)
narrow = datasets.Dataset.from_dict({"input_ids": middle}, features=Features({"input_ids": Sequence(Value("uint16"))}))
narrow.save_to_disk(f"{folder}/ds-uint16", num_shards=11)
narrow.select([4, 2, 9]).save_to_disk(f"{folder}/ds-chosen")
fixed = Features({"id": Value("string"), "input_ids": Sequence(Value("int32"), length=33)})
datasets.Dataset.from_dict({"id": ["x"] * len(rows), "input_ids": rows}, features=fixed).save_to_disk(f"{folder}/ds-rows")
datasets.DatasetDict({"train": narrow, "test": narrow.select(range(3))}).save_to_disk(f"{folder}/ds-dict")
print(1)
"""


def test_what_datasets_writes(tmp_path: Path, run: Any) -> None:
    run("datasets", MORE_DATASETS, given=[str(tmp_path), MIDDLE, ROWS])
    look(tmp_path / "ds-uint16", MIDDLE, "arrow")
    look(tmp_path / "ds-chosen", [MIDDLE[4], MIDDLE[2], MIDDLE[9]], "arrow")
    look(tmp_path / "ds-rows", ROWS, "arrow")
    corpus = tokenreel.open(tmp_path / "ds-dict")
    assert [ids.tolist() for ids in corpus.split("test")] == MIDDLE[:3]
    next((tmp_path / "ds-uint16").glob("data-00003*")).unlink()
    assert verify(tmp_path / "ds-uint16").status == "broken"


# ---- what was repaired is read by the program that it is for --------------------------------------------------------

SHARDS = [MIDDLE[:6], MIDDLE[6:]]


def damaged(tmp_path: Path, form: str, name: str, **options: Any) -> Path:
    """Return a repaired corpus of two shards, the second of which had lost its last bytes."""
    write(tmp_path / "in", form, SHARDS, "int32" if form == "levanter" else "uint16", **options)
    path = sorted((tmp_path / "in").glob(name))[1]
    path.write_bytes(path.read_bytes()[:-3])
    done = repair(tmp_path / "in", tmp_path / "out")
    assert (done.verified, len(done.mended), done.copied) == ("ok", 1, 1)
    return tmp_path / "out"


@pytest.mark.parametrize("packed", ["", "zstd", "gz"])
def test_repaired_mds(tmp_path: Path, run: Any, packed: str) -> None:
    out = damaged(tmp_path, "mds", "*.mds*", compression=packed)
    kept = [ids.tolist() for ids in tokenreel.open(out)]
    (answer,) = run(
        "streaming",
        STREAMING.replace(', validate_hash="sha256"', ""),
        given=[[str(out), "ndarray", "uint16", "", None]],
    )
    assert answer == kept
    assert kept == MIDDLE[: len(kept)]


@pytest.mark.parametrize("packed", ["", "zstd"])
def test_repaired_litdata(tmp_path: Path, run: Any, packed: str) -> None:
    out = damaged(tmp_path, "litdata", "chunk-*.bin", compression=packed)
    kept = [ids.tolist() for ids in tokenreel.open(out)]
    assert kept == MIDDLE[: len(kept)]
    blocks = []
    for shard in (kept[:6], kept[6:]):
        ids = [i for one in shard for i in one]
        blocks += [ids[k : k + 17] for k in range(0, len(ids) - 16, 17)]
    (answer,) = run("litdata", LITDATA, given=[[str(out), 17, "uint16", "", None]])
    assert answer == blocks


def test_repaired_arrow(tmp_path: Path, run: Any) -> None:
    out = damaged(tmp_path, "arrow", "*.arrow")
    kept = [ids.tolist() for ids in tokenreel.open(out)]
    shutil.move(out, tmp_path / "disk")
    assert run("datasets", DATASETS, tmp_path / "cache", tmp_path / "disk") == kept == MIDDLE[: len(kept)]


def test_a_repaired_ledger_and_store(tmp_path: Path, run: Any) -> None:
    long = [list(range(k, k + 90_000)) for k in range(8)]
    write(tmp_path / "in", "levanter", [MIDDLE, long], "int32", layout="sharded")
    (tmp_path / "in/shard_ledger.json").unlink()
    chunk = tmp_path / "in/part-000001/input_ids/data/c/0"
    chunk = chunk if chunk.exists() else sorted((tmp_path / "in").glob("*/input_ids/data/c/0"))[1]
    whole = bytearray(chunk.read_bytes())
    whole[-5000:-4800] = bytes(200)  # the index of chunks: none of them can be found
    chunk.write_bytes(bytes(whole))
    done = repair(tmp_path / "in", tmp_path / "out")
    assert len(done.beyond) == 1
    kept = [ids.tolist() for ids in tokenreel.open(tmp_path / "out")]
    field = next((tmp_path / "out").glob("*/input_ids"))
    assert run("levanter", TENSORSTORE, given=[str(field)]) == [kept] == [MIDDLE]
