"""Read TOML into tables: overrides put in, unknown keys refused with the nearest known one."""

from __future__ import annotations

import re
import shlex
import tomllib
import types
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from tokenreel.errors import RecipeError, nearest

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a TOML file as a table; raises `RecipeError` (RCP001, RCP002)."""
    place = Path(path)
    try:
        text = place.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise RecipeError("RCP001", path=path, hint=f"ls {shlex.quote(str(place.parent))}") from error
    except OSError as error:
        hint = f"ls -ld {shlex.quote(str(place))}"
        raise RecipeError("RCP001", f"cannot read it: {error.strerror or error}", path=path, hint=hint) from error
    except UnicodeDecodeError as error:
        raise RecipeError("RCP002", "not UTF-8", path=path, offset=error.start) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.search(str(error))
        message = _PLACE.sub("", str(error)).strip()
        where = f", column {found[2]}" if found else ""
        line = int(found[1]) if found else None
        raise RecipeError("RCP002", f"{message}{where}", path=path, line=line) from error


def override(table: dict[str, Any], text: str) -> None:
    """Put ``a.b=VALUE`` into a table; ``source.0.name`` or ``source[0].name`` reaches into a list.

    A value that is not TOML is taken as a string: ``--set tokenizer.engine=reference`` needs no quotes. Raises
    `RecipeError` (RCP005).

    >>> table = {"source": [{"name": "a"}]}
    >>> override(table, "split.modulo=50")
    >>> override(table, "source[0].name=b")
    >>> table
    {'source': [{'name': 'b'}], 'split': {'modulo': 50}}
    """
    dotted, equals, value = text.partition("=")
    keys = re.sub(r"\[(\d+)\]", r".\1", dotted.strip()).split(".")
    if not equals or not all(_KEY.fullmatch(key) for key in keys):
        raise RecipeError("RCP005", expected="key.key=value", found=text, hint="--set split.modulo=100")
    at: Any = table
    for key in keys[:-1]:
        at = _inside(at, key, text, make=True)
    last = keys[-1]
    if isinstance(at, list):
        _inside(at, last, text, make=False)
        at[int(last)] = _value(value)
    elif isinstance(at, dict):
        at[last] = _value(value)
    else:
        raise _no_place(text, last)


def _inside(at: Any, key: str, text: str, *, make: bool) -> Any:
    if isinstance(at, list) and key.isdigit() and int(key) < len(at):
        return at[int(key)]
    if isinstance(at, dict):
        return at.setdefault(key, {}) if make else at.get(key)
    raise _no_place(text, key)


def _no_place(text: str, key: str) -> RecipeError:
    return RecipeError("RCP005", f"there is no {key!r} to set", found=text, hint="--set split.modulo=100")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def refuse_unknown(
    table: Any,
    kind: type[msgspec.Struct],
    path: object = None,
    at: str = "",
    schema: str = "recipe",
    root: type[msgspec.Struct] | None = None,
) -> None:
    """Raise `RecipeError` for the first key of `table`, at any depth, that `kind` does not have (RCP003).

    Where a table may be one of several kinds, the key that says which is looked at first (RCP040).
    """
    if not isinstance(table, dict):
        return
    fields = get_type_hints(kind)
    if kind.__struct_config__.tag_field:
        fields = {kind.__struct_config__.tag_field: str, **fields}
    for key, value in table.items():
        place = f"{at}.{key}" if at else str(key)
        if key not in fields:
            near = _alike(str(key), fields) or _elsewhere(str(key), root or kind)
            message = f"unknown key {place}" + (f"; did you mean {near}?" if near else "")
            hint = f"write {near} in place of {place}" if near else f"tokenreel schema {schema}"
            raise RecipeError("RCP003", message, path=path, expected=", ".join(fields), found=key, hint=hint)
        kinds = list(_structs(fields[key]))
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            inside = f"{place}[{number}]" if isinstance(value, list) else place
            inner = _kind_of(item, kinds, path, inside, schema)
            if inner is not None:
                refuse_unknown(item, inner, path, inside, schema, root or kind)


def _alike(key: str, fields: Iterable[str]) -> str | None:
    """Return the field that `key` is a misspelling of; a word of another meaning is none."""
    near = nearest(key, fields)
    return near if near is not None and SequenceMatcher(None, key, near).ratio() >= 0.7 else None


def _elsewhere(key: str, root: type[msgspec.Struct]) -> str | None:
    """Return ``table.key`` where exactly one table at the top has this key."""
    found = [
        f"{name}.{key}"
        for name, kind in get_type_hints(root).items()
        if any(key in get_type_hints(one) for one in _structs(kind))
    ]
    return found[0] if len(found) == 1 else None


def wrong_value(
    error: msgspec.ValidationError,
    table: Any,
    kind: Any,
    path: object = None,
    *,
    at: str = "",
    schema: str = "recipe",
) -> RecipeError:
    """Return the `RecipeError` (RCP004) for what `msgspec.convert(table, kind)` refused, with what would be right."""
    said, _, place = str(error).partition(" - at `")
    inside = place.rstrip("`").removeprefix("$")
    key = (at + inside).lstrip(".")
    value, kinds = _reach(table, kind, re.findall(r"[^.\[\]]+", inside))
    last = key.rpartition(".")[2]
    hint, expected, found = f"tokenreel schema {schema}", None, None
    choices = [str(one) for k in kinds if get_origin(k) is Literal for one in get_args(k)]
    missing = re.search(r"missing required field `(\w+)`", said)
    if choices and isinstance(value, str) and value not in choices:
        near = nearest(value, choices)
        said = f"there is no {value!r}" + (f"; did you mean {near!r}?" if near else "")
        expected, found = ", ".join(choices), value
    elif isinstance(value, str) and any(get_origin(k) is list for k in kinds):
        said, hint = "a list is expected, and this is one string", f'{last} = ["{value}"]'
    elif missing is not None:
        name = missing[1]
        said = f"{name} is missing"
        hint = _EXAMPLES.get((key, name), hint)
    return RecipeError(
        "RCP004", f"{key}: {said}" if key else said, path=path, expected=expected, found=found, hint=hint
    )


_EXAMPLES = {
    ("", "tokenizer"): 'two lines more in the recipe:\n    [tokenizer]\n    name = "bytes"',
    ("", "source"): 'three lines more in the recipe:\n    [[source]]\n    name = "web"\n    paths = ["text/*.jsonl"]',
    ("", "corpus"): 'three lines more in the run file:\n    [[corpus]]\n    name = "web"\n    path = "data/web"',
    ("", "order"): 'three lines more in the run file:\n    [order]\n    kind = "windows"\n    row_tokens = 4096',
    ("split", "rule"): 'rule = "hash-mod"',
}


def _reach(value: Any, kind: Any, steps: list[str]) -> tuple[Any, list[Any]]:
    """Return the value at a path, and the types it may have there; nothing where the path cannot be followed."""
    kinds = list(_plain_kinds(kind))
    for step in steps:
        if isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
            inner = [get_args(k)[0] for k in kinds if get_origin(k) is list]
        elif isinstance(value, dict) and step in value:
            value = value[step]
            structs = [k for k in kinds if isinstance(k, type) and issubclass(k, msgspec.Struct)]
            inner = [get_type_hints(k)[step] for k in structs if step in get_type_hints(k)]
        else:
            return None, []
        kinds = [plain for k in inner for plain in _plain_kinds(k)]
    return value, kinds


def _plain_kinds(kind: Any) -> Iterator[Any]:
    """Yield the members of a union, without annotations."""
    if get_origin(kind) is Annotated:
        yield from _plain_kinds(get_args(kind)[0])
    elif get_origin(kind) in (Union, types.UnionType):
        for inner in get_args(kind):
            yield from _plain_kinds(inner)
    else:
        yield kind


def _kind_of(
    item: Any, kinds: list[type[msgspec.Struct]], path: object, at: str, schema: str
) -> type[msgspec.Struct] | None:
    """Return which of `kinds` a table is, by the key that says it; None where that cannot be told."""
    if len(kinds) < 2 or not isinstance(item, dict):
        return kinds[0] if kinds else None
    tagged = {str(kind.__struct_config__.tag): kind for kind in kinds}
    key = kinds[0].__struct_config__.tag_field or ""
    if key not in item:
        return None
    said = str(item[key])
    if said not in tagged:
        near = nearest(said, tagged)
        message = f"{at}.{key}: there is no {said!r}" + (f"; did you mean {near!r}?" if near else "")
        hint = f"tokenreel schema {schema}"
        raise RecipeError("RCP040", message, path=path, expected=", ".join(tagged), found=said, hint=hint)
    return tagged[said]


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in get_args(kind):
        yield from _structs(inner)
