"""The write lock of a database: no other connection commits under it, and pages are written as SQLite would."""

import os
import random
import shutil
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from strandline.replica import write_lock
from strandline.replica.capture import Capture
from strandline.replica.errors import DatabaseRefused
from strandline.replica.wal import WalPosition, format_frames, format_header, parse_header, scan_frames
from strandline.replica.wal_index import BACKFILLED, FRAMES, FRAMES_FIRST
from strandline.replica.write_lock import WriteLock
from tests.replica.databases import content, database, fill

SEEN = 6
LOG_KEPT_BYTES = 100_000
WRITING = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('DELETE FROM t')"
READING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=180)
seen = -1
while True:
    (rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
    assert rows % 5 == 0, rows
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if rows != seen:
        seen = rows
        print(rows, flush=True)
"""


def begun(leader: Path, copy: Path) -> Capture:
    """Return the capture of a database that a copy was just made of."""
    capture = Capture(leader)
    change = capture.snapshot()
    pages = dict(change.pages)
    copy.write_bytes(b"".join(pages[number] for number in sorted(pages)))
    return capture


def applied(lock: WriteLock, capture: Capture) -> None:
    """Write what was committed meanwhile into the copy."""
    while (change := capture.changes()) is not None:
        pages = {number: page for number, page in change.pages if number <= change.commit}
        transaction = lock.prepare(pages, change.commit, change.page_size)
        lock.write(transaction)
        assert lock.state() == transaction.state


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_a_copy_is_written_as_its_leader_was(tmp_path: Path, page_size: int) -> None:
    """Commits of all sizes, past the first block of the index, with a log that begins anew, and a shrunken database."""
    chance = random.Random(page_size)
    with database(tmp_path / "a.db", page_size) as application:
        fill(application, 3)
        capture = begun(tmp_path / "a.db", tmp_path / "b.db")
        lock = WriteLock(tmp_path / "b.db")
        reader = apsw.Connection(str(tmp_path / "b.db"))
        assert lock.acquire()
        for number in range(8):
            fill(application, chance.randint(1, 9), seed=number)
            with application:
                fill(application, chance.choice([0, 300, 900]), seed=number)
            if number == 4:
                application.execute("DELETE FROM t WHERE id % 3 > 0")
                application.execute("VACUUM")
            applied(lock, capture)
            rows = list(application.execute("SELECT * FROM t"))
            assert list(reader.execute("SELECT * FROM t")) == rows
            assert list(reader.execute("PRAGMA integrity_check")) == [("ok",)]
            if chance.random() < 0.5:
                lock.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        reader.close()
        lock.close()
        capture.close()
    assert content(tmp_path / "a.db") == content(tmp_path / "b.db")


def test_frames_of_several_blocks_of_the_index_are_found(tmp_path: Path) -> None:
    with database(tmp_path / "a.db", 512) as application:
        fill(application, 3)
        capture = begun(tmp_path / "a.db", tmp_path / "b.db")
        lock = WriteLock(tmp_path / "b.db")
        reader = apsw.Connection(str(tmp_path / "b.db"))
        reader.execute("BEGIN")
        before = list(reader.execute("SELECT count(*) FROM t"))
        assert lock.acquire()
        frames = 0
        while frames < FRAMES_FIRST + FRAMES + 10:
            with application:
                fill(application, 700, seed=frames)
            applied(lock, capture)
            frames = (lock.state().position.offset - 32) // 536
        assert list(reader.execute("SELECT count(*) FROM t")) == before, "a reader keeps what it has begun with"
        reader.close()
        lock.close()
        capture.close()
    assert content(tmp_path / "a.db") == content(tmp_path / "b.db")


def test_frames_are_seen_where_a_killed_writer_left_a_checkpoint_of_a_log_without_frames(
    tmp_path: Path,
) -> None:
    """SQLite too writes the header of a log that begins anew before it says that none of it is in the database."""
    with database(tmp_path / "a.db", 512) as application:
        fill(application, 3)
        capture = begun(tmp_path / "a.db", tmp_path / "b.db")
        lock = WriteLock(tmp_path / "b.db")
        reader = apsw.Connection(str(tmp_path / "b.db"))
        assert lock.acquire()
        block = lock._block(0)  # noqa: SLF001 - as a writer that is killed leaves it
        fill(application, 5, seed=1)
        change = capture.changes()
        assert change is not None
        pages = dict(change.pages)
        struct.pack_into("=I", block, BACKFILLED, len(pages))
        lock.write(lock.prepare(pages, change.commit, change.page_size))
        assert list(reader.execute("SELECT * FROM t")) == list(application.execute("SELECT * FROM t"))
        assert list(reader.execute("PRAGMA integrity_check")) == [("ok",)]
        reader.close()
        lock.close()
        capture.close()


def test_no_other_connection_commits_while_the_lock_is_held(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application:
        fill(application, 3)
        capture = begun(tmp_path / "a.db", tmp_path / "b.db")
        lock = WriteLock(tmp_path / "b.db")
        inside = apsw.Connection(str(tmp_path / "b.db"))
        fill(inside, 1)
        command = [sys.executable, "-c", WRITING, str(tmp_path / "b.db")]
        assert lock.acquire()
        for _ in range(3):
            with pytest.raises(apsw.BusyError):
                fill(inside, 1)
            child = subprocess.run(command, capture_output=True, text=True, check=False)
            assert "database is locked" in child.stderr
            fill(application, 1)
            applied(lock, capture)
        lock.release()
        fill(inside, 1)
        inside.close()
        lock.close()
        capture.close()


def test_readers_with_another_library_see_whole_transactions(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application:
        fill(application, 5)
        capture = begun(tmp_path / "a.db", tmp_path / "b.db")
        lock = WriteLock(tmp_path / "b.db")
        command = [sys.executable, "-c", READING, str(tmp_path / "b.db")]
        reading = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert reading.stdout is not None
        assert lock.acquire()
        seen = [int(reading.stdout.readline())]
        number = 0
        while len(seen) < SEEN:  # what a reader prints it has read from a new snapshot
            for _ in range(10):
                number += 1
                with application:
                    fill(application, 5, seed=number)
                applied(lock, capture)
            seen.append(int(reading.stdout.readline()))
        reading.kill()
        reading.wait()
        reading.stdout.close()
        assert seen == sorted(seen)
        lock.close()
        capture.close()
    assert content(tmp_path / "a.db") == content(tmp_path / "b.db")


def test_the_lock_waits_for_the_writer_of_the_moment(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application:
        fill(application, 1)
        lock = WriteLock(tmp_path / "a.db")
        application.execute("BEGIN IMMEDIATE")
        looks = iter([False, False, True])
        assert not lock.acquire(lambda: next(looks))
        application.execute("COMMIT")
        assert lock.acquire()
        lock.close()


def test_pages_of_another_size_are_refused(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application:
        fill(application, 1)
        lock = WriteLock(tmp_path / "a.db")
        assert lock.acquire()
        with pytest.raises(DatabaseRefused, match="4096 bytes, not 512"):
            lock.prepare({1: bytes(512)}, 1, 512)
        lock.close()


def test_frames_of_many_pages_are_those_that_are_read_back() -> None:
    chance = random.Random(1)
    header = parse_header(format_header(512, 3, (7, 9)))
    assert header is not None
    pages = [(number, chance.randbytes(512)) for number in (5, 1, 2**31, 4)]
    data, checksum = format_frames(header, header.checksum, pages, 77)
    found = scan_frames(header, header.start, data)
    assert found.end == WalPosition(32 + len(data), checksum)
    assert (found.numbers.tolist(), found.commits.tolist()) == ([5, 1, 2**31, 4], [0, 0, 0, 77])


CHECKPOINTING = """
import fcntl, sys
shm = open(sys.argv[1] + "-shm", "r+b")
fcntl.lockf(shm, fcntl.LOCK_EX, 1, 121)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_log_does_not_begin_anew_under_a_checkpoint(tmp_path: Path) -> None:
    """SQLite up to 3.51.2, in an application, would count frames of the new log as written."""
    with database(tmp_path / "a.db") as application:
        fill(application, 3)
        lock = WriteLock(tmp_path / "a.db")
        assert lock.acquire()
        page = lock.first_page()
        lock.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        before = lock.state()
        command = [sys.executable, "-c", CHECKPOINTING, str(tmp_path / "a.db")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == "held\n"
            lock.write(lock.prepare({1: page}, lock.page_count(), 4096))
            assert lock.state().salts == before.salts
            child.stdin.close()
        lock.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        lock.write(lock.prepare({1: page}, lock.page_count(), 4096))
        assert lock.state().salts != before.salts
        lock.close()
    assert content(tmp_path / "a.db")


class WrittenLog:
    """The log of a database, as it is on the disk after a power cut: what was not synced may be there or not."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced = bytearray(path.with_name(f"{path.name}-wal").read_bytes())
        self.unsynced = list[tuple[int, bytes]]()
        pwrite, fdatasync = os.pwrite, os.fdatasync

        def write(descriptor: int, data: bytes, offset: int) -> int:
            self.unsynced.append((offset, bytes(data)))
            return pwrite(descriptor, data, offset)

        def sync(descriptor: int) -> None:
            self.persist(self.unsynced)
            self.unsynced.clear()
            fdatasync(descriptor)

        monkeypatch.setattr(os, "pwrite", write)
        monkeypatch.setattr(os, "fdatasync", sync)

    def persist(self, writes: list[tuple[int, bytes]]) -> None:
        """Have writes be on the disk."""
        for offset, data in writes:
            self.synced[offset : offset + len(data)] = data


def test_a_power_cut_while_a_log_begins_anew_brings_back_no_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header of the old log that is still there, and an old frame behind it, would be a page of the past."""
    (tmp_path / "cut").mkdir()
    with database(tmp_path / "a.db") as application:
        fill(application, 3)
        application.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fill(application, 20)  # the first frame is a commit
        lock = WriteLock(tmp_path / "a.db")
        assert lock.acquire()
        lock.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        rows = list(application.execute("SELECT * FROM t"))
        pages = {number: lock.first_page() if number == 1 else bytes(4096) for number in (1, 90, 91)}
        disk = WrittenLog(tmp_path / "a.db", monkeypatch)
        transaction = lock.prepare(pages, 91, 4096)
        frames = [
            (transaction.offset + at, transaction.rest[at : at + 4120]) for at in range(0, len(transaction.rest), 4120)
        ]
        disk.persist(frames[1:])  # writes that were not synced are lost but for these
        shutil.copyfile(tmp_path / "a.db", tmp_path / "cut" / "a.db")
        (tmp_path / "cut" / "a.db-wal").write_bytes(disk.synced)
        lock.close()
    assert [row[1:] for row in content(tmp_path / "cut" / "a.db")] == rows


def test_a_transaction_takes_no_memory_of_its_size(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application:
        fill(application, 1)
        lock = WriteLock(tmp_path / "a.db")
        assert lock.acquire()
        first = lock.first_page()
        pages = GrownPages(first, 10 * write_lock._CHUNK_BYTES // 4096)  # noqa: SLF001
        tracemalloc.start()
        transaction = lock.prepare(pages, len(pages), 4096)
        lock.write(transaction)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert lock.state() == transaction.state
        assert peak_bytes < 6 * write_lock._CHUNK_BYTES  # noqa: SLF001
        lock.close()


class GrownPages(Mapping[int, bytes]):
    """A first page, and as many others as are asked for, made when they are read."""

    def __init__(self, first: bytes, count: int) -> None:
        self._first, self._count = first, count

    def __getitem__(self, number: int) -> bytes:
        return self._first if number == 1 else number.to_bytes(4, "big") * 1024

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, self._count + 1))

    def __len__(self) -> int:
        return self._count


def test_a_log_that_grew_under_a_long_reader_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_lock, "LOG_KEPT_BYTES", LOG_KEPT_BYTES)
    monkeypatch.setattr(write_lock, "CHECKPOINT_FRAMES", 10)
    with database(tmp_path / "a.db") as application:
        fill(application, 3)
        capture = begun(tmp_path / "a.db", tmp_path / "b.db")
        lock = WriteLock(tmp_path / "b.db")
        assert lock.acquire()
        fill(application, 1)
        applied(lock, capture)
        with closing(apsw.Connection(str(tmp_path / "b.db"))) as reader:
            reader.execute("BEGIN")
            before = list(reader.execute("SELECT count(*) FROM t"))
            for number in range(30):
                fill(application, 3, seed=number)
                applied(lock, capture)
            log = tmp_path / "b.db-wal"
            grown_bytes = log.stat().st_size
            assert list(reader.execute("SELECT count(*) FROM t")) == before
            reader.execute("COMMIT")
            for number in range(10):
                fill(application, 3, seed=number)
                applied(lock, capture)
                assert list(reader.execute("PRAGMA integrity_check")) == [("ok",)]
        assert log.stat().st_size < LOG_KEPT_BYTES < grown_bytes
        lock.close()
        capture.close()
    assert content(tmp_path / "a.db") == content(tmp_path / "b.db")
