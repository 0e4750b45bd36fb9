"""Copies of folds: made of rows without a fold in memory, opened as any fold, and refused unless every byte counts."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import apsw
import pyarrow as pa
import pytest

from strandline.errors import Damaged, StorageRefused, StrandlineError
from strandline.fold import AppendLogStore, Backend, FoldBatch, PutColumns, Verified, append_log, open_fold
from strandline.fold import compacted_log as logs
from strandline.fold.compacted_log import verify_log, write_log
from strandline.fold.copies import make_copy, verify_copy
from strandline.fold.store import versions_of
from strandline.kv import NO_CURSOR, format_cursor, format_revision
from strandline.testing.snapshot_stores import changes, everything
from tests.effort import Part, parts

SUFFIXES = {Backend.APPEND_LOG: ".log", Backend.SQLITE: ".db", Backend.ROCKSDB: ".rocks"}


@pytest.fixture(autouse=True)
def _every_log_has_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_log, "INDEX_BYTES_MIN", 0)
    monkeypatch.setattr(logs, "INDEX_BYTES_MIN", 0)


def pages(count: int = 500, size: int = 7) -> Iterator[PutColumns]:
    """Yield rows by key, of several lengths, some pages of them."""
    for first in range(0, count, 200):
        numbers = range(first, min(count, first + 200))
        keys = [b"key.%06d" % number for number in numbers]
        values = [b"%d" % number * (number % size) for number in numbers]
        versions = [format_revision(number + 1) for number in numbers]
        yield PutColumns(*(pa.array(column, pa.binary()) for column in (keys, values, versions)))


def filled(path: Path) -> None:
    """Make the fold that the copy is to equal, by batches."""
    with closing(open_fold(path)) as store:
        for rows in pages():
            store.apply(FoldBatch(*rows), format_cursor(500))


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("count", [0, 1, 500])
def test_a_copy_is_opened_as_the_fold_of_its_rows(backend: Backend, count: int, tmp_path: Path) -> None:
    path = tmp_path / f"copy{SUFFIXES[backend]}"
    make_copy(path, backend, pages(count), format_cursor(500))
    found = verify_copy(path)
    with closing(open_fold(path)) as copy, closing(open_fold(tmp_path / "other")) as other:
        for rows in pages(count):
            other.apply(FoldBatch(*rows), NO_CURSOR)
        other.apply(FoldBatch(), format_cursor(500))
        assert everything(copy) == everything(other)
        assert copy.verify() == found == other.verify()
        copy.apply(*changes(501, (b"key.000000", None), (b"new", b"1")))
        assert copy.get(b"key.000000") is None
    assert not list(tmp_path.glob("*.tables"))


def test_a_log_that_is_written_so_has_the_index_and_the_mark_of_a_proper_close(tmp_path: Path) -> None:
    write_log(tmp_path / "written", pages(), format_cursor(500))
    with closing(AppendLogStore.open(tmp_path / "closed")) as store:
        for rows in pages():
            store.apply(FoldBatch(*rows), NO_CURSOR)
        store.apply(FoldBatch(), format_cursor(500))
        store.settle()
    for suffix in ("", ".index", ".clean"):
        assert (tmp_path / f"written{suffix}").read_bytes() == (tmp_path / f"closed{suffix}").read_bytes(), suffix


def test_a_verified_log_has_the_index_of_a_written_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces may end within records."""
    path = tmp_path / "log"
    write_log(path, pages(), format_cursor(500))
    written = path.with_name("log.index").read_bytes()
    path.with_name("log.index").unlink()
    monkeypatch.setattr(logs, "_PIECE_BYTES", 100)
    assert verify_log(path) == verify_copy(path)
    assert not path.with_name("log.index").exists()
    verify_log(path, leaves_hints=True)
    assert path.with_name("log.index").read_bytes() == written


