"""One batch of documents through the stages: what stays, as rows of a staged part, and what went, each for one reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.gates import GateInput, judge_all
from tokenreel.build.staging_receipt import EXAMPLES, Example, Reason
from tokenreel.build.staging_rows import record_batch
from tokenreel.build.text_batches import Dropped, TextBatch
from tokenreel.errors import SourceError, TokenError, TokenreelError
from tokenreel.text.normalise import text_id
from tokenreel.text.recheck import Rechecked, recheck_batch
from tokenreel.text.texts import text_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.build.gates import Gate
    from tokenreel.build.staging_plan import Staging
    from tokenreel.text.engines import Encoder
    from tokenreel.text.normalise import Normaliser


@dataclass(slots=True)
class Counts:
    """Counts of one part."""

    seen: int = 0
    kept: int = 0
    text_tokens: int = 0
    text_bytes: int = 0
    capped: int = 0
    capped_tokens: int = 0
    special: int = 0
    inside: int = 0
    urls: int = 0
    upstream: int = 0
    blank: int = 0
    largest: int = -1
    rechecked: Rechecked = field(default_factory=Rechecked)
    reasons: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: dict[tuple[str, str], list[Example]] = field(default_factory=dict)

    def drop(self, gone: Sequence[Dropped]) -> None:
        """Count dropped documents."""
        for one in gone:
            key = one.stage, one.rule
            self.reasons[key] = self.reasons.get(key, 0) + 1
            shown = self.examples.setdefault(key, [])
            if len(shown) < EXAMPLES:
                shown.append(Example(record=one.record, value=one.value, upstream_id=one.upstream))

    def add(self, ids: Any, lengths: Any, full: Any, special: Any, eod_id: int) -> None:
        """Count kept documents."""
        self.kept += len(lengths)
        self.text_tokens += len(ids)
        self.special += int(special.sum())
        self.capped += int(np.count_nonzero(full - lengths))
        self.capped_tokens += int((full - lengths).sum())
        if len(ids):
            self.largest = max(self.largest, int(ids.max()))
            self.inside += int(np.count_nonzero(ids == eod_id))

    def as_reasons(self) -> tuple[Reason, ...]:
        """Return the reasons, by stage and rule."""
        return tuple(
            Reason(stage=stage, rule=rule, documents=count, examples=tuple(self.examples[stage, rule]))
            for (stage, rule), count in sorted(self.reasons.items())
        )


@dataclass(slots=True, eq=False)
class Documents:
    """The documents of a batch that are alive, with their numbers in it."""

    batch: TextBatch
    rows: npt.NDArray[np.int64]
    texts: Any
    gone: list[Dropped] = field(default_factory=list)

    def record(self, row: int) -> int:
        """Return the number in its input of the batch's document `row`."""
        return self.batch.first + row if self.batch.numbers is None else int(self.batch.numbers[row])

    def drop(self, stays: npt.NDArray[np.bool_], stage: str, rules: Sequence[tuple[str, str]]) -> None:
        """Drop what does not stay; `rules` are (rule, value) of each, in order."""
        upstream = self.batch.upstream
        for at, (rule, value) in zip(np.flatnonzero(~stays).tolist(), rules, strict=True):
            row = int(self.rows[at])
            text = self.texts[at].as_py()
            name = None if upstream is None else upstream[row]
            self.gone.append(Dropped(self.record(row), stage, rule, value, name, text_id(text)))
        self.take(np.flatnonzero(stays))

    def take(self, at: npt.NDArray[np.int64]) -> None:
        """Keep only these of those that are alive."""
        if len(at) < len(self.rows):
            self.rows = self.rows[at]
            self.texts = self.texts.take(at)

    def judge(self, gates: Sequence[Gate], stage: str, tokens: npt.NDArray[np.int64] | None = None) -> Any:
        """Drop what gates drop; returns which stayed, None where all did."""
        if not gates or not len(self.rows):
            return None
        pick = self.rows.tolist()
        columns = {name: [values[k] for k in pick] for name, values in self.batch.columns.items()}
        verdicts = judge_all(gates, GateInput(self.texts, columns, tokens))
        if not verdicts:
            return None
        stays = np.ones(len(self.rows), np.bool_)
        stays[[one.row for one in verdicts]] = False
        self.drop(stays, stage, [(one.rule, one.value) for one in verdicts])
        return stays


