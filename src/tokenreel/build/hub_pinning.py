"""Moving revisions of hub sources, resolved once for a build: the commit is written down before anything is pulled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tokenreel.build.hub_source_files import MOVING, commit_of, known_commit
from tokenreel.build.staging_parts import source_folder
from tokenreel.store import dumps_canonical, write_bytes_atomic
from tokenreel.store.atomic import make_folder, write_error

if TYPE_CHECKING:
    from pathlib import Path

    from tokenreel.config.mixed import MixedRecipe, MixedSourceTable

REVISION = "revision.json"


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What a revision was when the build began."""

    repo: str
    revision: str
    """As the recipe says it."""
    commit: str


def pin_sources(recipe: MixedRecipe, stage: Path) -> MixedRecipe:
    """Return a recipe whose hub sources name commits; below `stage` stands what a branch was when staging began.

    A run that goes on takes that, whatever the branch is by now; another repository or revision is asked for anew. Raises
    what `commit_of` raises, and `StorageError` (STO003).
    """
    return msgspec.structs.replace(recipe, source=[_pinned(table, stage) for table in recipe.source])


def _pinned(table: MixedSourceTable, stage: Path) -> MixedSourceTable:
    if table.kind != "hub" or (table.revision is not None and known_commit(table) == table.revision):
        return table
    path = stage / source_folder(table.name) / REVISION
    wanted = table.revision or MOVING
    found = _resolved(path)
    if found is None or (found.repo, found.revision) != (table.repo, wanted):
        found = Resolved(repo=str(table.repo), revision=wanted, commit=commit_of(table))
        try:
            make_folder(path.parent)
        except OSError as error:
            raise write_error(path.parent, error) from error
        write_bytes_atomic(path, dumps_canonical(msgspec.to_builtins(found)))
    return msgspec.structs.replace(table, revision=found.commit)


def _resolved(path: Path) -> Resolved | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Resolved)
    except (OSError, msgspec.MsgspecError):
        return None
