"""What each durable store does when its place is taken, not its own, broken, or fails under it."""

import errno
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest
from rocksdict import Options, Rdict

from strandline.errors import (
    CommitFailed,
    FormatError,
    Locked,
    Poisoned,
    StorageRefused,
    StrandlineError,
)
from strandline.fold import AppendLogStore, RocksDbStore, SqliteStore, rocksdb
from strandline.fold.append_log import COMPACT_BYTES
from strandline.journal import SYNCED, WRITTEN
from strandline.kv import format_cursor, parse_cursor
from strandline.sim import SimDisk
from strandline.sim.disk import Fault
from strandline.testing.snapshot_stores import changes, entry, everything
from tests.fold.helpers import DURABLE, durable, opened

PLACE = Path("/folds/fold.log")


@pytest.mark.parametrize("backend", DURABLE)
def test_a_place_has_one_writer(backend: str, tmp_path: Path) -> None:
    with durable(backend, tmp_path) as checked, pytest.raises(Locked):
        DURABLE[backend](tmp_path, SYNCED)
    with durable(backend, tmp_path) as checked:
        assert checked.store.load() is None


@pytest.mark.parametrize("backend", DURABLE)
def test_a_folder_that_cannot_be_made_is_a_typed_error(backend: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageRefused):
        DURABLE[backend](tmp_path / "file", SYNCED)


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fold.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(FormatError, match="another program"):
        SqliteStore.open(path)
    other = tmp_path / "rocks"
    with Rdict(str(other), Options(raw_mode=True)) as db:
        db[b"x"] = b"y"
    with pytest.raises(FormatError, match="another program"):
        RocksDbStore.open(other)


def test_a_fold_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fold.db"
    SqliteStore.open(path).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 3)
    connection.close()
    with pytest.raises(FormatError, match="version 3"):
        SqliteStore.open(path)
    other = tmp_path / "rocks"
    RocksDbStore.open(other).close()
    with Rdict(str(other), Options(raw_mode=True)) as db:
        db[b"meta/format"] = b"strandline-fold 3"
    with pytest.raises(FormatError, match="another version"):
        RocksDbStore.open(other)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fold.db").write_bytes(b"something else" * 100)
    with pytest.raises(FormatError):
        SqliteStore.open(tmp_path / "fold.db")


