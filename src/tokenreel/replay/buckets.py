"""Buckets of documents: a domain cluster and a quality bucket, as one number.

``bucket_id = domain_cluster * 5 + quality_bucket``; clusters 0 to 39, quality buckets 0 to 4 with edges at 0.2, 0.4, 0.6
and 0.8, an edge belonging to the bucket above it. A sampler calls bucket 57 ``c11q2``. Source: Snowball's replay index.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from tokenreel.errors import ReplayError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CLUSTERS = 40
QUALITIES = 5
BUCKETS = CLUSTERS * QUALITIES
EDGES = (0.2, 0.4, 0.6, 0.8)

_NAME = re.compile(r"c(\d\d)q(\d)")


def quality_bucket(score: float) -> int:
    """Return the quality bucket of a score; raises `ReplayError` (RPL002) for NaN.

    >>> [quality_bucket(score) for score in (0.1999, 0.2, 0.79, 0.8, 7.0)]
    [0, 1, 3, 4, 4]
    """
    if score != score:  # noqa: PLR0124 (NaN)
        raise ReplayError("RPL002", "a quality score is NaN")
    return bisect_right(EDGES, score)


def quality_buckets(scores: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the quality buckets of many scores; raises `ReplayError` (RPL002) for NaN.

    >>> quality_buckets([0.2, 0.3999]).tolist()
    [1, 1]
    """
    import numpy as np

    values = np.asarray(scores, dtype=np.float64)
    if bool(np.isnan(values).any()):
        raise ReplayError("RPL002", "a quality score is NaN", document=int(np.isnan(values).argmax()))
    return np.searchsorted(np.array(EDGES), values, side="right").astype(np.int64)


def bucket_id(cluster: int, quality: int) -> int:
    """Return the number of a bucket; raises `ReplayError` (RPL002) outside 0 .. 39 and 0 .. 4.

    >>> bucket_id(11, 2)
    57
    """
    if not (0 <= cluster < CLUSTERS and 0 <= quality < QUALITIES):
        expected = f"a cluster below {CLUSTERS} and a quality bucket below {QUALITIES}"
        raise ReplayError("RPL002", expected=expected, found=f"{cluster}, {quality}")
    return cluster * QUALITIES + quality


def bucket_name(number: int) -> str:
    """Return what samplers call a bucket.

    >>> bucket_name(57)
    'c11q2'
    """
    if not 0 <= number < BUCKETS:
        raise ReplayError("RPL002", expected=f"0 .. {BUCKETS - 1}", found=number)
    return f"c{number // QUALITIES:02d}q{number % QUALITIES}"


def bucket_named(name: str) -> int:
    """Return the number of a bucket called ``cXXqY``; raises `ReplayError` (RPL002).

    >>> bucket_named("c11q2")
    57
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ReplayError("RPL002", "the name of a bucket", expected="cXXqY", found=name)
    return bucket_id(int(match[1]), int(match[2]))
