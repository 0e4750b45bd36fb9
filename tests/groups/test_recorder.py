"""A group's files for an owner with a state of his own: what he records is there when the files are opened again."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.clock import ManualClock
from strandline.errors import Closed, CommitFailed, Poisoned, StrandlineError
from strandline.files import OsDisk
from strandline.gather import InlineExecutor
from strandline.groups import (
    INFLIGHT,
    Acks,
    Captured,
    GroupConfig,
    GroupState,
    Recorder,
    Scheduled,
    acks_but,
    format_acked,
    format_counters,
    format_deliveries,
    format_scheduled,
    inspect_group,
)
from strandline.sim import Fault, SimDisk
from tests.groups.helpers import FOLDER, NAME, facts

SECOND = 1_000_000_000
SMALL = GroupConfig(compact_bytes_min=1024)


def open_recorder(disk: SimDisk, clock: ManualClock | None = None, config: GroupConfig | None = None) -> Recorder:
    return Recorder.open(disk, FOLDER, NAME, clock=clock or ManualClock(1), executor=InlineExecutor(), config=config)


def found(disk: SimDisk) -> GroupState:
    """Return what is in the files now, opening them."""
    return open_recorder(disk).take_state()


def deliveries(*offsets: int) -> bytes:
    return format_deliveries(INFLIGHT, np.array(offsets, np.uint64), 9, 1)


def told(into: list[object]) -> Callable[[BaseException | None], None]:
    return into.append


def test_what_was_recorded_is_found_after_the_process_died() -> None:
    disk = SimDisk()
    recorder = open_recorder(disk)
    assert facts(recorder.take_state()) == facts(GroupState())

    recorder.record([deliveries(3, 4, 5), format_counters({0: 7})])
    recorder.record([format_acked([(0, 5)]), format_counters({0: 8, 2: 1})])
    disk.kill()

    state = found(disk)
    assert facts(state) == (5, [], [Scheduled(9, 5, 1)], [])
    assert state.counters == {0: 8, 2: 1}


def test_the_state_is_handed_over_once() -> None:
    recorder = open_recorder(SimDisk())
    recorder.take_state()

    with pytest.raises(Closed):
        recorder.take_state()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_what_was_synced_survives_even_if_the_files_were_begun_by_halves(failing: int) -> None:
    for seed in range(40):
        disk = SimDisk()
        disk.make_folder(FOLDER)
        recorder = open_recorder(disk)
        disk.fault = Fault(frozenset({"sync_folder"}), failing)
        with contextlib.suppress(StrandlineError):
            recorder.record([format_counters({0: 1})])
        disk.kill()
        recorder = open_recorder(disk)
        recorder.take_state()
        recorder.record([format_counters({0: 7})])
        recorder.sync()
        disk.crash(Random(seed))
        assert found(disk).counters == {0: 7}, seed


@pytest.mark.parametrize("seed", range(8))
def test_what_was_synced_survives_power_loss(seed: int) -> None:
    disk = SimDisk()
    recorder = open_recorder(disk)
    recorder.record([format_counters({0: 1})])
    outcomes: list[object] = []
    recorder.sync_soon(told(outcomes))
    assert outcomes == [None]
    recorder.record([format_counters({0: 2})])

    disk.crash(Random(seed))

    assert found(disk).counters in ({0: 1}, {0: 2})


def test_what_nobody_asks_for_is_synced_after_a_second() -> None:
    disk, clock = SimDisk(), ManualClock(SECOND)
    recorder = open_recorder(disk, clock)
    due = [recorder.next_sync_ns]
    recorder.record([format_counters({0: 1})])
    for now_ns in (SECOND, 2 * SECOND - 1, 2 * SECOND):
        recorder.sync_if_due(now_ns)
        due.append(recorder.next_sync_ns)

    assert due == [None, 2 * SECOND, 2 * SECOND, None]
    disk.crash(Random(0))
    assert found(disk).counters == {0: 1}


def test_a_large_delta_is_replaced_by_everything_that_is_known() -> None:
    disk = SimDisk()
    recorder = open_recorder(disk, config=SMALL)
    at = 0
    while not recorder.is_large:
        at += 1
        recorder.record([deliveries(at), format_counters({0: at})])

    recorder.compact_soon(Captured(Acks(at), [format_scheduled(Scheduled(9, at, 1))], [], {0: at}))
    recorder.record([format_counters({1: 5})])

    report = inspect_group(disk, FOLDER, NAME)
    assert report is not None
    assert report.content is not None
    assert report.content.frames == 1
    disk.kill()
    state = found(disk)
    assert facts(state) == (at, [], [Scheduled(9, at, 1)], [])
    assert state.counters == {0: at, 1: 5}


class BusyDisk(SimDisk):
    """Calls somebody while a delta is put in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if self.meanwhile is not None and target.suffix == ".delta":
            self.meanwhile()


def test_what_is_recorded_while_files_are_exchanged_is_written_afterwards() -> None:
    disk = BusyDisk()
    recorder = open_recorder(disk)
    recorder.record([format_counters({0: 1})])
    disk.meanwhile = lambda: recorder.record([format_counters({0: 3})])

    recorder.compact_soon(Captured(Acks(), [], [], {0: 2}))
    disk.meanwhile = None
    disk.kill()

    assert found(disk).counters == {0: 3}


