"""Recovery: torn, damaged or interrupted anywhere, a prefix comes back, or a typed error and nothing is changed."""

import contextlib
import copy
import random
from itertools import pairwise
from pathlib import Path

import pytest

from strandline.errors import CommitFailed, Damaged, FormatError, StrandlineError
from strandline.groups import WRITTEN, Durability, GroupState
from strandline.groups.delta import DELTA_HEADER_BYTES, parse_delta_header, walk
from strandline.groups.recovery import recover
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
CHANGING = frozenset({"create", "pwritev", "sync", "rename", "sync_folder", "remove", "truncate"})
Facts = tuple[object, ...]


def history(disk: SimDisk, durability: Durability = Durability.SYNCED) -> list[Facts]:
    """Make a group with frames of all kinds, unclosed; return what it knew after each."""
    group = open_group(disk)
    known = [facts(state_of(group))]
    for change in (
        lambda: group.mark_many(range(40), 100 * S, durability=durability),
        lambda: group.ack_many([3, 5, 4, 900], durability=durability),
        lambda: group.nack(0, 50 * S, durability=durability),
        lambda: group.extend(1, 70 * S, durability=durability),
        lambda: group.ack_many(range(1000, 1300, 3), durability=durability),
        lambda: group.ack_below(2, durability=durability),
        lambda: group.clear_inflight(2, durability=durability),
    ):
        change()
        known.append(facts(state_of(group)))
    return known


def recovered(disk: SimDisk) -> Facts:
    return facts(state_of(open_group(disk)))


def frame_ends(data: bytes) -> list[int]:
    return [DELTA_HEADER_BYTES, *(frame.end for frame in walk(data, parse_delta_header(data, "x")))]


def with_delta(disk: SimDisk, data: bytes) -> SimDisk:
    twin = copy_of(disk)
    put(twin, DELTA, data)
    return twin


def read_back(snapshot: bytes, delta: bytes) -> Facts:
    return facts(recover(NAME, snapshot, delta, ("snapshot", "delta")).state)


def test_a_delta_cut_at_any_byte_gives_the_frames_before_the_cut() -> None:
    disk = SimDisk()
    known = history(disk)
    snapshot, delta = content(disk, SNAPSHOT), delta_frames(disk)
    ends = frame_ends(delta)
    assert len(ends) == len(known)
    for size in range(DELTA_HEADER_BYTES, len(delta) + 1):
        whole = sum(end <= size for end in ends) - 1
        assert read_back(snapshot, delta[:size]) == known[whole]
    for size in range(DELTA_HEADER_BYTES):
        with pytest.raises(Damaged):
            read_back(snapshot, delta[:size])


def test_a_torn_tail_is_left_behind_and_new_frames_follow_the_good_ones() -> None:
    disk = SimDisk()
    known = history(disk)
    delta = delta_frames(disk)
    ends = frame_ends(delta)
    for cut in (ends[-1] - 4, ends[-2] + 1, ends[-2] + 39, ends[-4] + 1000):
        whole = sum(end <= cut for end in ends) - 1
        for tail in (b"", bytes(100), b"\xff" * 5000):
            torn = with_delta(disk, delta[:cut] + tail)
            group = open_group(torn)
            assert facts(state_of(group)) == known[whole]
            group.ack(5000)
            after = facts(state_of(group))
            assert recovered(copy_of(torn)) == after
            group.close()
            assert recovered(torn) == after


def test_zeros_after_the_last_frame_are_no_torn_tail() -> None:
    disk = SimDisk()
    known = history(disk)
    frames = delta_frames(disk)
    assert not any(content(disk, DELTA)[len(frames) :])
    for zeros in (1, 39, 40, 5000):
        recovery = recover(NAME, content(disk, SNAPSHOT), frames + bytes(zeros), ("snapshot", "delta"))
        assert (facts(recovery.state), recovery.good_bytes, recovery.torn_bytes) == (known[-1], len(frames), 0)
    torn = frames + bytes(100) + b"x"
    recovery = recover(NAME, content(disk, SNAPSHOT), torn, ("snapshot", "delta"))
    assert (facts(recovery.state), recovery.torn_bytes) == (known[-1], 101)


