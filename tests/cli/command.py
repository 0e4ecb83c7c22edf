"""Run the real entry point in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.executable).with_name("tokenreel")


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> Ran:
    """Run ``tokenreel ARGUMENTS`` and return its exit status and output."""
    words = (
        [str(SCRIPT), *map(str, arguments)]
        if SCRIPT.exists()
        else [sys.executable, "-m", "tokenreel", *map(str, arguments)]
    )
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)
