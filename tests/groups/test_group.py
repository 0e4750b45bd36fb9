"""The durable group: what returns is as durable as asked, what fails changes nothing, what is closed stays so."""

import copy
import errno
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from strandline.clock import ManualClock
from strandline.errors import (
    Closed,
    CommitFailed,
    Conflict,
    FormatError,
    InvalidInput,
    Poisoned,
    StaleDelivery,
    StorageRefused,
)
from strandline.events import Event, Events
from strandline.files import Buffer, File, OpenMode, OsDisk
from strandline.gather import InlineExecutor
from strandline.groups import (
    SYNCED,
    WRITTEN,
    Ack,
    AckBelow,
    Delivery,
    Durability,
    Extend,
    Group,
    GroupCompacted,
    GroupConfig,
    GroupOpened,
    GroupPoisoned,
    Mark,
    Nack,
    Take,
    group_names,
    remove_group,
)
from strandline.groups.snapshot import Snapshot
from strandline.groups.store import Cut, DeltaCopy, Store
from strandline.sim import Fault, SimDisk
from tests.groups.helpers import (
    DELTA,
    FOLDER,
    NAME,
    SNAPSHOT,
    content,
    copy_of,
    delta_frames,
    facts,
    on_disk,
    open_group,
    put,
    state_of,
)
from tests.waiting import PATIENCE_S

S = 1_000_000_000


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def reopened(disk: SimDisk) -> tuple[object, ...]:
    """Return what a group knows that is opened on the same files, without touching them."""
    return facts(state_of(open_group(copy_of(disk))))


def test_a_new_group_is_empty_and_is_there_after_closing(disk: SimDisk) -> None:
    group = open_group(disk)
    assert group.name == NAME
    assert group.acked_until == group.lowest_unacked == group.durable_acked_until == 0
    group.close()
    assert group_names(disk, FOLDER) == [NAME]
    assert group_names(disk, Path("/elsewhere")) == []


def test_every_operation_is_there_after_a_crash_of_the_process(disk: SimDisk) -> None:
    group = open_group(disk)
    group.mark_many([0, 1, 2, 3, 4, 5], 100 * S)
    group.ack(3)
    group.ack_many([9, 7, 8])
    group.nack(0, 50 * S, epoch=1)
    group.extend(1, 200 * S, epoch=1)
    group.clear_inflight(2)
    group.mark_inflight(2, 300 * S)
    assert reopened(disk) == facts(state_of(group))
    group.ack_below(2)
    assert reopened(disk) == facts(state_of(group))
    known = facts(state_of(group))
    group.close()
    assert facts(state_of(open_group(disk))) == known
    assert group.deliveries(2) == 2
    assert group.is_inflight(2)
    assert group.is_acked(8)
    assert group.next_expiry() == 100 * S


def test_delivery_counts_survive_reopening_so_that_dead_lettering_works(disk: SimDisk) -> None:
    clock = ManualClock(0)
    for turn in range(1, 5):
        group = open_group(disk, clock=clock)
        assert group.take(1, clock.now_ns() + S, 1) == [Delivery(0, turn, clock.now_ns() + S)]
        group.close()
        clock.advance(2)


def test_a_take_gives_what_expired_and_what_is_fresh(disk: SimDisk) -> None:
    clock = ManualClock(0)
    group = open_group(disk, clock=clock)
    assert [one.offset for one in group.take(2, S, 10)] == [0, 1]
    assert group.deliverable(2, 10) == [2, 3]
    clock.advance(1)
    assert [(one.offset, one.deliveries) for one in group.take(3, 9 * S, 10)] == [(0, 2), (1, 2), (2, 1)]
    assert group.next_ready() is None
    assert group.pop_expired(9 * S) == [0, 1, 2]
    assert group.next_ready() == 9 * S


