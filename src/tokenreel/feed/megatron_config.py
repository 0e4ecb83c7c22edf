"""What a Megatron job's own configuration object says: how rows are laid out, and the order of each part of its data."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tokenreel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.index.megatron import MegatronJob
    from tokenreel.order.protocol import Order
    from tokenreel.pack.policy import RowPolicy

PARTS = ("train", "valid", "test")
CARRIED = "carried-mask"
"""The quirk of rows; all others are those of orders."""


def megatron_policy(config: Any) -> RowPolicy:
    """Return the row policy of a ``GPTDatasetConfig``."""
    from tokenreel.pack.policy import RowPolicy

    tokenizer = getattr(config, "tokenizer", None)
    eod, pad = _id(tokenizer, "eod"), _id(tokenizer, "pad")
    named = getattr(tokenizer, "special_tokens_dict", None) or {}
    specials = [int(one) for name, one in named.items() if name != "pad_token" and isinstance(one, int)]
    if not specials:
        specials = [one for one in (_id(tokenizer, "eos"), eod) if one is not None]
    between = bool(getattr(config, "inter_document_masking", False))
    return RowPolicy(
        kind="megatron",
        eod=eod,
        pad=-1 if pad is None else pad,
        specials=tuple(specials),
        reset_position_ids=bool(getattr(config, "reset_position_ids", False)),
        reset_attention_mask=bool(getattr(config, "reset_attention_mask", False)),
        eod_mask_loss=bool(getattr(config, "eod_mask_loss", False)),
        create_attention_mask=bool(getattr(config, "create_attention_mask", True)) and not between,
        inter_document_masking=between,
        allow_ambiguous_pad_tokens=bool(getattr(config, "allow_ambiguous_pad_tokens", False)),
    )


def _id(tokenizer: Any, name: str) -> int | None:
    with contextlib.suppress(NotImplementedError):
        found = getattr(tokenizer, name, None)
        return None if found is None else int(found)
    return None


def part_orders(
    config: Any, part: str, samples: int | None, cache: str | None, compat: Collection[str] = ()
) -> list[tuple[Order, tuple[Corpus, ...]]]:
    """Return the prepared orders of one part, each with the corpora it reads: several for several validation sets.

    None of them where the part has no documents. Raises `UsageError` (USE003) without a blend, and what opening and
    ordering raise.
    """
    from tokenreel.index.cache import prepared
    from tokenreel.index.megatron import job_order, open_prefixes
    from tokenreel.order.megatron_plan import split_bounds, split_weights

    job = _job(config, part, samples, tuple(compat))
    if job is None:
        return []
    if job.split is not None and split_bounds(split_weights(job.split, compat=compat))[PARTS.index(part)] is None:
        return []
    made = []
    for one in _validation_sets(config, job):
        corpora = open_prefixes(one.prefixes)
        made.append((prepared(job_order(one, corpora), cache)[0], corpora))
    return made


def several(config: Any, part: str) -> bool:
    """Return whether a part is a list of data sets, one a prefix: Megatron's `multiple_validation_sets`."""
    each = getattr(config, "blend_per_split", None)
    blend = each[PARTS.index(part)] if each else None
    wanted = part == "valid" and bool(getattr(config, "multiple_validation_sets", None))
    return wanted and blend is not None and len(blend[0]) > 1


def _validation_sets(config: Any, job: MegatronJob) -> list[MegatronJob]:
    from dataclasses import replace

    if not several(config, job.part):
        return [job]
    if getattr(config, "full_validation", None) and job.samples is not None:
        raise UsageError("USE003", "valid", expected="None samples with full_validation", found=job.samples)
    return [replace(job, prefixes=(prefix,), weights=None) for prefix in job.prefixes]


def _job(config: Any, part: str, samples: int | None, compat: tuple[str, ...]) -> MegatronJob | None:
    from tokenreel.index.megatron import MegatronJob

    each, whole = getattr(config, "blend_per_split", None), getattr(config, "blend", None)
    if not each and not whole:
        raise UsageError("USE003", "config", expected="blend or blend_per_split", found="neither")
    blend = each[PARTS.index(part)] if each else whole
    if blend is None:
        return None
    prefixes, weights = blend
    return MegatronJob(
        tuple(str(prefix) for prefix in prefixes),
        int(config.sequence_length),
        samples,
        # One prefix given for this part alone is a plain data set, whatever its weight.
        None if weights is None or (each and len(prefixes) == 1) else tuple(float(weight) for weight in weights),
        part,
        None if each else str(config.split),
        int(config.random_seed),
        surplus=float(getattr(config, "mid_level_dataset_surplus", 0.005)),
        row_ahead=int(bool(getattr(config, "add_extra_token_to_sequence", True))),
        keep_partial=part == "valid" and not getattr(config, "drop_last_partial_validation_sequence", True),
        compat=compat,
    )
