"""Repair: whatever was damaged, every whole record stays at its offset, and every damaged byte is kept."""

import copy
import errno
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from io import UnsupportedOperation
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.errors import Conflict, Damaged, FormatError, Locked, OffsetsLost, StorageRefused
from strandline.files import Disk, read_file
from strandline.journal import JournalConfig, JournalReader, Record, examine
from strandline.journal.batch import HEADER_BYTES, format_batch
from strandline.journal.columns import columns_of
from strandline.journal.frontier import FRONTIER_NAME, Frontier, format_frontier, parse_frontier
from strandline.journal.index import Index, format_index, format_index_name
from strandline.journal.manifest import MANIFEST_NAME, Manifest, format_manifest, load_manifest
from strandline.journal.quarantine import format_stretch_name, parse_stretch_name
from strandline.journal.recovery import QUARANTINE_NAME
from strandline.journal.repair import Repaired, apply_repair, plan_repair
from strandline.journal.repair_plan import RepairPlan
from strandline.journal.repair_steps import (
    LOST_COUNT_MAX,
    Lost,
    RebuildIndex,
    RewriteHeader,
    SetAside,
    WriteCheckpoint,
    fill,
    smallest,
)
from strandline.journal.repaired_view import RepairedView
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    format_segment_header,
    format_segment_name,
)
from strandline.sim import Fault, SimDisk
from tests.effort import Part, examples, parts
from tests.journal.damage_cases import (
    CHANGES,
    CLEAN,
    CONFIG,
    CRASHED,
    HARMS,
    Ground,
    Harm,
    Place,
    batch_taken_out_of_the_middle,
    damage_and_a_torn_tail,
    deleted_first_segment,
    deleted_segment,
    flip_in_a_sealed_segment,
    flip_in_the_header_of_the_active_segment,
    flip_in_the_last_batch_of_all,
    harm_batch,
    make_ground,
    open_journal,
    places_of,
    stretch,
    taken_out_and_flipped_and_torn,
    torn_tail,
    two_bad_stretches,
)
from tests.journal.helpers import FOLDER, WatchedDisk, content, contents, plant

each_harm = pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)


@pytest.fixture
def ground() -> Ground:
    return copy.deepcopy(CLEAN)


def repair(disk: Disk) -> Repaired:
    return apply_repair(disk, FOLDER, plan_repair(disk, FOLDER))


def lost_offsets(plan: RepairPlan) -> set[int]:
    return {offset for first, end in plan.lost for offset in range(first, end)}


def check_whole(ground: Ground, lost: set[int], next_offset: int = 120) -> None:
    """Everything but `lost` is readable under its offset, by every door, and the journal goes on where it should."""
    disk = ground.disk
    found = examine(disk, FOLDER, deep=True)
    assert (found.damage, found.torn) == ([], None)
    assert not plan_repair(disk, FOLDER).steps
    reader = JournalReader.open(FOLDER, disk=disk)
    assert scan_over_losses(reader) == (survivors(ground, lost, next_offset), lost)
    with open_journal(disk) as journal:
        assert journal.next_offset == next_offset
        named = [range(batch.base_offset, batch.next_offset) for batch in journal.lost()]
        assert {offset for some in named for offset in some} == lost
        chosen = range(journal.first_offset, next_offset, 5)
        for offset in sorted({*chosen, *lost, journal.first_offset, next_offset - 1}):
            if offset in lost:
                with pytest.raises(OffsetsLost):
                    journal.fetch(offset)
            else:
                assert journal.fetch(offset) == ground.records[offset]
        assert journal.append([b"and on"]).base_offset == next_offset
    assert not examine(disk, FOLDER, deep=True).damage


def survivors(ground: Ground, lost: set[int], next_offset: int) -> list[Record]:
    return [record for offset, record in ground.records.items() if offset not in lost and offset < next_offset]


def scan_over_losses(reader: JournalReader) -> tuple[list[Record], set[int]]:
    """Read on over every loss, as `OffsetsLost` says; return the records and the offsets that were lost."""
    records: list[Record] = []
    lost: set[int] = set()
    offset = reader.first_offset
    while True:
        try:
            for batch in reader.scan(offset):
                records += batch.records()
                offset = batch.next_offset
        except OffsetsLost as error:
            lost |= set(range(error.offset, error.resume_at))
            offset = error.resume_at
        else:
            return records, lost