def test_a_commit_of_many_changes_is_one_frame_and_one_sync(disk: SimDisk) -> None:
    group = open_group(disk)
    group.mark_many(range(10), 100 * S)
    before = disk.operations
    results = group.commit(
        Ack([0, 1, 2, 20]),
        Nack(3, 5 * S, epoch=1),
        Extend(4, 300 * S),
        Mark([15], 50 * S),
        Take(6 * S, 3, 14, 100 * S),
        AckBelow(2),
    )
    assert disk.operations - before == 2
    assert results[0] == 4
    assert results[2] == Delivery(4, 1, 300 * S)
    assert results[3] == [Delivery(15, 1, 50 * S)]
    assert results[4] == [Delivery(3, 2, 100 * S), Delivery(10, 1, 100 * S), Delivery(11, 1, 100 * S)]
    assert results[5] == 0
    assert reopened(disk) == facts(state_of(group))


def test_a_commit_with_one_bad_change_makes_none_and_writes_nothing(disk: SimDisk) -> None:
    group = open_group(disk)
    group.mark_many([0, 1, 2], 100 * S)
    known, before = facts(state_of(group)), disk.operations
    with pytest.raises(StaleDelivery):
        group.commit(Ack([0]), Nack(1, 5 * S, epoch=7))
    with pytest.raises(Conflict):
        group.commit(Nack(1, 5 * S), Mark([2], S))
    with pytest.raises(InvalidInput, match="twice"):
        group.commit(Nack(1, 5 * S), Extend(1, 5 * S))
    with pytest.raises(InvalidInput, match="twice"):
        group.commit(Mark([7], S), Mark([8, 7], S))
    with pytest.raises(InvalidInput, match="twice"):
        group.mark_many([8, 8], S)
    assert facts(state_of(group)) == known
    assert disk.operations == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ack([1, -1]),
        lambda: AckBelow(-1),
        lambda: Mark([-1], 5),
        lambda: Mark([1], -5),
        lambda: Take(-1, 1, 1, 1),
        lambda: Take(1, -1, 1, 1),
        lambda: Take(1, 1, 1, 2**63),
        lambda: Nack(-1, 1),
        lambda: Nack(1, -1),
        lambda: Extend(-1, 1),
        lambda: Extend(1, 2**63),
    ],
)
def test_a_change_that_can_never_be_made_is_refused_before_it_is_sent(make: object) -> None:
    assert callable(make)
    with pytest.raises(InvalidInput):
        make()


def test_a_commit_too_large_for_one_frame_is_refused(disk: SimDisk) -> None:
    group = open_group(disk)
    with pytest.raises(InvalidInput, match="operations"):
        group.take(2**24 + 1, 10 * S, 10)


def test_what_the_same_commit_acknowledges_is_not_given_again(disk: SimDisk) -> None:
    clock = ManualClock(0)
    group = open_group(disk, clock=clock)
    group.take(2, S, 10)
    clock.advance(5)
    acked, given = group.commit(Ack([0]), Take(5 * S, 2, 10, 99 * S))
    assert acked == 1
    assert given == [Delivery(1, 2, 99 * S)]
    assert reopened(disk) == facts(state_of(group))