def broken_stores(tmp_path: Path, suffix: str) -> Iterator[Path]:
    """Yield files of stores with keys in them, one byte of each turned round in place."""
    path = max(tmp_path.rglob(f"*{suffix}"), key=lambda found: found.stat().st_size)
    whole = path.read_bytes()
    for at in range(4096 if suffix == ".db" else 0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        yield path


@pytest.mark.parametrize(("backend", "suffix"), [("sqlite", ".db"), ("rocksdb", ".sst")])
def test_a_store_that_is_broken_on_the_disk_is_told_by_verify_in_our_words(
    backend: str, suffix: str, tmp_path: Path
) -> None:
    with durable(backend, tmp_path) as checked:
        checked.store.apply(*changes(1, *((b"key %04d" % at, b"%d" % at * 50) for at in range(1000))))
        checked.store.settle()
        whole = checked.store.verify()
    noticed = 0
    for _ in broken_stores(tmp_path, suffix):
        try:
            with durable(backend, tmp_path) as checked:
                found = checked.store.verify()
        except StrandlineError:
            noticed += 1
        else:
            noticed += found != whole
    assert noticed > 20


@pytest.mark.parametrize("operation", ["pwritev", "sync"])
def test_a_log_whose_write_failed_takes_nothing_more_and_still_answers(operation: str) -> None:
    disk = SimDisk()
    store = AppendLogStore.open(PLACE, disk=disk)
    store.apply(*changes(1, (b"a", b"1")))
    before = everything(store)
    disk.fault = Fault(frozenset({operation}), 1, errno.ENOSPC)
    with pytest.raises(CommitFailed) as caught:
        store.apply(*changes(2, (b"a", b"2")))
    assert caught.value.hint == "free some space, then try again; nothing acknowledged is lost"
    for _ in range(2):
        with pytest.raises(Poisoned):
            store.apply(*changes(2, (b"a", b"2")))
    with pytest.raises(Poisoned):
        store.settle()
    assert everything(store) == before
    store.close()
    with AppendLogStore.open(PLACE, disk=disk) as again:
        again.apply(*changes(2, (b"a", b"2")))
        assert again.get(b"a") == entry(b"a", b"2", 2)


@pytest.mark.parametrize("operation", ["create", "pwritev", "sync", "rename", "sync_folder"])
def test_a_compaction_that_fails_takes_back_nothing_and_is_told_to_the_next_call(operation: str) -> None:
    disk = SimDisk()
    store = AppendLogStore.open(PLACE, disk=disk)
    store.apply(*changes(1, (b"a", b"1")))
    disk.fault = Fault(frozenset({operation}), 1)
    with pytest.raises(Poisoned):
        store.settle()
    with pytest.raises(Poisoned):
        store.apply(*changes(2, (b"a", b"2")))
    store.close()
    with AppendLogStore.open(PLACE, disk=disk) as again:
        assert again.range() == [entry(b"a", b"1", 1)]


def test_an_apply_that_compacts_in_vain_has_still_been_applied() -> None:
    disk = SimDisk()
    store = AppendLogStore.open(PLACE, disk=disk, compact_bytes=1)
    store.apply(*changes(1, (b"a", b"1" * 100)))
    disk.fault = Fault(frozenset({"rename"}), 1)
    store.apply(*changes(2, (b"a", b"2")))
    assert store.get(b"a") == entry(b"a", b"2", 2)
    with pytest.raises(Poisoned):
        store.apply(*changes(3, (b"a", b"3")))
    disk.kill()
    with AppendLogStore.open(PLACE, disk=disk) as again:
        assert again.range() == [entry(b"a", b"2", 2)]


def test_a_log_stays_within_twice_what_counts_and_the_threshold(tmp_path: Path) -> None:
    path, threshold = tmp_path / "fold.log", 20_000
    with AppendLogStore.open(path, sync=WRITTEN, compact_bytes=threshold) as store:
        largest = 0
        for at in range(1, 600):
            store.apply(*changes(at, (b"key %d" % (at % 20), bytes(at % 1000))))
            largest = max(largest, path.stat().st_size)
        counts = sum(len(found.key) + len(found.value) + 20 for found in store.range())
        assert largest < threshold + 2 * 20 * 1020
        store.settle()
        assert path.stat().st_size < counts + 100
    assert COMPACT_BYTES == 10 * 1024 * 1024


def test_a_log_that_only_grows_is_never_compacted(tmp_path: Path) -> None:
    path = tmp_path / "fold.log"
    with AppendLogStore.open(path, sync=WRITTEN, compact_bytes=1000) as store:
        node = path.stat().st_ino
        for at in range(1, 300):
            store.apply(*changes(at, (b"key %05d" % at, bytes(100))))
        assert path.stat().st_ino == node


def test_a_log_closed_properly_is_not_written_back_and_one_that_was_not_is() -> None:
    disk = SimDisk()
    with AppendLogStore.open(PLACE, disk=disk) as store:
        store.apply(*changes(1, (b"a", b"1" * 1000)))
    disk.fault = Fault(frozenset({"pwritev"}), 1)
    AppendLogStore.open(PLACE, disk=disk)
    disk.kill()
    disk.fault = Fault(frozenset({"pwritev"}), 1)
    with pytest.raises(StorageRefused):
        AppendLogStore.open(PLACE, disk=disk)
    with AppendLogStore.open(PLACE, disk=disk) as store:
        assert store.get(b"a") == entry(b"a", b"1" * 1000, 1)


@pytest.mark.parametrize("backend", ["memory", "append log", "sqlite", "rocksdb"])
def test_whoever_asks_while_a_batch_is_applied_sees_all_of_it_or_nothing(backend: str, tmp_path: Path) -> None:
    """Each batch sets every key to its number; no answer has two numbers, and the cursor of pages is theirs."""
    keys = [b"key %03d" % at for at in range(300)]
    asked = threading.Event()

    def apply() -> None:
        for number in count(2):
            store.apply(*changes(1000 * number, *((key, b"%d" % number) for key in keys)))
            if asked.is_set():
                return

    with opened(backend, tmp_path, WRITTEN) as checked:
        store = checked.store
        store.apply(*changes(1000, *((key, b"1") for key in keys)))
        thread = threading.Thread(target=apply)
        thread.start()
        try:
            seen = set[bytes]()
            for number in count():
                if number >= 60 and len(seen) > 1:
                    break
                answers = {found.value for found in store.multi_get(keys) if found is not None}
                assert len(answers) == 1
                assert len({found.value for found in store.range()}) == 1
                cursor, pages = store.pages()
                values = {value for rows in pages for value in rows.values.to_pylist()}
                assert values == {b"%d" % ((parse_cursor(cursor) or 0) // 1000)}
                seen |= answers | values
        finally:
            asked.set()
            thread.join()


def test_rocksdb_is_asked_again_if_a_batch_came_between_the_cursor_and_the_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole, calls = rocksdb._rows, []  # noqa: SLF001 - the seam between the two questions

    def late(*asked: Any) -> Any:  # noqa: ANN401
        calls.append(asked)
        if len(calls) < 3:
            store.apply(*changes(10 * len(calls), (b"a", b"%d" % len(calls))))
        return whole(*asked)

    with RocksDbStore.open(tmp_path / "fold", sync=WRITTEN) as store:
        store.apply(*changes(1, (b"a", b"0")))
        monkeypatch.setattr(rocksdb, "_rows", late)
        cursor, pages = store.pages()
        assert [(cursor, rows.values.to_pylist()) for rows in pages] == [(format_cursor(20), [b"2"])]
        assert len(calls) == 3
