"""Segments: begun by size and age, reserved ahead, and removed whole by offset, bytes and age."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.clock import ManualClock
from strandline.errors import InvalidInput
from strandline.files import OsDisk
from strandline.gather import InlineExecutor
from strandline.journal import (
    SYNCED,
    WRITTEN,
    Durability,
    Journal,
    JournalConfig,
    SegmentRolled,
    SegmentsRemoved,
    examine,
)
from strandline.journal.config import KiB
from strandline.journal.segment import format_segment_name
from strandline.sim import SimDisk
from tests.journal.helpers import (
    FOLDER,
    SMALL,
    WAIT_S,
    Heard,
    LaterExecutor,
    Tally,
    WatchedDisk,
    content,
    numbered,
    open_sim,
    segments_in,
    values_of,
)


def bases(disk: SimDisk) -> list[int]:
    return [int(name.split(".")[0]) for name in segments_in(FOLDER, disk)]


class TestRolling:
    @given(st.lists(st.lists(st.integers(0, 700), min_size=1, max_size=6), min_size=1, max_size=12), st.integers(0, 7))
    def test_a_segment_stays_within_its_size_unless_one_append_is_larger(
        self, appends: list[list[int]], shape: int
    ) -> None:
        disk = SimDisk()
        later = LaterExecutor()
        with Journal.open(FOLDER, SMALL, disk=disk, executor=later) as journal:
            ends = {0}
            for number, sizes in enumerate(appends):
                values = [bytes(size) for size in sizes]
                journal.append_soon(
                    values,
                    keys=values if shape & 1 else None,
                    headers=values if shape & 2 else None,
                    timestamps=range(len(values)) if shape & 4 and number % 2 else None,
                )
                if number % 3 == 0:
                    later.run_all()
            later.run_all()
            for sizes in appends:
                ends.add(max(ends) + len(sizes))
            for base, end in pairwise([*bases(disk), journal.next_offset]):
                assert base in ends
                size = len(content(FOLDER / format_segment_name(base), disk))
                assert size <= 1024 or len([e for e in ends if base < e <= end]) == 1

    def test_an_append_larger_than_a_segment_has_one_of_its_own(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            journal.append([b"small"])
            journal.append([bytes(5000)])
            journal.append([b"small"])
            assert bases(disk) == [0, 1, 2]
            assert [len(value) for value in values_of(journal)] == [5, 5000, 5]

    def test_a_roll_is_told_and_does_not_wait_for_the_old_segment_to_be_synced(self) -> None:
        tally = Tally()
        heard = Heard()
        later = LaterExecutor()
        disk = WatchedDisk(SimDisk(), tally)
        with Journal.open(FOLDER, SMALL, disk=disk, executor=later, events=heard.hub) as journal:
            journal.append([bytes(900)], durability=WRITTEN)
            tally.clear()
            journal.append([bytes(900)], durability=WRITTEN)
            assert heard.of(SegmentRolled) == [SegmentRolled(FOLDER, 1)]
            assert tally.times["sync"] == 0
            assert len(later) == 1
            later.run_all()
            assert tally.times["sync"] >= 2
            assert journal.durable_offset == 2

    def test_a_roll_needs_no_executor_that_takes_work(self, tmp_path: Path) -> None:
        """It may have been shut down before the journal, as at the end of the interpreter."""
        pool = ThreadPoolExecutor(1)
        with Journal.open(tmp_path / "j", SMALL, executor=pool) as journal:
            pool.shutdown()
            for number in range(10):
                journal.append(numbered(number, number + 1, 300))
            futures = [journal.append_soon(numbered(number, number + 1, 300)) for number in range(10, 20)]
            assert [future.result(0).base_offset for future in futures] == list(range(10, 20))
        with Journal.open(tmp_path / "j") as journal:
            assert values_of(journal) == numbered(0, 20, 300)

    def test_a_writer_far_ahead_of_the_disk_waits_for_it(self) -> None:
        """Segments that wait to be synced are bounded, also where the background never comes to it."""
        later = LaterExecutor()
        with Journal.open(FOLDER, SMALL, disk=SimDisk(), executor=later) as journal:
            for number in range(20):
                journal.append([bytes(900)], durability=WRITTEN)
                assert len(journal._writer._sealing) <= 2  # noqa: SLF001
                assert journal.durable_offset >= number - 3
            later.run_all()
            assert len(values_of(journal)) == 20

    def test_a_segment_is_begun_when_the_last_one_is_old(self) -> None:
        disk = SimDisk()
        clock = ManualClock()
        config = JournalConfig(segment_age_max_s=60)
        with Journal.open(FOLDER, config, disk=disk, clock=clock, executor=InlineExecutor()) as journal:
            journal.append([b"a"])
            clock.advance(59)
            journal.append([b"b"])
            assert bases(disk) == [0]
            clock.advance(2)
            journal.append([b"c"])
            assert bases(disk) == [0, 2]
            clock.advance(-500)  # a wall clock may step back
            journal.append([b"d"])
            assert bases(disk) == [0, 2]
        clock.advance(1000)
        with Journal.open(FOLDER, config, disk=disk, clock=clock, executor=InlineExecutor()) as journal:
            journal.append([b"e"])
            assert bases(disk) == [0, 2, 4], "the age is known after opening again"

    def test_an_empty_segment_is_never_left_behind(self) -> None:
        disk = SimDisk()
        clock = ManualClock()
        config = JournalConfig(segment_age_max_s=1)
        with Journal.open(FOLDER, config, disk=disk, clock=clock, executor=InlineExecutor()) as journal:
            for _ in range(3):
                clock.advance(100)
                journal.append([])
            assert bases(disk) == [0]
            journal.append([b"a"])
            assert bases(disk) == [0]


class TestReserve:
    @pytest.mark.parametrize("reserve", [0, 500, 64 * KiB, 4096 * KiB])
    def test_what_is_reserved_is_never_seen(self, reserve: int, tmp_path: Path) -> None:
        config = JournalConfig(segment_bytes_max=4 * KiB, reserve_bytes_max=reserve)
        with Journal.open(tmp_path / "j", config) as journal:
            for number in range(40):
                journal.append(numbered(number, number + 1, 300))
                size = (tmp_path / "j" / segments_in(tmp_path / "j")[-1]).stat().st_size
                assert size <= 4 * KiB
            assert values_of(journal) == numbered(0, 40, 300)
            found = examine(OsDisk(), tmp_path / "j", deep=True)
            assert not found.damage
            assert not found.torn
        sizes = [(tmp_path / "j" / name).stat().st_size for name in segments_in(tmp_path / "j")]
        found = examine(OsDisk(), tmp_path / "j", deep=True)
        assert sizes == [scan.end_position for scan in found.segments], "nothing is left reserved"

    def test_reserving_saves_changes_of_size(self) -> None:
        tally = Tally()
        config = JournalConfig(reserve_bytes_max=64 * KiB)
        with open_sim(WatchedDisk(SimDisk(), tally), config) as journal:
            for _ in range(100):
                journal.append([bytes(1000)])
            assert tally.times["allocate"] <= 3

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EOPNOTSUPP])
    def test_no_room_to_reserve_is_no_reason_to_fail(self, code: int) -> None:
        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if operation == "allocate":
                raise OSError(code, os.strerror(code))

        disk = SimDisk()
        with open_sim(WatchedDisk(disk, watch), JournalConfig(segment_bytes_max=4 * KiB)) as journal:
            for number in range(30):
                journal.append(numbered(number, number + 1, 300))
        with open_sim(disk) as journal:
            assert values_of(journal) == numbered(0, 30, 300)

    def test_room_for_small_durable_appends_is_filled_with_zeros_once_a_segment_is_in_use(self) -> None:
        tally = Tally()
        with open_sim(WatchedDisk(SimDisk(), tally), JournalConfig()) as journal:
            journal.append([bytes(1000)])
            assert tally.times["allocate"] == 1
            tally.clear()
            for _ in range(200):
                journal.append([bytes(1000)])
            assert not tally.times["allocate"]
            assert tally.bytes["pwritev"] > 2 * 64 * KiB + 200 * 1000
            assert tally.times["sync"] <= 200 + 3, "one for each append, and one for each room"

    def test_room_for_others_is_only_allocated(self) -> None:
        tally = Tally()
        with open_sim(WatchedDisk(SimDisk(), tally), JournalConfig()) as journal:
            journal.append([bytes(100 * KiB)])
            written = tally.bytes["pwritev"]
            for _ in range(5):
                journal.append([bytes(100 * KiB)])
            for _ in range(1000):
                journal.append([bytes(1000)], durability=WRITTEN)
            assert tally.bytes["pwritev"] - written < 5 * 101 * KiB + 1000 * 1200
            assert tally.times["allocate"] > 1

    def test_no_room_to_fill_is_no_reason_to_fail(self) -> None:
        def watch(operation: str, path: Path, size: int) -> None:
            if operation == "pwritev" and path.suffix == ".journal" and size > 400:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        disk = SimDisk()
        config = JournalConfig(segment_bytes_max=4 * KiB, reserve_bytes_max=1000)
        with open_sim(WatchedDisk(disk, watch), config) as journal:
            for number in range(30):
                journal.append(numbered(number, number + 1, 300))
        with open_sim(disk) as journal:
            assert values_of(journal) == numbered(0, 30, 300)

    @pytest.mark.parametrize("durability", [SYNCED, WRITTEN])
    def test_room_that_was_made_in_part_is_given_back(self, durability: Durability) -> None:
        """Else what was left of a full disk stays taken, and no later close or roll knows of it."""
        disk = SimDisk()
        config = JournalConfig(segment_bytes_max=4 * KiB, reserve_bytes_max=1000)

        def watch(name: str, path: Path, size: int) -> None:
            if name in ("pwritev", "allocate") and path.suffix == ".journal" and size > 400:
                with closing(disk.open(path, "write")) as file:
                    file.truncate(file.size() + 5000)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with open_sim(WatchedDisk(disk, watch), config) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 200), durability=durability)
            sizes = [segment.bytes for segment in journal._writer.view().segments]  # noqa: SLF001
        assert [len(content(FOLDER / name, disk)) for name in segments_in(FOLDER, disk)] == sizes

    def test_the_reserve_may_change_from_one_opening_to_the_next(self) -> None:
        disk = SimDisk()
        number = 0
        for reserve in (64 * KiB, 0, 1000, 64 * KiB):
            config = JournalConfig(segment_bytes_max=64 * KiB, reserve_bytes_max=reserve)
            journal = open_sim(disk, config)
            for _ in range(5):
                journal.append(numbered(number, number + 1, 500))
                number += 1
            disk.kill()  # leaves the reserve behind
        with open_sim(disk) as journal:
            assert values_of(journal) == numbered(0, 20, 500)


class TestRemoveBelow:
    def filled(self, disk: SimDisk, *, events: Heard | None = None) -> Journal:
        journal = open_sim(disk, events=None if events is None else events.hub)
        for number in range(12):
            journal.append(numbered(number, number + 1, 300))
        assert bases(disk) == [0, 2, 4, 6, 8, 10]
        return journal

    @pytest.mark.parametrize(
        ("offset", "first"), [(0, 0), (1, 0), (2, 2), (3, 2), (9, 8), (10, 10), (11, 10), (12, 10), (10**9, 10)]
    )
    def test_whole_segments_go_and_no_more_than_asked(self, offset: int, first: int) -> None:
        disk = SimDisk()
        heard = Heard()
        with self.filled(disk, events=heard) as journal:
            assert journal.remove_below(offset) == first // 2
            assert journal.first_offset == first
            assert bases(disk) == list(range(first, 12, 2))
            assert values_of(journal) == numbered(first, 12, 300)
            expected = [SegmentsRemoved(FOLDER, first // 2, first)] if first else []
            assert heard.of(SegmentsRemoved) == expected
            assert journal.remove_below(offset) == 0
            assert journal.append([b"on"]).base_offset == 12
        with open_sim(disk) as journal:
            assert journal.first_offset == first
            assert values_of(journal) == [*numbered(first, 12, 300), b"on"]

    def test_a_negative_offset_is_refused(self) -> None:
        with self.filled(SimDisk()) as journal, pytest.raises(InvalidInput, match="-3"):
            journal.remove_below(-3)

    def test_segments_that_are_not_durable_yet_stay(self) -> None:
        later = LaterExecutor()
        disk = SimDisk()
        with Journal.open(FOLDER, SMALL, disk=disk, executor=later) as journal:
            for number in range(4):
                journal.append(numbered(number, number + 1, 600), durability=WRITTEN)
            assert journal.remove_below(4) <= 2
            first = journal.first_offset
            assert first <= journal.durable_offset
            later.run_all()
            assert journal.remove_below(4) + first == 3
            assert journal.first_offset == 3

    def test_nothing_is_removed_before_the_manifest_says_so_for_good(self) -> None:
        tally = Tally()
        disk = SimDisk()
        self.filled(disk).close()
        with open_sim(WatchedDisk(disk, tally)) as journal:
            tally.clear()
            journal.remove_below(8)
        operations = [operation for operation, name in tally.log if operation in ("rename", "sync_folder", "remove")]
        names = [name for operation, name in tally.log if operation == "remove" and name.endswith(".journal")]
        assert len(names) == 4
        first_removed = tally.log.index(("remove", format_segment_name(0)))
        before = [operation for operation, _ in tally.log[:first_removed]]
        assert before.index("rename") < len(before) - 1 - before[::-1].index("sync_folder")
        assert "sync_folder" in operations[operations.index("rename") :]


class TestRemoveOld:
    def test_by_bytes_the_rest_is_never_less_than_asked(self) -> None:
        disk = SimDisk()
        config = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=0, retain_bytes=3000)
        with open_sim(disk, config) as journal:
            for number in range(50):
                journal.append(numbered(number, number + 1, 300))
                kept = sum(len(content(FOLDER / name, disk)) for name in segments_in(FOLDER, disk))
                if journal.first_offset:
                    assert kept >= 3000
                assert kept <= 3000 + 3 * KiB
            assert journal.first_offset > 30
            assert values_of(journal) == numbered(journal.first_offset, 50, 300)

    def test_by_age_of_the_last_record(self) -> None:
        disk = SimDisk()
        clock = ManualClock()
        config = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=0, retain_age_s=100)
        with Journal.open(FOLDER, config, disk=disk, clock=clock, executor=InlineExecutor()) as journal:
            for number in range(10):
                journal.append(numbered(number, number + 1, 300))
                clock.advance(10)
            assert journal.remove_old() == 0
            assert journal.first_offset == 0
            clock.advance(50)  # record n is 150 - 10 n old; a segment goes when both of its records are over 100
            assert journal.remove_old() == 2
            assert journal.first_offset == 4
        clock.advance(10_000)
        with Journal.open(FOLDER, config, disk=disk, clock=clock, executor=InlineExecutor()) as journal:
            assert journal.remove_old() == 2
            assert journal.first_offset == 8, "the active segment stays however old it is"

    def test_without_a_wish_everything_is_kept(self) -> None:
        with open_sim(SimDisk()) as journal:
            for number in range(20):
                journal.append(numbered(number, number + 1, 300))
            assert journal.remove_old() == 0
            assert journal.first_offset == 0

    def test_retention_keeps_up_with_writers_that_never_pause(self, tmp_path: Path) -> None:
        """The thread that commits is also the one that retention runs in; a crowd must not starve it."""
        config = JournalConfig(segment_bytes_max=16 * KiB, retain_bytes=64 * KiB, queue_bytes_max=16 * KiB)
        stop = threading.Event()
        with Journal.open(tmp_path / "j", config) as journal:

            def produce() -> None:
                while not stop.is_set():
                    journal.append_soon([bytes(1000)], durability=WRITTEN)

            threads = [threading.Thread(target=produce, daemon=True) for _ in range(3)]
            for thread in threads:
                thread.start()
            while journal.next_offset < 3000:
                stop.wait(0.001)
            try:
                assert journal.first_offset > 0
            finally:
                stop.set()
                for thread in threads:
                    thread.join(WAIT_S)


def test_a_journal_tells_how_many_bytes_it_takes() -> None:
    with open_sim(SimDisk()) as journal:
        empty = journal.stored_bytes
        journal.append([b"v" * 100] * 3)
        assert empty + 300 < journal.stored_bytes < empty + 600


def test_a_removed_segment_is_not_kept_open(tmp_path: Path) -> None:
    with Journal.open(tmp_path, SMALL, executor=InlineExecutor()) as journal:
        for value in numbered(0, 40, 200):
            journal.append([value])
        assert len(values_of(journal)) == 40
        assert journal.remove_below(journal.next_offset) > 1
        there = [os.path.realpath(handle) for handle in Path("/proc/self/fd").iterdir()]
        assert [name for name in there if name.startswith(str(tmp_path)) and name.endswith("(deleted)")] == []