def stage_batch(
    batch: TextBatch, staging: Staging, encoder: Encoder, counts: Counts, tokens_before: int
) -> tuple[Any, list[Dropped], bool]:
    """Return (record batch of kept documents or None, dropped documents, whether the budget is reached).

    Documents after the one that reaches the budget were not seen. Raises what `stage_input` raises.
    """
    table = staging.table
    counts.blank += batch.blank
    alive = Documents(batch, np.arange(len(batch)), _checked(batch, encoder))
    alive.gone += batch.dropped
    _normalise(alive, staging)
    _drop_empty(alive, staging)
    alive.judge(staging.before, "gate")
    ids, lengths, special = _tokenised(alive, staging, encoder)
    if table.min_tokens and len(lengths):
        stays = lengths >= table.min_tokens
        short = lengths[~stays].tolist()
        alive.drop(stays, "min_tokens", [(f"tokens < {table.min_tokens}", str(one)) for one in short])
        ids, lengths, special = _picked(ids, lengths, special, stays)
    stays = alive.judge(staging.after, "gate", lengths)
    if stays is not None:
        ids, lengths, special = _picked(ids, lengths, special, stays)
    full = lengths
    if table.max_doc_tokens is not None:
        # The boundary token counts: a capped document has exactly so many tokens in the corpus.
        lengths = np.minimum(full, table.max_doc_tokens - 1)
    reached, end = _budget(lengths, table.budget, tokens_before + counts.text_tokens + counts.kept)
    gone = sorted(alive.gone, key=lambda one: one.record)
    if reached:
        last = alive.record(int(alive.rows[end - 1]))
        gone = [one for one in gone if one.record <= last]
    counts.drop(gone)
    counts.seen += end + len(gone)
    if not end:
        return None, gone, reached
    alive.take(np.arange(end))
    full, lengths, special = full[:end], lengths[:end], special[:end]
    _recheck(alive, staging, encoder, ids[: int(full.sum())], full, counts)
    ids = _first_tokens(ids, full, lengths)
    _check_ids(ids, lengths, staging, alive)
    counts.add(ids, lengths, full, special, staging.plan.eod_id)
    rows = record_batch(batch, alive.rows, alive.texts, staging, ids, lengths, full)
    counts.text_bytes += len(text_bytes(alive.texts)[0])
    counts.urls += end - rows.column("url").null_count
    counts.upstream += end - rows.column("upstream_id").null_count
    return rows, gone, reached


def _checked(batch: TextBatch, encoder: Encoder) -> Any:
    """Return the batch's texts, valid; those of ids are what the tokenizer decodes them to."""
    import pyarrow as pa

    if batch.ids is not None:
        return pa.array([encoder.tok.decode(one) for one in batch.ids], pa.large_string())
    if batch.explain is not None:
        try:
            batch.texts.validate(full=True)
        except pa.ArrowInvalid:
            batch.explain()
            raise
    return batch.texts


def _normalise(alive: Documents, staging: Staging) -> None:
    import pyarrow as pa

    rule = staging.normaliser
    if rule.kind == "none" or not len(alive.rows):
        return
    if rule.kind == "nfc":
        alive.texts = _nfc(alive.texts, rule)
        return
    made = [rule(text) for text in alive.texts.to_pylist()]
    stays = np.array([one is not None for one in made], np.bool_)
    if not stays.all():
        alive.drop(stays, "normalise", [(f"{rule.kind}: blank", "")] * int(np.count_nonzero(~stays)))
    alive.texts = pa.array([one for one in made if one is not None], pa.large_string())


def _nfc(texts: Any, rule: Normaliser) -> Any:
    """Return the texts in NFC: as they are where none changes; what is ASCII never does."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wide = pc.invert(pc.string_is_ascii(texts))
    given = texts.filter(wide).to_pylist()
    made = [rule(text) for text in given]
    if made == given:
        return texts
    return pc.replace_with_mask(texts, wide, pa.array(made, pa.large_string()))


def _drop_empty(alive: Documents, staging: Staging) -> npt.NDArray[np.bool_] | None:
    """Drop texts of no character, or raise `SourceError` (SRC016), as the recipe says; returns which stayed."""
    how = staging.plan.recipe.documents.empty
    if how == "keep" or not len(alive.rows):
        return None
    stays: npt.NDArray[np.bool_] = np.diff(text_bytes(alive.texts)[1]) > 0
    if bool(stays.all()):
        return None
    if how == "error":
        row = int(alive.rows[int(np.argmin(stays))])
        raise SourceError(
            "SRC016",
            path=staging.name,
            line=None if alive.batch.lines is None else alive.batch.lines[row],
            document=alive.record(row),
            hint='set empty = "keep" or "drop" in [documents]',
        )
    alive.drop(stays, "documents", [("empty", "0 characters")] * int(np.count_nonzero(~stays)))
    return stays


def _tokenised(
    alive: Documents, staging: Staging, encoder: Encoder
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return ids end to end, lengths, and special tokens spelled in each text; texts become those that were encoded."""
    if not len(alive.rows):
        return np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.int64)
    if alive.batch.ids is not None:
        chosen = [alive.batch.ids[row] for row in alive.rows.tolist()]
        lengths = np.array([len(one) for one in chosen], np.int64)
        return np.concatenate(chosen).astype(np.uint32), lengths, np.zeros(len(chosen), np.int64)
    try:
        found = encoder.encode_counted(alive.texts, checked=True)
    except TokenreelError as error:
        raise _placed(error, alive) from error
    ids, lengths, special = found.ids, found.lengths, found.special
    if found.texts is not alive.texts:
        alive.texts = found.texts
        # A text of special tokens alone is empty only now.
        stays = _drop_empty(alive, staging)
        if stays is not None:
            ids, lengths, special = _picked(ids, lengths, special, stays)
    return ids, lengths, special


