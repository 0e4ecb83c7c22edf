"""Settings of the whole suite: hypothesis profiles, and where the optional shared tokenizers are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.warm import Warm

ROOT = Path(__file__).resolve().parent.parent

# "ci" gives the same examples on every run; "all" looks for new ones, and more of them.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "all", deadline=None, max_examples=400, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("all" if os.environ.get("TOKENREEL_ALL") == "1" else "ci")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_tokenizers() -> Path | None:
    """Return the folder of real tokenizers (env TOKENREEL_SHARED, or a sibling `shared`), or None where it is absent."""
    given = os.environ.get("TOKENREEL_SHARED")
    folder = (Path(given) if given else ROOT.parent / "shared") / "tokenizers"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Return a process that has imported the frameworks and loaded the kernels, and forks jobs in a moment."""
    rims = (
        "torch.distributed",
        "torch._dynamo",
        "torchdata.stateful_dataloader",
        "jax",
        "grain",
        "tokenreel.feed.torch",
    )
    with Warm("tests.feed.killing:warm_up", *rims, "tokenreel.feed.jax", "tokenreel.feed.grain") as server:
        yield server
