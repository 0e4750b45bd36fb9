"""S2 streams: read as nats-server writes them, and refused when something in them changed."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.snapshots.s2 import BEGIN, BLOCK_MAX, STEPS_MAX, Corrupt, S2Reader, decode_block, format_chunks
from tests.broker.snapshots.recorded import REAL


def _decode(block: bytes) -> bytes:
    work = decode_block(block)
    while True:
        try:
            assert next(work) == b""
        except StopIteration as end:
            return bytes(end.value)


def _read(data: bytes, step: int) -> bytes:
    reader = S2Reader()
    found = b"".join(part for at in range(0, len(data), step) for part in reader.feed(data[at : at + step]))
    reader.close()
    return found


@given(st.lists(st.binary(max_size=200), max_size=5), st.integers(1, 300))
def test_what_is_written_is_read_in_whatever_pieces_it_comes(parts: list[bytes], step: int) -> None:
    data = BEGIN + b"".join(map(format_chunks, parts))
    assert _read(data, step) == b"".join(parts)


def test_large_data_is_cut_into_chunks() -> None:
    data = bytes(range(256)) * 1000
    assert _read(BEGIN + format_chunks(data), 100_000) == data


@pytest.mark.parametrize("step", [1, 100, 1 << 20])
def test_what_nats_server_compressed_is_read(step: int) -> None:
    found = _read(REAL, step)
    assert found.startswith(b"NATSARC1")
    assert b"ab" * 100_000 in found
    assert b"8994001 word" in found


def test_a_changed_byte_is_noticed() -> None:
    for at in range(0, len(REAL), 997):
        changed = REAL[:at] + bytes([REAL[at] ^ 0x10]) + REAL[at + 1 :]
        with pytest.raises(Corrupt):
            _read(changed, 1 << 20)


def test_what_ends_too_early_is_noticed() -> None:
    for stop in (0, 3, 9, 100, len(REAL) - 1):
        with pytest.raises(Corrupt):
            _read(REAL[:stop], 1 << 20)


def test_a_block_that_claims_to_be_huge_is_refused() -> None:
    with pytest.raises(Corrupt):
        _decode(b"\xff\xff\xff\xff\x0f" + b"\x00a")
    for size, fits in ((BLOCK_MAX - 63, True), (BLOCK_MAX + 1, False)):
        claimed = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21])
        block = claimed + b"\x00a" + b"\xfe\x01\x00" * (size // 64)
        if fits:
            assert _decode(block) == b"a" * size
        else:
            with pytest.raises(Corrupt):
                _decode(block)


def test_what_follows_unknown_chunks_is_read() -> None:
    padding = b"\xfe\x05\x00\x00xxxxx"
    assert _read(BEGIN + padding + format_chunks(b"data"), 3) == b"data"
    with pytest.raises(Corrupt):
        _read(BEGIN + b"\x02\x00\x00\x00", 100)


@given(st.binary(max_size=100))
def test_nonsense_is_refused_or_read_but_never_fails_otherwise(data: bytes) -> None:
    try:
        _decode(data)
    except Corrupt:
        return


def test_a_long_block_is_read_in_steps() -> None:
    block = b"\xd0\x86\x03" + b"\x00a" * 50_000
    assert list(decode_block(block)) == [b""] * (50_000 // STEPS_MAX)
    assert _decode(block) == b"a" * 50_000


def test_a_chunk_in_tiny_pieces_is_not_copied_for_each_of_them() -> None:
    reader = S2Reader()
    list(reader.feed(BEGIN + b"\x00" + (4 << 20).to_bytes(3, "little") + bytes(3 << 20)))
    start = time.thread_time()
    for _ in range(20_000):
        list(reader.feed(b"x"))
    assert time.thread_time() - start < 3  # a copy for each of them takes twice as long
    assert reader.held_bytes == (3 << 20) + 20_004


def test_what_is_like_itself_is_written_in_few_bytes_and_noise_as_it_is() -> None:
    text, noise = b"a line of text, and so on\n" * 10_000, random.Random(1).randbytes(100_000)
    assert len(format_chunks(text)) < len(text) / 10
    assert len(noise) < len(format_chunks(noise)) < len(noise) + 100
    assert _read(BEGIN + format_chunks(text) + format_chunks(noise), 10_000) == text + noise


def test_a_changed_byte_of_what_is_written_is_noticed() -> None:
    data = BEGIN + format_chunks(b"a line of text, and so on\n" * 100)
    for at in range(len(data)):
        with pytest.raises(Corrupt):
            _read(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], 1 << 20)
