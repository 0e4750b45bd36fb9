"""Patterns: an expression with the matcher that suits it.

Python's `re` is fast and backtracks; on an expression that can read a text in many ways (`(a+)+`, `.*.*.*x`) that
takes unbounded time. `ways` estimates their number per start position; beyond a bound the pattern uses the matcher
without backtracking, whose steps are counted.

Invariants: both matchers find the same; `ways` never underestimates.
"""

import math
import re
from collections.abc import Iterable, Iterator

from strandline.detect.errors import RegexInvalid
from strandline.detect.expressions.linear import Exhausted, Program, Spans, TooLarge, Work
from strandline.detect.expressions.nodes import (
    Alt,
    Chars,
    Group,
    Node,
    Repeat,
    Seq,
    first,
    groups,
    to_python,
    union,
    width,
)

WAYS_MAX = 50_000_000.0
_MANY = 1e12


class Pattern:
    """A compiled expression; `is_quick` if `re` matches it in bounded time, which a saved engine may know."""

    def __init__(self, where: str, node: Node, bytes_max: int, *, is_known_quick: bool = False) -> None:
        self.is_quick = is_known_quick or ways(node, bytes_max) <= WAYS_MAX
        self._regex: re.Pattern[bytes] | None = None
        self._program: Program | None = None
        try:
            if self.is_quick:
                self._regex = re.compile(to_python(node))
            else:
                self._program = Program(node, sum(1 for _ in groups(node)))
        except (TooLarge, OverflowError, RecursionError, re.error):
            raise RegexInvalid(where, "its repeats are too many", hint="make the repeats shorter") from None

    def finditer(self, data: bytes, start: int, end: int, work: Work) -> Iterator[Spans]:
        """Yield the spans of each match and its groups; raise `Exhausted` when the work is used up."""
        if self._regex is not None:
            for found in self._regex.finditer(data, start, end):
                yield found.regs
        elif self._program is not None:
            yield from self._program.finditer(data, start, end, work)

    def at_starts(self, data: bytes, starts: Iterable[int], end: int) -> Iterator[Spans]:
        """Yield what `finditer` does for an expression that is quick and never empty, if a match begins only there."""
        if self._regex is None:
            raise AssertionError("an expression that is not quick has no such starts")
        after = 0
        for start in starts:
            if start >= after and (found := self._regex.match(data, start, end)) is not None:
                after = found.end()
                yield found.regs

    def is_in(self, data: bytes, work: Work) -> bool:
        """Return whether there is a match; False if the work is used up before one is found."""
        if self._regex is not None:
            return self._regex.search(data) is not None
        try:
            return next(self.finditer(data, 0, len(data), work), None) is not None
        except Exhausted:
            return False


def ways(node: Node, bytes_max: int) -> float:
    """Return an upper bound on the ways in which an expression can read a text from one position."""
    return _ways((node,), bytes_max)


def _ways(items: tuple[Node, ...], bytes_max: int) -> float:
    """Return the ways of a sequence: those of its first node times those of the rest."""
    product = 1.0
    flat = _flat(items)
    for at, item in enumerate(flat):
        product = min(product * _open_ways(item, flat[at + 1 :], bytes_max), _MANY)
    return product


def _flat(items: tuple[Node, ...]) -> tuple[Node, ...]:
    flat: list[Node] = []
    for item in items:
        match item:
            case Group(item=inner):
                flat.extend(_flat((inner,)))
            case Seq(items=inners):
                flat.extend(_flat(inners))
            case _:
                flat.append(item)
    return tuple(flat)


def _open_ways(node: Node, rest: tuple[Node, ...], bytes_max: int) -> float:
    """Return the ways in which a node can end, given the nodes that follow."""
    match node:
        case Alt(options=options):
            return _alike(options) * max(_ways((option,), bytes_max) for option in options)
        case Repeat():
            return _repeat_ways(node, rest, bytes_max)
        case _:
            return 1.0


def _repeat_ways(node: Repeat, rest: tuple[Node, ...], bytes_max: int) -> float:
    least, _ = width(node.item)
    most = min(bytes_max if node.high is None else node.high, bytes_max // max(least, 1))
    # If no byte can both repeat the node and follow it, the repeat ends at one position: backtracking fails at once.
    goes_on = bool(rest) and bool(union(node.item) & first(Seq(rest)))
    exits = float(max(most - node.low, 0) + 1) if goes_on else 1.0
    if _is_determined(node.item):
        return exits
    inner = _ways((node.item,), bytes_max)
    if width(node.item)[0] != width(node.item)[1]:
        inner *= 2
    return exits * (inner**most if most * math.log(max(inner, 1.0)) < math.log(_MANY) else _MANY)


def _is_determined(item: Node) -> bool:
    """Return whether a text splits into repeats of a node in one way only."""
    low, high = width(item)
    if low == 0:
        return False
    flat = _flat((item,))
    if len(flat) == 1 and isinstance(flat[0], Alt):
        return _are_apart(flat[0].options) and all(_is_determined(option) for option in flat[0].options)
    if low == high:
        return all(not isinstance(part, Alt) or _are_apart(part.options) for part in flat)
    if not all(isinstance(part, Chars | Repeat) and _is_simple(part) for part in flat):
        return False
    for at, part in enumerate(flat):
        others = union(Seq((*flat[:at], *flat[at + 1 :])))
        if isinstance(part, Chars) and not part.mask & others:
            return sum(isinstance(other, Repeat) and other.low != other.high for other in flat) <= 1
    return False


def _is_simple(part: Node) -> bool:
    return isinstance(part, Chars) or (isinstance(part, Repeat) and isinstance(part.item, Chars))


def _alike(options: tuple[Node, ...]) -> int:
    """Return an upper bound on the number of alternatives that can read the same text."""
    heads = [_head(option) for option in options]
    return max(sum(_can_agree(head, other) for other in heads) for head in heads)


def _head(node: Node) -> list[int]:
    """Return the byte sets of a node's fixed beginning, one for each position."""
    head = []
    for item in _flat((node,)):
        if not isinstance(item, Chars):
            head.append(first(item))
            break
        head.append(item.mask)
    return head


def _can_agree(one: list[int], other: list[int]) -> bool:
    return all(a & b for a, b in zip(one, other, strict=False))


def _are_apart(options: tuple[Node, ...]) -> bool:
    """Return whether no two alternatives can read the same text."""
    return _alike(options) == 1
