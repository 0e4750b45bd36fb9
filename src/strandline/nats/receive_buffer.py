"""The bytes that came over a connection and were not taken yet, in one buffer that is used again and again.

Invariants: what was added is taken once and in order. Only the tail that is left over is ever moved. The buffer grows
when a single frame needs it, and is never resized under a view: a larger one takes its place.
"""

from strandline.wire import FrameBatch, FrameParser, ProtocolViolation, Side, WireLimits

CAPACITY_BYTES = 1 << 20
_MESSAGES = (b"MSG ", b"HMSG ")


class ReceiveBuffer:
    """A buffer to receive into, and to take frames from."""

    def __init__(self, limits: WireLimits | None = None) -> None:
        self.limits = limits or WireLimits()
        self.data = bytearray(CAPACITY_BYTES)
        self.size = 0
        """How many bytes at the beginning of `data` are there to be taken."""
        self._needed = 1
        self._problem: ProtocolViolation | None = None

    @property
    def is_promising(self) -> bool:
        """Tell whether there may be a whole frame, or something wrong."""
        return self.size >= self._needed or self._problem is not None

    def room(self) -> memoryview:
        """Return where the next bytes go; there is always room for some."""
        if self._needed > len(self.data) or self.size == len(self.data):
            larger = bytearray(max(2 * len(self.data), self._needed))
            larger[: self.size] = memoryview(self.data)[: self.size]
            self.data = larger
        return memoryview(self.data)[self.size :]

    def add(self, count: int) -> None:
        """Note that so many bytes were put into the room."""
        self.size += count

    def drop(self, count: int) -> None:
        """Take the first bytes away; what is left moves to the front."""
        left = self.size - count
        if left and count:
            self.data[:left] = self.data[count : self.size]
        self.size = left
        self._needed = 1

    def drop_run(self, count: int) -> None:
        """As `drop`, of a run of all whole messages: if one begins in what is left, it is not whole yet."""
        self.drop(count)
        if self.data.startswith(_MESSAGES, 0, self.size):
            self._needed = self.size + 1

    def take_frames(self) -> FrameBatch:
        """Take every whole frame; a violation after the last of them is raised by the next call."""
        if self._problem is not None:
            raise self._problem
        parser = FrameParser(Side.SERVER, self.limits)
        batch = parser.feed(memoryview(self.data)[: self.size])
        self._problem = batch.problem
        self.drop(self.size - parser.kept_bytes)
        self._needed = max(parser.needed_bytes, self.size + 1)
        return batch
