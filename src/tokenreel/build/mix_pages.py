"""Pages that a mix writes for people: ``ATTRIBUTION.md``, whose text it is, and ``MIX_PLAN.md``, what was taken and why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenreel.config.mixed import MixedSourceTable

_COMMIT = re.compile(r"@([0-9a-f]{40})/")


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


def origin_of(table: MixedSourceTable, inputs: Sequence[str]) -> str:
    """Return where a source is from; of a hub's the commit that was read, as the paths of its inputs have it.

    >>> from tokenreel.config.mixed import MixedSourceTable
    >>> table = MixedSourceTable(name="web", kind="hub", repo="me/web", paths=["data/*"])
    >>> origin_of(table, [f"hf://datasets/me/web@{'0a' * 20}/data/0.jsonl"])
    'https://huggingface.co/datasets/me/web at 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a: data/*'
    """
    if table.kind == "tokens":
        return f"the token corpus {table.path}"
    files = ", ".join(table.paths) or "all files"
    if table.kind == "files":
        return files
    commits = sorted({found[1] for path in inputs if (found := _COMMIT.search(path))})
    return f"https://huggingface.co/datasets/{table.repo} at {', '.join(commits) or table.revision or 'main'}: {files}"


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
        "| source | budget | tokens staged | docs seen | docs kept | complete | documents in the mix | tokens | why |",
        "|---|---:|---:|---:|---:|---|---:|---:|---|",
    ]
    for one in sources:
        budget = f"{one['budget']:,}" if one["budget"] is not None else "all"
        reason = (one.get("reason") or "").replace("|", "\\|").replace("\n", " ")
        lines.append(
            f"| {one['name']} | {budget} | {one['tokens_staged']:,} | {one['docs_seen']:,} "
            f"| {one['docs_staged']:,} | {one['complete']} | {one['documents']:,} | {one['tokens']:,} | {reason} |"
        )
    lines += ["", "## Dropped", ""]
    for one in sources:
        said = ", ".join(f"{rule} {count:,}" for rule, count in one["dropped"].items())
        lines.append(f"- {one['name']}: {said or 'nothing'}")
    lines += ["", "## Choices", "", "What the published descriptions leave open, and what was chosen here.", ""]
    lines += [f"- {key}: {value}" for key, value in options.items()]
    return "\n".join([*lines, ""])
