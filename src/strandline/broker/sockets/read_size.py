"""How much of its socket a connection reads at once, so that what it asks for takes no more than its share of a cycle.

Invariants: a read is no larger than what would have taken a slice of processor time at the price of the one before,
and no smaller than `READ_BYTES_MIN`, or than `READ_BYTES_FIRST` where a byte is not dear. Only bytes are limited: a
single request takes what it takes. Processor time counts, not the time of day, so a busy machine changes nothing.

Every socket that is ready is read once in a cycle of the loop. With one read bounded, a client that floods the server
costs the others one slice a cycle, whatever it sends: pings by the hundred thousand as well as messages that thousands
of subscriptions hear. A client that is cheap to serve soon reads as much at once as there is room for.
"""

READ_BYTES_MAX = 512 << 10
READ_BYTES_FIRST = 16 << 10
"""A stranger's first read: nothing is known of what it costs."""
READ_BYTES_MIN = 128
LATER_BYTES_MIN = 4 << 10
"""What all connections together cost takes no read below this: most of it may be another one's."""
SLICE_S = 0.002
BULK_SLICE_S = 0.008
"""In less, a full read of messages for a stream is stored: smaller ones would cost half as much again for each."""
BULK_S_PER_BYTE = 60e-9
"""What costs no more than this is bulk: messages, not pings."""
DEAR_S_PER_BYTE = 400e-9
"""What costs no more is never read in smaller pieces than a stranger's: each piece has a cost of its own, by which the
price of a byte would rise from piece to piece. A session takes frames in slices, however much was read."""


class ReadShare:
    """The next read of one connection: `size` is how many bytes it may have."""

    __slots__ = ("_bytes", "_spent_s", "size")

    def __init__(self) -> None:
        self.size = READ_BYTES_FIRST
        self._bytes = 0
        self._spent_s = 0.0

    def note(self, read_bytes: int, spent_s: float) -> None:
        """Note what was read, and the processor time that it took."""
        self._bytes = read_bytes
        self._spent_s = spent_s

    def settle(self, later_s_per_byte: float) -> int:
        """Return how much to read now; what was read last took so much more per byte after it was noted.

        What comes later is done for all connections together, see `LATER_BYTES_MIN`.
        """
        read_bytes, self._bytes = self._bytes, 0
        if read_bytes:
            own = self._sized(read_bytes, self._spent_s)
            whole = self._sized(read_bytes, self._spent_s + read_bytes * later_s_per_byte)
            self.size = max(whole, min(own, LATER_BYTES_MIN))
        return self.size

    def _sized(self, read_bytes: int, spent_s: float) -> int:
        """Return the next size, if what was read has taken so long."""
        least = READ_BYTES_MIN if spent_s > read_bytes * DEAR_S_PER_BYTE else READ_BYTES_FIRST
        slice_s = BULK_SLICE_S if spent_s <= read_bytes * BULK_S_PER_BYTE else SLICE_S
        if spent_s > slice_s:
            return max(least, int(min(self.size, read_bytes) * slice_s / spent_s))
        if read_bytes >= self.size and 2 * spent_s < slice_s:
            return min(READ_BYTES_MAX, 2 * self.size)
        return max(least, self.size) if read_bytes >= self.size else self.size
