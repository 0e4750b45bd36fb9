"""The bytes of a snapshot log are as its page says, and whatever happens to them, no wrong value comes out."""

import contextlib
from collections.abc import Iterator
from itertools import accumulate
from random import Random

import pytest

from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.fold import AppendLogStore, FoldReader, Held, repair_append_log
from strandline.fold.log_format import HEADER, OLD_HEADERS, VERSION
from strandline.fold.log_scan import scan_log
from strandline.fold.resident import ResidentFold
from strandline.kv import WatchCursor, format_cursor
from strandline.sim import SimDisk
from strandline.sim.disk import Fault
from strandline.testing.snapshot_stores import changes, entry
from tests.fold import bytes_of_logs as by_hand
from tests.fold.bytes_of_logs import PLACE, State, disk_with

RECORDS, STATES = by_hand.small_log()
LOG = by_hand.HEADER + b"".join(RECORDS)
ENDS = list(accumulate(map(len, RECORDS), initial=len(by_hand.HEADER)))


def state_in(store: FoldReader | ResidentFold) -> State:
    found = store.entries() if isinstance(store, ResidentFold) else store.range()
    cursor = store.cursor if isinstance(store, ResidentFold) else store.cursor()
    return {entry.key: (entry.value, entry.version) for entry in found}, cursor


def outcome(content: bytes) -> State | None:
    """Return the state that a log is taken for, None if it is refused."""
    try:
        scan = scan_log("log", content)
    except FormatError:
        return None
    return None if scan.damage else state_in(ResidentFold.of(content, scan))


def test_it_reads_what_was_assembled_by_hand() -> None:
    assert outcome(LOG) == STATES[-1]
    assert HEADER == by_hand.HEADER
    assert VERSION == 3


def test_it_writes_what_is_assembled_by_hand() -> None:
    disk = SimDisk()
    with AppendLogStore.open(PLACE, disk=disk) as store:
        store.apply(*changes(258, (b"a", b"one"), (b"b", None)))
        store.apply(*changes(260, (b"c", b"")))
    wanted = [
        by_hand.put(b"a", b"one", format_cursor(258)),
        by_hand.delete(b"b", format_cursor(259)),
        by_hand.cursor(format_cursor(259)),
        by_hand.put(b"c", b"", format_cursor(260)),
        by_hand.cursor(format_cursor(260)),
    ]
    file = disk.open(PLACE, "read")
    assert file.pread(1000, 0) == by_hand.HEADER + b"".join(wanted)


def test_loads_legacy_writer_file() -> None:
    """One that another writer appended to without ever compacting it, and whose last record was never finished."""
    rows = [by_hand.put(b"k%d" % (at % 3), b"%d" % at, at.to_bytes(8, "big")) for at in range(1, 50)]
    disk = disk_with(by_hand.HEADER + b"".join(rows) + by_hand.cursor(format_cursor(49)) + rows[0][:9])
    with AppendLogStore.open(PLACE, disk=disk) as store:
        assert store.load() == Held(format_cursor(49), has_data=True)
        assert store.range() == [entry(b"k0", b"48", 48), entry(b"k1", b"49", 49), entry(b"k2", b"47", 47)]


def test_a_compacted_log_has_each_key_once_in_order_and_the_cursor_last() -> None:
    disk = disk_with(LOG)
    with AppendLogStore.open(PLACE, disk=disk) as store:
        store.settle()
    entries, cursor = STATES[-1]
    rows = [by_hand.put(key, value, version) for key, (value, version) in sorted(entries.items())]
    assert disk.open(PLACE, "read").pread(1000, 0) == by_hand.HEADER + b"".join(rows) + by_hand.cursor(cursor)


@pytest.mark.parametrize("cut", range(len(LOG)))
def test_a_log_cut_anywhere_is_as_it_was_after_its_last_whole_record(cut: int) -> None:
    before = STATES[max((at for at, end in enumerate(ENDS) if end <= cut), default=0)]
    disk = disk_with(LOG[:cut])
    with AppendLogStore.open(PLACE, disk=disk) as store:
        assert state_in(store) == before
        store.apply(*changes(300, (b"new", b"x")))
    with AppendLogStore.open(PLACE, disk=disk) as store:
        assert store.get(b"new") == entry(b"new", b"x", 300), "an append behind a torn tail is seen"
        assert len(store.range()) == len(before[0]) + 1


