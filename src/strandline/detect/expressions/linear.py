"""A matcher that never backtracks: it follows all paths through an expression at once, ordered by preference.

It finds the same matches as Python's `re` (leftmost, first preference, with groups) in time linear in the text, and is
some hundred times slower; it is for expressions on which `re` may take unbounded time. Each step is charged to a
`Work`; when the steps are used up, the search raises `Exhausted`.

Invariants: a step costs one of `Work.steps_left`; an instruction is visited once for each position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from strandline.detect.expressions.nodes import Alt, At, Chars, Group, Node, Place, Repeat, Seq, members

PROGRAM_MAX = 20_000
Spans: TypeAlias = tuple[tuple[int, int], ...]


class TooLarge(Exception):
    """The expression's repeats, written out, are over the bound."""


class Exhausted(Exception):
    """The steps that a search may take are used up."""


@dataclass
class Work:
    """The steps that are left for an item."""

    steps_left: int


class _Step(NamedTuple):
    """An instruction: one byte of a set, a choice, a capture, an assertion, or the end."""

    kind: int
    x: int = 0
    y: int = 0
    table: bytes = b""
    place: Place = Place.TEXT_START


_CHAR, _SPLIT, _SAVE, _AT, _MATCH = range(5)
_WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


class Program:
    """A compiled expression."""

    def __init__(self, node: Node, groups: int) -> None:
        self._groups = groups
        self._steps: list[_Step] = []
        self._write(node)
        self._emit(_Step(_MATCH))

    def _emit(self, step: _Step) -> int:
        if len(self._steps) >= PROGRAM_MAX:
            raise TooLarge
        self._steps.append(step)
        return len(self._steps) - 1

    def _write(self, node: Node) -> None:
        match node:
            case Chars(mask=mask):
                table = bytearray(256)
                for byte in members(mask):
                    table[byte] = 1
                self._emit(_Step(_CHAR, table=bytes(table)))
            case Seq(items=items):
                for item in items:
                    self._write(item)
            case Alt(options=options):
                self._write_alternatives(options)
            case Group(item=item, index=index):
                self._emit(_Step(_SAVE, 2 * index))
                self._write(item)
                self._emit(_Step(_SAVE, 2 * index + 1))
            case Repeat():
                self._write_repeat(node)
            case At(place=place):
                self._emit(_Step(_AT, place=place))

    def _split(self, at: int, body: int, after: int, *, greedy: bool) -> None:
        self._steps[at] = _Step(_SPLIT, body, after) if greedy else _Step(_SPLIT, after, body)

    def _write_alternatives(self, options: Sequence[Node]) -> None:
        jumps = []
        for option in options[:-1]:
            split = self._emit(_Step(_SPLIT))
            self._write(option)
            jumps.append(self._emit(_Step(_SPLIT)))
            self._split(split, split + 1, len(self._steps), greedy=True)
        self._write(options[-1])
        for jump in jumps:
            self._split(jump, len(self._steps), len(self._steps), greedy=True)

    def _write_repeat(self, node: Repeat) -> None:
        for _ in range(node.low):
            self._write(node.item)
        if node.high is None:
            split = self._emit(_Step(_SPLIT))
            self._write(node.item)
            back = self._emit(_Step(_SPLIT))
            self._split(back, split, split, greedy=True)
            self._split(split, split + 1, back + 1, greedy=node.greedy)
            return
        splits = []
        for _ in range(node.high - node.low):
            splits.append(self._emit(_Step(_SPLIT)))
            self._write(node.item)
        for split in splits:
            self._split(split, split + 1, len(self._steps), greedy=node.greedy)

    def finditer(self, data: bytes, start: int, end: int, work: Work) -> Iterator[Spans]:
        """Yield the spans of each match and its groups, in order; raise `Exhausted` when the work is used up."""
        while start <= end:
            slots = self._search(data, start, end, work)
            if slots is None:
                return
            yield tuple((slots[at], slots[at + 1]) for at in range(0, len(slots), 2))
            start = slots[1] if slots[1] > slots[0] else slots[1] + 1

    def _search(self, data: bytes, start: int, end: int, work: Work) -> tuple[int, ...] | None:
        blank = (-1,) * (2 * self._groups + 2)
        threads: list[tuple[int, tuple[int, ...]]] = []
        found: tuple[int, ...] | None = None
        steps = self._steps
        for at in range(start, end + 1):
            seen: set[int] = set()
            following: list[tuple[int, tuple[int, ...]]] = []
            current: list[tuple[int, tuple[int, ...]]] = []
            for number, slots in threads:
                self._follow(number, slots, data, at, end, seen, current)
            if found is None:
                self._follow(0, (at, *blank[1:]), data, at, end, seen, current)
            elif not current:
                break
            work.steps_left -= len(seen) + 1
            if work.steps_left < 0:
                raise Exhausted
            byte = data[at] if at < end else -1
            for number, slots in current:
                step = steps[number]
                if step.kind == _MATCH:
                    found = (slots[0], at, *slots[2:])
                    break
                if byte >= 0 and step.table[byte]:
                    following.append((number + 1, slots))
            threads = following
        return found

    def _follow(
        self,
        number: int,
        slots: tuple[int, ...],
        data: bytes,
        at: int,
        end: int,
        seen: set[int],
        out: list[tuple[int, tuple[int, ...]]],
    ) -> None:
        """Add the instructions that are reachable without consuming a byte, in the order of preference."""
        stack = [(number, slots)]
        while stack:
            number, slots = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            step = self._steps[number]
            match step.kind:
                case 1:
                    stack.append((step.y, slots))
                    stack.append((step.x, slots))
                case 2:
                    stack.append((number + 1, (*slots[: step.x], at, *slots[step.x + 1 :])))
                case 3:
                    if _holds(step.place, data, at, end):
                        stack.append((number + 1, slots))
                case _:
                    out.append((number, slots))


def _holds(place: Place, data: bytes, at: int, end: int) -> bool:
    match place:
        case Place.TEXT_START:
            return at == 0
        case Place.TEXT_END:
            return at == end
        case Place.LINE_START:
            return at == 0 or data[at - 1] == ord("\n")
        case Place.LINE_END:
            return at == end or data[at] == ord("\n")
        case Place.WORD_EDGE | Place.NO_WORD_EDGE:
            before = at > 0 and data[at - 1] in _WORD
            after = at < end and data[at] in _WORD
            return (before is not after) is (place is Place.WORD_EDGE)
