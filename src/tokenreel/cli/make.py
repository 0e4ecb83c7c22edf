"""Commands that make something: demo, build, merge, adopt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tokenreel.cli import options
from tokenreel.cli.output import bytes_text, note, print_json, print_line
from tokenreel.cli.progress import Progress


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("demo")(demo_command)
    app.command("build")(build_command)
    app.command("merge")(merge_command)
    app.command("adopt")(adopt_command)
