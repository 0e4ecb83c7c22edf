"""`build`: a recipe becomes a corpus. Killed at any moment and run again, it ends with the same bytes.

1. plan: recipe, inputs in order (one part each), their SHA-256
2. pin: tokenizer (trained first where the recipe says so), split rule, dtype: ``run_config.json``, which a later run
   into the same folder must match byte for byte
3. build the parts that are not done, in worker processes; each ends with its receipt
4. finish: statistics, manifest, everything read again, ``COMPLETE.json``
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.build.asked import Asked, check_asked
from tokenreel.build.choosing import check_engine, choose
from tokenreel.build.finish import MANIFEST, Ending, finish
from tokenreel.build.inputs import HashedInput, hash_inputs, input_event
from tokenreel.build.lock import absent, build_lock, nothing_left
from tokenreel.build.noticing import empty_splits, ids_not_found, lossy, shared_inputs
from tokenreel.build.parts import Heard, Work, build_parts, ids_met
from tokenreel.build.pool import STALL_SECONDS
from tokenreel.build.report import BuildReport, log_event, read_log
from tokenreel.build.resume import (
    COMPLETE,
    LOG,
    check_folder,
    check_parts,
    examine,
    receipt_of,
    remove,
    sweep,
)
from tokenreel.build.rows import clear
from tokenreel.build.sample import sample_strings
from tokenreel.build.settings import (
    RUN_CONFIG,
    Settings,
    first_difference,
    require_same,
    rule_and_options,
    run_config,
    settle,
    tokenizer_spec,
)
from tokenreel.build.sources import PlannedInput, plan_inputs
from tokenreel.config import Recipe, load_recipe
from tokenreel.corpus.manifest import parse_manifest
from tokenreel.corpus.receipts import Receipt, RunConfig, Stats, dump, sum_receipts
from tokenreel.corpus.splits import ById, SplitRule, split_rule
from tokenreel.errors import ManifestError, StorageError, TokenreelError, UsageError
from tokenreel.store import loads_strict, write_bytes_atomic
from tokenreel.store.atomic import read_error, write_error
from tokenreel.text import EngineChoice, TokenizerSpec, train_bpe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from tokenreel.corpus.manifest import Manifest


def build(
    recipe: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    *,
    overrides: Iterable[str] = (),
    dry_run: bool = False,
    built_at: str | None = None,
    progress: Callable[[int, int | None, int], None] | None = None,
    stall: float = STALL_SECONDS,
    in_process: bool = False,
) -> BuildReport:
    """Build the corpus of a recipe into `out` and return what was done; a complete output is read again and left as it is.

    `out` is the recipe's ``output.folder`` when left out. `workers` is the number of processes (all cores when left
    out); it never changes a byte of the output. `overrides` are ``key=value`` for the recipe. `dry_run` plans and loads,
    and writes nothing. `built_at` is a date or time of ISO 8601 for the manifest; left out, a recorded one stays.
    `progress` is called with (input bytes done, input bytes in all, tokens written). A worker silent for `stall` seconds
    is given up. With `in_process` no worker is started: for profilers and debuggers.

    The corpus's name and `built_at` are not part of the run configuration: where one changed, the manifest and
    COMPLETE.json are written again, and no part is built.

    Raises `RecipeError`, `SourceError`, `TokenizerError`, `TokenError`, `SplitError`, `ManifestError` (MAN010: the
    folder holds the output of another run configuration; MAN014: something else), `StorageError`, `UsageError` (USE003),
    and `IncompleteError` (SRC020) when a worker died. Whatever happens, finished parts stay, nothing half-written does,
    and the same call goes on. A build that is refused before it begins leaves nothing.
    """
    began = time.monotonic()
    check_asked(workers, built_at)
    loaded = load_recipe(recipe, overrides)
    asked = Asked.of(recipe, out, loaded.output.folder, workers, in_process=in_process)
    place = asked.place()
    run = _Run(loaded, recipe, asked.folder, place, asked.processes, built_at, progress, stall)
    try:
        report = run.plan_only() if dry_run else run.whole()
    except OSError as error:
        if isinstance(error, TokenreelError):
            raise
        # What no other place expected: a folder above the output that may not be entered, a disk that fails.
        at = Path(os.fsdecode(error.filename or place))
        raise (write_error if at.is_relative_to(place) else read_error)(at, error) from error
    return replace(report, seconds=time.monotonic() - began)


@dataclass(slots=True)
class _Run:
    """One call of `build`."""

    recipe: Recipe
    recipe_path: object
    folder: Path
    out: Path
    workers: int
    built_at: str | None
    progress: Callable[[int, int | None, int], None] | None
    stall: float

    @property
    def native(self) -> bool:
        return self.recipe.corpus.layout == "native"

    def plan_only(self) -> BuildReport:
        """Check all that can be checked without reading texts or writing."""
        check_folder(self.out)
        inputs = plan_inputs(self.recipe, self.folder, self.recipe_path)
        split_rule(*rule_and_options(self.recipe, self.folder))
        size = sum(os.path.getsize(one.location) for one in inputs)  # noqa: PTH202
        spec = tokenizer_spec(self.recipe, None)
        common: dict[str, Any] = {
            "name": self.recipe.corpus.name,
            "out": self.out,
            "layout": self.recipe.corpus.layout,
            "parts": len(inputs),
            "built": 0,
            "input_bytes": size,
            "dry_run": True,
            "warnings": tuple(shared_inputs(inputs)),
        }
        if spec.kind == "train":
            vocab = spec.vocab_size or 0
            return BuildReport(
                **common,
                tokenizer=f"train:bpe:{vocab} (not trained yet)",
                vocab_size=vocab,
                eod_id=0,
                eod_token=str(spec.eod or "<|endoftext|>"),
                dtype="uint16" if vocab <= 1 << 16 else "int32",
            )
        settings = settle(self.recipe, spec, self.folder, None)
        check_engine(self.recipe.tokenizer, settings.tok, self.recipe_path)
        return BuildReport(**common, **_facts(settings))

    def whole(self) -> BuildReport:
        """Build what is not built."""
        planned = plan_inputs(self.recipe, self.folder, self.recipe_path)
        rule = split_rule(*rule_and_options(self.recipe, self.folder))
        try:
            str(self.out.absolute()).encode()
        except UnicodeEncodeError:
            raise UsageError("USE003", "--out", expected="a path in UTF-8", found=repr(str(self.out))) from None
        check_folder(self.out)
        made = absent(self.out, (LOG, "receipts"))
        with build_lock(self.out) as locked, nothing_left(made, self.out / RUN_CONFIG):
            check_folder(self.out)
            return self._locked(planned, rule, locked)

    def _locked(self, planned: list[PlannedInput], rule: SplitRule, locked: bool) -> BuildReport:
        recorded = self._recorded()
        said = loads_strict(recorded, self.out / RUN_CONFIG) if recorded is not None else {}
        spec = tokenizer_spec(self.recipe, said.get("tokenizer") if isinstance(said, dict) else None)
        inputs = hash_inputs(planned, read_log(self.out, "input"), self._threads)
        trained, seconds = self._trained(spec, inputs, said)
        settings = settle(self.recipe, spec, self.folder, trained)
        check_engine(self.recipe.tokenizer, settings.tok, self.recipe_path)
        config = run_config(self.recipe, settings, rule, inputs)
        if recorded is None:
            write_bytes_atomic(self.out / RUN_CONFIG, dump(config))
        elif recorded != dump(config):
            place = (first_difference(said, loads_strict(dump(config))) or ("",))[0]
            if place.endswith(".sha256") and not all(one.fresh for one in inputs):
                # What the log kept may be wrong: nothing is said of a file before it was read.
                inputs = hash_inputs(planned, (), self._threads)
                config = run_config(self.recipe, settings, rule, inputs)
            require_same(self.out / RUN_CONFIG, recorded, config)
        digest = hashlib.sha256(dump(config)).hexdigest()
        parts = [str(one.record.part) for one in inputs]
        tokenizer_file = self._tokenizer_file(settings)
        check_parts(self.out, parts, tokenizer_file)
        for one in inputs:
            if one.fresh and one.settled:
                log_event(self.out, "input", **input_event(one))
        if seconds:
            log_event(self.out, "trained", vocab_size=spec.vocab_size, seconds=seconds)
        report = BuildReport(
            name=self.recipe.corpus.name,
            out=self.out,
            layout=self.recipe.corpus.layout,
            parts=len(parts),
            built=0,
            input_bytes=sum(one.record.bytes or 0 for one in inputs),
            warnings=() if locked else ("this file system has no locks: run one build at a time",),
            **_facts(settings),
        )
        standing = examine(
            self.out,
            parts,
            digest,
            native=self.native,
            dtype=settings.dtype,
            tokenizer_file=tokenizer_file,
            threads=self._threads,
            finished=self._same_manifest(),
        )
        if standing.complete:
            sweep(self.out, parts)
            clear(self.out)
            receipts = self._receipts(parts, digest)
            stats = sum_receipts(receipts)
            noticed = self._warnings(inputs, settings, rule, receipts, stats)
            return replace(report, stats=stats, nothing_to_do=True, warnings=(*report.warnings, *noticed))
        todo = self._begin(inputs, standing.done, settings, tokenizer_file)
        heard = Heard(
            self.out, digest, isinstance(rule, ById), sum(one.record.bytes or 0 for one in inputs), self.progress
        )
        choice, seconds = None, 0.0
        if todo:
            choice = self._choose(settings, todo)
            began = time.monotonic()
            work = Work(self.recipe, settings, choice, rule_and_options(self.recipe, self.folder), self.out, digest)
            build_parts(work, todo, heard, self.workers, self.stall)
            seconds = time.monotonic() - began
        stats = finish(self._ending(config, parts, digest, settings, tokenizer_file))
        clear(self.out)
        noticed = self._warnings(inputs, settings, rule, self._receipts(parts, digest), stats)
        for text in noticed:
            log_event(self.out, "warning", message=text)
        log_event(self.out, "complete", parts=len(parts), built=len(todo))
        return replace(
            report,
            built=len(todo),
            stats=stats,
            engine="" if choice is None else f"{choice.name} {choice.version}",
            rejected=() if choice is None else choice.rejected,
            seconds_encoding=seconds,
            cpu_seconds=heard.cpu_seconds,
            warnings=(*report.warnings, *noticed),
        )

    @property
    def _threads(self) -> int:
        return max(1, self.workers)

    def _begin(
        self, inputs: list[HashedInput], done: AbstractSet[str], settings: Settings, tokenizer_file: str | None
    ) -> list[HashedInput]:
        """Make the output one that is being built; returns the inputs that are to be built."""
        remove(self.out / COMPLETE)
        todo = [one for one in inputs if one.record.part not in done]
        for one in todo:
            remove(self.out / "receipts" / f"{one.record.part}.json")
        sweep(self.out, [str(one.record.part) for one in inputs])
        if tokenizer_file is not None:
            path = self.out / tokenizer_file
            if not path.is_file() or path.read_bytes() != settings.tok.data:
                write_bytes_atomic(path, settings.tok.data)
        return todo

    def _manifest(self) -> Manifest | None:
        """Return the manifest that is there; None where there is none that can be read."""
        path = self.out / MANIFEST
        try:
            return parse_manifest(path.read_bytes(), path)
        except (OSError, ManifestError):
            return None

    def _same_manifest(self) -> bool:
        """Return whether the manifest has the name and the date that were asked for: nothing else in it is free."""
        if not self.native:
            return True
        manifest = self._manifest()
        if manifest is None or manifest.name != self.recipe.corpus.name:
            return False
        return self.built_at in (None, manifest.built_at)

    def _warnings(
        self, inputs: list[HashedInput], settings: Settings, rule: SplitRule, receipts: list[Receipt], stats: Stats
    ) -> list[str]:
        special = self.recipe.tokenizer.special_in_text == "special"
        found = shared_inputs([one.planned for one in inputs])
        found += empty_splits(rule.as_dict(), stats)
        found += lossy(settings.tok, receipts, inputs, special)
        if isinstance(rule, ById):
            found += ids_not_found(rule.listed, ids_met(self.out, receipts), receipts)[1]
        return found

    def _recorded(self) -> bytes | None:
        path = self.out / RUN_CONFIG
        try:
            return path.read_bytes() if path.exists() else None
        except OSError as error:
            raise StorageError("STO002", f"could not read: {error.strerror}", path=path) from error

    def _trained(self, spec: TokenizerSpec, inputs: list[HashedInput], said: Any) -> tuple[bytes | None, float]:
        """Return the trained tokenizer and the seconds it took: the one a former run saved and recorded, or a new one.

        It is not saved here: its hash must stand in run_config.json before the file is there.
        """
        if spec.kind != "train":
            return None, 0.0
        path = self.out / "tokenizer" / "tokenizer.json"
        table = said.get("tokenizer") if isinstance(said, dict) else None
        wanted = table.get("sha256") if isinstance(table, dict) else None
        if wanted is not None and path.is_file():
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() == wanted:
                return data, 0.0
        began = time.monotonic()
        specials = (str(spec.eod),) if isinstance(spec.eod, str) else ("<|endoftext|>",)
        data = train_bpe(sample_strings(inputs, spec.sample_bytes), spec.vocab_size or 0, specials)
        return data, round(time.monotonic() - began, 3)

    def _tokenizer_file(self, settings: Settings) -> str | None:
        """Return where the layout keeps the tokenizer: always in native, in mahan only one that was trained."""
        if not self.native and settings.spec.kind != "train":
            return None
        return f"tokenizer/tokenizer.{'model' if settings.tok.kind == 'sentencepiece' else 'json'}"

    def _choose(self, settings: Settings, todo: list[HashedInput]) -> EngineChoice:
        began = time.monotonic()
        choice = choose(self.recipe.tokenizer, settings.tok, todo)
        log_event(
            self.out,
            "engine",
            name=choice.name,
            version=choice.version,
            probe_sha256=choice.probe_sha256,
            rejected=[list(one) for one in choice.rejected],
            speeds=[list(one) for one in choice.speeds],
            seconds=round(time.monotonic() - began, 3),
        )
        return choice

    def _ending(
        self, config: RunConfig, parts: list[str], digest: str, settings: Settings, tokenizer_file: str | None
    ) -> Ending:
        return Ending(
            out=self.out,
            name=self.recipe.corpus.name,
            layout=self.recipe.corpus.layout,
            parts=tuple(parts),
            run_config_sha256=digest,
            tokenizer=config.tokenizer,
            split_rule=config.split_rule,
            eod_id=settings.eod_id,
            dtype=settings.dtype,
            tokenizer_file=tokenizer_file,
            built_at=self.built_at or getattr(self._manifest() if self.native else None, "built_at", None),
            threads=self._threads,
        )

    def _receipts(self, parts: list[str], digest: str) -> list[Receipt]:
        receipts = (receipt_of(self.out, part, digest) for part in parts)
        return [receipt for receipt in receipts if receipt is not None]


def _facts(settings: Settings) -> dict[str, Any]:
    return {
        "tokenizer": settings.tok.name,
        "vocab_size": settings.tok.vocab_size,
        "eod_id": settings.eod_id,
        "eod_token": settings.eod_token,
        "dtype": settings.dtype,
    }
