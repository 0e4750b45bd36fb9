"""Streams whose log was damaged and repaired: what is lost is named and skipped, and the rest stays what it was."""

from contextlib import closing, suppress
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.api.config import StreamSource
from strandline.broker.api.requests import GetRequest, PurgeRequest
from strandline.broker.streams.copier import OriginBatch
from strandline.broker.streams.index_file import INDEX_NAME
from strandline.broker.streams.losses import Losses, LostPart, format_losses, parse_losses
from strandline.errors import StorageRefused
from strandline.journal.lost_offsets import LOST_NAME, format_lost_file, parse_lost_file
from strandline.journal.repair import apply_repair, plan_repair
from strandline.journal.segment import SEGMENT_HEADER_BYTES, parse_segment_name, walk
from strandline.sim import Fault
from tests.broker.streams.helpers import FOLDER, SECOND, Kept, words

JOURNAL = FOLDER / "journal"
CHANGES = frozenset({"create", "pwritev", "sync", "truncate", "rename", "remove", "sync_folder"})


def batches_of(kept: Kept) -> list[tuple[str, int, int, int]]:
    """Return every batch of a stream's log: segment, position, first place, end place."""
    found = []
    for name in sorted(kept.disk.names(JOURNAL)):
        base = parse_segment_name(name)
        if base is not None:
            with closing(kept.disk.open(JOURNAL / name, "read")) as file:
                for position, batch in walk(file, SEGMENT_HEADER_BYTES, base):
                    found.append((name, position, batch.base_offset, batch.next_offset))
    return found


def flip(kept: Kept, name: str, position: int) -> None:
    """Flip four bytes of a segment."""
    with closing(kept.disk.open(JOURNAL / name, "write")) as file:
        data = file.pread(4, position)
        file.pwritev([bytes(byte ^ 0xFF for byte in data)], position)
        file.sync()


def repair(kept: Kept) -> tuple[tuple[int, int], ...]:
    """Do what `strandline journal repair --yes` does; return what is lost."""
    plan = plan_repair(kept.disk, JOURNAL)
    apply_repair(kept.disk, JOURNAL, plan)
    return plan.lost


def damage(kept: Kept, place: int, *, index: bool = True) -> None:
    """Close a stream, flip bytes of the batch with a place, repair, and open it again, with its index or without."""
    kept.stream.close()
    if not index:
        kept.disk.remove(FOLDER / INDEX_NAME)
    name, position = next((name, at) for name, at, first, end in batches_of(kept) if first <= place < end)
    flip(kept, name, position + 60)
    assert repair(kept)
    kept.reopen(proper=False)


def filled(count: int = 10, **options: object) -> Kept:
    """Return a stream with messages, one in each batch."""
    kept = Kept(**options)  # type: ignore[arg-type]
    for number in range(1, count + 1):
        kept.publish((f"s.{number % 3}", f"message {number}"))
    return kept


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_what_is_lost_is_named_and_the_rest_is_there_under_its_sequence(index: bool) -> None:
    kept = filled()
    kept.clock.advance(1)
    kept.reopen()  # so that the log says again which sequence comes next
    kept.publish(("s.0", "message 11"))
    before = kept.held()
    size = kept.stream.byte_count
    damage(kept, 4, index=index)
    assert kept.held() == [row for row in before if row[0] != 4]
    state = kept.stream.state(deleted=True)
    assert state.lost is not None
    assert state.lost.msgs == (4,)
    assert (state.messages, state.first_seq, state.last_seq, state.num_deleted, state.deleted) == (10, 1, 11, 1, (4,))
    if index:
        assert state.lost.bytes == size - kept.stream.byte_count


def test_what_is_lost_stays_lost_and_is_found_once() -> None:
    kept = filled()
    damage(kept, 4)
    told = [kept.stream.losses.is_told]
    kept.stream.note_told()
    for proper in (True, False):
        kept.reopen(proper=proper)
        assert kept.stream.losses.sequences.tolist() == [4]
        told.append(kept.stream.losses.is_told)
        assert 4 not in kept.sequences()
    assert told == [False, True, True]


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_messages_are_read_over_what_is_lost_however_they_are_asked_for(index: bool) -> None:
    kept = filled(60)
    damage(kept, 30, index=index)
    stream = kept.stream
    assert stream.get(30) is None
    assert (found := stream.next("s.>", 30)) is not None
    assert found.sequence == 31
    assert len(stream.read(np.arange(1, 61, dtype=np.uint64))) == 59
    assert len(stream.read(words(29, 31))) == 2  # near each other, and what is lost is between
    assert len(stream.direct(GetRequest(seq=1, batch=100))) == 60  # and the end
    assert [reply.headers.split(b"\r\n")[0] for reply in stream.direct(GetRequest(seq=30))] == [
        b"NATS/1.0 404 Message Not Found"
    ]
    assert stream.pending(stream.filter(()), 1) == 59


