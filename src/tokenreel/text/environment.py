"""Set an environment variable for the length of a call: the only way some engines take a number of threads."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process inside the block and put back what was there.

    >>> with environment("TOKENREEL_EXAMPLE", "1"):
    ...     os.environ["TOKENREEL_EXAMPLE"]
    '1'
    >>> "TOKENREEL_EXAMPLE" in os.environ
    False
    """
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
