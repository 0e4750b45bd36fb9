"""The header with the origin of a source's message, as nats-server writes it. Pure.

    Nats-Stream-Source: <stream> <sequence> <filters> <transforms> <subject> <identity>

Invariants: the name of a source is the stream, its filters and its transforms; `parse_source` reads what
`format_source` writes.
"""

from strandline.broker.streams.headers import STREAM_SOURCE, parse_number, special_headers
from strandline.broker.streams.records import Position

_FIELDS_MIN = 5


def format_source(name: bytes, sequence: int, subject: bytes, identity: bytes) -> bytes:
    """Return the header's value for a message that had this sequence and subject in a source's stream."""
    stream, _, rest = name.partition(b" ")
    return b"%b %d %b %b %b" % (stream, sequence, rest, subject, identity)


def parse_source(value: bytes) -> tuple[bytes, Position] | None:
    """Return which source a header's value names, and how far that source had come; None if it is no such value."""
    fields = value.split(b" ")
    sequence = parse_number(fields[1]) if len(fields) >= _FIELDS_MIN else None
    if sequence is None or sequence >= 1 << 64:
        return None
    identity = fields[_FIELDS_MIN] if len(fields) > _FIELDS_MIN else b""
    return b" ".join([fields[0], fields[2], fields[3]]), Position(sequence, identity)


def positions_of(blocks: list[bytes]) -> dict[bytes, Position]:
    """Return how far the sources had come that messages came from, by their header blocks."""
    values = (special_headers(block)[STREAM_SOURCE] for block in blocks if b"\r\n" + STREAM_SOURCE in block)
    return dict(found for value in values if (found := parse_source(value)) is not None)
