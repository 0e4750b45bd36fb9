"""Formatting of frames: each function returns one buffer, built with a single join.

Invariants: `FrameParser` reads the frames back. Subjects are written unchecked; `validate_subject` checks them once,
not for every message.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

PING = b"PING\r\n"
PONG = b"PONG\r\n"
OK = b"+OK\r\n"


def format_info(info: Mapping[str, Any]) -> bytes:
    """Return an INFO frame."""
    return b"INFO " + json.dumps(info, separators=(",", ":")).encode() + b"\r\n"


def format_connect(options: Mapping[str, Any]) -> bytes:
    """Return a CONNECT frame."""
    return b"CONNECT " + json.dumps(options, separators=(",", ":")).encode() + b"\r\n"


def format_err(text: str) -> bytes:
    """Return an -ERR frame."""
    return b"-ERR '%s'\r\n" % text.encode()


def format_sub(subject: bytes, sid: int, group: bytes = b"") -> bytes:
    """Return a SUB frame."""
    return b"SUB %s %s %d\r\n" % (subject, group, sid) if group else b"SUB %s %d\r\n" % (subject, sid)


def format_unsub(sid: int, messages_max: int = 0) -> bytes:
    """Return an UNSUB frame, at once or after so many messages."""
    return b"UNSUB %d %d\r\n" % (sid, messages_max) if messages_max else b"UNSUB %d\r\n" % sid


def format_pub(subject: bytes, payload: bytes, reply: bytes = b"", headers: bytes = b"") -> bytes:
    """Return a PUB frame, or HPUB if there is a header block."""
    return format_pubs([(subject, reply, headers, payload)])


def format_msg(subject: bytes, sid: int, payload: bytes, reply: bytes = b"", headers: bytes = b"") -> bytes:
    """Return a MSG frame, or HMSG if there is a header block."""
    return format_msgs([(subject, sid, reply, headers, payload)])


def format_pubs(messages: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> bytes:
    """Return the PUB or HPUB frame of each (subject, reply, headers, payload), joined."""
    frames = []
    for subject, reply, headers, payload in messages:
        to = b"%s %s" % (subject, reply) if reply else subject
        if headers:
            total = len(headers) + len(payload)
            frames.append(b"HPUB %s %d %d\r\n%s%s\r\n" % (to, len(headers), total, headers, payload))
        else:
            frames.append(b"PUB %s %d\r\n%s\r\n" % (to, len(payload), payload))
    return b"".join(frames)


def format_msgs(messages: Iterable[tuple[bytes, int, bytes, bytes, bytes]]) -> bytes:
    """Return the MSG or HMSG frame of each (subject, sid, reply, headers, payload), joined."""
    frames = []
    for subject, sid, reply, headers, payload in messages:
        to = b"%s %d %s" % (subject, sid, reply) if reply else b"%s %d" % (subject, sid)
        if headers:
            total = len(headers) + len(payload)
            frames.append(b"HMSG %s %d %d\r\n%s%s\r\n" % (to, len(headers), total, headers, payload))
        else:
            frames.append(b"MSG %s %d\r\n%s\r\n" % (to, len(payload), payload))
    return b"".join(frames)
