"""JSON as sidecars and manifests need it: duplicate keys are errors, output has one spelling."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from tokenreel.errors import ManifestError

if TYPE_CHECKING:
    from tokenreel.store.base import Store


def loads_strict(data: bytes, path: object = None) -> Any:
    """Parse JSON; raises `ManifestError`: MAN001 not UTF-8 or not JSON (with the byte), MAN002 a key twice.

    What JSON cannot write back is not JSON here: NaN, infinities, numbers beyond a float, lone surrogates.

    >>> loads_strict(b'{"a": 1}')
    {'a': 1}
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ManifestError("MAN002", f"the key {twice!r} stands twice in one object", path=path)
        return found

    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=_no_constants, parse_float=_finite
        )
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        raise ManifestError("MAN001", "an escaped lone surrogate", path=path) from error
    except UnicodeDecodeError as error:
        raise ManifestError("MAN001", "not UTF-8", path=path, offset=error.start) from error
    except RecursionError as error:
        raise ManifestError("MAN001", "nested too deeply", path=path) from error
    except ManifestError:
        raise
    except ValueError as error:
        position = getattr(error, "pos", None)
        offset = None if position is None else len(data.decode("utf-8")[:position].encode())
        raise ManifestError("MAN001", f"not valid JSON: {error}", path=path, offset=offset) from error


def dumps_canonical(value: object) -> bytes:
    r"""Return the one spelling tokenreel writes: UTF-8, one space of indent, keys as given, a newline at the end.

    >>> dumps_canonical({"b": [1], "a": "é"})
    b'{\n "b": [\n  1\n ],\n "a": "\xc3\xa9"\n}\n'
    """
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(store: Store, path: str) -> Any:
    """Return a store's file parsed by `loads_strict`."""
    return loads_strict(store.read(path), path)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        msg = f"{digits[:40]} is beyond a 64-bit float"
        raise ValueError(msg)
    return value


def _no_constants(name: str) -> float:
    msg = f"{name} is not JSON"
    raise ValueError(msg)
