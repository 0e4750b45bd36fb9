"""The checkpoint of a stream, in its file `front`: the state of the stream where its log begins.

    0   8s   magic "STRANDLS"; "STRANDLF" in version 1
    8   u16  version, 2
    10  u16  zero
    12  u32  CRC-32C of bytes 0-11, then of byte 16 to the end
    16  16s  identity of the journal
    32  u64  place in the journal from which the stream is read
    40  u64  last sequence at that place
    48  i64  time of the last message at that place
    56  i64  created
    64       configuration, JSON

Version 1 differs in its magic alone, which the frontier of a journal has, too. Both versions are read.

Invariants: a stream exists from the moment this file does; it is replaced before the records below its place are
removed.
"""

import struct
from typing import NamedTuple

from strandline.checksums import crc32c
from strandline.errors import Damaged, FormatError

CHECKPOINT_NAME = "front"
_MAGIC, _MAGIC_V1 = b"STRANDLS", b"STRANDLF"
_HEAD = struct.Struct("<8sHH")
_CRC = struct.Struct("<I")
_BODY = struct.Struct("<16sQQqq")
_BODY_AT = _HEAD.size + _CRC.size
VERSION = 2


class StreamCheckpoint(NamedTuple):
    """Where the log of a stream begins, and the state of the stream there."""

    identity: bytes
    place: int
    last_seq: int
    last_time: int
    created_ns: int
    config: bytes


def format_checkpoint(checkpoint: StreamCheckpoint) -> bytes:
    """Return the file."""
    head = _HEAD.pack(_MAGIC, VERSION, 0)
    body = _BODY.pack(*checkpoint[:-1]) + checkpoint.config
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def parse_checkpoint(data: bytes, path: str) -> StreamCheckpoint:
    """Return the checkpoint in a file, of either version; `FormatError` or `Damaged` if it cannot be read."""
    if not data.startswith((_MAGIC, _MAGIC_V1)):
        raise FormatError(path, "not the checkpoint of a stream")
    if len(data) < _BODY_AT + _BODY.size:
        raise Damaged(path, "the file ends too early", safe="restore it from a copy; the messages are in the journal")
    head = data[: _HEAD.size]
    magic, version, _ = _HEAD.unpack(head)
    if version != (VERSION if magic == _MAGIC else 1):
        raise FormatError(path, f"unknown version {version}", hint="a later release may have written it")
    body = data[_BODY_AT:]
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(body, crc32c(head)):
        raise Damaged(
            path, "the checksum does not match", safe="restore it from a copy; the messages are in the journal"
        )
    identity, place, last_seq, last_time, created_ns = _BODY.unpack_from(body)
    return StreamCheckpoint(identity, place, last_seq, last_time, created_ns, body[_BODY.size :])
