"""What a build says when it ends, and the log it keeps for people."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tokenreel.build.resume import LOG
from tokenreel.corpus.receipts import as_table
from tokenreel.store.atomic import write_error

if TYPE_CHECKING:
    from pathlib import Path

    from tokenreel.corpus.receipts import Stats


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of `tokenreel.build.build`."""

    name: str
    out: Path
    layout: str
    parts: int
    built: int
    """Parts built by this run; the others were done before."""
    input_bytes: int
    tokenizer: str
    vocab_size: int
    eod_id: int
    eod_token: str
    dtype: str
    stats: Stats | None = None
    """None after a dry run."""
    engine: str = ""
    """Name and version; empty where nothing was to be encoded."""
    rejected: tuple[tuple[str, str], ...] = ()
    """Engines not chosen, with the reason."""
    seconds: float = 0.0
    seconds_encoding: float = 0.0
    """Wall time between the first job and the last."""
    cpu_seconds: float = 0.0
    """CPU time of the workers' jobs."""
    dry_run: bool = False
    nothing_to_do: bool = False
    """Whether the output was complete before: every file that it names was read again and is as recorded."""
    warnings: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "out": str(self.out),
            "layout": self.layout,
            "parts": self.parts,
            "built": self.built,
            "nothing_to_do": self.nothing_to_do,
            "dry_run": self.dry_run,
            "input_bytes": self.input_bytes,
            "tokenizer": self.tokenizer,
            "vocab_size": self.vocab_size,
            "eod_id": self.eod_id,
            "eod_token": self.eod_token,
            "dtype": self.dtype,
            "engine": self.engine,
            "rejected": [{"engine": name, "reason": reason} for name, reason in self.rejected],
            "by_split": None
            if self.stats is None
            else {name: as_table(counts) for name, counts in self.stats.by_split.items()},
            "seconds": round(self.seconds, 3),
            "seconds_encoding": round(self.seconds_encoding, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "warnings": list(self.warnings),
        }

    def lines(self) -> list[str]:
        """Return the lines for a terminal."""
        facts = f"{self.tokenizer}, {self.vocab_size:,} ids, {self.dtype}, EOD {self.eod_id} {self.eod_token}"
        lines = [f"warning: {text}" for text in self.warnings]
        if self.dry_run or self.stats is None:
            say = f"would build {self.parts:,} parts from {self.input_bytes:,} bytes into {self.out}"
            return [*lines, say, f"tokenizer: {facts}"]
        if self.nothing_to_do:
            lines.append(f"{self.out}: complete, nothing to do (every file was read again)")
        else:
            lines.append(f"{self.out}: {self.built:,} of {self.parts:,} parts built in {self.seconds:.1f} s")
            if self.engine:
                lines.append(f"engine: {self.engine}")
        lines.append(f"tokenizer: {facts}")
        total = sum(counts.total_tokens for counts in self.stats.by_split.values())
        for split, counts in self.stats.by_split.items():
            share = 100 * counts.total_tokens / total if total else 0.0
            lines.append(
                f"{split}: {counts.documents:,} documents, {counts.text_tokens:,} text tokens + "
                f"{counts.eod_tokens:,} EOD = {counts.total_tokens:,} tokens ({share:.3f} %)"
            )
        return lines


def log_event(out: Path, event: str, **facts: Any) -> None:
    """Append one line to the build log: the only file of an output that knows of clocks, machines and versions.

    Raises `StorageError` (STO003).
    """
    line = {"event": event, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}
    try:
        with (out / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    except OSError as error:
        raise write_error(out / LOG, error) from error


def read_log(out: Path, event: str) -> list[dict[str, Any]]:
    """Return the events of one kind; lines that a killed build left cut are passed over."""
    try:
        text = (out / LOG).read_text("utf-8", "replace")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and value.get("event") == event:
            found.append(value)
    return found
