"""What a message's headers say about tracing it (ADR-41): where its events go, and whether it goes anywhere itself.

Invariants: `Nats-Trace-Dest` counts with its case, `traceparent` without; a trace that an account's `msg_trace` began
never holds its message back. Pure.
"""

import re
from dataclasses import dataclass

TRACE_DEST = b"Nats-Trace-Dest"
TRACE_ONLY = b"Nats-Trace-Only"
DISABLED = b"trace disabled"
"""What a server in between writes for a destination that is not to be used."""
_DEST = re.compile(rb"(\r\n" + TRACE_DEST + rb": *)[^\r]*")
_TRUE = (b"1", b"true", b"on")
_PARENT = re.compile(rb"\r\ntraceparent:([^\r]*)", re.IGNORECASE)
_SAMPLED = re.compile(rb"[^-]*-[^-]*-[^-]*-([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Where the events of a message are to be sent; with `only` the message itself is neither stored nor delivered."""

    dest: bytes
    only: bool = False


def parse_trace(headers: dict[bytes, bytes]) -> TraceRequest | None:
    """Return what the headers of a message that begin with `Nats-` ask for."""
    dest = headers.get(TRACE_DEST, b"")
    if not dest or dest == DISABLED:
        return None
    return TraceRequest(dest, headers.get(TRACE_ONLY, b"").lower() in _TRUE)


def without_trace(block: bytes) -> bytes:
    """Return a header block by which nothing is traced again, as it is stored."""
    return _DEST.sub(rb"\1" + DISABLED, block, count=1)


def is_sampled(block: bytes) -> bool:
    """Tell whether a header block has a `traceparent` of W3C with the flag for sampled."""
    found = _PARENT.search(block)
    flags = _SAMPLED.fullmatch(found[1].strip()) if found is not None else None
    return flags is not None and bool(int(flags[1], 16) & 1)
