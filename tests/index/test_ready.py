"""The dispatch files of a MaxText run: used where they fit, replaced where they do not, never silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.index.data import lengths_of, write
from tests.order.tables import Lengths
from tokenreel.config.run import parse_run
from tokenreel.index.assemble import assemble
from tokenreel.index.ready import dispatched, make_ready
from tokenreel.order.maxtext_blend import MaxTextBlendOrder

TABLES = [Lengths(lengths_of(1)), Lengths(lengths_of(2, 80))]


@pytest.fixture
def order() -> MaxTextBlendOrder:
    return MaxTextBlendOrder.over(TABLES, [0.7, 0.3], 8, samples=50).prepare()


def pair(folder: Path, datasets: list[int], prefix: str = "", **changes: Any) -> None:
    """Write a pair by hand, each dataset's samples 0, 1, 2, .."""
    members = np.array(datasets, dtype=np.int16)
    numbers = np.array([datasets[:k].count(d) for k, d in enumerate(datasets)], dtype=np.int64)
    folder.mkdir(exist_ok=True)
    np.save(folder / f"{prefix}dataset_index.npy", changes.get("members", members))
    np.save(folder / f"{prefix}dataset_sample_index.npy", changes.get("numbers", numbers))


def test_a_dispatch_made_elsewhere_decides_the_order(order: MaxTextBlendOrder, tmp_path: Path) -> None:
    pair(tmp_path / "blend", [0, 1] * 25)
    found, warnings = dispatched(order, index_dir=tmp_path / "blend")
    assert warnings == ()
    assert found.components_at(range(6)).tolist() == [0, 1, 0, 1, 0, 1]
    assert found.components_at(range(6)).tolist() != order.components_at(range(6)).tolist()


def test_megatron_s_longer_pair_is_cut(order: MaxTextBlendOrder, tmp_path: Path) -> None:
    pair(tmp_path / "blend", [0, 1] * 26, prefix="abc-BlendedDataset-train-")
    found, warnings = dispatched(order, index_dir=tmp_path / "blend")
    assert warnings == ()
    assert found.length == 50
    assert found.components_at([48, 49]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("datasets", "changes", "code"),
    [
        ([0, 1] * 20, {}, "ORD083"),
        ([0, 2] * 25, {}, "ORD083"),
        ([0, 1] * 25, {"numbers": np.zeros(50, dtype=np.int64)}, "ORD083"),
        ([0, 1] * 25, {"members": np.zeros(50)}, "IDX002"),
    ],
    ids=["short", "another dataset", "numbers", "floats"],
)
def test_a_pair_that_does_not_fit_is_a_warning(
    datasets: list[int], changes: dict[str, Any], code: str, order: MaxTextBlendOrder, tmp_path: Path
) -> None:
    pair(tmp_path / "blend", datasets, **changes)
    found, warnings = dispatched(order, index_dir=tmp_path / "blend")
    assert [warning.code for warning in warnings] == [code]
    assert found.components_at(range(50)).tolist() == order.components_at(range(50)).tolist()


def test_no_pair_and_several_are_warnings(order: MaxTextBlendOrder, tmp_path: Path) -> None:
    assert [w.code for w in dispatched(order, index_dir=tmp_path / "absent")[1]] == ["ORD084"]
    for prefix in ("a-", "b-"):
        pair(tmp_path / "blend", [0, 1] * 25, prefix=prefix)
    assert [w.code for w in dispatched(order, index_dir=tmp_path / "blend")[1]] == ["ORD084"]


def test_the_cache_is_written_and_mended(order: MaxTextBlendOrder, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert dispatched(order, cache_dir=cache)[1] == ()
    names = sorted(path.name for path in cache.iterdir())
    assert [name.partition("-")[2] for name in names] == ["dataset_index.npy", "dataset_sample_index.npy"]
    assert np.load(cache / names[0]).tolist() == order.components_at(range(50)).tolist()
    (cache / names[0]).write_bytes(b"damaged")
    assert dispatched(order, cache_dir=cache)[1] == ()
    assert np.load(cache / names[0]).dtype == np.int16
    # Evaluation has files of its own.
    dispatched(order, "eval", cache_dir=cache)
    assert len(list(cache.iterdir())) == 4


def test_a_cache_that_cannot_be_written_is_survived(order: MaxTextBlendOrder, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    found, warnings = dispatched(order, cache_dir=tmp_path / "cache")
    assert [warning.code for warning in warnings] == ["IDX005"]
    assert found.spans(0, 50).begin.tolist() == order.spans(0, 50).begin.tolist()


def test_a_run_file_names_both(tmp_path: Path) -> None:
    corpora = []
    for name, seed in (("web", 1), ("code", 2)):
        write(tmp_path / name, lengths_of(seed))
        corpora.append({"name": name, "path": f"{name}.idx"})
    said = {
        "kind": "maxtext-npy-blend",
        "row_tokens": 8,
        "samples": 50,
        "member": [{"corpus": "web", "weight": 0.7}, {"corpus": "code", "weight": 0.3}],
        "blend_index_dir": "blend",
        "blend_cache_dir": "cache",
    }
    (segment,) = parse_run({"corpus": corpora, "order": said})
    made = assemble(segment.run, tmp_path)
    ready, warnings = make_ready(segment.run, made, tmp_path)
    assert [warning.code for warning in warnings] == ["ORD084"]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    pair(tmp_path / "blend", [1, 0] * 25)
    again, warnings = make_ready(segment.run, made, tmp_path, tmp_path / "ours")
    assert warnings == ()
    assert again.order.components_at([0, 1]).tolist() == [1, 0]
    assert ready.order.components_at([0, 1]).tolist() == [0, 1]
