"""Where a replay index is: a folder, an address, or a repository of the hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.errors import StorageError
from tokenreel.store import LocalStore
from tokenreel.store.http import HttpStore

if TYPE_CHECKING:
    import os

    from tokenreel.store import Store


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A store with an index in it."""

    store: Store
    name: str
    """What messages call it."""
    listed: bool = True
    """Whether all its files can be listed."""
    public: bool | None = None
    """Whether anyone can read it; None where that means nothing or was not asked."""
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of files as the place itself gives them."""


def open_place(where: str | os.PathLike[str] | None, repo: str | None = None, revision: str = "main") -> Place:
    """Return the place of an index; raises `StorageError` (STO001, STO002, STO020)."""
    if repo is not None:
        from tokenreel.store.hub_repository import open_repository

        found = open_repository(repo, revision, anonymous=True)
        return Place(
            found.store, f"{repo}@{found.commit}", public=not (found.private or found.gated), digests=found.digests
        )
    text = str(where)
    if text.startswith(("http://", "https://")):
        return Place(HttpStore(text), text, listed=False, public=True)
    if not Path(text).is_dir():
        raise StorageError("STO001", path=text, hint=f"ls -ld {text}")
    return Place(LocalStore(Path(text)), text)
