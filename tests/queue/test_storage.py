"""The durable storage: reopening, retention by the slowest group, what can never be read, and who may do what when."""

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from strandline.clock import ManualClock
from strandline.errors import (
    Closed,
    CommitFailed,
    Damaged,
    InvalidInput,
    Locked,
    OffsetBelowRetained,
    OffsetBeyondEnd,
    Poisoned,
    StorageRefused,
)
from strandline.files import Disk
from strandline.gather import InlineExecutor
from strandline.groups import Group, GroupCompacted
from strandline.journal import WRITTEN, JournalConfig, SegmentsRemoved
from strandline.journal.segment import parse_segment_name
from strandline.queue import GroupStatus, JournalStorage, MessagesSkipped, QueueConfig
from strandline.queue.record_cache import RecordCache
from strandline.sim import Fault, SimDisk
from tests.queue.helpers import CHANGES, FOLDER, SMALL, Heard, give, later, open_sim, tiny
from tests.queue.repairs import damage, repair

LARGE = b"x" * 250
"""Three of these fill a segment."""


def put(storage: JournalStorage, count: int, value: bytes = LARGE) -> None:
    for _ in range(count):
        storage.append_batch([value])


def segments(disk: Disk) -> list[int]:
    """Return the first offsets of the segments of messages."""
    bases = map(parse_segment_name, disk.names(FOLDER / "messages"))
    return [base for base in bases if base is not None]


def available(storage: JournalStorage, group: str = "workers") -> list[int]:
    return [message.offset for message in storage.fetch_available(group, 1000)]


# Reopening.


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_everything_is_as_it_was_after_reopening(end: str) -> None:
    disk, clock = SimDisk(), ManualClock()
    storage = open_sim(disk, clock)
    storage.append_batch([b"a", b"b", b"c", b"d", b"e"], keys=[b"k"] * 5)
    assert give(storage, clock, "workers", 4) == [0, 1, 2, 3]
    storage.ack("workers", [1])
    storage.nack("workers", 2, later(clock, 60))
    storage.extend("workers", 3, later(clock, 99))
    for _ in range(3):
        storage.fetch_available("others", 0)
        storage.mark_inflight("others", [4], later(clock))
        storage.nack("others", 4, clock.now_ns())
    if end == "closed":
        storage.close()
    disk.kill()
    with open_sim(disk, clock) as storage:
        assert available(storage) == [4]
        assert [letter[:4] for letter in storage.dead_letters("others")] == [("others", 4, b"e", b"k")]
        assert available(storage, "others") == [0, 1, 2, 3]
        clock.advance(31)
        assert sorted(available(storage)) == [0, 4]
        clock.advance(30)
        assert sorted(available(storage)) == [0, 2, 4]
        clock.advance(40)
        assert [(message.offset, message.deliveries) for message in storage.fetch_available("workers", 9)] == [
            (0, 1),
            (2, 1),
            (3, 1),
            (4, 0),
        ]
        assert storage.fetch_by_offset(4).key == b"k"


def test_a_queue_goes_on_through_compactions_and_reopening() -> None:
    disk, clock, heard = SimDisk(), ManualClock(), Heard()
    for round_ in range(4):
        with open_sim(disk, clock, tiny(None), events=heard.hub) as storage:
            for _ in range(20):
                storage.append_batch([b"%d" % round_])
                storage.ack("workers", give(storage, clock, "workers", 1))
            assert storage.messages.next_offset == 20 * (round_ + 1)
            assert available(storage) == []
    assert heard.of(GroupCompacted)


def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    with JournalStorage.open(tmp_path), pytest.raises(Locked):
        JournalStorage.open(tmp_path)
    JournalStorage.open(tmp_path).close()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    path.write_bytes(b"mine")
    with pytest.raises(StorageRefused):
        JournalStorage.open(path)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("countdown", range(1, 40, 3))
