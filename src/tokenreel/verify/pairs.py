"""Rules over the shards themselves: structure of every pair, one dtype, the order of shard names."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tokenreel.corpus.layout import order_finding
from tokenreel.errors import TokenreelError
from tokenreel.formats.megatron_check import OVERRULABLE, check_pair
from tokenreel.verify.finding import Finding
from tokenreel.verify.other_files import what_is_there
from tokenreel.verify.target import tokenizer_fact
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from tokenreel.formats import Found, Problem
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target

MOST_PROBLEMS = 1000
"""Problems of one shard that are listed; a table damaged throughout has one per entry."""


def check_structure(target: Target, findings: Findings) -> None:
    """Add every structural problem of every shard: header, size equation, pointers, document index.

    Cost: reads every ``.idx`` once, about 10 ms per million documents.
    """
    if not target.shards and not target.built:
        if target.at_work:
            findings.incomplete("MAN046", "a build is at work in this folder and has written nothing yet")
        else:
            findings.error("DOC006", what_is_there(target), found=counted(len(target.sizes), "file"))
    for found in target.shards:
        _check_one(target, found, findings)


def _check_one(target: Target, found: Found, findings: Findings) -> None:
    try:
        problems = list(islice(check_pair(target.store, found.name), MOST_PROBLEMS))
    except TokenreelError as error:
        findings.caught(error, target.store.root, shard=found.name)
        target.broken.add(found.name)
        return
    for problem in problems:
        accepted = problem.code in target.accept and problem.code in OVERRULABLE
        if not accepted:
            target.broken.add(found.name)
        findings.add(_as_finding(problem, found, accepted=accepted))
    if len(problems) == MOST_PROBLEMS:
        findings.skip(
            f"the rest of the tables of {found.name}",
            f"{MOST_PROBLEMS} problems are listed",
            f"tokenreel verify {found.name} after mending those",
        )


def _as_finding(problem: Problem, found: Found, *, accepted: bool) -> Finding:
    return Finding(
        problem.code,
        "information" if accepted else "error",
        problem.message,
        problem.path,
        problem.offset,
        found.name,
        problem.document,
        problem.expected,
        problem.found,
    )


def check_dtypes(target: Target, findings: Findings) -> None:
    """Add a finding for every shard whose integer type is not the first one's, or not the recorded one."""
    config = target.run_config.value if target.run_config else None
    manifest = target.manifest.value if target.manifest else None
    said = [
        (sidecar.path, dtype)
        for sidecar, dtype in (
            (target.run_config, config.dtype if config else None),
            (target.manifest, manifest.dtype if manifest else None),
        )
        if sidecar is not None and dtype is not None
    ]
    first: tuple[str, str] | None = None
    for found, shard in target.opened():
        name = shard.dtype.name
        first = first or (found.name, name)
        if name != first[1]:
            findings.error("TOK002", shard=found.name, expected=f"{first[1]}, as in {first[0]}", found=name)
        for path, dtype in said:
            if name != dtype:
                findings.error("TOK025", shard=found.name, expected=f"{dtype}, as {path} says", found=name)


def check_dtype_rule(target: Target, findings: Findings) -> bool:
    """Add a finding when the recorded dtype is not the one that the tokenizer's largest id gives; False: not recorded.

    At most 65535: uint16, else int32. Megatron's own rule (vocabulary below 65,500) is accepted as well.
    """
    config = target.run_config.value if target.run_config else None
    if target.run_config is None or config is None:
        return False
    largest, size = tokenizer_fact(target, "largest_id", int), tokenizer_fact(target, "vocab_size", int)
    if config.dtype is None or largest is None:
        findings.skip("dtype against the tokenizer's largest id", "run_config.json does not record both")
        return False
    largest = max(largest, config.eod_id or 0)
    allowed = {"uint16" if largest <= 65535 else "int32"}
    if size is not None:
        legacy = "uint16" if size < 65500 else "int32"
        if legacy == "int32" or largest <= 65535:
            allowed.add(legacy)
    if config.dtype not in allowed:
        findings.error(
            "TOK026",
            path=target.run_config.path,
            expected=f"{' or '.join(sorted(allowed))}: the largest id is {largest}",
            found=config.dtype,
        )
    return True


def check_names(target: Target, findings: Findings) -> None:
    """Warn where the byte order of shard names, in which they are read, is not their numeric order."""
    for chosen in target.splits().values():
        pair = order_finding([found.name for found in chosen])
        if pair is not None:
            findings.warning(
                "DOC010",
                f"{pair[0]} is read before {pair[1]}",
                shard=pair[0],
                expected="numbers padded with zeros",
                found=f"{pair[0]} before {pair[1]}",
            )
