"""Whatever bytes are there: findings or a TokenreelError, never another exception, and never silence where sizes lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.verify.corpora import files_of, write_pair
from tokenreel.errors import TokenreelError
from tokenreel.store import MemoryStore
from tokenreel.verify.verify import verify_store

KINDS = st.sampled_from(["flip", "cut", "grow", "zero", "remove", "swap"])
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)


def damaged(files: dict[str, bytes], draw: st.DataObject, times: int) -> dict[str, bytes]:
    out = dict(files)
    for _ in range(times):
        if not out:
            break
        path = draw.draw(st.sampled_from(sorted(out)))
        data = bytearray(out[path])
        kind = draw.draw(KINDS)
        at = draw.draw(st.integers(0, max(0, len(data) - 1)))
        if kind == "remove":
            del out[path]
            continue
        if kind == "cut":
            data = data[:at]
        elif kind == "grow":
            data += draw.draw(st.binary(min_size=1, max_size=9))
        elif kind == "swap":
            other = draw.draw(st.sampled_from(sorted(out)))
            data = bytearray(out[other])
        elif data and kind == "flip":
            data[at] ^= draw.draw(st.integers(1, 255))
        elif data:
            data[at : at + 8] = bytes(len(data[at : at + 8]))
        out[path] = bytes(data)
    return out


@MANY
@given(st.data(), st.integers(1, 3), st.sampled_from(["quick", "full"]))
def test_damage_never_crashes_a_built_corpus(mahan: Path, draw: st.DataObject, times: int, level: str) -> None:
    files = files_of(mahan)
    store = MemoryStore(damaged(files, draw, times))
    try:
        report = verify_store(store, level=level)  # type: ignore[arg-type]
    except TokenreelError:
        return
    gone = {path for path in files if path != "build.log.jsonl" and files[path] != store.files.get(path)}
    if gone and level == "full":
        assert report.findings


@MANY
@given(st.data(), st.integers(1, 2))
def test_damage_never_crashes_a_native_corpus(native: Path, draw: st.DataObject, times: int) -> None:
    store = MemoryStore(damaged(files_of(native), draw, times))
    try:
        report = verify_store(store)
    except TokenreelError:
        return
    assert report.as_dict()["status"] == report.status
    assert report.lines()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder / "web", [[5, 6, 0], [0], [7, 0], [8, 9, 1, 2, 0]])
    return files_of(folder)


@MANY
@given(st.data(), st.integers(1, 3))
def test_damage_never_crashes_a_bare_pair(pair: dict[str, bytes], draw: st.DataObject, times: int) -> None:
    try:
        report = verify_store(MemoryStore(damaged(pair, draw, times)), boundary="suffix=0", vocab=10)
    except TokenreelError:
        return
    assert report.exit_status in (0, 1)


@MANY
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["splits", "part", "files", "train", "tokenizer", "eod_id", "parts", "shards",
                                         "boundary", "suffix", "inputs", "by_split", "split_rule", "rule", "layout"]),
                        inner, max_size=4), max_leaves=8),
       st.sampled_from(["run_config.json", "COMPLETE.json", "stats.json", "receipts/part-000000.json", "tokenreel.json"]))  # fmt: skip
def test_any_json_in_place_of_a_sidecar_is_a_finding(native: Path, value: object, path: str) -> None:
    from tokenreel.store import dumps_canonical

    files = {**files_of(native), path: dumps_canonical(value)}
    assert verify_store(MemoryStore(files)).status == "broken"
