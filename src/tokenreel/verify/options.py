"""Options as commands spell them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.errors import UsageError


def known_dtype(dtype: str | None) -> np.dtype[Any] | None:
    """Return a dtype by its name; raises `UsageError` (USE003) for one that is none."""
    if dtype is None:
        return None
    try:
        return np.dtype(dtype)
    except TypeError:
        raise UsageError("USE003", "--dtype", expected="uint16 or uint32", found=dtype, hint="--dtype uint16") from None
