"""The first snapshot of a large database, in parts: transactions of bounded size in place of one of any size.

    first     an empty database of one page
    then      the pages from the second on, in order; the first page still says that the database has one page
    last      the first page, as it is

Invariants: after each part the replica holds a valid SQLite database, empty until the last part and whole after it: a
database may be followed by pages that its header does not count. Each part is created where there is none, like any
other transaction, so that of two leaders one writes it. Nothing was called durable before the last part, so that no
restore has less than what was promised.
"""

from collections.abc import Iterator

from strandline.replica.capture import Change

PART_BYTES = 16 << 20
_HEADER_BYTES = 100
_U16, _U32 = 2, 4
_RESERVED = 20
_COUNTER, _SIZE, _FREELIST, _FREE_PAGES, _LARGEST_ROOT, _VALID_FOR = 24, 28, 32, 36, 52, 92
_INCREMENTAL = 64
_LEAF_TABLE = 0x0D


def is_large(change: Change) -> bool:
    """Return whether a whole database is shipped in parts."""
    return change.is_whole and change.commit * change.page_size > PART_BYTES


def in_parts(change: Change) -> Iterator[Change]:
    """Yield a whole database as a series of changes."""
    pages = change.pages
    _, first = next(pages)
    yield change._replace(commit=1, pages=iter([(1, empty_database(first))]), is_all=False, is_part=True)
    while held := _held(pages, change.page_size):
        yield change._replace(commit=held[-1][0], pages=iter(held), is_whole=False, is_all=False, is_part=True)
    yield change._replace(pages=iter([(1, first)]), is_whole=False, is_all=False)


def _held(pages: Iterator[tuple[int, bytes]], page_size: int) -> list[tuple[int, bytes]]:
    """Return the next pages, as many as are one part."""
    return [page for _, page in zip(range(PART_BYTES // page_size), pages, strict=False)]


def empty_database(first: bytes) -> bytes:
    """Return the only page of an empty database that has the settings of another one, given its first page."""
    page = bytearray(first[:_HEADER_BYTES].ljust(len(first), b"\0"))
    page[_SIZE : _SIZE + _U32] = (1).to_bytes(_U32, "big")
    page[_VALID_FOR : _VALID_FOR + _U32] = page[_COUNTER : _COUNTER + _U32]
    for offset in (_FREELIST, _FREE_PAGES, _LARGEST_ROOT, _INCREMENTAL):
        page[offset : offset + _U32] = bytes(_U32)
    page[_HEADER_BYTES] = _LEAF_TABLE
    usable = len(first) - first[_RESERVED]
    page[_HEADER_BYTES + 5 : _HEADER_BYTES + 5 + _U16] = (usable & 0xFFFF).to_bytes(_U16, "big")
    return bytes(page)
