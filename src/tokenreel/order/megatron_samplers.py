"""Which samples of an order a data-parallel rank of a Megatron job reads, micro-batch by micro-batch, from any point on.

Pure functions of counts: `total` samples in the order, `consumed` of them read before by all ranks together (Megatron's
``consumed_train_samples``), `micro` samples a micro-batch, `ranks` data-parallel ranks. A sampler that Megatron would
run into an assertion, or that would give ranks different numbers of batches, raises `OrderError` (ORD017).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.errors import OrderError
from tokenreel.order.megatron_plan import check_compat
from tokenreel.order.torch_permutation import torch_randperm

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy as np
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]


def single(
    total: int, consumed: int, micro: int, ranks: int, rank: int, *, drop_last: bool = True
) -> Iterator[list[int]]:
    """Yield the micro-batches of Megatron's default sampler: blocks of ``micro * ranks`` in order, a slice for each rank.

    The samples of a global batch do not depend on `micro` and `ranks`, only where they go does. With
    ``drop_last=False`` the last block is short, and a rank's slice of it may be empty.

    >>> list(single(10, 2, 2, 2, rank=1))
    [[4, 5], [8, 9]]
    """
    _check(total, consumed, micro, ranks, rank)
    if consumed >= total:
        raise OrderError("ORD017", expected=f"fewer than {total} samples consumed", found=consumed)
    return _single(total, consumed, micro, ranks, rank, drop_last)


def _single(total: int, consumed: int, micro: int, ranks: int, rank: int, drop_last: bool) -> Iterator[list[int]]:
    for block in range(consumed, total, micro * ranks):
        end = min(total, block + micro * ranks)
        if end == block + micro * ranks or not drop_last:
            low = block + rank * micro
            yield list(range(min(low, end), min(low + micro, end)))


def cyclic(
    total: int,
    consumed: int,
    micro: int,
    ranks: int,
    rank: int,
    *,
    data_sharding: bool = True,
    compat: Collection[str] = (),
) -> Iterator[list[int]]:
    """Yield micro-batches for ever: each epoch a permutation by torch, seeded with the epoch's number.

    With `data_sharding` every rank permutes a part of its own; without, ranks take turns in one permutation, and where
    that would give them different numbers of batches it is refused unless `compat` holds "uneven-ranks".

    >>> from itertools import islice
    >>> list(islice(cyclic(8, 0, 2, 2, rank=0), 3))
    [[0, 1], [3, 2], [1, 3]]
    """
    _check(total, consumed, micro, ranks, rank)
    quirks = check_compat(compat)
    block = micro * ranks
    active = total - total % block
    if not active:
        raise OrderError("ORD017", expected=f"at least {block} samples", found=total)
    if consumed % active % block:
        raise OrderError("ORD017", expected=f"a multiple of {block} samples into the epoch", found=consumed % active)
    if not data_sharding and "uneven-ranks" not in quirks:
        _check_even(total, consumed % active, micro, ranks)
    return _cyclic(total, consumed, micro, ranks, rank, data_sharding)


def _cyclic(total: int, consumed: int, micro: int, ranks: int, rank: int, data_sharding: bool) -> Iterator[list[int]]:
    while True:
        for batch in cyclic_epoch(total, consumed, micro, ranks, rank, data_sharding=data_sharding):
            consumed += micro * ranks
            yield batch


def cyclic_epoch(
    total: int, consumed: int, micro: int, ranks: int, rank: int, *, data_sharding: bool = True
) -> Iterator[list[int]]:
    """Yield what is left of one epoch of `cyclic`."""
    block = micro * ranks
    active = total - total % block
    epoch, done = divmod(consumed, active)
    if data_sharding:
        share = total // block * micro
        mine: I64 = rank * share + torch_randperm(share, epoch)[done // ranks :]
    else:
        mine = torch_randperm(total // micro * micro, epoch)[done:][rank::ranks]
    for low in range(0, len(mine) - micro + 1, micro):
        yield mine[low : low + micro].tolist()


def _check_even(total: int, done: int, micro: int, ranks: int) -> None:
    """Raise where ranks that take turns get different numbers of batches, in this epoch or a whole one."""
    for skipped in (done, 0):
        left = total // micro * micro - skipped
        most, least = -(-left // ranks) // micro, (left // ranks) // micro
        if most != least:
            raise OrderError(
                "ORD017",
                "without data sharding",
                expected="as many batches for every rank",
                found=f"{least} and {most}",
            )


def full_validation(total: int, ranks: int, rank: int) -> Iterator[list[int]]:
    """Yield rank's samples of a whole validation set one by one; `full_validation_steps` says how many all ranks read.

    >>> list(full_validation(7, 4, rank=3))
    [[3]]
    """
    _check(total, 0, 1, ranks, rank)
    return ([sample] for sample in range(rank, total, ranks))


def full_validation_steps(total: int, ranks: int) -> int:
    """Return the steps of a full validation: the most any rank has; ranks with fewer repeat their first samples.

    >>> full_validation_steps(7, 4)
    2
    """
    return -(-total // ranks)


def hybrid_context_parallel(
    total: int, consumed: int, micro: int, global_batch: int, ranks: int, rank: int
) -> Iterator[list[int]]:
    """Yield, for each whole global batch, all of a rank's samples of it in one list.

    >>> list(hybrid_context_parallel(16, 0, 2, 8, 2, rank=1))
    [[2, 3, 6, 7], [10, 11, 14, 15]]
    """
    _check(total, consumed, micro, ranks, rank)
    if global_batch % (micro * ranks) or global_batch < 1:
        raise OrderError("ORD017", "global batch", expected=f"a multiple of {micro * ranks}", found=global_batch)
    if consumed >= total:
        raise OrderError("ORD017", expected=f"fewer than {total} samples consumed", found=consumed)
    return (
        [
            sample
            for low in range(first + rank * micro, first + global_batch, micro * ranks)
            for sample in range(low, low + micro)
        ]
        for first in range(consumed, total - global_batch + 1, global_batch)
    )


def _check(total: int, consumed: int, micro: int, ranks: int, rank: int) -> None:
    if total < 1 or consumed < 0 or micro < 1 or ranks < 1:
        found = f"{total} samples, {consumed} consumed, {micro} a micro-batch, {ranks} ranks"
        raise OrderError("ORD017", expected="counts above zero", found=found)
    if not 0 <= rank < ranks:
        raise OrderError("ORD017", "rank", expected=f"0 .. {ranks - 1}", found=rank)