def test_opening_over_a_disk_that_cannot_be_read_is_a_typed_error(countdown: int) -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, 6)
        give(storage, clock, "workers", 2)
        give(storage, clock, "others", 2)
    disk.fault = fault = Fault(frozenset({"pread"}), countdown)
    try:
        open_sim(disk, clock).close()
    except (StorageRefused, CommitFailed):
        assert fault.countdown <= 0
    else:
        assert fault.countdown > 0, "an error was passed over"
    disk.kill()
    with open_sim(disk, clock) as storage:
        assert available(storage) == [2, 3, 4, 5]


def test_what_is_written_but_not_durable_is_not_given_out() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, 1)
        storage.messages.append([b"soon"], durability=WRITTEN)
        assert available(storage) == [0]
        with pytest.raises(OffsetBeyondEnd):
            storage.ack("workers", [1])
        storage.messages.sync()
        assert available(storage) == [0, 1]


def test_a_group_whose_floor_is_beyond_the_messages_is_refused() -> None:
    with pytest.raises(Damaged, match="acknowledged up to 9"):
        open_with_messages_of(5, [*range(9)])


def test_a_group_with_acknowledgements_beyond_the_messages_is_refused() -> None:
    with pytest.raises(Damaged, match="acknowledged up to 8"):
        open_with_messages_of(5, [0, 7])


def test_a_group_that_fits_its_messages_is_accepted() -> None:
    open_with_messages_of(5, [0, 4]).close()


def open_with_messages_of(count: int, acks: list[int]) -> JournalStorage:
    """Open a queue of `count` messages with a group from a later moment, as after restoring half of a backup."""
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, count, b"x")
    with Group.open(disk, FOLDER / "groups", "workers", clock=clock, executor=InlineExecutor()) as group:
        group.ack_many(acks)
    return open_sim(disk, clock)


# Retention by the slowest group.


def test_segments_go_when_the_slowest_group_is_done_with_them() -> None:
    disk, clock, heard = SimDisk(), ManualClock(), Heard()
    with open_sim(disk, clock, events=heard.hub) as storage:
        put(storage, 9)
        assert segments(disk) == [0, 3, 6]
        storage.add_group("slow")
        storage.add_group("quick")
        storage.ack("quick", range(9))
        assert segments(disk) == [0, 3, 6]
        storage.ack("slow", [0, 1, 3, 4, 5])
        assert segments(disk) == [0, 3, 6]
        storage.ack("slow", [2])
        assert segments(disk) == [6]
        assert heard.of(SegmentsRemoved)
        with pytest.raises(OffsetBelowRetained):
            storage.fetch_by_offset(5)
        assert available(storage, "slow") == [6, 7, 8]
    with open_sim(disk, clock) as storage:
        assert storage.messages.first_offset == 6
        assert available(storage, "slow") == [6, 7, 8]
        assert available(storage, "quick") == []


def test_segments_stay_while_an_acknowledgement_may_be_lost() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, 9)
        group = storage.add_group("workers")
        group.ack_many(range(9), durability=WRITTEN)
        assert storage.remove_done() == 0
        assert segments(disk) == [0, 3, 6]
        group.sync()
        assert storage.remove_done() == 2
        assert segments(disk) == [6]


def test_what_is_in_flight_is_kept() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, 9)
        give(storage, clock, "workers", 1)
        storage.ack("workers", range(1, 9))
        assert segments(disk) == [0, 3, 6]
        clock.advance(31)
        assert available(storage) == [0]


def test_a_new_group_keeps_what_is_there_and_begins_with_it() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, 9)
        storage.add_group("first")
        storage.ack("first", range(3))
        assert segments(disk) == [3, 6]
        storage.add_group("late")
        storage.ack("first", range(9))
        assert segments(disk) == [3, 6]
        assert available(storage, "late") == [3, 4, 5, 6, 7, 8]
        assert storage.status()[1] == GroupStatus("late", 3, 0, 0, 6)


