"""The size of a connection's next read, so that one client takes no more than its share of a loop cycle.

Invariants: a read is no larger than what fits into a slice of CPU time at the cost per byte of the previous read, and
no smaller than `READ_BYTES_MIN`, or than `READ_BYTES_FIRST` where a byte is cheap. Only bytes are limited: a single
request takes as long as it takes. CPU time counts, not wall time, so the load of the machine does not matter.

The loop reads every ready socket once in a cycle. With one read bounded, a client that floods the server costs the
others one slice a cycle, whatever it sends: pings by the hundred thousand as well as messages with thousands of
subscribers. A client that is cheap to serve soon reads as much at once as the buffer holds.
"""

READ_BYTES_MAX = 512 << 10
READ_BYTES_FIRST = 16 << 10
"""The first read: the cost of a byte is not known yet."""
READ_BYTES_MIN = 128
LATER_BYTES_MIN = 4 << 10
"""The shared cost of a turn shrinks no read below this: most of it may belong to other connections."""
SLICE_S = 0.002
BULK_SLICE_S = 0.008
"""A full read of messages for a stream is stored in less; smaller reads would cost half as much again per message."""
BULK_S_PER_BYTE = 60e-9
"""At most this cost per byte counts as bulk: messages, not pings."""
DEAR_S_PER_BYTE = 400e-9
"""At most this cost per byte, reads never shrink below the first one: each read has a fixed cost, by which the cost per
byte would rise from read to read. A session applies frames in slices, however much was read."""


class ReadSizer:
    """The read size of one connection."""

    __slots__ = ("_bytes", "_spent_s", "size")

    def __init__(self) -> None:
        self.size = READ_BYTES_FIRST
        self._bytes = 0
        self._spent_s = 0.0

    def record(self, read_bytes: int, spent_s: float) -> None:
        """Record a read, and the CPU time that it took."""
        self._bytes = read_bytes
        self._spent_s = spent_s

    def next_size(self, later_s_per_byte: float) -> int:
        """Return how much to read now; the last read also took `later_s_per_byte` after it was recorded.

        That later work is done for all connections together, see `LATER_BYTES_MIN`.
        """
        read_bytes, self._bytes = self._bytes, 0
        if read_bytes:
            own = self._sized(read_bytes, self._spent_s)
            whole = self._sized(read_bytes, self._spent_s + read_bytes * later_s_per_byte)
            self.size = max(whole, min(own, LATER_BYTES_MIN))
        return self.size

    def _sized(self, read_bytes: int, spent_s: float) -> int:
        """Return the next size after a read that took `spent_s`."""
        least = READ_BYTES_MIN if spent_s > read_bytes * DEAR_S_PER_BYTE else READ_BYTES_FIRST
        slice_s = BULK_SLICE_S if spent_s <= read_bytes * BULK_S_PER_BYTE else SLICE_S
        if spent_s > slice_s:
            return max(least, int(min(self.size, read_bytes) * slice_s / spent_s))
        if read_bytes >= self.size and 2 * spent_s < slice_s:
            return min(READ_BYTES_MAX, 2 * self.size)
        return max(least, self.size) if read_bytes >= self.size else self.size
