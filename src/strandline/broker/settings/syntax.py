"""The configuration language of nats-server: maps, lists, numbers with units, strings, variables, includes.

It is JSON with most of its marks left out: `=`, `:` or nothing between key and value; commas, semicolons or new lines
between entries; quotes only where a text needs them; comments from `#` or `//`. A bare word that begins with `$` is a
variable, of an enclosing block or of the environment; `include FILE` stands for what is in another file.

Invariants: nothing is interpreted here beyond the kinds of values; each value knows the place of its key, which is what
a message about it names. Files and the environment are passed in.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from strandline.broker.settings.errors import ConfigurationRefused
from strandline.errors import InvalidInput

KEY = re.compile(r"[^\s=:]+")
BARE = re.compile(r"[^\s;,\]}'\\]*")
INTEGER = re.compile(r"(-?\d+)(?:([kmgtpe])([bi]*))?(?=[\s;,\]}#]|\Z)", re.IGNORECASE | re.ASCII)
FLOAT = re.compile(r"-?\d+\.\d+(?!\d*\.)", re.ASCII)
ADDRESS = re.compile(r"\d+\.\d+\.[\d.:-]+", re.ASCII)
BLOCK = re.compile(r"\((.*?\n)\)(?=\n|\Z)", re.DOTALL)
BLANK = re.compile(r"(?:\s|#[^\n]*|//[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
BCRYPT = re.compile(r"2[aby]\$")
POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
DEPTH_MAX = 100
INCLUDES_MAX = 16

Plain = str | int | float | bool
Content = Plain | dict[str, "Value"] | list["Value"]
ReadText = Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file; columns count from 0 in the first line and from 1 in the others, as in nats-server."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Value:
    """The value of a key; `is_variable` once another value refers to it."""

    content: Content
    place: Place
    is_variable: bool = False

    @property
    def kind(self) -> str:
        """Return the name of its type for messages."""
        kinds = {bool: "a boolean", int: "an integer", float: "a number", str: "a text", dict: "a map", list: "a list"}
        return kinds[type(self.content)]


@dataclass(slots=True)
class Source:
    """A text being parsed, with its environment and enclosing files."""

    text: str
    file: str
    environment: Mapping[str, str]
    read: ReadText
    scopes: list[dict[str, Value]] = field(default_factory=list)
    around: tuple[str, ...] = ()
    """The enclosing files and variables."""


def parse_file(path: Path, environment: Mapping[str, str], read: ReadText) -> dict[str, Value]:
    """Parse a file; raise `ConfigurationRefused` with the place of the first error."""
    return _Parser(Source(read(path), str(path), environment, read)).parse()


class _Parser:
    """The parser of one text; `at` is its position."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.at = 0
        self.depth = 0

    def parse(self) -> dict[str, Value]:
        entries: dict[str, Value] = {}
        self.source.scopes.append(entries)
        self._skip(BLANK)
        braced = self._next() == "{"
        if braced:  # as in JSON
            self.at += 1
        while self._entry(entries, end="}" if braced else ""):
            pass
        self._skip(BLANK)
        if self._next() == "}":
            self.at += 1
            self._skip(BLANK)
        if self._next():
            raise self._refusal(f"expected a key, but got {self._next()!r}")
        return entries

    def _entry(self, entries: dict[str, Value], *, end: str) -> bool:
        """Read one key and its value into a map; return False at the map's end."""
        self._skip_separators(",;")
        if not self._next() or self._next() in (end, "}"):
            return False
        place = self._place(within_quotes=self._next() in ("'", '"'))
        key, quoted = self._key()
        if key.lower() == "include" and not quoted and self._next() in (" ", "\t"):
            self._skip(SPACE)
            entries.update(self._include(place))
        else:
            entries[key] = self._value_of(place, nested=bool(end))
        self._end_of_value("}" if end else "", "map" if end else "")
        return True

    def _key(self) -> tuple[str, bool]:
        quote = self._next()
        if quote in ("'", '"'):
            close = self.text.find(quote, self.at + 1)
            if close < 0:
                raise self._refusal("a quoted key does not end")
            key, self.at = self.text[self.at + 1 : close], close + 1
            return key, True
        found = KEY.match(self.text, self.at)
        if found is None:
            raise self._refusal(f"unexpected key separator {quote!r}")
        self.at = found.end()
        return found[0], False

    def _value_of(self, place: Place, *, nested: bool) -> Value:
        self._skip_space(lines=True)
        if self._next() in (":", "="):
            self.at += 1
            self._skip_space(lines=nested)
            if self._next() == "\n":
                raise self._refusal("expected a value, but found a new line")
        return self._value(place)

    def _value(self, place: Place) -> Value:
        first = self._next()
        if not first:
            raise self._refusal("expected a value, but the file ends")
        readers: dict[str, Callable[[], Content]] = {
            "{": self._map,
            "[": self._list,
            "'": self._single_quoted,
            '"': self._double_quoted,
            "(": self._block,
        }
        if first in readers:
            self.depth += 1
            if self.depth > DEPTH_MAX:
                raise self._refusal(f"more than {DEPTH_MAX} blocks are within each other")
            value = Value(readers[first](), place)
            self.depth -= 1
            return value
        if first.isdigit() or first == "-":
            return Value(self._number(), place)
        return self._word(place)

    def _map(self) -> dict[str, Value]:
        self.at += 1
        entries: dict[str, Value] = {}
        self.source.scopes.append(entries)
        while self._entry(entries, end="}"):
            pass
        if self._next() != "}":
            raise self._refusal("unexpected end of the file in a map")
        self.at += 1
        self.source.scopes.pop()
        return entries

    def _list(self) -> list[Value]:
        self.at += 1
        values: list[Value] = []
        while True:
            self._skip_separators(",")
            if self._next() == "]":
                self.at += 1
                return values
            if not self._next():
                raise self._refusal("unexpected end of the file in a list")
            values.append(self._value(self._place()))
            self._end_of_value("]", "list")

    def _single_quoted(self) -> str:
        close = self.text.find("'", self.at + 1)
        if close < 0:
            raise self._refusal("a quoted text does not end")
        found, self.at = self.text[self.at + 1 : close], close + 1
        return found

    def _double_quoted(self) -> str:
        self.at += 1
        return self._escaped('"')

    def _escaped(self, end: str) -> str:
        """Read a text with escapes up to a quote, or with no `end` up to where a bare word ends."""
        parts: list[str] = []
        begin = self.at
        while (here := self._next()) != end:
            if not here and end:
                self.at = begin - 1
                raise self._refusal("a quoted text does not end")
            if here == "\\":
                parts.append(self._escape())
                continue
            if not end and (not here or here in ";,]}" or here.isspace()):
                return "".join(parts)
            parts.append(here)
            self.at += 1
        self.at += 1
        return "".join(parts)

    def _escape(self) -> str:
        code = self.text[self.at + 1 : self.at + 2]
        if code == "x":
            digits = self.text[self.at + 2 : self.at + 4]
            if not re.fullmatch("[0-9a-fA-F]{2}", digits):
                raise self._refusal(f"expected two hexadecimal digits after '\\x', but got {digits!r}")
            self.at += 4
            return chr(int(digits, 16))
        if code not in ESCAPES:
            raise self._refusal(f'unknown escape {code!r}: there are \\xXX, \\t, \\n, \\r, \\" and \\\\')
        self.at += 2
        return ESCAPES[code]

    def _block(self) -> str:
        found = BLOCK.match(self.text, self.at)
        if found is None:
            raise self._refusal("a block in parentheses ends with ')' on a line of its own")
        self.at = found.end()
        return found[1]

    def _number(self) -> Plain:
        address = ADDRESS.match(self.text, self.at)
        if address is not None:
            self.at = address.end()
            return address[0]
        whole = INTEGER.match(self.text, self.at)
        if whole is not None:
            self.at = whole.end()
            base = 1024 if whole[3] else 1000
            return int(whole[1]) * int(base ** POWERS[(whole[2] or "").lower()])
        broken = FLOAT.match(self.text, self.at)
        if broken is not None:
            self.at = broken.end()
            return float(broken[0])
        if self._next() == "-":
            raise self._refusal("expected a digit after '-'")
        return self._bare()

    def _bare(self) -> str:
        found = BARE.match(self.text, self.at)
        assert found is not None  # noqa: S101 - it matches nothing, too
        self.at = found.end()
        if self._next() == "\\":
            return found[0] + self._escaped("")
        if self._next() == "'":
            self.at += 1
        return found[0]

    def _word(self, place: Place) -> Value:
        began = self.at
        word = self._bare()
        if self.at == began:
            raise self._refusal(f"expected a value, but got {self._next()!r}")
        if word.startswith("$"):
            return self._variable(word[1:], place)
        return Value(TRUTHS.get(word.lower(), word), place)

    def _variable(self, name: str, place: Place) -> Value:
        if BCRYPT.match(name):
            return Value(f"${name}", place)
        for scope in reversed(self.source.scopes):
            if name in scope:
                scope[name].is_variable = True
                return Value(scope[name].content, place)
        if name not in self.source.environment:
            raise ConfigurationRefused([f"{place}: variable reference for {name!r} can not be found"])
        inner = self._within(f"${name}", place, lambda: f"value={self.source.environment[name]}")
        return Value(_Parser(inner).parse()["value"].content, place)

    def _include(self, place: Place) -> dict[str, Value]:
        name = self._value(place).content
        if not isinstance(name, str) or not name:
            raise ConfigurationRefused([f"{place}: include needs a file name"])
        path = Path(self.source.file).parent / name
        try:
            inner = self._within(str(path), place, lambda: self.source.read(path))
        except ConfigurationRefused:
            raise
        except InvalidInput as error:
            raise ConfigurationRefused([f"{place}: error parsing include file {name!r}: {error}"]) from error
        inner.scopes += self.source.scopes
        return _Parser(inner).parse()

    def _within(self, name: str, place: Place, read: Callable[[], str]) -> Source:
        """Return the source of a reference; refuse a cycle."""
        around = (*self.source.around, self.source.file)
        if name in around or len(around) > INCLUDES_MAX:  # by another name, it is itself at last
            raise ConfigurationRefused([f"{place}: {name} refers to itself"])
        return Source(read(), name, self.source.environment, self.source.read, [], around)

    def _end_of_value(self, end: str, within: str) -> None:
        self._skip(SPACE)
        here = self._next()
        if not here or here in ",;\r\n#}" or here == end or self.text.startswith("//", self.at):
            return
        wanted = f"',' or {end!r} in a {within}" if within else "a new line or a comment after a value"
        raise self._refusal(f"expected {wanted}, but got {here!r}")

    def _skip_separators(self, marks: str) -> None:
        self._skip(BLANK)
        while self._next() and self._next() in marks:
            self.at += 1
            self._skip(BLANK)

    def _skip_space(self, *, lines: bool) -> None:
        while self._next() and (self._next().isspace() if lines else self._next() in " \t\r"):
            self.at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _place(self, *, within_quotes: bool = False) -> Place:
        line = self.text.count("\n", 0, self.at)
        newline = self.text.rfind("\n", 0, self.at)
        return Place(self.source.file, line + 1, self.at - max(newline, 0) + within_quotes)

    def _refusal(self, problem: str) -> ConfigurationRefused:
        place = self._place()
        return ConfigurationRefused([f"{place}: Parse error on line {place.line}: {problem}"])