def test_a_removed_group_keeps_nothing() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, 9)
        storage.add_group("idle")
        storage.add_group("workers")
        storage.ack("workers", range(9))
        assert segments(disk) == [0, 3, 6]
        storage.remove_group("idle")
        assert segments(disk) == [6]
        assert [status.group for status in storage.status()] == ["workers"]
        with pytest.raises(InvalidInput, match="no group 'idle'"):
            storage.ack("idle", [8])
        with pytest.raises(InvalidInput, match="no group 'idle'"):
            storage.remove_group("idle")
    assert not [name for name in disk.names(FOLDER / "groups") if name.startswith("idle")]


def test_without_groups_everything_is_kept() -> None:
    disk = SimDisk()
    with open_sim(disk) as storage:
        put(storage, 9)
        assert storage.remove_done() == 0
        assert segments(disk) == [0, 3, 6]


def test_a_group_at_the_end_gets_only_what_comes_after_it() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, 4)
        storage.add_group("tail", at_end=True)
        put(storage, 2)
        storage.add_group("tail", at_end=True)
        assert available(storage, "tail") == [4, 5]
    with open_sim(disk, clock) as storage:
        assert available(storage, "tail") == [4, 5]


def test_a_group_that_could_not_be_removed_keeps_its_messages_and_can_be_removed_later() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        put(storage, 9)
        storage.add_group("idle")
        storage.add_group("workers")
        disk.fault = Fault(frozenset({"rename"}), 1, errno.ENOSPC)
        with pytest.raises(StorageRefused, match="ENOSPC"):
            storage.remove_group("idle")
        storage.ack("workers", range(9))
        assert segments(disk) == [0, 3, 6]
        storage.remove_group("idle")
        assert segments(disk) == [6]


@pytest.mark.parametrize("seed", range(8))
def test_a_group_that_is_found_removed_does_not_come_back(seed: int) -> None:
    """The removal failed when its folder was to be synced; then the process was killed, and then the machine."""
    disk, clock = SimDisk(), ManualClock()
    storage = open_sim(disk, clock)
    storage.add_group("idle")
    disk.fault = Fault(frozenset({"sync_folder"}), 1)
    with pytest.raises(StorageRefused):
        storage.remove_group("idle")
    disk.kill()
    with open_sim(disk, clock) as storage:
        assert storage.status() == []
    disk.crash(Random(seed))
    with open_sim(disk, clock) as storage:
        assert storage.status() == []


def test_an_acknowledgement_is_told_even_where_segments_cannot_be_removed() -> None:
    disk, clock = SimDisk(), ManualClock()
    storage = open_sim(disk, clock)
    put(storage, 9)
    storage.add_group("workers")
    disk.fault = Fault(frozenset({"remove"}), 1)
    assert storage.ack("workers", range(9)) == 9
    assert disk.fault.countdown <= 0
    with pytest.raises(Poisoned):
        storage.append_batch([b"more"])
    assert storage.ack("workers", range(9)) == 0
    storage.close()
    with open_sim(disk, clock) as storage:
        assert available(storage) == []


# What can never be read.


def test_messages_lost_to_damage_are_skipped_and_told() -> None:
    disk, clock, heard = SimDisk(), ManualClock(), Heard()
    with open_sim(disk, clock) as storage:
        put(storage, 8)
        storage.add_group("workers")
    damage(disk, FOLDER / "messages", 4)
    with open_sim(disk, clock) as storage:
        assert available(storage) == [0, 1, 2, 3]
    repair(disk, FOLDER / "messages")
    with open_sim(disk, clock, events=heard.hub) as storage:
        assert available(storage) == [0, 1, 2, 3, 5, 6, 7]
        assert heard.of(MessagesSkipped) == [MessagesSkipped("workers", 4, 5)]
        assert available(storage, "others") == [0, 1, 2, 3, 5, 6, 7]
        assert heard.of(MessagesSkipped)[1:] == [MessagesSkipped("others", 4, 5)]
        storage.remove_group("others")
        storage.ack("workers", [0, 1, 2, 3, 5])
        assert storage.status() == [GroupStatus("workers", 6, 0, 0, 2)]
    with open_sim(disk, clock) as storage:
        assert available(storage) == [6, 7]


