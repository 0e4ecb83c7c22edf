"""What stands behind a segment of a lineage: the state of a checkpoint, or a ledger, read and compared with what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import RecipeError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from tokenreel.config.run import Segment


def check_records(segments: Iterable[Segment], path: str | os.PathLike[str]) -> None:
    """Raise `RecipeError` (RCP046) where a segment's record does not say that its first step begins with its first sample.

    A checkpoint's record is a state as feeds write it (``tokenreel state import --levanter`` makes one): its `step` and
    `position`. A ledger's is the line of that step in the highest attempt. Records are relative to the run file at `path`.
    """
    for number, segment in enumerate(segments):
        if segment.record is None:
            continue
        place = Path(path).parent / segment.record
        read = _position if segment.evidence == "checkpoint" else _ledger_position
        found = read(place, segment.first, f"segment[{number}].record")
        if found != segment.first_sample:
            raise RecipeError(
                "RCP046",
                f"segment[{number}].record",
                path=place,
                expected=f"step {segment.first:,} at sample {segment.first_sample:,}",
                found=f"sample {found:,}" if found is not None else f"no step {segment.first:,}",
            )


def _position(place: Path, first: int, where: str) -> int | None:
    said = _json(place, where)
    step, position = said.get("step"), said.get("position")
    if type(step) is not int or type(position) is not int:
        raise RecipeError("RCP046", where, path=place, expected="a state with step and position", found=str(said)[:80])
    return position if step == first else None


def _ledger_position(place: Path, first: int, where: str) -> int | None:
    best: tuple[int, int] | None = None
    for line in _bytes(place, where).splitlines():
        try:
            said: Any = json.loads(line)
        except ValueError as error:
            raise RecipeError("RCP046", where, path=place, expected="lines of a ledger", found=str(error)) from error
        if isinstance(said, Mapping) and said.get("step") == first and type(said.get("first")) is int:
            attempt = said.get("attempt", 0)
            best = max(best or (-1, 0), (int(attempt), int(said["first"])))
    return None if best is None else best[1]


def _json(place: Path, where: str) -> Mapping[str, Any]:
    try:
        said: Any = json.loads(_bytes(place, where))
    except ValueError as error:
        raise RecipeError("RCP046", where, path=place, expected="a state as JSON", found=str(error)) from error
    if not isinstance(said, Mapping):
        raise RecipeError("RCP046", where, path=place, expected="an object", found=type(said).__name__)
    return said


def _bytes(place: Path, where: str) -> bytes:
    try:
        return place.read_bytes()
    except OSError as error:
        message = f"{where}: {error.strerror or error}"
        raise RecipeError("RCP046", message, path=place, expected="a file that can be read") from error
