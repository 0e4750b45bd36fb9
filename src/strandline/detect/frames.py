"""Frames: a scanned buffer with the mapping of its bytes to the item.

The item is the outermost frame; a member of an archive and a decoded view are frames inside another. Each maps spans
of its own bytes to spans of the enclosing frame, so that a finding at any depth maps to the item's bytes.

Invariants: `outer_span` covers every byte that the span was decoded from; lines are counted in the item, or in the
innermost member that is in no encoded text (`placed`); both cost no more on a file without line breaks.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
Locate: TypeAlias = Callable[[int, int], Span]
_BLOCK_BYTES = 4_096
_STREAMS = {("gzip",), ("bzip2",), ("xz",), ("zstd",)}
"""A tar inside one of these counts as one archive with it."""


class LineIndex:
    """Lines and columns of a buffer, counted from 1, in time that does not grow with the buffer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._starts = range(0, len(data) or 1, _BLOCK_BYTES)
        self._lines, self._breaks = [], []
        lines, last = 1, -1
        for start in self._starts:
            self._lines.append(lines)
            self._breaks.append(last)
            lines += data.count(b"\n", start, start + _BLOCK_BYTES)
            last = max(last, data.rfind(b"\n", start, start + _BLOCK_BYTES))

    def locate(self, position: int) -> tuple[int, int]:
        """Return the line and the column of a position."""
        block = bisect_right(self._starts, position) - 1
        start = self._starts[block]
        last = max(self._breaks[block], self._data.rfind(b"\n", start, position))
        return self._lines[block] + self._data.count(b"\n", start, position), position - last


def shifted(by: int) -> Locate:
    """Return the mapping of bytes that are unchanged at a later offset."""
    return lambda start, end: (start + by, end + by)


@dataclass(frozen=True, eq=False)
class Frame:
    """A buffer with its enclosing frame; `decodes` and `archives` count the decoders and archives around it."""

    data: bytes = field(repr=False)
    path: str
    commit: str = ""
    via: tuple[str, ...] = ()
    parent: "Frame | None" = field(default=None, repr=False)
    locate: Locate = field(default=shifted(0), repr=False)
    decodes: int = 0
    archives: int = 0
    is_file: bool = True

    def view(self, name: str, data: bytes, locate: Locate) -> "Frame":
        """Return the frame of a decoded part of this one."""
        via = (*self.via, name)
        decodes = self.decodes + 1
        return Frame(data, self.path, self.commit, via, self, locate, decodes, self.archives, is_file=False)

    def member(self, kind: str, name: str, data: bytes, locate: Locate) -> "Frame":
        """Return the frame of a member of this archive."""
        path = f"{self.path}!{name}" if name else self.path
        via = (*self.via, f"{kind}:{name}" if name else kind)
        return Frame(data, path, self.commit, via, self, locate, self.decodes, self.depth_of(kind))

    def depth_of(self, kind: str) -> int:
        """Return the archive depth with this frame as an archive; a tar in a stream counts once."""
        return self.archives + (not (kind == "tar" and self.via[-1:] in _STREAMS))

    @cached_property
    def lines(self) -> LineIndex:
        """Return the line index."""
        return LineIndex(self.data)

    def outer_span(self, start: int, end: int) -> Span:
        """Return the span of the item's bytes that a span was decoded from."""
        frame = self
        while frame.parent is not None:
            start, end = frame.locate(start, end)
            frame = frame.parent
        return start, end

    def in_file(self, start: int, end: int) -> "tuple[Frame, int, int]":
        """Return the file that a span belongs to (the item or a member), and its span there."""
        frame = self
        while not frame.is_file and frame.parent is not None:
            start, end = frame.locate(start, end)
            frame = frame.parent
        return frame, start, end

    def placed(self, start: int, end: int) -> "tuple[Frame, int, int]":
        """Return the file that shows a span to people, and its span there: the item, or a member of archives alone.

        What is packed inside encoded text has no lines that an editor could show: there it is the encoded text.
        """
        frame, chain = self, [(self, start, end)]
        while frame.parent is not None:
            start, end = frame.locate(start, end)
            frame = frame.parent
            chain.append((frame, start, end))
        views = [at for at, (one, _, _) in enumerate(chain) if not one.is_file]
        return chain[max(views) + 1] if views else chain[0]
