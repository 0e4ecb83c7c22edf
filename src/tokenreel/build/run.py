"""`build`: a recipe becomes a corpus. Killed at any moment and run again, it ends with the same bytes.

1. plan: recipe, inputs in order (one part each), their SHA-256
2. pin: tokenizer (trained first where the recipe says so), split rule, dtype: ``run_config.json``, which a later run
   into the same folder must match byte for byte
3. build the parts that are not done, in worker processes; each ends with its receipt
4. finish: statistics, manifest, everything read again, ``COMPLETE.json``
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.build.finish import Ending, finish
from tokenreel.build.inputs import HashedInput, hash_inputs
from tokenreel.build.lock import build_lock
from tokenreel.build.pool import STALL_SECONDS, run_jobs
from tokenreel.build.report import BuildReport, log_event, read_log
from tokenreel.build.resume import COMPLETE, check_folder, check_parts, done_parts, is_complete, receipt_of, sweep
from tokenreel.build.rows import clear
from tokenreel.build.sample import sample_array, sample_strings
from tokenreel.build.settings import (
    RUN_CONFIG,
    Settings,
    require_same,
    rule_and_options,
    run_config,
    settle,
    tokenizer_spec,
)
from tokenreel.build.sources import plan_inputs
from tokenreel.build.unit import Job, Plan
from tokenreel.build.worker import Answer, Setup
from tokenreel.config import Recipe, load_recipe
from tokenreel.corpus.receipts import RunConfig, Stats, dump, sum_receipts
from tokenreel.corpus.splits import SplitRule, split_rule
from tokenreel.errors import RecipeError, StorageError, TokenizerError
from tokenreel.store import loads_strict, write_bytes_atomic
from tokenreel.store.atomic import write_error
from tokenreel.text import EngineChoice, TokenizerSpec, choose_engine, train_bpe
from tokenreel.text.engines import CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SMALL_BYTES = 4 << 20
"""Inputs of fewer bytes are encoded by the reference in less time than it takes to probe other engines."""


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
) -> BuildReport:
    """Build the corpus of a recipe into `out` and return what was done; a complete output is left as it is.

    `out` is the recipe's ``output.folder`` when left out. `workers` is the number of processes (all cores when left
    out; 0: this process alone); it never changes a byte of the output. `overrides` are ``key=value`` for the recipe.
    `dry_run` plans and loads, and writes nothing. `built_at` is a date for the manifest. `progress` is called with
    (input bytes done, input bytes in all, tokens written). A worker silent for `stall` seconds is given up.

    Raises `RecipeError`, `SourceError`, `TokenizerError`, `TokenError`, `SplitError`, `ManifestError` (MAN010: the
    folder holds the output of another run configuration), `StorageError`, and `IncompleteError` (SRC020) when a worker
    died. Whatever happens, finished parts stay, nothing half-written does, and the same call goes on.
    """
    began = time.monotonic()
    loaded = load_recipe(recipe, overrides)
    folder = Path(recipe).parent
    place = Path(out) if out is not None else None
    if place is None:
        if loaded.output.folder is None:
            raise RecipeError("RCP007", path=recipe, hint="tokenreel build RECIPE --out DIR")
        place = folder / loaded.output.folder
    processes = _cores() if workers is None else workers
    run = _Run(loaded, recipe, folder, place, processes, built_at, progress, stall)
    report = run.plan_only() if dry_run else run.whole()
    return replace(report, seconds=time.monotonic() - began)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    _bytes: dict[str, int] = field(default_factory=dict)
    _tokens: dict[str, int] = field(default_factory=dict)
    _cpu: float = 0.0

    @property
    def native(self) -> bool:
        return self.recipe.corpus.layout == "native"

    def plan_only(self) -> BuildReport:
        """Check all that can be checked without reading texts or writing."""
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
        return BuildReport(**common, **_facts(settings))

    def whole(self) -> BuildReport:
        """Build what is not built."""
        planned = plan_inputs(self.recipe, self.folder, self.recipe_path)
        name, options = rule_and_options(self.recipe, self.folder)
        rule = split_rule(name, options)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(self.out, error) from error
        with build_lock(self.out) as locked:
            check_folder(self.out)
            inputs = self._hash(planned)
            return self._locked(inputs, name, options, rule, locked)

    def _hash(self, planned: list[Any]) -> list[HashedInput]:
        inputs = hash_inputs(planned, read_log(self.out, "input"), max(1, self.workers))
        for one in inputs:
            if one.fresh and one.settled:
                log_event(
                    self.out,
                    "input",
                    source=one.planned.shape.name,
                    path=one.planned.path,
                    stamp=one.stamp,
                    sha256=one.record.sha256,
                )
        return inputs

    def _locked(
        self, inputs: list[HashedInput], name: str, options: dict[str, Any], rule: SplitRule, locked: bool
    ) -> BuildReport:
        recorded = self._recorded()
        said = loads_strict(recorded, self.out / RUN_CONFIG) if recorded is not None else {}
        spec = tokenizer_spec(self.recipe, said.get("tokenizer") if isinstance(said, dict) else None)
        settings = settle(self.recipe, spec, self.folder, self._trained(spec, inputs, said))
        config = run_config(self.recipe, settings, rule, inputs)
        if recorded is not None:
            require_same(self.out / RUN_CONFIG, recorded, config)
        else:
            write_bytes_atomic(self.out / RUN_CONFIG, dump(config))
        digest = hashlib.sha256(dump(config)).hexdigest()
        parts = [str(one.record.part) for one in inputs]
        check_parts(self.out, parts)
        tokenizer_file = self._tokenizer_file(settings)
        size = sum(one.record.bytes or 0 for one in inputs)
        report = BuildReport(
            name=self.recipe.corpus.name,
            out=self.out,
            layout=self.recipe.corpus.layout,
            parts=len(parts),
            built=0,
            input_bytes=size,
            warnings=() if locked else ("this file system has no locks: run one build at a time",),
            **_facts(settings),
        )
        if is_complete(self.out, parts, digest, tokenizer_file):
            sweep(self.out, parts)
            clear(self.out)
            return replace(report, stats=self._stats(parts, digest))
        (self.out / COMPLETE).unlink(missing_ok=True)
        sweep(self.out, parts)
        if tokenizer_file is not None and not (self.out / tokenizer_file).is_file():
            write_bytes_atomic(self.out / tokenizer_file, settings.tok.data)
        done = done_parts(self.out, parts, digest, native=self.native, threads=max(1, self.workers))
        todo = [one for one in inputs if one.record.part not in done]
        choice, seconds = None, 0.0
        if todo:
            choice = self._choose(settings, todo)
            seconds = self._build_parts(todo, inputs, settings, choice, digest, name, options)
        stats = finish(self._ending(config, parts, digest, settings, tokenizer_file))
        clear(self.out)
        log_event(self.out, "complete", parts=len(parts), built=len(todo))
        return replace(
            report,
            built=len(todo),
            stats=stats,
            engine="" if choice is None else f"{choice.name} {choice.version}",
            rejected=() if choice is None else choice.rejected,
            seconds_encoding=seconds,
            cpu_seconds=self._cpu,
        )

    def _recorded(self) -> bytes | None:
        path = self.out / RUN_CONFIG
        try:
            return path.read_bytes() if path.exists() else None
        except OSError as error:
            raise StorageError("STO002", f"could not read: {error.strerror}", path=path) from error

    def _trained(self, spec: TokenizerSpec, inputs: list[HashedInput], said: Any) -> bytes | None:
        """Return the trained tokenizer: the one a former run saved and recorded, or a new one, saved."""
        if spec.kind != "train":
            return None
        path = self.out / "tokenizer" / "tokenizer.json"
        wanted = said.get("tokenizer", {}).get("sha256") if isinstance(said, dict) else None
        if wanted is not None and path.is_file():
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() == wanted:
                return data
        began = time.monotonic()
        specials = (str(spec.eod),) if isinstance(spec.eod, str) else ("<|endoftext|>",)
        data = train_bpe(sample_strings(inputs, spec.sample_bytes), spec.vocab_size or 0, specials)
        write_bytes_atomic(path, data)
        log_event(self.out, "trained", vocab_size=spec.vocab_size, seconds=round(time.monotonic() - began, 3))
        return data

    def _tokenizer_file(self, settings: Settings) -> str | None:
        """Return where the layout keeps the tokenizer: always in native, in mahan only one that was trained."""
        if not self.native and settings.spec.kind != "train":
            return None
        return f"tokenizer/tokenizer.{'model' if settings.tok.kind == 'sentencepiece' else 'json'}"

    def _choose(self, settings: Settings, todo: list[HashedInput]) -> EngineChoice:
        began = time.monotonic()
        asked = self.recipe.tokenizer.engine
        mode: Any = self.recipe.tokenizer.special_in_text
        tok = settings.tok
        known = {candidate.name: candidate for candidate in CANDIDATES}
        if asked not in ("auto", "reference", tok.reference, *known):
            raise RecipeError(
                "RCP004",
                "tokenizer.engine",
                path=self.recipe_path,
                expected=", ".join(("auto", "reference", *known)),
                found=asked,
            )
        size = sum(one.record.bytes or 0 for one in todo)
        small = asked == "auto" and size < SMALL_BYTES
        if small or asked in ("reference", tok.reference):
            choice = choose_engine(tok, special_in_text=mode, candidates=())
            if small:
                choice = replace(choice, rejected=tuple((name, "not tried: little text") for name in known))
        else:
            candidates = CANDIDATES if asked == "auto" else (known[asked],)
            choice = choose_engine(tok, sample_array(todo, 2 << 20), special_in_text=mode, candidates=candidates)
            if asked not in ("auto", choice.name):
                reason = dict(choice.rejected).get(asked, "")
                raise TokenizerError("TKZ013", f"{asked} was asked for: {reason}", path=tok.name)
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

    def _build_parts(
        self,
        todo: list[HashedInput],
        inputs: list[HashedInput],
        settings: Settings,
        choice: EngineChoice,
        digest: str,
        rule: str,
        options: dict[str, Any],
    ) -> float:
        tokenizer = self.recipe.tokenizer
        plan = Plan(
            out=str(self.out.absolute()),
            layout=self.recipe.corpus.layout,
            run_config_sha256=digest,
            dtype=settings.dtype,
            eod_id=settings.eod_id,
            special_in_text=tokenizer.special_in_text,
            recheck=tokenizer.recheck,
            empty=self.recipe.documents.empty,
            empty_inputs=self.recipe.documents.empty_inputs,
            chunk_bytes=self.recipe.output.chunk_bytes,
            lossless=settings.tok.lossless and tokenizer.special_in_text in ("text", "error"),
        )
        setup = Setup(
            plan=plan,
            rule=rule,
            rule_options=options,
            tokenizer=None if settings.spec.kind == "bytes" else settings.tok.data,
            tokenizer_name=settings.tok.name,
            engine=choice.name,
        )
        jobs = [
            Job(
                part=str(one.record.part),
                shape=one.planned.shape,
                location=str(Path(one.planned.location).absolute()),
                path=one.planned.path,
                bytes=one.record.bytes or 0,
                sha256=str(one.record.sha256),
                stamp=one.stamp if one.settled else None,
            )
            for one in todo
        ]
        total = sum(one.record.bytes or 0 for one in inputs)
        self._bytes = {"": total - sum(job.bytes for job in jobs)}
        log_event(self.out, "start", parts=len(jobs), workers=self.workers, versions=_versions())
        began = time.monotonic()
        try:
            run_jobs(jobs, setup, self.workers, lambda answer: self._hear(answer, total), stall=self.stall)
        except BaseException as error:
            # The workers are gone: what they had in hand is removed, what they finished stays.
            sweep(self.out, [job.part for job in jobs])
            with contextlib.suppress(StorageError):
                log_event(self.out, "stopped", error=type(error).__name__, message=str(error))
            raise
        return time.monotonic() - began

    def _hear(self, answer: Answer, total: int) -> None:
        self._bytes[answer.part] = answer.bytes
        self._tokens[answer.part] = answer.tokens
        if answer.done:
            self._cpu += answer.cpu_seconds
            log_event(
                self.out,
                "part",
                part=answer.part,
                bytes=answer.bytes,
                tokens=answer.tokens,
                seconds=round(answer.seconds, 3),
                cpu_seconds=round(answer.cpu_seconds, 3),
            )
        if self.progress is not None:
            self.progress(sum(self._bytes.values()), total, sum(self._tokens.values()))

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
            built_at=self.built_at,
            threads=max(1, self.workers),
        )

    def _stats(self, parts: list[str], digest: str) -> Stats:
        receipts = (receipt_of(self.out, part, digest) for part in parts)
        return sum_receipts(receipt for receipt in receipts if receipt is not None)


def _facts(settings: Settings) -> dict[str, Any]:
    return {
        "tokenizer": settings.tok.name,
        "vocab_size": settings.tok.vocab_size,
        "eod_id": settings.eod_id,
        "eod_token": settings.eod_token,
        "dtype": settings.dtype,
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("tokenreel", "numpy", "pyarrow", "tokenizers", "sentencepiece", "zstandard", "gigatoken", "fastokens"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