def test_new_messages_come_after_all_that_were_ever_given_out() -> None:
    kept = filled()
    damage(kept, 10, index=False)  # the last one
    kept.publish(("s.0", "new"))
    assert kept.sequences() == [*range(1, 10), 11]
    kept.reopen(proper=False)
    assert kept.sequences() == [*range(1, 10), 11]


def test_a_mirror_that_lost_its_last_messages_copies_them_again_and_passes_over_none() -> None:
    kept = Kept(subjects=(), mirror=StreamSource(name="O"))

    def copy(*sequences: int) -> None:
        count = len(sequences)
        texts = [b"message %d" % each for each in sequences]
        times = np.full(count, kept.clock.now_ns())
        kept.stream.copy(OriginBatch(words(*sequences), times, [b"s.a"] * count, [b""] * count, texts), int(times[0]))

    for first in range(1, 13, 3):
        copy(first, first + 1, first + 2)
    damage(kept, batches_of(kept)[-1][2], index=False)
    assert kept.stream.last_seq == 9
    copy(10, 11, 12)
    copy(13, 14)
    assert kept.held() == [(each, "s.a", f"message {each}") for each in range(1, 15)]
    assert kept.stream.state().lost is None
    held = kept.held()
    kept.reopen(proper=False)
    assert kept.held() == held


def test_a_loss_that_is_accepted_is_forgotten_for_good() -> None:
    kept = filled()
    damage(kept, 4)
    assert kept.stream.accept_losses(kept.stream.losses.sequences) == 1
    assert kept.stream.accept_losses(kept.stream.losses.sequences) == 0
    assert kept.stream.state().lost is None
    for proper in (True, False):
        kept.reopen(proper=proper)
        assert kept.stream.state().lost is None
        assert kept.sequences() == [1, 2, 3, 5, 6, 7, 8, 9, 10]


def test_a_crash_while_it_is_accepted_leaves_it_lost_or_accepted() -> None:
    outcomes = set()
    for step in range(1, 9):
        kept = filled(6)
        damage(kept, 4)
        kept.disk.fault = Fault(CHANGES, step, sticky=True)
        accepted = False
        with suppress(StorageRefused):
            accepted = bool(kept.stream.accept_losses(kept.stream.losses.sequences))
        kept.disk.crash(Random(step))
        kept.reopen(proper=False)
        lost = kept.stream.losses.sequences.tolist()
        assert lost == [] if accepted else lost in ([], [4])
        assert kept.sequences() == [1, 2, 3, 5, 6]
        outcomes.add((accepted, bool(lost)))
    assert {(True, False), (False, True)} <= outcomes


def test_deleting_and_purging_accept_what_is_lost() -> None:
    kept = filled()
    damage(kept, 4)
    assert kept.stream.delete(4)
    assert not kept.stream.delete(4)
    assert kept.stream.state().lost is None
    damage(kept, 6)
    kept.stream.purge(PurgeRequest(filter="s.0"))
    assert kept.stream.losses.sequences.tolist() == [6]
    kept.stream.purge(PurgeRequest(seq=6))
    assert kept.stream.losses.sequences.tolist() == [6]
    kept.stream.purge(PurgeRequest())
    assert kept.stream.state().lost is None
    kept.reopen()
    assert kept.stream.state().lost is None


def test_what_is_lost_later_is_lost_beside_what_was_lost_before() -> None:
    kept = filled()
    damage(kept, 4)
    kept.publish(("s.0", "message 11"))
    kept.stream.note_told()
    damage(kept, 7, index=False)
    assert kept.stream.losses.sequences.tolist() == [4, 7]
    assert not kept.stream.losses.is_told
    kept.stream.accept_losses(words(4))
    damage(kept, 9)
    assert kept.stream.losses.sequences.tolist() == [7, 9]
    assert kept.sequences() == [1, 2, 3, 5, 6, 8, 10, 11]


def test_a_message_whose_first_copy_was_lost_can_be_published_again() -> None:
    kept = Kept(duplicate_window=100 * SECOND)
    for number in range(1, 6):
        kept.publish(("s.a", f"message {number}", {"Nats-Msg-Id": f"id {number}"}))
    damage(kept, 3)
    published = kept.publish(("s.a", "again", {"Nats-Msg-Id": "id 3"}), ("s.a", "not again", {"Nats-Msg-Id": "id 2"}))
    assert published.sequences.tolist() == [6, 0]
    assert kept.held()[-1] == (6, "s.a", "again")


def test_removals_that_come_after_it_are_followed_and_nothing_is_called_lost_that_was_removed() -> None:
    kept = filled()
    kept.stream.remove(words(4, 7))
    damage(kept, 4, index=False)
    assert kept.stream.state().lost is None
    assert kept.sequences() == [1, 2, 3, 5, 6, 8, 9, 10]


