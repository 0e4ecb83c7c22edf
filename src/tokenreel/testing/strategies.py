"""Hypothesis strategies for corpora, orders, schedules and jobs: needs ``hypothesis``.

>>> from tokenreel.testing import strategies
>>> strategies.settings(world=3).example().world <= 3  # doctest: +SKIP
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.errors import require
from tokenreel.testing.corpora import EOD, numbered_documents
from tokenreel.testing.exactly_once import Setting

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from hypothesis.strategies import SearchStrategy

    from tokenreel.config.run import Schedule

st: Any = require("hypothesis.strategies", extra="dev")


def lengths(*, documents: int = 20, longest: int = 12, empty: bool = True) -> SearchStrategy[list[int]]:
    """Return lengths of up to `documents` documents, one at least."""
    one: SearchStrategy[list[int]] = st.lists(
        st.integers(0 if empty else 1, longest), min_size=1, max_size=documents
    ).filter(any)
    return one


def documents(
    *, documents: int = 20, longest: int = 12, vocab: int = 50, eod: int | None = EOD
) -> SearchStrategy[list[npt.NDArray[np.int32]]]:
    """Return documents of random ids; with `eod` each ends with it and holds it nowhere else."""
    import numpy as np

    ids = st.integers(0, vocab - 1).filter(lambda token: token != eod)
    end = [] if eod is None else [eod]
    one = st.lists(ids, min_size=1, max_size=longest).map(lambda some: np.array(some + end, dtype=np.int32))
    made: SearchStrategy[list[npt.NDArray[np.int32]]] = st.lists(one, min_size=1, max_size=documents)
    return made


def numbered(*, documents: int = 20, longest: int = 12) -> SearchStrategy[list[npt.NDArray[np.int32]]]:
    """Return documents whose ids are their positions: no label occurs twice."""
    made: SearchStrategy[list[npt.NDArray[np.int32]]] = lengths(documents=documents, longest=longest, empty=False).map(
        numbered_documents
    )
    return made


def schedules(*, batch: int = 6, stages: int = 2) -> SearchStrategy[Schedule]:
    """Return schedules of batch sizes by step, with up to `stages` changes."""
    from tokenreel.config.run import Schedule, Stage

    size = st.integers(1, batch)
    ramp = st.dictionaries(st.integers(1, 8), size, max_size=stages).map(
        lambda table: [Stage(step=step, batch=table[step]) for step in sorted(table)]
    )
    made: SearchStrategy[Schedule] = st.builds(lambda first, later: Schedule(batch=first, ramp=later), size, ramp)
    return made


@st.composite  # type: ignore[untyped-decorator]
def settings(draw: Any, *, world: int = 4, batch: int = 8, workers: int = 0) -> Setting:
    """Return a job: ranks, workers, and a batch that all ranks get rows of."""
    ranks = draw(st.integers(1, world))
    rows = draw(st.integers(1, max(1, batch // ranks)))
    return Setting(world=ranks, workers=draw(st.integers(0, workers)), batch=ranks * rows)
