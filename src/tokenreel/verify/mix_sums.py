"""Sums of a mix: ``mix.json`` against itself, the receipts of its parts, the manifest, its configuration and its audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.corpus.mix_records import AUDIT, CONFIG, RECORD, STAGES
from tokenreel.verify.target import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenreel.verify.finding import Findings

_AFTER_STAGING = ("dedup/", "decontaminate/")
_SUMMED = ("docs_seen", "docs_staged", "tokens_staged", "capped", "capped_tokens")
_OF_RECEIPTS = {"docs_staged": "kept"}


def check_sums_of(
    tables: Mapping[str, dict[str, Any]],
    receipts: Mapping[str, dict[str, Any]],
    manifest: dict[str, Any] | None,
    findings: Findings,
) -> None:
    """Check everything that two of a mix's records say twice; a record that has not the form of one is a finding too."""
    record = tables[RECORD]
    try:
        for source in record["sources"]:
            _check_source(source, findings)
            _check_receipts(source, receipts, findings)
        _check_shards(record, findings)
        if manifest is not None:
            _check_manifest(record, tables.get(CONFIG), manifest, findings)
        if CONFIG in tables:
            _same(findings, "assumptions", tables[CONFIG].get("assumptions"), record["assumptions"], CONFIG)
            _same(findings, "layout", tables[CONFIG].get("layout"), record["layout"], CONFIG)
        if AUDIT in tables:
            counts = {key: value for key, value in tables[AUDIT].items() if key != "evals"}
            _same(findings, "audit", counts, record["audit"], AUDIT)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        findings.error("MAN003", f"not the form of {RECORD}: {type(error).__name__} {error}", path=RECORD)


def _check_source(source: dict[str, Any], findings: Findings) -> None:
    """Documents seen are those in the mix and those dropped, and the splits add up to them."""
    name, splits = source["name"], source["splits"].values()
    gone = sum(source["dropped"].values())
    after = sum(count for rule, count in source["dropped"].items() if rule.startswith(_AFTER_STAGING))
    _sum(findings, f"{name}: documents seen, kept + dropped", source["documents"] + gone, source["docs_seen"])
    _sum(
        findings,
        f"{name}: documents staged, kept + dropped by the merge",
        source["documents"] + after,
        source["docs_staged"],
    )
    for unit in ("documents", "tokens"):
        _sum(findings, f"{name}: {unit} of its splits", sum(one[unit] for one in splits), source[unit])


def _check_receipts(source: dict[str, Any], receipts: Mapping[str, dict[str, Any]], findings: Findings) -> None:
    mine = [
        one for path, one in receipts.items() if path.startswith(f"{STAGES}/") and one.get("source") == source["name"]
    ]
    _sum(findings, f"{source['name']}: receipts, and inputs", len(mine), len(source["inputs"]))
    for name in _SUMMED:
        total = sum(one[_OF_RECEIPTS.get(name, name)] for one in mine)
        _sum(findings, f"{source['name']}: {name} of its receipts", total, source[name])
    dropped: dict[str, int] = {}
    for one in mine:
        for reason in one["dropped"]:
            key = f"{reason['stage']}/{reason['rule']}"
            dropped[key] = dropped.get(key, 0) + reason["documents"]
    said = {rule: count for rule, count in source["dropped"].items() if not rule.startswith(_AFTER_STAGING)}
    if said != dropped:
        message = f"{source['name']}: dropped while staging, as its receipts say"
        findings.error("MAN012", message, path=RECORD, expected=dropped, found=said)


def _check_shards(record: dict[str, Any], findings: Findings) -> None:
    by_source: dict[str, int] = {}
    for shard in record["shards"]:
        _sum(findings, f"tokens of {shard['name']} by source", sum(shard["source_tokens"].values()), shard["tokens"])
        for name, tokens in shard["source_tokens"].items():
            by_source[name] = by_source.get(name, 0) + tokens
    for source in record["sources"]:
        what = f"{source['name']}: its tokens in all shards"
        _sum(findings, what, by_source.get(source["name"], 0), source["tokens"])


def _check_manifest(
    record: dict[str, Any], config: dict[str, Any] | None, manifest: dict[str, Any], findings: Findings
) -> None:
    shards = []
    for name, split in manifest["splits"].items():
        said = {key: split[key] for key in ("documents", "tokens", "identity")} | {"shards": len(split["shards"])}
        _same(findings, f"splits.{name}", said, record["splits"].get(name), MANIFEST)
        shards += [(one["documents"], one["tokens"]) for one in split["shards"]]
    _same(findings, "the splits", sorted(manifest["splits"]), sorted(record["splits"]), MANIFEST)
    _same(findings, "shards", shards, [(one["documents"], one["tokens"]) for one in record["shards"]], MANIFEST)
    for key in ("name", "layout"):
        _same(findings, key, manifest.get(key), record[key], MANIFEST)
    if config is None:
        return
    for key in ("layout", "split_rule", "dtype"):
        _same(findings, key, manifest.get(key), config.get(key), MANIFEST, CONFIG)
    tokenizer = {key: value for key, value in (manifest.get("tokenizer") or {}).items() if key != "path"}
    _same(findings, "tokenizer", tokenizer, config.get("tokenizer"), MANIFEST, CONFIG)


def _sum(findings: Findings, what: str, expected: int, found: int) -> None:
    if expected != found:
        findings.error("MAN012", what, path=RECORD, expected=expected, found=found)


def _same(findings: Findings, what: str, expected: object, found: object, other: str, where: str = RECORD) -> None:
    if expected != found:
        message = f"{what}: {other} and {where} say different things"
        findings.error("MAN060", message, path=where, expected=_short(expected), found=_short(found))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
