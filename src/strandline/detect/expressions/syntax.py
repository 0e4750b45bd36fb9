r"""The parser of Go's regular expressions (RE2), which gitleaks files use, into trees over bytes.

    flags      (?i) (?m) (?s) (?U), for the rest of a group or as (?i:…)
    groups     (…) (?:…) (?P<name>…) (?<name>…)
    classes    [a-z] [^a-z] [[:alnum:]] [[:^alpha:]] \d \D \s \S \w \W .
    escapes    \x41 \x{41} \012 \Q…\E \a \f \t \n \r \v
    assertions ^ $ \A \z \b \B
    repeats    * + ? {n} {n,} {n,m}, lazy with ? behind

A text is UTF-8: a character beyond ASCII is the sequence of its bytes. Go counts characters in `.{3}` and `[^a]{3}`;
this parser counts bytes, which is the same for ASCII secrets.

Invariants: an accepted expression means the same as in Go; any other raises `Unsupported` with its position:
look-around and back-references, which Go refuses too, and classes of Unicode properties, which have no use over
bytes.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from strandline.detect.expressions.classes import (
    ASCII_CLASSES,
    PERL_CLASSES,
    Runes,
    Unsupported,
    fold,
    negated,
    to_node,
)
from strandline.detect.expressions.nodes import EMPTY, FULL, Alt, At, Chars, Group, Node, Place, Repeat, Seq

REPEAT_MAX = 1000
DEPTH_MAX = 100
_NEWLINE = 1 << 10
_KNOWN_CHARACTERS_MAX = 1_024
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_PLACES = {"A": Place.TEXT_START, "z": Place.TEXT_END, "b": Place.WORD_EDGE, "B": Place.NO_WORD_EDGE}


_CLASS = re.compile(r"\[\^?+(?:[^\[\]\\]|\\.)+\]", re.DOTALL)
_QUOTED = re.compile(r"\\(?:Q(.*?)(?:\\E|\Z)|.)", re.DOTALL)


def parse(text: str) -> Node:
    """Return the tree of an expression; raise `Unsupported` if it has none."""
    return _known(text) if len(text) <= _KNOWN_CHARACTERS_MAX else _parsed(text)


def _parsed(text: str) -> Node:
    parser = _Parser(_QUOTED.sub(_unquoted, text))
    node = parser.alternatives(_Flags())
    if parser.at < len(parser.text):
        raise Unsupported("a parenthesis closes nothing", parser.at)
    return node


_known = lru_cache(maxsize=1_024)(_parsed)
"""A cache, because checking, planning and matching each parse the same expressions."""


@dataclass(frozen=True, slots=True)
class _Flags:
    fold: bool = False
    lines: bool = False
    dot_all: bool = False
    lazy: bool = False

    def changed(self, letters: str, at: int) -> "_Flags":
        on, minus, off = letters.partition("-")
        if (minus and not off) or set(on + off) - set("imsU"):
            raise Unsupported("unknown flags", at)
        old = {"i": self.fold, "m": self.lines, "s": self.dot_all, "U": self.lazy}
        new = old | dict.fromkeys(on, True) | dict.fromkeys(off, False)
        return _Flags(new["i"], new["m"], new["s"], new["U"])


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.groups = 0
        self.depth = 0

    def alternatives(self, flags: _Flags) -> Node:
        """Parse up to the end of the group or of the text."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Unsupported(f"nested deeper than {DEPTH_MAX}", self.at)
        options: list[Node] = []
        items: list[Node] = []
        while self.at < len(self.text) and (char := self.text[self.at]) != ")":
            if char == "|":
                self.at += 1
                options.append(_seq(items))
                items = []
            elif char == "(" and self._flags_ahead():
                flags = flags.changed(self._flag_letters(), self.at)
            else:
                items.append(self._repeated(flags))
        self.depth -= 1
        options.append(_seq(items))
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _take(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _next(self, what: str) -> str:
        if self.at >= len(self.text):
            raise Unsupported(f"ends inside {what}", self.at)
        self.at += 1
        return self.text[self.at - 1]

    def _flags_ahead(self) -> bool:
        """Return whether `(?flags)` without a colon follows."""
        if not self.text.startswith("(?", self.at):
            return False
        end = self.text.find(")", self.at)
        return end >= 0 and all(c in "imsU-" for c in self.text[self.at + 2 : end])

    def _flag_letters(self) -> str:
        end = self.text.index(")", self.at)
        letters = self.text[self.at + 2 : end]
        if not letters:
            raise Unsupported("flags without a letter", self.at)
        self.at = end + 1
        return letters

    def _repeated(self, flags: _Flags) -> Node:
        begin = self.at
        node = self._atom(flags)
        count = self._count()
        if count is None:
            return node
        low, high = count
        if (high is not None and high < low) or max(low, high or 0) > REPEAT_MAX:
            raise Unsupported(f"a repeat is out of order or over {REPEAT_MAX}", begin)
        greedy = self._take("?") is flags.lazy
        after = self.at
        if self._count() is not None:
            raise Unsupported("a repeat of a repeat", after)
        return Repeat(node, low, high, greedy)

    def _count(self) -> tuple[int, int | None] | None:
        sign = self.text[self.at : self.at + 1]
        if sign in _COUNTS:
            self.at += 1
            return _COUNTS[sign]
        if sign != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, 0)].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        self.at = end + 1
        return int(low), int(high) if high else None if comma else int(low)

    def _atom(self, flags: _Flags) -> Node:  # noqa: PLR0911 - one for each kind of atom
        begin = self.at
        char = self._next("the expression")
        match char:
            case "(":
                return self._group(flags, begin)
            case "[":
                return self._class_node(flags, begin)
            case ".":
                return Chars(FULL if flags.dot_all else FULL ^ _NEWLINE)
            case "^":
                return At(Place.LINE_START if flags.lines else Place.TEXT_START)
            case "$":
                return At(Place.LINE_END if flags.lines else Place.TEXT_END)
            case "\\":
                return self._escape(flags, begin)
            case "*" | "+" | "?":
                raise Unsupported("a repeat of nothing", begin)
            case _:
                return _literal(ord(char), folds=flags.fold)

    def _group(self, flags: _Flags, begin: int) -> Node:
        index, name = None, None
        if self._take("?"):
            flags, index, name = self._group_kind(flags, begin)
        else:
            index = self._number()
        node = self.alternatives(flags)
        if not self._take(")"):
            raise Unsupported("a parenthesis is not closed", begin)
        return node if index is None else Group(node, index, name)

    def _number(self) -> int:
        self.groups += 1
        return self.groups

    def _group_kind(self, flags: _Flags, begin: int) -> tuple[_Flags, int | None, str | None]:
        if self.text.startswith(("=", "!", "<=", "<!"), self.at):
            raise Unsupported("look-around is not regular, and RE2 has none", begin)
        if self._take("P<") or self._take("<"):
            end = self.text.find(">", self.at)
            name = self.text[self.at : max(end, self.at)]
            if not name or not all(c.isalnum() or c == "_" for c in name):
                raise Unsupported("a group's name is not closed or not a word", begin)
            self.at = end + 1
            return flags, self._number(), name
        if self._take("P="):
            raise Unsupported("back-references are not regular, and RE2 has none", begin)
        end = self.text.find(":", self.at)
        letters = self.text[self.at : max(end, self.at)]
        if end < 0 or set(letters) - set("imsU-"):
            raise Unsupported("unknown kind of group", begin)
        self.at = end + 1
        return (flags.changed(letters, begin) if letters else flags), None, None

    def _escape(self, flags: _Flags, begin: int) -> Node:
        char = self.text[self.at : self.at + 1]
        if char in _PLACES and char:
            self.at += 1
            return At(_PLACES[char])
        if char in PERL_CLASSES and char:
            self.at += 1
            return _PERL_NODES[char]
        if char == "C":
            self.at += 1
            return Chars(FULL)
        return _literal(self._escaped_rune(begin), folds=flags.fold)

    def _escaped_rune(self, begin: int) -> int:
        char = self._next("an escape")
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self._hexadecimal(begin)
        if char == "0" or (char in "1234567" and self.text[self.at : self.at + 1] in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self.text[self.at : self.at + 1] in tuple("01234567"):  # noqa: PLR2004
                digits += self._next("an escape")
            return int(digits, 8)
        if char in "pP":
            raise Unsupported("classes of Unicode properties are not supported over bytes", begin)
        if char.isascii() and char.isalnum():
            what = "back-references are not regular, and RE2 has none" if char.isdigit() else "unknown escape"
            raise Unsupported(what, begin)
        return ord(char)

    def _hexadecimal(self, begin: int) -> int:
        if self._take("{"):
            end = self.text.find("}", self.at)
            digits = self.text[self.at : max(end, self.at)]
            self.at = end + 1
        else:
            digits = self.text[self.at : self.at + 2]
            self.at += 2
            if len(digits) != 2:  # noqa: PLR2004
                digits = ""
        if not digits or set(digits) - set("0123456789abcdefABCDEF") or int(digits, 16) > 0x10FFFF:  # noqa: PLR2004
            raise Unsupported("a hexadecimal escape is not closed or not a character", begin)
        return int(digits, 16)

    def _class_node(self, flags: _Flags, begin: int) -> Node:
        """Parse a class; classes without a nested class are cached by their text, because many rules repeat them."""
        whole = _CLASS.match(self.text, begin)
        if whole is None:
            return to_node(self.class_runes(flags), begin)
        self.at = whole.end()
        try:
            return _known_class(whole[0], folds=flags.fold)
        except Unsupported as problem:
            raise Unsupported(problem.problem, begin + problem.position) from None

    def class_runes(self, flags: _Flags) -> Runes:
        """Parse a class after its opening bracket."""
        begin = self.at - 1
        negate = self._take("^")
        runes: Runes = []
        empty = True
        while empty or not self._take("]"):
            empty = False
            runes += self._class_item(begin)
        if flags.fold:
            runes = fold(runes)
        return negated(runes) if negate else runes

    def _class_item(self, begin: int) -> Runes:
        if self.at >= len(self.text):
            raise Unsupported("a class is not closed", begin)
        if self._take("[:"):
            end = self.text.find(":]", self.at)
            name = self.text[self.at : max(end, self.at)]
            if name.removeprefix("^") not in ASCII_CLASSES:
                raise Unsupported("unknown class of characters", self.at)
            self.at = end + 2
            runes = ASCII_CLASSES[name.removeprefix("^")]
            return negated(runes) if name.startswith("^") else list(runes)
        if self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in tuple(PERL_CLASSES):
            self.at += 2
            return list(PERL_CLASSES[self.text[self.at - 1]])
        low = self._class_rune()
        following = self.text[self.at + 1 : self.at + 2]
        if not self.text.startswith("-", self.at) or following in {"]", ""}:
            return [(low, low)]
        self.at += 1
        high = self._class_rune()
        if high < low:
            raise Unsupported("a range of a class is out of order", self.at)
        return [(low, high)]

    def _class_rune(self) -> int:
        begin = self.at
        char = self._next("a class")
        return self._escaped_rune(begin) if char == "\\" else ord(char)


def _unquoted(found: re.Match[str]) -> str:
    r"""Return the text of `\Q…\E` with each character escaped: a repeat after it applies to its last character."""
    return found[0] if found[1] is None else "".join(f"\\x{{{ord(char):x}}}" for char in found[1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4  # noqa: PLR2004


def _seq(items: list[Node]) -> Node:
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Seq) else (item,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat)) if flat else EMPTY


@lru_cache(maxsize=1_024)
def _known_class(text: str, *, folds: bool) -> Node:
    parser = _Parser(text)
    parser.at = 1
    return to_node(parser.class_runes(_Flags(fold=folds)), 0)


@lru_cache(maxsize=1_024)
def _literal(rune: int, *, folds: bool) -> Node:
    runes = [(rune, rune)]
    return to_node(fold(runes) if folds else runes, 0)


_PERL_NODES = {letter: to_node(runes, 0) for letter, runes in PERL_CLASSES.items()}