def kept(ground: Ground) -> dict[str, bytes]:
    return contents(FOLDER / QUARANTINE_NAME, ground.disk)


@each_harm
@pytest.mark.parametrize("origin", [CLEAN, CRASHED], ids=["after a clean shutdown", "after a crash"])
def test_after_a_repair_every_other_record_is_whole_and_the_damaged_bytes_are_kept(harm: Harm, origin: Ground) -> None:
    ground = copy.deepcopy(origin)
    lost, named = harm(ground)
    plan = plan_repair(ground.disk, FOLDER)
    assert lost_offsets(plan) == lost
    done = apply_repair(ground.disk, FOLDER, plan)
    assert kept(ground) == named if named else not done.kept
    assert {path.name for path in done.kept} == set(named)
    check_whole(ground, lost)


@each_harm
def test_planning_changes_nothing(harm: Harm, ground: Ground) -> None:
    harm(ground)
    before = contents(FOLDER, ground.disk), ground.disk.operations
    plan = plan_repair(WatchedDisk(ground.disk, refuse_changes), FOLDER)
    assert plan.steps
    assert all(plan.describe())
    assert contents(FOLDER, ground.disk) == before[0]


def refuse_changes(operation: str, path: Path, size: int) -> None:
    assert operation in {"names", "open", "pread"}, f"{operation} {path} {size}"


@each_harm
def test_each_step_may_run_twice(harm: Harm, ground: Ground) -> None:
    lost, named = harm(ground)
    for step in plan_repair(ground.disk, FOLDER).steps:
        step.run(ground.disk, FOLDER)
        after = contents(FOLDER, ground.disk)
        assert step.run(ground.disk, FOLDER) == []
        assert contents(FOLDER, ground.disk) == after
    if named:
        assert kept(ground) == named
    check_whole(ground, lost)


@pytest.mark.parametrize(
    "harm", [two_bad_stretches, damage_and_a_torn_tail, batch_taken_out_of_the_middle, deleted_segment]
)
def test_what_a_step_did_survives_a_crash(harm: Harm, ground: Ground) -> None:
    harm(ground)
    for step in plan_repair(ground.disk, FOLDER).steps:
        step.run(ground.disk, FOLDER)
        seen = contents(FOLDER, ground.disk)
        for seed in range(6):
            after = copy.deepcopy(ground.disk)
            after.crash(Random(seed))
            assert contents(FOLDER, after) == seen, step


class PowerCut(BaseException):
    """The machine is off."""