def test_a_stream_that_lost_something_is_compacted_and_opened_again() -> None:
    kept = Kept(max_msgs_per_subject=1)
    for number in range(1, 1201):
        kept.publish((f"s.{number % 7}", f"{number} ".ljust(40_000, "x")))
    place = kept.stream._log.oldest_end()  # noqa: SLF001
    assert place is not None
    damage(kept, place + 40)
    kept.stream.expire(kept.clock.now_ns())
    before = kept.held()
    while kept.stream.compact_step():
        pass
    assert kept.stream._log.first_place > 0  # noqa: SLF001
    assert kept.held() == before
    kept.stream.close()
    kept.disk.remove(FOLDER / INDEX_NAME)
    kept.reopen(proper=False)
    assert kept.held() == before


@given(st.integers(0, 1 << 30), st.booleans())
def test_any_batches_may_be_lost_and_the_rest_is_as_it_was(seed: int, index: bool) -> None:
    random = Random(seed)
    kept = Kept(max_msgs_per_subject=random.choice([-1, 2]))
    jumps = random.random() < 0.5
    for _ in range(random.randrange(1, 30)):
        kept.clock.advance(1)
        match random.randrange(6):
            case 0 if kept.stream.last_seq:
                kept.stream.delete(random.randint(1, kept.stream.last_seq))
            case 1:
                kept.reopen(proper=random.random() < 0.5)
            case 2 if jumps:
                kept.stream.skip(kept.stream.last_seq + random.randint(1, 5))
            case _:
                kept.publish(*[(f"s.{random.randrange(3)}", f"{random.random()}") for _ in range(random.randint(1, 3))])
    kept.publish(("s.0", "last"))  # so that an index is written
    before, last_seq = kept.held(), kept.stream.last_seq
    kept.stream.close()
    if not index:
        kept.disk.remove(FOLDER / INDEX_NAME)
    chosen = random.sample(batches_of(kept), min(len(batches_of(kept)), random.randint(1, 3)))
    for name, position, _, _ in chosen:
        flip(kept, name, position + 60)
    assert repair(kept)
    kept.reopen(proper=False)
    found, lost = kept.held(), set(kept.stream.losses.sequences.tolist())
    if index:  # the index knows everything, so nothing is in doubt
        assert set(before) - set(found) == {row for row in before if row[0] in lost}
        assert set(found) <= set(before)
        assert kept.stream.last_seq == last_seq
    elif not jumps:
        assert kept.stream.last_seq >= last_seq
        texts = {text: sequence for sequence, _, text in found}
        assert all(texts.get(text, sequence) >= sequence for sequence, _, text in before)  # no consumer passes one over
    assert not lost & {sequence for sequence, _, _ in found}
    again = kept.held()
    kept.publish(("s.0", "next"))
    kept.reopen(proper=random.random() < 0.5)
    assert [row for row in kept.held() if row[2] != "next"] == [row for row in again if row in kept.held()]
    assert kept.held()[-1][2] == "next"


@given(
    st.dictionaries(st.integers(0, 100), st.tuples(st.integers(1, 9), st.integers(0, 50), st.integers(0, 9))),
    st.sets(st.integers(1, 1 << 40), max_size=20),
    st.integers(0, 1 << 50),
    st.booleans(),
)
def test_the_file_of_losses_is_read_as_it_was_written(
    parts: dict[int, tuple[int, int, int]], sequences: set[int], size: int, told: bool
) -> None:
    known = {first: LostPart(first, first + n, before, before + m) for first, (n, before, m) in parts.items()}
    losses = Losses(known, np.array(sorted(sequences), np.uint64), size, told)
    data = format_losses(losses, bytes(16))
    read = parse_losses(data, bytes(16))
    assert read is not None
    assert (read.parts, read.sequences.tolist()) == (known, sorted(sequences))
    assert (read.bytes, read.is_told) == (size, told)
    assert parse_losses(data, b"another journal!") is None
    assert parse_losses(data[:-2] + b"?\n", bytes(16)) is None


@given(st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 60))))
def test_the_journals_file_of_lost_offsets_is_read_as_it_was_written(ranges: list[tuple[int, int]]) -> None:
    data = format_lost_file(bytes(16), ranges)
    assert parse_lost_file(data, bytes(16)) == ranges
    assert parse_lost_file(data, b"another journal!") is None
    assert parse_lost_file(data[:-2] + b"?\n", bytes(16)) is None


def test_a_journal_that_an_earlier_version_repaired_is_read_as_a_whole_once() -> None:
    kept = filled()
    kept.stream.close()
    name, position = next((name, at) for name, at, first, end in batches_of(kept) if first <= 4 < end)
    flip(kept, name, position + 60)
    repair(kept)
    kept.disk.remove(JOURNAL / LOST_NAME)
    kept.reopen(proper=False)
    assert kept.stream.losses.sequences.tolist() == [4]
    assert LOST_NAME in kept.disk.names(JOURNAL)
