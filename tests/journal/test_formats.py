"""The small files: what is formatted parses to the same, names sort as offsets do, and nothing else parses."""

import struct
from contextlib import suppress
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError
from strandline.journal.batch import BadBatch
from strandline.journal.frontier import FRONTIER_BYTES, Frontier, format_frontier, parse_frontier
from strandline.journal.index import (
    INDEX_STRIDE_BYTES,
    Index,
    format_index,
    format_index_name,
    parse_index,
    parse_index_name,
)
from strandline.journal.manifest import Manifest, Sealed, format_manifest, parse_manifest
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    format_segment_header,
    format_segment_name,
    parse_segment_header,
    parse_segment_name,
)

OFFSETS = st.integers(0, 2**63 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
IDENTITIES = st.binary(min_size=16, max_size=16)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Make a manifest that a journal could have written."""
    edges = sorted(draw(st.sets(OFFSETS, min_size=1, max_size=8)))
    sealed = tuple(Sealed(base, end, draw(st.integers(64, 2**40)), draw(TIMES)) for base, end in pairwise(edges))
    begun = draw(st.booleans())
    durable = edges[-1] + draw(st.integers(1, 1000)) if begun else edges[-1]
    size = draw(st.integers(65, 2**40)) if begun else 64
    return Manifest(draw(IDENTITIES), edges[0], durable, sealed, edges[-1], size, draw(TIMES))


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    """Make an index by noting batches."""
    index = Index(draw(st.integers(0, 2**40)))
    offset, position = index.base_offset, SEGMENT_HEADER_BYTES
    for _ in range(draw(st.integers(0, 30))):
        index.note(offset, position)
        offset += draw(st.integers(1, 1000))
        position += 8 * draw(st.integers(1, INDEX_STRIDE_BYTES // 4))
    return index


class TestNames:
    @given(OFFSETS, OFFSETS)
    def test_names_sort_as_offsets_do(self, one: int, other: int) -> None:
        for name_of, parse in ((format_segment_name, parse_segment_name), (format_index_name, parse_index_name)):
            assert parse(name_of(one)) == one
            assert (name_of(one) < name_of(other)) == (one < other)

    @given(st.text(max_size=40))
    def test_nothing_else_is_a_name(self, text: str) -> None:
        for name_of, parse in ((format_segment_name, parse_segment_name), (format_index_name, parse_index_name)):
            offset = parse(text)
            assert offset is None or name_of(offset) == text

    @pytest.mark.parametrize(
        "name",
        ["\u0660" * 20 + ".journal", "0" * 19 + ".journal", "0" * 20 + ".journal\n", "-" + "0" * 19 + ".journal"],
    )
    def test_what_only_looks_like_one(self, name: str) -> None:
        found = parse_segment_name(name)
        assert found is None


class TestSegmentHeader:
    @given(IDENTITIES, OFFSETS, TIMES)
    def test_it_comes_back(self, identity: bytes, base: int, created: int) -> None:
        header = SegmentHeader(identity, base, created)
        data = format_segment_header(header)
        assert len(data) == SEGMENT_HEADER_BYTES
        assert parse_segment_header(data + b"batches", "x") == header

    def test_the_layout_is_the_documented_one(self) -> None:
        data = format_segment_header(SegmentHeader(b"0123456789abcdef", 7, -2))
        packed = b"STRANDLJ" + struct.pack("<HHI", 1, 0, 0) + b"0123456789abcdef" + struct.pack("<Qq12x", 7, -2)
        assert data == packed + struct.pack("<I", crc32c(packed))

    def test_torn_ones_are_bad_and_foreign_ones_are_foreign(self) -> None:
        good = format_segment_header(SegmentHeader(b"0123456789abcdef", 7, 5))
        for size in range(64):
            with pytest.raises(BadBatch):
                parse_segment_header(good[:size], "x")
            with pytest.raises(BadBatch):
                parse_segment_header(good[:size].ljust(64, b"\0"), "x")
        for position in range(8, 64):
            with pytest.raises((BadBatch, FormatError)):
                parse_segment_header(good[:position] + bytes([good[position] ^ 4]) + good[position + 1 :], "x")
        with pytest.raises(FormatError, match="not a journal segment"):
            parse_segment_header(b"PK".ljust(64), "x")
        with pytest.raises(FormatError, match="not a journal segment"):
            parse_segment_header(b"PK", "x")


class TestFrontier:
    @given(IDENTITIES, st.lists(OFFSETS, min_size=3, max_size=3), st.data())
    def test_it_comes_back(self, identity: bytes, offsets: list[int], data: st.DataObject) -> None:
        first, durable, written = sorted(offsets)
        frontier = Frontier(identity, first, written, durable, data.draw(st.integers(0, written)))
        packed = format_frontier(frontier)
        assert len(packed) == FRONTIER_BYTES
        assert parse_frontier(packed) == frontier

    @given(st.binary(max_size=80))
    def test_nothing_else_parses(self, data: bytes) -> None:
        assert parse_frontier(data) is None

    @given(IDENTITIES, st.integers(0, 1000), st.integers(0, 63), st.integers(0, 7))
    def test_no_flipped_bit_goes_unnoticed(self, identity: bytes, offset: int, byte: int, bit: int) -> None:
        packed = bytearray(format_frontier(Frontier(identity, 0, offset, offset, 0)))
        packed[byte] ^= 1 << bit
        assert parse_frontier(bytes(packed)) is None

    def test_no_mixture_of_two_parses(self) -> None:
        """A reader may meet a write in progress, and see the beginning of one and the end of another."""
        one = format_frontier(Frontier(b"i" * 16, 0, 100, 90, 50))
        two = format_frontier(Frontier(b"i" * 16, 7, 1000, 999, 800))
        for cut in range(1, 64):
            mixture = one[:cut] + two[cut:]
            assert parse_frontier(mixture) is None or mixture in (one, two)


class TestManifest:
    @given(manifests())
    def test_it_comes_back(self, manifest: Manifest) -> None:
        assert parse_manifest(format_manifest(manifest), "x") == manifest

    @given(manifests(), st.data())
    def test_no_change_goes_unnoticed(self, manifest: Manifest, data: st.DataObject) -> None:
        packed = bytearray(format_manifest(manifest))
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        with suppress(FormatError):  # the bit may be one of the version
            assert parse_manifest(bytes(packed), "x") in (None, manifest)

    @given(st.binary(max_size=200))
    def test_nothing_else_parses(self, data: bytes) -> None:
        assert parse_manifest(data, "x") is None
        body = data.replace(b"\n", b"")
        assert parse_manifest(b"strandline-manifest 1 crc32c=%08x\n" % crc32c(body) + body + b"\n", "x") is None

    @pytest.mark.parametrize(
        "body",
        [
            b"{}",
            b"null",
            b"7",
            b"[" * 100_000,
            b'{"identity": 5, "first_offset": 0, "durable_offset": 0, "sealed": [], "active": [0, 64, 0]}',
            b'{"identity": "zz", "first_offset": 0, "durable_offset": 0, "sealed": [], "active": [0, 64, 0]}',
            b'{"identity": "", "first_offset": 0, "durable_offset": 0, "sealed": [], "active": [0, 64, 0]}',
            b'{"identity": "%s", "first_offset": 1e999, "durable_offset": 0, "sealed": [], "active": [0, 64, 0]}'
            % (b"0" * 32),
            b'{"identity": "%s", "first_offset": -1, "durable_offset": 0, "sealed": [], "active": [-1, 64, 0]}'
            % (b"0" * 32),
            b'{"identity": "%s", "first_offset": 0, "durable_offset": 0, "sealed": [[1]], "active": [0, 64, 0]}'
            % (b"0" * 32),
            b'{"identity": "%s", "first_offset": 0, "durable_offset": 0, "sealed": [], "active": [0, 64]}'
            % (b"0" * 32),
        ],
        ids=range(11),
    )
    def test_well_checked_nonsense_is_none(self, body: bytes) -> None:
        assert parse_manifest(b"strandline-manifest 1 crc32c=%08x\n" % crc32c(body) + body + b"\n", "x") is None

    def test_a_person_can_read_it(self) -> None:
        text = format_manifest(Manifest(b"\1" * 16, 0, 5, (), 0, 200, 7)).decode()
        assert text.startswith("strandline-manifest 1 crc32c=")
        assert '"durable_offset": 5' in text
        assert text.endswith("}\n")

    def test_the_layout_is_the_documented_one(self) -> None:
        body = (
            b'{"identity": "01010101010101010101010101010101", "first_offset": 0, "durable_offset": 9, '
            b'"sealed": [[0, 5, 1000, 3]], "active": [5, 200, 4]}'
        )
        data = b"strandline-manifest 1 crc32c=%08x\n" % crc32c(body) + body + b"\n"
        assert format_manifest(Manifest(b"\1" * 16, 0, 9, (Sealed(0, 5, 1000, 3),), 5, 200, 4)) == data


class TestIndex:
    @given(indexes())
    def test_it_comes_back(self, index: Index) -> None:
        assert parse_index(format_index(index), index.base_offset) == index
        assert parse_index(format_index(index), index.base_offset + 1) is None

    @given(indexes(), st.data())
    def test_no_change_goes_unnoticed(self, index: Index, data: st.DataObject) -> None:
        packed = bytearray(format_index(index))
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        assert parse_index(bytes(packed), index.base_offset) is None
        assert parse_index(bytes(packed[:-1]), index.base_offset) is None

    @given(indexes(), st.integers(0, 2**41))
    def test_it_finds_the_last_entry_at_or_before_an_offset(self, index: Index, offset: int) -> None:
        found, position = index.find(offset)
        entries = [(o, p) for o, p in zip(index.offsets, index.positions, strict=True) if o <= offset]
        assert (found, position) == (entries[-1] if entries else (index.base_offset, SEGMENT_HEADER_BYTES))

    @given(indexes(), st.data())
    def test_cutting_forgets_what_is_not_below(self, index: Index, data: st.DataObject) -> None:
        offsets = list(index.offsets)
        end = data.draw(st.sampled_from([0, index.base_offset, *offsets, *(offset + 1 for offset in offsets)]))
        index.cut(end)
        assert list(index.offsets) == [offset for offset in offsets if offset < end]
        assert len(index.positions) == len(index.offsets)

    def test_entries_are_a_stride_apart(self) -> None:
        index = Index(5)
        for number in range(10_000):
            index.note(5 + number, 64 + 1000 * number)
        gaps = [b - a for a, b in pairwise(index.positions)]
        assert all(INDEX_STRIDE_BYTES <= gap < INDEX_STRIDE_BYTES + 1000 for gap in gaps)

    def test_entries_that_do_not_rise_are_refused(self) -> None:
        for offsets, positions in (([5, 5], [64, 9000]), ([5, 7], [9000, 64]), ([4, 7], [64, 9000])):
            index = Index(5)
            index.offsets.extend(offsets)
            index.positions.extend(positions)
            assert parse_index(format_index(index), 5) is None

    def test_the_layout_is_the_documented_one(self) -> None:
        index = Index(5)
        index.note(5, 64)
        index.note(50, 100_000)
        head = b"STRANDLX" + struct.pack("<HH", 1, 0)
        body = struct.pack("<QQ2Q2Q", 5, 2, 5, 50, 64, 100_000)
        assert format_index(index) == head + struct.pack("<I", crc32c(head, crc32c(body))) + body
