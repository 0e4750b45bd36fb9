"""The write lock of a database: no other connection commits under it, and pages are written as SQLite would."""

import random
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from strandline.replica.capture import Capture
from strandline.replica.errors import DatabaseRefused
from strandline.replica.wal import WalPosition, format_frames, format_header, parse_header, scan_frames
from strandline.replica.wal_index import FRAMES, FRAMES_FIRST
from strandline.replica.write_lock import WriteLock
from tests.replica.databases import content, database, fill

SEEN = 6
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
