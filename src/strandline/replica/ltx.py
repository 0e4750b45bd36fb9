"""LTX files, the format of litestream 0.5: the pages that one transaction, or a range of them, leaves behind.

    header, 100 bytes   LTX1 | flags u32 | page size u32 | commit u32 | min, max TXID u64 | timestamp i64, ms |
                        pre-apply checksum u64 | WAL offset, size i64 | salts 2 x u32 | node u64 | 20 bytes of ours
    page*               page number u32 | flags u16 | [size u32, if flag 1] | LZ4 frame (flag 0) or block (flag 1)
    6 zero bytes
    index               (page number, offset, size)* as varints | 0 | length of these u64
    trailer, 16 bytes   post-apply checksum u64 | file checksum u64

All integers are big-endian. We write what every litestream 0.5 reads (LZ4 frames, the flag NoChecksum, both apply
checksums zero) and read what any of them wrote.

Three fields carry our fence. `node` is the epoch of the leader that wrote the file. Of the 20 bytes that LTX reserves,
which others ignore and the file checksum covers, the first eight name the predecessor by its file checksum (0 where
there is none, as in a snapshot or a file of litestream's). The next eight, in a file that was merged from others, name
the last of them: that is what the successor names as its predecessor.

Invariants: pages ascend; none is the lock page or beyond `commit`; a file whose first transaction is 1 holds every page
of the database; the file checksum covers headers, uncompressed pages, index and trailer, and nothing is handed out as
whole before it was compared.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from strandline.lazy_imports import deferred
from strandline.replica.errors import LtxDamaged
from strandline.replica.wal import is_page_size

if TYPE_CHECKING:
    import xxhash
    from fastcrc import crc64
    from lz4 import block as lz4_block
else:
    crc64, lz4_block = deferred("fastcrc.crc64", "replica"), deferred("lz4.block", "replica")
    xxhash = deferred("xxhash", "replica")

HEADER_BYTES = 100
TRAILER_BYTES = 16
_MAGIC = b"LTX1"
_HEADER = struct.Struct(">4sIIIQQqQqqIIQQQ4s")
_PAGE = struct.Struct(">IH")
_U32LE = struct.Struct("<I")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_END_OF_PAGES = bytes(_PAGE.size)
_NO_CHECKSUM = 0x2
_BLOCK = 0x1
_TOP_BIT = 1 << 63
_PENDING_BYTE = 0x40000000
_FRAME_HEAD = bytes.fromhex("04224d186440a7")
_FRAME_FOOT_BYTES = 8
_FRAME_HEAD_BYTES = len(_FRAME_HEAD) + _U32LE.size
_STORED = 1 << 31
_PIECE_BYTES = 1 << 20

Buffer = bytes | bytearray | memoryview


class LtxHeader(NamedTuple):
    """What a file says about itself; `commit` is the size of the database in pages after it is applied."""

    page_size: int
    commit: int
    min_txid: int
    max_txid: int
    timestamp_ms: int
    wal_offset: int = 0
    wal_size: int = 0
    salts: tuple[int, int] = (0, 0)
    epoch: int = 0
    predecessor: int = 0
    end: int = 0

    def end_checksum(self, file_checksum: int) -> int:
        """Return what a successor names as its predecessor, given the checksum of this file."""
        return self.end or file_checksum

    def continues(self, end_checksum: int) -> bool:
        """Return whether this file follows one with that end checksum, as far as it says what it follows."""
        return self.predecessor in (0, end_checksum)

    @property
    def is_snapshot(self) -> bool:
        """Return whether the file holds a whole database."""
        return self.min_txid == 1


class LtxEnd(NamedTuple):
    """The end of a file that was read to its end: its checksum, and how many pages and bytes it had."""

    checksum: int
    pages: int
    size: int


def lock_page(page_size: int) -> int:
    """Return the page that holds SQLite's lock bytes, and never any data."""
    return _PENDING_BYTE // page_size + 1


def format_name(min_txid: int, max_txid: int) -> str:
    """Return the name of a file; names sort as their first transactions do."""
    return f"{min_txid:016x}-{max_txid:016x}.ltx"