def test_a_bad_frame_before_one_that_proves_it_durable_is_damage_and_nothing_is_changed() -> None:
    disk = SimDisk()
    history(disk)
    delta = delta_frames(disk)
    ends = frame_ends(delta)
    rng = random.Random(5)
    for start, end in pairwise(ends[:-1]):
        for at in {start, end - 1, rng.randrange(start, end)}:
            data = bytearray(delta)
            data[at] ^= 0x10
            damaged = with_delta(disk, bytes(data))
            before = damaged.operations
            with pytest.raises(Damaged, match="was durable") as caught:
                open_group(damaged)
            assert "nothing was changed" in caught.value.safe
            assert damaged.operations - before == 2  # the two files were read
            assert content(damaged, DELTA) == data


def test_after_a_proper_close_damage_to_the_last_frame_is_noticed_too() -> None:
    disk = SimDisk()
    group = open_group(disk)
    group.ack(7)
    group.close()
    delta = bytearray(content(disk, DELTA))
    delta[DELTA_HEADER_BYTES + 50] ^= 1
    with pytest.raises(Damaged, match="was durable"):
        open_group(with_delta(disk, bytes(delta)))


def test_a_closing_frame_that_only_the_cache_has_does_not_come_between_durable_ones() -> None:
    """As after a failed sync: it is seen until power is lost, and no later sync brings it to the disk."""
    disk = SimDisk()
    group = open_group(disk)
    group.ack(0)
    disk.fault = Fault(frozenset({"sync"}), 1)
    with pytest.raises(CommitFailed):
        group.close()
    disk.fault = None
    again = open_group(disk)
    for offset in (1, 2):
        again.ack(offset)
    for seed in range(10):
        twin = copy.deepcopy(disk)
        twin.crash(random.Random(seed))
        assert open_group(twin).acked_until == 3


def test_a_bad_frame_that_nobody_was_told_of_is_torn_whatever_follows() -> None:
    disk = SimDisk()
    known = history(disk, WRITTEN)
    delta = delta_frames(disk)
    ends = frame_ends(delta)
    for number, start in enumerate(ends[:-1]):
        data = bytearray(delta)
        data[start + 20] ^= 1
        assert recovered(with_delta(disk, bytes(data))) == known[number]


def test_frames_only_count_once_whichever_snapshot_they_follow() -> None:
    """Every pair of an older or newer snapshot with an older or newer delta that a compaction can leave."""
    disk = SimDisk()
    group = open_group(disk)
    group.mark_inflight(0, 5 * S)
    group.nack(0, 1)
    old_snapshot, old_delta = content(disk, SNAPSHOT), content(disk, DELTA)
    group.compact()
    new_snapshot, new_delta = content(disk, SNAPSHOT), content(disk, DELTA)
    known = facts(state_of(group))
    for snapshot, delta in ((old_snapshot, old_delta), (new_snapshot, old_delta), (new_snapshot, new_delta)):
        assert read_back(snapshot, delta) == known
    with pytest.raises(Damaged, match="missing between"):
        read_back(old_snapshot, new_delta)


def test_an_old_delta_never_undoes_what_came_after_it() -> None:
    disk = SimDisk()
    group = open_group(disk)
    group.mark_inflight(0, 5 * S)
    group.nack(0, 1)
    old_delta = delta_frames(disk)
    group.mark_inflight(0, 9 * S)
    group.compact()
    known = facts(state_of(group))
    assert read_back(content(disk, SNAPSHOT), old_delta) == known
    again = with_delta(disk, old_delta)
    reopened = open_group(again)
    assert reopened.deliveries(0) == 2
    reopened.ack(0)
    assert recovered(again) == (1, [], [], [])


