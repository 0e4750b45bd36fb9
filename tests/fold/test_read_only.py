"""A fold is read while another process keeps it current: without its lock, and nothing is changed by it."""

import hashlib
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from strandline.errors import Closed, Damaged, FormatError, StorageRefused
from strandline.fold import AppendLogStore, FoldReader, RocksDbStore, SnapshotStore, SqliteStore, append_log
from strandline.journal import WRITTEN
from strandline.kv import NO_CURSOR, format_cursor, parse_cursor
from strandline.testing.snapshot_stores import changes, entry
from tests.fold import bytes_of_logs as by_hand

Opens = Callable[[Path], SnapshotStore]
Reads = Callable[[Path], FoldReader]
BACKENDS: dict[str, tuple[Opens, Reads, str]] = {
    "append log": (AppendLogStore.open, AppendLogStore.open_read_only, "fold.log"),
    "sqlite": (SqliteStore.open, SqliteStore.open_read_only, "fold.db"),
    "rocksdb": (RocksDbStore.open, RocksDbStore.open_read_only, "fold"),
}
each = pytest.mark.parametrize(("open_store", "read", "name"), BACKENDS.values(), ids=BACKENDS)


def files(folder: Path) -> dict[str, str]:
    """Return what is in a folder, but for what SQLite's readers share and RocksDB's write as notes of their own."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    named = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
    return {name: digest for name, digest in named.items() if not (name.endswith("-shm") or "LOG" in Path(name).name)}


@each
def test_a_reader_sees_what_a_writer_has_applied(open_store: Opens, read: Reads, name: str, tmp_path: Path) -> None:
    with open_store(tmp_path / name) as store:  # type: ignore[attr-defined]
        store.apply(*changes(1, (b"a", b"1"), (b"b", b"2")))
        before = files(tmp_path)
        reader = read(tmp_path / name)
        assert reader.load() == store.load()
        assert reader.range() == store.range()
        assert reader.get(b"a") == entry(b"a", b"1", 1)
        assert reader.multi_get([b"b", b"x"]) == store.multi_get([b"b", b"x"])
        assert reader.verify() == store.verify()
        assert reader.cursor() == format_cursor(2)
        assert [rows.keys.to_pylist() for rows in reader.pages().columns] == [[b"a", b"b"]]
        assert files(tmp_path) == before
        store.apply(*changes(3, (b"a", None)))
        reader.close()
        reader.close()
        with pytest.raises(Closed):
            reader.get(b"a")
        again = read(tmp_path / name)
        assert [found.key for found in again.range()] == [b"b"]
        again.close()


@each
def test_a_reader_of_no_fold_says_so_and_makes_none(open_store: Opens, read: Reads, name: str, tmp_path: Path) -> None:
    assert open_store is not None
    with pytest.raises(StorageRefused, match="no fold") as caught:
        read(tmp_path / name)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


@each
def test_every_question_during_writes_sees_a_state_between_two_batches(
    open_store: Opens, read: Reads, name: str, tmp_path: Path
) -> None:
    """Each batch sets every key to its number, and the cursor says which; so does whatever a reader sees."""
    keys = [b"key %d" % at for at in range(50)]
    stop = threading.Event()

    def write() -> None:
        number = 1
        while not stop.is_set():
            number += 1
            store.apply(*changes(100 * number, *((key, b"%d" % number * 40) for key in keys)))

    with open_store(tmp_path / name) as store:  # type: ignore[attr-defined]
        store.apply(*changes(100, *((key, b"1" * 40) for key in keys)))
        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = set[bytes]()
            for number in count():
                if number >= 40 and len(seen) > 1:
                    break
                reader = read(tmp_path / name)
                pages = reader.pages()
                values = {value for rows in pages.columns for value in rows.values.to_pylist()}
                revision = parse_cursor(pages.cursor)
                assert revision is not None
                assert values == {b"%d" % (revision // 100) * 40}
                seen |= values
                reader.close()
        finally:
            stop.set()
            writer.join()


def test_a_log_is_read_up_to_its_last_cursor(tmp_path: Path) -> None:
    path = tmp_path / "fold.log"
    whole = by_hand.HEADER + by_hand.put(b"a", b"1", b"v") + by_hand.cursor(b"c1")
    after = by_hand.put(b"a", b"2", b"v") + by_hand.put(b"b", b"2", b"v")
    for cut in range(len(after) + 1):
        path.write_bytes(whole + after[:cut])
        reader = AppendLogStore.open_read_only(path)
        assert [(found.key, found.value) for found in reader.range()] == [(b"a", b"1")]
        assert reader.cursor() == b"c1"
    path.write_bytes(by_hand.HEADER + after)
    assert len(AppendLogStore.open_read_only(path).range()) == 2, "without any cursor, all there is"
    assert AppendLogStore.open_read_only(path).cursor() == NO_CURSOR


def test_a_log_is_read_up_to_where_it_was_closed_if_that_is_behind_its_last_cursor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(append_log, "INDEX_BYTES_MIN", 0)
    path = tmp_path / "fold.log"
    with AppendLogStore.open(path) as store:
        store.apply(*changes(1, (b"a", b"1")))
        store.apply(changes(2, (b"a", b"2"), (b"b", b"2"))[0], NO_CURSOR)
        wanted = store.range()
    path.write_bytes(path.read_bytes() + by_hand.put(b"c", b"3", b"v"))
    reader = AppendLogStore.open_read_only(path)
    assert (reader.cursor(), reader.range()) == (format_cursor(1), wanted)


def test_a_batch_that_leaves_the_cursor_where_it_was_is_read_as_soon_as_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "fold.log"
    with AppendLogStore.open(path) as store:
        store.apply(changes(1, (b"a", b"1"))[0], NO_CURSOR)
        assert AppendLogStore.open_read_only(path).range() == store.range()
        store.apply(*changes(2, (b"a", b"2")))
        store.apply(changes(3, (b"b", b"3"))[0], NO_CURSOR)
        reader = AppendLogStore.open_read_only(path)
        assert (reader.cursor(), reader.range()) == (format_cursor(2), store.range())
        assert len(reader.range()) == 2


def test_a_damaged_log_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "fold.log"
    path.write_bytes(by_hand.HEADER + by_hand.put(b"a", b"1", b"v")[:-1] + b"\0" + by_hand.cursor(b"c1"))
    with pytest.raises(Damaged):
        AppendLogStore.open_read_only(path)


@pytest.mark.parametrize("backend", ["sqlite", "rocksdb"])
def test_an_empty_database_is_no_fold_to_read(backend: str, tmp_path: Path) -> None:
    _, read, name = BACKENDS[backend]
    (tmp_path / name).mkdir() if backend == "rocksdb" else (tmp_path / name).touch()
    with pytest.raises((FormatError, StorageRefused)):
        read(tmp_path / name)


def test_a_reader_of_a_log_that_is_compacted_meanwhile_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "fold.log"
    with AppendLogStore.open(path, sync=WRITTEN) as store:
        store.apply(*changes(1, (b"a", b"1"), (b"b", b"2")))
        reader = AppendLogStore.open_read_only(path)
        store.apply(*changes(3, (b"a", None)))
        store.settle()
        assert [found.key for found in reader.range()] == [b"a", b"b"]
