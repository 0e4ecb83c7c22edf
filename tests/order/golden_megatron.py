"""The golden cases of Megatron's order, read from tests/golden/megatron_order."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.order.tables import Lengths

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "megatron_order"
PARTS = ("train", "valid", "test")


@cache
def manifest() -> dict[str, Any]:
    return json.loads((FOLDER / "cases.json").read_text("utf-8"))


@cache
def _flat() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "arrays.npz") as file:
        return {name: file[name] for name in file.files}


def array(name: str) -> np.ndarray:
    """Return one array as the other system wrote it."""
    store, first, shape, dtype = manifest()["arrays"][name]
    count = int(np.prod(shape))
    return _flat()[store][first : first + count].reshape(shape).astype(dtype)


def has(name: str) -> bool:
    return name in manifest()["arrays"]


def lengths(prefix: str) -> Lengths:
    return Lengths(array(f"lengths/{prefix}"))


def cases(failing: bool) -> list[dict[str, Any]]:
    return [case for case in manifest()["cases"] if ("exception" in case) == failing]


def functions(name: str) -> Any:
    return manifest()["functions"][name]


def arguments(case: dict[str, Any], part: str) -> dict[str, Any] | None:
    """Return what `megatron_orders` takes for one part of a case, or None where the job had no such part."""
    per_split = case["per_split"] is not None
    prefixes, weights = (case["per_split"][PARTS.index(part)] or (None, None)) if per_split else case["blend"]
    if prefixes is None or (not per_split and case["bounds"][PARTS.index(part)] is None):
        return None
    return {
        "tables": [lengths(prefix) for prefix in prefixes],
        "row_tokens": case["row"],
        "samples": case["sizes"][PARTS.index(part)],
        "weights": weights,
        "per_split": per_split,
        "multiple_validation_sets": case["multi"],
        "full_validation": case["full"],
        "surplus": case["surplus"],
        "part": part,
        "split": case["split"],
        "seed": case["seed"],
        "row_ahead": case["ahead"],
        "keep_partial": case["keep_partial"] and part == "valid",
    }


def prefixes_of(case: dict[str, Any], part: str) -> list[str]:
    return (case["per_split"][PARTS.index(part)] if case["per_split"] else case["blend"])[0]
