"""A mix of a hub's data set and files: no more is pulled than the budget takes, and what is done needs no hub any more."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.build.mixed_runs import all_files, build, json_of, records, sources, whole
from tokenreel.config.mixed import MixedRecipe
from tokenreel.errors import TokenreelError
from tokenreel.store import http
from tokenreel.testing.hub_server import HubServer, Repository
from tokenreel.verify import verify

FILES = {
    f"data/{part}.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in records(f"hub{part}", 30))
    for part in range(3)
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(http, "WAIT_SECONDS", 0.0)


def mixture(folder: Path, budget: int = 2000) -> MixedRecipe:
    hub = {"name": "web", "kind": "hub", "repo": "me/web", "paths": ["data/*"], "id": "id", "url": "url"}
    local = sources(folder, {"books": 30})
    return whole(folder, source=[{**hub, "budget": budget}, {**local[0], "budget": 2000}])


def test_it_ends_at_its_budget_and_is_not_pulled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HubServer({"me/web": Repository(dict(FILES))}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        build(tmp_path, mixture(tmp_path))
    (web, _) = json_of(tmp_path / "out/mix.json")["sources"]
    assert web["complete"]
    assert web["inputs_not_read"] > 0
    read = web["inputs"][0]["path"]
    assert read.startswith("hf://datasets/me/web@")
    assert re.search(r"@([0-9a-f]{40})/", read)[1] in (tmp_path / "out/ATTRIBUTION.md").read_text()  # type: ignore[index]
    report = verify(tmp_path / "out", level="full")
    assert (report.status, report.findings) == ("ok", ())
    before = all_files(tmp_path / "out")
    # The server is gone.
    assert build(tmp_path, mixture(tmp_path)).nothing_to_do
    assert all_files(tmp_path / "out") == before


def test_a_source_that_is_closed_names_itself_and_the_build_goes_on_when_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = mixture(tmp_path, budget=100_000)
    repository = Repository(dict(FILES))
    with HubServer({"me/web": repository}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        build(tmp_path, recipe, "whole")
        repository.gated = True
        with pytest.raises(TokenreelError, match="me/web"):
            build(tmp_path, recipe)
        assert not (tmp_path / "out/tokenreel.json").exists()
        repository.gated = False
        report = build(tmp_path, recipe)
    assert not report.record["sources"][0]["complete"]
    assert all_files(tmp_path / "out") == all_files(tmp_path / "whole")
