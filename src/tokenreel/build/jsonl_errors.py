"""What is wrong with a line of JSON: found by looking again, slowly, with its line, its byte and what would mend it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tokenreel.errors import SourceError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenreel.build.records import SourceShape

_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
_NO_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|(-?(?:NaN|Infinity))', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line and where it stands."""

    data: bytes
    path: str
    number: int
    offset: int
    """Byte of its beginning in the file; in the decompressed data, where the file is compressed."""
    inside: str | None = None
    """What the file is compressed with."""
    cut: bool = False
    """Whether it is the file's last line and no newline ends it."""

    def error(self, code: str, message: str, at: int | None = None, **facts: Any) -> SourceError:
        """Return the error with this line's place; `at` is a byte of the line."""
        offset = None if at is None else self.offset + at
        if offset is not None and self.inside:
            message += f" The byte is counted in the decompressed data ({self.inside})."
        return SourceError(code, message, path=self.path, line=self.number, offset=offset, **facts)


def diagnose(line: Line, shape: SourceShape, error: Exception) -> SourceError:
    """Return the error that says what is wrong with a line that did not decode: `error` said no more than that."""
    data = line.data
    if line.number == 1 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return line.error("SRC001", "The file is UTF-16.", 0, expected="UTF-8", hint=utf16_hint(line.path))
    if line.number == 1 and data[:4] == b"PAR1":
        return line.error(
            "SRC003",
            "These are the bytes of a Parquet file, not lines of JSON.",
            0,
            expected="one JSON object a line",
            found="PAR1",
            hint='set format = "parquet" in [[source]], or let the file\'s name end in .parquet',
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        found = f"0x{data[bad.start]:02x} ({bad.reason})"
        return line.error("SRC001", "The line is not UTF-8.", bad.start, expected="UTF-8", found=found)
    try:
        # Numbers stay as they are spelled: an integer of many digits is none of our business.
        value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant)
    except _NoNumberError as bad:
        at = next((match.start(1) for match in _NO_NUMBER.finditer(text) if match[1]), 0)
        return line.error("SRC003", f"{bad} is not JSON.", _byte(text, at), expected="a number or null", found=str(bad))
    except json.JSONDecodeError as bad:
        return _not_json(line, text, bad)
    except RecursionError:
        return line.error("SRC003", "The line cannot be taken, and nests too deeply to say what is wrong with it.", 0)
    lone = next((match for match in _SURROGATE.finditer(data) if match[1]), None)
    if lone is not None:
        message = "A string escapes half of a surrogate pair, which stands for no character."
        return line.error("SRC002", message, lone.start(), expected="a pair of surrogates", found=lone[1].decode())
    if not isinstance(value, dict):
        at = len(data) - len(data.lstrip())
        hint = f"jq -c '.[]' {line.path} > lines.jsonl" if isinstance(value, list) else None
        message = "A line is one JSON object; this one is something else."
        return line.error("SRC004", message, at, expected="an object", found=_kind(value), hint=hint)
    return _wrong_field(line, value, shape) or line.error("SRC003", f"The line does not decode: {error}.", 0)


def _not_json(line: Line, text: str, bad: json.JSONDecodeError) -> SourceError:
    head = text.lstrip()[:1]
    unfinished = bad.pos >= len(text.rstrip()) or bad.msg.startswith("Unterminated string")
    message, hint = f"The line is not JSON: {bad.msg}.", None
    if unfinished and line.cut:
        message = (
            f"The file seems to be cut: its last line ends in the middle of a value ({bad.msg}), without a newline."
        )
        hint = f"fetch {line.path} again"
    elif head == "[":
        message = "The line begins a JSON array; the file must hold one object per line."
        hint = f"jq -c '.[]' {line.path} > lines.jsonl"
    elif unfinished and head == "{":
        message = "The object does not end on its line; the file must hold one object per line."
        hint = f"jq -c . {line.path} > lines.jsonl"
    return line.error("SRC003", message, _byte(text, bad.pos), hint=hint)


