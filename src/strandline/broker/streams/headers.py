"""The headers that mean something to a stream, taken out of a header block without reading the rest.

Invariants: names count with their case, the first of several counts, and an empty value is as good as none, as in
nats-server. Pure.
"""

from strandline.broker.api.times import parse_duration
from strandline.clock import NS_PER_S

MARK = b"Nats-"
MSG_ID = b"Nats-Msg-Id"
EXPECTED_STREAM = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_ID = b"Nats-Expected-Last-Msg-Id"
ROLLUP = b"Nats-Rollup"
TTL = b"Nats-TTL"
MARKER_REASON = b"Nats-Marker-Reason"
INCREMENT = b"Nats-Incr"
COUNTER_SOURCES = b"Nats-Counter-Sources"
STREAM_SOURCE = b"Nats-Stream-Source"
BATCH_ID = b"Nats-Batch-Id"
BATCH_SEQUENCE = b"Nats-Batch-Sequence"
BATCH_COMMIT = b"Nats-Batch-Commit"
SCHEDULE = b"Nats-Schedule"
SCHEDULE_TARGET = b"Nats-Schedule-Target"
SCHEDULE_SOURCE = b"Nats-Schedule-Source"
SCHEDULE_TTL = b"Nats-Schedule-TTL"
SCHEDULE_ROLLUP = b"Nats-Schedule-Rollup"
SCHEDULE_ZONE = b"Nats-Schedule-Time-Zone"
SCHEDULE_NEXT = b"Nats-Schedule-Next"
SCHEDULER = b"Nats-Scheduler"
NEVER = -1
TTL_SECONDS_MAX = 1 << 32
DIGITS_MAX = 20
"""No number of 64 bits has more."""
VERSION_LINE = b"NATS/1.0\r\n"

Special = dict[bytes, bytes]
NOTHING: Special = {}


def special_headers(block: bytes) -> Special:
    """Return the headers of a block that begin with `Nats-`."""
    if MARK not in block:
        return NOTHING
    found: Special = {}
    for line in block.split(b"\r\n"):
        if line.startswith(MARK):
            name, _, value = line.partition(b":")
            found.setdefault(name, value.strip())
    return found


def parse_ttl(text: bytes) -> int:
    """Return a time to live in seconds, `NEVER`, or 0 for none; `ValueError` if it is not one."""
    if not text:
        return 0
    if text.lower() == b"never":
        return NEVER
    seconds = parse_number(text) if text.isdigit() else parse_duration(text.decode(errors="replace")) // NS_PER_S
    if seconds is None or seconds < 1:
        raise ValueError(text)
    return min(seconds, TTL_SECONDS_MAX)


def parse_number(text: bytes, digits_max: int = DIGITS_MAX) -> int | None:
    """Return a number of digits alone, None if it is none, or longer than any that is meant."""
    return int(text) if text.isdigit() and len(text) <= digits_max else None


def with_headers(block: bytes, pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Return a header block with more lines at its end; an empty block becomes a new one."""
    lines = b"".join(b"%s: %s\r\n" % pair for pair in pairs)
    return (block[:-2] if block else VERSION_LINE) + lines + b"\r\n"


def without_header(block: bytes, name: bytes) -> bytes:
    """Return a header block without the lines whose name begins with a prefix; empty if no line is left."""
    if name not in block:
        return block
    lines = block.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(name)]
    return b"\r\n".join(kept) if len(kept) > _EMPTY_LINES else b""


_EMPTY_LINES = 3
"""A block without headers is the version line and two ends of lines."""
