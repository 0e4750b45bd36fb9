"""Capture: no commit escapes, whatever the application and its checkpoints do meanwhile."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from strandline.replica import Capture, Change, DatabaseRefused, HistoryLost
from strandline.replica import capture as capture_module
from strandline.replica.capture import TABLE, Resumed
from strandline.replica.connections import check_database, check_library
from strandline.replica.wal import FRAME_HEADER_BYTES, HEADER_BYTES, format_frame, parse_header
from tests.replica.databases import PAGE_SIZES, content, database, fill


class Copy:
    """A database file that changes are applied to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changes = 0
        path.touch()

    def apply(self, change: Change) -> None:
        """Write the pages of a change."""
        with self.path.open("r+b") as file:
            for number, page in change.pages:
                file.seek((number - 1) * change.page_size)
                file.write(page)
            file.truncate(change.commit * change.page_size)
        self.changes += 1

    def drain(self, capture: Capture) -> None:
        """Apply everything that is committed."""
        while (change := capture.changes()) is not None:
            self.apply(change)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """An empty copy."""
    return Copy(tmp_path / "copy.db")


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_copy_has_every_commit(tmp_path: Path, copy: Copy, page_size: int) -> None:
    with database(tmp_path / "a.db", page_size) as connection:
        fill(connection, 30)
        capture = Capture(tmp_path / "a.db")
        copy.apply(capture.snapshot())
        fill(connection, 30, seed=1)
        copy.drain(capture)
        connection.execute("DELETE FROM t WHERE id > 5")
        connection.execute("VACUUM")
        copy.drain(capture)
        assert capture.checkpoint()
        fill(connection, 10, seed=2)
        copy.drain(capture)
        capture.close()
    assert content(copy.path) == content(tmp_path / "a.db")


def test_no_commit_of_two_busy_writers_escapes(tmp_path: Path, copy: Copy) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
    capture = Capture(path)
    copy.apply(capture.snapshot())
    arguments = [sys.executable, "-m", "tests.replica.writer", str(path)]
    resets = 0
    while not resets:  # the log must have begun anew under the writers for this to show anything
        writers = [subprocess.Popen([*arguments, str(seed), "600"], stdout=subprocess.DEVNULL) for seed in range(2)]
        while any(writer.poll() is None for writer in writers):
            change = capture.changes()
            if change is not None:
                copy.apply(change)
            if capture.log_bytes() > 200_000:
                resets += capture.checkpoint()
        copy.drain(capture)
        assert [writer.returncode for writer in writers] == [0, 0]
    capture.close()
    assert content(copy.path) == content(path)


def test_the_log_does_not_begin_anew_while_it_is_held(tmp_path: Path, copy: Copy) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
        capture = Capture(path)
        copy.apply(capture.snapshot())
        connection.set_busy_timeout(0)  # a checkpoint does not wait for the capture to let go
        for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE"):
            connection.execute("INSERT INTO t (body) VALUES (?)", (mode,))
            connection.execute(f"PRAGMA wal_checkpoint({mode})")
            connection.execute("INSERT INTO t (body) VALUES (?)", (f"after {mode}",))
        copy.drain(capture)
        capture.close()
    assert content(copy.path) == content(path)


def test_a_held_log_outlives_the_last_connection_of_the_application(tmp_path: Path, copy: Copy) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
    capture = Capture(path)
    copy.apply(capture.snapshot())
    for seed in range(3):
        subprocess.run([sys.executable, "-m", "tests.replica.writer", str(path), str(seed), "3"], check=True)
    assert (tmp_path / "a.db-wal").stat().st_size > 0
    copy.drain(capture)
    capture.close()
    assert content(copy.path) == content(path)


def test_a_later_process_goes_on_where_the_log_continues(tmp_path: Path, copy: Copy) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
        capture = Capture(path)
        copy.apply(capture.snapshot())
        state = capture.state
        assert state is not None
        capture.close()
        fill(connection, 5, seed=1)
        capture = Capture(path)
        assert capture.resume(state) is Resumed.CONTINUES
        copy.drain(capture)
        capture.close()
    assert content(copy.path) == content(path)


