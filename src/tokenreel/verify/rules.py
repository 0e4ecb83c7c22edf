"""The table of rules over names, tables and sidecars; rules over ids run beside the reading of them (`stream`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenreel.corpus.opening import MIX_CONFIG
from tokenreel.corpus.unfinished import UNFINISHED
from tokenreel.verify.agreement import check_agreement, check_lossless, check_shape, check_tokenizer_facts
from tokenreel.verify.attested import check_sizes
from tokenreel.verify.begun import check_begun, is_begun
from tokenreel.verify.files import check_layout, check_mix, check_named, check_parts, check_unnamed, tokenizer_file
from tokenreel.verify.left_out import check_left_out, check_one_format, check_sets
from tokenreel.verify.manifest import check_manifest
from tokenreel.verify.mixes import RECORD_CODES, check_mix_records, is_mix
from tokenreel.verify.pairs import check_dtype_rule, check_dtypes, check_names, check_structure, tell_notices
from tokenreel.verify.receipts import check_inputs, check_receipt_shards, check_receipts
from tokenreel.verify.totals import check_complete, check_spelling, check_stats, check_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: cheap, and run at both levels."""

    what: str
    """What it checks, in words: reports list it."""
    codes: tuple[str, ...]
    """Codes, or beginnings of codes, that it can give."""
    check: Callable[[Target, Findings], bool | None]
    """Adds findings; returns False where there was nothing to look at."""
    needs: Callable[[Target], object] = lambda _: True
    """Whether there is something to check; a rule without is not reported as having run."""
    whole: bool = True
    """Whether it needs the whole corpus, not one split or one shard."""


FAMILIES = ("MEG", "LMC", "FLT", "OFF", "OLM", "DTV", "MDS", "LIT", "LEV", "PQT", "PBN")
"""Of codes of formats."""


def _sidecars(target: Target) -> object:
    return target.built or target.manifest


def _readable(target: Target) -> object:
    return next(target.opened(), None)


RULES: tuple[Rule, ...] = (
    Rule("a conversion that wrote here came to its end", (UNFINISHED,), check_begun, is_begun, whole=False),
    Rule(
        "headers, sizes and tables of every shard",
        (*FAMILIES, "STO", "SID", "DOC006"),
        check_structure,
        lambda target: target.shards or not target.built,
        whole=False,
    ),
    Rule("what is worth knowing of these formats", ("LIT020",), tell_notices),
    Rule("one integer type, and the recorded one", ("TOK002", "TOK025"), check_dtypes, _readable, whole=False),
    Rule(
        "the integer type is what the tokenizer's largest id gives",
        ("TOK026",),
        check_dtype_rule,
        lambda target: target.run_config,
        whole=False,
    ),
    Rule(
        "shards are read in the order their numbers say",
        ("DOC010",),
        check_names,
        lambda target: len(target.files) > 1 and not any(found.order for found in target.files),
        whole=False,
    ),
    Rule("one format", ("FLT006",), check_one_format, lambda target: target.files),
    Rule(
        "sets of numbered shards have all their members",
        ("DOC014", "DOC015"),
        check_sets,
        lambda target: target.only is None and target.files,
        whole=False,
    ),
    Rule(
        "no file that looks like ids and that nothing reads", ("FLT009",), check_left_out, lambda target: target.files
    ),
    Rule("every file that is named is there, with its size", ("MAN004",), check_named, _sidecars, whole=False),
    Rule("files with a recorded checksum are there, with their size", ("MAN004",), check_sizes),
    Rule("no file that nothing names", ("MAN043", "MAN045"), check_unnamed, _sidecars),
    Rule("no file that the layout does not have", ("MAN063",), check_layout, lambda target: target.built),
    Rule(
        "every part is there, and COMPLETE.json",
        ("MAN004", "MAN045", "MAN046"),
        check_parts,
        lambda target: target.built,
    ),
    Rule(
        "the mix came to its end",
        ("MAN046",),
        check_mix,
        lambda target: MIX_CONFIG in target.sizes,
    ),
    Rule("records of a mix against each other and what they name", RECORD_CODES, check_mix_records, is_mix),
    Rule(
        "receipts: sums, sizes, files, run_config.json",
        ("MAN003", "MAN012", "MAN044", "MAN049", "MAN064"),
        check_receipts,
        lambda target: target.receipts,
    ),
    Rule(
        "receipts against shards",
        ("MAN041",),
        check_receipt_shards,
        lambda target: target.receipts,
        whole=False,
    ),
    Rule(
        "receipts: documents that decode back",
        ("MAN012", "MAN060"),
        check_lossless,
        lambda target: target.receipts,
    ),
    Rule(
        "inputs of receipts against run_config.json",
        ("MAN054",),
        check_inputs,
        lambda target: (
            target.receipts and target.run_config and target.run_config.value and target.run_config.value.inputs
        ),
    ),
    Rule(
        "stats.json against the sum of receipts",
        ("MAN048",),
        check_stats,
        lambda target: target.receipts and target.stats,
    ),
    Rule(
        "tokenreel.json against shards and receipts",
        ("MAN012", "MAN043", "MAN052", "MAN053"),
        check_manifest,
        lambda target: target.manifest,
    ),
    Rule(
        "tokenreel.json: every shard in its split, nothing left out",
        ("MAN003", "MAN052"),
        check_shape,
        lambda target: target.manifest,
    ),
    Rule(
        "run_config.json and tokenreel.json agree",
        ("MAN060",),
        check_agreement,
        lambda target: target.run_config,
    ),
    Rule(
        "what run_config.json says of the tokenizer, by the tokenizer",
        ("MAN062",),
        check_tokenizer_facts,
        lambda target: target.run_config,
        whole=False,
    ),
    Rule("the tokenizer in the output against run_config.json", ("MAN057",), check_tokenizer, tokenizer_file),
    Rule(
        "COMPLETE.json against everything it names",
        ("MAN003", "MAN004", "MAN047", "MAN051"),
        check_complete,
        lambda target: target.complete,
    ),
    Rule("JSON files stand as they were written", ("MAN050",), check_spelling, _sidecars),
)
"""In the order they run; the first one always runs: it settles which shards can be read."""
