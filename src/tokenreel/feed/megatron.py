"""Megatron-LM's data from this package: the function that its ``pretrain`` asks for data sets, and loaders of one's own.

`datasets_provider` takes the job's own ``GPTDatasetConfig`` and gives map-style data sets with the samples of ``GPTDataset``
and ``BlendedDataset``, key by key: samplers, ranks and resume work unchanged, no rank waits, nothing is written.
`external_provider` is for ``--dataloader-type external``: any run file, with the feed's own state and schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import UsageError, require
from tokenreel.feed.megatron_config import CARRIED, PARTS, megatron_policy, part_orders, several

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.feed.feed import Feed
    from tokenreel.order.protocol import Order
    from tokenreel.pack.policy import RowPolicy

    Provider = Callable[..., tuple[Any, Any, Any]]


class MegatronDataset:
    """One part of a job's data by sample number, as ``GPTDataset`` or ``BlendedDataset`` gives it.

    ``dataset[i]`` is a dict of tensors with its keys, in its order; a blend's begins with ``dataset_id``. ``dataset[None]`` is
    sample 0 with nothing to learn. Forked workers go on with their own copy. With `carried` the columns that the first
    sample asked for has no loss in have none in any later one, as Megatron's cached mask has it.
    """

    def __init__(self, order: Order, corpora: Sequence[Corpus], policy: RowPolicy, *, carried: bool = False) -> None:
        from tokenreel.feed.opening import open_feed
        from tokenreel.pack.megatron_parts import exact_edges

        self.order = order
        self._blend = order.name.startswith("megatron-blend")
        self._feed = open_feed(order, corpora=corpora, rows=policy, batch=1, dtype="int64", prefetch=0)
        self._exact = exact_edges(order, policy)
        resets = policy.reset_position_ids or policy.reset_attention_mask or policy.eod_mask_loss
        self._carried: dict[int, Any] | None = {} if carried and not resets else None

    def __len__(self) -> int:
        """Return the samples."""
        return self.order.length or 0

    def __getitem__(self, sample: int | None) -> dict[str, Any]:
        """Return one sample; negative numbers count from the end; raises `IndexError` past it."""
        number = 0 if sample is None else int(sample)
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        (row,) = self.__getitems__([number % len(self)])
        if sample is None:
            row["loss_mask"].zero_()
        return row

    def __getitems__(self, samples: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples, gathered together: what a ``DataLoader`` asks for when it can."""
        torch = require("torch", extra="torch")
        numbers = np.asarray(samples, dtype=np.int64)
        made = self._exact(self._feed.rows(numbers), numbers)
        arrays = {name: torch.from_numpy(array) for name, array in made.items()}
        rows: list[dict[str, Any]] = [{k: array[n] for k, array in arrays.items()} for n in range(len(numbers))]
        members = (
            self.order.components_at(numbers).astype(np.int16) if self._blend else np.zeros(len(numbers), np.int16)
        )
        if self._carried is not None:
            for member, row in zip(members.tolist(), rows, strict=True):
                row["loss_mask"] *= self._carried.setdefault(member, row["loss_mask"].clone())
        if self._blend:
            rows = [{"dataset_id": member, **row} for member, row in zip(members, rows, strict=True)]
        return rows

    def close(self) -> None:
        """Give buffers and maps back."""
        self._feed.close()


def datasets_provider(config: Any, *, cache: str | None = None, compat: Collection[str] = ()) -> Provider:
    """Return Megatron's ``train_valid_test_datasets_provider`` for a ``GPTDatasetConfig``, or anything with its attributes.

    Read are `random_seed`, `sequence_length`, `blend` or `blend_per_split`, `split`, `tokenizer` (`eod`, `pad`,
    `special_tokens_dict`), the reset, masking and pad flags, `drop_last_partial_validation_sequence`,
    `add_extra_token_to_sequence`, `mid_level_dataset_surplus`, `multiple_validation_sets` and `full_validation`. The provider
    is called with the samples of each part and gives a data set for each, a list of them for several validation sets, None
    for a part without documents; every rank may call it (`is_distributed`). `cache` keeps permutations between starts.
    `compat` names quirks to keep: those of `megatron@1`, and ``carried-mask``, the loss mask that Megatron reuses where nothing
    is reset. Raises `UsageError` (USE003) without a blend, and what opening and ordering raise.
    """
    policy = megatron_policy(config)

    def made(part: str, samples: int | None) -> Any:
        orders = part_orders(config, part, samples, cache, [one for one in compat if one != CARRIED])
        found = [MegatronDataset(*one, policy, carried=CARRIED in compat) for one in orders]
        return found if several(config, part) else next(iter(found), None)

    def provide(samples: Sequence[int | None], vp_stage: int | None = None) -> tuple[Any, Any, Any]:
        del vp_stage
        train, valid, test = map(made, PARTS, samples)
        return train, valid, test

    provide.is_distributed = True  # type: ignore[attr-defined]
    return provide


def micro_batches(feed: Feed, micro_batch: int) -> Iterator[dict[str, Any]]:
    """Yield a feed's batches in micro-batches of tensors: what ``--dataloader-type external`` iterates.

    The feed is opened with ``placement="megatron"`` and the same `micro_batch`; its state says which steps were begun.
    Raises `UsageError` (USE003) for a batch that `micro_batch` does not divide.
    """
    torch = require("torch", extra="torch")
    for batch in feed:
        if len(batch) % micro_batch:
            found = f"{len(batch)} rows of step {batch.step}"
            raise UsageError("USE003", "micro_batch", expected=f"a multiple of {micro_batch}", found=found)
        for low in range(0, len(batch), micro_batch):
            yield {k: torch.from_numpy(v[low : low + micro_batch]) for k, v in batch.arrays.items()}


def external_provider(feeds: Mapping[str, Feed], micro_batch: int) -> Provider:
    """Return a provider for ``--dataloader-type external`` over open feeds by part: ``train``, ``valid``, ``test``."""

    def provide(samples: Sequence[int | None], vp_stage: int | None = None) -> tuple[Any, Any, Any]:
        del samples, vp_stage
        train, valid, test = (micro_batches(feeds[part], micro_batch) if part in feeds else None for part in PARTS)
        return train, valid, test

    provide.is_distributed = True  # type: ignore[attr-defined]
    return provide
