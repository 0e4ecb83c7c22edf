"""Find a tokenizer's file in the local Hugging Face cache; fetch it only if it is not there and the extra allows."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokenreel.text.spec import TokenizerSpec

ANSWER_SECONDS = 5.0
"""How long the hub has to answer: a build must not hang where there is no network."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository at one commit."""

    path: Path
    """Where it lies on this machine."""
    repo: str
    subfolder: str
    revision: str
    """The commit: 40 hex digits."""
    file: str

    @property
    def name(self) -> str:
        """``repo/subfolder/file``, for messages."""
        return "/".join(part for part in (self.repo, self.subfolder, self.file) if part)


def hub_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the cache's folder by the hub's own variables: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME, ~/.cache.

    >>> hub_cache({"HF_HOME": "/data/hf"}).as_posix()
    '/data/hf/hub'
    """
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(variable):
            return Path(environ[variable]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "hub"
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def resolve(spec: TokenizerSpec, *, cache: Path | None = None, online: bool | None = None) -> HubFile:
    """Return the file that a ``hub`` spec names, its revision resolved to a commit.

    The local cache is asked first: ``models--ORG--NAME/refs/REVISION`` for the commit and ``snapshots/COMMIT/`` for the
    file. Only if that fails, and the extra ``hub`` is installed and HF_HUB_OFFLINE is not set (`online` overrides
    both), is the hub asked. A branch or tag is resolved from the cache when it is there: a moving revision means what
    it meant when it was fetched. The hub is asked once and has `ANSWER_SECONDS` to answer. Raises TKZ009 (file not there) and TKZ010 (revision not known), both
    `StorageError`.
    """
    root = (cache or hub_cache()) / ("models--" + str(spec.repo).replace("/", "--"))
    wanted = spec.revision or "main"
    commit = wanted if _COMMIT.fullmatch(wanted) else _cached_ref(root, wanted)
    if commit is not None:
        path = root / "snapshots" / commit / spec.subfolder / spec.file
        if path.is_file():
            return HubFile(path, str(spec.repo), spec.subfolder, commit, spec.file)
    return _fetch(spec, wanted, commit, cache or hub_cache(), online=online)


def pinned(spec: TokenizerSpec, *, cache: Path | None = None, online: bool | None = None) -> TokenizerSpec:
    """Return the spec with its revision as a commit; other kinds unchanged. What a build resolves once and records."""
    from dataclasses import replace

    if spec.kind != "hub" or _COMMIT.fullmatch(spec.revision or ""):
        return spec
    return replace(spec, revision=resolve(spec, cache=cache, online=online).revision)


def _cached_ref(root: Path, revision: str) -> str | None:
    try:
        commit = (root / "refs" / revision).read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _fetch(spec: TokenizerSpec, wanted: str, commit: str | None, cache: Path, *, online: bool | None) -> HubFile:
    name = "/".join(part for part in (spec.subfolder, spec.file) if part)
    command = f"hf download {spec.repo} {name} --revision {wanted}"
    if not (_allowed() if online is None else online):
        raise _absent(spec, wanted, commit, cache, command, "the hub was not asked: offline, or no extra hub")
    try:
        import huggingface_hub
    except ImportError as error:
        why = 'huggingface_hub is not installed (pip install "tokenreel[hub]")'
        raise _absent(spec, wanted, commit, cache, command, why) from error
    revision = commit or wanted
    try:
        with _quiet(huggingface_hub):
            # Downloading tries an unreachable hub six times, and says so; this asks once, and is cheap where it answers.
            url = huggingface_hub.hf_hub_url(str(spec.repo), name, revision=revision)
            huggingface_hub.get_hf_file_metadata(url, timeout=ANSWER_SECONDS)
            path = huggingface_hub.hf_hub_download(str(spec.repo), name, revision=revision, cache_dir=str(cache))
        found = Path(path)
    except Exception as error:  # network, permission, absent: all are "not here", and the reason is passed on
        raise _absent(spec, wanted, commit, cache, command, str(error)) from error
    snapshot = found.parents[len(Path(name).parts) - 1].name
    if not _COMMIT.fullmatch(snapshot):
        raise _absent(spec, wanted, None, cache, command, f"the hub answered with {snapshot!r}")
    return HubFile(found, str(spec.repo), spec.subfolder, snapshot, spec.file)


@contextlib.contextmanager
def _quiet(hub: Any) -> Iterator[None]:
    """Keep the library's warnings and progress bars from the terminal: what fails is said once, in our error."""
    if not hasattr(hub, "utils"):
        # Of some versions no attribute before it was imported.
        import_module("huggingface_hub.utils")
    words, bars = hub.utils.logging, not hub.utils.are_progress_bars_disabled()
    level = words.get_verbosity()
    words.set_verbosity(words.CRITICAL)
    hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        words.set_verbosity(level)
        if bars:
            hub.utils.enable_progress_bars()


def _allowed() -> bool:
    from importlib.util import find_spec

    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return not offline and find_spec("huggingface_hub") is not None


def _absent(spec: TokenizerSpec, wanted: str, commit: str | None, cache: Path, command: str, why: str) -> StorageError:
    if commit is None:
        return StorageError(
            "TKZ010",
            f"{spec.repo} at {wanted!r}: {why}",
            path=cache,
            expected="a commit of 40 hex digits, or a revision that the cache knows",
            found=wanted,
            hint=command,
        )
    return StorageError("TKZ009", f"{spec.repo} {spec.file} at {commit}: {why}", path=cache, hint=command)
