"""Build a mix: stage, merge without duplicates, audit, split, write, read again, record. The same bytes however often it is killed.

What decides the output stands in ``mix.config.json``, which a later run into the folder must match; ``mix.json`` says what
came of it, and ``mix.complete.json`` is there when all that they name was read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np

from tokenreel.build.choosing import SMALL_BYTES
from tokenreel.build.lock import absent, build_lock, nothing_left
from tokenreel.build.mix_audit import audit, load_evals
from tokenreel.build.mix_config import config_of, require_inputs, require_same
from tokenreel.build.mix_drops import write_stages
from tokenreel.build.mix_finish import (
    MixEnding,
    complete,
    completed,
    manifest_of,
    recognised,
    redate,
)  # fmt: skip
from tokenreel.build.mix_merge import EVAL, merge
from tokenreel.build.mix_options import steps_said
from tokenreel.build.mix_ounce import write_ounce_manifest
from tokenreel.build.mix_pages import attribution, mix_plan, origin_of
from tokenreel.build.mix_report import MixReport
from tokenreel.build.mix_shards import plan_shards
from tokenreel.build.mix_stats import source_facts
from tokenreel.build.mix_table import staged_of
from tokenreel.build.mix_target import MixTarget, target_of
from tokenreel.build.mix_write import JOURNAL, MixWriting, write_shards
from tokenreel.build.pool import STALL_SECONDS
from tokenreel.build.resume import remove
from tokenreel.build.rows import assemble, clear
from tokenreel.build.settings import Settings, rule_and_options
from tokenreel.build.staging_run import place_of, stage_all
from tokenreel.build.staging_settings import choose_mixed, settle_mixed
from tokenreel.build.text_batches import open_source
from tokenreel.corpus.documents import DOCUMENTS
from tokenreel.corpus.manifest import parse_manifest
from tokenreel.corpus.mix_records import (
    ATTRIBUTION,
    AUDIT,
    COMPLETE,
    CONFIG,
    MIX_PLAN,
    RECORD,
    RECORD_FORMAT,
    STAGE,
    STAGES,
)
from tokenreel.corpus.opening import MANIFEST
from tokenreel.corpus.splits import SplitRule, split_rule
from tokenreel.errors import ManifestError, SourceError, TokenreelError
from tokenreel.hashing import sha256_file
from tokenreel.store import dumps_canonical, loads_strict, remove_leftovers, write_bytes_atomic
from tokenreel.store.atomic import make_folder, read_error, write_error
from tokenreel.text.recheck import recheck_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokenreel.build.mix_audit import Audit
    from tokenreel.build.mix_merge import Merged
    from tokenreel.build.mix_table import Staged
    from tokenreel.build.staging_run import StagedSource
    from tokenreel.build.worker import Answer
    from tokenreel.config import Recipe
    from tokenreel.config.mixed import MixedRecipe

TOKENIZER = "tokenizer"
_OURS = frozenset({STAGE, STAGES, JOURNAL, "receipts", TOKENIZER})


def run_mixed(
    recipe: MixedRecipe,
    folder: Path,
    out: Path,
    *,
    workers: int = 1,
    built_at: str | None = None,
    progress: Callable[[int, int | None, int], None] | None = None,
    stall: float = STALL_SECONDS,
) -> MixReport:
    """Build the mix of `recipe`, whose paths are relative to `folder`, into `out`; with ``workers=0`` in this process.

    The bytes are the same for any number of workers and after a kill at any moment. Memory: staged parts are mapped, 16 to
    40 bytes a document stay. Raises what staging and writing raise; `ManifestError`: MAN010 the folder holds the mix of
    another recipe or other inputs, MAN014 something else; `SourceError`: SRC030 a source would lose too much, SRC040,
    SRC042 nothing stays.
    """
    began = time.monotonic()
    _check_folder(out)
    rule = split_rule(*rule_and_options(cast("Recipe", recipe), folder))
    made = absent(out, ("receipts",))
    with build_lock(out), nothing_left(made, out / CONFIG):
        settings = settle_mixed(recipe, folder, _recorded_tokenizer(out))
        target = target_of(recipe, settings)
        run = _Mix(recipe, folder, out, workers, built_at, progress, stall, settings, target, rule)
        try:
            report = run.whole()
        except OSError as error:
            if isinstance(error, TokenreelError):
                raise
            # What no other place expected: a folder that may not be entered, a disk that fails.
            at = Path(os.fsdecode(error.filename or out))
            raise (write_error if at.is_relative_to(out) else read_error)(at, error) from error
        finally:
            with contextlib.suppress(OSError):
                (out / "receipts").rmdir()
    return replace(report, seconds=time.monotonic() - began)


def _check_folder(out: Path) -> None:
    if out.is_dir() and not (out / CONFIG).exists():
        strange = sorted(
            one.name for one in out.iterdir() if one.name not in _OURS and not one.name.endswith(".tokenreel-tmp")
        )
        if strange:
            raise ManifestError("MAN014", path=out, found=strange[0], hint="name an empty or new folder with --out")


def _recorded_tokenizer(out: Path) -> dict[str, Any] | None:
    try:
        found = loads_strict((out / CONFIG).read_bytes(), out / CONFIG)["tokenizer"]
    except (OSError, TokenreelError, KeyError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _recorded_date(out: Path) -> str | None:
    try:
        return parse_manifest((out / MANIFEST).read_bytes(), out / MANIFEST).built_at
    except (OSError, TokenreelError):
        return None


@runtime_checkable
class ByStage(Protocol):
    """Progress that is told which stage begins: stage, merge, audit, write, read again."""

    def stage(self, name: str) -> None:
        """Hear the stage's name."""
        ...