@pytest.mark.parametrize("seed", range(8))
def test_everything_can_be_replaced_at_once_and_for_good(seed: int) -> None:
    disk = SimDisk()
    recorder = open_recorder(disk)
    recorder.record([format_acked([(0, 100)]), format_counters({0: 100})])

    recorder.replace(Captured(Acks(10), [], [], {0: 10}))
    recorder.record([deliveries(11)])
    recorder.sync()
    disk.crash(Random(seed))

    state = found(disk)
    assert facts(state) == (10, [], [Scheduled(9, 11, 1)], [])
    assert state.counters == {0: 10}


@pytest.mark.parametrize("operation", ["pwritev", "sync"])
def test_after_a_failure_nothing_more_is_written_and_everybody_is_told(operation: str) -> None:
    disk = SimDisk()
    recorder = open_recorder(disk)
    recorder.record([format_counters({0: 0})])
    disk.fault = Fault(frozenset({operation}), 1)
    outcomes: list[object] = []
    if operation == "pwritev":
        with pytest.raises(CommitFailed):
            recorder.record([format_counters({0: 1})])
    else:
        recorder.record([format_counters({0: 1})])
        recorder.sync_soon(told(outcomes))
        assert [type(one) for one in outcomes] == [CommitFailed]

    with pytest.raises(Poisoned):
        recorder.record([format_counters({0: 2})])
    with pytest.raises(Poisoned):
        recorder.sync_soon(told(outcomes))
    recorder.close()


def test_files_come_with_the_first_frame_and_whoever_waits_hears_that_they_could_not() -> None:
    disk, clock = SimDisk(), ManualClock()
    disk.make_folder(FOLDER)
    open_recorder(disk).close()
    assert disk.names(FOLDER) == []
    recorder = open_recorder(disk, clock=clock)
    disk.fault = Fault(frozenset({"create"}), 1)
    recorder.record([format_counters({0: 1})])
    assert recorder.next_sync_ns is not None
    clock.advance(2)
    with pytest.raises(Poisoned):
        recorder.sync_if_due(clock.now_ns())
    recorder.close()
    recorder = open_recorder(disk)
    recorder.record([format_counters({0: 2})])
    recorder.close()
    assert found(disk).counters == {0: 2}


def test_a_closed_recorder_takes_nothing_and_its_files_open_again() -> None:
    disk = SimDisk()
    recorder = open_recorder(disk)
    recorder.record([format_counters({0: 1})])
    recorder.close()
    recorder.close()

    with pytest.raises(Closed):
        recorder.record([format_counters({0: 2})])
    assert found(disk).counters == {0: 1}


def test_recording_goes_on_while_files_are_synced_and_replaced(tmp_path: Path) -> None:
    clock = ManualClock(1)
    outcomes: list[object] = []
    with ThreadPoolExecutor(2) as executor:
        recorder = Recorder.open(OsDisk(), tmp_path, NAME, clock=clock, executor=executor, config=SMALL)
        for at in range(1, 2001):
            recorder.record([deliveries(at), format_acked([(0, at)]), format_counters({0: at})])
            if recorder.is_large:
                recorder.compact_soon(Captured(Acks(at), [format_scheduled(Scheduled(9, at, 1))], [], {0: at}))
            if at % 50 == 0:
                recorder.sync_soon(told(outcomes))
    recorder.close()

    assert outcomes == [None] * 40
    state = Recorder.open(OsDisk(), tmp_path, NAME, clock=clock, executor=InlineExecutor()).take_state()
    assert facts(state) == (2000, [], [Scheduled(9, 2000, 1)], [])
    assert state.counters == {0: 2000}


@given(st.sets(st.integers(0, 60)), st.integers(0, 70))
def test_everything_but_some_is_exactly_that(missing: set[int], end: int) -> None:
    kept = sorted(offset for offset in missing if offset < end)
    acks = acks_but(np.array(kept, np.int64), end)

    assert [offset for offset in range(80) if offset in acks] == [n for n in range(end) if n not in missing]


class _Later(InlineExecutor):
    """Runs what it was given when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future[Any]:
        self.waiting.append(lambda: fn(*args, **kwargs))
        return Future()


def test_a_compaction_that_comes_late_does_not_undo_what_took_its_place() -> None:
    disk, later = SimDisk(), _Later()
    recorder = Recorder.open(disk, FOLDER, NAME, clock=ManualClock(1), executor=later, config=SMALL)
    recorder.take_state()
    recorder.record([deliveries(1, 2, 3), format_counters({0: 3})])
    recorder.compact_soon(Captured(Acks(), [format_scheduled(Scheduled(9, 3, 1))], [], {0: 3}))

    recorder.replace(Captured(Acks(), [], [], {0: 0}))
    recorder.record([deliveries(7), format_counters({0: 1})])
    for work in later.waiting:
        work()
    disk.kill()

    state = found(disk)
    assert facts(state)[2] == [Scheduled(9, 7, 1)]
    assert state.counters == {0: 1}
