"""The record cache never shows anything but what the journal holds, stays small, and spares the journal."""

# ruff: noqa: SLF001 - how full the cache is shows nowhere else

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Damaged, OffsetBelowRetained, OffsetsLost
from strandline.gather import InlineExecutor
from strandline.journal import Journal, JournalConfig
from strandline.queue import record_cache
from strandline.queue.record_cache import RecordCache
from strandline.sim import SimDisk
from tests.queue.repairs import damage, repair

FOLDER = Path("/sim/journal")
SMALL = JournalConfig(segment_bytes_max=1024, reserve_bytes_max=0)


def open_journal(disk: SimDisk, config: JournalConfig = SMALL) -> Journal:
    return Journal.open(FOLDER, config, disk=disk, executor=InlineExecutor())


def read(books: RecordCache, start: int, end: int) -> list[bytes]:
    """Read [start, end) as the storage does."""
    values: list[bytes] = []
    while start < end:
        records = books.read(start, end)
        assert records
        assert [record.offset for record in records] == list(range(start, start + len(records)))
        values += [record.value for record in records]
        start += len(records)
    return values


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12),
)
def test_what_is_read_is_what_was_appended(appends: list[tuple[bool, int]], reads: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_cache, "RECORDS_MAX", 8)
        patch.setattr(record_cache, "AHEAD_RECORDS", 3)
        with open_journal(SimDisk()) as journal:
            books = RecordCache(journal)
            values: list[bytes] = []
            for put, count in appends:
                batch = [b"%d" % (len(values) + at) for at in range(count)]
                appended = journal.append(batch)
                if put:
                    books.put(appended.base_offset, batch, None, None)
                values += batch
            for start, count in reads:
                end = min(start + count, len(values))
                assert read(books, start, end) == values[start:end]
                assert len(books._records) <= 8


def test_keys_and_headers_stand_beside_their_value() -> None:
    with open_journal(SimDisk()) as journal:
        books = RecordCache(journal)
        values, keys, headers = [b"a", b"b"], [b"k", b""], [b"", b"h"]
        appended = journal.append(values, keys=keys, headers=headers)
        fresh = RecordCache(journal).read(0, 2)
        books.put(appended.base_offset, values, keys, headers)
        assert books.read(0, 2) == fresh


def test_reading_one_by_one_looks_into_the_journal_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_journal(SimDisk(), JournalConfig()) as journal:
        for number in range(1000):
            journal.append([b"%d" % number])
        scans = 0
        whole = Journal.scan

        def count(*args: object, **named: object) -> object:
            nonlocal scans
            scans += 1
            return whole(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Journal, "scan", count)
        books = RecordCache(journal)
        for number in range(1000):
            assert books.read(number, number + 1)[0].value == b"%d" % number
        assert scans == 1000 // record_cache.AHEAD_RECORDS + 1


def test_what_was_just_appended_is_not_read_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_journal(SimDisk()) as journal:
        books = RecordCache(journal)
        books.put(journal.append([b"a", b"b"]).base_offset, [b"a", b"b"], None, None)
        monkeypatch.delattr(Journal, "scan")
        assert read(books, 0, 2) == [b"a", b"b"]


def test_what_its_owner_may_change_is_not_kept() -> None:
    with open_journal(SimDisk()) as journal:
        books = RecordCache(journal)
        value: Any = bytearray(b"before")
        books.put(journal.append([value]).base_offset, [value], None, None)
        value[:] = b"after!"
        assert books.read(0, 1)[0].value == b"before"


def test_the_shelf_is_bounded_by_count_and_by_bytes() -> None:
    with open_journal(SimDisk(), JournalConfig()) as journal:
        books = RecordCache(journal)
        for _ in range(record_cache.RECORDS_MAX // record_cache.FEW + 3):
            batch = [b"x"] * record_cache.FEW
            books.put(journal.append(batch).base_offset, batch, None, None)
        assert len(books._records) == record_cache.RECORDS_MAX
        large = b"x" * (record_cache.BYTES_MAX // 4)
        for _ in range(6):
            books.put(journal.append([large]).base_offset, [large], None, None)
        assert len(books._records) == 4
        assert books._bytes == sum(len(record.value) for record in books._records.values()) == record_cache.BYTES_MAX
        huge = b"x" * (record_cache.BYTES_MAX + 1)
        books.put(journal.append([huge]).base_offset, [huge], None, None)
        assert not books._records
        assert read(books, journal.next_offset - 1, journal.next_offset) == [huge]


def test_damage_ahead_does_not_hide_what_comes_before_it() -> None:
    disk = SimDisk()
    with open_journal(disk) as journal:
        for number in range(4):
            journal.append([b"%d" % number])
        damage(disk, FOLDER, 2)
        books = RecordCache(journal)
        assert [record.value for record in books.read(0, 4)] == [b"0", b"1"]
        with pytest.raises(Damaged):
            books.read(2, 4)


def test_what_was_lost_or_removed_is_the_journals_error() -> None:
    disk = SimDisk()
    with open_journal(disk) as journal:
        for number in range(9):
            journal.append([b"%d" % number * 250])
    damage(disk, FOLDER, 4)
    repair(disk, FOLDER)
    with open_journal(disk) as journal:
        journal.remove_below(3)
        books = RecordCache(journal)
        with pytest.raises(OffsetBelowRetained):
            books.read(0, 9)
        assert len(books.read(3, 9)) == 1
        with pytest.raises(OffsetsLost):
            books.read(4, 9)
        assert len(books.read(5, 9)) == 4
