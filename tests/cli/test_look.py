"""formats, explain, schema, and what every command has in common."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import run
from tokenreel.cli.main import main
from tokenreel.errors import codes
from tokenreel.formats import FORMATS


def test_formats_prints_the_code_s_table() -> None:
    shown = run("formats", "--json")
    assert shown.status == 0
    assert [row["name"] for row in shown.json["formats"]] == [form.name for form in FORMATS]
    assert all(form.name in run("formats").out for form in FORMATS)


def test_the_readme_s_table_is_the_code_s(repository: Path) -> None:
    text = (repository / "README.md").read_text()
    section = text.partition("## Formats")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    said = [[cell.strip() for cell in line.replace("`", "").split("|")[1:-1]] for line in rows]
    yes = {True: "yes", False: "no"}
    assert said == [[f"{f.name} {f.title}", f.files, yes[f.reads], yes[f.writes], f.notes] for f in FORMATS]


def test_explain() -> None:
    assert run("explain", "meg001").out.startswith("MEG001: ")
    assert run("explain", "MEG001", "--json").json["code"] == "MEG001"
    assert len(run("explain", "--list", "--json").json["codes"]) == len(codes())
    wrong = run("explain", "MEG999", "--json")
    assert wrong.status == 2
    assert wrong.json["error"]["code"] == "USE001"
    assert wrong.json["error"]["hint"].startswith("tokenreel explain MEG")


def test_explain_a_family_and_words() -> None:
    listed = [row["code"] for row in run("explain", "meg", "--json").json["codes"]]
    assert listed == [code for code in codes() if code.startswith("MEG")]
    assert run("explain", "bug").out.startswith("bug: ")
    assert run("explain", "interrupted", "--json").json["code"] == "interrupted"


def test_schema_makes_no_folder_and_writes_over_nothing(tmp_path: Path) -> None:
    absent = run("schema", "-o", tmp_path / "absent/s.json", "--json")
    assert (absent.status, absent.json["error"]["code"]) == (3, "STO001")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "s.json").write_text("mine")
    there = run("schema", "-o", tmp_path / "s.json", "--json")
    assert (there.status, there.json["error"]["code"]) == (2, "USE011")
    assert (tmp_path / "s.json").read_text() == "mine"
    assert run("schema", "-o", tmp_path / "s.json", "--force").status == 0


def test_schema_is_one_json_document(tmp_path: Path) -> None:
    shown = run("schema", "recipe")
    assert shown.status == 0
    assert shown.json["$ref"]
    run("schema", "recipe", "-o", tmp_path / "schema.json")
    assert json.loads((tmp_path / "schema.json").read_text()) == shown.json
    assert run("schema", "run").json["$ref"].endswith("/RunFile")
    assert run("schema", "nothing").status == 2


@pytest.mark.parametrize("arguments", [("nothing",), ("formats", "--nothing"), ("verify",)])
def test_usage_errors_exit_2_also_as_json(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).status == 2
    shown = run(*arguments, "--json")
    assert shown.status == 2
    assert shown.json["error"]["code"] == "USE003"


def test_version_and_help() -> None:
    assert run("--version").status == 0
    helped = run("--help")
    assert helped.status == 0
    for name in ("build", "verify", "inspect", "adopt", "merge", "demo", "explain", "formats"):
        assert name in helped.out


def test_a_missing_path_exits_3_and_says_where(tmp_path: Path) -> None:
    shown = run("verify", tmp_path / "absent", "--json")
    assert shown.status == 3
    assert shown.json["error"]["code"] == "STO001"
    assert "absent" in shown.json["error"]["where"]["path"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m tokenreel explain --list | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_bug_exits_70(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("tokenreel.cli.app.command", broken)
    assert main(["formats", "--json"]) == 70
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == "bug"
    assert "boom" in captured.err


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tokenreel.cli.app.command", stopped)
    assert main(["formats"]) == 130
    assert "interrupted" in capsys.readouterr().err