@dataclass(slots=True)
class _Mix:
    """One run."""

    recipe: MixedRecipe
    folder: Path
    out: Path
    workers: int
    built_at: str | None
    progress: Callable[[int, int | None, int], None] | None
    stall: float
    settings: Settings
    target: MixTarget
    rule: SplitRule
    engine: str = ""
    """What texts are encoded with, known when staging begins."""

    @property
    def threads(self) -> int:
        """Threads of what is not staging."""
        return max(1, self.workers)

    def whole(self) -> MixReport:
        """Build what is not built."""
        config = config_of(self.recipe, self.settings, self.target, self.rule)
        data = dumps_canonical(config)
        require_same(self.out, data)
        record = completed(self.out, data, self.threads)
        if record is not None:
            require_inputs(self.out, self.recipe, self.folder, self.settings, record)
            if self.built_at is not None:
                redate(self.out, self.built_at)
            self._clear()
            return MixReport.of(self.out, record, nothing_to_do=True)
        # Before anything is written: what is refused leaves nothing.
        place = place_of(self.recipe, self.folder, self.settings)
        for table in self.recipe.source:
            if table.kind == "files":
                open_source(table, place).inputs()
        sets = load_evals(self.recipe.decontaminate, self.folder) if self.recipe.decontaminate else []
        self.built_at = self.built_at or _recorded_date(self.out)
        self._stage("stage")
        for name in (COMPLETE, MANIFEST, RECORD, AUDIT):
            remove(self.out / name)
        remove_leftovers(self.out)
        if not (self.out / CONFIG).exists() or (self.out / CONFIG).read_bytes() != data:
            write_bytes_atomic(self.out / CONFIG, data)
        sources = self._staged()
        staged = staged_of(sources)
        self._stage("merge")
        # Keys beyond the limit of memory wait there; what a killed run left of them goes.
        spill = self.out / JOURNAL / "keys"
        shutil.rmtree(spill, ignore_errors=True)
        make_folder(spill)
        merged = merge(staged, self.recipe, spill, self.threads)
        checked = self._audited(staged, merged, sets)
        if not len(merged.order):
            seen = sum(source.totals.docs_seen for source in sources)
            hint = "tokenreel build RECIPE --explain INPUT#0"
            raise SourceError("SRC042", path=self.out, expected="a document", found=f"none of {seen:,} seen", hint=hint)
        record = self._written(config, sources, staged, merged, checked, sets)
        self._clear()
        return MixReport.of(self.out, record, built=sum(source.built for source in sources))

    def _stage(self, name: str) -> None:
        """Tell progress that shows stages which one begins."""
        hears: Any = self.progress
        if isinstance(hears, ByStage):
            hears.stage(name)

    def _staged(self) -> list[StagedSource]:
        last: dict[str, tuple[int, int]] = {}
        done = [0, 0]

        def hear(answer: Answer) -> None:
            read, tokens = last.get(answer.part, (0, 0))
            done[0] += answer.bytes - read
            done[1] += answer.tokens - tokens
            last[answer.part] = answer.bytes, answer.tokens
            if self.progress is not None:
                self.progress(done[0], None, done[1])

        self.engine = choose_mixed(self.recipe, self.folder, self.settings).name
        return stage_all(
            self.recipe,
            self.folder,
            self.out / STAGE,
            self.settings,
            engine=self.engine,
            workers=self.workers,
            watch=hear,
            stall=self.stall,
        )

    def _audited(self, staged: Staged, merged: Merged, sets: list[Any]) -> Audit | None:
        table = self.recipe.decontaminate
        if table is None:
            return None
        self._stage("audit")
        found = audit(staged, merged, table, sets, self._encode, self.threads)
        if table.remove != "none":
            merged.remove(found.flagged if table.remove == "flagged" else found.strong, EVAL)
        return found

    def _encode(self, texts: list[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        import pyarrow as pa

        from tokenreel.text import open_engine

        mode: Any = (
            "text" if self.recipe.tokenizer.special_in_text == "error" else self.recipe.tokenizer.special_in_text
        )
        array = pa.array(texts, pa.large_string())
        # Of a few items the reference is done before another engine is open.
        engine = self.settings.tok.reference if array.nbytes < SMALL_BYTES else self.engine
        encoder = open_engine(self.settings.tok, engine, special_in_text=mode)
        found = encoder.encode_counted(array)
        recheck_batch(encoder, found.texts, found.ids, found.lengths, one_in=self.recipe.tokenizer.recheck)
        return found.ids, np.concatenate(([0], np.cumsum(found.lengths))).astype(np.int64)

    def _written(
        self, config: dict[str, Any], sources: list[StagedSource], staged: Staged, merged: Merged, checked: Audit | None, sets: list[Any],
    ) -> dict[str, Any]:  # fmt: skip
        out, target = self.out, self.target
        shards = plan_shards(staged, merged.order, self.recipe, self.rule, target.writing, target.options)
        pinned = {
            "config": config,
            "parts": [[part.source, part.number, part.receipt.data.sha256] for part in staged.parts],
            "evals": [one.files for one in sets],
        }
        plan = hashlib.sha256(dumps_canonical(pinned)).hexdigest()
        hidden = target.format == "hobbylm-v1"
        mix = MixWriting(
            out, staged, target.writing, target.options, self.settings.eod_id, target.lead, plan, hidden, target.inside
        )
        self._stage("write")
        total = sum(int(staged.lengths[shard.documents].sum(dtype=np.int64)) for shard in shards)
        width, done = np.dtype(target.options.dtype).itemsize, [0]

        def count(tokens: int) -> None:
            done[0] += tokens
            if self.progress is not None:
                self.progress(done[0] * width, total * width, done[0])

        written = write_shards(mix, shards, self.threads, count)
        extra = self._tables(shards, written)
        tokenizer = dict(config["tokenizer"])
        files = [*extra, *self._tokenizer_file()]
        assemble(out, [(f"{shard.number:06d}", shard.split or "all") for shard in shards])
        ending = MixEnding(
            out=out,
            name=self.recipe.corpus.name,
            layout=self.recipe.layout,
            target=target,
            staged=staged,
            shards=shards,
            written=written,
            tokenizer=tokenizer,
            split_rule=self.rule.as_dict(),
            order=self.recipe.merge.how,
            built_at=self.built_at,
            threads=self.threads,
        )
        if self.recipe.layout == "ounce":
            write_ounce_manifest(ending, self.recipe.merge.seed if self.recipe.merge.how == "shuffle" else None)
            files.append("manifest.json")
        if checked is not None:
            write_bytes_atomic(out / AUDIT, dumps_canonical(checked.report))
            files.append(AUDIT)
        facts = source_facts(sources, staged, merged, shards, written)
        files += self._pages(facts, config)
        stages = write_stages(out, staged, merged, shards, checked.reasons if checked is not None else {})
        self._stage("read again")
        manifest = manifest_of(ending, recognised(ending))
        entries = [
            {"path": name, "bytes": (out / name).stat().st_size, "sha256": sha256_file(out / name)}
            for name in (*files, DOCUMENTS)
        ]
        entries += [{"path": one.path, "bytes": one.bytes, "sha256": one.sha256} for one in stages]
        record = {
            "format": RECORD_FORMAT,
            "name": self.recipe.corpus.name,
            "layout": self.recipe.layout,
            "assumptions": config["assumptions"],
            "sources": facts,
            "splits": {
                name: {"documents": split.documents, "tokens": split.tokens, "shards": len(split.shards), "identity": split.identity}
                for name, split in manifest.splits.items()
            },
            "shards": [
                {"name": one.finished.name, "documents": one.finished.documents, "tokens": one.finished.tokens, "source_tokens": one.source_tokens}
                for one in written
            ],
            "audit": None if checked is None else {k: v for k, v in checked.report.items() if k != "evals"},
            "files": sorted(entries, key=lambda one: str(one["path"]).encode()),
        }  # fmt: skip
        complete(out, manifest, record, self.threads)
        return record

    def _tables(self, shards: Any, written: Any) -> list[str]:
        """Write files of whole folders (sidecars, indexes) and return their paths."""
        finish, out = self.target.writing.finish_folder, []
        if finish is None or self.target.format == "ounce-v1":
            return []
        for folder in dict.fromkeys(shard.folder for shard in shards):
            mine = [
                _below(one.finished, folder)
                for shard, one in zip(shards, written, strict=True)
                if shard.folder == folder
            ]
            out += [f"{folder}{file.path}" for file in finish(self.out / folder, mine, self.target.options)]
        if self.recipe.layout == "native":
            self._clear_shards({*out, *(file.path for one in written for file in one.finished.files)})
        for path in self.out.rglob("*_index.json"):
            # Of a source that had documents under an earlier merge.
            for table in (path, path.with_name(path.name.removesuffix("_index.json") + "_docs.jsonl")):
                if table.relative_to(self.out).as_posix() not in out:
                    remove(table)
        return out

    def _clear_shards(self, planned: set[str]) -> None:
        """Remove what an earlier merge left among shards: an index of files that are gone would be read."""
        for path in (self.out / "shards").rglob("*"):
            if path.is_file() and path.relative_to(self.out).as_posix() not in planned:
                remove(path)

    def _tokenizer_file(self) -> list[str]:
        if self.settings.spec.kind == "bytes":
            return []
        name = f"{TOKENIZER}/tokenizer.{'model' if self.settings.tok.kind == 'sentencepiece' else 'json'}"
        write_bytes_atomic(self.out / name, self.settings.tok.data)
        return [name]

    def _pages(self, facts: list[dict[str, Any]], config: dict[str, Any]) -> list[str]:
        name = self.recipe.corpus.name
        inputs = {one["name"]: [str(read["path"]) for read in one["inputs"]] for one in facts}
        origins = {one.name: origin_of(one, inputs[one.name]) for one in self.recipe.source}
        write_bytes_atomic(self.out / ATTRIBUTION, attribution(name, facts, origins).encode())
        page = mix_plan(name, facts, steps_said(self.recipe), config["assumptions"])
        write_bytes_atomic(self.out / MIX_PLAN, page.encode())
        return [ATTRIBUTION, MIX_PLAN]

    def _clear(self) -> None:
        """Remove what only an unfinished mix needs."""
        clear(self.out)
        shutil.rmtree(self.out / JOURNAL, ignore_errors=True)
        if not self.recipe.output.keep_stage:
            shutil.rmtree(self.out / STAGE, ignore_errors=True)


def _below(finished: Any, folder: str) -> Any:
    """Return a finished shard with its paths below `folder`."""
    files = tuple(replace(file, path=file.path.removeprefix(folder)) for file in finished.files)
    return replace(finished, name=finished.name.removeprefix(folder), files=files)
