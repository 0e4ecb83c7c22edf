"""Rules over what sidecars say twice: tokenizer, boundary, split rule, dtype, name, layout; and the tokenizer itself."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tokenreel.corpus.layout import split_of
from tokenreel.corpus.receipts import DecodedBack
from tokenreel.errors import MissingExtra
from tokenreel.text import load_tokenizer, probe_digest
from tokenreel.verify.files import tokenizer_file
from tokenreel.verify.target import MANIFEST, RUN_CONFIG, tokenizer_fact
from tokenreel.verify.texts import find_tokenizer

if TYPE_CHECKING:
    from tokenreel.text import Tokenizer
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target


def check_agreement(target: Target, findings: Findings) -> bool:
    """Check that tokenreel.json and run_config.json agree, and each with itself; False: there was nothing to compare."""
    config = target.run_config.value if target.run_config else None
    manifest = target.manifest.value if target.manifest else None
    compared = False
    if config is not None and config.eod_id is not None and "eod_id" in config.tokenizer:
        compared = True
        _same(findings, RUN_CONFIG, "eod_id", "tokenizer.eod_id", (config.eod_id, config.tokenizer["eod_id"]))
    if config is None or manifest is None or target.run_config is None:
        return compared
    raw = target.run_config.raw or {}
    boundary = {"prefix": list(manifest.boundary.prefix), "suffix": list(manifest.boundary.suffix)}
    rows: list[tuple[str, object, object]] = [
        ("dtype", config.dtype, manifest.dtype),
        ("split_rule", config.split_rule or None, manifest.split_rule),
        ("tokenizer", config.tokenizer or None, _without_path(manifest.tokenizer)),
        ("layout", config.layout, manifest.layout),
        ("name", raw.get("name"), manifest.name),
    ]
    if config.eod_id is not None:
        rows.append(("boundary", {"prefix": [], "suffix": [config.eod_id]}, boundary))
    if manifest.tokenizer is not None and target.built:
        there = tokenizer_file(target)
        _same(findings, MANIFEST, "tokenizer.path", "the file in the output", (manifest.tokenizer.get("path"), there))
    for name, said, other in rows:
        if said is not None and (other is not None or _needed(target, name)):
            _same(findings, MANIFEST, name, f"{name} of {RUN_CONFIG}", (other, said))
    return True


def _needed(target: Target, name: str) -> bool:
    """Return whether the manifest must say it: ours does in the layout native."""
    return name in ("tokenizer", "split_rule") and target.native and target.built


def _without_path(tokenizer: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if tokenizer is None else {key: value for key, value in tokenizer.items() if key != "path"}


def _same(findings: Findings, path: str, one: str, other: str, values: tuple[object, object]) -> None:
    found, expected = values
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            if found.get(key) != expected.get(key):
                _same(findings, path, f"{one}.{key}", f"{key} in {other}", (found.get(key), expected.get(key)))
        return
    findings.error(
        "MAN060",
        f"{one} is {_plain(found)}, and {other} is {_plain(expected)}",
        path=path,
        expected=expected if expected is not None else "nothing",
        found=found if found is not None else "nothing",
    )


def _plain(value: object) -> str:
    return "not there" if value is None else str(value)


def check_shape(target: Target, findings: Findings) -> bool:
    """Check that the manifest puts every shard in its split, and that a native one has all that a build records.

    Returns False where it cannot be read.
    """
    manifest = target.manifest.value if target.manifest else None
    if manifest is None:
        return False
    ours = target.built and target.native
    for name, split in manifest.splits.items():
        for shard in split.shards:
            home = split_of(shard.name)
            if name and home is not None and home != name:
                findings.error(
                    "MAN052",
                    f"{MANIFEST} lists this shard as {name}, and its folder is {home}",
                    path=MANIFEST,
                    shard=shard.name,
                    expected=home,
                    found=name,
                )
            if ours and shard.max_id is None and shard.tokens:
                findings.error("MAN003", f"the field 'max_id' of {shard.name} is missing", path=MANIFEST)
        if ours and not split.shards:
            findings.error("MAN052", f"{MANIFEST} lists the split {name} without a shard", path=MANIFEST)
        for field in ("identity", "statistics"):
            if ours and getattr(split, field) is None:
                findings.error("MAN003", f"the field 'splits.{name}.{field}' is missing", path=MANIFEST)
    formats = {found.format for found in target.shards}
    if formats and formats != {manifest.shard_format}:
        findings.error(
            "MAN052",
            f"{MANIFEST} says shard_format is {manifest.shard_format}, and the shards are {', '.join(sorted(formats))}",
            path=MANIFEST,
            expected=", ".join(sorted(formats)),
            found=manifest.shard_format,
        )
    return True


def check_tokenizer_facts(target: Target, findings: Findings) -> bool:
    """Check what run_config.json says of the tokenizer against the tokenizer, where it is at hand; False: it is not."""
    tok, _ = find_tokenizer(target, target.tokenizer, findings)
    config = target.run_config.value if target.run_config else None
    if tok is None or config is None or tokenizer_fact(target, "sha256", str) is None:
        return False
    said = config.tokenizer
    there: dict[str, object] = {
        "kind": "bytes" if said.get("kind") == "bytes" and _is_bytes(tok) else tok.kind,
        "vocab_size": tok.vocab_size,
        "largest_id": tok.largest_id,
        "lossless": tok.lossless,
    }
    if isinstance(said.get("eod_token"), str):
        there["eod_id"] = tok.token_to_id(said["eod_token"])
    if "probe_sha256" in said:
        try:
            there["probe_sha256"] = _digest(tok)
        except MissingExtra as error:
            findings.skip("the tokenizer's probe digest", error.message, error.hint or "")
    for name, value in there.items():
        if name in said and said[name] != value:
            findings.error(
                "MAN062",
                f"tokenizer.{name} is {said[name]} here, and {value} by the tokenizer itself",
                path=RUN_CONFIG,
                expected=value if value is not None else "nothing",
                found=said[name],
            )
    return True


def _is_bytes(tok: Tokenizer) -> bool:
    """Return whether it is the embedded one, which outputs hold as an equivalent file."""
    return tok.sha256 == load_tokenizer("bytes").sha256


@cache
def _digests() -> dict[str, str]:
    return {}


def _digest(tok: Tokenizer) -> str:
    """Return the probe's digest: computed once for one tokenizer, 0.1 to 0.5 s."""
    known = _digests()
    if tok.sha256 not in known:
        known[tok.sha256] = probe_digest(tok)
    return known[tok.sha256]


