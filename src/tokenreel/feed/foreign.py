"""States of other systems, told by their keys: what they are, and why they cannot be gone on from as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

IMPORT = "tokenreel state import RUN --grain FOLDER"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A state of another system."""

    system: str
    facts: dict[str, Any]
    """What it says, by its own keys."""
    reason: str
    """Why it is no state of a feed."""
    hint: str | None = None


def foreign(said: Mapping[Any, Any]) -> Foreign | None:
    """Return what a JSON object is when another system wrote it; None where it is not known.

    >>> foreign({"epoch": 0, "sample_in_epoch": 512, "num_canonical_nodes": 1, "shuffle_seed": 9}).system
    'MosaicML streaming'
    """
    keys = set(said)
    if {"epoch", "sample_in_epoch"} <= keys and keys & {
        "num_canonical_nodes",
        "shuffle_seed",
        "initial_physical_nodes",
    }:
        reason = (
            "a state of MosaicML streaming: its samples are shuffled by its own code, over its own shards and nodes, "
            "and that order is not one of ours"
        )
        return Foreign("MosaicML streaming", dict(said), reason)
    if {"batches_processed", "dataset_fingerprint"} <= keys or {"batches_processed", "tokens_processed"} <= keys:
        reason = (
            "a state of OLMo-core's data loader: batches are counted over its own global indices, which are shuffled by "
            "its own code, and that order is not one of ours"
        )
        return Foreign("OLMo-core", dict(said), reason)
    if is_grain(said):
        reason = "a state of one Grain process: all processes' files are needed, and the run whose order they stand in"
        return Foreign("Grain", dict(said), reason, IMPORT)
    if "consumed_train_samples" in keys:
        reason = "counters of Megatron: they go on in the order of a run file"
        return Foreign("Megatron", _counters(said), reason, "tokenreel state import RUN --megatron FILE")
    return None


def _counters(said: Mapping[Any, Any]) -> dict[str, Any]:
    names = ("iteration", "consumed_train_samples", "consumed_valid_samples", "skipped_train_samples")
    return {name: said[name] for name in names if name in said}


GRAIN_KEYS = (
    "next_index", "next_index_in_cycle", "global_next_index", "iterators_in_use_states", "last_seen_indices", "parents",
)  # fmt: skip


def is_grain(said: Mapping[Any, Any]) -> bool:
    """Return whether an object is the state of a Grain iterator."""
    return any(key in said for key in GRAIN_KEYS)
