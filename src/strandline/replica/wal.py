"""SQLite's write-ahead log as pure code: headers, frames, checksums, commits. Bytes in, values out; no files.

    header, 32 bytes   magic u32 | version u32 | page size u32 | checkpoint u32 | salts 2 x u32 | checksum 2 x u32
    frame              page number u32 | pages after commit u32, or 0 | salts 2 x u32 | checksum 2 x u32 | page

All integers are big-endian. The lowest bit of the magic says in which byte order words enter the checksum; the checksum
is cumulative: from the header through each frame's first eight bytes and its page.

Invariants: a frame counts only if its salts are the header's and the chain of checksums holds up to it; only frames up
to the last commit are handed out; bytes behind them, which an earlier use of the file may have left, are never read as
frames.

The checksum is a linear recurrence modulo 2^32, so a frame's contribution is a dot product with fixed coefficients, and
all frames of a chunk are verified at once.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from strandline.lazy_imports import deferred

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    _Words = npt.NDArray[np.uint32]
else:
    np = deferred("numpy", "replica")  # a restore reads no log, and importing it takes longer than a small restore

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_HEADER = struct.Struct(">8I")
_MAGIC = 0x377F0682
_VERSION = 3_007_000
_MASK = 0xFFFFFFFF
_PAIR_BYTES = 8
PAGE_BYTES_MIN, PAGE_BYTES_MAX = 512, 65536

Buffer = bytes | bytearray | memoryview


class WalHeader(NamedTuple):
    """The header of a log: what the frames behind it must agree with."""

    page_size: int
    checkpoint: int
    salts: tuple[int, int]
    checksum: tuple[int, int]
    is_big_endian: bool = False

    @property
    def frame_size(self) -> int:
        """Return the bytes of one frame."""
        return FRAME_HEADER_BYTES + self.page_size

    @property
    def start(self) -> "WalPosition":
        """Return the position before the first frame."""
        return WalPosition(HEADER_BYTES, self.checksum)


class WalPosition(NamedTuple):
    """A place between two frames, and the checksum of all that is before it."""

    offset: int
    checksum: tuple[int, int]


class WalFrames(NamedTuple):
    """Committed frames: `end` is the place behind the last commit, `pages` the size of the database after it."""

    numbers: "_Words"
    """The page numbers, frame by frame."""
    commits: "_Words"
    """The size of the database in pages where a frame commits, and 0 elsewhere."""
    end: WalPosition
    pages: int
    is_cut: bool = False
    """Whether a frame that is not of the log follows, so that no commit is behind it."""

    def latest(self) -> dict[int, int]:
        """Return the frame that holds the latest version of each page, in the order of pages."""
        numbers, last = np.unique(self.numbers[::-1], return_index=True)
        return dict(zip(numbers.tolist(), (len(self.numbers) - 1 - last).tolist(), strict=True))


def parse_header(data: Buffer) -> WalHeader | None:
    """Return the header of a log; None where there is none yet, or none that SQLite would accept."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, page_size, checkpoint, salt1, salt2, *checksum = _HEADER.unpack_from(data)
    is_big_endian = bool(magic & 1)
    if magic & ~1 != _MAGIC or version != _VERSION or not is_page_size(page_size):
        return None
    if wal_checksum(bytes(data[: HEADER_BYTES - 8]), (0, 0), is_big_endian=is_big_endian) != tuple(checksum):
        return None
    return WalHeader(page_size, checkpoint, (salt1, salt2), (checksum[0], checksum[1]), is_big_endian)


def format_header(page_size: int, checkpoint: int, salts: tuple[int, int], *, is_big_endian: bool = False) -> bytes:
    """Return the bytes of a header."""
    body = _HEADER.pack(_MAGIC | is_big_endian, _VERSION, page_size, checkpoint, *salts, 0, 0)[: HEADER_BYTES - 8]
    return body + struct.pack(">2I", *wal_checksum(body, (0, 0), is_big_endian=is_big_endian))


def format_frame(header: WalHeader, before: tuple[int, int], number: int, commit: int, page: bytes) -> bytes:
    """Return the bytes of a frame that follows the checksum `before`."""
    head = struct.pack(">2I", number, commit)
    checksum = wal_checksum(head + page, before, is_big_endian=header.is_big_endian)
    return head + struct.pack(">4I", *header.salts, *checksum) + page


