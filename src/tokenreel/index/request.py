"""One index as a job, or MaxText's builder, would be asked for it: flags in, sets of files out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokenreel.errors import UsageError
from tokenreel.index.maxtext import NO_CLOCK, blend, convert, open_dataset
from tokenreel.index.megatron import DEFAULT_SPLIT, MegatronJob, job_files, job_order, open_prefixes

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.index.files import IndexFiles

Layout = Literal["maxtext", "megatron"]
LAYOUTS = ("maxtext", "megatron")


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """What an index is asked for with: `inputs` for one dataset, or `datasets` ("path,weight;path,weight") for a blend."""

    seq_length: int
    inputs: tuple[str, ...] = ()
    datasets: str | None = None
    layout: str = "maxtext"
    samples: int | None = None
    epochs: int | None = None
    seed: int = 1234
    split: str | None = None
    """None: MaxText reads everything, Megatron its default split."""
    split_index: int = 0
    add_extra_token: int = 1
    margin: float = 0.5
    """Percent; Megatron's surplus is a hundredth of it."""
    part: str = "train"
    per_split: bool = False
    """Megatron: the prefixes are given for this part alone."""
    arithmetic: str = "x86"
    tokenizer: Mapping[str, object] = field(default_factory=dict)
    created_at: str = NO_CLOCK
    accept: tuple[str, ...] = ()

    def sets(self) -> list[IndexFiles]:
        """Return the files that the inputs give, built in memory.

        Raises `UsageError` (USE003) for flags that do not go together, and what opening and ordering the data raise.
        """
        if self.layout not in LAYOUTS:
            raise UsageError("USE003", "--layout", expected=" or ".join(LAYOUTS), found=self.layout)
        if bool(self.inputs) == (self.datasets is not None):
            raise UsageError("USE003", expected="inputs or datasets", found="both" if self.inputs else "neither")
        return self._megatron() if self.layout == "megatron" else self._maxtext()

    def _maxtext(self) -> list[IndexFiles]:
        if self.datasets is None:
            return convert(
                self.inputs,
                self.seq_length,
                num_samples=self.samples,
                num_epochs=self.epochs,
                seed=self.seed,
                split=self.split or "",
                split_index=self.split_index,
                add_extra_token=self.add_extra_token,
                created_at=self.created_at,
                accept=self.accept,
            )
        if self.samples is None or self.epochs is not None:
            raise UsageError("USE003", expected="the number of samples of the blend", found=self.samples)
        return blend(
            self.datasets,
            self.seq_length,
            self.samples,
            seed=self.seed,
            split=self.split or "",
            split_index=self.split_index,
            margin=self.margin,
            created_at=self.created_at,
            accept=self.accept,
        )

    def job(self) -> MegatronJob:
        """Return the request as a Megatron job."""
        prefixes, weights = self._prefixes()
        if self.epochs is not None:
            raise UsageError("USE003", "Megatron is asked for samples", expected="no --num-epochs", found=self.epochs)
        split = None if self.per_split else self.split or DEFAULT_SPLIT
        return MegatronJob(
            prefixes,
            self.seq_length,
            self.samples,
            weights,
            self.part,
            split,
            self.seed,
            self.margin / 100,
            "fused" if self.arithmetic == "fused" else "x86",
            self.tokenizer,
            self.add_extra_token,
        )

    def _megatron(self) -> list[IndexFiles]:
        job = self.job()
        corpora = open_prefixes(job.prefixes, accept=self.accept)
        return job_files(job, job_order(job, corpora).prepare(), corpora)

    def _prefixes(self) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
        from tokenreel.order.maxtext_spec import parse_datasets

        if self.datasets is None:
            if len(self.inputs) != 1:
                raise UsageError("USE003", "Megatron", expected="one prefix, or a blend", found=len(self.inputs))
            return self.inputs, None
        if "," not in self.datasets:
            return tuple(part.strip() for part in self.datasets.split(";") if part.strip()), None
        components = parse_datasets(self.datasets).components
        return tuple(one.spec.paths[0] for one in components), tuple(one.weight for one in components)

    def corpora(self) -> list[tuple[str, Corpus]]:
        """Return every corpus of the request with its prefix."""
        from tokenreel.order.maxtext_spec import parse_datasets

        if self.layout == "megatron":
            prefixes = self._prefixes()[0]
            return list(zip(prefixes, open_prefixes(prefixes, accept=self.accept), strict=True))
        paths = (
            [self.inputs] if self.datasets is None else [c.spec.paths for c in parse_datasets(self.datasets).positive]
        )
        return [pair for some in paths for pair in open_dataset(some, accept=self.accept).named()]


def read_tokenizer(text: str) -> Mapping[str, object]:
    """Return how a job's tokenizer names itself: JSON as it stands, or a file with it, or a description text with it.

    Raises `UsageError` (USE003) for anything else.

    >>> read_tokenizer('{"class": "x", "tokenizer_path": null}')
    {'class': 'x', 'tokenizer_path': None}
    """
    try:
        found: Any = json.loads(text if text.lstrip().startswith("{") else _file(text))
    except ValueError as error:
        raise UsageError("USE003", "--tokenizer-identity", expected="JSON", found=str(error)) from error
    while isinstance(found, dict) and found.get("datasets"):
        found = found["datasets"][0]
    if isinstance(found, dict) and isinstance(found.get("tokenizer"), dict):
        found = found["tokenizer"]
    if not isinstance(found, dict) or "class" not in found:
        raise UsageError("USE003", "--tokenizer-identity", expected='an object with "class"', found=text[:80])
    return found


def _file(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise UsageError("USE003", "--tokenizer-identity", expected="JSON or a file", found=str(path)) from error
