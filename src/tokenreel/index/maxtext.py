"""MaxText's index files from corpora: what ``mmap_index_builder convert`` and ``blend`` write, and a run looks for."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenreel.corpus.opening import open_corpus
from tokenreel.errors import UsageError
from tokenreel.index.files import IndexFiles
from tokenreel.index.sidecar import sidecar
from tokenreel.order.maxtext_files import BLEND_PAIR, index_metadata, index_names
from tokenreel.order.maxtext_spec import sorted_prefixes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.order.maxtext_blend import MaxTextBlendOrder
    from tokenreel.order.maxtext_npy import MaxTextNpyOrder
    from tokenreel.spans import DocTable

NO_CLOCK = "1970-01-01T00:00:00+00:00"
"""``created_at`` of the metadata, which nothing reads: the files of one index are the same whoever makes them."""
BUILDER_SEED = 1234


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """One dataset as MaxText spells it: prefixes in its order, a corpus for each."""

    prefixes: tuple[str, ...]
    corpora: tuple[Corpus, ...]
    inputs: tuple[str, ...]
    """As given: directories not resolved."""

    @property
    def tables(self) -> tuple[DocTable, ...]:
        """The documents of each corpus."""
        return tuple(corpus.table() for corpus in self.corpora)

    def named(self) -> list[tuple[str, Corpus]]:
        """Return pairs of prefix and corpus."""
        return list(zip(self.prefixes, self.corpora, strict=True))


def open_dataset(paths: Sequence[str], *, accept: Sequence[str] = ()) -> Dataset:
    """Open the prefixes and directories of one dataset.

    Raises `UsageError` (ORD070, ORD071, and ORD069 for a URL) for paths, and what `open_corpus` raises.
    """
    for path in paths:
        if "://" in path:
            hint = "mount the bucket (Cloud Storage FUSE for gs://) and give the path where it is mounted"
            raise UsageError("ORD069", expected="a local or mounted path", found=repr(path), hint=hint)
    prefixes = sorted_prefixes(paths, os.path.isfile, _names_in)
    corpora = tuple(open_corpus(prefix + ".idx", accept=accept) for prefix in prefixes)
    return Dataset(prefixes, corpora, tuple(paths))


def _names_in(folder: str) -> list[str] | None:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else None  # noqa: PTH208, PTH112 (names as spelled)


def npy_files(
    order: MaxTextNpyOrder,
    dataset: Dataset,
    *,
    samples: int | None = None,
    epochs: int | None = None,
    folder: str = "",
    created_at: str = NO_CLOCK,
) -> IndexFiles:
    """Return the files of a prepared order over a dataset; `samples` and `epochs` are as asked for."""
    digest = order.index_hash(dataset.prefixes)
    names = index_names(digest)
    made = order.indices()
    metadata = index_metadata(
        digest,
        dataset.inputs,
        order.row_tokens,
        samples=samples,
        epochs=epochs,
        seed=order.seed,
        split=order.split,
        split_index=order.split_index,
        row_ahead=order.row_ahead,
        entries=len(made.document_index),
        total_samples=order.length,
        created_at=created_at,
    )
    arrays = zip(names.arrays, (made.document_index, made.sample_index, made.shuffle_index), strict=True)
    notes = {
        names.metadata: json.dumps(metadata, indent=4).encode() + b"\n",
        sidecar_name(names.document_index): sidecar(dataset.named()),
    }
    return IndexFiles(folder, dict(arrays), notes=notes)


def sidecar_name(array: str) -> str:
    """Return the sidecar beside an array's file.

    >>> sidecar_name("73d0-document_index.npy"), sidecar_name("ab-GPTDataset-train-sample_index.npy")
    ('73d0-tokenreel.json', 'ab-GPTDataset-train-tokenreel.json')
    """
    return array.rpartition("-")[0] + "-tokenreel.json"


def convert(
    inputs: Sequence[str],
    seq_length: int,
    *,
    num_samples: int | None = None,
    num_epochs: int | None = None,
    seed: int = BUILDER_SEED,
    split: str = "",
    split_index: int = 0,
    add_extra_token: int = 1,
    created_at: str = NO_CLOCK,
    accept: Sequence[str] = (),
) -> list[IndexFiles]:
    """Return what ``mmap_index_builder convert`` writes for these flags; exactly one of the counts is given.

    Raises `UsageError` (ORD078) otherwise, and what opening and `MaxTextNpyOrder.over` raise.
    """
    from tokenreel.order.maxtext_npy import MaxTextNpyOrder

    if (num_samples is None) == (num_epochs is None):
        found = "both" if num_samples is not None else "neither"
        raise UsageError("ORD078", "--num-samples and --num-epochs", expected="one of them", found=found)
    dataset = open_dataset(inputs, accept=accept)
    order = MaxTextNpyOrder.over(
        dataset.tables,
        seq_length,
        seed=seed,
        samples=num_samples,
        epochs=num_epochs,
        split=split,
        split_index=split_index,
        row_ahead=add_extra_token,
    )
    return [npy_files(order.prepare(), dataset, samples=num_samples, epochs=num_epochs, created_at=created_at)]


def blend(
    datasets: str,
    seq_length: int,
    total_samples: int,
    *,
    seed: int = BUILDER_SEED,
    split: str = "",
    split_index: int = 0,
    margin: float = 0.5,
    created_at: str = NO_CLOCK,
    accept: Sequence[str] = (),
) -> list[IndexFiles]:
    """Return what ``mmap_index_builder blend`` writes: ``dataset_<i>/`` for each entry of weight above 0, and the pair.

    Raises `UsageError` (ORD061 .. ORD068) for the string, and what opening and `MaxTextBlendOrder.over` raise.
    """
    from tokenreel.order.maxtext_blend import MaxTextBlendOrder, blend_buffers
    from tokenreel.order.maxtext_spec import parse_datasets

    used = parse_datasets(datasets).positive
    opened = [open_dataset(component.spec.paths, accept=accept) for component in used]
    order = MaxTextBlendOrder.over(
        [dataset.tables for dataset in opened],
        [component.weight for component in used],
        seq_length,
        seed=seed,
        samples=total_samples,
        split=split,
        split_index=split_index,
        margin=margin,
    ).prepare()
    buffers = blend_buffers(total_samples, order.weights, margin)
    sets = [
        npy_files(child, dataset, samples=buffer, folder=f"dataset_{component.position}", created_at=created_at)
        for child, dataset, component, buffer in zip(order.children, opened, used, buffers, strict=True)
    ]
    return [*sets, pair_files(order)]


def pair_files(order: MaxTextBlendOrder, names: tuple[str, str] = BLEND_PAIR, folder: str = "") -> IndexFiles:
    """Return a prepared blend's dispatch under the builder's fixed names, or those of a cache (`blend_names`)."""
    pair = order.dispatch_pair()
    return IndexFiles(folder, dict(zip(names, (pair.dataset_index, pair.dataset_sample_index), strict=True)))
