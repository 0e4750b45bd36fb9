"""The delta: the changes since a snapshot, one frame for each commit.

    0   8 B  magic "STRANDLD"
    8   u16  version, 1
    10  u16  zero
    12  u32  zero
    16  16 B identity of the group
    32  u64  sequence of the first frame
    40  i64  created, nanoseconds since 1970
    48  12 B zero
    60  u32  CRC-32C of bytes 0 to 60
    64       frames, one after another; then the end of the file, or zeros

A frame:

    0   u32  magic "SLG1"
    4   u32  CRC-32C of the identity and then everything from byte 8 to the end of the frame
    8   u32  operation count; 0 says only that everything before is durable, as a proper close does
    12  u32  zero
    16  u64  sequence
    24  u64  durable sequence (exclusive) known when the frame was written
    32  i64  written, nanoseconds since 1970
    40       operations, 24 bytes each

Invariants: a frame is whole or absent; sequences grow by one, across files too, so a snapshot that says which
sequence comes next can be followed by any delta that reaches it, and no frame is applied twice; `durable` never exceeds
what was on stable storage, so a valid frame proves that everything below its `durable` once was.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from strandline.checksums import crc32c
from strandline.errors import Damaged, FormatError
from strandline.files import Buffer
from strandline.groups.operations import OPERATION_BYTES

DELTA_MAGIC = b"STRANDLD"
DELTA_VERSION = 1
DELTA_HEADER_BYTES = 64
FRAME_MAGIC = 0x31474C53
FRAME_HEADER = struct.Struct("<IIIIQQq")
FRAME_HEADER_BYTES = FRAME_HEADER.size
OPERATIONS_MAX = 2**24
_DELTA_HEADER = struct.Struct("<8sHHI16sQq12x")
_CRC = struct.Struct("<I")
_FRAME_MAGIC_BYTES = _CRC.pack(FRAME_MAGIC)
_AFTER_CRC = 8


@dataclass(frozen=True, slots=True)
class DeltaHeader:
    """The header of a delta: its first 64 bytes."""

    identity: bytes
    base_sequence: int
    created_ns: int


class Frame(NamedTuple):
    """One commit in a delta."""

    sequence: int
    durable_sequence: int
    written_ns: int
    operations: memoryview
    position: int

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.position + FRAME_HEADER_BYTES + len(self.operations)


class BadFrame(Exception):
    """Bytes that are not the next frame."""

    def __init__(self, position: int, sequence: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.sequence = sequence
        self.problem = problem


def format_delta_header(header: DeltaHeader) -> bytes:
    """Return the first 64 bytes of a delta."""
    fields = (DELTA_MAGIC, DELTA_VERSION, 0, 0, header.identity, header.base_sequence, header.created_ns)
    packed = _DELTA_HEADER.pack(*fields)
    return packed + _CRC.pack(crc32c(packed))


def parse_delta_header(data: bytes, path: str) -> DeltaHeader:
    """Return the header; `FormatError` if foreign or of a later version, `Damaged` otherwise."""
    if data[:8] != DELTA_MAGIC[: len(data)]:
        raise FormatError(path, "this is not a group's delta", hint="move the file elsewhere if it is not a group's")
    # The file got its name only after its header was on stable storage: a crash cannot have torn it.
    if len(data) < DELTA_HEADER_BYTES or _CRC.unpack_from(data, 60)[0] != crc32c(data[:60]):
        raise Damaged(path, "the header is damaged", safe=SAFE)
    _, version, _, _, identity, base_sequence, created_ns = _DELTA_HEADER.unpack_from(data)
    if version != DELTA_VERSION:
        hint = "open it with the version of Strandline that wrote it, or a later one"
        raise FormatError(path, f"delta version {version} is not known here", hint=hint)
    return DeltaHeader(identity, base_sequence, created_ns)


def format_frame(
    identity: bytes, sequence: int, durable_sequence: int, written_ns: int, operations: Sequence[Buffer]
) -> bytes:
    """Return a frame."""
    body = b"".join(operations)
    count = len(body) // OPERATION_BYTES
    head = FRAME_HEADER.pack(FRAME_MAGIC, 0, count, 0, sequence, durable_sequence, written_ns)
    crc = crc32c(body, crc32c(head[_AFTER_CRC:], crc32c(identity)))
    return b"".join((head[:4], _CRC.pack(crc), head[_AFTER_CRC:], body))


def parse_frame(data: bytes, position: int, seed: int) -> Frame | None:
    """Return the frame at `position`, or None unless a whole valid one stands there; `seed` is the identity's CRC."""
    if len(data) - position < FRAME_HEADER_BYTES:
        return None
    magic, crc, count, zero, sequence, durable, written_ns = FRAME_HEADER.unpack_from(data, position)
    body = position + FRAME_HEADER_BYTES
    end = body + count * OPERATION_BYTES
    if magic != FRAME_MAGIC or zero or end > len(data):
        return None
    view = memoryview(data)
    if crc32c(view[position + _AFTER_CRC : end], seed) != crc:
        return None
    return Frame(sequence, durable, written_ns, view[body:end], position)


def walk(data: bytes, header: DeltaHeader) -> Iterator[Frame]:
    """Yield the frames of a delta in order; `BadFrame` for bytes that are neither the next frame nor zeros."""
    seed = crc32c(header.identity)
    position = DELTA_HEADER_BYTES
    expected = header.base_sequence
    while position < len(data):
        frame = parse_frame(data, position, seed)
        if frame is None:
            if data.count(0, position) == len(data) - position:
                return  # space that was reserved and never written
            raise BadFrame(position, expected, "the bytes are not a whole frame")
        if frame.sequence != expected:
            raise BadFrame(position, expected, f"frame {frame.sequence} stands where {expected} belongs")
        yield frame
        position = frame.end
        expected += 1


def frames_after(data: bytes, position: int, header: DeltaHeader) -> Iterator[Frame]:
    """Yield the whole valid frames after `position`, wherever they begin."""
    seed = crc32c(header.identity)
    at = data.find(_FRAME_MAGIC_BYTES, position + 1)
    while at >= 0:
        frame = parse_frame(data, at, seed) if at % 8 == 0 else None
        if frame is not None:
            yield frame
        at = data.find(_FRAME_MAGIC_BYTES, at + 1 if frame is None else frame.end)


SAFE = (
    "nothing was changed; keep a copy of the group's files, then `repair_group` sets the damaged ones aside and keeps"
    " every answer that can still be read (what was lost is delivered again)"
)
"""The hint for damage."""
