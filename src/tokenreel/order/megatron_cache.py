"""What Megatron calls its index files: the description it hashes, the hash, the names. Text only, no files.

The description is JSON as Python prints it with an indent of 4, in a fixed order of keys; its MD5 names the files. File
sizes, times, contents, the look-ahead and the kept tail are not in it, which is why a Megatron job can meet a stale
cache.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenreel.order.megatron_plan import Bounds

Identity = dict[str, object]


def dataset_identity(
    prefix: str,
    part: str,
    samples: int | None,
    *,
    seed: int,
    row_tokens: int,
    split: str | None,
    bounds: Sequence[Bounds | None] | None,
    tokenizer: Mapping[str, object],
    kind: str = "GPTDataset",
) -> Identity:
    """Return the identity of one dataset: `prefix` as the job was given it, `samples` as asked, `tokenizer` as it calls itself.

    `split` and `bounds` (see `split_bounds`) are None where every part has prefixes of its own.
    """
    return {
        "class": kind,
        "dataset_path": prefix,
        "num_samples": samples,
        "index_split": part,
        "random_seed": seed,
        "sequence_length": row_tokens,
        "split": split,
        "split_matrix": None if bounds is None else [None if b is None else list(b) for b in bounds],
        "tokenizer": dict(tokenizer),
    }


def blend_identity(members: Sequence[Identity], part: str, weights: Sequence[float], size: int | None) -> Identity:
    """Return the identity of a blend: `weights` as they are dispatched with, or lengths where it uses everything up."""
    return {
        "class": "BlendedDataset",
        "datasets": list(members),
        "split": part,
        "weights": list(weights),
        "size": size,
    }


def description(identity: Identity) -> str:
    """Return the text that Megatron writes beside its arrays.

    >>> print(description({"class": "GPTDataset", "num_samples": None}))
    {
        "class": "GPTDataset",
        "num_samples": null
    }
    """
    return json.dumps(identity, indent=4)


def description_hash(text: str) -> str:
    """Return the MD5 of a description, in hex: what the files are called by. Not a matter of security.

    >>> description_hash("{}")
    '99914b932bd37a50b983c5e7c90ae93b'
    """
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def cache_names(identity: Identity) -> dict[str, str]:
    """Return the names of the files of a dataset or a blend, by what they hold.

    >>> sorted(cache_names({"class": "BlendedDataset", "split": "train"}))
    ['dataset_index', 'dataset_sample_index', 'description']
    """
    blend = identity["class"] == "BlendedDataset"
    part = identity["split"] if blend else identity["index_split"]
    stem = f"{description_hash(description(identity))}-{identity['class']}-{part}"
    arrays = ("dataset_index", "dataset_sample_index") if blend else ("document_index", "sample_index", "shuffle_index")
    return {"description": f"{stem}-description.txt", **{array: f"{stem}-{array}.npy" for array in arrays}}