def test_a_lost_message_that_was_in_flight_is_skipped_when_it_expires() -> None:
    disk, clock, heard = SimDisk(), ManualClock(), Heard()
    with open_sim(disk, clock) as storage:
        put(storage, 6)
        give(storage, clock, "workers", 3)
    damage(disk, FOLDER / "messages", 1)
    repair(disk, FOLDER / "messages")
    clock.advance(31)
    with open_sim(disk, clock, events=heard.hub) as storage:
        assert [expired.message.offset for expired in storage.list_expired(clock.now_ns())] == [0, 2]
        assert heard.of(MessagesSkipped) == [MessagesSkipped("workers", 1, 2)]
        assert available(storage) == [0, 2, 3, 4, 5]


def test_a_lost_message_does_not_become_a_dead_letter_nor_hold_the_group_up() -> None:
    disk, clock, heard = SimDisk(), ManualClock(), Heard()
    with open_sim(disk, clock, QueueConfig(deliveries_max=1, journal=SMALL.journal)) as storage:
        put(storage, 6)
        give(storage, clock, "workers", 2)
    damage(disk, FOLDER / "messages", 1)
    repair(disk, FOLDER / "messages")
    clock.advance(31)
    with open_sim(disk, clock, QueueConfig(deliveries_max=1), events=heard.hub) as storage:
        assert available(storage) == [2, 3, 4, 5]
        assert [letter.offset for letter in storage.dead_letters("workers")] == [0]
        assert heard.of(MessagesSkipped) == [MessagesSkipped("workers", 1, 2)]


def test_messages_that_retention_took_are_skipped_and_told() -> None:
    disk, clock, heard = SimDisk(), ManualClock(), Heard()
    config = QueueConfig(journal=JournalConfig(segment_bytes_max=1024, reserve_bytes_max=0, retain_bytes=0))
    with open_sim(disk, clock, events=heard.hub) as storage:
        storage.add_group("workers")
        put(storage, 7)
    with open_sim(disk, clock, config, events=heard.hub) as storage:
        put(storage, 3)
        first = storage.messages.first_offset
        assert first > 3
        assert available(storage) == list(range(first, 10))
        assert heard.of(MessagesSkipped) == [MessagesSkipped("workers", 0, first)]
        assert storage.status()[0].acked_until == first


def test_damage_that_is_met_while_reading_is_told_and_holds_up_nothing_before_it() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock) as storage:
        storage.messages.append([b"a"])
        storage.messages.append([b"b"])
        storage.messages.append([b"c"])
        storage.messages.append([b"d"])
        damage(disk, FOLDER / "messages", 2)
        assert give(storage, clock, "workers", 100) == [0, 1]
        with pytest.raises(Damaged):
            storage.fetch_available("workers", 100)
        assert storage.ack("workers", [0, 3]) == 2


def test_only_expired_messages_are_read_when_expired_ones_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with open_sim(SimDisk(), clock, QueueConfig()) as storage:
        storage.append_batch([b"x"] * 2000)
        give(storage, clock, "workers", 1990)
        storage.mark_inflight("workers", [1992, 1995], later(clock, 1))
        clock.advance(2)
        read: list[tuple[int, int]] = []
        whole = RecordCache.read

        def spy(self: RecordCache, start: int, end: int) -> object:
            read.append((start, end))
            return whole(self, start, end)

        monkeypatch.setattr(RecordCache, "read", spy)
        assert [expired.message.offset for expired in storage.list_expired(clock.now_ns())] == [1992, 1995]
        assert read == [(1992, 1993), (1995, 1996)]
        read.clear()
        assert storage.list_expired(clock.now_ns()) == []
        assert read == []


