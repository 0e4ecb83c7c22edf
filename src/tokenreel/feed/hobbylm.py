"""The three names of the HobbyLM long-context card, over our rows: documents packed, kept apart, positions from 0 in each.

The card's own code is not public; what it leaves open is an argument here. Rows are assigned to ranks, not documents, so
that all ranks have the same number and padding is less than one row an epoch; ``rows="rank"`` packs each rank's documents
apart, as the card's wording has it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tokenreel.errors import OrderError, UsageError, require

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.pack.packed import PackedOrder

EOT = 50256
IGNORE = -1


def boundary_aware_data_generator(  # noqa: PLR0913 (what the card leaves open)
    corpus: Corpus | str | os.PathLike[str],
    batch_size: int,
    seq_len: int,
    *,
    rank: int = 0,
    world_size: int = 1,
    seed: int = 1337,
    shuffle: bool = False,
    epochs: int | None = 1,
    start: int = 0,
    labels: str = "eot",
    eot: int = EOT,
    truncated: Sequence[int] = (),
    rows: str = "global",
    tail: str = "pad",
    attention_bias: bool = False,
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield batches of one rank: ``tokens``, ``labels``, ``segment_ids``, ``positions`` of shape (batch_size, seq_len).

    Besides, ``cu_seqlens`` (batch_size, seq_len + 1) and ``max_seqlen`` (batch_size,), int32, for kernels that need no mask.
    Other integers are int64; segments count from 0 in each row, padding is -1; a label that does not count is -1. `labels` is
    ``eot`` (a document's last token predicts `eot`, unless the document is among `truncated`) or ``ignore``. `epochs` None
    is endless; the last batch of the last epoch may have fewer rows. What documents leave of an epoch's last row (of each
    rank's, with ``rows="rank"``) is padded, or with `tail` ``drop`` that row is none: less than `seq_len` tokens are lost. `start` is the first batch, to resume: the order is a
    function of the number. With `attention_bias` there is also ``attention_bias``, (rows, 1, seq_len, seq_len), whose
    memory grows with the square of the row. Raises `UsageError` (USE003) for arguments, and what packing raises.
    """
    import numpy as np

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.corpus.opening import open_corpus
    from tokenreel.feed.gather import Gatherer

    if min(batch_size, world_size) < 1 or not 0 <= rank < world_size or start < 0:
        found = f"batch_size {batch_size}, rank {rank} of {world_size}, start {start}"
        raise UsageError("USE003", "a batch of a rank", expected="1 or more, 0 <= rank < world_size", found=found)
    if labels not in ("eot", "ignore") or rows not in ("global", "rank") or tail not in ("pad", "drop"):
        expected = "labels eot or ignore, rows global or rank, tail pad or drop"
        raise UsageError(
            "USE003", "boundary_aware_data_generator", expected=expected, found=f"{labels}, {rows}, {tail}"
        )
    mine = corpus if isinstance(corpus, Corpus) else open_corpus(corpus, boundary=f"prefix={eot}")
    ranks = world_size if rows == "rank" else None
    order = hobbylm_order(
        mine, seq_len, ranks=ranks, seed=seed, shuffle=shuffle, epochs=epochs, truncated=truncated, tail=tail
    )
    ends = {"ends": "token", "end_id": eot} if labels == "eot" else {"ends": "mask"}
    policy = {
        "kind": "documents", "segments": "zero", "pad_id": eot, "ignore_index": IGNORE, "cu_seqlens": "rows", **ends
    }  # fmt: skip
    with ExitStack() as stack:
        if mine is not corpus:
            stack.callback(mine.close)
        gatherer = stack.enter_context(Gatherer([mine], policy, row_tokens=seq_len, row_ahead=1, dtype="int64"))
        batch, length = start, order.length
        while True:
            # Rank r has samples r, r + world_size, ..: with rows="rank" its own rows, else its share of all rows.
            first = batch * batch_size
            numbers = (first + np.arange(batch_size, dtype=np.int64)) * world_size + rank
            numbers = numbers if length is None else numbers[numbers < length]
            if len(numbers) == 0:
                return
            made = gatherer.batch(order.spans_at(numbers))
            out = {
                "tokens": made["input_ids"],
                "labels": made["labels"],
                "segment_ids": made["segment_ids"].astype(np.int64),
                "positions": made["position_ids"].astype(np.int64),
                "cu_seqlens": made["cu_seqlens"],
                "max_seqlen": made["max_seqlen"],
            }
            if attention_bias:
                out["attention_bias"] = build_block_diagonal_bias(out["segment_ids"])
            yield out
            batch += 1


