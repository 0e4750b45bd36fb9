"""Acknowledgement payloads (+ACK, -NAK, +WPI, +NXT, +TERM), parsed as nats-server parses them.

Invariants: rows stay in the order of arrival; a subject that is not an ack subject is skipped.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from strandline.broker.api.codes import ApiError
from strandline.broker.api.json_text import read_json
from strandline.broker.api.schema import SEQUENCE_MAX
from strandline.broker.api.times import parse_duration
from strandline.broker.routes import Inbound
from strandline.wire import parse_ack

ACK, OK, NEXT, NAK, PROGRESS, TERM = b"+ACK", b"+OK", b"+NXT", b"-NAK", b"+WPI", b"+TERM"
PLAIN = frozenset((b"", ACK, OK))


class AckKind(Enum):
    """The kind of an acknowledgement."""

    ACK = "ack"
    NEXT = "next"
    NAK = "nak"
    PROGRESS = "progress"
    TERM = "term"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledgement."""

    kind: AckKind
    stream_seq: int
    consumer_seq: int
    deliveries: int
    reply: bytes
    argument: bytes


@dataclass(frozen=True, slots=True)
class PlainAcks:
    """Only +ACK payloads: the three numbers of each, as digits; `replies` is None where none has a reply subject."""

    rows: list[tuple[bytes, bytes, bytes]]
    """Deliveries, stream sequence, consumer sequence."""
    replies: list[bytes] | None

    def stream_seqs(self) -> list[int]:
        """Return the stream sequences."""
        return [int(row[1]) for row in self.rows]


class AckParser:
    """Parses the acknowledgements of one consumer."""

    def __init__(self, prefix: bytes) -> None:
        # One pass over all subjects, a line each, is ten times as fast as one by one.
        numbers = rb"(\d{1,18})\.(\d{1,18})\.(\d{1,18})\.\d{1,19}\.\d{1,19}$"
        self._find = re.compile(b"^" + re.escape(prefix) + numbers, re.MULTILINE).findall

    def parse(self, messages: Inbound) -> PlainAcks | list[Ack]:
        """Return the acknowledgements of some messages."""
        frames = messages.frames
        payloads = frames.payloads()
        replies = frames.replies() if frames.has_replies() else None
        rows = self._find(b"\n".join(messages.subjects))
        if len(rows) == len(payloads):
            if PLAIN.issuperset(payloads):
                return PlainAcks(rows, replies)
            found = [(int(count), int(sequence), int(own)) for count, sequence, own in rows]
        else:
            parsed = map(parse_ack, messages.subjects)
            found = [_bounded(*one[:3]) if one is not None else (0, 0, 0) for one in parsed]
        return list(_acks(found, payloads, replies))


def _bounded(count: int, sequence: int, consumer_seq: int) -> tuple[int, int, int]:
    return count, min(sequence, SEQUENCE_MAX), min(consumer_seq, SEQUENCE_MAX)


def _acks(found: list[tuple[int, int, int]], payloads: list[bytes], replies: list[bytes] | None) -> Iterator[Ack]:
    for at, (count, sequence, consumer_seq) in enumerate(found):
        if sequence:
            kind, argument = _kind(payloads[at])
            yield Ack(kind, sequence, consumer_seq, count, b"" if replies is None else replies[at], argument)


def _kind(payload: bytes) -> tuple[AckKind, bytes]:
    if payload in PLAIN:
        return AckKind.ACK, b""
    if payload.startswith(NEXT):
        return AckKind.NEXT, payload[len(NEXT) :]
    if payload.startswith(NAK):
        return AckKind.NAK, payload[len(NAK) :].strip()
    if payload == PROGRESS:
        return AckKind.PROGRESS, b""
    if payload.startswith(TERM):
        return AckKind.TERM, payload[len(TERM) :].strip()
    return AckKind.UNKNOWN, b""


def parse_delay(argument: bytes) -> int | None:
    """Return the delay of a -NAK in nanoseconds, None without one."""
    if not argument:
        return None
    try:
        if argument.startswith(b"{"):
            value = read_json(argument)
            delay = next((value[name] for name in value if name.lower() == "delay"), 0)
            return delay if type(delay) is int and abs(delay) < 2**63 else None
        return parse_duration(argument.decode())
    except (ValueError, ApiError):
        return None