def test_a_log_that_began_anew_while_nobody_held_it_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
        capture = Capture(path)
        capture.snapshot()
        state = capture.state
        assert state is not None
        capture.close()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fill(connection, 5, seed=1)
        capture = Capture(path)
        assert capture.resume(state) is Resumed.BEGAN_ANEW
        with pytest.raises(HistoryLost):
            capture.changes()
        capture.close()


def test_a_log_that_lost_its_last_commits_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
        capture = Capture(path)
        capture.snapshot()
        state = capture.state
        assert state is not None
        capture.close()
        log = (tmp_path / "a.db-wal").read_bytes()
    for file in tmp_path.glob("a.db-*"):
        file.unlink(missing_ok=True)
    kept = HEADER_BYTES + 4 * (state.page_size + FRAME_HEADER_BYTES)
    (tmp_path / "a.db-wal").write_bytes(log[:kept])  # as after a power cut, for a database that syncs at checkpoints
    capture = Capture(path)
    assert capture.resume(state) is Resumed.BEHIND
    capture.close()


def test_a_database_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
        capture = Capture(path)
        capture.snapshot()
        with database(tmp_path / "other.db") as other:
            fill(other, 3)
        (tmp_path / "other.db").rename(path)
        with pytest.raises(HistoryLost, match="replaced"):
            capture.changes()
        capture.close()


def test_pages_that_were_allocated_and_never_written_are_in_the_change(tmp_path: Path, copy: Copy) -> None:
    path = tmp_path / "a.db"
    with database(path, 512) as connection:
        fill(connection, 1)
        capture = Capture(path)
        copy.apply(capture.snapshot())
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE big (body BLOB)")
        connection.execute("INSERT INTO big VALUES (zeroblob(200000))")
        connection.execute("DROP TABLE big")
        connection.execute("INSERT INTO t (body) VALUES (1)")
        connection.execute("COMMIT")
        change = capture.changes()
        assert change is not None
        pages = list(change.pages)
        numbers = {number for number, _ in pages}
        before = copy.path.stat().st_size // 512
        assert numbers >= set(range(before + 1, change.commit + 1))
        copy.apply(change._replace(pages=iter(pages)))
        capture.close()
    assert content(copy.path) == content(path)


def test_a_busy_database_is_not_checkpointed(tmp_path: Path, copy: Copy) -> None:
    with database(tmp_path / "a.db") as connection:
        fill(connection, 5)
        capture = Capture(tmp_path / "a.db")
        copy.apply(capture.snapshot())
        connection.execute("BEGIN IMMEDIATE")
        assert not capture.checkpoint()
        connection.execute("ROLLBACK")
        copy.drain(capture)
        capture.close()


def test_a_log_longer_than_one_change_is_read_before_it_begins_anew(
    tmp_path: Path, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "CHUNK_BYTES", 8192)
    monkeypatch.setattr(capture_module, "_FIRST_BYTES", 8192)
    with database(tmp_path / "a.db") as connection:
        fill(connection, 5)
        capture = Capture(tmp_path / "a.db")
        copy.apply(capture.snapshot())
        fill(connection, 50, seed=1)
        assert not capture.checkpoint()
        copy.drain(capture)
        assert capture.checkpoint()
        fill(connection, 5, seed=2)
        copy.drain(capture)
        capture.close()
    assert content(copy.path) == content(tmp_path / "a.db")