def parse_name(name: str) -> tuple[int, int] | None:
    """Return the transactions of a file's name; None for any other name."""
    stem, dot, suffix = name.partition(".")
    if (dot, suffix) != (".", "ltx") or len(stem) != 33 or stem[16] != "-":  # noqa: PLR2004 - two numbers and a dash
        return None
    try:
        first, last = int(stem[:16], 16), int(stem[17:], 16)
    except ValueError:
        return None
    return (first, last) if 1 <= first <= last and format_name(first, last) == name else None


def format_header(header: LtxHeader) -> bytes:
    """Return the bytes of a header."""
    return _HEADER.pack(
        _MAGIC,
        _NO_CHECKSUM,
        header.page_size,
        header.commit,
        header.min_txid,
        header.max_txid,
        header.timestamp_ms,
        0,
        header.wal_offset,
        header.wal_size,
        *header.salts,
        header.epoch,
        header.predecessor,
        header.end,
        bytes(4),
    )


def parse_header(data: Buffer, name: str) -> LtxHeader:
    """Return the header of a file; `LtxDamaged`, with `name`, where it is none."""
    if len(data) < HEADER_BYTES:
        raise LtxDamaged(name, f"it ends within its header, after {len(data)} bytes")
    magic, flags, size, commit, first, last, ms, pre, offset, length, salt1, salt2, epoch, before, end, _ = (
        _HEADER.unpack(data[:HEADER_BYTES])
    )
    header = LtxHeader(size, commit, first, last, ms, offset, length, (salt1, salt2), epoch, before, end)
    problem = _header_problem(magic, flags, pre, header)
    if problem is not None:
        raise LtxDamaged(name, problem)
    return header


def _header_problem(magic: bytes, flags: int, pre: int, header: LtxHeader) -> str | None:
    place = header.wal_offset, header.wal_size, *header.salts
    has_no_pre = header.is_snapshot or bool(flags & _NO_CHECKSUM)
    checks = [
        (magic == _MAGIC, "it is not an LTX file"),
        (not flags & ~_NO_CHECKSUM, f"it has the flags {flags:#x}, which this version does not know"),
        (is_page_size(header.page_size), f"{header.page_size} is no page size"),
        (
            1 <= header.min_txid <= header.max_txid,
            f"transactions {header.min_txid} to {header.max_txid} are no range",
        ),
        (min(place) >= 0 and (place[0] > 0 or not any(place)), "its place in the WAL is impossible"),
        (pre == 0 if has_no_pre else bool(pre & _TOP_BIT), f"its pre-apply checksum cannot be {pre:016x}"),
    ]
    return next((problem for holds, problem in checks if not holds), None)


def encode(header: LtxHeader, pages: Iterable[tuple[int, Buffer]]) -> Iterator[bytes]:
    """Yield the bytes of a file, in pieces of about a megabyte; `pages` ascend."""
    head = format_header(header)
    checksum, offset = crc64.go_iso(head), HEADER_BYTES
    piece, index = [head], bytearray()
    pending = HEADER_BYTES
    compress, digest = lz4_block.compress, xxhash.xxh32_intdigest
    last, lock, size = 0, lock_page(header.page_size), header.page_size
    for number, page in pages:
        if not last < number <= header.commit or number == lock or len(page) != size:
            raise ValueError(f"page {number} of {len(page)} bytes after page {last} of {header.commit}")
        last = number
        block = compress(page, store_size=False)
        length = len(block)
        if length >= size:
            block, length = page, size | _STORED
        numbered = _PAGE.pack(number, 0)
        frame = b"".join((numbered, _FRAME_HEAD, _U32LE.pack(length), block, b"\0\0\0\0", _U32LE.pack(digest(page))))
        checksum = crc64.go_iso(page, crc64.go_iso(numbered, checksum))
        _append_varints(index, number, offset, len(frame))
        offset += len(frame)
        piece.append(frame)
        pending += len(frame)
        if pending >= _PIECE_BYTES:
            yield b"".join(piece)
            piece, pending = [], 0
    index.append(0)
    tail = b"".join((_END_OF_PAGES, index, _U64.pack(len(index)), bytes(8)))
    piece += [tail, _U64.pack(crc64.go_iso(tail, checksum) | _TOP_BIT)]
    yield b"".join(piece)


def file_checksum(data: Buffer) -> int:
    """Return the checksum that a file ends with."""
    return int(_U64.unpack(data[-8:])[0])


def _append_varints(out: bytearray, *values: int) -> None:
    for value in values:
        left = value
        while left > 0x7F:  # noqa: PLR2004 - seven bits a byte
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)