def _wrong_field(line: Line, value: dict[str, Any], shape: SourceShape) -> SourceError | None:
    wanted = {"text": shape.text, "id": shape.id, "source": shape.source_field}
    for role, name in wanted.items():
        if name is None:
            continue
        if name not in value:
            return _no_field(line, value, role, name)
        one = value[name]
        allowed = (str, _Number) if role == "id" and name not in (shape.text, shape.source_field) else (str,)
        integer = not isinstance(one, _Number) or re.fullmatch(r"-?[0-9]+", one.spelled) is not None
        if not isinstance(one, allowed) or not integer:
            expected = "a string" if allowed == (str,) else "a string or an integer"
            message = f"The field {name!r} must hold {expected}, and holds {_kind(one)}."
            return line.error("SRC006", message, expected=expected, found=_kind(one))
    return None


def _no_field(line: Line, value: dict[str, Any], role: str, name: str) -> SourceError:
    strings = [key for key, one in value.items() if isinstance(one, str)]
    near = nearest(name, strings) or (max(strings, key=lambda key: len(value[key])) if strings else None)
    hint = None
    if near is not None:
        hint = (
            f'set {role} = "{near}" in [[source]]' if role != "source" else f'set source.field = "{near}" in [[source]]'
        )
    found = "the fields " + ", ".join(list(value)[:8]) if value else "no fields"
    return line.error("SRC005", f"The record has no field {name!r}.", expected=name, found=found, hint=hint)


def refuse_twice(line: Line, names: Iterable[str]) -> None:
    """Raise `SourceError` (SRC007) if one of `names` stands twice in the outermost object, however it is spelled.

    The line is valid JSON. Raises `RecursionError` where it nests too deeply for Python's parser.
    """
    seen: set[str] = set()
    wanted = set(names)
    text = line.data.decode()
    for key, at in _outer_keys(text):
        if key in seen:
            message = f"The key {key!r} stands twice in one object."
            raise line.error("SRC007", message, _byte(text, at), expected="each key once", found=text[at : at + 40])
        if key in wanted:
            seen.add(key)


def _outer_keys(text: str) -> list[tuple[str, int]]:
    """Return the keys of the outermost object of a line of JSON, and where each begins.

    >>> _outer_keys('{"a": {"b": 1}, "\\\\u0061": 2}')
    [('a', 1), ('a', 16)]
    """
    scan = json.JSONDecoder(parse_int=_Number, parse_float=_Number).raw_decode
    keys = []
    at = _past(text, text.index("{") + 1)
    while text[at] == '"':
        key, end = scan(text, at)
        keys.append((key, at))
        _, end = scan(text, _past(text, _past(text, end) + 1))
        at = _past(text, end)
        if text[at] == ",":
            at = _past(text, at + 1)
    return keys


def escapes(name: str) -> bytes:
    """Return a regular expression for the escapes that could spell a character of `name`.

    >>> escapes("a/")
    b'\\\\\\\\u0061|\\\\\\\\u002[fF]|\\\\\\\\/'
    """
    units = [name[k : k + 1].encode("utf-16-be") for k in range(len(name))]
    found = []
    for unit in dict.fromkeys(units):
        digits = f"{int.from_bytes(unit[:2], 'big'):04x}"
        found.append(rb"\\u" + "".join(d if d.isdigit() else f"[{d}{d.upper()}]" for d in digits).encode())
    if "/" in name:
        found.append(rb"\\/")
    return b"|".join(found) or rb"(?!)"


def utf16_hint(path: str) -> str:
    """Return the command that turns UTF-16 into UTF-8."""
    return f"iconv -f UTF-16 -t UTF-8 {path} > utf8-copy"


class _Number:
    """A number of JSON as it is spelled."""

    __slots__ = ("spelled",)

    def __init__(self, spelled: str) -> None:
        self.spelled = spelled


class _NoNumberError(ValueError):
    pass


def _refuse_constant(word: str) -> NoReturn:
    raise _NoNumberError(word)


def _kind(value: object) -> str:
    if isinstance(value, _Number):
        return "a number"
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


def _past(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _byte(text: str, at: int) -> int:
    return len(text[:at].encode())
