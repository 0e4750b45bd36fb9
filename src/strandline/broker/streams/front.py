"""The front file: what a stream was, small, at the place where its log begins.

    0   8s   magic "STRANDLF"
    8   u16  version, 1
    10  u16  zero
    12  u32  CRC-32C of bytes 0-11, then of byte 16 to the end
    16  16s  identity of the journal
    32  u64  place in the journal from which the stream is read
    40  u64  last sequence at that place
    48  i64  time of the last message at that place
    56  i64  created
    64       configuration, JSON

Invariants: a stream exists from the moment this file does; it is replaced before the records below its place are let
go.
"""

import struct
from typing import NamedTuple

from strandline.checksums import crc32c
from strandline.errors import Damaged, FormatError

FRONT_NAME = "front"
_MAGIC = b"STRANDLF"
_HEAD = struct.Struct("<8sHH")
_CRC = struct.Struct("<I")
_BODY = struct.Struct("<16sQQqq")
_BODY_AT = _HEAD.size + _CRC.size
VERSION = 1


class Front(NamedTuple):
    """Where a stream begins, and what it was there."""

    identity: bytes
    place: int
    last_seq: int
    last_time: int
    created_ns: int
    config: bytes


def format_front(front: Front) -> bytes:
    """Return the file."""
    head = _HEAD.pack(_MAGIC, VERSION, 0)
    body = _BODY.pack(*front[:-1]) + front.config
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def parse_front(data: bytes, path: str) -> Front:
    """Return what a file says; `FormatError` or `Damaged` if it is not a whole one of ours."""
    if not data.startswith(_MAGIC):
        raise FormatError(path, "not the front of a stream")
    if len(data) < _BODY_AT + _BODY.size:
        raise Damaged(path, "the file ends too early", safe="restore it from a copy; the messages are in the journal")
    head = data[: _HEAD.size]
    _, version, _ = _HEAD.unpack(head)
    if version != VERSION:
        raise FormatError(path, f"version {version} is not known", hint="was it written by a later one?")
    body = data[_BODY_AT:]
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(body, crc32c(head)):
        raise Damaged(
            path, "the checksum does not match", safe="restore it from a copy; the messages are in the journal"
        )
    identity, place, last_seq, last_time, created_ns = _BODY.unpack_from(body)
    return Front(identity, place, last_seq, last_time, created_ns, body[_BODY.size :])