class LtxReader:
    """Reads a file from pieces as they come.

    `header` is known at once; `pages` yields the pages; `end` is known when it has yielded the last one and compared
    index and checksum. Pages that were handed out before an error was raised must not be used.
    """

    def __init__(self, pieces: Iterable[Buffer], name: str = "an LTX file") -> None:
        self._name = name
        self._pieces = iter(pieces)
        self._buffer = b""
        self._at = 0
        self._offset = 0
        self._fill(HEADER_BYTES)
        head = self._buffer[:HEADER_BYTES]
        self.header = parse_header(head, name)
        self._checksum = crc64.go_iso(head)
        self._skip(HEADER_BYTES)
        self.end: LtxEnd | None = None

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Yield page numbers and pages, ascending."""
        size, lock = self.header.page_size, lock_page(self.header.page_size)
        most = _PAGE.size + _FRAME_HEAD_BYTES + size + size // 128 + 64
        index = bytearray()
        last = count = 0
        while True:
            self._fill(most)
            start = self._offset
            number, flags = self._unpack(_PAGE)
            if number == 0:
                if flags:
                    raise self._damaged("the end of its pages has flags")
                break
            if not last < number <= self.header.commit or number == lock:
                raise self._damaged(f"page {number} stands after page {last}, of {self.header.commit}")
            if self.header.is_snapshot and number != last + 1 + (last + 1 == lock):
                raise self._damaged(f"page {number} stands after page {last} of a whole database")
            last = number
            page = self._page(number, flags)
            if len(page) != size:
                raise self._damaged(f"page {number} has {len(page)} bytes")
            _append_varints(index, number, start, self._offset - start)
            count += 1
            yield number, page
        if self.header.is_snapshot and self.header.commit not in (last, last + (last + 1 == lock)):
            raise self._damaged(f"it ends at page {last} of {self.header.commit}, and is to hold a whole database")
        self._finish(index, count)

    def _page(self, number: int, flags: int) -> bytes:
        """Return a page that begins here, and go behind it."""
        page, head, end, _ = _decode_frame(self._buffer, self._at, number, flags, self.header.page_size, self._name)
        self._skip(end - self._at)
        self._checksum = crc64.go_iso(page, crc64.go_iso(head, self._checksum))
        return page

    def _finish(self, index: bytearray, count: int) -> None:
        index.append(0)
        tail = bytes(index) + _U64.pack(len(index))
        self._fill(len(tail) + TRAILER_BYTES + 1)
        found = self._take(self._at, len(tail))
        if found != tail:
            raise self._damaged("its index does not agree with its pages")
        self._skip(len(tail))
        post = self._take(self._at, 8)
        checksum = crc64.go_iso(post, crc64.go_iso(tail, crc64.go_iso(_END_OF_PAGES, self._checksum))) | _TOP_BIT
        self._skip(8)
        (stored,) = self._unpack(_U64)
        if stored != checksum:
            raise self._damaged(f"its checksum is {checksum:016x}, and {stored:016x} was written")
        if self._at != len(self._buffer):
            raise self._damaged("bytes follow its end")
        self.end = LtxEnd(checksum, count, self._offset)

    def _take(self, at: int, length: int) -> bytes:
        if at + length > len(self._buffer):
            raise self._damaged(f"it ends too early, after {self._offset + len(self._buffer) - self._at:,} bytes")
        return self._buffer[at : at + length]

    def _unpack(self, form: struct.Struct) -> tuple[int, ...]:
        values = form.unpack(self._take(self._at, form.size))
        self._skip(form.size)
        return values

    def _skip(self, length: int) -> None:
        self._at += length
        self._offset += length

    def _fill(self, length: int) -> None:
        """Have `length` bytes in hand, or all that there are."""
        if len(self._buffer) - self._at >= length:
            return
        pieces = [self._buffer[self._at :]]
        have = len(pieces[0])
        for piece in self._pieces:
            pieces.append(bytes(piece))
            have += len(piece)
            if have >= max(length, _PIECE_BYTES):
                break
        self._buffer, self._at = b"".join(pieces), 0

    def _damaged(self, problem: str) -> LtxDamaged:
        return LtxDamaged(self._name, problem)


def _decode_frame(
    buffer: bytes, at: int, number: int, flags: int, size: int, name: str
) -> tuple[bytes, bytes, int, int | None]:
    """Return a page, the head that the file checksum covers, where the frame ends, and the page's own digest."""

    def taken(start: int, length: int) -> bytes:
        if start + length > len(buffer):
            raise LtxDamaged(name, f"it ends too early, within page {number}")
        return buffer[start : start + length]

    digest: int | None = None
    head = _PAGE.pack(number, flags)
    try:
        if flags == _BLOCK:
            (length,) = _U32.unpack_from(buffer, at)
            head += buffer[at : at + 4]
            page = lz4_block.decompress(taken(at + 4, length), uncompressed_size=size)
            end = at + 4 + length
        elif flags == 0:
            (length,) = _U32LE.unpack_from(buffer, at + len(_FRAME_HEAD))
            is_stored, length = bool(length & _STORED), length & ~_STORED
            if buffer[at : at + len(_FRAME_HEAD)] != _FRAME_HEAD or length > size + size // 128 + 32:
                raise LtxDamaged(name, f"page {number} is not an LZ4 frame as LTX has it")
            block = taken(at + _FRAME_HEAD_BYTES, length)
            page = block if is_stored else lz4_block.decompress(block, uncompressed_size=size)
            foot = taken(at + _FRAME_HEAD_BYTES + length, _FRAME_FOOT_BYTES)
            if foot[:4] != b"\0\0\0\0":
                raise LtxDamaged(name, f"page {number} has more than one block")
            (digest,) = _U32LE.unpack_from(foot, 4)
            end = at + _FRAME_HEAD_BYTES + length + _FRAME_FOOT_BYTES
        else:
            raise LtxDamaged(name, f"page {number} has the flags {flags:#x}, which this version does not know")
    except (lz4_block.LZ4BlockError, struct.error) as error:
        raise LtxDamaged(name, f"page {number} cannot be decompressed") from error
    return bytes(page), head, end, digest


