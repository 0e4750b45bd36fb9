"""Messages of the server's own in the form in which those of clients come.

Invariants: what is made here is what a client's frame would have been parsed into.
"""

from strandline.broker.routes import Inbound, Origin
from strandline.wire import FrameParser, Side, WireLimits, format_pub

_LIMITS = WireLimits(payload_bytes_max=1 << 30, line_bytes_max=1 << 20)


def inbound_of(subject: bytes, payload: bytes, headers: bytes, origin: Origin, reply: bytes = b"") -> Inbound:
    """Return one message as if a client had sent it."""
    frames = FrameParser(Side.CLIENT, _LIMITS).feed(format_pub(subject, payload, reply, headers))
    return Inbound(frames, [subject], origin)
