"""A step's rows as tensors, and a feed that every process of a loader opens for itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokenreel.errors import require
from tokenreel.feed.context_parallel import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from tokenreel.feed.batch import Batch
    from tokenreel.feed.feed import Feed
else:
    torch = require("torch", extra="torch")


@dataclass(frozen=True, slots=True, eq=False)
class TorchBatch:
    """One rank's rows of a step: tensors by name, as the row policy names them, and where they come from."""

    step: int
    position: int
    """First sample of the step's global batch."""
    count: int
    """Samples of the global batch, over all ranks."""
    samples: torch.Tensor
    """int64: the sample of each row."""
    sources: torch.Tensor
    """int32: the component of each row."""
    arrays: dict[str, torch.Tensor]

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return one tensor by its name."""
        return self.arrays[name]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.samples)

    def to(self, device: Any, *, non_blocking: bool = True) -> TorchBatch:
        """Return the batch with its rows on a device; numbers of samples stay on the host."""
        return replace(self, arrays={k: v.to(device, non_blocking=non_blocking) for k, v in self.arrays.items()})

    def pin_memory(self) -> TorchBatch:
        """Return the batch in pinned memory; what ``DataLoader(pin_memory=True)`` calls."""
        return replace(self, arrays={k: v.pin_memory() for k, v in self.arrays.items()})


def tensors(arrays: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return arrays as tensors that share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def this_rank() -> tuple[int, int]:
    """Return (rank, world) of the default process group; (0, 1) where there is none."""
    group = torch.distributed
    if group.is_available() and group.is_initialized():
        return group.get_rank(), group.get_world_size()
    return 0, 1


class Opened:
    """A feed that each process opens for itself when it needs it; what travels to workers are the arguments."""

    def __init__(self, run: Any, cp_rank: int, cp_size: int, options: dict[str, Any]) -> None:
        if options.get("rank") is None and options.get("world") is None:
            options["rank"], options["world"] = this_rank()
        self.run, self.options = run, {"dtype": "int64", **options}
        self.cp_rank, self.cp_size = cp_rank, cp_size
        self._feed: Feed | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A worker begins where this process stands; there is one writer, so its feed has no ledger.
        options = {**self.options, "ledger": None}
        if self._feed is not None:
            options["state"] = self._feed.state_dict()
        return {**self.__dict__, "_feed": None, "options": options}

    @property
    def feed(self) -> Feed:
        """The feed of this process; a forked worker goes on with a copy of its own."""
        from tokenreel.feed.opening import open_feed

        if self._feed is None:
            self._feed = open_feed(self.run, **self.options)
        return self._feed

    def tensors(self, batch: Batch) -> TorchBatch:
        """Return a batch of the feed as tensors, cut for this context-parallel rank."""
        arrays = cut(batch.arrays, self.cp_rank, self.cp_size) if self.cp_size > 1 else batch.arrays
        samples, sources = (torch.from_numpy(one.copy()) for one in (batch.samples, batch.sources))
        return TorchBatch(batch.step, batch.position, batch.count, samples, sources, tensors(arrays))
