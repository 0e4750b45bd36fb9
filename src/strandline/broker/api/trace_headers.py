"""What a message's headers say about tracing it (ADR-41): where its events go, and whether it goes anywhere itself.

Invariants: `Nats-Trace-Dest` counts with its case, `traceparent` without; a trace that an account's `msg_trace` began
never holds its message back. A destination is a subject that can be published to: what is none is never written into a
line of the protocol. Pure.
"""

import re
from dataclasses import dataclass

from strandline.wire import InvalidSubject, validate_subject

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
    """Where the events of a message are to be sent; with `only` the message itself is neither stored nor delivered.

    A destination that is no subject is empty: no events are sent, and a message that is only traced still goes nowhere.
    """

    dest: bytes
    only: bool = False


def parse_trace(block: bytes) -> TraceRequest | None:
    """Return what a header block asks for; its first line is the version, and the first of several headers counts."""
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
    """Return a header block by which nothing is traced again, as it is stored."""
    return _DEST.sub(rb"\1" + DISABLED, block, count=1)


def is_sampled(block: bytes) -> bool:
    """Tell whether a header block has a `traceparent` of W3C with the flag for sampled."""
    found = _PARENT.search(block)
    flags = _SAMPLED.fullmatch(found[1].strip()) if found is not None else None
    return flags is not None and bool(int(flags[1], 16) & 1)
