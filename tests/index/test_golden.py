"""The files that Megatron and MaxText wrote, byte for byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenreel.errors import OrderError, UsageError
from tokenreel.index.files import differences, put
from tokenreel.index.maxtext import blend, convert, pair_files
from tokenreel.index.megatron import MegatronJob, job_files, job_order, open_prefixes
from tokenreel.order.maxtext_files import blend_names

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CASES: dict[str, list[dict[str, Any]]] = json.loads((GOLDEN / "index" / "cases.json").read_text())


def named(kind: str) -> Any:
    return pytest.mark.parametrize("case", CASES[kind], ids=[case["name"] for case in CASES[kind]])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@named("megatron")
def test_megatron_s_cache_files(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "megatron")
    job = MegatronJob(
        tuple(case["prefixes"]),
        case["row_tokens"],
        case["samples"],
        None if case["weights"] is None else tuple(case["weights"]),
        part=case["part"],
        split=case["split"],
        seed=case["seed"],
        surplus=case["surplus"],
        tokenizer=case["tokenizer"],
        row_ahead=case["row_ahead"],
        keep_partial=case["keep_partial"],
    )
    corpora = open_prefixes(job.prefixes)
    sets = job_files(job, job_order(job, corpora).prepare(), corpora)
    put(tmp_path, sets)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: sha256(written[name]) for name in case["files"]} == case["files"]
    # Nothing else but our sidecars, which no job looks at, and the files of members that the golden set leaves out.
    others = {name for name in written if name not in case["files"] and not name.endswith("-tokenreel.json")}
    assert {name.partition("-")[0] for name in others} <= set(case["members"])
    assert list(differences(tmp_path, sets)) == []


@named("maxtext_convert")
def test_maxtext_s_convert(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "index")
    flags = {key: value for key, value in case["args"].items() if value is not None}
    (files,) = convert(case["inputs"], flags.pop("seq_length"), **flags)
    put(tmp_path, [files])
    metadata = json.loads((tmp_path / f"{case['hash']}-metadata.json").read_text())
    assert metadata.pop("created_at") == "1970-01-01T00:00:00+00:00"
    assert list(metadata.items()) == list(case["metadata"].items())
    for what, digest in case["sha256"].items():
        stored = np.load(tmp_path / f"{case['hash']}-{what}.npy", allow_pickle=False)
        assert (str(stored.dtype), list(stored.shape)) == (case["dtypes"][what], case["shapes"][what])
        assert sha256(stored.tobytes()) == digest


@named("maxtext_blend")
def test_maxtext_s_blend(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "index")
    text = ";".join(f"{path},{weight}" for path, weight in case["specs"])
    sets = blend(text, case["seq_length"], case["total_samples"], **case["args"])
    put(tmp_path, sets)
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {child["dir"] for child in case["children"]}
    for name, digest in case["sha256"].items():
        number, _, array = name.removeprefix("child").partition("_")
        child = case["children"][int(number)] if name.startswith("child") else None
        path = tmp_path / f"{child['dir']}/{child['hash']}-{array}.npy" if child else tmp_path / f"{name}.npy"
        stored = np.load(path, allow_pickle=False)
        assert (sha256(stored.tobytes()), str(stored.dtype)) == (digest, case["dtypes"][name])


def test_the_names_of_a_blend_s_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "index")
    case = next(case for case in CASES["maxtext_blend"] if case["name"] == "two_unnorm")
    from tokenreel.index.maxtext import open_dataset
    from tokenreel.order.maxtext_blend import MaxTextBlendOrder, dispatch_weights

    tables = [open_dataset([path]).tables for path, _ in case["specs"]]
    weights = [weight for _, weight in case["specs"]]
    order = MaxTextBlendOrder.over(
        tables, weights, case["seq_length"], seed=1234, samples=case["total_samples"]
    ).prepare()
    lengths = [child.length for child in order.children]
    names = blend_names(dispatch_weights(order.weights).tolist(), lengths, order.length)
    assert list(names) == case["runtime_cache_files"]
    assert list(pair_files(order, names).arrays) == list(names)


def test_flags_that_maxtext_s_builder_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "index")
    for counts in ({}, {"num_samples": 1, "num_epochs": 1}):
        with pytest.raises(UsageError, match="ORD078"):
            convert(["data/small_u16"], 8, **counts)
    with pytest.raises(UsageError, match="ORD069"):
        convert(["gs://bucket/data"], 8, num_samples=1)
    with pytest.raises(UsageError, match="ORD070"):
        convert(["data/absent"], 8, num_samples=1)
    with pytest.raises(UsageError, match="ORD064"):
        blend("data/small_u16,-1;data/long_i32,2", 8, 10)
    with pytest.raises(OrderError, match="ORD077"):
        convert(["data/small_u16"], 1 << 20, num_epochs=1)
    with pytest.raises(UsageError, match="USE004"):
        open_prefixes(["s3://bucket/data"])