def _recheck(alive: Documents, staging: Staging, encoder: Encoder, ids: Any, lengths: Any, counts: Counts) -> None:
    """Compare one document in N of those kept, by their number in the part, with the reference."""
    if alive.batch.ids is not None:
        return
    one_in = staging.plan.recipe.tokenizer.recheck
    try:
        counts.rechecked += recheck_batch(encoder, alive.texts, ids, lengths, counts.kept, one_in=one_in)
    except TokenreelError as error:
        number = error.where.get("document")
        if isinstance(number, int):
            error.where["document"] = number - counts.kept
        raise _placed(error, alive) from error


def _placed(error: TokenreelError, alive: Documents) -> TokenreelError:
    """Return the error with the record's number in its input in place of its number in the batch."""
    where = dict(error.where)
    at, message = where.get("document"), error.message
    if "offset" in where:
        message = f"{message or error.title}, at byte {where.pop('offset')} of the document's text"
    if isinstance(at, int) and 0 <= at < len(alive.rows):
        row = int(alive.rows[at])
        where["document"] = alive.record(row)
        if alive.batch.lines is not None:
            where["line"] = alive.batch.lines[row]
    again = type(error)(error.code, message, expected=error.expected, found=error.found, hint=error.hint)
    again.where = where
    return again


def _picked(ids: Any, lengths: Any, special: Any, stays: npt.NDArray[np.bool_]) -> tuple[Any, Any, Any]:
    return ids[np.repeat(stays, lengths)], lengths[stays], special[stays]


def _budget(lengths: npt.NDArray[np.int64], budget: int | None, before: int) -> tuple[bool, int]:
    """Return whether the budget is reached, and how many documents are taken: to the one that reaches it.

    >>> _budget(np.array([4, 4, 4]), 9, 0), _budget(np.array([4, 4]), 100, 0)
    ((True, 2), (False, 2))
    """
    if budget is None:
        return False, len(lengths)
    sums = before + np.cumsum(lengths + 1)
    at = int(np.searchsorted(sums, budget, side="left"))
    return (True, at + 1) if at < len(lengths) else (False, len(lengths))


def _first_tokens(ids: Any, full: Any, lengths: Any) -> npt.NDArray[np.uint32]:
    """Return the first `lengths` ids of documents whose ids are `full` long; `ids` may go on behind them.

    >>> _first_tokens(np.arange(6), np.array([3, 2]), np.array([1, 2])).tolist()
    [0, 3, 4]
    """
    edges = np.concatenate(([0], np.cumsum(full)))
    if bool((full == lengths).all()):
        taken: npt.NDArray[np.uint32] = ids[: edges[-1]]
        return taken
    parts = [ids[low : low + size] for low, size in zip(edges[:-1].tolist(), lengths.tolist(), strict=True)]
    return np.concatenate(parts)


def _check_ids(ids: Any, lengths: Any, staging: Staging, alive: Documents) -> None:
    """Raise `TokenError` where an id does not fit (TOK010), or the EOD stands inside a text that must not have it (TOK012)."""
    plan = staging.plan
    special = plan.recipe.tokenizer.special_in_text == "special" or staging.table.kind == "tokens"
    for code, bad, expected in (
        (
            "TOK010",
            ids > plan.largest_id if int(ids.max(initial=0)) > plan.largest_id else None,
            f"0..{plan.largest_id}",
        ),
        ("TOK012", None if special else ids == plan.eod_id, "no EOD inside a text"),
    ):
        if bad is None or not bool(bad.any()):
            continue
        at = int(bad.argmax())
        row = int(alive.rows[int(np.searchsorted(np.cumsum(lengths), at, side="right"))])
        raise TokenError(
            code,
            f"source {staging.name!r}",
            document=alive.record(row),
            expected=expected,
            found=int(ids[at]),
            hint='set special_in_text = "special" to allow it' if code == "TOK012" else None,
        )
