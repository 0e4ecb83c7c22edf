"""A repository of the Hugging Face hub as a read-only store: its files at one commit, over plain http.

``HF_ENDPOINT`` says where the hub is, ``HF_TOKEN`` who asks. Nothing is cached here; see `tokenreel.text.hub` for that.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from dataclasses import dataclass
from typing import Any

from tokenreel.errors import StorageError
from tokenreel.store.base import Entry
from tokenreel.store.http import HttpStore, request_json

DEFAULT_ENDPOINT = "https://huggingface.co"
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="next"')


@dataclass(frozen=True, slots=True)
class HubRepository:
    """What the hub says of a repository at a revision."""

    repo: str
    commit: str
    private: bool
    gated: bool
    store: HttpStore
    digests: dict[str, str]
    """SHA-256 of the files that are kept as large files, by path."""


def endpoint() -> str:
    """Return where the hub is."""
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def open_repository(
    repo: str, revision: str = "main", *, kind: str = "datasets", anonymous: bool = False, listed: bool = True
) -> HubRepository:
    """Return a repository at a revision, resolved to a commit, with its files listed.

    Raises `StorageError`: STO001 where there is no such repository or revision, STO020 where terms or a login are asked
    for, STO002 where the hub does not answer.
    """
    token = None if anonymous else os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    base = f"{endpoint()}/api/{kind}/{repo}"
    where = urllib.parse.quote(revision, safe="")
    facts, _ = request_json(f"{base}/revision/{where}", headers)
    if not isinstance(facts, dict) or not isinstance(facts.get("sha"), str):
        raise StorageError(
            "STO002", "could not read: the hub's answer names no commit", path=f"{base}/revision/{where}"
        )
    commit = facts["sha"]
    entries, digests = _tree(f"{base}/tree/{commit}?recursive=true", headers) if listed else ([], {})
    prefix = "" if kind == "models" else f"/{kind}"
    store = HttpStore(f"{endpoint()}{prefix}/{repo}/resolve/{commit}", entries if listed else None, headers)
    return HubRepository(repo, commit, bool(facts.get("private")), bool(facts.get("gated")), store, digests)


def _tree(url: str, headers: dict[str, str]) -> tuple[list[Entry], dict[str, str]]:
    entries: list[Entry] = []
    digests: dict[str, str] = {}
    following: str | None = url
    while following:
        page, said = request_json(following, headers)
        if not isinstance(page, list):
            raise StorageError("STO002", "could not read: the hub's listing is no list", path=following)
        for row in page:
            if isinstance(row, dict) and row.get("type", "file") == "file":
                entries.append(Entry(str(row["path"]), int(row.get("size", 0))))
                digest = _large_file(row)
                if digest:
                    digests[str(row["path"])] = digest
        match = _NEXT.search(said.get("link", ""))
        following = match[1] if match else None
    return entries, digests


def _large_file(row: dict[str, Any]) -> str | None:
    large = row.get("lfs")
    found = large.get("oid") or large.get("sha256") if isinstance(large, dict) else None
    return str(found) if found else None
