"""Headers that request a message trace (ADR-41): the destination of its events, and whether it is delivered at all.

Invariants: `Nats-Trace-Dest` is case-sensitive, `traceparent` is not; a trace started by an account's `msg_trace` never
keeps its message from being delivered. Only a valid subject is used as a destination. Pure.
"""

import re
from dataclasses import dataclass

from strandline.wire import InvalidSubject, validate_subject

TRACE_DEST = b"Nats-Trace-Dest"
TRACE_ONLY = b"Nats-Trace-Only"
DISABLED = b"trace disabled"
"""The value that a server writes for a disabled destination."""
_DEST = re.compile(rb"(\r\n" + TRACE_DEST + rb": *)[^\r]*")
_TRUE = (b"1", b"true", b"on")
_PARENT = re.compile(rb"\r\ntraceparent:([^\r]*)", re.IGNORECASE)
_SAMPLED = re.compile(rb"[^-]*-[^-]*-[^-]*-([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The destination of a message's events; with `only` the message is neither stored nor delivered.

    An invalid destination is empty: no events are sent, and a trace-only message is still not delivered.
    """

    dest: bytes
    only: bool = False


def parse_trace(block: bytes) -> TraceRequest | None:
    """Return the trace request of a header block; the first of repeated headers counts."""
    found: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        found.setdefault(name, value.strip())
    dest = found.get(TRACE_DEST, b"")
    if not dest or dest == DISABLED:
        return None
    return TraceRequest(dest if _is_subject(dest) else b"", found.get(TRACE_ONLY, b"").lower() in _TRUE)


def _is_subject(dest: bytes) -> bool:
    try:
        validate_subject(dest.decode(errors="surrogateescape"))
    except InvalidSubject:
        return False
    return True


def without_trace(block: bytes) -> bytes:
    """Return a header block with the trace disabled, as it is stored."""
    return _DEST.sub(rb"\1" + DISABLED, block, count=1)


def is_sampled(block: bytes) -> bool:
    """Tell whether a header block has a W3C `traceparent` with the sampled flag."""
    found = _PARENT.search(block)
    flags = _SAMPLED.fullmatch(found[1].strip()) if found is not None else None
    return flags is not None and bool(int(flags[1], 16) & 1)
