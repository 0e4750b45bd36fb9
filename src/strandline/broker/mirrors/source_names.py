"""Names of sources and identities of origins, as in nats-server.

Invariants: pure. The name of a source has everything that distinguishes it from the stream's other sources, so that
each has a position of its own. A stream that was deleted and created again has another identity.
"""

import hashlib

from strandline.broker.api.config import StreamSource
from strandline.broker.api.times import format_time

_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_BYTES = 8
ALL = ">"


def short_hash(text: str) -> str:
    """Return eight letters and digits that stand for a text."""
    digest = hashlib.sha256(text.encode()).digest()[:_HASH_BYTES]
    return bytes(_DIGITS[byte % len(_DIGITS)] for byte in digest).decode()


def stream_identity(created_ns: int) -> str:
    """Return the identity of a stream among streams of the same name: its time of creation."""
    return short_hash(format_time(created_ns))


def source_name(source: StreamSource) -> bytes:
    """Return the name of a source: stream, server, subjects, and their transforms."""
    stream = source.name if source.external is None else f"{source.name}:{short_hash(source.external.api)}"
    transforms = source.subject_transforms
    taken = "\f".join(part.src or ALL for part in transforms) if transforms else source.filter_subject or ALL
    made = "\f".join(part.dest or ALL for part in transforms) if transforms else ALL
    return f"{stream} {taken} {made}".encode(errors="surrogateescape")