class CutAfter:
    """Lets some changes through, then the power is gone."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def __call__(self, operation: str, path: Path, size: int) -> None:  # noqa: ARG002 - what a watch is called with
        if operation in CHANGES:
            self.left -= 1
        if self.left < 0:
            raise PowerCut


@each_harm
@parts(9)
def test_a_repair_that_is_cut_off_anywhere_can_be_finished(harm: Harm, part: Part) -> None:
    start = copy.deepcopy(CRASHED)
    lost, named = harm(start)
    changes = part.number
    finished = False
    while not finished:
        ground = copy.deepcopy(start)
        watch = CutAfter(changes)
        finished = True
        try:
            repair(WatchedDisk(ground.disk, watch))
        except PowerCut:
            finished = False
        ground.disk.crash(Random(changes))
        if changes % 2:
            check_opening_does_no_harm(copy.deepcopy(ground), lost)
        repair(ground.disk)
        assert named.items() <= kept_or_nothing(ground).items(), f"cut after {changes} changes"
        check_whole(ground, lost)
        changes += part.count
    assert changes - part.count - watch.left > 3, "a repair changes the disk"


def check_opening_does_no_harm(ground: Ground, lost: set[int]) -> None:
    """Whoever opens a journal that is half repaired is refused, or takes nothing away that a repair needs."""
    with suppress(Damaged, FormatError):
        open_journal(ground.disk).close()
    repair(ground.disk)
    check_whole(ground, lost)


def kept_or_nothing(ground: Ground) -> dict[str, bytes]:
    try:
        return kept(ground)
    except FileNotFoundError:
        return {}


@pytest.mark.parametrize("harm", [two_bad_stretches, taken_out_and_flipped_and_torn, deleted_first_segment])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@parts(4)
def test_a_failing_disk_stops_a_repair_with_a_typed_error_and_loses_nothing(harm: Harm, code: int, part: Part) -> None:
    start = copy.deepcopy(CLEAN)
    lost, named = harm(start)
    for countdown in part.of(range(1, 1000)):
        ground = copy.deepcopy(start)
        plan = plan_repair(ground.disk, FOLDER)
        ground.disk.fault = Fault(CHANGES, countdown, code)
        try:
            apply_repair(ground.disk, FOLDER, plan)
            break
        except StorageRefused as error:
            refused = error.code
        assert refused == errno.errorcode[code]
        ground.disk.fault = None
        repair(ground.disk)
        assert named.items() <= kept_or_nothing(ground).items()
        check_whole(ground, lost)
    assert countdown > 10


def test_what_was_promised_is_noted_before_anything_is_changed(ground: Ground) -> None:
    """The frontier is never synced, so without this the proof could be gone after a power cut, and the loss with it."""
    disk = ground.disk
    manifest = load_manifest(disk, FOLDER)
    assert manifest is not None
    last = ground.places[-1]
    plant_manifest(disk, replace(manifest, durable_offset=last.segment, active_bytes=SEGMENT_HEADER_BYTES))
    old = Frontier(manifest.identity, 0, last.segment, last.segment, last.segment)
    plant(FOLDER / FRONTIER_NAME, format_frontier(old), disk)
    with closing(disk.open(FOLDER / FRONTIER_NAME, "write")) as file:
        file.pwritev([format_frontier(replace(old, written_offset=120, durable_offset=120))], 0)
    lost, _ = flip_in_the_last_batch_of_all(ground)
    plan = plan_repair(disk, FOLDER)
    plan.steps[0].run(disk, FOLDER)
    for seed in range(8):
        after = copy.deepcopy(ground)
        after.disk.crash(Random(seed))
        repair(after.disk)
        check_whole(after, lost)


def plant_manifest(disk: Disk, manifest: Manifest) -> None:
    plant(FOLDER / MANIFEST_NAME, format_manifest(manifest), disk)


def test_a_segment_with_a_damaged_header_is_not_torn_if_its_batches_prove_that_it_was_durable() -> None:
    ground = copy.deepcopy(CRASHED)
    ground.remove(FRONTIER_NAME)
    _, named = flip_in_the_header_of_the_active_segment(ground)
    before = contents(FOLDER, ground.disk)
    with pytest.raises(Damaged, match="the segment header is damaged"):
        open_journal(ground.disk)
    assert contents(FOLDER, ground.disk) == before
    repair(ground.disk)
    assert kept(ground) == named
    check_whole(ground, set())


def test_a_header_that_nothing_else_vouches_for_gets_an_identity_that_its_batches_agree_with() -> None:
    ground = Ground()
    with open_journal(ground.disk) as journal:
        for number in range(6):
            journal.append([b"%d" % number])
        identity = journal.identity
        ground.records = {record.offset: record for batch in journal.scan(0) for record in batch.records()}
    for name in (MANIFEST_NAME, FRONTIER_NAME):
        ground.remove(name)
    ground.places = list(places_of(ground.disk))
    for byte in (16, 30):
        ground.flip(ground.places[0].path, byte)
    lost, _ = harm_batch(ground, ground.places[3])
    repair(ground.disk)
    check_whole(ground, lost, 6)
    mended = examine(ground.disk, FOLDER).identity
    assert mended is not None
    assert mended[:4] == identity[:4]


# What is not damage to a segment.


@pytest.mark.parametrize("origin", [CLEAN, CRASHED], ids=["after a clean shutdown", "after a crash"])
def test_a_whole_journal_needs_no_repair(origin: Ground) -> None:
    ground = copy.deepcopy(origin)
    before = contents(FOLDER, ground.disk)
    plan = plan_repair(ground.disk, FOLDER)
    assert (plan.steps, plan.lost, plan.damage) == ((), (), ())
    assert apply_repair(ground.disk, FOLDER, plan).kept == ()
    assert contents(FOLDER, ground.disk) == before


def test_a_journal_that_is_empty_but_for_its_first_segment_needs_no_repair() -> None:
    disk = SimDisk()
    open_journal(disk).close()
    assert plan_repair(disk, FOLDER).steps == ()


@pytest.mark.parametrize("how", ["missing", "flipped", "empty", "older", "of another segment"])
def test_a_bad_index_is_rebuilt(ground: Ground, how: str) -> None:
    path = FOLDER / format_index_name(ground.bases[1])
    right = content(path, ground.disk)
    other = content(FOLDER / format_index_name(ground.bases[2]), ground.disk)
    wrong = {"flipped": right[:-1] + b"\xff", "empty": b"", "older": format_index(Index(ground.bases[1]))}
    if how == "missing":
        ground.remove(path.name)
    else:
        plant(path, wrong.get(how, other), ground.disk)
    plan = plan_repair(ground.disk, FOLDER)
    assert plan.steps == (RebuildIndex(ground.bases[1]),)
    apply_repair(ground.disk, FOLDER, plan)
    assert content(path, ground.disk) == right
    check_whole(ground, set())


def make_large_ground() -> Ground:
    """Return two segments whose indexes have several entries each."""
    ground = Ground()
    with open_journal(ground.disk, JournalConfig(segment_bytes_max=400_000, reserve_bytes_max=0)) as journal:
        for number in range(24):
            journal.append([b"%02d" % number * 15_000])
        ground.records = {record.offset: record for batch in journal.scan(0) for record in batch.records()}
    ground.places = list(places_of(ground.disk))
    assert len(ground.bases) == 2
    return ground


def test_the_index_of_a_repaired_segment_names_only_batches_that_are_there() -> None:
    """Entries that point into a stretch that became one lost batch would stop every reader there."""
    ground = make_large_ground()
    lost, _ = flips_in_a_sealed_segment_with_a_long_index(ground)
    repair(ground.disk)
    check_whole(ground, lost, 24)


def zeroed_to_the_end_and_grown(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    """The lost batch ends where the manifest of the clean shutdown does not expect a batch to end."""
    place = ground.of(ground.bases[-1])[2]
    data = content(place.path, ground.disk)
    plant(place.path, data[: place.position + 97] + bytes(len(data) - place.position - 97) + b"x", ground.disk)
    return set.union(*(place.offsets for place in ground.of(ground.bases[-1])[2:])), {}


def flips_in_a_sealed_segment_with_a_long_index(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    """Three batches make an entry, so that the record after the loss is looked for from an entry inside it."""
    for place in ground.places[4:8]:
        ground.flip(place.path, place.position + 100)
    return set(range(4, 8)), {}


@pytest.mark.parametrize(
    ("make", "harm"),
    [
        (make_ground, zeroed_to_the_end_and_grown),
        (make_ground, two_bad_stretches),
        (make_ground, taken_out_and_flipped_and_torn),
        (make_large_ground, flips_in_a_sealed_segment_with_a_long_index),
    ],
)
def test_whoever_opens_a_half_repaired_journal_is_refused_or_finds_everything(
    make: Callable[[], Ground], harm: Harm
) -> None:
    start = make()
    lost, _ = harm(start)
    end = max(start.records) + 1
    opened = 0
    for done in range(len(plan_repair(start.disk, FOLDER).steps) + 1):
        ground = copy.deepcopy(start)
        for step in plan_repair(ground.disk, FOLDER).steps[:done]:
            step.run(ground.disk, FOLDER)
        if examine(ground.disk, FOLDER, deep=True).damage:
            continue
        for _ in range(2):  # the second time, the indexes come from files
            with open_journal(ground.disk) as journal:
                assert journal.next_offset == end
        reader = JournalReader.open(FOLDER, disk=ground.disk)
        assert scan_over_losses(reader) == (survivors(ground, lost, end), lost)
        opened += 1
    assert opened


@pytest.mark.parametrize("how", ["missing", "flipped", "empty"])
def test_a_bad_manifest_is_written_anew_and_the_old_one_kept(ground: Ground, how: str) -> None:
    path = FOLDER / MANIFEST_NAME
    right = load_manifest(ground.disk, FOLDER)
    if how == "missing":
        ground.remove(path.name)
    elif how == "empty":
        plant(path, b"", ground.disk)
    else:
        ground.flip(path, 60)
    bad = read_file(ground.disk, path)
    plan = plan_repair(ground.disk, FOLDER)
    assert plan.steps == (WriteCheckpoint("the manifest is missing or damaged"),)
    apply_repair(ground.disk, FOLDER, plan)
    assert load_manifest(ground.disk, FOLDER) == right
    if bad:
        assert kept(ground) == {"manifest.bytes": bad}
    check_whole(ground, set())


@pytest.mark.parametrize("how", ["damaged", "of another journal", "of a segment that is not there"])
def test_a_bad_frontier_is_written_anew(ground: Ground, how: str) -> None:
    path = FOLDER / FRONTIER_NAME
    right = parse_frontier(content(path, ground.disk))
    assert right is not None
    if how == "damaged":
        ground.flip(path, 30)
    elif how == "of another journal":
        plant(path, format_frontier(replace(right, identity=b"x" * 16)), ground.disk)
    else:
        plant(path, format_frontier(replace(right, active_base=119)), ground.disk)
    assert [type(step) for step in plan_repair(ground.disk, FOLDER).steps] == [WriteCheckpoint]
    repair(ground.disk)
    assert parse_frontier(content(path, ground.disk)) == right
    check_whole(ground, set())


def test_offsets_that_were_acknowledged_and_are_gone_are_never_given_out_again(ground: Ground) -> None:
    path = FOLDER / FRONTIER_NAME
    frontier = parse_frontier(content(path, ground.disk))
    assert frontier is not None
    plant(path, format_frontier(replace(frontier, written_offset=200, durable_offset=200)), ground.disk)
    repair(ground.disk)
    check_whole(ground, set(range(120, 200)), 200)


def test_more_lost_offsets_than_one_batch_can_count_are_marked_by_several(ground: Ground) -> None:
    end = 3 * LOST_COUNT_MAX
    path = FOLDER / FRONTIER_NAME
    frontier = parse_frontier(content(path, ground.disk))
    assert frontier is not None
    plant(path, format_frontier(replace(frontier, written_offset=end, durable_offset=end)), ground.disk)
    plan = plan_repair(ground.disk, FOLDER)
    assert plan.lost == ((120, end),)
    apply_repair(ground.disk, FOLDER, plan)
    assert not plan_repair(ground.disk, FOLDER).steps
    with open_journal(ground.disk) as journal:
        assert journal.append([b"and on"]).base_offset == end
        with pytest.raises(OffsetsLost):
            journal.fetch(end - 1)
        assert journal.fetch(119) == ground.records[119]


def test_a_first_segment_that_was_never_whole_is_kept_and_the_journal_begins_anew() -> None:
    ground = Ground()
    open_journal(ground.disk).close()
    for name in (MANIFEST_NAME, FRONTIER_NAME):
        ground.remove(name)
    ground.cut(FOLDER / format_segment_name(0), 20)
    head = content(FOLDER / format_segment_name(0), ground.disk)
    plan = plan_repair(ground.disk, FOLDER)
    assert [type(step) for step in plan.steps] == [SetAside]
    apply_repair(ground.disk, FOLDER, plan)
    assert kept(ground) == {format_segment_name(0): head}
    assert open_journal(ground.disk).next_offset == 0


def test_segments_behind_a_torn_one_go_to_the_quarantine_whole(ground: Ground) -> None:
    disk = ground.disk
    for name in (MANIFEST_NAME, FRONTIER_NAME):
        ground.remove(name)
    for place in ground.places:  # nothing was ever known to be durable
        reseal(ground, place, durable=0)
    torn = ground.of(ground.bases[2])[4]
    ground.flip(torn.path, torn.position + 60)
    tail = content(torn.path, disk)[torn.position :]
    dropped = {
        format_segment_name(base): content(FOLDER / format_segment_name(base), disk) for base in ground.bases[3:]
    }
    repair(disk)
    assert kept(ground) == stretch(torn, tail) | dropped
    check_whole(ground, set(), torn.first)


def reseal(ground: Ground, place: Place, durable: int) -> None:
    """Change the durable offset that a batch carries."""
    data = bytearray(content(place.path, ground.disk)[place.position : place.position + place.size])
    data[24:32] = durable.to_bytes(8, "little")
    data[4:8] = crc32c(bytes(data[8:])).to_bytes(4, "little")
    ground.write(place.path, place.position, bytes(data))


def test_space_that_was_reserved_is_not_copied_into_the_quarantine(ground: Ground) -> None:
    path = FOLDER / format_segment_name(ground.bases[-1])
    whole = content(path, ground.disk)
    plant(path, whole + b"torn" + bytes(100_000), ground.disk)
    repair(ground.disk)
    ((name, data),) = kept(ground).items()
    assert parse_stretch_name(name) == (ground.bases[-1], len(whole))
    assert len(data) <= 4096
    assert data.rstrip(b"\0") == b"torn"
    check_whole(ground, set())


def test_the_same_place_damaged_again_gets_a_name_of_its_own_in_the_quarantine(ground: Ground) -> None:
    place = ground.of(ground.bases[1])[2]
    _, first = harm_batch(ground, place)
    repair(ground.disk)
    _, second = harm_batch(ground, place)
    repair(ground.disk)
    name = format_stretch_name(place.segment, place.position)
    assert kept(ground) == first | {name.replace(".bytes", "-2.bytes"): second[name]}
    check_whole(ground, place.offsets)


# Overlaps.


def test_a_segment_that_runs_into_the_next_is_cut_where_the_next_begins(ground: Ground) -> None:
    path, following = (FOLDER / format_segment_name(base) for base in ground.bases[:2])
    whole = content(path, ground.disk)
    two = ground.of(ground.bases[1])[:2]
    copied = content(following, ground.disk)[SEGMENT_HEADER_BYTES : two[1].position + two[1].size]
    plant(path, whole + copied, ground.disk)
    repair(ground.disk)
    assert content(path, ground.disk) == whole
    assert kept(ground) == {format_stretch_name(0, len(whole)): copied}
    check_whole(ground, set())


def test_a_segment_whose_offsets_are_all_in_the_one_before_goes_to_the_quarantine(ground: Ground) -> None:
    path, following = (FOLDER / format_segment_name(base) for base in ground.bases[:2])
    data = content(following, ground.disk)
    plant(path, content(path, ground.disk) + data[SEGMENT_HEADER_BYTES:], ground.disk)
    repair(ground.disk)
    assert kept(ground) == {following.name: data}
    check_whole(ground, set())


def test_a_segment_that_begins_inside_a_batch_of_the_one_before_costs_only_what_neither_has_alone(
    ground: Ground,
) -> None:
    first, second = ground.bases[:2]
    place = ground.of(first)[-1]
    identity = examine(ground.disk, FOLDER).identity or b""
    base = place.first + 1
    values = [ground.records[offset].value for offset in range(base, second)]
    buffers, _ = format_batch(base, base, 0, columns_of(values, None, None, None, CONFIG))
    header = format_segment_header(SegmentHeader(identity, base, 0))
    plant(FOLDER / format_segment_name(base), header + b"".join(buffers), ground.disk)
    ground.flip(FOLDER / format_segment_name(second), 20)
    plan = plan_repair(ground.disk, FOLDER)
    assert plan.lost == ()
    assert [type(step) for step in plan.steps[1:3]] == [RewriteHeader, SetAside]
    apply_repair(ground.disk, FOLDER, plan)
    check_whole(ground, set())


def test_a_longer_segment_wins_from_where_it_begins(ground: Ground) -> None:
    """The one before is cut at a batch, so the offsets of that batch that come before the longer one are lost."""
    first, second = ground.bases[:2]
    last = ground.of(first)[-1]
    identity = examine(ground.disk, FOLDER).identity or b""
    base = last.first + 1
    end = ground.bases[2]
    batches: list[bytes] = []
    for offset in range(base, end):
        record = ground.records[offset]
        keys = None if record.key is None else [record.key]
        buffers, _ = format_batch(offset, base, 0, columns_of([record.value], keys, None, None, CONFIG))
        batches += map(bytes, buffers)
    header = format_segment_header(SegmentHeader(identity, base, 0))
    ground.remove(format_segment_name(second))
    plant(FOLDER / format_segment_name(base), header + b"".join(batches), ground.disk)
    repair(ground.disk)
    assert set(kept(ground)) == {format_stretch_name(first, last.position)}
    check_whole(ground, {last.first})


# What a repair refuses.


def test_a_plan_for_a_folder_that_has_changed_since_is_refused(ground: Ground) -> None:
    torn_tail(ground)
    plan = plan_repair(ground.disk, FOLDER)
    with open_journal(ground.disk) as journal:
        journal.append([b"more"])
    before = contents(FOLDER, ground.disk)
    with pytest.raises(Conflict, match="has changed since"):
        apply_repair(ground.disk, FOLDER, plan)
    assert contents(FOLDER, ground.disk) == before


def test_a_repair_needs_the_writers_lock(ground: Ground) -> None:
    open_journal(ground.disk)
    flip_in_a_sealed_segment(ground)
    plan = plan_repair(ground.disk, FOLDER)
    before = contents(FOLDER, ground.disk)
    with pytest.raises(Locked):
        apply_repair(ground.disk, FOLDER, plan)
    assert contents(FOLDER, ground.disk) == before


def test_a_writer_is_kept_out_while_a_repair_runs(ground: Ground) -> None:
    flip_in_a_sealed_segment(ground)
    refused: list[bool] = []

    def try_to_open(_: object) -> None:
        with pytest.raises(Locked):
            open_journal(ground.disk)
        refused.append(True)

    plan = plan_repair(ground.disk, FOLDER)
    apply_repair(ground.disk, FOLDER, plan, on_step=try_to_open)
    assert len(refused) == len(plan.steps)
    open_journal(ground.disk)


@pytest.mark.parametrize("data", [b"x" * 300, b"%PDF-1.7 something else altogether" * 4])
def test_a_file_that_is_not_recognisably_a_segment_is_left_alone(ground: Ground, data: bytes) -> None:
    path = FOLDER / format_segment_name(ground.bases[1])
    plant(path, data, ground.disk)
    before = contents(FOLDER, ground.disk)
    with pytest.raises(FormatError, match="not a journal segment") as refused:
        plan_repair(ground.disk, FOLDER)
    assert refused.value.hint
    assert contents(FOLDER, ground.disk) == before


def test_a_segment_of_another_journal_is_left_alone(ground: Ground) -> None:
    other = make_ground()
    path = FOLDER / format_segment_name(ground.bases[1])
    plant(path, content(path, other.disk), ground.disk)
    with pytest.raises(FormatError, match="another journal"):
        plan_repair(ground.disk, FOLDER)


def test_a_folder_without_a_journal_is_refused() -> None:
    disk = SimDisk()
    with pytest.raises(StorageRefused):
        plan_repair(disk, FOLDER)
    disk.make_folder(FOLDER)
    with pytest.raises(FormatError, match="no journal here"):
        plan_repair(disk, FOLDER)


def test_the_check_at_the_end_refuses_what_is_still_damaged(ground: Ground) -> None:
    flip_in_a_sealed_segment(ground)
    manifest = content(FOLDER / MANIFEST_NAME, ground.disk)
    with pytest.raises(Damaged):
        WriteCheckpoint("a test").run(ground.disk, FOLDER)
    assert content(FOLDER / MANIFEST_NAME, ground.disk) == manifest


def test_a_view_for_planning_cannot_write(ground: Ground) -> None:
    base = ground.bases[0]
    view = RepairedView(ground.disk, ends={base: 100})
    path = FOLDER / format_segment_name(base)
    file = view.open(path, "read")
    assert (file.size(), len(file.pread(1000, 40)), file.pread(10, 200)) == (100, 60, b"")
    writes: list[Callable[[], object]] = [
        lambda: view.open(path, "write"),
        lambda: view.open(FOLDER / "new", "create"),
        lambda: view.rename(path, path),
        lambda: view.remove(path),
        lambda: view.make_folder(FOLDER),
        lambda: view.sync_folder(FOLDER),
        lambda: view.lock(path),
        lambda: file.pwritev([b"x"], 0),
        lambda: file.truncate(0),
        lambda: file.allocate(1),
        file.sync,
    ]
    for write in writes:
        with pytest.raises(UnsupportedOperation):
            write()


# Properties.


@given(first=st.integers(0, 2**40), count=st.integers(1, 2**36), size=st.integers(0, 2**31).map(lambda n: n * 8))
def test_lost_batches_fill_a_gap_to_the_byte_and_count_every_offset_once(first: int, count: int, size: int) -> None:
    batches = fill(first, first + count, size)
    if batches is None:
        assert size < HEADER_BYTES * len(smallest(first, first + count)) or size // count > 2**31 - 64
        return
    check_batches(batches, first, first + count)
    assert sum(batch.size for batch in batches) == size


def check_batches(batches: list[Lost], first: int, end: int) -> None:
    assert [batch.first_offset for batch in batches] == [first, *(batch.end_offset for batch in batches[:-1])]
    assert batches[-1].end_offset == end
    assert all(HEADER_BYTES <= batch.size < 2**31 and batch.size % 8 == 0 for batch in batches)
    assert all(1 <= batch.end_offset - batch.first_offset <= LOST_COUNT_MAX for batch in batches)


@given(segment=st.integers(0, 2**63), position=st.integers(0, 2**50))
def test_names_in_the_quarantine_tell_where_the_bytes_stood(segment: int, position: int) -> None:
    assert parse_stretch_name(format_stretch_name(segment, position)) == (segment, position)
    assert parse_stretch_name("manifest.bytes") is None


Mutation = tuple[str, int, int, int]
MUTATIONS = st.tuples(
    st.sampled_from(["flip", "zeros", "noise", "cut", "grow", "delete"]),
    st.integers(0, 3),
    st.integers(0, 1279),
    st.integers(1, 600),
)


def mutate(ground: Ground, mutation: Mutation, random: Random) -> set[int]:
    """Harm one segment; return the offsets of the batches that it touched."""
    kind, number, position, length = mutation
    base = ground.bases[number]
    path = FOLDER / format_segment_name(base)
    if path.name not in ground.disk.names(FOLDER):
        return set()
    data = content(path, ground.disk)
    position = min(position, len(data))
    end = len(data) if kind == "cut" else min(len(data), position + (1 if kind == "flip" else length))
    if kind == "delete":
        ground.remove(path.name)
        position, end = 0, len(data)
    elif kind == "cut":
        ground.cut(path, position)
    elif kind == "grow":
        plant(path, data + random.randbytes(length), ground.disk)
        position = end
    elif kind == "flip" and end > position:
        ground.flip(path, position)
    else:
        ground.write(path, position, bytes(end - position) if kind == "zeros" else random.randbytes(end - position))
    hit = [place for place in ground.of(base) if place.position < end and place.position + place.size > position]
    return {offset for place in hit for offset in place.offsets}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(mutations=st.lists(MUTATIONS, min_size=1, max_size=4), seed=st.integers(0, 2**32), clean=st.booleans())
def test_whatever_happens_to_segments_records_that_were_not_touched_survive(
    mutations: list[Mutation], seed: int, clean: bool
) -> None:
    ground = copy.deepcopy(CLEAN if clean else CRASHED)
    random = Random(seed)
    touched = {offset for mutation in mutations for offset in mutate(ground, mutation, random)}
    before = contents(FOLDER, ground.disk)
    try:
        plan = plan_repair(ground.disk, FOLDER)
    except FormatError:  # a header that is nobody's any more, before a batch that is not whole either
        assert contents(FOLDER, ground.disk) == before
        return
    assert lost_offsets(plan) <= touched
    apply_repair(ground.disk, FOLDER, plan)
    check_whole(ground, lost_offsets(plan))


@examples(40)
@given(
    mutations=st.lists(MUTATIONS, min_size=1, max_size=3), seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 30))
)
def test_a_repair_that_is_cut_off_again_and_again_has_the_same_end(
    mutations: list[Mutation], seed: int, cuts: list[int]
) -> None:
    ground = copy.deepcopy(CLEAN)
    random = Random(seed)
    for mutation in mutations:
        mutate(ground, mutation, random)
    try:
        lost = lost_offsets(plan_repair(ground.disk, FOLDER))
        for cut in cuts:
            with suppress(PowerCut):
                repair(WatchedDisk(ground.disk, CutAfter(cut)))
            ground.disk.crash(random)
    except FormatError:
        return
    repair(ground.disk)
    check_whole(ground, lost)
