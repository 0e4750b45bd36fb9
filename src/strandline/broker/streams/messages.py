"""Messages in columns, and responses to direct gets.

Invariants: columns are in the order of sequences; a response to a direct get is a header block and a payload, exactly
as nats-server sends it, texts included.
"""

from dataclasses import dataclass
from typing import NamedTuple

from strandline.broker.api.requests import GetRequest
from strandline.broker.api.times import format_time
from strandline.broker.streams.arrays import Ids, Times, Words
from strandline.broker.streams.headers import with_headers

MULTI_LAST_MAX = 1_024
BYTES_MAX = 64 << 20
"""Bytes that one direct get sends at most: as many as nats-server lets a connection have pending."""


class Message(NamedTuple):
    """One stored message."""

    sequence: int
    subject: bytes
    headers: bytes
    payload: bytes
    time_ns: int


@dataclass(frozen=True, slots=True)
class Messages:
    """Stored messages in columns; `numbers` are those of the subjects, valid until the stream changes."""

    sequences: Words
    times: Times
    numbers: Ids
    subjects: list[bytes]
    headers: list[bytes]
    payloads: list[bytes]

    def __len__(self) -> int:
        return len(self.subjects)

    def __getitem__(self, at: int) -> Message:
        return Message(
            int(self.sequences[at]), self.subjects[at], self.headers[at], self.payloads[at], int(self.times[at])
        )


class Reply(NamedTuple):
    """One message of the response to a direct get."""

    headers: bytes
    payload: bytes


def status_reply(code: int, text: str) -> Reply:
    """Return an answer without a message."""
    return Reply(b"NATS/1.0 %d %s\r\n\r\n" % (code, text.encode()), b"")


STORAGE_FAILED = status_reply(503, "Storage Failed")
EMPTY_REQUEST = status_reply(408, "Empty Request")
BAD_REQUEST = status_reply(408, "Bad Request")
MALFORMED_REQUEST = status_reply(408, "Malformed Request")
MESSAGE_NOT_FOUND = status_reply(404, "Message Not Found")
NO_RESULTS = status_reply(404, "No Results")
TOO_MANY_RESULTS = status_reply(413, "Too Many Results")
REQUIRED_API_LEVEL = status_reply(412, "Required Api Level")


def check_direct(request: GetRequest) -> Reply | None:
    """Return why a direct get cannot be answered, or None if it can."""
    asks = (
        request.seq
        or request.last_by_subj
        or request.next_by_subj
        or request.multi_last
        or request.start_time is not None
    )
    if not asks:
        return EMPTY_REQUEST
    has_time = request.start_time is not None
    last, following, several = request.last_by_subj, request.next_by_subj, request.multi_last
    conflicts = (
        (request.seq and last)
        or (request.seq and has_time)
        or (has_time and last)
        or (last and (following or several or request.batch > 0))
        or (following and several)
        or (request.up_to_seq and request.up_to_time is not None)
    )
    return BAD_REQUEST if conflicts else None


def format_direct(stream: bytes, message: Message, pending: tuple[int, int] | None = None) -> Reply:
    """Return a message as a direct get sends it; in a batch, with how many follow and the sequence before."""
    pairs = [
        (b"Nats-Stream", stream),
        (b"Nats-Subject", message.subject),
        (b"Nats-Sequence", b"%d" % message.sequence),
        (b"Nats-Time-Stamp", format_time(message.time_ns).encode()),
    ]
    if pending is not None:
        pairs += [(b"Nats-Num-Pending", b"%d" % pending[0]), (b"Nats-Last-Sequence", b"%d" % pending[1])]
    return Reply(with_headers(message.headers, pairs), message.payload)


def format_end(pending: int, last_seq: int, up_to: int | None = None) -> Reply:
    """Return the end of a batch."""
    lines = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last_seq)
    if up_to is not None:
        lines += b"Nats-UpTo-Sequence: %d\r\n" % up_to
    return Reply(lines + b"\r\n", b"")


def message_bytes(message: Message) -> int:
    """Return the size of a message under a limit of bytes."""
    return len(message.subject) + len(message.headers) + len(message.payload)