def test_a_checkpoint_whose_heartbeat_finds_the_database_busy_loses_nothing(
    tmp_path: Path, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database(tmp_path / "a.db") as connection:
        fill(connection, 5)
        capture = Capture(tmp_path / "a.db")
        copy.apply(capture.snapshot())
        fill(connection, 5, seed=1)
        with monkeypatch.context() as patched:
            patched.setattr(capture, "_beat", busy)
            assert not capture.checkpoint()
        connection.set_busy_timeout(0)
        for mode in ("PASSIVE", "TRUNCATE"):
            fill(connection, 5, seed=2)  # the log begins anew here, and only here
            connection.execute(f"PRAGMA wal_checkpoint({mode})")
        copy.drain(capture)
        capture.checkpoint()
        fill(connection, 5, seed=3)
        copy.drain(capture)
        assert capture.checkpoint()
        capture.close()
    assert content(copy.path) == content(tmp_path / "a.db")


def busy() -> None:
    """Find the database busy."""
    raise apsw.BusyError("busy")


def test_a_log_that_was_removed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
        capture = Capture(path)
        capture.snapshot()
        (tmp_path / "a.db-wal").unlink()
        with pytest.raises(HistoryLost, match="removed"):
            capture.changes()
        capture.close()


def test_a_database_without_the_heartbeat_table_gets_it_again(tmp_path: Path, copy: Copy) -> None:
    with database(tmp_path / "a.db") as connection:
        fill(connection, 5)
        capture = Capture(tmp_path / "a.db")
        copy.apply(capture.snapshot())
        connection.execute(f"DROP TABLE {TABLE}")
        copy.drain(capture)
        assert capture.checkpoint()
        fill(connection, 5, seed=2)
        copy.drain(capture)
        capture.close()
    assert content(copy.path) == content(tmp_path / "a.db")


def test_frames_behind_a_torn_one_are_not_gone_on_with(tmp_path: Path) -> None:
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    with database(path) as connection:
        fill(connection, 5)
        capture = Capture(path)
        capture.snapshot()
        state = capture.state
        assert state is not None
        capture.close()
        kept = bytearray(log.read_bytes())
    for file in tmp_path.glob("a.db-*"):
        file.unlink(missing_ok=True)
    kept[HEADER_BYTES + 3 * (state.page_size + FRAME_HEADER_BYTES) + 100] ^= 1
    log.write_bytes(kept)
    capture = Capture(path)
    assert capture.resume(state) is Resumed.BEHIND
    capture.close()


def test_looking_at_a_database_keeps_the_locks_of_the_application(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
        check_database(path)
        attempt = f"import fcntl; file = open({str(path)!r}, 'r+b'); fcntl.lockf(file, 6, 510, 0x40000002)"
        found = subprocess.run([sys.executable, "-c", attempt], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in found.stderr, "another process would take the log of the application for abandoned"


def test_a_database_without_a_log_is_refused(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("CREATE TABLE t (id)")
    with pytest.raises(DatabaseRefused, match="delete, not wal") as caught:
        Capture(tmp_path / "a.db")
    assert "PRAGMA journal_mode = wal" in (caught.value.hint or "")
    assert not list(connection.execute("SELECT name FROM sqlite_schema WHERE name = ?", (TABLE,)))
    connection.close()


def test_a_library_with_the_fault_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replica.connections.apsw.sqlite_lib_version", lambda: "3.51.2", raising=False)
    with pytest.raises(DatabaseRefused, match=r"3\.51\.2 can lose commits"):
        check_library()


def test_frames_that_a_killed_writer_left_were_never_committed(tmp_path: Path, copy: Copy) -> None:
    """A writer that dies between its frames and SQLite's index of the log has not committed."""
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    with database(path) as connection:
        fill(connection, 5)
        capture = Capture(path)
        copy.apply(capture.snapshot())
        state, header = capture.state, parse_header(log.read_bytes())
        assert state is not None
        assert header is not None
        frame = format_frame(header, state.position.checksum, 2, state.pages, bytes(state.page_size))
        with log.open("r+b") as file:
            file.seek(state.position.offset)
            file.write(frame)
        assert capture.changes() is None
        copy.apply(capture.snapshot())
        fill(connection, 3, seed=1)
        copy.drain(capture)
        capture.close()
        assert content(copy.path) == content(path)


def test_nothing_is_written_while_another_sqlite_library_of_the_process_has_the_database(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)
        capture = Capture(tmp_path / "a.db")
        capture.snapshot()
        with closing(sqlite3.connect(tmp_path / "a.db")) as other:
            other.execute("SELECT count(*) FROM t").fetchall()
            for write in (capture.snapshot, capture.checkpoint):
                with pytest.raises(DatabaseRefused, match="two SQLite libraries"):
                    write()
        capture.close()
