"""Every choice of a mix that a published description leaves open, by the name its specification gives it, with its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenreel.build.settings import Settings
    from tokenreel.config.mixed import MixedRecipe


def assumptions(recipe: MixedRecipe, settings: Settings) -> dict[str, Any]:
    """Return what was chosen: A-O of ounce100m, A-H of the HobbyLM long-context corpus."""
    dedup, audit, shards = recipe.dedup, recipe.decontaminate, recipe.output.shard_tokens
    lead = recipe.tokenizer.eod_at == "begin"
    groups = {table.name: table.group for table in recipe.source if table.group is not None}
    return {
        "A-O1 flags of a shard": 0,
        "A-O2 end-of-text token": f"id {settings.eod_id}, {'before' if lead else 'after'} every document, counted in its length",
        "A-O3 end of a shard": f"after the document that reaches {shards.train:,} tokens (train), {shards.val:,} (val)",
        "A-O4 validation": "whole documents, of all sources",
        "A-O5 split rule": split_said(recipe),
        "A-O6 normalisation": recipe.normalise.kind,
        "A-O7 scope of keys": "no dedup" if dedup is None else f"url {dedup.url_scope}, id {dedup.id_scope}",
        "A-O8 merge order": f"{recipe.merge.how}"
        + (f", seed {recipe.merge.seed}" if recipe.merge.how == "shuffle" else ""),
        "A-O10 audit": "none"
        if audit is None
        else f"{audit.n}-grams of {audit.by}; strong from {audit.strong:.0%} of an item's; removed: {audit.remove}",
        "A-H1 tables": "shard, offset and length of every document, as objects"
        if recipe.layout == "hobbylm"
        else "none",
        "A-H2 documents and shards": "a document lies in one shard",
        "A-H3 lengths": f"with the end-of-text token, {'leading' if lead else 'ending'}",
        "A-H4 metadata": "in an object of its own",
        "A-H5 fragments at the head": "as documents, where a token corpus is split by its inline token",
        "A-H10 waste": "chunked and truncated are both given",
        "A-H11 caps": ", ".join(
            f"{t.name}: the first {t.max_doc_tokens:,} tokens" for t in recipe.source if t.max_doc_tokens
        ),
        "A-H12 majority": ", ".join(f"{name}: {g.language} > {g.majority:.0%} of bytes" for name, g in groups.items()),
        "A-H13 classes of files": "setup, __init__, sources, tests; tests come before the others" if groups else "",
        "A-H14 between files": ", ".join(f"{name}: {g.separator!r}, headers {g.headers}" for name, g in groups.items()),
    }


def split_said(recipe: MixedRecipe) -> str:
    """Return the split rule in words."""
    split = recipe.split
    if split is None or split.rule == "none":
        return "none"
    if split.rule == "every-nth":
        n = split.n or 0
        return f"merged document i is validation where i % {n} == {n - 1}, from 0, after duplicates went"
    return split.rule


def steps_said(recipe: MixedRecipe) -> list[str]:
    """Return what was done to documents, step by step."""
    steps = [f"normalise: {recipe.normalise.kind}"]
    for gate in recipe.gate:
        said = {k: v for k, v in (("min", gate.min), ("max", gate.max), ("column", gate.column)) if v is not None}
        what = ", ".join(
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in said.items()
        )
        steps.append(
            f"gate {gate.name or gate.kind}: {what or 'as configured'}"
            + (f" ({', '.join(gate.sources)})" if gate.sources else "")
        )
    dedup, audit = recipe.dedup, recipe.decontaminate
    if dedup is not None:
        by = [*(["text"] if dedup.exact else []), *dedup.by, *(["near text"] if dedup.near else [])]
        steps.append(
            f"dedup by {', '.join(by)}; the first in merged order stays; at most {dedup.max_removal:.0%} of a source"
        )
    if audit is not None:
        steps.append(
            f"audit: {audit.n}-grams of {audit.by} against {', '.join(one.name for one in audit.eval)}; removed: {audit.remove}"
        )
    steps.append(f"merge: {recipe.merge.how}")
    steps.append(f"split: {split_said(recipe)}")
    return steps
