"""SQLite's b-trees, read page by page without SQLite: the rows of one table, from pages that come from anywhere.

    page 1          header of the database, 100 bytes | a b-tree page
    b-tree page     kind u8 | first free block u16 | cells u16 | content u16 | fragments u8 | [last child u32] | cells
    table leaf      payload size varint | rowid varint | payload | [overflow page u32]
    index leaf      payload size varint | payload | [overflow page u32]      a WITHOUT ROWID table is an index
    overflow page   next u32 | payload
    payload         header size varint | serial type varint* | values

Invariants: pure. Rows come in the order of their keys. Only the pages that the wanted columns need are asked for: an
overflow chain is followed as far as the last of them. A page that cannot be of a table is `PageDamaged`, never a wrong
row; a chain or tree that leads back to itself ends so too.

Text is decoded so that nothing is lost: bytes that are not UTF-8 become lone surrogates (`surrogateescape`).
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from strandline.replica.errors import PageDamaged
from strandline.replica.ltx import lock_page
from strandline.replica.wal import is_page_size

HEADER_BYTES = 100
MISSING = object()
"""The value of a column that was added after the row was written."""
_MAGIC = b"SQLite format 3\0"
_INDEX_INTERIOR, _TABLE_INTERIOR, _INDEX_LEAF, _TABLE_LEAF = 2, 5, 10, 13
_KINDS = (_INDEX_INTERIOR, _TABLE_INTERIOR, _INDEX_LEAF, _TABLE_LEAF)
_LEAF_BYTES, _INTERIOR_BYTES = 8, 12
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_FLOAT, _ZERO, _ONE, _BLOB = 7, 8, 9, 12
_CONSTANTS = {0: None, _ZERO: 0, _ONE: 1}
_LEVELS_MAX = 40
_AHEAD_MAX = 256
_SHAPES_MAX = 10_000
_U32 = struct.Struct(">I")
_F64 = struct.Struct(">d")


class Database(NamedTuple):
    """What page 1 says of a database, as far as it matters to its tables."""

    page_size: int
    usable: int
    """The bytes of a page that SQLite uses; extensions may reserve some at its end."""
    encoding: str
    pages: int

    def decode_text(self, data: bytes) -> str:
        """Return the text of bytes, without losing any."""
        if self.encoding == "utf-8":
            return data.decode("utf-8", "surrogateescape")
        return data[: len(data) & ~1].decode(self.encoding, "surrogatepass")


class PageReader(Protocol):
    """Where pages come from."""

    def page(self, number: int) -> bytes:
        """Return a page."""

    def prefetch(self, numbers: Sequence[int]) -> None:
        """Have these pages at hand: they are asked for next."""


class _Cell(NamedTuple):
    rowid: int
    size: int
    local: bytes
    overflow: int


class _Shape(NamedTuple):
    """How rows with one and the same header are decoded; most rows of a table share a few."""

    decoders: list[Callable[[bytes], object]]
    need: int
    """How much of the payload the wanted values need."""
    size: int
    """How long a payload is at least."""


def parse_database(page: bytes, pages: int) -> Database:
    """Return what page 1 says; `pages` is the size of the database."""
    size = int.from_bytes(page[16:18], "big")
    size = 65536 if size == 1 else size
    encodings = {0: "utf-8", 1: "utf-8", 2: "utf-16-le", 3: "utf-16-be"}
    encoding = int.from_bytes(page[56:60], "big")
    usable = size - page[20] if len(page) >= HEADER_BYTES else 0
    if page[:16] != _MAGIC or not is_page_size(size) or size != len(page) or usable < 480:  # noqa: PLR2004 - SQLite's
        raise PageDamaged(1, "it does not begin a SQLite database")
    if encoding not in encodings:
        raise PageDamaged(1, f"it names the text encoding {encoding}, which there is not")
    return Database(size, usable, encodings[encoding], pages)


def find_row_pages(pages: PageReader, database: Database, root: int) -> list[int]:
    """Return the pages that have the rows of a table, in the order of their keys as far as a page has one.

    The pages of the lowest level are not read, but for the first: all of one level are of one kind.
    """
    if root != 1:
        _check_number(root, 1, database)
    level, found, seen = [root], list[int](), {root}
    for _ in range(_LEVELS_MAX):
        kind = _kind(pages.page(level[0]), level[0])
        if kind in (_TABLE_LEAF, _INDEX_LEAF):
            return found + level
        pages.prefetch(level)
        below = list[int]()
        for number in level:
            page = pages.page(number)
            if _kind(page, number) != kind:
                raise PageDamaged(number, "it is of another kind than the pages beside it")
            below += _children(page, number, database)
        if not seen.isdisjoint(below) or len(set(below)) != len(below):
            raise PageDamaged(root, "its tree leads back to itself")
        seen.update(below)
        if kind == _INDEX_INTERIOR:
            found += level  # the rows between two children stand in their parent
        level = below
    raise PageDamaged(root, f"its tree has more than {_LEVELS_MAX} levels")


def read_rows(
    pages: PageReader, database: Database, numbers: Sequence[int], wanted: Sequence[int], *, is_index: bool = False
) -> Iterator[list[object]]:
    """Yield the rows that stand in pages; `wanted` are places in a stored row, and -1 is the rowid.

    A column that the row has not is `MISSING`. `is_index` for a WITHOUT ROWID table.
    """
    rowids = [at for at, place in enumerate(wanted) if place < 0]
    shapes = dict[bytes, _Shape]()
    expected = (_INDEX_LEAF, _INDEX_INTERIOR) if is_index else (_TABLE_LEAF,)
    for number in numbers:
        page = pages.page(number)
        kind = _kind(page, number)
        if kind not in expected:
            raise PageDamaged(number, f"it is a b-tree page of kind {kind}, and rows of a table were expected")
        try:
            rows = list[tuple[_Cell, _Shape]]()
            for cell in _cells(page, number, database, kind):
                header = _header(pages, database, number, cell)
                shape = shapes.get(header)
                if shape is None:
                    if len(shapes) >= _SHAPES_MAX:
                        shapes.clear()
                    shape = shapes[header] = _shape(header, wanted, database, number)
                if shape.size > cell.size:
                    raise PageDamaged(number, "the values of a row are longer than the row")
                rows.append((cell, shape))
            pages.prefetch([cell.overflow for cell, shape in rows if shape.need > len(cell.local)])
            for cell, (decoders, need, _) in rows:
                local = cell.local
                payload = local if need <= len(local) else _payload(pages, database, number, cell, need)
                values = [decoder(payload) for decoder in decoders]
                for at in rowids:
                    values[at] = cell.rowid
                yield values
        except (IndexError, struct.error) as error:
            raise PageDamaged(number, "a cell reaches beyond its end") from error


def _kind(page: bytes, number: int) -> int:
    kind = page[HEADER_BYTES if number == 1 else 0]
    if kind not in _KINDS:
        raise PageDamaged(number, f"it is no b-tree page: its kind is {kind}")
    return kind


def _pointers(page: bytes, number: int, kind: int) -> tuple[int, ...]:
    """Return where the cells of a page begin."""
    start = HEADER_BYTES if number == 1 else 0
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    first = start + (_LEAF_BYTES if kind in (_TABLE_LEAF, _INDEX_LEAF) else _INTERIOR_BYTES)
    if first + 2 * count > len(page):
        raise PageDamaged(number, f"it is to have {count} cells")
    return struct.unpack_from(f">{count}H", page, first)


def _children(page: bytes, number: int, database: Database) -> list[int]:
    start = HEADER_BYTES if number == 1 else 0
    cells = _pointers(page, number, _kind(page, number))
    if any(at + 4 > len(page) for at in cells):
        raise PageDamaged(number, "a cell reaches beyond its end")
    found = [_U32.unpack_from(page, at)[0] for at in (*cells, start + 8)]
    for child in found:
        _check_number(child, number, database)
    return found


def _check_number(child: int, number: int, database: Database) -> None:
    if not 2 <= child <= database.pages or child == lock_page(database.page_size):  # noqa: PLR2004 - not page 1
        raise PageDamaged(number, f"it points at page {child} of {database.pages}")


def _cells(page: bytes, number: int, database: Database, kind: int) -> Iterator[_Cell]:
    usable = database.usable
    is_table = kind == _TABLE_LEAF
    least = (usable - 12) * 32 // 255 - 23
    most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
    for pointer in _pointers(page, number, kind):
        at = pointer + (4 if kind == _INDEX_INTERIOR else 0)
        size = page[at]
        if size < 0x80:  # noqa: PLR2004 - one byte of a varint
            at += 1
        else:
            size, at = _varint(page, at)
        rowid = 0
        if is_table:
            rowid, at = _varint(page, at)
            rowid = rowid - (1 << 64) if rowid >> 63 else rowid
        if size <= most:
            length, overflow = size, 0
        else:
            length = least + (size - least) % (usable - 4)
            length = length if length <= most else least
            (overflow,) = _U32.unpack_from(page, at + length)
            _check_number(overflow, number, database)
        if at + length > usable:
            raise PageDamaged(number, "a cell reaches beyond its end")
        yield _Cell(rowid, size, page[at : at + length], overflow)


def _header(pages: PageReader, database: Database, number: int, cell: _Cell) -> bytes:
    end, _ = _varint(cell.local, 0)
    if end > cell.size:
        raise PageDamaged(number, "the header of a row is longer than the row")
    return (cell.local if end <= len(cell.local) else _payload(pages, database, number, cell, end))[:end]


def _shape(header: bytes, wanted: Sequence[int], database: Database, number: int) -> _Shape:
    """Return how to decode the wanted values of rows with this header."""
    end, at = _varint(header, 0)
    serials = list[int]()
    while at < end:
        serial, at = _varint(header, at)
        serials.append(serial)
    edges = list(accumulate((_length(serial, number) for serial in serials), initial=end))
    decoders, need = list[Callable[[bytes], object]](), 0
    for place in wanted:
        if 0 <= place < len(serials):
            decoders.append(_decoder(serials[place], edges[place], edges[place + 1], database))
            need = max(need, edges[place + 1])
        else:
            decoders.append(_constant(MISSING))
    return _Shape(decoders, need, edges[-1])


def _length(serial: int, number: int) -> int:
    if serial >= _BLOB:
        return (serial - _BLOB) >> 1
    if serial <= 6:  # noqa: PLR2004 - integers
        return _INTEGER_BYTES[serial]
    if serial in (_ZERO, _ONE):
        return 0
    if serial == _FLOAT:
        return 8
    raise PageDamaged(number, f"a value has the serial type {serial}, which SQLite does not write")


def _constant(value: object) -> Callable[[bytes], object]:
    return lambda _: value


def _decoder(serial: int, start: int, stop: int, database: Database) -> Callable[[bytes], object]:
    """Return what takes a value of a serial type out of a payload."""
    if serial >= _BLOB and serial & 1:
        if database.encoding == "utf-8":
            return lambda payload: payload[start:stop].decode("utf-8", "surrogateescape")
        decode = database.decode_text
        return lambda payload: decode(payload[start:stop])
    if serial >= _BLOB:
        return lambda payload: payload[start:stop]
    if serial in _CONSTANTS:
        return _constant(_CONSTANTS[serial])
    if serial == _FLOAT:
        unpack = _F64.unpack_from
        return lambda payload: unpack(payload, start)[0]
    return lambda payload: int.from_bytes(payload[start:stop], "big", signed=True)


def _payload(pages: PageReader, database: Database, number: int, cell: _Cell, length: int) -> bytes:
    """Return at least the first bytes of a payload, from its cell and its overflow pages."""
    if length <= len(cell.local):
        return cell.local
    parts, have, at, room = [cell.local], len(cell.local), cell.overflow, database.usable - 4
    seen, ahead = set[int](), range(0)
    while have < length:
        _check_number(at, number, database)
        if at in seen:
            raise PageDamaged(number, "an overflow chain leads back to itself")
        seen.add(at)
        if at not in ahead:  # SQLite allocates a chain in a row where it can
            left = min(-(-(length - have) // room), _AHEAD_MAX)
            ahead = range(at, min(at + left, database.pages + 1))
            pages.prefetch(ahead)
        page = pages.page(at)
        parts.append(page[4 : 4 + min(room, cell.size - have)])
        have += len(parts[-1])
        (at,) = _U32.unpack_from(page)
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the place behind it: up to nine bytes, big-endian, seven bits each but the last."""
    value = 0
    for place in range(at, at + 8):
        byte = data[place]
        if byte < 0x80:  # noqa: PLR2004
            return value << 7 | byte, place + 1
        value = value << 7 | byte & 0x7F
    return value << 8 | data[at + 8], at + 9