@pytest.mark.parametrize("zeros", [1, 5, 6, 7, 100, 4096])
@pytest.mark.parametrize("cut", [*ENDS])
def test_zeros_at_the_end_are_no_records(cut: int, zeros: int) -> None:
    state = outcome(LOG[:cut] + bytes(zeros))
    assert state == STATES[ENDS.index(cut)]


def test_a_flipped_bit_never_makes_a_wrong_value_or_a_cursor_ahead_of_its_data() -> None:
    refused = 0
    for at in range(len(LOG)):
        for bit in range(8):
            flipped = LOG[:at] + bytes([LOG[at] ^ 1 << bit]) + LOG[at + 1 :]
            state = outcome(flipped)
            if flipped.startswith(OLD_HEADERS):
                assert state == STATES[-1], "the version before says the same with the same bytes"
                continue
            assert state is None or state in STATES[:-1], (at, bit)
            refused += state is None
            if at < ENDS[-2]:
                assert state is None, "bits before the last record are never a silent end"
    assert refused > len(LOG) * 7


def test_a_log_of_version_2_is_read_and_replaced_by_one_of_this_version() -> None:
    disk = disk_with(OLD_HEADERS[0] + LOG[len(by_hand.HEADER) :])
    with AppendLogStore.open_read_only(PLACE, disk=disk) as reader:
        before = reader.range()
    assert disk.open(PLACE, "read").pread(6, 0) == OLD_HEADERS[0], "a reader changes nothing"
    with AppendLogStore.open(PLACE, disk=disk) as store:
        assert store.range() == before != []
    assert disk.open(PLACE, "read").pread(6, 0) == HEADER
    assert AppendLogStore.open_read_only(PLACE, disk=disk).range() == before


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_while_a_log_of_version_2_is_replaced_leaves_all_of_it(seed: int) -> None:
    random, operations = Random(seed), frozenset({"create", "pwritev", "sync", "rename", "sync_folder"})
    for countdown in range(1, 12):
        disk = disk_with(OLD_HEADERS[0] + LOG[len(by_hand.HEADER) :])
        disk.fault = Fault(operations, countdown, sticky=True)
        with contextlib.suppress(StrandlineError):
            AppendLogStore.open(PLACE, disk=disk)
        disk.crash(random)
        with AppendLogStore.open_read_only(PLACE, disk=disk) as reader:
            assert state_in(reader) == STATES[-1]
        with AppendLogStore.open(PLACE, disk=disk) as store:
            assert state_in(store) == STATES[-1]
        assert disk.open(PLACE, "read").pread(6, 0) == HEADER


def test_a_header_of_version_2_that_was_torn_is_an_empty_log() -> None:
    assert outcome(OLD_HEADERS[0][:5]) == STATES[0]


def test_a_hole_of_zeros_before_whole_records_is_never_a_silent_end() -> None:
    for begin in range(len(by_hand.HEADER), len(LOG)):
        for end in range(begin + 1, len(LOG) + 1):
            holed = LOG[:begin] + bytes(end - begin) + LOG[end:]
            if holed != LOG:
                state = outcome(holed)
                assert state is None or state in STATES[:-1], (begin, end)
                assert state is None or end > ENDS[-2], "a whole record follows"


def test_bytes_overwritten_at_random_never_make_a_wrong_value() -> None:
    random = Random(5)
    for _ in range(3000):
        at = random.randrange(len(LOG))
        junk = random.randbytes(random.randrange(1, 40))
        harmed = (LOG[:at] + junk + LOG[at + len(junk) :])[: random.choice([len(LOG), random.randrange(len(LOG))])]
        state = outcome(harmed)
        assert state is None or state in STATES, harmed


