"""The headers that mean something to a stream, taken out of a header block without reading the rest.

Invariants: names count with their case, the first of several counts, and an empty value is as good as none, as in
nats-server. Pure.
"""

from strandline.broker.api.times import NANOS, parse_duration

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
NEVER = -1
TTL_SECONDS_MAX = 1 << 32
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
    """Return a time to live in seconds, `NEVER`, or 0 for none; `ValueError` if it cannot be one."""
    if not text:
        return 0
    if text.lower() == b"never":
        return NEVER
    if text.isdigit():
        seconds = min(int(text), TTL_SECONDS_MAX)
    else:
        seconds = parse_duration(text.decode(errors="replace")) // NANOS
    if seconds < 1:
        raise ValueError(text)
    return seconds


def parse_sequence(text: bytes) -> int:
    """Return an expected sequence; -1, which nothing has, if it is no number."""
    return int(text) if text.isdigit() else -1


def with_headers(block: bytes, pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Return a header block with more lines at its end; an empty block becomes one."""
    lines = b"".join(b"%s: %s\r\n" % pair for pair in pairs)
    return (block[:-2] if block else VERSION_LINE) + lines + b"\r\n"
