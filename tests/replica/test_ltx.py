"""LTX files: what we write is read back, published vectors agree, and no damage goes unseen."""

import random

import lz4.block
import pytest
import xxhash
from fastcrc.crc64 import go_iso
from hypothesis import given
from hypothesis import strategies as st

from strandline.replica import LtxDamaged, ltx
from tests.replica.databases import PAGE_SIZES

SNAPSHOT = ltx.LtxHeader(512, 3, 1, 1, 1000, epoch=4)
LATER = ltx.LtxHeader(512, 3, 8, 8, 2000, 32, 536, (5, 6), 4, 77)


def encoded(header: ltx.LtxHeader, pages: dict[int, bytes]) -> bytes:
    """Return the bytes of a file."""
    return b"".join(ltx.encode(header, pages.items()))


def by_hand(flags: int, payload: bytes) -> bytes:
    """Return the file of the published vectors: one page of 512 zeros, transaction 1, at second 1."""
    head = ltx.format_header(ltx.LtxHeader(512, 1, 1, 1, 1000))
    numbered = (1).to_bytes(4, "big") + flags.to_bytes(2, "big")
    frame = numbered + payload
    index = bytes([1, 100]) + _varint(len(frame)) + b"\0"
    tail = bytes(6) + index + len(index).to_bytes(8, "big") + bytes(8)
    hashed = head + numbered + (payload[:4] if flags else b"") + bytes(512) + tail
    return head + frame + tail + (go_iso(hashed) | 1 << 63).to_bytes(8, "big")


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def test_the_checksum_is_that_of_go() -> None:
    assert go_iso(b"123456789") == 0xB90956C775A41001


def test_a_published_file_with_a_block_is_read() -> None:
    literals = b"\xf0\xff\xf2" + bytes(512)
    data = by_hand(1, len(literals).to_bytes(4, "big") + literals)
    assert (len(data), ltx.file_checksum(data)) == (660, 0xC3C28BB7EAB055D0)
    _, pages, end = ltx.decode(data)
    assert (pages, end.checksum) == ([(1, bytes(512))], 0xC3C28BB7EAB055D0)


def test_a_published_file_with_a_stored_frame_is_read() -> None:
    frame = bytes.fromhex("04224d186440a7") + (512 | 1 << 31).to_bytes(4, "little") + bytes(512) + bytes(4)
    data = by_hand(0, frame + xxhash.xxh32_intdigest(bytes(512)).to_bytes(4, "little"))
    assert (len(data), ltx.file_checksum(data)) == (672, 0xB575717C65DB1297)
    assert ltx.decode(data)[1] == [(1, bytes(512))]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_pages_of_every_size_are_read_back(page_size: int) -> None:
    chance = random.Random(page_size)
    pages = {1: bytes(page_size), 2: chance.randbytes(page_size), 9: b"ab" * (page_size // 2)}
    header = LATER._replace(page_size=page_size, commit=9)
    found, read, end = ltx.decode(encoded(header, pages))
    assert (found, dict(read), end.pages) == (header, pages, 3)


@given(st.dictionaries(st.integers(1, 40), st.binary(min_size=512, max_size=512)), st.integers(1, 700))
def test_any_file_is_read_back_from_pieces_of_any_size(pages: dict[int, bytes], piece: int) -> None:
    pages = dict(sorted(pages.items()))
    data = encoded(LATER._replace(commit=40), pages)
    reader = ltx.LtxReader(data[at : at + piece] for at in range(0, len(data), piece))
    assert dict(reader.pages()) == pages
    assert reader.end == ltx.LtxEnd(ltx.file_checksum(data), len(pages), len(data))


@given(st.data())
def test_no_flipped_bit_changes_a_page_unseen(data: st.DataObject) -> None:
    pages = {1: random.Random(1).randbytes(512), 2: bytes(512), 3: b"strandline" * 51 + b"ab"}
    file = bytearray(encoded(SNAPSHOT, pages))
    at = data.draw(st.integers(0, len(file) - 1))
    file[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        header, found, _ = ltx.decode(file)
    except LtxDamaged:
        return
    # LZ4 has several ways to write the same page, and its own checksum of a page says less than the file's.
    assert (header, dict(found)) == (SNAPSHOT, pages)
    assert ltx.HEADER_BYTES + 6 <= at < len(file) - 40


def test_no_bit_behind_the_pages_may_differ() -> None:
    file = encoded(SNAPSHOT, {1: bytes(512), 2: bytes(512), 3: bytes(512)})
    end = len(file) - ltx.TRAILER_BYTES - 8 - file[-ltx.TRAILER_BYTES - 1] - 6
    assert file[end : end + 6] == bytes(6)
    for at in range(end, len(file)):
        for bit in range(8):
            flipped = bytearray(file)
            flipped[at] ^= 1 << bit
            with pytest.raises(LtxDamaged):
                ltx.decode(flipped)


@given(st.integers(0, 2000))
def test_a_file_that_is_cut_off_is_refused(length: int) -> None:
    file = encoded(SNAPSHOT, {1: random.Random(1).randbytes(512), 2: bytes(512), 3: bytes(512)})
    with pytest.raises(LtxDamaged):
        ltx.decode(file[: min(length, len(file) - 1)])


def test_bytes_behind_the_end_are_refused() -> None:
    file = encoded(SNAPSHOT, {1: bytes(512), 2: bytes(512), 3: bytes(512)})
    with pytest.raises(LtxDamaged, match="bytes follow its end"):
        ltx.decode(file + b"x")


@pytest.mark.parametrize("pages", [{1: bytes(512), 3: bytes(512)}, {2: bytes(512), 3: bytes(512)}, {1: bytes(512)}, {}])
def test_a_snapshot_without_a_page_is_refused(pages: dict[int, bytes]) -> None:
    with pytest.raises(LtxDamaged, match="whole database"):
        ltx.decode(encoded(SNAPSHOT, pages))


def test_the_lock_page_has_no_place() -> None:
    lock = ltx.lock_page(65536)
    assert (lock, ltx.lock_page(4096)) == (16385, 262145)
    header = LATER._replace(page_size=65536, commit=lock + 1)
    with pytest.raises(ValueError, match=f"page {lock} "):
        encoded(header, {lock: bytes(65536)})
    assert [
        number for number, _ in ltx.decode(encoded(header, {lock - 1: bytes(65536), lock + 1: bytes(65536)}))[1]
    ] == [
        lock - 1,
        lock + 1,
    ]


@pytest.mark.parametrize("numbers", [[2, 1], [1, 1], [4], [0]])
def test_pages_out_of_order_or_place_are_not_written(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match="page"):
        b"".join(ltx.encode(LATER, [(number, bytes(512)) for number in numbers]))


@given(st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_any_name_is_read_back(one: int, other: int) -> None:
    first, last = sorted([one, other])
    assert ltx.parse_name(ltx.format_name(first, last)) == (first, last)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0000000000000001-0000000000000002",
        "0000000000000002-0000000000000001.ltx",
        "0000000000000000-0000000000000001.ltx",
        "000000000000000A-000000000000000B.ltx",
        "+000000000000001-0000000000000002.ltx",
        "0000000000000001-0000000000000002.ltx.tmp",
        "1-2.ltx",
    ],
)
def test_other_names_are_none(name: str) -> None:
    assert ltx.parse_name(name) is None


def test_a_page_that_does_not_shrink_is_stored() -> None:
    page = random.Random(3).randbytes(512)
    assert len(lz4.block.compress(page, store_size=False)) > 512
    assert len(encoded(SNAPSHOT._replace(commit=1), {1: page})) < 512 + 200
