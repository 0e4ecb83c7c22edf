"""Stage all sources of a recipe: parts that stand are left alone, the others are staged by workers, each input one job.

Inputs of a source without a budget are independent. Those of a source with one follow each other, since how much is taken
of an input depends on all before it, and later inputs are not touched once the budget is reached; sources never wait for
each other. What is staged is the same for any number of workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tokenreel.build.hub_pinning import pin_sources
from tokenreel.build.lock import wait_for_workers
from tokenreel.build.pool import STALL_SECONDS, Pool
from tokenreel.build.resume import remove
from tokenreel.build.stage_worker import StageSetup, opened
from tokenreel.build.staging_parts import StagedPart, part_stem, source_folder
from tokenreel.build.staging_plan import StageJob, StagePlan, keeps_text, signs
from tokenreel.build.staging_receipt import SourceTotals, StageReceipt, receipt_at, totals_of
from tokenreel.build.text_batches import Place, open_source
from tokenreel.build.worker import Answer
from tokenreel.errors import IncompleteError, TokenreelError
from tokenreel.hashing import sha256_file
from tokenreel.store import dumps_canonical, remove_leftovers
from tokenreel.store.atomic import make_folder, write_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokenreel.build.settings import Settings
    from tokenreel.build.text_batches import SourceInput
    from tokenreel.config.mixed import MixedRecipe, MixedSourceTable

STAGE_VERSION = 2
"""Counted up whenever the same input and recipe would give other staged bytes."""
_DESCRIPTIVE = ("licence", "transformations", "reason")


@dataclass(frozen=True, slots=True)
class StagedSource:
    """One source, staged."""

    table: MixedSourceTable
    totals: SourceTotals
    inputs: tuple[SourceInput, ...]
    """All its inputs, those behind a reached budget too."""
    parts: tuple[StagedPart, ...]
    built: int
    """Parts that this run staged."""

    @property
    def name(self) -> str:
        """The source's name."""
        return self.table.name


def place_of(recipe: MixedRecipe, folder: Path, settings: Settings) -> Place:
    """Return where the sources of a recipe look."""
    return Place(
        folder=str(folder.absolute()),
        patterns=tuple(pattern for table in recipe.source if table.kind == "files" for pattern in table.paths),
        chunk_bytes=recipe.output.chunk_bytes,
        tokenizer=None if settings.spec.kind == "bytes" else settings.tok.data,
        tokenizer_name=settings.tok.name,
        eod_id=settings.eod_id,
        empty_inputs=recipe.documents.empty_inputs,
    )


def plan_of(recipe: MixedRecipe, folder: Path, stage: Path, settings: Settings) -> StagePlan:
    """Return the plan of a recipe's staging."""
    return StagePlan(
        recipe=recipe,
        # Pulled files wait where a killed worker's are found and removed.
        place=msgspec.structs.replace(place_of(recipe, folder, settings), cache=str(stage.absolute())),
        stage=str(stage.absolute()),
        plans=tuple(plan_digest(recipe, table, settings) for table in recipe.source),
        eod_id=settings.eod_id,
        largest_id=max(settings.tok.largest_id, settings.eod_id),
    )


def plan_facts(recipe: MixedRecipe, table: MixedSourceTable, settings: Settings) -> dict[str, Any]:
    """Return everything besides its inputs that decides a source's staged bytes: what receipts are pinned to."""
    gates = [one for one in recipe.gate if not one.sources or table.name in one.sources]
    source = msgspec.to_builtins(table)
    dedup = recipe.dedup
    facts: dict[str, Any] = {
        "version": STAGE_VERSION,
        "source": {name: value for name, value in source.items() if name not in _DESCRIPTIVE},
        "normalise": msgspec.to_builtins(recipe.normalise),
        "gates": [msgspec.to_builtins(one) for one in gates],
        "tokenizer": {
            "sha256": settings.tok.sha256,
            "eod_id": settings.eod_id,
            "special_in_text": recipe.tokenizer.special_in_text,
            "recheck": recipe.tokenizer.recheck,
        },
        "documents": msgspec.to_builtins(recipe.documents),
        "keys": None if dedup is None else {"by": dedup.by, "url": dedup.url_scope, "id": dedup.id_scope},
        "text": keeps_text(recipe),
        "near": msgspec.to_builtins(dedup.near) if dedup is not None and signs(recipe) else None,
    }
    if any(one.kind == "language" for one in gates):
        from tokenreel.build.gate_language import detector_version

        facts["detector"] = detector_version()
    return facts


