"""Regular expressions over bytes, as trees: the source of both matchers, and their properties.

    Chars   one byte of a set            Seq      one after the other       Alt    one of several
    Repeat  low to high times            Group    numbered, captured        At     an assertion between bytes

Invariants: a tree is regular (no look-around, no back-reference); case and flags are resolved in it, so that its text
in either dialect needs none; `width` is exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

FULL = (1 << 256) - 1
_WAYS_MAX = 64


class Place(Enum):
    """An assertion between bytes, such as a word boundary."""

    TEXT_START = "\\A"
    TEXT_END = "\\z"
    LINE_START = "(?m:^)"
    LINE_END = "(?m:$)"
    WORD_EDGE = "\\b"
    NO_WORD_EDGE = "\\B"


@dataclass(frozen=True, slots=True)
class Chars:
    """One byte of a set; bit n of `mask` stands for byte n."""

    mask: int


@dataclass(frozen=True, slots=True)
class Seq:
    """One node after the other; none is the empty match."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of several nodes, the first that leads to a match."""

    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A node `low` to `high` times; `high` None is unbounded."""

    item: "Node"
    low: int
    high: int | None
    greedy: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """A node whose bytes are captured under a number."""

    item: "Node"
    index: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class At:
    """An assertion, which consumes no byte."""

    place: Place


Node: TypeAlias = Chars | Seq | Alt | Repeat | Group | At
EMPTY = Seq(())


def members(mask: int) -> Iterator[int]:
    """Yield the bytes of a set, in order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def width(node: Node) -> tuple[int, int | None]:  # noqa: PLR0911 - one for each kind of node
    """Return the minimum and the maximum length of a match in bytes; None is unbounded."""
    match node:
        case Chars():
            return 1, 1
        case At():
            return 0, 0
        case Group(item=item):
            return width(item)
        case Seq(items=items):
            widths = [width(item) for item in items]
            highs = [high for _, high in widths]
            return sum(low for low, _ in widths), None if None in highs else sum(filter(None, highs))
        case Alt(options=options):
            widths = [width(option) for option in options]
            highs = [high for _, high in widths]
            return min(low for low, _ in widths), None if None in highs else max(high or 0 for high in highs)
        case Repeat(item=item, low=low, high=high):
            item_low, item_high = width(item)
            if item_high == 0:
                return 0, 0
            return item_low * low, None if high is None or item_high is None else item_high * high


def groups(node: Node) -> Iterator[Group]:
    """Yield the captured groups of a tree, in the order of their numbers."""
    if isinstance(node, Group):
        yield node
    for child in children(node):
        yield from groups(child)


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct children of a node."""
    match node:
        case Seq(items=items):
            return items
        case Alt(options=options):
            return options
        case Repeat(item=item) | Group(item=item):
            return (item,)
        case _:
            return ()


def union(node: Node) -> int:
    """Return every byte that can be part of a match."""
    if isinstance(node, Chars):
        return node.mask
    mask = 0
    for child in children(node):
        mask |= union(child)
    return mask


def first(node: Node) -> int:
    """Return every byte that can come first where a match begins; all of them if it can be empty."""
    match node:
        case Chars(mask=mask):
            return mask
        case Seq(items=items):
            return _first_of(items)
        case Alt(options=options):
            mask = 0
            for option in options:
                mask |= first(option)
            return mask
        case Group(item=item):
            return first(item)
        case Repeat(item=item, low=low):
            return first(item) if low else FULL
        case At(place=place):
            return {Place.TEXT_END: 0, Place.LINE_END: 1 << 10}.get(place, FULL)


def _first_of(items: tuple[Node, ...]) -> int:
    mask = 0
    for item in items:
        match item:
            case At(place=Place.TEXT_END | Place.LINE_END):
                return mask | first(item)
            case At():
                continue
            case Repeat(item=inner, low=0):
                mask |= first(inner)
            case _:
                mask |= first(item)
                if width(item)[0]:
                    return mask
    return FULL


def literal(node: Node) -> int:
    """Return the length of the longest selective run in every match: few choices per byte, and few in total."""
    match node:
        case Seq(items=items):
            return _longest_run(items)
        case Alt(options=options):
            return min(map(literal, options))
        case Group(item=item):
            return literal(item)
        case Repeat(item=item, low=low):
            return literal(item) if low else 0
        case Chars():
            return _longest_run((node,))
        case At():
            return 0


def _longest_run(items: tuple[Node, ...]) -> int:
    longest = run = 0
    ways = 1.0
    for item in items:
        size = item.mask.bit_count() if isinstance(item, Chars) else 0
        # Both cases of a letter count once: the matcher folds case.
        ways *= 1 if size == 2 and _is_letter(item) else size  # noqa: PLR2004
        if 0 < ways <= _WAYS_MAX:
            run += 1
        else:
            run, ways = 0, 1.0
            longest = max(longest, 0 if size else literal(item))
        longest = max(longest, run)
    return longest


def _is_letter(node: Node) -> bool:
    low, high = members(node.mask) if isinstance(node, Chars) else (0, 0)
    return high - low == 32 and chr(low).isalpha()  # noqa: PLR2004


def to_python(node: Node) -> bytes:
    """Return a tree as a bytes pattern of Python's `re`."""
    return _Writer(captures=True).write(node).encode()


def to_hyperscan(node: Node) -> bytes:
    """Return a tree as an expression of hyperscan, which has no captures and no preferences."""
    return _Writer(captures=False).write(node).encode()


@dataclass(frozen=True, slots=True)
class _Writer:
    captures: bool

    def write(self, node: Node) -> str:
        match node:
            case Chars(mask=mask):
                return _format_chars(mask)
            case Seq(items=items):
                return "".join(self._in_seq(item) for item in items)
            case Alt(options=options):
                return f"(?:{'|'.join(map(self.write, options))})"
            case Group(item=item):
                return f"({'' if self.captures else '?:'}{self.write(item)})"
            case Repeat():
                return self._repeat(node)
            case At(place=place):
                return "\\Z" if self.captures and place is Place.TEXT_END else place.value

    def _in_seq(self, node: Node) -> str:
        return f"(?:{self.write(node)})" if isinstance(node, Seq) else self.write(node)

    def _repeat(self, node: Repeat) -> str:
        text = self.write(node.item)
        if not isinstance(node.item, Chars | Group | Alt):
            text = f"(?:{text})"
        text += _format_count(node.low, node.high)
        return text if node.greedy or not self.captures else text + "?"


def _format_count(low: int, high: int | None) -> str:
    match low, high:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _:
            return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def _format_chars(mask: int) -> str:
    if mask == FULL:
        return "(?s:.)"
    if mask.bit_count() == 1:
        return _format_byte(mask.bit_length() - 1)
    negate = mask.bit_count() > 128  # noqa: PLR2004
    ranges = "".join(
        _format_byte(low) + ("" if low == high else "-" + _format_byte(high))
        for low, high in _ranges(mask ^ FULL if negate else mask)
    )
    return f"[{'^' if negate else ''}{ranges}]"


def _format_byte(value: int) -> str:
    char = chr(value)
    return char if char.isascii() and (char.isalnum() or char in "_/%@=:;,!<>~'\"") else f"\\x{value:02x}"


def _ranges(mask: int) -> Iterator[tuple[int, int]]:
    low = previous = -2
    for value in members(mask):
        if value != previous + 1:
            if low >= 0:
                yield low, previous
            low = value
        previous = value
    if low >= 0:
        yield low, previous
