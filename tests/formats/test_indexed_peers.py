"""The programs whose formats these are read what we wrote, and we read what they wrote.

Each runs in an environment of its own, ``.venv-peers/NAME`` from ``requirements/peers-NAME.txt`` (``python bench/peers.py
NAME`` makes it), as a child process: LitData, mosaicml-streaming, datasets, TensorStore (which is what Levanter reads with).
Zarr is in the environment of the tests.
"""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.formats.indexed_cases import Documents, read, write
from tokenreel.formats import shards_of
from tokenreel.formats.levanter import open_cache
from tokenreel.formats.litdata import lost_to_blocks
from tokenreel.store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(7)
SHARDS: list[Documents] = [
    [RNG.integers(0, 30_000, n).tolist() for n in sizes]
    for sizes in ([3, 1, 700, 255, 256], [5], RNG.integers(1, 90, 120).tolist())
]
WITH_EMPTY = [[[], *SHARDS[0], []], *SHARDS[1:]]


@pytest.fixture(scope="session")
def run(repository: Path) -> Any:
    def start(peer: str, program: str, *arguments: object, given: object = None) -> Any:
        python = repository / ".venv-peers" / peer / "bin" / "python"
        if not python.is_file():
            pytest.skip(f"no .venv-peers/{peer}: python bench/peers.py {peer}")
        done = subprocess.run(
            [python, "-W", "ignore", "-c", program, *map(str, arguments)],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return start


LITDATA = """
import json, sys
import numpy as np, torch
from litdata import StreamingDataset
from litdata.streaming import Cache
from litdata.streaming.item_loader import TokensLoader
answers = []
for folder, block, dtype, compression, documents in json.load(sys.stdin):
    if documents:
        options = {"compression": "zstd", "compression_level": "chunk"} if compression else {}
        cache = Cache(input_dir=folder, chunk_bytes=2000, item_loader=TokensLoader(block_size=block), **options)
        for k, ids in enumerate(documents):
            cache[k] = torch.tensor(ids, dtype=getattr(torch, dtype)) if dtype != "uint32" else np.array(ids, dtype=dtype)
        cache.done(); cache.merge()
        answers.append(None)
    else:
        data = StreamingDataset(folder, item_loader=TokensLoader(block_size=block))
        answers.append([data[k].tolist() for k in range(len(data))])
print(json.dumps(answers))
"""


def test_litdata(tmp_path: Path, run: Any) -> None:
    blocks = []
    for members in WITH_EMPTY:
        ids = [i for one in members for i in one]
        blocks += [ids[k : k + 17] for k in range(0, len(ids) - 16, 17)]
    total = sum(len(ids) for members in WITH_EMPTY for ids in members)
    documents = [ids for members in SHARDS for ids in members]
    cases = []
    for dtype in ("uint16", "int32", "int64", "uint32"):
        for compression in ("", "zstd"):
            name = f"{dtype}{compression}"
            write(tmp_path / f"ours-{name}", "litdata", WITH_EMPTY, dtype, compression=compression)
            lost = lost_to_blocks(LocalStore(tmp_path / f"ours-{name}"), "index.json", 17)
            assert total - 17 * len(blocks) == sum(int(problem.message.split()[0]) for problem in lost)
            cases.append([str(tmp_path / f"ours-{name}"), 17, dtype, "", None])
            cases.append([str(tmp_path / f"theirs-{name}"), 17, dtype, compression, documents])
    answers = run("litdata", LITDATA, given=cases)
    assert answers == [blocks, None] * (len(cases) // 2)
    for folder, *_ in cases[1::2]:
        assert [ids for members in read(LocalStore(folder)) for ids in members] == documents, folder


STREAMING = """
import importlib.machinery, json, sys, types
for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
    module = sys.modules[name] = types.ModuleType(name)  # imported by the package, used for pictures only
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.VisionDataset = module.to_tensor = object
import numpy as np
from streaming import MDSWriter, StreamingDataset
answers = []
for folder, encoding, dtype, compression, documents in json.load(sys.stdin):
    if documents:
        columns = {"tokens": encoding, "id": "str"}
        options = {"compression": compression or None, "hashes": ["sha1", "xxh128"], "size_limit": 4000}
        with MDSWriter(out=folder, columns=columns, **options) as out:
            for k, ids in enumerate(documents):
                ids = np.array(ids, dtype=dtype)
                out.write({"tokens": ids.tobytes() if encoding == "bytes" else ids, "id": f"document {k}"})
        answers.append(None)
    else:
        data = StreamingDataset(local=folder + "-local", remote=folder, shuffle=False, batch_size=1, validate_hash="sha256")
        ids = [data[k]["tokens"] for k in range(len(data))]
        answers.append([(np.frombuffer(one, dtype=dtype) if encoding == "bytes" else one).tolist() for one in ids])
print(json.dumps(answers))
"""


def test_mosaicml_streaming(tmp_path: Path, run: Any) -> None:
    whole = [ids for members in WITH_EMPTY for ids in members]
    documents = [ids for members in SHARDS for ids in members]
    ours, theirs = [], []
    for dtype in ("uint16", "int32", "int64", "uint32"):
        for compression in ("", "zstd", "gz"):
            for encoding in ("ndarray", "bytes"):
                folder = tmp_path / f"ours-{dtype}-{compression}-{encoding}"
                write(folder, "mds", WITH_EMPTY, dtype, compression=compression, encoding=encoding)
                ours.append([str(folder), encoding, dtype, compression, None])
    for compression in ("", "zstd:7", "gz", "bz2", "br", "snappy"):
        for encoding in ("ndarray", "ndarray:int32", "bytes"):
            folder = tmp_path / f"theirs-{compression}-{encoding}".replace(":", "-")
            theirs.append([str(folder), encoding, "int32", compression, documents])
    answers = run("streaming", STREAMING, given=ours + theirs)
    for case, answer in zip(ours, answers, strict=False):
        assert answer == whole, case
    for folder, encoding, *_ in theirs:
        store = LocalStore(folder)
        given = {"dtype": "int32"} if encoding == "bytes" else {}
        assert [ids for members in read(store, **given) for ids in members] == documents, folder
        assert len(shards_of(store, store.list(), **given)) > 3  # type: ignore[arg-type]


DATASETS = """
import json, sys
import datasets
folder, name = sys.argv[1:]
documents = json.load(sys.stdin)
if documents:
    data = datasets.Dataset.from_dict({"id": [str(k) for k in range(len(documents))], "input_ids": documents})
    data.save_to_disk(folder + "/saved", num_shards=3)
    data.to_parquet(folder + "/theirs.parquet", batch_size=50)
    print(1)
else:
    data = datasets.load_from_disk(name) if name.endswith("disk") else datasets.Dataset.from_file(name) if name.endswith("arrow") else datasets.Dataset.from_parquet(name, cache_dir=folder)
    print(json.dumps(data["input_ids"][:]))
"""


def test_datasets(tmp_path: Path, run: Any) -> None:
    for name in ("parquet", "arrow"):
        write(tmp_path, name, WITH_EMPTY[:1], "uint16")
        file = tmp_path / f"part-000000.{name}"
        assert run("datasets", DATASETS, tmp_path / "cache", file) == WITH_EMPTY[0]
        file.unlink()
    documents = [ids for members in WITH_EMPTY for ids in members]
    write(tmp_path / "disk", "arrow", WITH_EMPTY, "int32")
    assert run("datasets", DATASETS, tmp_path / "cache", tmp_path / "disk") == documents
    run("datasets", DATASETS, tmp_path, "", given=documents)
    for path in ("saved", "."):
        store = LocalStore(tmp_path / path)
        wanted = "arrow" if path == "saved" else "parquet"
        only = [entry for entry in store.list() if entry.path.endswith(f".{wanted}")]
        assert {found.format for found in shards_of(store, only)} == {wanted}
    assert [ids for members in read(LocalStore(tmp_path / "saved")) for ids in members] == documents
    (tmp_path / "alone").mkdir()
    (tmp_path / "theirs.parquet").rename(tmp_path / "alone" / "theirs.parquet")
    assert read(LocalStore(tmp_path / "alone")) == [documents]


TENSORSTORE = """
import json, sys
import tensorstore as ts
def array(path):
    return ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}, open=True).result()
answers = []
for field in json.load(sys.stdin):
    offsets = array(field + "/offsets")
    rows = int(offsets[0].read().result())
    ends = [0, *offsets[1 : rows + 1].read().result().tolist()]
    data = array(field + "/data")
    ids = data[: ends[-1]].read().result().tolist()
    answers.append([ids[a:b] for a, b in zip(ends, ends[1:])])
print(json.dumps(answers))
"""


def test_tensorstore(tmp_path: Path, run: Any) -> None:
    fields, wanted = [], []
    for layout in ("sharded", "consolidated"):
        shards = [[*members, list(range(300_000))] for members in WITH_EMPTY[: None if layout == "sharded" else 1]]
        write(tmp_path / layout, "levanter", shards, "int32", layout=layout)
        store = LocalStore(tmp_path / layout)
        fields += [str(tmp_path / layout / found.name) for found in shards_of(store, store.list())]
        wanted += shards
    assert run("levanter", TENSORSTORE, given=fields) == wanted


def test_zarr(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    members = [*WITH_EMPTY[0], list(range(300_000))]
    write(tmp_path, "levanter", [members], "int32", layout="consolidated")
    offsets, data = (zarr.open_array(tmp_path / "input_ids" / part, mode="r") for part in ("offsets", "data"))
    rows = int(offsets[0])
    ends = [0, *offsets[1 : rows + 1].tolist()]
    ids = data[: ends[-1]].tolist()
    assert [ids[a:b] for a, b in pairwise(ends)] == members
    # And what Zarr writes, with other chunks and codecs, is read.
    for part, values in (("offsets", np.array([rows, *ends[1:]])), ("data", np.array(ids, dtype=np.int32))):
        for codecs in ({"compressors": "auto"}, {"compressors": None}, {"compressors": zarr.codecs.GzipCodec()}):
            array = zarr.create_array(
                tmp_path / "input_ids" / part, shape=values.shape, dtype=values.dtype, chunks=(1000,), shards=(50_000,),
                overwrite=True, **codecs,
            )  # fmt: skip
            array[:] = values
            shard = open_cache(LocalStore(tmp_path), "input_ids")
            assert [shard.document(k).tolist() for k in range(shard.documents)] == members
