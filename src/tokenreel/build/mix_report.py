"""What a mix says when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class MixReport:
    """The result of `run_mixed`."""

    out: Path
    record: dict[str, Any]
    """What ``mix.json`` holds."""
    built: int
    """Parts that this run staged."""
    nothing_to_do: bool
    seconds: float = 0.0

    @classmethod
    def of(cls, out: Path, record: dict[str, Any], *, built: int = 0, nothing_to_do: bool = False) -> MixReport:
        """Return the report of a mix that is complete."""
        return cls(out, record, built, nothing_to_do)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is no error and may be meant otherwise: one file read twice, a source short of its budget."""
        said, known = [], dict[str, tuple[str, str]]()
        for source in self.record["sources"]:
            for one in source["inputs"] if source["kind"] != "tokens" else ():
                mine = source["name"], one["path"]
                first = known.setdefault(one["sha256"], mine) if one["sha256"] else mine
                if first != mine:
                    said.append(f"{one['path']} ({source['name']}) holds the same bytes as {first[1]} ({first[0]})")
            if not source["complete"] and source["budget"] is not None:
                staged = f"{source['tokens_staged']:,} of {source['budget']:,} tokens"
                said.append(f"{source['name']}: all of it was read, and its budget was not reached: {staged}")
        return tuple(said)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        sources = [{key: one[key] for key in _SHOWN} for one in self.record["sources"]]
        return {
            "name": self.record["name"],
            "out": str(self.out),
            "layout": self.record["layout"],
            "parts_staged": self.built,
            "nothing_to_do": self.nothing_to_do,
            "splits": self.record["splits"],
            "sources": sources,
            "audit": self.record["audit"],
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
        }

    def lines(self) -> list[str]:
        """Return the lines for a terminal."""
        if self.nothing_to_do:
            lines = [f"{self.out}: complete, nothing to do (every file was read again)"]
        else:
            staged = f"{counted(self.built, 'part')} staged" if self.built else "all parts were staged before"
            lines = [f"{self.out}: {staged}, merged and written in {self.seconds:.1f} s"]
        for one in self.record["sources"]:
            dropped = ", ".join(f"{rule} {count:,}" for rule, count in one["dropped"].items())
            lines.append(
                f"{one['name']}: {counted(one['docs_seen'], 'document')} seen, {one['documents']:,} in the mix, "
                f"{counted(one['tokens'], 'token')}" + (f"; dropped: {dropped}" if dropped else "")
            )
        for name, split in self.record["splits"].items():
            said = f"{name}: " if name else ""
            lines.append(
                f"{said}{counted(split['documents'], 'document')}, {counted(split['tokens'], 'token')}, "
                f"{counted(split['shards'], 'shard')}"
            )
        audit = self.record["audit"]
        if audit is not None:
            lines.append(
                f"audit: documents that share an n-gram with an evaluation item: {audit['documents_flagged']:,}, strongly "
                f"{audit['documents_strong']:,}; removed: {audit['remove']}"
            )
        return [*(f"warning: {text}" for text in self.warnings), *lines]


_SHOWN = (
    "name",
    "budget",
    "complete",
    "docs_seen",
    "docs_staged",
    "tokens_staged",
    "dropped",
    "documents",
    "tokens",
    "splits",
)
