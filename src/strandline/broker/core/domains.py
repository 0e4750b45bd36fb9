"""What is published below the prefix of the server's domain, `$JS.<domain>.API.`: the same as without it.

Invariants: a message is what its subject without the prefix says before anybody asks who may publish it or where it
goes. As with nats-server, what JetStream does not know keeps its subject.
"""

from strandline.wire import FrameBatch, FrameParser, Side, WireLimits, format_pubs

API = b"$JS.API."
REQUESTS = (b"STREAM.", b"CONSUMER.", b"DIRECT.", b"META.", b"SERVER.", b"ACCOUNT.")
STORED = (b"$KV.", b"$OBJ.")
"""What is for streams, though clients of a domain publish it below the prefix."""
_LIMITS = WireLimits(payload_bytes_max=1 << 30, line_bytes_max=1 << 30)  # they were looked at when it came


def without_domain(frames: FrameBatch, domain: str) -> FrameBatch:
    """Return messages under the subjects that they are meant for."""
    prefix = b"$JS.%b.API." % domain.encode()
    subjects = frames.subject_list()
    if not any([subject.startswith(prefix) for subject in subjects]):  # noqa: C419 - a list is faster
        return frames
    meant = [_meant(subject, prefix) for subject in subjects]
    if meant == subjects:
        return frames
    rows = zip(meant, frames, strict=True)
    messages = [(subject, frame.reply, bytes(frame.headers), bytes(frame.payload)) for subject, frame in rows]
    return FrameParser(Side.CLIENT, _LIMITS).feed(format_pubs(messages))


def _meant(subject: bytes, prefix: bytes) -> bytes:
    rest = subject[len(prefix) :] if subject.startswith(prefix) else b""
    if rest.startswith(STORED):
        return rest
    return API + rest if rest == b"INFO" or rest.startswith(REQUESTS) else subject
