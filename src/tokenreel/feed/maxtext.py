"""MaxText's configuration to a feed in one call: the same samples in the same order, for any number of hosts.

The keys are those of MaxText's own configuration for ``dataset_type=grain`` with ``grain_file_type=mmap_npy`` or ``mmap``;
batches hold its six arrays. Nothing is built on disk; where an index directory or a dispatch is named it is a job's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.feed.feed import Feed
    from tokenreel.order.maxtext_settings import MaxTextInput
    from tokenreel.order.protocol import Order
    from tokenreel.pack.policy import RowPolicy


def open_maxtext(
    config: Mapping[str, object],
    *,
    host: int = 0,
    hosts: int = 1,
    evaluation: bool = False,
    cache: str | None = None,
    **options: Any,
) -> Feed:
    """Return the feed of one host of a MaxText job, for training or for one round of evaluation.

    `config` is as `read_settings` takes it, with `global_batch_size_to_load` rows a step. Rows are dealt as MaxText
    deals them, every `hosts`-th to a host; a resumed job may have any other number of hosts, except that a mixture of
    direct ``mmap`` files is another order for each. `cache` keeps permutations between starts; `options` are `open_feed`'s.
    Raises what `read_settings`, opening and ordering raise: among them ORD090 for sentences and ORD092 for an EOD id that
    cannot occur.
    """
    from tokenreel.feed.opening import open_feed
    from tokenreel.order.maxtext_settings import read_settings

    job = read_settings(config)
    order, corpora = maxtext_order(job, hosts=hosts, evaluation=evaluation, cache=cache)
    batch = job.global_batch_size_to_load
    if evaluation and job.global_batch_size_to_load_eval:
        batch = job.global_batch_size_to_load_eval
    options = {"batch": batch, "placement": "strided", **options}
    if evaluation and job.eval_steps > 0:
        # Each round reads the same samples from the start.
        options.setdefault("steps", job.eval_steps)
    elif not evaluation and job.steps > 0:
        options.setdefault("steps", job.steps)
    return open_feed(order, corpora=corpora, rows=maxtext_policy(job), rank=host, world=hosts, **options)


def maxtext_policy(job: MaxTextInput) -> RowPolicy:
    """Return the row policy of a job."""
    from tokenreel.pack.policy import RowPolicy

    return RowPolicy(
        kind="maxtext",
        eod=job.mmap_eod_id,
        reset_attention_mask=job.reset_attention_mask,
        eod_mask_loss=job.eod_mask_loss,
        packing_max_segments_per_sample=job.packing_max_segments_per_sample,
        direct=job.grain_file_type == "mmap",
    )


def maxtext_order(
    job: MaxTextInput, *, hosts: int = 1, evaluation: bool = False, cache: str | None = None
) -> tuple[Order, tuple[Corpus, ...]]:
    """Return a job's order, prepared, and the corpora it reads, which stand at the numbers that its spans use.

    A dispatch in ``blend_index_dir`` decides the order of a blend; where it cannot be used that is an error, not a warning
    in a log. Raises `UsageError` (ORD082) where evaluation is asked for and the job has none.
    """
    from tokenreel.errors import UsageError
    from tokenreel.index.cache import prepared
    from tokenreel.index.maxtext import open_dataset
    from tokenreel.index.ready import dispatched
    from tokenreel.order.maxtext_blend import MaxTextBlendOrder
    from tokenreel.order.maxtext_settings import check_eod, check_sentences, eval_order, train_order

    spec = job.evaluation if evaluation else job.train
    if spec is None:
        raise UsageError("ORD082", expected="grain_eval_files", found="nothing")
    opened = [open_dataset(one.spec.paths) if one.weight > 0 else None for one in spec.components]
    corpora = tuple(corpus for one in opened if one is not None for corpus in one.corpora)
    for corpus in corpora:
        if job.grain_file_type == "mmap_npy":
            check_sentences(len(corpus), corpus.sequences_count, job.mmap_split_sentences, corpus.path)
        check_eod(job.mmap_eod_id, _largest(corpus), path=corpus.path)
    tables = [None if one is None else one.tables for one in opened]
    made = (eval_order if evaluation else train_order)(job, tables, hosts=hosts)
    order, _ = prepared(made, cache)
    if isinstance(order, MaxTextBlendOrder) and (job.blend_index_dir or job.blend_cache_dir):
        order, warnings = dispatched(
            order,
            "eval" if evaluation else "train",
            index_dir=Path(job.blend_index_dir) if job.blend_index_dir else None,
            cache_dir=Path(job.blend_cache_dir) if job.blend_cache_dir else None,
        )
        if warnings and job.blend_index_dir:
            raise warnings[0]
    return order, corpora


def _largest(corpus: Corpus) -> int:
    """Return the largest id that a corpus's integer type can hold."""
    import numpy as np

    return int(np.iinfo(corpus.dtype).max)
