"""Stage one input: read, normalise, gate, tokenise, gate again, cap; kept documents, dropped ones, and a receipt.

Everything here depends on the input's bytes and the recipe alone: not on the worker, chunks, or time.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.build.staging_batch import Counts, stage_batch
from tokenreel.build.staging_parts import part_stem, schema, source_folder
from tokenreel.build.staging_plan import keeps_text, signs
from tokenreel.build.staging_receipt import StageReceipt, sealed
from tokenreel.build.staging_write import ArrowWriter, dropped_batch, dropped_schema
from tokenreel.corpus.receipts import dump
from tokenreel.errors import SourceError, TokenreelError
from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenreel.build.staging_plan import StageJob, Staging
    from tokenreel.text.engines import Encoder


def stage_input(
    job: StageJob, staging: Staging, encoder: Encoder, tick: Callable[[int, int], None] | None = None
) -> StageReceipt:
    """Stage one input and return its receipt, which is written last. `tick` gets bytes of text and tokens so far.

    Memory: a few chunks, a batch of a million ids, and the longest document. Raises what is wrong with the input
    (`SourceError`), the text (`TokenizerError`), the ids (`TokenError`), a gate (`RecipeError`) or the disk
    (`StorageError`); nothing is left half-written then.
    """
    try:
        return _stage(job, staging, encoder, tick)
    except TokenreelError as error:
        # Which source it was, also where the error is about a file or a server; and which file, where it is about a document.
        if "document" in error.where and error.where.get("path") in (None, staging.name):
            error.where = {**error.where, "path": job.input.path}
        error.where.setdefault("shard", job.part)
        raise


def _stage(job: StageJob, staging: Staging, encoder: Encoder, tick: Callable[[int, int], None] | None) -> StageReceipt:
    plan, recipe = staging.plan, staging.plan.recipe
    folder = Path(plan.stage) / source_folder(staging.name)
    stem = part_stem(job.number)
    # A part that is staged again may have had files before: a receipt without them must never be seen.
    (folder / f"{stem}.json").unlink(missing_ok=True)
    (folder / f"{stem}.dropped.arrow").unlink(missing_ok=True)
    counts, reached = Counts(), False
    kind = schema(text=keeps_text(recipe), near=signs(recipe))
    with contextlib.ExitStack() as stack:
        writer = ArrowWriter(stack, folder / f"{stem}.arrow", kind)
        listed: ArrowWriter | None = None
        batches = staging.source.read(job.input)
        with contextlib.closing(batches):  # type: ignore[type-var]
            for batch in batches:
                kept, gone, reached = stage_batch(batch, staging, encoder, counts, job.tokens_before)
                if kept is not None:
                    writer.add(kept)
                if gone:
                    listed = listed or ArrowWriter(stack, folder / f"{stem}.dropped.arrow", dropped_schema())
                    listed.add(dropped_batch(gone))
                if tick is not None:
                    tick(min(job.bytes, counts.text_bytes), counts.text_tokens + counts.kept)
                if reached:
                    break
        facts = staging.source.facts(job.input)
        outside = facts.position.get("outside_sample")
        if not counts.seen and not outside and recipe.documents.empty_inputs == "error":
            raise SourceError(
                "SRC009",
                path=job.input.path,
                expected="at least one document",
                found=f"{facts.bytes} bytes",
                hint='remove it, or set empty_inputs = "allow" in [documents]',
            )
        data = writer.finish(f"{stem}.arrow")
        dropped_list = None if listed is None else listed.finish(f"{stem}.dropped.arrow")
    receipt = sealed(
        StageReceipt(
            source=staging.name,
            part=job.number,
            path=job.input.path,
            input=facts,
            plan_sha256=plan.plans[staging.number],
            tokens_before=job.tokens_before,
            reached=reached,
            docs_seen=counts.seen,
            kept=counts.kept,
            dropped=counts.as_reasons(),
            tokens_staged=counts.text_tokens + counts.kept,
            text_tokens=counts.text_tokens,
            text_bytes=counts.text_bytes,
            capped=counts.capped,
            capped_tokens=counts.capped_tokens,
            special_in_text=counts.special,
            eod_inside=counts.inside,
            rechecked=counts.rechecked.checked,
            decoded_back=counts.rechecked.decoded_back,
            with_url=counts.urls,
            with_upstream_id=counts.upstream,
            blank_lines=counts.blank,
            largest_id=counts.largest,
            data=data,
            dropped_list=dropped_list,
        )
    )
    write_bytes_atomic(folder / f"{stem}.json", dump(receipt))
    return receipt
