"""Whether a conversion that wrote here came to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.corpus.unfinished import MANIFEST, PLAN, UNFINISHED, unfinished
from tokenreel.verify.at_work import build_at_work

if TYPE_CHECKING:
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target


def is_begun(target: Target) -> bool:
    """Return whether a conversion was begun here that did not come to its end; one shard that is named is whole."""
    return target.only is None and unfinished(target.sizes) is not None


def check_begun(target: Target, findings: Findings) -> None:
    """Add a finding where a conversion is at work here, or was killed: shards that are there are whole, others are missing."""
    folder = unfinished(target.sizes)
    if folder is None:
        return
    root = target.store.root
    at_work = any(build_at_work(place) for place in dict.fromkeys((root, f"{root}/{folder}")))
    findings.incomplete(
        UNFINISHED,
        "a conversion is at work in this folder: wait until it ends" if at_work else "",
        path=f"{folder}/{PLAN}".lstrip("/"),
        expected=f"{MANIFEST}, which is written when all is proved",
        found="no such file",
    )
