"""Pages that a mix writes for people: ``ATTRIBUTION.md``, whose text it is, and ``MIX_PLAN.md``, what was taken and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def attribution(name: str, sources: Sequence[Mapping[str, Any]], origins: Mapping[str, str]) -> str:
    """Return the page of licences and transformations; `origins` say where each source is from.

    >>> print(attribution("mix", [{"name": "a", "licence": "CC0"}], {"a": "a.jsonl"}).splitlines()[2])
    ## a
    """
    lines = [f"# Sources of {name}", ""]
    for one in sources:
        lines += [
            f"## {one['name']}",
            "",
            f"- from: {origins.get(one['name'], '')}",
            f"- licence: {one.get('licence') or 'not stated in the recipe'}",
            f"- transformations: {one.get('transformations') or 'those of the recipe, see MIX_PLAN.md'}",
            "",
        ]
    return "\n".join(lines)


def mix_plan(name: str, sources: Sequence[Mapping[str, Any]], steps: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return the page of what was asked for and what came of it."""
    lines = [
        f"# Mix {name}",
        "",
        "## Steps",
        "",
        *(f"{k}. {step}" for k, step in enumerate(steps, 1)),
        "",
        "## Sources",
        "",
    ]
    lines += [
        "| source | budget | tokens staged | docs seen | complete | documents | tokens | why |",
        "|---|---:|---:|---:|---|---:|---:|---|",
    ]
    for one in sources:
        budget = f"{one['budget']:,}" if one["budget"] is not None else "all"
        reason = (one.get("reason") or "").replace("|", "\\|").replace("\n", " ")
        lines.append(
            f"| {one['name']} | {budget} | {one['tokens_staged']:,} | {one['docs_seen']:,} | {one['complete']} "
            f"| {one['documents']:,} | {one['tokens']:,} | {reason} |"
        )
    lines += ["", "## Dropped", ""]
    for one in sources:
        said = ", ".join(f"{rule} {count:,}" for rule, count in one["dropped"].items())
        lines.append(f"- {one['name']}: {said or 'nothing'}")
    lines += ["", "## Choices", "", "What the published descriptions leave open, and what was chosen here.", ""]
    lines += [f"- {key}: {value}" for key, value in options.items()]
    return "\n".join([*lines, ""])