class SlowDisk(SimDisk):
    """A disk whose files sync only when they may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.is_syncing = threading.Event()
        self.syncs = 0

    def open(self, path: Path, mode: OpenMode) -> File:
        return SlowFile(self, super().open(path, mode))

    def hold(self) -> None:
        """Let the next sync wait."""
        self.may_sync.clear()
        self.is_syncing.clear()


class SlowFile:
    """A file of a `SlowDisk`."""

    def __init__(self, disk: SlowDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self.pread = file.pread
        self.truncate = file.truncate
        self.allocate = file.allocate
        self.size = file.size
        self.close = file.close

    def sync(self) -> None:
        self._disk.syncs += 1
        self._disk.is_syncing.set()
        assert self._disk.may_sync.wait(PATIENCE_S)
        self._file.sync()

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        written = self._file.pwritev(buffers, position)
        if sync:
            self.sync()
        return written


def slow_group(slow: SlowDisk, executor: ThreadPoolExecutor) -> Group:
    return Group.open(slow, FOLDER, NAME, executor=executor, clock=ManualClock(0))


def test_the_floor_moves_only_after_the_acknowledgement_is_durable() -> None:
    slow = SlowDisk()
    with ThreadPoolExecutor(2) as executor:
        group = slow_group(slow, executor)
        slow.hold()
        future = group.commit_soon(Ack([0]))
        assert slow.is_syncing.wait(PATIENCE_S)
        assert group.acked_until == 0
        assert not group.is_acked(0)
        assert not future.done()
        slow.may_sync.set()
        assert future.result(PATIENCE_S) == [1]
        assert group.acked_until == group.durable_acked_until == 1
        group.close()


def test_an_offset_is_reserved_while_its_mark_is_being_written() -> None:
    slow = SlowDisk()
    with ThreadPoolExecutor(2) as executor:
        group = slow_group(slow, executor)
        slow.hold()
        first = group.commit_soon(Take(0, 2, 10, 9 * S))
        assert slow.is_syncing.wait(PATIENCE_S)
        second = group.commit_soon(Take(0, 2, 10, 9 * S))
        assert group.is_inflight(0)
        slow.may_sync.set()
        assert [first.result(PATIENCE_S), second.result(PATIENCE_S)] == [
            [[Delivery(0, 1, 9 * S), Delivery(1, 1, 9 * S)]],
            [[Delivery(2, 1, 9 * S), Delivery(3, 1, 9 * S)]],
        ]
        group.close()


def test_callers_that_wait_share_one_sync() -> None:
    slow = SlowDisk()
    with ThreadPoolExecutor(2) as executor:
        group = slow_group(slow, executor)
        group.ack(1000)  # and with it space is reserved for the others
        slow.hold()
        futures = [group.commit_soon(Ack([0]))]
        assert slow.is_syncing.wait(PATIENCE_S)
        before = slow.syncs
        futures += [group.commit_soon(Ack([offset])) for offset in range(1, 100)]
        slow.may_sync.set()
        assert [future.result(PATIENCE_S) for future in futures] == [[1]] * 100
        assert slow.syncs == before + 1
        assert group.acked_until == 100
        group.close()


def test_one_callers_bad_change_does_not_spoil_the_commit_of_the_others() -> None:
    slow = SlowDisk()
    with ThreadPoolExecutor(2) as executor:
        group = slow_group(slow, executor)
        slow.hold()
        futures = [group.commit_soon(Ack([0]))]
        assert slow.is_syncing.wait(PATIENCE_S)
        futures += [group.commit_soon(Ack([1])), group.commit_soon(Nack(5, 0)), group.commit_soon(Ack([2]))]
        slow.may_sync.set()
        assert futures[1].result(PATIENCE_S) == futures[3].result(PATIENCE_S) == [1]
        with pytest.raises(StaleDelivery):
            futures[2].result(PATIENCE_S)
        group.close()


def test_written_changes_are_not_synced_and_do_not_count_as_durable(disk: SimDisk) -> None:
    group = open_group(disk)
    before = disk.operations
    group.ack(0, durability=WRITTEN)
    assert disk.operations - before == 1
    assert (group.acked_until, group.durable_acked_until) == (1, 0)
    group.sync()
    assert disk.operations - before == 2
    assert (group.acked_until, group.durable_acked_until) == (1, 1)
    group.sync()
    assert disk.operations - before == 2


def test_acknowledging_durably_what_was_only_written_makes_it_durable(disk: SimDisk) -> None:
    group = open_group(disk)
    group.ack(0, durability=WRITTEN)
    assert group.ack(0, durability=SYNCED) == 0
    assert group.durable_acked_until == 1


def test_a_take_in_vain_writes_and_syncs_nothing(disk: SimDisk) -> None:
    group = open_group(disk)
    group.ack(0, durability=WRITTEN)
    before = disk.operations
    assert group.take(5, 9 * S, 1) == []
    assert group.ack_many([]) == 0
    assert group.ack_below(0) == 0
    assert disk.operations == before


@pytest.mark.parametrize(("operation", "durability"), [("pwritev", SYNCED), ("pwritev", WRITTEN), ("sync", SYNCED)])
def test_after_a_failed_write_or_sync_nothing_is_accepted_until_reopening(
    disk: SimDisk, operation: str, durability: Durability
) -> None:
    heard: list[Event] = []
    group = Group.open(disk, FOLDER, NAME, executor=InlineExecutor(), events=Events(heard.append))
    group.ack_many([0, 5])
    disk.fault = Fault(frozenset({operation}), 1, errno.ENOSPC)
    with pytest.raises(CommitFailed) as caught:
        group.ack(1, durability=durability)
    assert caught.value.hint is not None
    assert "space" in caught.value.hint
    assert isinstance(heard[-1], GroupPoisoned)
    assert (group.acked_until, group.durable_acked_until) == (1, 1)
    for call in (lambda: group.ack(2), lambda: group.take(1, S, 9), group.sync):
        with pytest.raises(Poisoned):
            call()
    group.compact_if_due()
    group.compact()
    group.close()
    again = open_group(disk)
    assert again.acked_until in (1, 2)
    assert again.is_acked(5)
    assert again.ack(2) == 1


def test_everybody_who_waits_on_a_failed_commit_is_told() -> None:
    slow = SlowDisk()
    with ThreadPoolExecutor(2) as executor:
        group = slow_group(slow, executor)
        slow.hold()
        first = group.commit_soon(Ack([0]))
        assert slow.is_syncing.wait(PATIENCE_S)
        others = [group.commit_soon(Ack([offset])) for offset in (1, 2)]
        slow.fault = Fault(frozenset({"sync"}), 1)
        slow.may_sync.set()
        with pytest.raises(CommitFailed):
            first.result(PATIENCE_S)
        for future in others:
            with pytest.raises(Poisoned):
                future.result(PATIENCE_S)
        group.close()


def test_an_interrupted_commit_poisons_the_group(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    group = open_group(disk)

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(disk, "step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            group.ack(0)
    with pytest.raises(Poisoned):
        group.ack(1)
    group.close()


def test_a_closed_group_refuses_changes_and_closing_twice_is_harmless(disk: SimDisk) -> None:
    group = open_group(disk)
    group.close()
    group.close()
    for call in (lambda: group.ack(2), lambda: group.commit_soon(Ack([1])), group.sync):
        with pytest.raises(Closed):
            call()
    group.compact()
    with open_group(disk) as again:
        assert again.acked_until == 0


def test_closing_flushes_what_was_only_written(disk: SimDisk) -> None:
    group = open_group(disk)
    group.ack(0, durability=WRITTEN)
    group.close()
    for seed in range(10):
        twin = copy.deepcopy(disk)
        twin.crash(Random(seed))
        assert open_group(twin).acked_until == 1


def test_a_failed_close_says_so(disk: SimDisk) -> None:
    group = open_group(disk)
    group.ack(0, durability=WRITTEN)
    disk.fault = Fault(frozenset({"sync"}), 1)
    with pytest.raises(CommitFailed):
        group.close()


def test_opening_after_a_proper_close_writes_nothing(disk: SimDisk) -> None:
    group = open_group(disk)
    group.ack(0)
    group.close()
    before = disk.operations
    again = open_group(disk)
    reads = 2
    assert disk.operations == before + reads
    again.close()
    assert disk.operations == before + reads


def test_a_folder_that_refuses_is_a_typed_error(disk: SimDisk) -> None:
    disk.fault = Fault(frozenset({"create"}), 1, errno.EROFS)
    with pytest.raises(StorageRefused, match="EROFS"):
        open_group(disk)


def test_a_file_that_was_renamed_by_hand_is_refused(disk: SimDisk) -> None:
    open_group(disk, name="other").close()
    disk.rename(FOLDER / "other.snapshot", SNAPSHOT)
    disk.rename(FOLDER / "other.delta", DELTA)
    with pytest.raises(FormatError, match="'other'"):
        open_group(disk)


def test_groups_share_a_folder_without_meeting(disk: SimDisk) -> None:
    names = ["a", "b/c", "größe", "a.snapshot"]
    for number, name in enumerate(names):
        with open_group(disk, name=name) as group:
            group.ack_below(number)
    assert group_names(disk, FOLDER) == sorted(names)
    for number, name in enumerate(names):
        with open_group(disk, name=name) as group:
            assert group.acked_until == number


def test_a_removed_group_is_gone_and_may_be_created_anew(disk: SimDisk) -> None:
    assert not remove_group(disk, FOLDER, NAME)
    with open_group(disk) as group:
        group.ack(0)
    assert remove_group(disk, FOLDER, NAME)
    assert disk.names(FOLDER) == []
    assert open_group(disk).acked_until == 0


def test_a_removal_that_was_interrupted_is_finished_by_whoever_comes_next() -> None:
    for step in range(1, 7):
        disk = SimDisk()
        with open_group(disk) as group:
            group.ack(0)
        disk.fault = Fault(frozenset({"create", "pwritev", "sync", "rename", "sync_folder", "remove"}), step)
        with pytest.raises(StorageRefused, match="EIO"):
            remove_group(disk, FOLDER, NAME)
        disk.fault = None
        listed = group_names(disk, FOLDER)
        assert open_group(disk).acked_until == len(listed)


SMALL = GroupConfig(compact_bytes_min=1024, compact_age_s=None)


def test_a_delta_is_compacted_when_a_batch_carries_it_past_the_size(disk: SimDisk) -> None:
    heard: list[Event] = []
    group = Group.open(disk, FOLDER, NAME, config=SMALL, executor=InlineExecutor(), events=Events(heard.append))
    group.ack_many(range(2, 60, 2))
    assert 64 < len(delta_frames(disk)) < 1024
    group.ack_many(range(101, 301, 2))
    assert len(delta_frames(disk)) == 64
    assert [type(event) for event in heard] == [GroupOpened, GroupCompacted]
    assert reopened(disk) == facts(state_of(group))


def test_a_delta_grows_with_its_snapshot_before_it_is_compacted_again(disk: SimDisk) -> None:
    heard: list[Event] = []
    group = Group.open(disk, FOLDER, NAME, config=SMALL, executor=InlineExecutor(), events=Events(heard.append))
    written = 0
    for start in range(1, 40_000, 400):
        group.ack_many(range(start, start + 400, 2))
        written += 40 + 24 * 200
    compacted = [event for event in heard if isinstance(event, GroupCompacted)]
    assert sum(event.snapshot_bytes for event in compacted) < 2 * written
    assert 3 < len(compacted) < 30


def test_a_delta_is_compacted_by_age_even_if_nothing_is_changed(disk: SimDisk) -> None:
    clock = ManualClock(0)
    config = GroupConfig(compact_age_s=60)
    group = open_group(disk, config=config, clock=clock)
    group.compact_if_due()
    clock.advance(100)
    group.compact_if_due()
    group.ack(5)
    clock.advance(59)
    group.ack(6)
    assert len(delta_frames(disk)) == 64 + 2 * 64
    clock.advance(1)
    group.compact_if_due()
    assert len(delta_frames(disk)) == 64
    group.close()
    clock.advance(100)
    group = open_group(disk, config=config, clock=clock)
    group.ack(7)
    group.close()
    clock.advance(100)
    group = open_group(disk, config=config, clock=clock)
    assert len(delta_frames(disk)) == 64
    assert state_of(group).acked_ranges() == [(5, 8)]


def test_a_failed_compaction_poisons_and_loses_nothing() -> None:
    steps = frozenset({"create", "pwritev", "sync", "rename", "sync_folder", "remove", "pread"})
    fates = []
    for step in range(1, 30):
        disk = SimDisk()
        group = open_group(disk)
        group.ack_many([3, 4])
        group.mark_many([0, 1], 9 * S)
        known = facts(state_of(group))
        disk.fault = Fault(steps, step)
        try:
            group.compact()
        except CommitFailed:
            fates.append("failed")
            with pytest.raises(Poisoned):
                group.ack(0)
        else:
            fates.append("done")
            disk.fault = None
            group.ack(9)
            known = facts(state_of(group))
        disk.fault = None
        assert reopened(disk) == known
    assert fates.count("failed") >= 9
    assert fates[-1] == "done"


def test_a_failed_compaction_in_the_background_poisons(disk: SimDisk) -> None:
    group = open_group(disk, config=SMALL)
    disk.fault = Fault(frozenset({"rename"}), 1)
    assert group.ack_many(range(1, 201, 2)) == 100
    with pytest.raises(Poisoned):
        group.ack(0)
    group.close()
    assert len(state_of(open_group(disk)).acked_ranges()) == 100


def test_changes_during_a_compaction_are_kept(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are committed after the cut: while the snapshot is written, and while the delta is copied."""
    monkeypatch.setattr("strandline.groups.store.COPY_BYTES", 100)
    clock = ManualClock(0)
    group = open_group(disk, config=GroupConfig(compact_age_s=60), clock=clock)
    group.ack_many([2, 4])
    write_snapshot, copy_delta = Store.write_snapshot, Store.copy_delta

    def busy_write(store: Store, snapshot: Snapshot) -> None:
        for offset in range(100, 120):
            group.ack(offset)
        write_snapshot(store, snapshot)
        assert on_disk(disk) == facts(state_of(group))

    def busy_copy(store: Store, cut: Cut, now_ns: int) -> DeltaCopy:
        delta_copy = copy_delta(store, cut, now_ns)
        group.mark_many([7, 8], 9 * S)
        group.ack(0)
        assert on_disk(disk) == facts(state_of(group))
        return delta_copy

    with monkeypatch.context() as patched:
        patched.setattr(Store, "write_snapshot", busy_write)
        patched.setattr(Store, "copy_delta", busy_copy)
        group.compact()
    for seed in range(20):
        twin = copy.deepcopy(disk)
        twin.crash(Random(seed))
        assert on_disk(twin) == facts(state_of(group))
    assert len(delta_frames(disk)) > 64
    clock.advance(60)
    group.compact_if_due()
    assert len(delta_frames(disk)) == 64
    group.ack(1)
    assert group.acked_until == 3
    assert reopened(disk) == facts(state_of(group))