def decode_page(frame: bytes, number: int, page_size: int, name: str) -> bytes:
    """Return one page from its frame, as the index of a file tells where it is.

    The digest of an LZ4 frame is compared; an LZ4 block has none, and only the checksum of the whole file covers it.
    """
    if len(frame) < _PAGE.size:
        raise LtxDamaged(name, f"page {number} has {len(frame)} bytes")
    found, flags = _PAGE.unpack_from(frame)
    if found != number:
        raise LtxDamaged(name, f"its index says page {number} where page {found} is")
    page, _, end, digest = _decode_frame(frame, _PAGE.size, number, flags, page_size, name)
    if end != len(frame) or len(page) != page_size or digest not in (None, xxhash.xxh32_intdigest(page)):
        raise LtxDamaged(name, f"page {number} is not as it was written")
    return page


def index_bytes(tail: Buffer, size: int, name: str) -> int:
    """Return the length of the end of a file from its index on, by the last bytes of it; `size` is the file's."""
    (length,) = _U64.unpack(tail[-TRAILER_BYTES - _U64.size : -TRAILER_BYTES])
    if not 1 <= length <= size - HEADER_BYTES - TRAILER_BYTES - _U64.size - len(_END_OF_PAGES):
        raise LtxDamaged(name, f"its index is to have {length:,} bytes")
    return int(length) + _U64.size + TRAILER_BYTES


def parse_index(index: Buffer, header: LtxHeader, name: str) -> Iterator[tuple[int, int, int]]:
    """Yield page numbers, and where each frame is and how long, from an index without its length."""
    values, value, shift = list[int](), 0, 0
    for byte in index:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            values.append(value)
            value = shift = 0
    if shift or len(values) % 3 != 1 or values[-1] != 0:
        raise LtxDamaged(name, "its index is cut off")
    last = 0
    for at in range(0, len(values) - 1, 3):
        number, offset, size = values[at : at + 3]
        if not last < number <= header.commit or offset < HEADER_BYTES or size < _PAGE.size:
            raise LtxDamaged(name, f"its index has page {number} after page {last}")
        last = number
        yield number, offset, size


def decode(data: Buffer, name: str = "an LTX file") -> tuple[LtxHeader, list[tuple[int, bytes]], LtxEnd]:
    """Return header, pages and end of a file, all of it verified."""
    reader = LtxReader([data], name)
    pages = list(reader.pages())
    assert reader.end is not None  # noqa: S101 - the last page was handed out
    return reader.header, pages, reader.end
