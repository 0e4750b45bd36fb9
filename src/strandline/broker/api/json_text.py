"""JSON in the form, and with the error texts, of Go's `encoding/json`.

Invariants: output has no spaces, escapes `<`, `>` and `&`, and keeps the given order. Invalid JSON is refused with Go's
text and offset, because clients show them and tests compare them.
"""

import json
import re
from typing import Any, TypeAlias

from strandline.broker.api.codes import INVALID_JSON, ApiError

_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029", "\x7f": "\x7f"}
_HTML_SET = re.compile("[<>&\u2028\u2029]")
_SPACE = " \t\r\n"
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


_INTEGER_DIGITS_MAX = 1_000


Json: TypeAlias = Any
"""A JSON value."""


class Decimal(str):
    """A number with a fraction or an exponent, kept as text."""

    __slots__ = ()


def write_json(value: Json) -> bytes:
    """Return a value as Go writes it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    escaped = _HTML_SET.sub(lambda found: _HTML[found[0]], text)
    return escaped.encode(errors="replace")


def read_json(data: bytes) -> Json:
    """Return the value of a JSON text; `ApiError` 10025 with Go's text if it is invalid."""
    text = data.decode(errors="replace")
    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
        return _whole(value) if _HALF.search(text) else value
    except (ValueError, RecursionError):
        pass
    try:  # Python is slow to parse very long numbers
        return _whole(json.loads(text, parse_int=_integer, parse_float=Decimal, parse_constant=_refuse_constant))
    except (ValueError, RecursionError):
        raise invalid_json(_error_in(text)) from None


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else Decimal(digits)


def _whole(value: Json) -> Json:
    """Return a value with lone surrogates replaced by U+FFFD, as Go does."""
    if isinstance(value, dict):
        return {_whole(key): _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, str) and not isinstance(value, Decimal):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def invalid_json(problem: str) -> ApiError:
    """Return the error for invalid JSON."""
    return INVALID_JSON.with_text(err=problem)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


class _SyntaxError(Exception):
    """Go's text for the first error in a JSON text."""


def _error_in(text: str) -> str:
    try:
        at = _skip(text, _value(text, 0, 0))
        if at < len(text):
            _raise_at(text, at, "looking for beginning of value")
    except _SyntaxError as wrong:
        return str(wrong)
    return "unexpected EOF"


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _raise_at(text: str, at: int, expected: str) -> None:
    if at >= len(text):
        raise _SyntaxError("unexpected EOF")
    shown = {"'": "'\\''", '"': "'\"'"}.get(text[at]) or f"'{json.dumps(text[at], ensure_ascii=False)[1:-1]}'"
    position = len(text[:at].encode()) + 1
    raise _SyntaxError(f"invalid character {shown} {expected} at offset {position}")


_DEPTH_MAX = 200


def _value(text: str, at: int, depth: int) -> int:
    """Return the position after the value that begins at or after `at`."""
    at = _skip(text, at)
    if at >= len(text) or depth > _DEPTH_MAX:
        raise _SyntaxError("unexpected EOF" if at >= len(text) else "exceeded max depth")
    first = text[at]
    if first == "{":
        return _object(text, at + 1, depth + 1)
    if first == "[":
        return _array(text, at + 1, depth + 1)
    if first == '"':
        return _string(text, at + 1)
    if first in _LITERALS:
        return _literal(text, at, _LITERALS[first])
    number = _NUMBER.match(text, at)
    if number is None:
        if first == "-":
            _raise_at(text, at + 1, "in numeric literal")
        _raise_at(text, at, "looking for beginning of value")
        return at
    end = number.end()
    if text[end : end + 1] == "." and "." not in number[0]:
        _raise_at(text, end + 1, "in numeric literal")
    if text[end : end + 1] in ("e", "E") and "e" not in number[0].lower():
        _raise_at(text, end + 1 + (text[end + 1 : end + 2] in ("+", "-")), "in numeric literal")
    return end


def _object(text: str, at: int, depth: int) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        at = _skip(text, at)
        if text[at : at + 1] != '"':
            _raise_at(text, at, "looking for beginning of object key string")
        at = _skip(text, _string(text, at + 1))
        if text[at : at + 1] != ":":
            _raise_at(text, at, "after object key")
        at = _skip(text, _value(text, at + 1, depth))
        if text[at : at + 1] == "}":
            return at + 1
        if text[at : at + 1] != ",":
            _raise_at(text, at, "after object key:value pair")
        at += 1


def _array(text: str, at: int, depth: int) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        at = _skip(text, _value(text, at, depth))
        if text[at : at + 1] == "]":
            return at + 1
        if text[at : at + 1] != ",":
            _raise_at(text, at, "after array element")
        at += 1


def _string(text: str, at: int) -> int:
    while at < len(text):
        char = text[at]
        if char == '"':
            return at + 1
        if char < " ":
            _raise_at(text, at, "in string")
        if char == "\\":
            at += 1
            if text[at : at + 1] not in tuple('"\\/bfnrtu'):
                _raise_at(text, at, "in string escape code")
        at += 1
    raise _SyntaxError("unexpected EOF")


def _literal(text: str, at: int, word: str) -> int:
    for number, char in enumerate(word):
        if text[at + number : at + number + 1] != char:
            _raise_at(text, at + number, f"in literal {word} (expecting '{char}')")
    return at + len(word)
