"""What a mix says when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
        }

    def lines(self) -> list[str]:
        """Return the lines for a terminal."""
        if self.nothing_to_do:
            lines = [f"{self.out}: complete, nothing to do (every file was read again)"]
        else:
            lines = [f"{self.out}: {self.built:,} parts staged, merged and written in {self.seconds:.1f} s"]
        for one in self.record["sources"]:
            dropped = ", ".join(f"{rule} {count:,}" for rule, count in one["dropped"].items())
            short = "" if one["complete"] else "; its budget was not reached"
            lines.append(
                f"{one['name']}: {one['docs_seen']:,} documents seen, {one['documents']:,} in the mix, "
                f"{one['tokens']:,} tokens" + (f"; dropped: {dropped}" if dropped else "") + short
            )
        for name, split in self.record["splits"].items():
            said = f"{name}: " if name else ""
            lines.append(
                f"{said}{split['documents']:,} documents, {split['tokens']:,} tokens, {split['shards']:,} shards"
            )
        audit = self.record["audit"]
        if audit is not None:
            lines.append(
                f"audit: documents that share an n-gram with an evaluation item: {audit['documents_flagged']:,}, strongly "
                f"{audit['documents_strong']:,}; removed: {audit['remove']}"
            )
        return lines


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