def test_a_record_that_does_not_match_counts_as_the_end_only_where_nothing_can_follow() -> None:
    bad = bytearray(by_hand.put(b"k", b"value", b"12345678"))
    bad[-1] ^= 1
    whole = by_hand.HEADER + by_hand.cursor(b"c")
    for rest in range(6):
        assert outcome(whole + bytes(bad) + b"\x07" * rest) == ({}, b"c")
    for rest in (6, 7, 100):
        assert outcome(whole + bytes(bad) + b"\x07" * rest) is None


@pytest.mark.parametrize("length", [16 * 1024 * 1024 + 1, 2**32 - 1])
def test_a_length_beyond_the_limit_is_a_record_that_does_not_match(length: int) -> None:
    body = b"\x01" + b"\x01\x00k" + length.to_bytes(4, "little")
    assert outcome(by_hand.HEADER + by_hand.checked(body)) == ({}, b"")
    assert outcome(by_hand.HEADER + by_hand.checked(body) + b"\x07" * 6) is None


def test_a_version_of_more_than_ten_bytes_is_refused_even_under_a_good_checksum() -> None:
    assert outcome(by_hand.HEADER + by_hand.put(b"k", b"v", b"12345678901") + by_hand.cursor(b"c")) is None
    assert outcome(by_hand.HEADER + by_hand.delete(b"k", b"12345678901") + by_hand.cursor(b"c")) is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PGSS\x01\x00rest", "version 1"),
        (b"PGSS\x04\x00", "version 4"),
        (b"something else", "is not a snapshot log"),
        (bytes(100), "is not a snapshot log"),
        (b"{}", "is not a snapshot log"),
    ],
)
def test_a_file_that_is_not_ours_is_left_alone(content: bytes, problem: str) -> None:
    disk = disk_with(content)
    with pytest.raises(FormatError, match=problem) as caught:
        AppendLogStore.open(PLACE, disk=disk)
    assert caught.value.hint
    assert disk.open(PLACE, "read").pread(1000, 0) == content


def harmed_logs() -> Iterator[tuple[int, bytes]]:
    """Yield logs with a bad byte in each record but the last, and which record that is."""
    for record in range(len(RECORDS) - 1):
        for at in (ENDS[record], ENDS[record + 1] - 1):
            yield record, LOG[:at] + bytes([LOG[at] ^ 0x40]) + LOG[at + 1 :]


def test_a_damaged_log_is_left_alone_and_a_repair_cuts_it_before_the_damage() -> None:
    for record, content in harmed_logs():
        disk = disk_with(content)
        with pytest.raises(Damaged) as caught:
            AppendLogStore.open(PLACE, disk=disk)
        assert "repair_append_log" in caught.value.safe
        assert disk.open(PLACE, "read").pread(1000, 0) == content
        cut = repair_append_log(PLACE, disk=disk)
        assert cut is not None
        assert (cut.kept_bytes, cut.cut_bytes) == (ENDS[record], len(LOG) - ENDS[record])
        assert disk.open(cut.aside, "read").pread(1000, 0) == content
        assert repair_append_log(PLACE, disk=disk) is None, "it is whole now"
        with AppendLogStore.open(PLACE, disk=disk) as store:
            assert state_in(store) == STATES[record]


def test_verify_notices_what_happened_to_the_file_meanwhile() -> None:
    disk = disk_with(LOG)
    with AppendLogStore.open(PLACE, disk=disk) as store:
        store.verify()
        file = disk.open(PLACE, "write")
        file.pwritev([b"\xff"], ENDS[3])
        with pytest.raises(Damaged):
            store.verify()
        file.truncate(ENDS[4])
        file.pwritev([LOG[ENDS[3] : ENDS[4]]], ENDS[3])
        with pytest.raises(Damaged, match="does not say what was written"):
            store.verify()
        assert state_in(store) == STATES[-1]


def test_an_empty_cursor_record_is_no_cursor() -> None:
    assert outcome(by_hand.HEADER + by_hand.cursor(b"")) == ({}, WatchCursor(b""))