def plan_digest(recipe: MixedRecipe, table: MixedSourceTable, settings: Settings) -> str:
    """Return the SHA-256 of `plan_facts`."""
    return hashlib.sha256(dumps_canonical(plan_facts(recipe, table, settings))).hexdigest()


def stage_all(
    recipe: MixedRecipe,
    folder: Path,
    stage: Path,
    settings: Settings,
    *,
    engine: str = "reference",
    workers: int = 1,
    watch: Callable[[Answer], None] | None = None,
    stall: float = STALL_SECONDS,
) -> list[StagedSource]:
    """Stage every source of a recipe below `stage`, and return them in its order.

    With ``workers=0`` everything happens in this process. `watch` hears progress and every finished part. Parts that
    stand with a receipt of this plan, whose files and input are as it says (read again now), are not staged again.
    Raises what `stage_input` and the sources raise, and `IncompleteError` (SRC020); finished parts stay then.
    """
    try:
        make_folder(stage)
    except OSError as error:
        raise write_error(stage, error) from error
    recipe = pin_sources(recipe, stage)
    plan = plan_of(recipe, folder, stage, settings)
    wait_for_workers(stage)
    remove_leftovers(stage)
    lines = [_Line.of(plan, number, stage, max(1, workers)) for number in range(len(recipe.source))]
    _sweep(stage, lines)
    setup = StageSetup(plan=plan, engine=settings.tok.reference if engine == "reference" else engine)
    supply = _Supply(lines)
    hear = watch or (lambda _: None)
    try:
        if supply.left and workers <= 0:
            _stage_here(setup, supply, hear)
        elif supply.left:
            with contextlib.ExitStack() as stack:
                count = min(workers, supply.most_at_once)
                pool = Pool(stack, "tokenreel.build.stage_worker", msgspec.json.encode(setup), count, hear, stall)
                try:
                    pool.run(supply)
                finally:
                    pool.stop()
    finally:
        remove_leftovers(stage)
    return [line.staged() for line in lines]


def _stage_here(setup: StageSetup, supply: _Supply, watch: Callable[[Answer], None]) -> None:
    _, perform = opened(setup)
    while (job := supply.take()) is not None:
        began, cpu = time.monotonic(), time.process_time()

        def tick(read: int, tokens: int, part: str = job.part) -> None:
            watch(Answer(part=part, bytes=read, tokens=tokens))

        tokens, _ = perform(job, tick)
        seconds, used = time.monotonic() - began, time.process_time() - cpu
        watch(Answer(part=job.part, bytes=job.bytes, tokens=tokens, done=True, seconds=seconds, cpu_seconds=used))
        supply.finished(job.part)


