"""MaxText's index files as pure functions: their names, the hashes in them, what they must hold. Nothing here opens one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

INDEX_ARRAYS = ("document_index", "sample_index", "shuffle_index")
BLEND_PAIR = ("dataset_index.npy", "dataset_sample_index.npy")
"""The fixed names that the offline builder writes and `blend_index_dir` is searched for first."""


@dataclass(frozen=True, slots=True)
class IndexNames:
    """The files of one index, relative to its directory."""

    document_index: str
    sample_index: str
    shuffle_index: str
    metadata: str

    @property
    def arrays(self) -> tuple[str, str, str]:
        """The three files that must be there; MaxText never reads the metadata."""
        return self.document_index, self.sample_index, self.shuffle_index


def index_hash(
    prefixes: Sequence[str],
    epochs: int,
    separate: bool,
    seed: int,
    row_tokens: int,
    *,
    split: str = "",
    split_index: int = 0,
    row_ahead: int = 1,
) -> str:
    """Return the 32 hex digits that name an index's files.

    They hash the prefixes as they are spelled and the split as it is spelled, and nothing of what the data holds: that
    is why an index of ours is checked against the corpus as well.

    >>> index_hash(["/data/wiki_text_document"], 1, False, 1234, 2048)
    '73d0c02a6f0a878884cad45957ddb651'
    """
    body = {
        "class": "MegatronNpyDataSource",
        "input_paths": sorted(prefixes),
        "num_epochs": epochs,
        "separate_final_epoch": separate,
        "seed": seed,
        "sequence_length": row_tokens,
        "split": split or None,
        "split_index": split_index,
        "add_extra_token": row_ahead,
    }
    return _md5(json.dumps(body, indent=4))


def index_names(digest: str) -> IndexNames:
    """Return the file names of an index.

    >>> index_names("73d0").arrays[0]
    '73d0-document_index.npy'
    """
    document, sample, shuffle = (f"{digest}-{name}.npy" for name in INDEX_ARRAYS)
    return IndexNames(document, sample, shuffle, f"{digest}-metadata.json")


def find_index(names: Iterable[str], digest: str | None = None) -> IndexNames | None:
    """Return the index among a directory's file `names`; None when the one with that hash is not complete.

    Without a hash there must be exactly one: raises `OrderError` (ORD084) for none or several.
    """
    held = set(names)
    if digest is not None:
        wanted = index_names(digest)
        return wanted if held.issuperset(wanted.arrays) else None
    ends = f"-{INDEX_ARRAYS[0]}.npy"
    found = [index_names(name.removesuffix(ends)) for name in sorted(held) if name.endswith(ends)]
    found = [candidate for candidate in found if held.issuperset(candidate.arrays)]
    if len(found) != 1:
        raise OrderError("ORD084", expected="one set of three index files", found=len(found))
    return found[0]


def index_metadata(  # noqa: PLR0913 (one for each key)
    digest: str,
    prefixes: Sequence[str],
    row_tokens: int,
    *,
    samples: int | None,
    epochs: int | None,
    seed: int,
    split: str = "",
    split_index: int = 0,
    row_ahead: int = 1,
    entries: int,
    total_samples: int,
    source: str = "convert",
    created_at: str,
) -> dict[str, object]:
    """Return what MaxText's ``-metadata.json`` says, keys in its order.

    `source` is "convert" or "runtime_auto_build", `created_at` a time in ISO 8601.
    """
    return {
        "hash": digest,
        "source": source,
        "created_at": created_at,
        "input_paths": sorted(prefixes),
        "seq_length": row_tokens,
        "num_samples_requested": samples,
        "num_epochs": epochs,
        "seed": seed,
        "split": split or None,
        "split_index": split_index,
        "add_extra_token": row_ahead,
        "doc_index_len": entries,
        "total_samples": total_samples,
    }


# ---- blends --------------------------------------------------------------------------------------------------------


def blend_names(weights: Sequence[float], lengths: Sequence[int], size: int, split: str = "train") -> tuple[str, str]:
    """Return the names of a blend's pair in `blend_cache_dir`; `weights` are normalised, `split` is "train" or "eval".

    >>> blend_names([0.7, 0.3], [800, 400], 1000)[0]
    '01f617a17bb4a19f38a7f4119a4954e7-dataset_index.npy'
    """
    body = {
        "lengths": [int(length) for length in lengths],
        "size": int(size),
        "split": split,
        "weights": [float(weight) for weight in weights],
    }
    digest = _md5(json.dumps(body, sort_keys=True, separators=(",", ":")))
    return f"{digest}-{BLEND_PAIR[0]}", f"{digest}-{BLEND_PAIR[1]}"


def find_blend(names: Iterable[str], split: str = "train") -> tuple[str, str]:
    """Return the pair that `blend_index_dir` gives among its file `names`.

    The fixed one, else Megatron's of that split (its "valid" is "eval" here, which MaxText overlooks), else the only one.
    Raises `OrderError` (ORD084) for none or several. MaxText then warns and builds in memory.

    >>> find_blend(["a-dataset_index.npy", "a-dataset_sample_index.npy"])
    ('a-dataset_index.npy', 'a-dataset_sample_index.npy')
    """
    held = set(names)
    if held.issuperset(BLEND_PAIR):
        return BLEND_PAIR
    firsts = sorted(name for name in held if name.endswith(BLEND_PAIR[0]))
    pairs = [(name, name.removesuffix(BLEND_PAIR[0]) + BLEND_PAIR[1]) for name in firsts]
    pairs = [pair for pair in pairs if pair[1] in held]
    known = (split, "valid") if split == "eval" else (split,)
    ours = [pair for pair in pairs if any(f"-BlendedDataset-{word}-" in pair[0] for word in known)] or pairs
    if len(ours) != 1:
        raise OrderError("ORD084", expected="one pair of dispatch files", found=len(ours))
    return ours[0]


# ---- what the arrays must hold -------------------------------------------------------------------------------------


def check_index(
    document_index: npt.NDArray[Any],
    sample_index: npt.NDArray[Any],
    shuffle_index: npt.NDArray[Any],
    documents: tuple[int, int],
    *,
    full: bool = False,
) -> None:
    """Raise `OrderError` (ORD083) unless three arrays can be an index of documents [first, end).

    Shapes, integer types, first and last values; with `full` every value, in O(size).
    """
    _integers("document_index", document_index, 1)
    _integers("sample_index", sample_index, 2)
    _integers("shuffle_index", shuffle_index, 1)
    if sample_index.shape[0] < 2 or sample_index.shape[1] != 2:
        raise OrderError("ORD083", "sample_index", expected="2 rows or more of 2", found=sample_index.shape)
    if not 0 < len(shuffle_index) <= len(sample_index) - 1:
        expected = f"1 .. {len(sample_index) - 1} samples"
        raise OrderError("ORD083", "shuffle_index", expected=expected, found=len(shuffle_index))
    pick = slice(None) if full else [0, -1]
    _between("document_index", document_index[pick], documents[0], documents[1] - 1)
    _between("sample_index", sample_index[pick, 0], 0, len(document_index) - 1)
    _between("shuffle_index", shuffle_index[pick], 0, len(sample_index) - 2)
    if full and bool((np.diff(sample_index[:, 0].astype(np.int64)) < 0).any()):
        raise OrderError("ORD083", "sample_index", expected="rows in order", found="one that goes back")


def check_dispatch(
    dataset_index: npt.NDArray[Any], dataset_sample_index: npt.NDArray[Any], lengths: Sequence[int], size: int
) -> None:
    """Raise `OrderError` unless a pair can be the dispatch of a blend of `size` samples over datasets of `lengths`.

    Each dataset's samples must be used as 0, 1, 2, ...: ORD083 for anything else, ORD079 where a dataset has too few.
    """
    _integers("dataset_index", dataset_index, 1)
    _integers("dataset_sample_index", dataset_sample_index, 1)
    for name, array in (("dataset_index", dataset_index), ("dataset_sample_index", dataset_sample_index)):
        if len(array) != size:
            raise OrderError("ORD083", name, expected=f"{size} entries", found=len(array))
    _between("dataset_index", dataset_index, 0, len(lengths) - 1)
    for number, length in enumerate(lengths):
        used = dataset_sample_index[dataset_index == number]
        if not np.array_equal(used, np.arange(len(used))):
            raise OrderError("ORD083", f"dataset {number} of dataset_sample_index", expected="0, 1, 2, ... in order")
        check_enough(number, len(used), length)


def check_enough(number: int, used: int, length: int) -> None:
    """Raise `OrderError` (ORD079) where a blend uses more samples of a dataset than it has."""
    if used > length:
        hint = "give the blend's builder a larger margin, or fewer samples"
        raise OrderError("ORD079", f"dataset {number}", expected=f"at most {length} samples", found=used, hint=hint)


def _integers(name: str, array: npt.NDArray[Any], dimensions: int) -> None:
    if array.ndim != dimensions or array.dtype.kind not in "iu":
        expected = f"integers in {dimensions} dimension{'s' * (dimensions > 1)}"
        raise OrderError("ORD083", name, expected=expected, found=f"{array.dtype} of shape {array.shape}")


def _between(name: str, values: npt.NDArray[Any], low: int, high: int) -> None:
    if values.size and not (low <= int(values.min()) and int(values.max()) <= high):
        found = f"{int(values.min())} .. {int(values.max())}"
        raise OrderError("ORD083", name, expected=f"{low} .. {high}", found=found)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
