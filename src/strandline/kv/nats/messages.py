"""What a stored message says of a key: put, delete or purge, its value, and when; no I/O.

Invariants: a key's operation is a header's name and value, never the payload. A header that is not of buckets is left
alone, so what other programs put with headers of their own is a put.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.errors import FormatError
from strandline.kv.entries import UpdateKind
from strandline.nats.streams import parse_header_values, parse_time

OPERATION = "KV-Operation"
MARKER_REASON = "Nats-Marker-Reason"
ROLLUP = "Nats-Rollup"
TTL = "Nats-TTL"
EXPIRED = "MaxAge"
EXPECTED_REVISION = "Nats-Expected-Last-Subject-Sequence"

KIND_OF_OPERATION = {"DEL": UpdateKind.DELETE, "PURGE": UpdateKind.PURGE}
KIND_OF_REASON = {EXPIRED: UpdateKind.PURGE, "Purge": UpdateKind.PURGE, "Remove": UpdateKind.DELETE}

DELETE_HEADERS = {OPERATION: "DEL"}
PURGE_HEADERS = {OPERATION: "PURGE", ROLLUP: "sub"}

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_SECONDS = re.compile(r"[0-9]{1,12}")
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """The last message of a key."""

    revision: int
    kind: UpdateKind
    value: bytes
    created_ns: int
    expires_ns: int = 0


def kind_of_headers(headers: Mapping[str, str]) -> UpdateKind:
    """Return what a message with these headers did to its key."""
    operation, reason = headers.get(OPERATION, ""), headers.get(MARKER_REASON, "")
    return KIND_OF_OPERATION.get(operation) or KIND_OF_REASON.get(reason) or UpdateKind.PUT


def parse_stored(answer: Mapping[str, Any]) -> StoredMessage:
    """Return the message of the API's answer to a get; `FormatError` if there is none in it."""
    try:
        message = answer["message"]
        block = base64.b64decode(message.get("hdrs", ""))
        data = base64.b64decode(message.get("data", ""))
        kind, created_ns = kind_of_headers(parse_header_values(block)), parse_time(message["time"])
        return StoredMessage(int(message["seq"]), kind, data, created_ns, deadline_ns(block, created_ns))
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as wrong:
        raise FormatError("the server's answer about a key", f"{wrong!r}") from wrong


def format_ttl(ttl_s: int) -> str:
    """Return a time to live as the server reads it, in whole seconds."""
    return f"{ttl_s}s"


def parse_ttl_ns(text: str) -> int:
    """Return a time to live as clients write it (`10`, `90s`, `1h30m`) in nanoseconds, 0 for never and for no time."""
    if _SECONDS.fullmatch(text):
        return int(text) * _UNITS["s"]
    if not _DURATION.fullmatch(text):
        return 0
    return int(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))


def deadline_ns(block: bytes, time_ns: int) -> int:
    """Return when the value with this header block expires by a time to live of its own, 0 for never.

    Of a server's marker of a value that expired it is when that was, and of any other delete 0.
    """
    headers = parse_header_values(block)
    if kind_of_headers(headers) is not UpdateKind.PUT:
        return time_ns if headers.get(MARKER_REASON) == EXPIRED else 0
    ttl_ns = parse_ttl_ns(headers.get(TTL, ""))
    return time_ns + ttl_ns if ttl_ns else 0