@parts(8)
def test_a_changed_byte_of_a_log_never_verifies(part: Part, tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, pages(40), format_cursor(500))
    whole, wanted = path.read_bytes(), verify_copy(path)
    random = Random(part.number)
    for at in range(part.number, len(whole), part.count):
        changed = bytearray(whole)
        changed[at] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        assert verify_log(path) is None, at
        with suppress(StrandlineError):
            assert verify_copy(path) != wanted, at
        path.write_bytes(whole[:at])
        assert verify_log(path) != wanted, at


def test_what_is_no_compacted_log_is_read_as_a_fold(tmp_path: Path) -> None:
    """Records that a later one replaces, deletes, keys in another order: the streaming reader leaves them alone."""
    histories: list[list[tuple[bytes, bytes | None]]] = [
        [(b"b", b"1"), (b"a", b"2")],
        [(b"a", b"1"), (b"b", b"2"), (b"b", b"3")],
        [(b"a", b"1"), (b"b", b"2"), (b"a", None)],
    ]
    for number, history in enumerate(histories):
        path = tmp_path / f"log-{number}"
        with closing(AppendLogStore.open(path)) as store:
            for at, row in enumerate(history):
                store.apply(*changes(at + 1, row))
            wanted = store.verify()
        assert verify_log(path) is None
        assert verify_copy(path) == wanted


def test_a_file_that_only_begins_like_a_log_is_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"PGSS\x02\x00")
    assert verify_log(path) is None
    write_log(tmp_path / "whole", pages(3), format_cursor(500))
    path.write_bytes((tmp_path / "whole").read_bytes() + b"behind it are more than a torn record has")
    assert verify_log(path) is None
    with pytest.raises(Damaged):
        verify_copy(path)


@pytest.mark.parametrize("backend", Backend)
def test_keys_and_versions_are_those_of_the_pages(backend: Backend, tmp_path: Path) -> None:
    random = Random(3)
    state = {b"key.%06d" % number: format_revision(number + 1) for number in range(500)}
    path = tmp_path / f"fold{SUFFIXES[backend]}"
    make_copy(path, backend, pages(), format_cursor(500))
    with closing(open_fold(path)) as store:
        for at in range(600, 640):
            key = b"key.%06d" % random.randrange(600)
            value = None if random.random() < 0.4 else b"new"
            store.apply(*changes(at, (key, value)))
            cursor, columns = versions_of(store)
            found = [
                row for keys, versions in columns for row in zip(keys.to_pylist(), versions.to_pylist(), strict=True)
            ]
            assert cursor == store.cursor()
            state.update({key: format_revision(at)} if value else {})
            state = {each: version for each, version in state.items() if value or each != key}
            assert sorted(found) == sorted(state.items())


@parts(4)
def test_few_changes_behind_a_sorted_log_count_as_in_a_dictionary(part: Part, tmp_path: Path) -> None:
    """The fold was not asked yet, so its state is found in columns."""
    random = Random(part.number)
    for number in range(part.number, 40, part.count):
        path = tmp_path / f"log-{number}"
        write_log(path, pages(200), format_cursor(500))
        state = {
            row[0]: row[1]
            for rows in pages(200)
            for row in zip(*(column.to_pylist() for column in rows[:2]), strict=True)
        }
        with closing(AppendLogStore.open(path)) as store:
            for at in range(random.randrange(1, 12)):
                key = b"key.%06d" % random.randrange(210)
                value = None if random.random() < 0.5 else b"%d" % at
                store.apply(*changes(600 + at, (key, value)))
                state.pop(key, None)
                if value is not None:
                    state[key] = value
            rows = [
                row
                for page in store.snapshot(tmp_path).rows(16)
                for row in zip(page.keys.to_pylist(), page.values.to_pylist(), strict=True)
            ]
            assert rows == sorted(state.items())
            wanted: Verified = store.verify()
            store.range()
            assert store.verify() == wanted


def test_a_full_disk_is_said_for_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite rolls a transaction back by itself there; an attempt to do so must not take the place of the error."""
    monkeypatch.setattr(apsw, "connection_hooks", [lambda connection: connection.pragma("max_page_count", 8)])
    with pytest.raises(StorageRefused, match="no space is left"):
        make_copy(tmp_path / "copy", Backend.SQLITE, pages(5000), format_cursor(5000))
