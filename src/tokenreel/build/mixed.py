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
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from tokenreel.build.choosing import SMALL_BYTES
from tokenreel.build.lock import absent, build_lock, nothing_left
from tokenreel.build.mix_audit import audit, load_evals
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
from tokenreel.build.mix_options import assumptions, steps_said
from tokenreel.build.mix_ounce import write_ounce_manifest
from tokenreel.build.mix_pages import attribution, mix_plan
from tokenreel.build.mix_report import MixReport
from tokenreel.build.mix_shards import plan_shards
from tokenreel.build.mix_stats import source_facts
from tokenreel.build.mix_table import staged_of
from tokenreel.build.mix_target import MixTarget, target_of
from tokenreel.build.mix_write import JOURNAL, MixWriting, write_shards
from tokenreel.build.pool import STALL_SECONDS
from tokenreel.build.resume import remove
from tokenreel.build.rows import assemble, clear
from tokenreel.build.settings import Settings, first_difference, rule_and_options, tokenizer_record
from tokenreel.build.staging_run import place_of, plan_digest, stage_all
from tokenreel.build.staging_settings import choose_mixed, settle_mixed
from tokenreel.build.text_batches import open_source
from tokenreel.corpus.documents import DOCUMENTS
from tokenreel.corpus.manifest import parse_manifest
from tokenreel.corpus.mix_records import (
    ATTRIBUTION,
    AUDIT,
    COMPLETE,
    CONFIG,
    CONFIG_FORMAT,
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

MIX_VERSION = 1
TOKENIZER = "tokenizer"
_ANOTHER = "build into another folder with --out, or remove this one"
_FIXED = ("stages", "tokenizer", "layout", "split_rule", "shard_format", "dtype")
_STAGING = ("normalise", "gate", "tokenizer", "documents", "dedup", "decontaminate", "source")
"""Tables that staged parts depend on, those of one key before those of many."""
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
        config = self._config()
        data = dumps_canonical(config)
        self._require_same(data)
        record = completed(self.out, data, self.threads)
        if record is not None:
            self._same_inputs(record)
            if self.built_at is not None:
                redate(self.out, self.built_at)
            self._clear()
            return MixReport.of(self.out, record, nothing_to_do=True)
        # Before anything is written: what is refused leaves nothing.
        sets = load_evals(self.recipe.decontaminate, self.folder) if self.recipe.decontaminate else []
        self.built_at = self.built_at or _recorded_date(self.out)
        for name in (COMPLETE, MANIFEST, RECORD, AUDIT):
            remove(self.out / name)
        remove_leftovers(self.out)
        if not (self.out / CONFIG).exists() or (self.out / CONFIG).read_bytes() != data:
            write_bytes_atomic(self.out / CONFIG, data)
        sources = self._staged()
        staged = staged_of(sources)
        # Keys beyond the limit of memory wait there; what a killed run left of them goes.
        spill = self.out / JOURNAL / "keys"
        shutil.rmtree(spill, ignore_errors=True)
        make_folder(spill)
        merged = merge(staged, self.recipe, spill)
        checked = self._audited(staged, merged, sets)
        if not len(merged.order):
            seen = sum(source.totals.docs_seen for source in sources)
            hint = "tokenreel build RECIPE --explain INPUT#0"
            raise SourceError("SRC042", path=self.out, expected="a document", found=f"none of {seen:,} seen", hint=hint)
        record = self._written(config, sources, staged, merged, checked, sets)
        self._clear()
        return MixReport.of(self.out, record, built=sum(source.built for source in sources))

    def _config(self) -> dict[str, Any]:
        recipe, settings = self.recipe, self.settings
        table = _every_option(recipe)
        for key in ("folder", "keep_stage", "chunk_bytes"):
            del table["output"][key]
        del table["tokenizer"]["engine"]
        return {
            "format": CONFIG_FORMAT,
            "version": MIX_VERSION,
            "recipe": table,
            "stages": {one.name: plan_digest(recipe, one, settings) for one in recipe.source},
            "tokenizer": tokenizer_record(settings, cast("Recipe", recipe)),
            "layout": recipe.layout,
            "split_rule": self.rule.as_dict(),
            "shard_format": self.target.format,
            "dtype": self.target.options.dtype,
            "assumptions": {
                key: value for key, value in assumptions(recipe, settings).items() if value not in ("", {})
            },
        }

    def _require_same(self, now: bytes) -> None:
        """Raise `ManifestError` (MAN010) where the folder holds the mix of another recipe.

        While it is not finished only what staged parts and names of files depend on has to be the same: a merge that was
        refused may be asked for in another way.
        """
        path = self.out / CONFIG
        if not path.exists():
            return
        both = loads_strict(path.read_bytes(), path), loads_strict(now)
        said, wanted = both
        if not (self.out / COMPLETE).exists():
            said, wanted = ({key: one.get(key) for key in _FIXED} for one in both)
        different = first_difference(said, wanted)
        if different is not None and different[0].startswith("stages."):
            # A hash says nothing to people: what it stands for does.
            before, after = ({key: one["recipe"].get(key) for key in _STAGING} for one in both)
            different = first_difference(before, after, "recipe") or different
        if different is not None:
            place, before, after = different
            raise ManifestError("MAN010", f"{place} differs", path=path, expected=before, found=after, hint=_ANOTHER)

    def _same_inputs(self, record: dict[str, Any]) -> None:
        """Raise `ManifestError` (MAN010) where files that a finished mix was read from are others now."""
        place = place_of(self.recipe, self.folder, self.settings)
        for table, said in zip(self.recipe.source, record["sources"], strict=True):
            if table.kind != "files":
                continue
            inputs = open_source(table, place).inputs()
            known = {one["path"]: one["sha256"] for one in said["inputs"]}
            there = {one.path: one for one in inputs}
            changed = [
                path for path, digest in known.items() if path not in there or sha256_file(there[path].key) != digest
            ]
            if changed or len(inputs) != len(known) + said["inputs_not_read"]:
                found = changed[0] if changed else f"{len(inputs)} inputs"
                raise _differ(self.out, f"inputs of source {table.name!r} differ", found)
        if self.recipe.decontaminate is not None:
            sets = load_evals(self.recipe.decontaminate, self.folder)
            reports = loads_strict((self.out / AUDIT).read_bytes(), self.out / AUDIT)["evals"]
            for one, before in zip(sets, reports, strict=True):
                if [{"path": path, "sha256": digest} for path, digest in one.files] != before["files"]:
                    raise _differ(self.out, f"files of evaluation set {one.name!r} differ", one.files[0][0])

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
        written = write_shards(mix, shards, self.threads)
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
        origins = {one.name: _origin(one) for one in self.recipe.source}
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


def _differ(out: Path, what: str, found: str) -> ManifestError:
    return ManifestError("MAN010", what, path=out / RECORD, found=found, hint=_ANOTHER)


def _every_option(value: Any) -> Any:
    """Return a recipe's table with every key, those that were left out too."""
    if isinstance(value, msgspec.Struct):
        return {name: _every_option(getattr(value, name)) for name in value.__struct_fields__}
    return [_every_option(one) for one in value] if isinstance(value, list | tuple) else value


def _below(finished: Any, folder: str) -> Any:
    """Return a finished shard with its paths below `folder`."""
    files = tuple(replace(file, path=file.path.removeprefix(folder)) for file in finished.files)
    return replace(finished, name=finished.name.removeprefix(folder), files=files)


def _origin(table: Any) -> str:
    if table.kind == "hub":
        return (
            f"{table.repo}{f' at {table.revision}' if table.revision else ''}: {', '.join(table.paths) or 'all files'}"
        )
    return f"the token corpus {table.path}" if table.kind == "tokens" else ", ".join(table.paths)
