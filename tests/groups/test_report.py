"""Looking at a group's files, and mending them."""

import random
from dataclasses import replace

import pytest

from strandline.clock import ManualClock
from strandline.errors import Damaged, FormatError, StorageRefused
from strandline.groups import WRITTEN, GroupContent, GroupReport, inspect_group, remove_group, repair_group
from strandline.groups.delta import DELTA_HEADER_BYTES
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
    open_group,
    put,
    state_of,
)

S = 1_000_000_000
CHANGING = frozenset({"create", "pwritev", "sync", "rename", "sync_folder", "remove"})


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    group = open_group(disk, clock=ManualClock(77))
    group.ack_many([0, 1, 5, 6, 9])
    group.mark_many([2, 3, 4], 9 * S)
    group.nack(4, 5 * S)
    return disk


def test_a_report_says_what_the_files_hold(disk: SimDisk) -> None:
    report = inspect_group(disk, FOLDER, NAME)
    content_expected = GroupContent(
        acked_until=2,
        acked_above=3,
        acked_ranges=2,
        inflight=2,
        waiting=1,
        next_expiry_ns=9 * S,
        next_sequence=3,
        frames=3,
        torn_bytes=0,
        clean=False,
        snapshot_ns=77,
    )
    sizes = (len(content(disk, SNAPSHOT)), len(content(disk, DELTA)))
    assert report == GroupReport(NAME, *sizes, content=content_expected)
    open_group(disk).close()
    again = inspect_group(disk, FOLDER, NAME)
    assert again is not None
    assert again.content == replace(content_expected, frames=0, clean=True, snapshot_ns=1_000)


def test_looking_changes_nothing(disk: SimDisk) -> None:
    put(disk, DELTA, delta_frames(disk)[:-1])
    before = {name: content(disk, FOLDER / name) for name in disk.names(FOLDER)}
    disk.fault = Fault(CHANGING, 1, sticky=True)
    report = inspect_group(disk, FOLDER, NAME)
    assert report is not None
    assert report.content is not None
    assert report.content.torn_bytes == 63
    assert {name: content(disk, FOLDER / name) for name in disk.names(FOLDER)} == before


def test_there_is_no_report_of_what_is_not_there(disk: SimDisk) -> None:
    assert inspect_group(disk, FOLDER, "nobody") is None
    disk.fault = Fault(frozenset({"remove"}), 2, sticky=True)
    with pytest.raises(StorageRefused):
        remove_group(disk, FOLDER, NAME)
    disk.fault = None
    assert inspect_group(disk, FOLDER, NAME) is None
    assert repair_group(disk, FOLDER, NAME, 0) is None
    unborn = SimDisk()
    unborn.fault = Fault(frozenset({"rename"}), 2, sticky=True)
    with pytest.raises(StorageRefused):
        open_group(unborn)
    assert unborn.names(FOLDER) == [DELTA.name, SNAPSHOT.name + ".tmp"]
    assert inspect_group(unborn, FOLDER, NAME) is None


def test_a_report_of_damage_says_what_is_safe(disk: SimDisk) -> None:
    for path in (SNAPSHOT, DELTA):
        damaged = copy_of(disk)
        data = bytearray(content(disk, path))
        data[DELTA_HEADER_BYTES + 8] ^= 1
        put(damaged, path, bytes(data))
        report = inspect_group(damaged, FOLDER, NAME)
        assert report is not None
        assert report.content is None
        assert report.problem is not None
        assert str(path) in report.problem
        assert report.safe is not None
        assert "repair_group" in report.safe
        missing = copy_of(disk)
        missing.remove(path)
        report = inspect_group(missing, FOLDER, NAME)
        assert report is not None
        assert report.problem is not None
        assert "missing" in report.problem


def test_a_group_that_is_whole_needs_no_repair(disk: SimDisk) -> None:
    known = facts(state_of(open_group(copy_of(disk))))
    assert repair_group(disk, FOLDER, NAME, 0) is None
    assert repair_group(disk, FOLDER, "nobody", 0) is None
    assert facts(state_of(open_group(disk))) == known


def test_a_repair_keeps_every_frame_that_can_be_read_and_the_damaged_files(disk: SimDisk) -> None:
    data = bytearray(content(disk, DELTA))
    data[DELTA_HEADER_BYTES] ^= 1  # the first frame: the acknowledgements
    put(disk, DELTA, bytes(data))
    with pytest.raises(Damaged):
        open_group(disk)
    repaired = repair_group(disk, FOLDER, NAME, 5)
    assert repaired is not None
    assert "was durable" in repaired.problem
    assert (repaired.snapshot_kept, repaired.frames_kept) == (True, 2)
    assert content(disk, DELTA.with_name(DELTA.name + ".damaged-1")) == data
    assert repaired.set_aside == (f"{SNAPSHOT}.damaged-1", f"{DELTA}.damaged-1")
    group = open_group(disk)
    assert group.acked_until == 0
    assert [group.is_inflight(offset) for offset in (2, 3, 4)] == [True, True, False]
    group.ack(0)
    group.close()
    assert open_group(disk).acked_until == 1


@pytest.mark.parametrize("path", [SNAPSHOT, DELTA])
@pytest.mark.parametrize("how", ["missing", "damaged", "cut"])
def test_a_repair_makes_do_with_either_file(disk: SimDisk, path: object, how: str) -> None:
    group = open_group(disk)
    group.ack_many([2, 3])
    group.ack(20, durability=WRITTEN)
    target = SNAPSHOT if path == SNAPSHOT else DELTA
    data = bytearray(content(disk, target))
    data[40] ^= 1
    if how == "missing":
        disk.remove(target)
    else:
        put(disk, target, bytes(data if how == "damaged" else data[:50]))
    repaired = repair_group(disk, FOLDER, NAME, 5)
    assert repaired is not None
    assert repaired.snapshot_kept == (target == DELTA)
    state = state_of(open_group(disk))
    if target == DELTA:
        assert state.acked_until >= 2
    elif how != "missing" or target == SNAPSHOT:
        assert state.is_acked(3)
        assert state.is_acked(20)


def test_a_repair_that_is_interrupted_is_begun_anew() -> None:
    for step in range(1, 26):
        disk = SimDisk()
        group = open_group(disk)
        for offset in (3, 1, 0):
            group.ack(offset)
        data = bytearray(content(disk, DELTA))
        data[DELTA_HEADER_BYTES] ^= 1
        put(disk, DELTA, bytes(data))
        disk.fault = Fault(CHANGING, step, sticky=True)
        try:
            repair_group(disk, FOLDER, NAME, 5)
        except StorageRefused:
            disk.crash(random.Random(step))
            repair_group(disk, FOLDER, NAME, 5)
        disk.fault = None
        assert state_of(open_group(disk)).acked_until == 2
        copies = [name for name in disk.names(FOLDER) if ".delta.damaged" in name and not name.endswith(".tmp")]
        assert bytes(data) in [content(disk, FOLDER / name) for name in copies]


def test_a_foreign_file_is_not_repaired(disk: SimDisk) -> None:
    put(disk, SNAPSHOT, b"my diary")
    with pytest.raises(FormatError):
        repair_group(disk, FOLDER, NAME, 5)
    assert content(disk, SNAPSHOT) == b"my diary"