def test_a_group_poisoned_during_a_compaction_is_not_touched_by_the_rest_of_it(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = open_group(disk)
    group.ack(0)
    copy_delta = Store.copy_delta

    def failing_copy(store: Store, cut: Cut, now_ns: int) -> DeltaCopy:
        delta_copy = copy_delta(store, cut, now_ns)
        disk.fault = Fault(frozenset({"sync"}), 1)
        with pytest.raises(CommitFailed):
            group.ack(1)
        return delta_copy

    with monkeypatch.context() as patched:
        patched.setattr(Store, "copy_delta", failing_copy)
        before = content(disk, DELTA)[:128]
        group.compact()
    assert content(disk, DELTA)[:128] == before
    group.close()
    again = open_group(disk)
    assert again.acked_until in (1, 2)


def test_an_engine_without_work_to_compact_begins_nothing(disk: SimDisk) -> None:
    group = open_group(disk, config=GroupConfig(compact_bytes_min=1024, compact_age_s=0))
    before = disk.operations
    group.compact_if_due()
    assert disk.operations == before


def test_many_threads_over_a_real_disk_lose_nothing_and_share_nothing(tmp_path: Path) -> None:
    config = GroupConfig(compact_bytes_min=2048, compact_age_s=None)
    end = 600
    nacked: list[int] = []
    acked: list[int] = []
    failures: list[BaseException] = []
    heard: list[Event] = []

    def work(group: Group) -> None:
        try:
            while group.acked_until < end:
                for job in group.take(7, 2**62, end):
                    if job.deliveries == 1 and job.offset % 5 == 0:
                        group.nack(job.offset, 0, job.epoch)
                        nacked.append(job.offset)
                    else:
                        assert group.ack(job.offset) == 1
                        acked.append(job.offset)
        except BaseException as error:  # noqa: BLE001 - told to the test, which fails on it
            failures.append(error)

    with Group.open(OsDisk(), tmp_path, NAME, config=config, events=Events(heard.append)) as group:
        threads = [threading.Thread(target=work, args=(group,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert sorted(nacked) == list(range(0, end, 5))
    assert sorted(acked) == list(range(end))
    assert any(isinstance(event, GroupCompacted) for event in heard)
    with Group.open(OsDisk(), tmp_path, NAME) as again:
        assert facts(state_of(again)) == (end, [], [], [])


def test_a_foreign_file_in_the_place_of_a_snapshot_is_left_alone(disk: SimDisk) -> None:
    disk.make_folder(FOLDER)
    put(disk, SNAPSHOT, b"my diary")
    put(disk, DELTA, b"more of it")
    with pytest.raises(FormatError):
        open_group(disk)
    assert content(disk, SNAPSHOT) == b"my diary"
