"""The NATS client protocol, parsed and formatted a buffer at a time, without sockets, for both ends.

**Promise.** `FrameParser.feed` turns what a peer sent into the same frames however the bytes were split, or into a
typed violation; it never waits for impossible input, and buffers no more than one partial frame. The parser reads
back what `format_…` writes.

**How.** The messages of a buffer are found together: `uniform_frames` those of clients that all have one shape,
`batches` any others, as numpy columns of lines, sizes and spans; `lines` decides about single frames, small buffers
and everything unusual. A `FrameBatch` holds spans over the buffer; subjects, payloads, headers and ack subjects
become values on demand, for all rows at once. The deliveries of one consumer are alike enough to be parsed in a
single pass, from bytes to columns: `find_deliveries`.

**Trade-offs.** Columns cost about 0.2 ms to set up (20 µs for frames of one shape), so a buffer below 4 KiB or with
fewer than 128 messages (384 of clients) is read frame by frame, and so are frames of more than 4 KiB. A view of a
payload holds its whole buffer. A line of a client may end with LF alone, which is read frame by frame.
"""

from strandline.wire.acks import Ack, AckColumns, Times, format_ack, parse_ack, parse_acks
from strandline.wire.columns import binary_array, binary_list, binary_spans, gather, take_rows
from strandline.wire.deliveries import DeliveryPass, find_deliveries
from strandline.wire.errors import (
    InvalidSubject,
    LineTooLong,
    MalformedFrame,
    MalformedHeaders,
    PayloadTooLarge,
    ProtocolViolation,
    WrongArguments,
)
from strandline.wire.format import (
    OK,
    PING,
    PONG,
    format_connect,
    format_err,
    format_info,
    format_msg,
    format_msgs,
    format_pub,
    format_pubs,
    format_sub,
    format_unsub,
)
from strandline.wire.frames import Frame, FrameBatch
from strandline.wire.headers import NO_HEADERS, Headers, format_headers, parse_headers
from strandline.wire.ops import Op, Side, WireLimits
from strandline.wire.overlaps import PatternIndex, TooManySteps, first_overlap
from strandline.wire.parser import FrameParser
from strandline.wire.subjects import (
    has_wildcard,
    matcher,
    pattern_covers,
    patterns_overlap,
    subject_matches,
    validate_subject,
)

__all__ = [
    "NO_HEADERS",
    "OK",
    "PING",
    "PONG",
    "Ack",
    "AckColumns",
    "DeliveryPass",
    "Frame",
    "FrameBatch",
    "FrameParser",
    "Headers",
    "InvalidSubject",
    "LineTooLong",
    "MalformedFrame",
    "MalformedHeaders",
    "Op",
    "PatternIndex",
    "PayloadTooLarge",
    "ProtocolViolation",
    "Side",
    "Times",
    "TooManySteps",
    "WireLimits",
    "WrongArguments",
    "binary_array",
    "binary_list",
    "binary_spans",
    "find_deliveries",
    "first_overlap",
    "format_ack",
    "format_connect",
    "format_err",
    "format_headers",
    "format_info",
    "format_msg",
    "format_msgs",
    "format_pub",
    "format_pubs",
    "format_sub",
    "format_unsub",
    "gather",
    "has_wildcard",
    "matcher",
    "parse_ack",
    "parse_acks",
    "parse_headers",
    "pattern_covers",
    "patterns_overlap",
    "subject_matches",
    "take_rows",
    "validate_subject",
]