@dataclass(slots=True, eq=False)
class _Line:
    """The inputs of one source: which are staged, which wait."""

    table: MixedSourceTable
    number: int
    folder: Path
    inputs: list[SourceInput]
    receipts: dict[int, StageReceipt]
    waiting: list[int] = field(default_factory=list)
    """Numbers of inputs to stage, the next one last."""
    busy: int = 0
    built: int = 0

    @classmethod
    def of(cls, plan: StagePlan, number: int, stage: Path, threads: int) -> _Line:
        """Return a source with what stands of it."""
        table = plan.recipe.source[number]
        folder = stage / source_folder(table.name)
        inputs = open_source(table, plan.place).inputs()
        with ThreadPoolExecutor(threads) as pool:
            found = list(
                pool.map(lambda k: _standing(folder, k, inputs[k], table, plan.plans[number]), range(len(inputs)))
            )
        line = cls(table, number, folder, inputs, {})
        if table.budget is None:
            line.receipts = {k: one for k, one in enumerate(found) if one is not None and one.tokens_before == 0}
            line.waiting = [k for k in reversed(range(len(inputs))) if k not in line.receipts]
            return line
        before = 0
        for k, one in enumerate(found):
            if one is None or one.tokens_before != before:
                break
            line.receipts[k] = one
            before += one.tokens_staged
            if one.reached:
                return line
        line.waiting = list(reversed(range(len(line.receipts), len(inputs))))
        return line

    @property
    def tokens(self) -> int:
        """Tokens staged so far."""
        return sum(one.tokens_staged for one in self.receipts.values())

    def take(self) -> StageJob | None:
        """Return the next job, if one may begin."""
        chained = self.table.budget is not None
        if not self.waiting or (chained and self.busy):
            return None
        number = self.waiting.pop()
        self.busy += 1
        return StageJob(
            part=f"{self.table.name}/{part_stem(number)}",
            source=self.number,
            number=number,
            input=self.inputs[number],
            tokens_before=self.tokens if chained else 0,
        )

    def finished(self, number: int) -> None:
        """Read the receipt of a finished job."""
        receipt = receipt_at(self.folder / f"{part_stem(number)}.json")
        if receipt is None:
            raise IncompleteError(
                "SRC020", "a part's receipt is not as it was written", shard=f"{self.table.name}/{part_stem(number)}"
            )
        self.busy -= 1
        self.built += 1
        self.receipts[number] = receipt
        if receipt.reached:
            self.waiting = []

    def staged(self) -> StagedSource:
        """Return the source as it is now."""
        ordered = [self.receipts[k] for k in sorted(self.receipts)]
        parts = tuple(StagedPart(self.table.name, one.part, one.path, one, self.folder) for one in ordered)
        totals = totals_of(ordered, self.table.budget, len(self.inputs))
        return StagedSource(self.table, totals, tuple(self.inputs), parts, self.built)


class _Supply:
    """Jobs of all sources as they become ready, the largest source first begun, in turn."""

    def __init__(self, lines: Sequence[_Line]) -> None:
        self._lines = list(lines)
        self._jobs: dict[str, tuple[_Line, int]] = {}
        self._turn = 0

    @property
    def left(self) -> bool:
        """Whether a job waits or is at work."""
        return any(line.waiting or line.busy for line in self._lines)

    @property
    def most_at_once(self) -> int:
        """Workers that can have something to do."""
        return max(
            1, sum(1 if line.table.budget is not None else len(line.waiting) for line in self._lines if line.waiting)
        )

    def take(self) -> StageJob | None:
        """Return a job that may begin now; sources take turns."""
        for k in range(len(self._lines)):
            line = self._lines[(self._turn + k) % len(self._lines)]
            job = line.take()
            if job is not None:
                self._turn += k + 1
                self._jobs[job.part] = line, job.number
                return job
        return None

    def finished(self, part: str) -> None:
        """Hear that a job is done."""
        line, number = self._jobs.pop(part)
        line.finished(number)


def _standing(
    folder: Path, number: int, one: SourceInput, table: MixedSourceTable, plan_sha256: str
) -> StageReceipt | None:
    """Return the receipt of a part that need not be staged again: of this plan, its files and input as it says."""
    receipt = receipt_at(folder / f"{part_stem(number)}.json")
    if receipt is None or (receipt.source, receipt.part, receipt.path) != (table.name, number, one.path):
        return None
    if receipt.plan_sha256 != plan_sha256:
        return None
    try:
        for entry in (receipt.data, receipt.dropped_list):
            if entry is not None:
                path = folder / entry.path
                if path.stat().st_size != entry.bytes or sha256_file(path) != entry.sha256:
                    return None
        local = table.kind == "files"
        found = sha256_file(one.key) if local else one.sha256
    except (OSError, TokenreelError):
        return None
    return receipt if found is None or receipt.input.sha256 in (None, found) else None


def _sweep(stage: Path, lines: Sequence[_Line]) -> None:
    """Remove files of parts without a receipt that counts, and folders of sources that the recipe does not have."""
    known: dict[Path, set[str]] = {line.folder: {part_stem(k) for k in line.receipts} for line in lines}
    for folder in sorted(path for path in stage.iterdir() if path.is_dir()):
        for path in sorted(folder.glob("part-*")):
            if path.name.split(".")[0] not in known.get(folder, set()):
                remove(path)
        if folder not in known:
            with contextlib.suppress(OSError):
                folder.rmdir()
