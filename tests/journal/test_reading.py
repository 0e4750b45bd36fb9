"""Reading: by offset, by range and onwards, within what is promised, and with typed errors everywhere else."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import (
    Damaged,
    InvalidInput,
    OffsetBelowRetained,
    OffsetBeyondEnd,
    Poisoned,
    StorageRefused,
)
from strandline.files import OsDisk
from strandline.journal import SYNCED, WRITTEN, Durability, Journal, JournalConfig
from strandline.journal.config import KiB
from strandline.journal.index import Index, format_index, parse_index
from strandline.journal.segment import format_segment_name
from strandline.sim import SimDisk
from tests.journal.helpers import (
    FOLDER,
    SMALL,
    WAIT_S,
    Tally,
    WatchedDisk,
    content,
    flip,
    in_threads,
    numbered,
    open_descriptors,
    open_sim,
    plant,
    segments_in,
    values_of,
)


@pytest.fixture
def journal() -> Iterator[Journal]:
    """Hold 40 records of 100 bytes in appends of 1 to 4, over several segments."""
    with open_sim(SimDisk()) as journal:
        number = 0
        while number < 40:
            count = min(1 + number % 4, 40 - number)
            journal.append(numbered(number, number + count, 100))
            number += count
        assert len(journal._writer.view().segments) > 4  # noqa: SLF001
        yield journal


class TestFetch:
    def test_every_record_by_its_offset(self, journal: Journal) -> None:
        assert [journal.fetch(offset).value for offset in range(40)] == numbered(0, 40, 100)
        assert [journal.fetch(offset).offset for offset in (39, 0, 17)] == [39, 0, 17]

    def test_what_is_not_written_yet(self, journal: Journal) -> None:
        for offset in (40, 41, 10**18):
            with pytest.raises(OffsetBeyondEnd) as caught:
                journal.fetch(offset)
            assert (caught.value.offset, caught.value.first, caught.value.next) == (offset, 0, 40)
            assert caught.value.retryable

    def test_what_never_was(self, journal: Journal) -> None:
        with pytest.raises(InvalidInput, match="-1"):
            journal.fetch(-1)

    def test_what_retention_removed(self, journal: Journal) -> None:
        journal.remove_below(30)
        first = journal.first_offset
        assert 0 < first <= 30
        with pytest.raises(OffsetBelowRetained, match=rf"\[{first}, 40\)") as caught:
            journal.fetch(first - 1)
        assert (caught.value.offset, caught.value.first, caught.value.next) == (first - 1, first, 40)
        assert journal.fetch(first).value == numbered(first, first + 1, 100)[0]

    def test_only_what_is_as_durable_as_asked(self, journal: Journal) -> None:
        journal.append([b"not yet"], durability=WRITTEN)
        with pytest.raises(OffsetBeyondEnd):
            journal.fetch(40)
        assert journal.fetch(40, visibility=WRITTEN).value == b"not yet"
        journal.sync()
        assert journal.fetch(40).value == b"not yet"


class TestScan:
    @given(st.integers(0, 12), st.integers(0, 14), st.integers(0, 14), st.integers(0, 900))
    def test_a_range_is_cut_as_asked(self, start: int, stop: int, max_records: int, max_bytes: int) -> None:
        with open_sim(SimDisk()) as journal:
            sizes = [0, 1, 100, 300, 0, 7, 500, 0, 90, 200, 1, 50]
            for begin, end in ((0, 3), (3, 4), (4, 9), (9, 12)):
                journal.append([bytes([n]) * sizes[n] for n in range(begin, end)])
            found = [r for b in journal.scan(start, stop=stop) for r in b.records()]
            assert [r.offset for r in found] == list(range(start, min(stop, 12)))
            found = [r for b in journal.scan(start, max_records=max_records) for r in b.records()]
            assert [r.offset for r in found] == list(range(start, min(start + max_records, 12)))
            found = [r for b in journal.scan(start, max_bytes=max_bytes) for r in b.records()]
            assert [r.offset for r in found] == list(range(start, start + len(found)))
            taken = sum(len(r.value) for r in found)
            assert taken <= max_bytes or len(found) == 1
            if start + len(found) < 12:
                assert found, "one record at least"
                assert taken + sizes[start + len(found)] > max_bytes, "as many as fit"

    def test_nothing_is_read_at_the_end_and_beyond_it_is_an_error(self, journal: Journal) -> None:
        assert list(journal.scan(40)) == []
        assert list(journal.scan(0, stop=0)) == []
        assert list(journal.scan(30, stop=20)) == []
        with pytest.raises(OffsetBeyondEnd):
            journal.scan(41)

    def test_every_argument_is_checked_before_anything_is_read(self, journal: Journal) -> None:
        for arguments in ({"stop": -1}, {"max_records": -1}, {"max_bytes": -1}):
            with pytest.raises(InvalidInput, match=next(iter(arguments))):
                journal.scan(0, **arguments)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            journal.scan(-1)

    @pytest.mark.parametrize("visibility", ["synced", None, False])
    def test_a_visibility_that_is_none_shows_nothing(self, journal: Journal, visibility: Durability) -> None:
        journal.append([b"not yet"], durability=WRITTEN)
        with pytest.raises(InvalidInput, match="visibility"):
            journal.scan(0, visibility=visibility)
        with pytest.raises(InvalidInput, match="visibility"):
            journal.fetch(40, visibility=visibility)
        with pytest.raises(InvalidInput, match="visibility"):
            journal.follow(0, visibility=visibility)

    def test_a_scan_sees_what_was_there_when_it_began(self, journal: Journal) -> None:
        scan = journal.scan(38)
        journal.append([b"later"])
        assert [record.offset for batch in scan for record in batch.records()] == [38, 39]

    def test_written_records_are_hidden_until_they_are_durable(self, journal: Journal) -> None:
        journal.append([b"w1", b"w2"], durability=WRITTEN)
        assert [b for batch in journal.scan(40) for b in batch.values()] == []
        assert [b for batch in journal.scan(40, visibility=WRITTEN) for b in batch.values()] == [b"w1", b"w2"]

    def test_a_batch_that_is_half_durable_is_shown_half(self) -> None:
        """A scan that stops inside a batch clips it, also where durability is what stops it."""
        with open_sim(SimDisk()) as journal:
            journal.append([b"a", b"b", b"c"])
            (batch,) = journal.scan(1, stop=2)
            assert (batch.values(), batch.base_offset, batch.next_offset) == ([b"b"], 1, 2)

    def test_records_that_span_many_reads(self, tmp_path: Path) -> None:
        config = JournalConfig(segment_bytes_max=40 * KiB * KiB)
        large = [os.urandom(3 * KiB * KiB) for _ in range(5)]
        with Journal.open(tmp_path / "j", config) as journal:
            journal.append(large[:1])
            journal.append(numbered(1, 1000))
            journal.append(large[1:3])
            journal.append(large[3:4])
            journal.append(numbered(1003, 1010))
            journal.append(large[4:])
            expected = [large[0], *numbered(1, 1000), *large[1:4], *numbered(1003, 1010), large[4]]
            assert values_of(journal) == expected
            assert values_of(journal, 1001) == expected[1001:]
            for offset in (0, 1, 999, 1000, 1001, 1002, 1009, 1010):
                assert journal.fetch(offset).value == expected[offset]

    def test_a_scan_that_is_given_up_leaves_no_thread_behind(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            for _ in range(6):
                journal.append([bytes(4 * KiB * KiB)])
            before = threading.active_count()
            scan = journal.scan(0)
            next(scan)
            del scan
            assert threading.active_count() == before


class TestFollow:
    def test_what_comes_is_seen_across_rolls(self) -> None:
        with open_sim(SimDisk()) as journal:
            journal.append(numbered(0, 3))
            follower = journal.follow(1)
            assert next(follower).values() == numbered(1, 3)
            for number in range(3, 30):
                journal.append([f"{number}:".encode().ljust(200, b".")])
                assert next(follower).base_offset == number

    def test_it_waits_for_more(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            seen: list[bytes] = []
            done = threading.Event()

            def follow() -> None:
                for batch in journal.follow(0):
                    seen.extend(batch.values())
                    if len(seen) >= 50:
                        done.set()
                        return

            thread = threading.Thread(target=follow, daemon=True)
            thread.start()
            for number in range(50):
                journal.append(numbered(number, number + 1))
            assert done.wait(WAIT_S)
            thread.join(WAIT_S)
            assert seen == numbered(0, 50)

    def test_it_ends_when_nothing_comes_in_time(self, journal: Journal) -> None:
        begin = time.monotonic()
        assert [batch.base_offset for batch in journal.follow(39, timeout_s=0.05)] == [39]
        assert 0.04 < time.monotonic() - begin < WAIT_S

    def test_it_ends_when_the_journal_is_closed(self, tmp_path: Path) -> None:
        journal = Journal.open(tmp_path / "j")
        journal.append([b"a"])
        seen: list[bytes] = []
        thread = threading.Thread(
            target=lambda: seen.extend(v for batch in journal.follow(0) for v in batch.values()), daemon=True
        )
        thread.start()
        while not seen:
            time.sleep(0.001)
        journal.close()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert seen == [b"a"]

    def test_what_is_only_written_is_not_followed_by_default(self, journal: Journal) -> None:
        journal.append([b"w"], durability=WRITTEN)
        assert list(journal.follow(40, timeout_s=0.01)) == []
        assert [b.values() for b in journal.follow(40, timeout_s=0.01, visibility=WRITTEN)] == [[b"w"]]

    def test_nobody_follows_from_beyond_the_end_or_below_the_retained(self, journal: Journal) -> None:
        with pytest.raises(OffsetBeyondEnd):
            journal.follow(41)
        with pytest.raises(InvalidInput):
            journal.follow(-1)
        journal.remove_below(30)
        with pytest.raises(OffsetBelowRetained):
            journal.follow(0)

    def test_a_follower_that_retention_overtakes_is_told(self, journal: Journal) -> None:
        follower = journal.follow(0)
        next(follower)
        journal.remove_below(40)
        journal._reader.close()  # noqa: SLF001 - as if its handle had gone
        with pytest.raises(OffsetBelowRetained) as caught:
            list(follower)
        assert caught.value.first == journal.first_offset

    def test_a_follower_of_a_poisoned_journal_gets_what_there_is_and_then_the_reason(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            journal.append([b"a"])
            follower = journal.follow(0)
            journal._writer.fail(OSError(errno.EIO, "no"))  # noqa: SLF001
            assert next(follower).values() == [b"a"]
            with pytest.raises(Poisoned):
                next(follower)


class TestRacingRetention:
    def test_a_scan_that_retention_overtakes_gets_the_retained_range(self, journal: Journal) -> None:
        scan = journal.scan(0)
        assert next(scan).base_offset == 0
        journal.remove_below(40)
        journal._reader.close()  # noqa: SLF001
        with pytest.raises(OffsetBelowRetained) as caught:
            list(scan)
        assert (caught.value.first, caught.value.next) == (journal.first_offset, 40)

    def test_a_fetch_that_retention_overtakes_gets_the_retained_range(self) -> None:
        """Remove the segment between the look at the range and the opening of the file."""
        disk = SimDisk()
        removed: list[int] = []

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if operation == "open" and path.name == format_segment_name(0) and armed and not removed:
                removed.append(journal.remove_below(10))

        armed = False
        journal = open_sim(WatchedDisk(disk, watch))
        for number in range(20):
            journal.append(numbered(number, number + 1, 300))
        journal._reader.close()  # noqa: SLF001
        armed = True
        with pytest.raises(OffsetBelowRetained, match="below the retained range"):
            journal.fetch(0)
        assert removed[0] > 0
        journal.close()

    def read_all(self, journal: Journal) -> None:
        start = journal.first_offset
        for batch in journal.scan(start):
            for record in batch.records():
                assert record.value.startswith(b"%d:" % record.offset)
        journal.fetch(start)

    def test_readers_and_retention_at_once(self, tmp_path: Path) -> None:
        """Whatever a reader meets, it is its records or the typed error."""
        stop = threading.Event()
        with Journal.open(tmp_path / "j", JournalConfig(segment_bytes_max=KiB)) as journal:
            journal.append([b"0:"])

            def read() -> None:
                while not stop.wait(0.001):  # whoever never waits keeps the interpreter to itself
                    with suppress(OffsetBelowRetained):
                        self.read_all(journal)

            def write() -> None:
                for number in range(1, 300):
                    journal.append([b"%d:" % number + bytes(200)], durability=WRITTEN)
                    if number % 5 == 0:
                        journal.sync()
                        journal.remove_below(number - 3)
                stop.set()

            assert in_threads([read, read, read, write]) == [None] * 4


class TestIndex:
    def many(self, disk: SimDisk) -> Journal:
        config = JournalConfig(segment_bytes_max=1024 * KiB, reserve_bytes_max=0)
        journal = open_sim(disk, config)
        for number in range(0, 2000, 10):
            journal.append(numbered(number, number + 10, 900), durability=WRITTEN)
        journal.sync()
        return journal

    def test_a_fetch_reads_little(self) -> None:
        disk = SimDisk()
        tally = Tally()
        self.many(disk).close()
        with open_sim(WatchedDisk(disk, tally), JournalConfig(reserve_bytes_max=0)) as journal:
            journal.fetch(0)
            for offset in (0, 777, 1999, 1200):
                tally.clear()
                assert journal.fetch(offset).offset == offset
                assert tally.times["pread"] <= 3
                assert tally.bytes["pread"] <= 400 * KiB

    @pytest.mark.parametrize("harm", ["missing", "empty", "flipped", "cut", "of another segment"])
    def test_a_missing_or_damaged_index_is_made_anew(self, harm: str) -> None:
        disk = SimDisk()
        self.many(disk).close()
        names = [name for name in disk.names(FOLDER) if name.endswith(".index")]
        assert len(names) == 2
        for name in names:
            path = FOLDER / name
            if harm == "missing":
                disk.remove(path)
            elif harm == "empty":
                plant(path, b"", disk)
            elif harm == "flipped":
                flip(path, 40, disk)
            elif harm == "cut":
                plant(path, content(path, disk)[:-8], disk)
            else:
                plant(path, format_index(Index(12345)), disk)
        with open_sim(disk, JournalConfig(reserve_bytes_max=0)) as journal:
            assert values_of(journal) == numbered(0, 2000, 900)
            assert [journal.fetch(offset).offset for offset in (0, 777, 1999)] == [0, 777, 1999]

    @pytest.mark.parametrize("shift", [-8, 8, 64])
    def test_an_index_that_is_whole_and_wrong_is_not_believed(self, shift: int) -> None:
        """An index of other bytes, such as one from a backup, checks and still is no more than a hint."""
        disk = SimDisk()
        self.many(disk).close()
        for name in disk.names(FOLDER):
            if name.endswith(".index"):
                base = int(name.split(".")[0])
                index = parse_index(content(FOLDER / name, disk), base)
                assert index is not None
                assert len(index.positions) > 2
                for i in range(1, len(index.positions)):
                    index.positions[i] += shift
                plant(FOLDER / name, format_index(index), disk)
        with open_sim(disk, JournalConfig(reserve_bytes_max=0)) as journal:
            assert [journal.fetch(offset).offset for offset in (1999, 777, 0, 1100)] == [1999, 777, 0, 1100]
            assert values_of(journal, 500) == numbered(500, 2000, 900)

    def test_the_index_of_an_emptied_name_is_not_found_by_another_segment(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(20):
                journal.append(numbered(number, number + 1, 300))
            journal.remove_below(15)
            bases = {int(name.split(".")[0]) for name in segments_in(FOLDER, disk)}
            indexes = {int(name.split(".")[0]) for name in disk.names(FOLDER) if name.endswith(".index")}
            assert indexes <= bases


class TestDamage:
    def test_a_flipped_bit_under_an_open_journal_is_never_returned(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j", SMALL) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
            name = segments_in(tmp_path / "j")[1]
            base = int(name.split(".")[0])
            flip(tmp_path / "j" / name, 64 + 48 + 20)
            for read in (lambda: journal.fetch(base), lambda: list(journal.scan(0))):
                with pytest.raises(Damaged, match=name) as caught:
                    read()
                assert "verify" in caught.value.safe
            assert journal.fetch(base - 1).offset == base - 1
            assert journal.fetch(11).offset == 11
            assert journal.append([b"more"]).base_offset == 12

    def test_a_segment_that_was_cut_under_an_open_journal(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j", SMALL) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
            name = segments_in(tmp_path / "j")[1]
            base = int(name.split(".")[0])
            for size in (64, 0, 100, 500):
                os.truncate(tmp_path / "j" / name, size)
                journal._reader.close()  # noqa: SLF001
                with pytest.raises(Damaged):
                    list(journal.scan(0))
                with pytest.raises(Damaged):
                    journal.fetch(base + 1)

    def test_a_segment_that_is_gone_and_not_by_retention(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j", SMALL) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
            name = segments_in(tmp_path / "j")[1]
            (tmp_path / "j" / name).unlink()
            journal._reader.close()  # noqa: SLF001
            with pytest.raises(StorageRefused, match="ENOENT"):
                list(journal.scan(0))

    @pytest.mark.parametrize("suffix", [".journal", ".index"])
    def test_an_error_of_the_device_while_reading_is_typed(self, suffix: str) -> None:
        armed = False

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if armed and operation in ("open", "pread") and path.name.endswith(suffix):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
        with open_sim(WatchedDisk(disk, watch)) as journal:
            armed = True
            for read in (lambda: journal.fetch(1), lambda: list(journal.scan(0))):
                with pytest.raises(StorageRefused, match="EIO"):
                    read()
            armed = False
            assert values_of(journal) == numbered(0, 12, 300)


def test_reading_keeps_few_files_open(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", SMALL) as journal:
        for number in range(60):
            journal.append(numbered(number, number + 1, 900), durability=WRITTEN)
        journal.sync()
        assert len(segments_in(tmp_path / "j", OsDisk())) > 50
        before = open_descriptors()
        assert len(values_of(journal)) == 60
        assert open_descriptors() <= before + 8 + 2  # a checkpoint may be under way
    assert journal.durable_offset == 60


@pytest.mark.parametrize("visibility", [SYNCED, WRITTEN])
def test_reading_while_writing_gives_whole_records_in_order(tmp_path: Path, visibility: Durability) -> None:
    with Journal.open(tmp_path / "j", JournalConfig(segment_bytes_max=8 * KiB)) as journal:
        stop = threading.Event()
        seen = [0, 0]
        wrong: list[BaseException] = []

        def read(who: int) -> None:
            try:
                for batch in journal.follow(0, visibility=visibility):
                    assert batch.base_offset == seen[who]
                    for record in batch.records():
                        assert record.value.startswith(b"%d:" % record.offset)
                    seen[who] = batch.next_offset
                    if seen[who] >= 1000:
                        return
            except BaseException as error:  # noqa: BLE001 - told below
                wrong.append(error)

        threads = [threading.Thread(target=read, args=(who,), daemon=True) for who in range(2)]
        for thread in threads:
            thread.start()
        for number in range(0, 1000, 5):
            values = [b"%d:" % n + bytes(n % 90) for n in range(number, number + 5)]
            journal.append(values, durability=WRITTEN if number % 3 else SYNCED)
        journal.sync()
        for thread in threads:
            thread.join(WAIT_S)
        stop.set()
        assert not wrong
        assert seen == [1000, 1000]
