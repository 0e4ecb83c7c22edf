"""Rules over the files that sum a build up: stats.json, COMPLETE.json, and the one spelling of what we write."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tokenreel.corpus.receipts import Complete, Counts, as_table, sum_receipts
from tokenreel.hashing import sha256_lines
from tokenreel.store import dumps_canonical
from tokenreel.verify.files import tokenizer_file
from tokenreel.verify.target import COMPLETE, MANIFEST, RECEIPTS, RUN_CONFIG, STATS, TOKENIZER, tokenizer_fact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Sidecar, Target


def check_stats(target: Target, findings: Findings) -> bool:
    """Check stats.json against the sum of the receipts, by split and by source; False where one cannot be read."""
    stats = target.stats.value if target.stats else None
    receipts = [sidecar.value for sidecar in target.receipts.values() if sidecar.value is not None]
    if target.stats is None or stats is None or len(receipts) < len(target.receipts):
        return False
    wanted = sum_receipts(receipts)
    for split in sorted({*wanted.by_split, *stats.by_split}):
        _compare(findings, f"by_split.{split}", wanted.by_split.get(split), stats.by_split.get(split))
    if not stats.by_source and not wanted.by_source:
        findings.skip("stats.json by source", "neither it nor the receipts count sources")
    for source in sorted({*wanted.by_source, *stats.by_source}):
        mine, said = wanted.by_source.get(source, {}), stats.by_source.get(source, {})
        for split in sorted({*mine, *said}):
            _compare(findings, f"by_source.{source}.{split}", mine.get(split), said.get(split))
    return True


def _compare(findings: Findings, where: str, wanted: Counts | None, said: Counts | None) -> None:
    """Compare two counts; one that is not there counts nothing."""
    expected, found = as_table(wanted or Counts()), as_table(said or Counts())
    for name, value in expected.items():
        if found[name] != value:
            findings.error(
                "MAN048",
                f"{where}.{name} is not the sum over the receipts",
                path=STATS,
                expected=value,
                found=found[name],
            )


def check_complete(target: Target, findings: Findings) -> bool:
    """Check every hash in COMPLETE.json against the file or files it names; False where it cannot be read."""
    sidecar = target.complete
    if sidecar is None or sidecar.raw is None or sidecar.value is None:
        return False
    complete = sidecar.value
    rows: list[tuple[str, str | None, str | None, str]] = [
        ("receipts_sha256", complete.receipts_sha256, _receipts_hash(target), RECEIPTS),
        ("stats_sha256", complete.stats_sha256, _hash_of(target.stats), STATS),
        ("run_config_sha256", complete.run_config_sha256, _hash_of(target.run_config), RUN_CONFIG),
        ("manifest_sha256", complete.manifest_sha256, _hash_of(target.manifest), MANIFEST),
        ("tokenizer_sha256", complete.tokenizer_sha256, _tokenizer_hash(target), TOKENIZER),
    ]
    for name, said, there, path in rows:
        if said is None:
            if there is not None and sidecar.ours:
                findings.error("MAN003", f"{path} is there, and {name} is missing", path=COMPLETE)
        elif there is None:
            findings.error("MAN004", path=path, expected=f"named by {COMPLETE}", found="no such file")
        elif said != there:
            findings.error(
                "MAN047", f"{name} in {COMPLETE} is not that of {path}", path=path, expected=said, found=there
            )
    if sidecar.ours:
        known = set(Complete.__struct_fields__)
        for name in sidecar.raw:
            if name not in known:
                findings.error("MAN051", f"the field {name!r}", path=COMPLETE, found=name)
    return True


def _hash_of(sidecar: Sidecar[Any] | None) -> str | None:
    return None if sidecar is None else sidecar.sha256


def _receipts_hash(target: Target) -> str | None:
    return sha256_lines((path, sidecar.sha256) for path, sidecar in target.receipts.items())


def _tokenizer_hash(target: Target) -> str | None:
    path = tokenizer_file(target)
    return None if path is None else hashlib.sha256(target.store.read(path)).hexdigest()


def check_tokenizer(target: Target, findings: Findings) -> bool:
    """Check the tokenizer that the output holds against the SHA-256 in run_config.json; False where that has none."""
    path = tokenizer_file(target)
    said = tokenizer_fact(target, "sha256", str)
    if said is None or path is None:
        return False
    found = _tokenizer_hash(target)
    if found != said:
        findings.error("MAN057", path=path, expected=f"{said}, as {RUN_CONFIG} says", found=found)
    return True


def check_spelling(target: Target, findings: Findings) -> None:
    """Warn where a JSON file of ours is not spelled as we write it: somebody or something changed it.

    Files whose SHA-256 COMPLETE.json vouches for are passed over.
    """
    vouched = _vouched(target)
    for sidecar in _ours(target):
        if sidecar.path in vouched:
            continue
        try:
            spelled = dumps_canonical(sidecar.raw)
        except (ValueError, TypeError) as error:
            findings.warning("MAN050", f"not as this package spells it: {error}", path=sidecar.path)
            continue
        if spelled != sidecar.data:
            at = next(
                (k for k, (one, two) in enumerate(zip(spelled, sidecar.data, strict=False)) if one != two),
                min(len(spelled), len(sidecar.data)),
            )
            findings.warning(
                "MAN050",
                path=sidecar.path,
                offset=at,
                expected=repr(spelled[at : at + 8]),
                found=repr(sidecar.data[at : at + 8]),
            )


def _ours(target: Target) -> Iterator[Sidecar[Any]]:
    everything: list[Sidecar[Any] | None] = [
        target.run_config,
        target.stats,
        target.complete,
        target.manifest,
        *target.receipts.values(),
    ]
    for sidecar in everything:
        if sidecar is not None and sidecar.ours:
            yield sidecar


def _vouched(target: Target) -> set[str]:
    """Return the files whose hash is the one in COMPLETE.json."""
    complete = target.complete.value if target.complete else None
    if complete is None:
        return set()
    pairs = (
        (target.stats, complete.stats_sha256),
        (target.run_config, complete.run_config_sha256),
        (target.manifest, complete.manifest_sha256),
    )
    out = {sidecar.path for sidecar, said in pairs if sidecar is not None and sidecar.sha256 == said}
    if complete.receipts_sha256 == _receipts_hash(target):
        out |= set(target.receipts)
    return out
