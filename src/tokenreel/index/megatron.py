"""Megatron's cache files from corpora: description texts, hashes and arrays, so that a job finds them ready."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokenreel.corpus.opening import open_corpus
from tokenreel.errors import UsageError
from tokenreel.index.files import IndexFiles
from tokenreel.index.maxtext import sidecar_name
from tokenreel.index.sidecar import sidecar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.order.megatron import MegatronOrder
    from tokenreel.order.megatron_blend import MegatronBlend
    from tokenreel.order.megatron_cache import Identity
    from tokenreel.order.megatron_dispatch import Arithmetic

DEFAULT_SEED = 1234
DEFAULT_SPLIT = "969, 30, 1"


@dataclass(frozen=True, slots=True)
class MegatronJob:
    """What a Megatron job's arguments say of one part of its data; paths and split are hashed as they are spelled."""

    prefixes: tuple[str, ...]
    row_tokens: int
    samples: int | None
    """Samples asked of this part; None is one epoch, or everything of a blend."""
    weights: tuple[float, ...] | None = None
    part: str = "train"
    split: str | None = DEFAULT_SPLIT
    """None: these prefixes were given for this part alone (``--train-data-path``)."""
    seed: int = DEFAULT_SEED
    surplus: float = 0.005
    arithmetic: Arithmetic = "x86"
    tokenizer: Mapping[str, object] = field(default_factory=dict)
    """How the job's tokenizer names itself; it enters every hash."""
    row_ahead: int = 1
    keep_partial: bool = False
    compat: tuple[str, ...] = ()


def open_prefixes(prefixes: Sequence[str], *, accept: Sequence[str] = ()) -> tuple[Corpus, ...]:
    """Open the pair under each prefix; raises what `open_corpus` raises, `UsageError` (USE004) for a URL."""
    for prefix in prefixes:
        if "://" in prefix:
            raise UsageError("USE004", path=prefix, expected="a local or mounted path", found=prefix)
    return tuple(open_corpus(prefix + ".idx", accept=accept) for prefix in prefixes)


def job_order(job: MegatronJob, corpora: Sequence[Corpus]) -> MegatronOrder | MegatronBlend:
    """Return the order that a job reads; raises what `megatron_orders` raises. Nothing is shuffled yet."""
    from tokenreel.order.megatron_blend import megatron_orders

    (order,) = megatron_orders(
        [corpus.sequences() for corpus in corpora],
        job.row_tokens,
        samples=job.samples,
        weights=job.weights,
        per_split=job.split is None,
        surplus=job.surplus,
        arithmetic=job.arithmetic,
        documents=[corpus.table() if corpus.boundary.known else None for corpus in corpora],
        part=job.part,
        split=job.split,
        seed=job.seed,
        row_ahead=job.row_ahead,
        keep_partial=job.keep_partial,
        compat=job.compat,
    )
    return order


def job_files(job: MegatronJob, order: MegatronOrder | MegatronBlend, corpora: Sequence[Corpus]) -> list[IndexFiles]:
    """Return the files of a prepared order: one set for each member, then the blend's."""
    from tokenreel.order.megatron import MegatronOrder
    from tokenreel.order.megatron_blend import member_sizes
    from tokenreel.order.megatron_cache import blend_identity

    named = list(zip(job.prefixes, corpora, strict=True))
    if isinstance(order, MegatronOrder):
        return [_member_files(job, order, job.samples, named[0])]
    asked: list[int | None] = [None] * len(named)
    if job.weights is not None and job.samples is not None:
        asked = [size.build for size in member_sizes(job.weights, job.samples, job.surplus)]
    sets, members = [], []
    for member, samples, one in zip(order.members, asked, named, strict=True):
        sets.append(_member_files(job, member, samples, one))
        members.append(dataset(job, one[0], samples))
    identity = blend_identity(members, job.part, order.weights, order.samples)
    index, number = order.dispatched()
    sets.append(_set(identity, {"dataset_index": index, "dataset_sample_index": number}, {}))
    return _each_once(sets)


def dataset(job: MegatronJob, prefix: str, samples: int | None) -> Identity:
    """Return the identity of one dataset of a job."""
    from tokenreel.order.megatron_cache import dataset_identity
    from tokenreel.order.megatron_plan import split_bounds, split_weights

    bounds = None if job.split is None else split_bounds(split_weights(job.split, compat=job.compat))
    return dataset_identity(
        prefix,
        job.part,
        samples,
        seed=job.seed,
        row_tokens=job.row_tokens,
        split=job.split,
        bounds=bounds,
        tokenizer=job.tokenizer,
    )


def _member_files(job: MegatronJob, order: MegatronOrder, samples: int | None, named: tuple[str, Corpus]) -> IndexFiles:
    made = order.indices()
    arrays = {
        "document_index": made.document_index,
        "sample_index": made.sample_index,
        "shuffle_index": made.shuffle_index,
    }
    return _set(dataset(job, named[0], samples), arrays, {"tokenreel": sidecar([named])})


def _set(identity: Identity, arrays: Mapping[str, object], notes: Mapping[str, bytes]) -> IndexFiles:
    from tokenreel.order.megatron_cache import cache_names, description

    names = cache_names(identity)
    first = names[next(iter(arrays))]
    return IndexFiles(
        "",
        {names[what]: array for what, array in arrays.items()},  # type: ignore[misc]
        texts={names["description"]: description(identity).encode()},
        notes={sidecar_name(first): data for data in notes.values()},
    )


def _each_once(sets: list[IndexFiles]) -> list[IndexFiles]:
    """Return the sets without repeats: a prefix that is named twice has one set of files."""
    seen: dict[str, IndexFiles] = {}
    for one in sets:
        seen.setdefault(next(iter(one.texts)), one)
    return list(seen.values())
