"""Delete markers: the message that tells that a subject's last message went with time.

Invariants: a marker is a message like any other, with a time to live of its own; when it goes, no marker follows it.
"""

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.times import NANOS, format_duration
from strandline.broker.streams import headers as names
from strandline.broker.streams.headers import special_headers, with_headers
from strandline.broker.streams.publishing import ROLLUP_SUBJECT, Draft, lifted_ttl

MAX_AGE = b"MaxAge"


def is_marker(headers: bytes) -> bool:
    """Tell whether a message is a delete marker."""
    return names.MARKER_REASON in headers and bool(special_headers(headers).get(names.MARKER_REASON))


def make_marker(subject: bytes, config: StreamConfig) -> Draft:
    """Return the marker for a subject whose last message went with time."""
    ttl = config.subject_delete_marker_ttl
    headers = with_headers(
        b"",
        [
            (names.MARKER_REASON, MAX_AGE),
            (names.TTL, format_duration(ttl).encode()),
            (names.ROLLUP, ROLLUP_SUBJECT),
        ],
    )
    ttl_s = lifted_ttl(config, ttl // NANOS)
    return Draft(subject, headers, b"", {}, rollup=ROLLUP_SUBJECT, ttl_s=ttl_s)
