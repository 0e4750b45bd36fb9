"""Dead letters: written once, before the message is acknowledged, whole, and kept for ever."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.clock import ManualClock
from strandline.errors import CommitFailed, FormatError, Poisoned, StrandlineError
from strandline.gather import InlineExecutor
from strandline.groups import Group
from strandline.journal import Journal, JournalConfig, Record
from strandline.queue import DeadLetter, DeadLettersLost, JournalStorage, QueueConfig
from strandline.queue.dead_letters import format_letter, letters_config, parse_letter
from strandline.sim import Fault, SimDisk
from tests.queue.helpers import FOLDER, SMALL, SMALL_JOURNAL, Heard, give, later, open_sim, power_cut
from tests.queue.repairs import damage, repair

COUNTS = st.integers(1, 2**32)
BYTES = st.none() | st.binary(max_size=20)
LETTERS = st.builds(
    DeadLetter, st.text(max_size=20), st.integers(0, 2**62), st.binary(), BYTES, BYTES, COUNTS, st.integers(0, 2**62)
)
ONCE = QueueConfig(deliveries_max=1, journal=SMALL_JOURNAL)


@given(LETTERS)
def test_a_letter_comes_back_as_it_was_written(letter: DeadLetter) -> None:
    record = Record(7, letter.value, None, format_letter(letter), letter.dead_ns)
    assert parse_letter(record) == letter


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries({}, optional=dict.fromkeys(("group", "offset", "deliveries", "key", "headers"), JSON))


@given(st.binary() | (JSON | FIELDS).map(lambda value: json.dumps(value).encode()) | st.just(b"[" * 20_000))
def test_bytes_that_are_no_letter_are_a_typed_error(headers: bytes) -> None:
    try:
        letter = parse_letter(Record(3, b"", None, headers, None))
    except FormatError:
        return
    assert letter.offset >= 0
    assert letter.deliveries >= 1


@pytest.mark.parametrize(
    "fields",
    [
        {"group": 1},
        {"group": None},
        {"offset": -1},
        {"offset": True},
        {"offset": 1.5},
        {"offset": float("inf")},
        {"offset": "1"},
        {"offset": 2**63},
        {"deliveries": 0},
        {"deliveries": None},
        {"key": 7},
        {"key": "not base64"},
        {"headers": ["aGk="]},
        {"headers": "aGk"},
    ],
    ids=str,
)
def test_a_letter_with_an_impossible_field_is_a_typed_error(fields: dict[str, object]) -> None:
    whole = {"group": "workers", "offset": 4, "deliveries": 2, "key": None, "headers": "aGk="}
    assert parse_letter(Record(3, b"v", None, json.dumps(whole).encode(), 9)).headers == b"hi"
    for broken in (whole | fields, {name: value for name, value in whole.items() if name not in fields}):
        with pytest.raises(FormatError, match="dead letter 3: not a dead letter"):
            parse_letter(Record(3, b"v", None, json.dumps(broken).encode(), 9))


def wear_out(storage: JournalStorage, clock: ManualClock, group: str = "workers") -> int:
    """Give the next message and let it expire, so that it dies where one delivery is allowed."""
    (offset,) = give(storage, clock, group, 1)
    storage.nack(group, offset, clock.now_ns())
    return offset


def offsets(storage: JournalStorage, group: str = "workers") -> list[int]:
    return [letter.offset for letter in storage.dead_letters(group)]


@pytest.mark.parametrize("dies", ["given back", "listed", "looked for"])
def test_wherever_the_power_fails_a_dying_message_is_a_letter_or_still_there_and_never_both(dies: str) -> None:
    """A sweep over every change of the disk from the last delivery on."""
    outcomes: set[str] = set()
    for countdown in range(1, 40):
        disk, clock = SimDisk(), ManualClock()
        storage = open_sim(disk, clock, ONCE)
        storage.append_batch([b"poison"], keys=[b"k"])
        give(storage, clock, "workers", 1, seconds=1)
        told = False
        disk.fault = power_cut(countdown)
        try:
            if dies == "given back":
                storage.nack("workers", 0, clock.now_ns())
            clock.advance(2)
            if dies == "listed":
                storage.list_expired(clock.now_ns())
            storage.fetch_available("workers", 1)
            told = True
        except StrandlineError:
            pass
        finished = disk.fault.countdown > 0
        disk.crash(Random(countdown))
        with open_sim(disk, clock, ONCE) as storage:
            letters = storage.dead_letters("workers")
            outcomes.add("letter" if letters else "message")
            assert letters or not told
            clock.advance(60)
            assert storage.fetch_available("workers", 9) == []
            storage.list_expired(clock.now_ns())
            assert [letter[:6] for letter in storage.dead_letters("workers")] == [
                ("workers", 0, b"poison", b"k", None, 1)
            ]
            assert storage.status()[0].acked_until == 1
        if finished:
            break
    else:
        raise AssertionError("the sweep did not reach the end")
    assert outcomes == {"letter", "message"}


def bury_halfway(disk: SimDisk, storage: JournalStorage, clock: ManualClock) -> None:
    """Let a message die whose letter gets written, and whose acknowledgement does not."""
    give(storage, clock, "workers", 1)
    clock.advance(31)
    disk.fault = Fault(frozenset({"sync"}), 2)  # the letter's comes first
    with pytest.raises(CommitFailed, match=r"workers\.delta"):
        storage.fetch_available("workers", 1)
    disk.fault = None


def test_a_burial_that_a_crash_cut_short_is_finished_even_where_more_deliveries_are_allowed_now() -> None:
    disk, clock = SimDisk(), ManualClock()
    storage = open_sim(disk, clock, ONCE)
    storage.append_batch([b"poison", b"fine"])
    bury_halfway(disk, storage, clock)
    disk.crash(Random(3))
    with open_sim(disk, clock, QueueConfig(deliveries_max=None, journal=SMALL_JOURNAL)) as storage:
        assert offsets(storage) == [0]
        assert [message.offset for message in storage.fetch_available("workers", 9)] == [1]


def test_a_letter_is_not_written_again_while_its_message_cannot_be_acknowledged() -> None:
    disk, clock = SimDisk(), ManualClock()
    storage = open_sim(disk, clock, ONCE)
    storage.append_batch([b"poison"])
    bury_halfway(disk, storage, clock)
    for _ in range(3):
        with pytest.raises(Poisoned):
            storage.fetch_available("workers", 1)
        assert offsets(storage) == [0]
    storage.close()


def test_a_delivery_that_a_crash_may_take_back_makes_no_letter() -> None:
    disk, clock = SimDisk(), ManualClock()
    storage = open_sim(disk, clock, ONCE)
    storage.append_batch([b"work"])
    storage.fetch_available("workers", 1)
    disk.fault = Fault(frozenset({"sync"}), 1)
    with pytest.raises(CommitFailed):
        storage.mark_inflight("workers", [0], later(clock))
    disk.fault = None
    clock.advance(31)
    with pytest.raises(Poisoned):
        storage.fetch_available("workers", 1)
    assert offsets(storage) == []
    disk.crash(Random(1))
    with open_sim(disk, clock, ONCE) as storage:
        wear_out(storage, clock)
        assert offsets(storage) == [0]


def test_a_group_made_anew_after_a_burial_was_cut_short_starts_afresh() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock, ONCE) as storage:
        storage.append_batch([b"poison"])
        bury_halfway(disk, storage, clock)
        storage.remove_group("workers")
        assert wear_out(storage, clock) == 0
        assert offsets(storage) == [0, 0]


def test_a_message_taken_for_the_last_time_while_it_is_given_back_is_not_buried_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    with open_sim(SimDisk(), clock, SMALL) as storage:
        storage.append_batch([b"work"])
        give(storage, clock, "workers", 1)
        storage.nack("workers", 0, clock.now_ns())
        give(storage, clock, "workers", 1)
        whole = Group.nack

        def nack_and_lose_a_race(self: Group, offset: int, ready_ns: int, epoch: int | None = None) -> None:
            whole(self, offset, ready_ns, epoch)
            self.mark_inflight(offset, later(clock))

        monkeypatch.setattr(Group, "nack", nack_and_lose_a_race)
        storage.nack("workers", 0, clock.now_ns(), 2)
        monkeypatch.undo()
        assert offsets(storage) == []
        assert storage.ack("workers", [0]) == 1
        assert offsets(storage) == []


def test_a_group_that_was_removed_and_made_again_gets_its_own_letters() -> None:
    disk, clock = SimDisk(), ManualClock()
    with open_sim(disk, clock, ONCE) as storage:
        storage.append_batch([b"poison"])
        wear_out(storage, clock)
        assert offsets(storage) == [0]
        storage.remove_group("workers")
    with open_sim(disk, clock, ONCE) as storage:
        assert offsets(storage) == [0]
        assert wear_out(storage, clock) == 0
        assert offsets(storage) == [0, 0]


def test_letters_outlive_the_messages_and_their_retention() -> None:
    disk, clock = SimDisk(), ManualClock()
    config = QueueConfig(
        deliveries_max=1, journal=JournalConfig(segment_bytes_max=1024, reserve_bytes_max=0, retain_bytes=0)
    )
    with open_sim(disk, clock, config) as storage:
        for _ in range(12):
            storage.append_batch([b"x" * 250])
            wear_out(storage, clock)
        assert storage.messages.first_offset > 0
        assert offsets(storage) == list(range(12))
    with open_sim(disk, clock, config) as storage:
        assert [len(letter.value) for letter in storage.dead_letters("workers")] == [250] * 12


def test_the_largest_message_that_fits_the_queue_fits_a_letter() -> None:
    clock = ManualClock()
    journal = JournalConfig(record_bytes_max=1024, append_bytes_max=8 * 1024)
    with open_sim(SimDisk(), clock, QueueConfig(deliveries_max=1, journal=journal)) as storage:
        largest = bytes(range(256)) * 4
        for _ in range(9):
            storage.append_batch([largest], keys=[largest], headers=[largest])
        name = "\x01" * 60
        given_out = give(storage, clock, name, 9)
        clock.advance(31)
        assert storage.list_expired(clock.now_ns()) == []
        assert storage.dead_letters(name) == [
            DeadLetter(name, offset, largest, largest, largest, 1, clock.now_ns()) for offset in given_out
        ]


def test_the_settings_of_the_letters_are_possible_for_the_largest_settings_of_messages() -> None:
    config = letters_config(JournalConfig(append_bytes_max=1024**3, record_bytes_max=1024**3, retain_age_s=1.0))
    assert config.append_bytes_max == 1024**3
    assert config.retain_age_s is None


def test_letters_lost_to_damage_are_told_and_the_queue_still_opens() -> None:
    disk, clock, heard = SimDisk(), ManualClock(), Heard()
    with open_sim(disk, clock, ONCE) as storage:
        for _ in range(4):
            storage.append_batch([b"poison"])
            wear_out(storage, clock)
    damage(disk, FOLDER / "dead", 1)
    repair(disk, FOLDER / "dead")
    with open_sim(disk, clock, ONCE, events=heard.hub) as storage:
        assert heard.of(DeadLettersLost) == [DeadLettersLost(1, 2)]
        assert offsets(storage) == [0, 2, 3]
        assert storage.fetch_available("workers", 9) == []


def test_a_record_that_is_no_letter_is_a_typed_error_on_opening() -> None:
    disk, clock = SimDisk(), ManualClock()
    open_sim(disk, clock).close()
    with Journal.open(FOLDER / "dead", disk=disk, clock=clock, executor=InlineExecutor()) as journal:
        journal.append([b"something else"])
    with pytest.raises(FormatError, match="dead letter 0"):
        open_sim(disk, clock)
    disk.kill()


def test_letters_on_a_real_disk_are_there_after_reopening(tmp_path: Path) -> None:
    clock = ManualClock()
    with JournalStorage.open(tmp_path, ONCE, clock=clock) as storage:
        storage.append_batch([b"poison"], headers=[b"\xff"])
        wear_out(storage, clock)
    with JournalStorage.open(tmp_path, ONCE, clock=clock) as storage:
        assert storage.dead_letters("workers") == [
            DeadLetter("workers", 0, b"poison", None, b"\xff", 1, clock.now_ns())
        ]
        assert storage.dead_letters("others") == []