# Failures and the end.


def test_after_a_failed_write_a_group_takes_nothing_more_until_it_is_reopened() -> None:
    disk, clock = SimDisk(), ManualClock()
    storage = open_sim(disk, clock)
    put(storage, 3)
    give(storage, clock, "workers", 2)
    disk.fault = Fault(frozenset({"sync"}), 1)
    with pytest.raises(CommitFailed):
        storage.ack("workers", [0])
    disk.fault = None
    answers: list[Callable[[], object]] = [
        lambda: storage.ack("workers", [0]),
        lambda: storage.nack("workers", 1, clock.now_ns()),
        lambda: storage.extend("workers", 1, later(clock)),
        lambda: storage.mark_inflight("workers", [2], later(clock)),
    ]
    for answer in answers:
        with pytest.raises(Poisoned):
            answer()
    storage.append_batch([b"still"])
    assert give(storage, clock, "others", 9) == [0, 1, 2, 3]
    storage.close()
    disk.kill()
    clock.advance(31)
    with open_sim(disk, clock) as storage:
        assert set(available(storage)) | {0} == {0, 1, 2, 3}
        storage.ack("workers", available(storage))
        assert available(storage) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("operation", sorted(CHANGES))
def test_a_disk_that_fails_once_gives_typed_errors_and_everything_acknowledged_is_there_after_reopening(
    operation: str, code: int
) -> None:
    for countdown in range(1, 12):
        disk, clock = SimDisk(), ManualClock()
        done: set[int] = set()
        puts = 0
        disk.fault = Fault(frozenset({operation}), countdown, code)
        try:
            with open_sim(disk, clock, tiny(None)) as storage:
                for _ in range(6):
                    storage.append_batch([LARGE])
                    puts += 1
                    offsets = give(storage, clock, "workers", 2)
                    storage.ack("workers", offsets)
                    done.update(offsets)
        except (StorageRefused, CommitFailed, Poisoned):
            pass
        disk.kill()
        with open_sim(disk, clock, tiny(None)) as storage:
            assert storage.messages.next_offset >= puts
            clock.advance(31)
            assert not done & set(available(storage))
            assert len(available(storage)) + storage.status()[0].acked_until >= puts


def test_a_closed_storage_refuses_everything_and_writes_nothing() -> None:
    disk, clock = SimDisk(), ManualClock()
    storage = open_sim(disk, clock)
    put(storage, 2)
    give(storage, clock, "workers", 1)
    storage.close()
    storage.close()
    before = disk.operations
    calls: list[Callable[[], object]] = [
        lambda: storage.append_batch([b"x"]),
        lambda: storage.fetch_by_offset(0),
        lambda: storage.fetch_available("workers", 1),
        lambda: storage.fetch_available("new", 1),
        lambda: storage.mark_inflight("workers", [1], later(clock)),
        lambda: storage.ack("workers", [0]),
        lambda: storage.nack("workers", 0, clock.now_ns()),
        lambda: storage.extend("workers", 0, later(clock)),
        lambda: storage.list_expired(clock.now_ns()),
        lambda: storage.dead_letters("workers"),
        lambda: storage.add_group("more"),
        lambda: storage.remove_group("workers"),
        storage.status,
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    assert disk.operations == before
    with open_sim(disk, clock) as storage:
        assert [status.group for status in storage.status()] == ["workers"]


def test_the_status_tells_how_far_each_group_is() -> None:
    clock = ManualClock()
    with open_sim(SimDisk(), clock) as storage:
        put(storage, 6, b"x")
        storage.add_group("idle")
        give(storage, clock, "busy", 4)
        storage.ack("busy", [0, 2])
        storage.nack("busy", 1, later(clock))
        assert storage.status() == [GroupStatus("busy", 1, 1, 1, 4), GroupStatus("idle", 0, 0, 0, 6)]