def check_lossless(target: Target, findings: Findings) -> bool:
    """Check what receipts say of decoding back: possible, and what run_config.json says of the tokenizer."""
    config = target.run_config.value if target.run_config else None
    lossless = tokenizer_fact(target, "lossless", bool)
    seen = False
    for path, sidecar in target.receipts.items():
        receipt = sidecar.value
        if receipt is None or receipt.lossless is None:
            continue
        seen = True
        said = receipt.lossless
        if isinstance(said, DecodedBack):
            kept = sum(split.documents for split in receipt.splits.values())
            one_in = config.recheck if config is not None and config.recheck is not None else 1
            most = -(-kept // one_in) if one_in else 0
            if said.checked > most:
                message = f"{said.checked} documents are said to be re-checked, and at most {most} of {kept} can be"
                findings.error("MAN012", message, path=path, expected=f"<= {most}", found=said.checked)
            if said.decoded_back > said.checked:
                message = f"{said.decoded_back} documents are said to decode back, of {said.checked} that were checked"
                findings.error("MAN012", message, path=path, expected=f"<= {said.checked}", found=said.decoded_back)
        # Special tokens that were dropped, or became ids, do not come back as text, whatever the tokenizer.
        wanted = lossless and not (config is not None and config.special_in_text in ("drop", "special"))
        if lossless is not None and (said is True) != wanted:
            findings.error(
                "MAN060",
                f"the receipt says lossless is {said is True}, and by {RUN_CONFIG} it is {wanted}",
                path=path,
                expected=wanted,
                found=said is True,
            )
    return seen
