"""Order of shards and what their paths say of splits."""

from __future__ import annotations

from tokenreel.corpus.layout import order_finding, splits_of


def test_order_findings() -> None:
    assert order_finding(["a/part-1", "a/part-10", "a/part-2"]) == ("a/part-10", "a/part-2")
    assert order_finding([f"part-{k:03d}" for k in range(120)]) is None
    assert order_finding(["a-10", "b-9"]) is None
    assert order_finding([]) is None


def test_splits_of_paths() -> None:
    assert splits_of(["shards/train/a", "shards/validation/a"]) == {
        "train": ["shards/train/a"],
        "validation": ["shards/validation/a"],
    }
    assert splits_of(["shards/web/a"]) is None
    assert splits_of([]) is None
