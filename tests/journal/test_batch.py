"""Batches: laid out as Arrow lays them out, whole or refused, and read without copying."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from strandline.journal import Batch, JournalConfig
from strandline.journal.batch import (
    COLUMNS_ALL,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    BadBatch,
    format_batch,
    format_lost,
    format_record,
    parse_batch,
    parse_header,
    record_bytes,
)
from strandline.journal.columns import Columns, columns_of, merge
from strandline.sim import SimDisk
from tests.journal.helpers import numbered, open_sim

CONFIG = JournalConfig()
VALUES = st.lists(st.binary(max_size=50), min_size=1, max_size=40)


def columns(values: list[bytes], shape: int = 0) -> Columns:
    keys = [value[:3] for value in values] if shape & 1 else None
    headers = [value[::-1] for value in values] if shape & 2 else None
    times = list(range(-3, len(values) - 3)) if shape & 4 else None
    return columns_of(values, keys, headers, times, CONFIG)


def stored(values: list[bytes], shape: int = 0, base: int = 7) -> bytes:
    buffers, size = format_batch(base, 5, 99, columns(values, shape))
    data = b"".join(buffers)
    assert len(data) == size
    return data


def parsed(data: bytes, position: int = 0) -> Batch:
    return parse_batch(data, position, parse_header(data, position))


def resealed(data: bytes) -> bytes:
    """Give changed bytes the right checksum, as only a writer could."""
    return data[:4] + struct.pack("<I", crc32c(data[8:])) + data[8:]


def addresses(array: pa.Array) -> list[tuple[int, int]]:
    return [(buffer.address, buffer.address + buffer.size) for buffer in array.buffers() if buffer is not None]


@given(VALUES, st.integers(0, 7), st.integers(0, 2**62))
def test_what_is_formatted_parses_to_the_same_records(values: list[bytes], shape: int, base: int) -> None:
    data = stored(values, shape, base)
    assert len(data) % 8 == 0
    batch = parsed(data)
    batch.check()
    batch.check_columns()
    assert (batch.base_offset, batch.next_offset, len(batch)) == (base, base + len(values), len(values))
    assert (batch.durable_offset, batch.append_ns, batch.stored_bytes) == (5, 99, len(data))
    assert batch.values() == values
    assert batch.keys() == ([value[:3] for value in values] if shape & 1 else None)
    assert batch.headers() == ([value[::-1] for value in values] if shape & 2 else None)
    times = batch.timestamps()
    assert (times is None) == (not shape & 4)
    assert times is None or times.tolist() == list(range(-3, len(values) - 3))
    assert [record.offset for record in batch.records()] == list(range(base, base + len(values)))
    sizes = sum(map(len, values)) * (2 if shape & 2 else 1) + sum(len(v[:3]) for v in values) * (shape & 1)
    assert batch.payload_bytes == sizes


@given(st.lists(VALUES, min_size=1, max_size=6), st.integers(0, 7))
def test_merged_appends_are_the_batch_of_their_records(parts: list[list[bytes]], shape: int) -> None:
    together = merge([columns(part, shape) for part in parts])
    buffers, size = format_batch(0, 0, 0, together)
    batch = parsed(b"".join(buffers))
    assert batch.values() == [value for part in parts for value in part]
    batch.check_columns()
    assert size - HEADER_BYTES <= together.size, "a merged batch takes no more than was reckoned with"


@given(VALUES, st.integers(0, 7))
def test_the_reckoned_size_of_an_append_is_what_it_takes(values: list[bytes], shape: int) -> None:
    made = columns(values, shape)
    assert made.size == format_batch(0, 0, 0, made)[1] - HEADER_BYTES


@given(VALUES, st.integers(0, 7), st.integers(0, 45), st.integers(0, 45))
def test_a_clipped_batch_has_the_records_in_between(values: list[bytes], shape: int, start: int, stop: int) -> None:
    whole = parsed(stored(values, shape, 7))
    part = whole.clip(start, stop)
    expected = [record for record in whole.records() if start <= record.offset < stop]
    assert list(part.records()) == expected
    assert len(part) == len(expected)
    table = part.to_arrow()
    assert table["value"].to_pylist() == [record.value for record in expected]
    assert table["offset"].to_pylist() == [record.offset for record in expected]
    if shape & 4:
        assert table["timestamp"].to_pylist() == [record.timestamp_ns for record in expected]
    again = part.clip(start + 1)
    assert list(again.records()) == [record for record in expected if record.offset > start]
    assert part.payload_bytes == sum(
        len(record.value) + len(record.key or b"") + len(record.headers or b"") for record in expected
    )


@given(VALUES, st.integers(0, 3), st.integers(0, 300))
def test_clipping_by_bytes_takes_all_that_fit_and_one_at_least(values: list[bytes], shape: int, bytes_max: int) -> None:
    whole = parsed(stored(values, shape))
    part = whole.clip_bytes(bytes_max)
    assert len(part) >= 1
    assert part.base_offset == whole.base_offset
    assert part.payload_bytes <= bytes_max or len(part) == 1
    if len(part) < len(whole):
        assert whole.clip(whole.base_offset, part.next_offset + 1).payload_bytes > bytes_max
    assert len(whole.clip(whole.next_offset).clip_bytes(bytes_max)) == 0


@given(st.binary(max_size=300), st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**32 - 1))
def test_the_batch_of_one_value_is_the_same_however_it_is_formatted(
    value: bytes, base: int, durable: int, tag: int
) -> None:
    buffers, size = format_batch(base, durable, 99, columns([value]), tag)
    assert format_record(base, durable, 99, value, tag) == b"".join(buffers)
    assert record_bytes(value) == size


@given(VALUES, st.integers(0, 7))
def test_a_single_record_is_the_one_among_all(values: list[bytes], shape: int) -> None:
    batch = parsed(stored(values, shape))
    assert [batch.record(offset) for offset in range(batch.base_offset, batch.next_offset)] == list(batch.records())


class TestArrow:
    @pytest.mark.parametrize("shape", range(8))
    def test_the_schema_names_what_is_there(self, shape: int) -> None:
        table = parsed(stored([b"a", b"bb"], shape)).to_arrow()
        names = (
            ["offset", "value"] + ["key"] * (shape & 1) + ["headers"] * (shape >> 1 & 1) + ["timestamp"] * (shape >> 2)
        )
        assert table.schema.names == names
        table.validate(full=True)
        assert table["offset"].to_pylist() == [7, 8]
        assert table["value"].to_pylist() == [b"a", b"bb"]

    def test_its_buffers_lie_in_the_bytes_that_were_read(self) -> None:
        data = bytes(64) + stored(numbered(0, 500, 30), 7)
        batch = parsed(data, 64)
        begin = pa.py_buffer(data).address
        for part in (batch, batch.clip(17, 300)):
            table = part.to_arrow()
            for name in ("value", "key", "headers", "timestamp"):
                for low, high in addresses(table[name]):
                    assert begin + 64 + HEADER_BYTES <= low <= high <= begin + len(data), name

    def test_batches_of_one_scan_share_the_chunk_that_was_read(self) -> None:
        with open_sim(SimDisk()) as journal:
            for number in range(3):
                journal.append([b"%d" % number] * 3, timestamps=[number] * 3)
            batches = list(journal.scan(0))
            assert len(batches) == 3
            chunk = batches[0]._data  # noqa: SLF001 - the claim is about it
            assert all(batch._data is chunk for batch in batches)  # noqa: SLF001
            begin = pa.py_buffer(chunk).address
            for batch in batches:
                for name in ("value", "timestamp"):
                    assert all(
                        begin <= low <= high <= begin + len(chunk) for low, high in addresses(batch.to_arrow()[name])
                    )

    def test_its_buffers_are_aligned(self) -> None:
        with open_sim(SimDisk()) as journal:
            for size in range(1, 12):
                journal.append([b"x" * size] * size, keys=[b"k"] * size, timestamps=[1] * size)
            for batch in journal.scan(0):
                for column in batch.to_arrow().columns[1:]:
                    assert all(buffer is None or buffer.address % 8 == 0 for buffer in column.buffers())

    def test_it_outlives_the_journal(self) -> None:
        with open_sim(SimDisk()) as journal:
            journal.append([b"still here"])
            table = next(iter(journal.scan(0))).to_arrow()
        assert table["value"].to_pylist() == [b"still here"]

    def test_offsets_are_right_far_away_and_in_any_order(self) -> None:
        for base in (0, 70_000, 10, 2**62, 65_535, 65_536, 0):
            table = parsed(stored([b"a"] * 5, base=base)).to_arrow()
            assert table["offset"].to_pylist() == list(range(base, base + 5))
        large = parsed(stored([b""] * 70_000, base=3)).to_arrow()
        assert large["offset"].to_pylist() == list(range(3, 70_003))


class TestRefused:
    @given(VALUES, st.integers(0, 7), st.data())
    def test_a_batch_with_any_flipped_bit(self, values: list[bytes], shape: int, data: st.DataObject) -> None:
        good = stored(values, shape)
        bad = bytearray(good)
        bad[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        with pytest.raises(BadBatch):
            parsed(bytes(bad))

    @pytest.mark.parametrize("shape", [0, 7])
    def test_a_batch_cut_at_any_byte(self, shape: int) -> None:
        good = stored([b"abc", b"de"], shape)
        for end in range(len(good)):
            with pytest.raises(BadBatch) as caught:
                parsed(good[:end])
            assert caught.value.short

    def test_a_header_that_says_what_cannot_be(self) -> None:
        good = stored([b"abc", b"de"], 7)
        fields = list(HEADER.unpack_from(good))
        for number, value in [
            (0, MAGIC + 1),
            (2, 9),
            (2, 2**31),
            (3, 0),
            (7, 16),
            (7, COLUMNS_ALL + 1),
            (8, 1),
        ]:
            changed = list(fields)
            changed[number] = value
            data = resealed(HEADER.pack(*changed) + good[HEADER_BYTES:])
            with pytest.raises(BadBatch):
                parsed(data)

    @given(st.integers(0, 15), st.integers(0, 2**32 - 1), st.integers(0, 400), st.binary(max_size=400))
    def test_columns_that_do_not_fit_whatever_the_checksum_says(
        self, present: int, count: int, size: int, body: bytes
    ) -> None:
        body = body.ljust(size + -size % 8, b"\1")
        body += bytes(-len(body) % 8)
        data = resealed(HEADER.pack(MAGIC, 0, len(body), count, 3, 0, 0, present, 0, 0) + body)
        try:
            batch = parsed(data)
            batch.check_columns()
        except BadBatch:
            return
        if not batch.is_lost:
            records = list(batch.records())
            assert len(records) == count
            batch.to_arrow().validate(full=True)

    def test_offsets_that_fall(self) -> None:
        good = bytearray(stored([b"abc", b"de", b"f"]))
        at = HEADER_BYTES + 4
        good[at : at + 4] = struct.pack("<i", 6)
        batch = parsed(resealed(bytes(good)))
        with pytest.raises(BadBatch, match="rise"):
            batch.check_columns()


def test_a_lost_batch_stands_for_offsets_and_holds_no_record() -> None:
    data = format_lost(10, 5, 64)
    batch = parsed(data)
    assert batch.is_lost
    assert (batch.base_offset, batch.next_offset, batch.stored_bytes) == (10, 15, len(data))


def test_the_layout_is_the_documented_one() -> None:
    """Old bytes load for ever, so the bytes themselves are written down here."""
    data = stored([b"ab", b""], 5)
    body = struct.pack("<3i4x", 0, 2, 2) + b"ab".ljust(8, b"\0")
    body += struct.pack("<3i4x", 0, 2, 2) + b"ab".ljust(8, b"\0")
    body += struct.pack("<2q", -3, -2)
    rest = struct.pack("<IIQQqHHI", len(body), 2, 7, 5, 99, 11, 0, 0) + body
    assert data == b"SLB1" + struct.pack("<I", crc32c(rest)) + rest


def test_large_batches_are_formatted_without_joining_their_values() -> None:
    values = pa.array([b"x" * 10_000] * 3)
    buffers, _ = format_batch(0, 0, 0, columns_of(values, None, None, None, CONFIG))
    address = values.buffers()[2].address
    views = [np.frombuffer(buffer, np.uint8).ctypes.data for buffer in buffers if len(buffer) == 30_000]
    assert views == [address]