def format_frames(
    header: WalHeader, before: tuple[int, int], pages: Sequence[tuple[int, bytes]], commit: int
) -> tuple[bytes, tuple[int, int]]:
    """Return the bytes of one frame for each page, and the checksum behind them; the last commits unless that is 0."""
    if not pages:
        return b"", before
    frames = np.zeros((len(pages), header.frame_size), np.uint8)
    frames[:, FRAME_HEADER_BYTES:] = np.frombuffer(b"".join(page for _, page in pages), np.uint8).reshape(
        len(pages), -1
    )
    fields = np.zeros((len(pages), FRAME_HEADER_BYTES // 4), np.uint32)
    fields[:, 0] = [number for number, _ in pages]
    fields[-1, 1] = commit
    fields[:, 2:4] = header.salts
    frames[:, :FRAME_HEADER_BYTES] = fields.astype(">u4").view(np.uint8)
    power, _ = _coefficients((header.page_size + _PAIR_BYTES) // _PAIR_BYTES)
    (a, b), (c, d) = ((int(one), int(other)) for one, other in power)
    own = _chained(header, np.zeros((len(pages), 2), np.uint32), frames).tolist()
    first, second = before
    for at, (one, other) in enumerate(own):
        first, second = (one + a * first + b * second) & _MASK, (other + c * first + d * second) & _MASK
        fields[at, 4:6] = first, second
    frames[:, :FRAME_HEADER_BYTES] = fields.astype(">u4").view(np.uint8)
    return frames.tobytes(), (first, second)


def scan_frames(header: WalHeader, position: WalPosition, chunk: Buffer, *, only_committed: bool = True) -> WalFrames:
    """Return the committed frames at the beginning of `chunk`, the bytes of the log from `position` on.

    What follows the last commit is left for a later call, whether it is unfinished, torn or of an earlier use. With
    `only_committed` False all valid frames are returned, for a transaction that is longer than a chunk.
    """
    count = len(chunk) // header.frame_size
    if count == 0:
        return WalFrames(np.empty(0, np.uint32), np.empty(0, np.uint32), position, 0)
    frames = np.frombuffer(chunk, np.uint8, count * header.frame_size).reshape(count, header.frame_size)
    fields = frames[:, :FRAME_HEADER_BYTES].copy().view(">u4").astype(np.uint32)
    stored = fields[:, 4:6]
    before = np.concatenate([np.array([position.checksum], np.uint32), stored[:-1]])
    is_valid = (fields[:, 2:4] == np.array(header.salts, np.uint32)).all(axis=1) & (fields[:, 0] != 0)
    is_valid &= (_chained(header, before, frames) == stored).all(axis=1)
    valid = count if is_valid.all() else int(np.argmin(is_valid))
    committed = np.flatnonzero(fields[:valid, 1]) if only_committed else np.arange(valid)
    if len(committed) == 0:
        return WalFrames(np.empty(0, np.uint32), np.empty(0, np.uint32), position, 0, valid < count)
    last = int(committed[-1])
    end = WalPosition(position.offset + (last + 1) * header.frame_size, (int(stored[last, 0]), int(stored[last, 1])))
    return WalFrames(
        fields[: last + 1, 0].copy(), fields[: last + 1, 1].copy(), end, int(fields[last, 1]), valid < count
    )


def wal_checksum(data: bytes, before: tuple[int, int], *, is_big_endian: bool) -> tuple[int, int]:
    """Return the checksum of `data`, whose length is a multiple of eight, after the checksum `before`."""
    first, second = before
    words = np.frombuffer(data, ">u4" if is_big_endian else "<u4").tolist()
    for word0, word1 in zip(words[::2], words[1::2], strict=True):
        first = (first + word0 + second) & _MASK
        second = (second + word1 + first) & _MASK
    return first, second


def is_page_size(size: int) -> bool:
    """Return whether SQLite has pages of this size."""
    return PAGE_BYTES_MIN <= size <= PAGE_BYTES_MAX and size & (size - 1) == 0


def _chained(header: WalHeader, before: "_Words", frames: "npt.NDArray[np.uint8]") -> "_Words":
    """Return the checksum that each frame must have after the one `before` it."""
    power, coefficients = _coefficients((header.page_size + _PAIR_BYTES) // _PAIR_BYTES)
    words = frames.view(">u4").astype(np.uint32) if header.is_big_endian else frames.view("<u4")
    head, page = words[:, :2], words[:, FRAME_HEADER_BYTES // 4 :]
    result = np.empty((len(frames), 2), np.uint32)
    for column in range(2):
        known = coefficients[column]
        result[:, column] = np.einsum("ij,j->i", head, known[:2]) + np.einsum("ij,j->i", page, known[2:])
        result[:, column] += before[:, 0] * power[column][0] + before[:, 1] * power[column][1]
    return result


@lru_cache(maxsize=16)
def _coefficients(pairs: int) -> "tuple[tuple[tuple[np.uint32, np.uint32], ...], _Words]":
    """Return what a checksum and each word before the end are multiplied with, for both halves of the result.

    One step is s' = M s + B w with M = [[1, 1], [1, 2]] and B = [[1, 0], [1, 1]]; after n steps a checksum has
    gone through M^n, and the k-th pair of words through M^(n-1-k) B.
    """
    coefficients = np.empty((2, 2 * pairs), np.uint32)
    (a, b), (c, d) = (1, 0), (0, 1)  # M^0
    for at in reversed(range(pairs)):
        coefficients[:, 2 * at : 2 * at + 2] = [[(a + b) & _MASK, b], [(c + d) & _MASK, d]]
        (a, b), (c, d) = ((a + b) & _MASK, (a + 2 * b) & _MASK), ((c + d) & _MASK, (c + 2 * d) & _MASK)
    return ((np.uint32(a), np.uint32(b)), (np.uint32(c), np.uint32(d))), coefficients
