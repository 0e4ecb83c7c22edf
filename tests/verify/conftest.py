"""Corpora that several modules look at, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.corpora import built


@pytest.fixture(scope="session")
def mahan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small corpus in the layout ``mahan``."""
    return built(tmp_path_factory.mktemp("mahan"), "mahan")


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small corpus in the layout ``native``."""
    pytest.importorskip("pyarrow")
    return built(tmp_path_factory.mktemp("native"), "native")
