"""Rules over the shards themselves: structure of every pair, one dtype, the order of shard names."""

from __future__ import annotations

import importlib
from itertools import islice
from typing import TYPE_CHECKING

from tokenreel.corpus.layout import order_finding, splits_of
from tokenreel.corpus.opening import MIX_COMPLETE, MIX_CONFIG
from tokenreel.errors import TokenreelError
from tokenreel.formats import open_shard
from tokenreel.formats.megatron_check import OVERRULABLE, check_pair
from tokenreel.formats.registry import format_named
from tokenreel.verify.finding import Finding
from tokenreel.verify.hobbylm_tables import check_tables
from tokenreel.verify.other_files import what_is_there
from tokenreel.verify.target import tokenizer_fact
from tokenreel.verify.there import MEGATRON, OUNCE, ounce_splits
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.formats import Found, Problem
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target

MOST_PROBLEMS = 1000
"""Problems of one shard that are listed; a table damaged throughout has one per entry."""


def check_structure(target: Target, findings: Findings) -> None:
    """Add every structural problem of every shard: header, size equation, tables.

    Cost: reads every table once, about 10 ms per million documents of a pair.
    """
    if not target.files and not target.built and not findings.total:
        if target.at_work:
            findings.incomplete("MAN046", "a build is at work in this folder and has written nothing yet")
        elif MIX_CONFIG in target.sizes and MIX_COMPLETE not in target.sizes:
            findings.skip("shards", "a mix that did not come to its end has none yet", "tokenreel build RECIPE")
        else:
            findings.error("DOC006", what_is_there(target), found=counted(len(target.sizes), "file"))
    for found in target.files:
        _check_one(target, found, findings)
    if target.streamed:
        _check_streams(target, findings)
    if target.whole and target.files and all(found.format == OUNCE for found in target.files):
        try:
            ounce_splits(target.store, target.sizes, target.files)
        except TokenreelError as error:
            findings.caught(error, target.store.root)


def tell_notices(target: Target, findings: Findings) -> bool:
    """Add what a format finds worth knowing of a sound folder of its shards; False: that is information, no check."""
    for name in sorted({found.format for found in target.files}) if target.whole and not target.broken else ():
        notices = getattr(importlib.import_module(format_named(name).module), "notices", None)
        mine = [found for found in target.files if found.format == name]
        for problem in notices(target.store, mine) if notices is not None else ():
            findings.add(_as_finding(problem, mine[0], accepted=True))
    return False


def _check_streams(target: Target, findings: Findings) -> None:
    """Find the documents of streams, and add what prevents it."""
    for unit in target.shards:
        if target.broken.intersection(_names(target, unit)):
            target.broken.add(unit.name)
            continue
        if check_tables(target, unit, findings):
            target.broken.add(unit.name)
            continue
        try:
            target.open(unit).check_table()
        except TokenreelError as error:
            findings.caught(error, target.store.root)
            target.broken.add(unit.name)


def _names(target: Target, unit: Found) -> set[str]:
    return {shard.name for shard in target.files if set(shard.files) <= set(unit.files)}


def problems_of(target: Target, found: Found) -> Iterator[Problem]:
    """Yield every problem of one shard: all of them for a pair or where the format lists them, else the first."""
    if found.format == MEGATRON:
        yield from check_pair(target.store, found.name)
        return
    row = format_named(found.format)
    check = getattr(importlib.import_module(row.module), "check", None)
    if check is not None:
        yield from check(target.store, found)
        return
    shard = open_shard(target.store, found, target.accept)
    try:
        shard.check_table()
    finally:
        shard.close()


def _sound(target: Target, found: Found) -> bool:
    """Return whether a shard opens and its whole table is right: then there is nothing to list, and it stays open."""
    if target.accept or target.streamed:
        return False
    try:
        sound = target.shard(found) is not None
    except TokenreelError:
        sound = False
    target.broken.discard(found.name)
    return sound


def _check_one(target: Target, found: Found, findings: Findings) -> None:
    if _sound(target, found):
        return
    try:
        problems = list(islice(problems_of(target, found), MOST_PROBLEMS))
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
    by_split = splits_of((found.name for found in target.files), in_names=target.streamed)
    for names in (by_split or {"": [found.name for found in target.files]}).values():
        pair = order_finding(names)
        if pair is not None:
            findings.warning(
                "DOC010",
                f"{pair[0]} is read before {pair[1]}",
                shard=pair[0],
                expected="numbers padded with zeros",
                found=f"{pair[0]} before {pair[1]}",
            )
