"""What a conversion did, in plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokenreel.errors import EXIT_DATA, EXIT_OK
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from tokenreel.formats import WrittenFile


@dataclass(frozen=True, slots=True)
class Converted:
    """What was converted, what was proved, and what the target does not hold."""

    path: str
    format: str
    dtype: str
    boundary: dict[str, object]
    shards: int
    documents: int
    tokens: int
    """Stored ids of the target."""
    files: tuple[WrittenFile, ...]
    identity: str | None
    """Of source and target alike; None where no proof was asked for."""
    exceptions_in_identity: bool
    """Whether flags of documents without their boundary entered it: not where the boundary changed on the way."""
    kept_shards: int = 0
    """Shards that an earlier run had finished."""
    exceptions: int = 0
    """Documents without their boundary, which the target cannot tell any more."""
    exception_documents: tuple[int, ...] = ()
    lost: tuple[str, ...] = ()
    """What the target does not hold, in words."""
    accepted: tuple[str, ...] = ()
    splits: dict[str, Converted] = field(default_factory=dict)
    """By split, where the source is a root with splits; counts are then of all of them."""

    @property
    def exit_status(self) -> int:
        """1 where exceptions were lost and nobody said that they may be."""
        inner = any(one.exit_status for one in self.splits.values())
        return EXIT_DATA if inner or (self.exceptions and "TOK046" not in self.accepted) else EXIT_OK

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        out: dict[str, object] = {
            name: getattr(self, name)
            for name in (
                "path",
                "format",
                "dtype",
                "boundary",
                "shards",
                "documents",
                "tokens",
                "identity",
                "exceptions_in_identity",
                "kept_shards",
                "exceptions",
            )
        }
        out["exception_documents"] = list(self.exception_documents)
        out["lost"] = list(self.lost)
        out["accepted"] = list(self.accepted)
        out["files"] = [{"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in self.files]
        out["splits"] = {name: one.as_dict() for name, one in self.splits.items()}
        return out

    def lines(self) -> list[str]:
        """Return the form for people."""
        if self.splits:
            return [line for one in self.splits.values() for line in one.lines()]
        counts = (
            f"{counted(self.shards, 'shard')}, {counted(self.documents, 'document')}, {counted(self.tokens, 'token')}"
        )
        out = [f"{self.path}: {self.format}, {self.dtype}: {counts}"]
        if self.kept_shards:
            out.append(f"  {counted(self.kept_shards, 'shard')} finished by an earlier run and not written again")
        if self.identity is None:
            out.append("  not proved: --no-proof")
        else:
            how = "" if self.exceptions_in_identity else ", boundaries left out"
            out.append(f"  proved: source and target have the identity {self.identity}{how}")
        if self.exceptions:
            first = ", ".join(map(str, self.exception_documents))
            word = "accepted" if "TOK046" in self.accepted else "TOK046"
            out.append(
                f"  {word}: {counted(self.exceptions, 'document')} had no boundary and has one now: {first}"
                + ("" if self.exceptions <= len(self.exception_documents) else ", ...")
            )
            if "TOK046" not in self.accepted:
                out.append("  try: tokenreel convert --accept TOK046 ..., where that may be")
        return [*out, *(f"  not kept: {what}" for what in self.lost)]
