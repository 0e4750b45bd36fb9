"""A view that is put together from parts of a buffer, with the way back from its spans to the buffer's.

Invariants: a span of a view maps to all bytes that it was decoded from; a part that was decoded maps as a whole.
"""

from bisect import bisect_right

from strandline.detect.frames import Span


class Pieces:
    """Parts of a view with their offsets in it and in the buffer; `ends` has the buffer's end of a decoded part."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._size = 0
        self._starts: list[int] = []
        self._sources: list[int] = []
        self._ends: list[int | None] = []

    def add(self, part: bytes, source: int, end: int | None = None) -> None:
        """Append a part: bytes of the buffer at an offset, or what was decoded from there to `end`."""
        self.parts.append(part)
        self._starts.append(self._size)
        self._sources.append(source)
        self._ends.append(end)
        self._size += len(part)

    def locate(self, start: int, end: int) -> Span:
        """Return the span of the buffer that a span of the view was decoded from."""
        first, last = self._piece(start), self._piece(end - 1)
        stop = self._ends[last]
        if stop is None:
            stop = self._sources[last] + end - self._starts[last]
        begin = self._sources[first]
        return begin if self._ends[first] is not None else begin + start - self._starts[first], stop

    def _piece(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1
