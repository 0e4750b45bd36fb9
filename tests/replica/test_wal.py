"""SQLite's write-ahead log: what SQLite wrote is read, and nothing else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.replica import wal
from tests.replica.databases import PAGE_SIZES, database, fill

Pages = list[tuple[int, int, bytes]]


def log_of(pages: Pages, page_size: int = 512, *, is_big_endian: bool = False) -> bytes:
    """Return a log with these frames: number, commit, page."""
    head = wal.format_header(page_size, 3, (7, 9), is_big_endian=is_big_endian)
    header = wal.parse_header(head)
    assert header is not None
    out, checksum = [head], header.checksum
    for number, commit, page in pages:
        out.append(wal.format_frame(header, checksum, number, commit, page))
        checksum = (int.from_bytes(out[-1][16:20], "big"), int.from_bytes(out[-1][20:24], "big"))
    return b"".join(out)


def scanned(log: bytes) -> wal.WalFrames:
    """Return the committed frames of a whole log."""
    header = wal.parse_header(log)
    assert header is not None
    return wal.scan_frames(header, header.start, log[wal.HEADER_BYTES :])


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_the_log_of_sqlite_is_read_to_its_last_commit(tmp_path: Path, page_size: int) -> None:
    with database(tmp_path / "a.db", page_size) as connection:
        fill(connection, 60)
        log = (tmp_path / "a.db-wal").read_bytes()
        (pages,) = next(iter(connection.execute("PRAGMA page_count")))
        header = wal.parse_header(log)
        assert header is not None
        frames = scanned(log)
        assert (header.page_size, frames.pages, frames.end.offset) == (page_size, pages, len(log))
        assert int((frames.commits > 0).sum()) == 61
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    latest = {number: at for number, at in frames.latest().items() if number <= pages}
    found = (tmp_path / "a.db").read_bytes()
    for number, at in latest.items():
        start = wal.HEADER_BYTES + at * header.frame_size + wal.FRAME_HEADER_BYTES
        assert log[start : start + page_size] == found[(number - 1) * page_size : number * page_size]


def test_a_log_that_is_used_again_ends_where_the_old_frames_begin(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as connection:
        fill(connection, 50)
        before = wal.parse_header((tmp_path / "a.db-wal").read_bytes())
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        connection.execute("UPDATE t SET body = 'x' WHERE id = 1")
        log = (tmp_path / "a.db-wal").read_bytes()
    after = wal.parse_header(log)
    assert before is not None
    assert after is not None
    assert after.salts[0] == before.salts[0] + 1
    frames = scanned(log)
    assert wal.HEADER_BYTES < frames.end.offset < len(log)


def test_a_transaction_that_is_not_committed_is_not_read(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as connection:
        fill(connection, 5)
        end = (tmp_path / "a.db-wal").stat().st_size
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("BEGIN")
        for _ in range(20):
            connection.execute("INSERT INTO t (body) VALUES (randomblob(4000))")
        log = (tmp_path / "a.db-wal").read_bytes()
        assert len(log) > end, "the cache must have spilled for this to show anything"
        assert scanned(log).end.offset == end
        connection.execute("ROLLBACK")


frame = st.tuples(st.integers(1, 9), st.sampled_from([0, 0, 5, 9]), st.binary(min_size=512, max_size=512))


@given(st.lists(frame, max_size=12), st.booleans(), st.integers(1, 5))
def test_any_log_is_the_same_read_at_once_or_in_chunks(pages: Pages, is_big_endian: bool, step: int) -> None:
    log = log_of(pages, is_big_endian=is_big_endian)
    header = wal.parse_header(log)
    assert header is not None
    whole = scanned(log)
    commits = [at for at, (_, commit, _) in enumerate(pages) if commit]
    assert whole.numbers.tolist() == [number for number, _, _ in pages[: commits[-1] + 1 if commits else 0]]
    position, numbers, size = header.start, list[int](), step * header.frame_size
    while True:
        chunk = log[position.offset : position.offset + size]
        part = wal.scan_frames(header, position, chunk)
        numbers += part.numbers.tolist()
        if part.end == position and position.offset + size >= len(log):
            break
        size = size + header.frame_size if part.end == position else step * header.frame_size
        position = part.end
    assert (numbers, position) == (whole.numbers.tolist(), whole.end)


@given(st.lists(frame, min_size=1, max_size=8), st.data())
def test_a_flipped_bit_ends_the_log_before_its_frame(pages: Pages, data: st.DataObject) -> None:
    log = bytearray(log_of([(number, 9, page) for number, _, page in pages]))
    at = data.draw(st.integers(0, len(log) - 1))
    log[at] ^= 1 << data.draw(st.integers(0, 7))
    if at < wal.HEADER_BYTES:
        assert wal.parse_header(log) is None
        return
    damaged = (at - wal.HEADER_BYTES) // (512 + wal.FRAME_HEADER_BYTES)
    assert len(scanned(bytes(log)).numbers) == damaged


@pytest.mark.parametrize("data", [b"", bytes(32), b"x" * 31, bytes(64)])
def test_what_is_no_header_is_none(data: bytes) -> None:
    assert wal.parse_header(data) is None
