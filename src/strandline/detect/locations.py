"""The location of a finding, as a URL for programs and as a text for people.

    file:src/app.py#line=12&column=5&confidence=8&via=base64        src/app.py:12:5
    git:src/app.py#line=12&column=5&commit=1a2b3c4d…                src/app.py@1a2b3c4:12:5
    table:orders.parquet#line=1&column=9&row=42&field=notes         orders.parquet#42/notes:1:9
    journal:events#line=1&column=1&row=1042                         events@1042:1:1
    stream:ORDERS#line=1&column=1&row=1042&field=orders.new         ORDERS/orders.new@1042:1:1
    slack:general#line=1&column=1&row=1700000000.000100&field=ada   general@1700000000.000100 by ada:1:1
    jira:ABC-1#line=1&column=1&field=comment/10200                  ABC-1/comment/10200:1:1
    confluence:ENG/Home#line=1&column=1&row=3                       ENG/Home@3:1:1
    image:app/.env#line=1&column=1&commit=9f86d081…&field=deleted   app/.env@9f86d08 (deleted in a later layer):1:1

The path is that of the item, with those of archive members behind `!`. A URL is ASCII: other characters and bytes are
percent-encoded. Empty parameters (0 or "") are left out and the others have a fixed order, so that equal locations
have equal URLs.

Invariants: a URL is read back as the location that was written, or as its `fitted` form if that was too long; both
texts have at most 4,096 bytes, are valid Unicode and hold no control character, nor any that a terminal would not show
as itself. A text that does not fit is cut before its middle and marked with `…`, because the end of a path says most.
A location names an item and a point in it, and has no field for the bytes found there.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, unquote

from strandline.detect.results import CONFIDENCE_MAX, Found
from strandline.errors import InvalidInput
from strandline.pipeline.findings import LOCATION_BYTES_MAX

FILE, GIT, TABLE, JOURNAL, IMAGE = "file", "git", "table", "journal", "image"
COMMIT_SHOWN: Final = 7
NUMBER_MAX: Final = 2**63 - 1
_CUT = "…"
_SOURCE = re.compile(r"[a-z][a-z0-9.+-]{0,15}")
_COMMIT = re.compile(r"[0-9a-f]{0,64}")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,18}")
_PATH_SAFE = "/!:@$'()*;=,+~"
_VALUE_SAFE = "/!:@$'()*;~"
PLAIN_URL = (
    r"(?P<source>[a-z][a-z0-9.+-]{0,15}):(?P<path>[A-Za-z0-9_.\-/!:@$'()*;=,+~]*)"
    r"#line=(?P<line>[1-9][0-9]{0,17})&column=(?P<column>[1-9][0-9]{0,17})"
    r"(?:&confidence=(?P<confidence>[1-9]|10))?(?:&commit=(?P<commit>[0-9a-f]{1,64}))?"
)
"""A URL without an encoded character, as most are: what it says is what `format_url` writes, without trying."""
_PLAIN = re.compile(PLAIN_URL)
_TEXT_SPACE = {"via": 1024, "row": 512, "field": 512, "inner": 512}
"""Encoded bytes that each of the smaller texts may take; the path has the rest."""


@dataclass(frozen=True, slots=True)
class Location:
    """A point in an item: `row` and `field` in a table, `row` alone for an offset; line and column count from 1.

    `length` is that of the secret in bytes, where it stands in the item as it is, else 0; no URL holds it.
    """

    source: str
    path: str
    line: int = 0
    column: int = 0
    confidence: int = 0
    via: tuple[str, ...] = ()
    commit: str = ""
    row: str = ""
    field: str = ""
    length: int = 0
    inner: str = ""
    """The place in a file that encoded text holds, such as `2:14` in base64 of a gzip."""

    def __post_init__(self) -> None:
        if not _SOURCE.fullmatch(self.source):
            raise InvalidInput("a location's source is a short lower-case word", hint="such as file, git or table")
        numbers: tuple[tuple[str, object, int], ...] = (
            ("line", self.line, NUMBER_MAX),
            ("column", self.column, NUMBER_MAX),
            ("confidence", self.confidence, CONFIDENCE_MAX),
        )
        for name, value, largest in numbers:
            if not isinstance(value, int) or not 0 <= value <= largest:
                raise InvalidInput(f"a location's {name} is a whole number within 0 and {largest}")
        if not _COMMIT.fullmatch(self.commit):
            raise InvalidInput("a location's commit is not hexadecimal")
        if "" in self.via:
            raise InvalidInput("a location's view has no name")

    @property
    def fitted(self) -> "Location":
        """Return the location as a URL of the allowed size holds it: unchanged, or with its longest texts cut."""
        if len(_joined(self)) <= LOCATION_BYTES_MAX:
            return self
        via = _cut(",".join(self.via), _TEXT_SPACE["via"], _value)
        texts = {"row": self.row, "field": self.field, "inner": self.inner}
        row, field, inner = (_cut(text, _TEXT_SPACE[name], _value) for name, text in texts.items())
        small = replace(self, via=tuple(filter(None, via.split(","))), row=row, field=field, inner=inner)
        space = LOCATION_BYTES_MAX - len(_joined(replace(small, path="")))
        return replace(small, path=_cut(self.path, space, _path))


def location_of(source: str, found: Found, *, commit: str = "", row: str = "", field: str = "") -> Location:
    """Return the location of a finding; the names of members are in the path and not again in `via`."""
    via = tuple(step.partition(":")[0] for step in found.via)
    where = Location(source, found.path, found.line, found.column, found.confidence, via, commit, row, field)
    return replace(where, inner=found.inner) if found.inner else where


def format_url(location: Location) -> str:
    """Return a location as a URL."""
    return _joined(location.fitted)


def parse_url(text: str) -> Location:
    """Return the location of a URL; raise `InvalidInput` for any URL that `format_url` does not write."""
    if plain := _PLAIN.fullmatch(text):
        source, path, line, column, confidence, commit = plain.groups("")
        return Location(source, path, int(line), int(column), int(confidence or 0), (), commit)
    source, colon, rest = text.partition(":")
    path, _, query = rest.partition("#")
    values = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
    line, column, confidence = (values.get(name, "0") for name in ("line", "column", "confidence"))
    if colon and all(map(_WHOLE.fullmatch, (line, column, confidence))):
        via = tuple(map(_text, values["via"].split(","))) if "via" in values else ()
        commit, row, field, inner = (_text(values.get(name, "")) for name in ("commit", "row", "field", "inner"))
        location = Location(source, _text(path), int(line), int(column), int(confidence), via, commit, row, field)
        location = replace(location, inner=inner) if inner else location
        if _joined(location) == text:
            return location
    raise InvalidInput("a location's URL cannot be read", hint="it was not written by this version")


def format_display(location: Location) -> str:
    """Return a location for display; it is not read back."""
    place = location.path
    match location.source:
        case "table" if location.row or location.field:
            place += f"#{location.row}/{location.field}" if location.field else f"#{location.row}"
        case "stream" if location.row:
            place += f"/{location.field}@{location.row}"
        case "slack" if location.row:
            place += f"@{location.row}" + (f" by {location.field}" if location.field else "")
        case "jira" | "confluence" if location.row or location.field:
            place += (f"/{location.field}" if location.field else "") + (f"@{location.row}" if location.row else "")
        case "journal" if location.row:
            place += f"@{location.row}"
        case _ if location.commit:
            place += f"@{location.commit[:COMMIT_SHOWN]}"
            place += f" ({location.field} in a later layer)" if location.source == IMAGE and location.field else ""
        case _:
            pass
    point = f":{location.line}:{location.column}" if location.line else ""
    point += f" (inside: {_cut(shown(location.inner), _TEXT_SPACE['inner'], str.encode)})" if location.inner else ""
    return (_cut(shown(place), LOCATION_BYTES_MAX - len(point), str.encode) + point) or location.source


def read_location(display: str | None, url: str | None) -> Location:
    """Return the location of a stored finding; one that another program wrote is its text alone."""
    if url:
        try:
            return parse_url(url)
        except InvalidInput:
            pass
    return Location("other", display or url or "")


def shown(text: str) -> str:
    r"""Return a text with unprintable characters escaped (`\n` as `\x0a`, bytes that are no UTF-8 as `\xff`)."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _joined(location: Location) -> str:
    parts = {
        "line": location.line,
        "column": location.column,
        "confidence": location.confidence,
        "via": ",".join(map(_value, location.via)),
        "commit": location.commit,
        "row": _value(location.row),
        "field": _value(location.field),
        "inner": _value(location.inner),
    }
    query = "&".join(f"{name}={value}" for name, value in parts.items() if value)
    return f"{location.source}:{_path(location.path)}" + (f"#{query}" if query else "")


def _path(text: str) -> str:
    return quote(text_bytes(text), _PATH_SAFE)


def _value(text: str) -> str:
    return quote(text_bytes(text), _VALUE_SAFE)


def _text(quoted: str) -> str:
    return unquote(quoted, errors="surrogateescape")


def text_bytes(text: str) -> bytes:
    """Return a text's bytes; surrogate escapes become the bytes that the file system had."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, which no bytes decode to
        return text.encode(errors="replace")


def _cut(text: str, space: int, encoded: Callable[[str], str | bytes]) -> str:
    """Return a text cut so that its encoding fits; a third of it is from the beginning."""
    if len(encoded(text)) <= space:
        return text
    left = space - len(encoded(_CUT))
    head = _prefix(text, left // 3, encoded)
    tail = _prefix(text[::-1], left - len(encoded(head)), encoded)[::-1]
    return head + _CUT + tail


def _prefix(text: str, space: int, encoded: Callable[[str], str | bytes]) -> str:
    taken = 0
    for at, character in enumerate(text):
        taken += len(encoded(character))
        if taken > space:
            return text[:at]
    return text


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - a byte that is no UTF-8, as `os.fsdecode` gives it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
