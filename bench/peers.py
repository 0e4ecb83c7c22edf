"""Install the programs we are compared with, each in a virtual environment of its own under `.venv-peers`.

What cannot be installed is named with the reason, and its rows in every table read "not measured". Run it alone to install, or with names.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from harness import HERE, note
from results import table

ROOT = HERE.parent
FOLDER = ROOT / ".venv-peers"
# Peer -> the module that must import, and the packages whose versions are reported.
PEERS = {
    "megatron": ("megatron.core.datasets.indexed_dataset", ("megatron-core", "torch", "numpy")),
    "datatrove": ("datatrove.pipeline.tokens", ("datatrove", "tokenizers", "numpy")),
    "datasets": ("datasets, transformers", ("datasets", "transformers", "tokenizers", "pyarrow")),
    "litdata": ("litdata", ("litdata", "torch", "tokenizers", "numpy")),
    "streaming": ("torch, transformers, brotli, snappy, zstd, catalogue", ("mosaicml-streaming", "torch", "numpy")),
    "levanter": ("tensorstore", ("tensorstore", "numpy")),
    "duckdb": ("duckdb", ("duckdb", "numpy", "pyarrow")),
    "polars": ("polars", ("polars", "numpy", "pyarrow")),
    "tokenreel": ("numba, msgspec", ("numpy", "numba")),
    "olmo": ("olmo_core.data.utils", ("ai2-olmo-core", "numpy")),
    "maxtext": ("maxtext.input_pipeline._mmap_datasource", ("maxtext", "grain", "numpy")),
}
# Wheels that ask for a newer Python than the part that is measured needs: unpacked beside the environment and put on its path.
WHEELS = {"maxtext": ("maxtext==0.2.5", "3.12")}


@dataclass(frozen=True, slots=True)
class Peer:
    """`python` is the interpreter to run it with, or None and then `reason` says why it is not measured."""

    name: str
    python: Path | None
    reason: str
    versions: dict[str, str]


def peer(name: str) -> Peer:
    """The peer, installed if it is not yet; never raises for a peer that cannot be had."""
    module, packages = PEERS[name]
    pinned = ROOT / "requirements" / f"peers-{name}.txt"
    folder = FOLDER / name
    python, stamp = folder / "bin" / "python", folder / ".installed"
    try:
        digest = hashlib.sha256(pinned.read_bytes()).hexdigest()
        if not stamp.exists() or stamp.read_text() != digest:
            _install(name, pinned, folder, module)
            stamp.write_text(digest)
        return Peer(name, python, "", _versions(python, packages))
    except subprocess.CalledProcessError as error:
        last = [line for line in (error.stderr or "").splitlines() if line.strip() and "WARNING" not in line]
        reason = last[-1] if last else f"{error.cmd[0]} ended with {error.returncode}"
    except OSError as error:
        reason = str(error)
    note(f"{name}: not measured: {reason}")
    return Peer(name, None, reason, {})


def _install(name: str, pinned: Path, folder: Path, module: str) -> None:
    note(f"installing {name} into {folder.relative_to(ROOT)}")
    pip: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    if not (folder / "bin" / "python").exists():
        _run(sys.executable, "-m", "venv", folder)
    torch = [line for line in pinned.read_text().splitlines() if line.startswith("torch==")]
    if torch:  # first and with what it needs, so that a local or CPU build is taken where there is one
        _run(*pip, *torch)
    _run(*pip, "--no-deps", "-r", pinned)
    if name in WHEELS:
        _unpack(folder, *WHEELS[name])
    _run(folder / "bin" / "python", "-W", "ignore", "-c", f"import {module}")


def _unpack(folder: Path, wheel: str, version: str) -> None:
    python, place = folder / "bin" / "python", folder / "wheel"
    with tempfile.TemporaryDirectory(dir=folder) as got:
        only = ("--no-deps", "--only-binary=:all:", "--python-version", version, "--dest", got)
        _run(python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *only, wheel)
        shutil.rmtree(place, ignore_errors=True)
        for file in Path(got).glob("*.whl"):
            zipfile.ZipFile(file).extractall(place)
    where = _run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(where) / "wheel.pth").write_text(f"{place.resolve()}\n")


def _versions(python: Path, packages: tuple[str, ...]) -> dict[str, str]:
    code = "import importlib.metadata as m, sys; print(*(m.version(p) for p in sys.argv[1:]))"
    return dict(zip(packages, _run(python, "-c", code, *packages).split(), strict=True))


def _run(*command: str | Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=clean).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PEERS)}; all by default")
    found = [peer(name) for name in parser.parse_args().names or PEERS]
    versions = [", ".join(f"{name} {version}" for name, version in one.versions.items()) for one in found]
    print(
        table(
            ("peer", "versions"),
            [
                (one.name, line if one.python else f"not measured: {one.reason}")
                for one, line in zip(found, versions, strict=True)
            ],
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