def hobbylm_order(
    corpus: Corpus,
    seq_len: int,
    *,
    ranks: int | None = None,
    seed: int = 1337,
    shuffle: bool = False,
    epochs: int | None = 1,
    truncated: Sequence[int] = (),
    tail: str = "pad",
) -> PackedOrder:
    """Return the prepared order of the generator's rows; with `ranks`, sample ``k * ranks + r`` is row k of rank r.

    Raises `OrderError` (PCK023) for a corpus of unknown boundaries, and what `PackedOrder` raises.
    """
    from tokenreel.pack.packed import packed

    if not corpus.boundary.known:
        raise OrderError("PCK023", path=corpus.path, hint=f"tokenreel adopt {corpus.path} --boundary prefix={EOT}")
    compat = None if ranks is None else "hobbylm"
    cut = tuple(sorted(set(truncated)))
    return packed(
        corpus.table(),
        seq_len,
        "concat",
        seed=seed,
        shuffle=shuffle,
        epochs=epochs,
        compat=compat,
        ranks=ranks,
        cut=cut,
        tail=tail,
    ).prepare()


def positions_from_segments(segments: Any) -> Any:
    """Return, for segment ids (.., S), each token's distance from the start of its run; 0 in padding (ids below 0).

    Takes and returns a NumPy array, or a torch tensor where one is given.

    >>> import numpy as np
    >>> positions_from_segments(np.array([[0, 0, 1, 1, 1, -1, -1]])).tolist()
    [[0, 1, 0, 1, 2, 0, 0]]
    """
    import numpy as np

    if _is_torch(segments):
        torch = require("torch", extra="torch")
        return torch.from_numpy(positions_from_segments(segments.cpu().numpy())).to(segments.device)
    ids = np.asarray(segments)
    at = np.broadcast_to(np.arange(ids.shape[-1], dtype=np.int64), ids.shape)
    starts = np.ones(ids.shape, dtype=bool)
    starts[..., 1:] = ids[..., 1:] != ids[..., :-1]
    begin = np.maximum.accumulate(np.where(starts, at, 0), axis=-1)
    return np.where(ids < 0, 0, at - begin)


def build_block_diagonal_bias(segments: Any, dtype: Any = None) -> Any:
    """Return what to add to attention scores for segment ids (B, S): (B, 1, S, S), 0 where i may attend to j, else -inf.

    That is where ``j <= i`` in the same segment. Padding is a segment: it attends to itself, or softmax would give NaN.
    float32, or `dtype`; a NumPy array, or a torch tensor on the same device where one is given. Memory: S * S numbers a
    row, 128 MiB in bfloat16 at 8192: kernels that take ``cu_seqlens`` or segment ids need none of it.

    >>> import numpy as np
    >>> (build_block_diagonal_bias(np.array([[0, 0, 1]]))[0, 0] == 0).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    """
    import numpy as np

    if _is_torch(segments):
        torch = require("torch", extra="torch")
        size = segments.shape[-1]
        causal = torch.ones(size, size, dtype=torch.bool, device=segments.device).tril()
        seen = (segments[:, None, :, None] == segments[:, None, None, :]) & causal
        bias = torch.zeros(seen.shape, dtype=dtype or torch.float32, device=segments.device)
        return bias.masked_fill(~seen, float("-inf"))
    ids = np.asarray(segments)
    allowed = (ids[:, None, :, None] == ids[:, None, None, :]) & np.tri(ids.shape[-1], dtype=bool)
    return np.where(allowed, 0.0, -np.inf).astype(dtype or np.float32)


def _is_torch(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"