def test_a_crash_after_any_step_of_creating_compacting_or_closing_loses_nothing() -> None:
    """Whatever of the unsynced survives: each step is tried with several fates."""
    failures = 0
    for step in range(1, 60):
        for seed in range(8):
            disk = SimDisk()
            floor = 0
            disk.fault = Fault(CHANGING, step, sticky=True)
            try:
                group = open_group(disk)
                for offset in range(3):
                    group.ack(offset)
                    floor = offset + 1
                group.mark_inflight(9, 5 * S)
                group.compact()
                group.ack(3)
                floor = 4
                group.close()
            except (StrandlineError, OSError):
                failures += 1
            disk.crash(random.Random(seed))
            state = state_of(open_group(disk))
            assert floor <= state.acked_until <= floor + 1, f"step {step}, seed {seed}"
            assert state.deliveries(9) <= 1
            assert recovered(disk)[0] == state.acked_until
    assert failures > 100


def test_a_crash_while_recovering_changes_nothing_that_matters() -> None:
    for step in range(1, 14):
        for seed in range(6):
            disk = SimDisk()
            known = history(disk)
            torn = with_delta(disk, delta_frames(disk)[:-7])
            torn.fault = Fault(CHANGING, step, sticky=True)
            with contextlib.suppress(StrandlineError):
                open_group(torn)
            torn.crash(random.Random(seed))
            assert recovered(torn) == known[-2], f"step {step}, seed {seed}"


@pytest.mark.parametrize("path", [SNAPSHOT, DELTA])
def test_a_missing_file_is_damage(path: Path) -> None:
    disk = SimDisk()
    history(disk)
    disk.remove(path)
    with pytest.raises(Damaged, match="missing"):
        open_group(disk)


def test_files_of_two_groups_are_not_mixed() -> None:
    disk, other = SimDisk(), SimDisk()
    history(disk)
    history(other)
    with pytest.raises(Damaged, match="another group"):
        open_group(with_delta(disk, content(other, DELTA)))


def test_mutated_files_give_data_or_a_typed_error() -> None:
    disk = SimDisk()
    known = history(disk)
    originals = {SNAPSHOT: content(disk, SNAPSHOT), DELTA: delta_frames(disk) + bytes(300)}
    outcomes = {"data": 0, "error": 0}
    for seed in range(4000):
        rng = random.Random(seed)
        files = dict(originals)
        path = rng.choice([SNAPSHOT, DELTA])
        files[path] = mutated(files[path], rng)
        try:
            assert read_back(files[SNAPSHOT], files[DELTA]) in known, f"seed {seed}"
            outcomes["data"] += 1
        except (Damaged, FormatError):
            outcomes["error"] += 1
    assert min(outcomes.values()) > 100


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the data with something wrong with it."""
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.randint(1, 200))
    match rng.randrange(6):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:at] + rng.randbytes(end - at) + data[end:]
        case 4:
            return data[:end] + data[at:]
        case _:
            return data + rng.randbytes(end - at)


def test_a_group_on_disk_is_a_folder_of_two_files() -> None:
    disk = SimDisk()
    history(disk)
    assert disk.names(FOLDER) == [DELTA.name, SNAPSHOT.name]
    assert facts(GroupState()) == (0, [], [], [])


def test_a_flipped_bit_does_not_remove_a_group() -> None:
    disk = SimDisk()
    history(disk)
    snapshot = bytearray(content(disk, SNAPSHOT))
    snapshot[10] ^= 1  # where a removal is marked
    put(disk, SNAPSHOT, bytes(snapshot))
    with pytest.raises(Damaged):
        open_group(disk)
    assert content(disk, SNAPSHOT) == snapshot
    assert len(delta_frames(disk)) > DELTA_HEADER_BYTES
