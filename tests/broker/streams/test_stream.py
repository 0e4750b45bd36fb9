"""What a stream does, one thing at a time; whatever is said of acknowledged messages holds after a restart too."""

import contextlib
import errno
import json
from random import Random

import numpy as np
import pytest

from strandline.broker.api.config import Discard, RePublish, Retention, Storage, SubjectTransform
from strandline.broker.api.requests import PurgeRequest
from strandline.broker.streams import Removed, Stream, atomic_batches
from strandline.broker.streams.entries import Entry
from strandline.broker.streams.storage import JournalLog, Ticket
from strandline.errors import Closed, InvalidInput, Poisoned, StrandlineError, Unavailable
from strandline.journal import WRITTEN
from strandline.sim import Fault
from tests.broker.streams.helpers import FOLDER, SECOND, Kept, words
from tests.journal.helpers import LaterExecutor
from tests.waiting import PATIENCE_S


class OutOfOrder(LaterExecutor):
    """Runs what came last, as one of several threads may."""

    def run_last(self) -> None:
        self._waiting[-1]()
        self._waiting.pop()

    def forget_all(self) -> None:
        self._waiting.clear()


BOTH = pytest.mark.parametrize("storage", list(Storage))


@BOTH
def test_messages_are_kept_in_order_under_their_sequences(storage: Storage) -> None:
    kept = Kept(storage=storage)
    published = kept.publish(("s.a", "1"), ("s.b", "2"), ("s.a", "3"))
    assert published.sequences.tolist() == [1, 2, 3]
    assert published.ticket.done()
    assert kept.held() == [(1, "s.a", "1"), (2, "s.b", "2"), (3, "s.a", "3")]


@BOTH
def test_the_size_of_a_message_is_counted_as_nats_server_counts_it(storage: Storage) -> None:
    kept = Kept(storage=storage)
    kept.publish(("s.a", "12345"), ("s.a", "1", {"A": "b"}))
    header = len(b"NATS/1.0\r\nA: b\r\n\r\n")
    expected = 2 * 30 + 3 + 5 + 3 + 1 + 4 + header if storage is Storage.FILE else 2 * 16 + 3 + 5 + 3 + 1 + header
    assert kept.stream.state().bytes == expected


def test_a_subject_is_transformed_as_it_comes_in() -> None:
    kept = Kept(subject_transform=SubjectTransform("s.*", "t.{{wildcard(1)}}.x"))
    kept.publish(("s.a", "1"), ("s.b.c", "2"))
    assert kept.held() == [(1, "t.a.x", "1"), (2, "s.b.c", "2")]


def test_a_stored_message_is_published_again() -> None:
    kept = Kept(republish=RePublish("s.>", "again.>"))
    kept.publish(("s.a", "1"))
    (again,) = kept.publish(("s.a", "2", {"A": "b"})).republish
    assert (again.subject, again.payload) == (b"again.a", b"2")
    assert again.headers.startswith(b"NATS/1.0\r\nA: b\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 2\r\n")
    assert b"Nats-Last-Sequence: 1\r\n" in again.headers


def test_only_headers_are_published_again_if_asked() -> None:
    kept = Kept(republish=RePublish("s.>", "again.>", headers_only=True))
    (again,) = kept.publish(("s.a", "12345")).republish
    assert again.payload == b""
    assert again.headers.endswith(b"Nats-Last-Sequence: 0\r\nNats-Msg-Size: 5\r\n\r\n")


@BOTH
def test_what_nobody_is_interested_in_uses_up_a_sequence_and_is_not_kept(storage: Storage) -> None:
    kept = Kept(retention=Retention.INTEREST, storage=storage)
    kept.stream.set_interest((kept.stream.filter(("s.a",)),))
    published = kept.publish(("s.a", "1"), ("s.b", "2", {"Nats-Msg-Id": "x"}), ("s.a", "3"), ("s.b", "4"))
    assert published.sequences.tolist() == [1, 2, 3, 4]
    assert published.stored.tolist() == [1, 3]
    assert kept.sequences() == [1, 3]
    if storage is Storage.FILE:
        kept.reopen(proper=False)
        assert (kept.sequences(), kept.stream.last_seq) == ([1, 3], 4)
    assert kept.publish(("s.b", "2", {"Nats-Msg-Id": "x"})).answers[0].endswith(b'"seq":2,"duplicate": true}')


def test_an_atomic_batch_is_stored_all_or_none() -> None:
    kept = Kept(allow_atomic=True)
    first = kept.publish(("s.a", "1", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}))
    assert (first.answers, first.sequences.tolist()) == ({0: b""}, [0])
    assert kept.sequences() == []
    last = kept.publish(("s.b", "2", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}))
    assert json.loads(last.answers[0]) == {"stream": "S", "seq": 2, "batch": "b", "count": 2}
    kept.reopen(proper=False)
    assert kept.sequences() == [1, 2]


def test_an_atomic_batch_that_nobody_goes_on_with_is_abandoned() -> None:
    kept = Kept(allow_atomic=True)
    kept.publish(("s.a", "1", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}))
    assert kept.stream.next_expiry_ns == kept.clock.now_ns() + 10 * SECOND
    kept.clock.advance(10)
    kept.stream.expire(kept.clock.now_ns())
    answer = kept.publish(("s.a", "2", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2"})).answers[0]
    assert json.loads(answer)["error"]["err_code"] == 10176


def test_there_are_not_more_than_fifty_batches_or_a_thousand_messages_in_one() -> None:
    kept = Kept(allow_atomic=True)
    for number in range(50):
        kept.publish(("s.a", "1", {"Nats-Batch-Id": str(number), "Nats-Batch-Sequence": "1"}))
    answer = kept.publish(("s.a", "1", {"Nats-Batch-Id": "one more", "Nats-Batch-Sequence": "1"})).answers[0]
    assert json.loads(answer)["error"]["err_code"] == 10210
    for number in range(2, 1001):
        kept.publish(("s.a", "1", {"Nats-Batch-Id": "0", "Nats-Batch-Sequence": str(number)}))
    answer = kept.publish(("s.a", "1", {"Nats-Batch-Id": "0", "Nats-Batch-Sequence": "1001"})).answers[0]
    assert json.loads(answer)["error"]["err_code"] == 10199


def test_batches_that_nobody_commits_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_batches, "BYTES_MAX", 10_000)
    kept, dropped = Kept(allow_atomic=True), []
    kept.stream.on_abandoned(lambda identifier, reason: dropped.append((identifier, reason)))
    for batch, number in (("a", 1), ("b", 1), ("a", 2)):
        answer = kept.publish(
            ("s.a", "x" * 4_000, {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)})
        ).answers[0]
    assert json.loads(answer)["error"]["err_code"] == 10199
    assert dropped == [(b"a", "large")]
    last = kept.publish(
        ("s.a", "x" * 4_000, {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"})
    )
    assert last.sequences.tolist() == [2]


def test_a_counter_goes_on_after_a_restart() -> None:
    kept = Kept(allow_msg_counter=True)
    answers = kept.publish(("s.a", "", {"Nats-Incr": "5"}), ("s.a", "", {"Nats-Incr": "-2"})).answers
    assert [json.loads(answers[row])["val"] for row in (0, 1)] == ["5", "3"]
    kept.reopen(proper=False)
    assert json.loads(kept.publish(("s.a", "", {"Nats-Incr": "+1"})).answers[0])["val"] == "4"


def test_of_two_who_expect_the_same_sequence_one_wins() -> None:
    kept = Kept(max_msgs_per_subject=1)
    expected = {"Nats-Expected-Last-Subject-Sequence": "0"}
    published = kept.publish(("s.a", "mine", expected), ("s.a", "yours", expected))
    assert published.sequences.tolist() == [1, 0]
    kept.reopen(proper=False)
    assert kept.publish(("s.a", "late", expected)).sequences.tolist() == [0]
    assert kept.held() == [(1, "s.a", "mine")]


@BOTH
def test_a_mirror_keeps_sequences_and_times(storage: Storage) -> None:
    kept = Kept(storage=storage)
    times = np.array([10, 20, 30], np.int64)
    kept.stream.store(words(5, 6, 9), times, [b"x.a", b"x.b", b"x.a"], [b"", b"", b""], [b"1", b"2", b"3"])
    kept.stream.skip(12)
    if storage is Storage.FILE:
        kept.reopen(proper=False)
    assert kept.held() == [(5, "x.a", "1"), (6, "x.b", "2"), (9, "x.a", "3")]
    message = kept.stream.get(6)
    assert message is not None
    assert message.time_ns == 20
    assert kept.stream.last_seq == 12
    assert kept.publish(("s.a", "next")).sequences.tolist() == [13]


def test_who_listens_is_told_of_everything_that_goes() -> None:
    kept = Kept(max_msgs_per_subject=1)
    told: list[Removed] = []
    kept.stream.add_listener(told.append)
    kept.publish(("s.a", "1"), ("s.b", "2"), ("s.a", "3"))
    kept.stream.delete(2)
    kept.stream.purge(PurgeRequest())
    assert [part.sequences.tolist() for part in told] == [[1], [2], [3]]


def test_pending_is_exact_for_any_filter_and_start() -> None:
    kept = Kept()
    kept.publish(*[(f"s.{number % 3}.{'x' if number % 2 else 'y'}", "v") for number in range(60)])
    kept.stream.remove(words(*range(1, 60, 7)))
    held = kept.held()
    for pattern in (">", "s.>", "s.*.x", "s.1.>", "s.1.x", "t.>"):
        matching = kept.stream.filter((pattern,))
        for start in (0, 1, 8, 30, 60, 61):
            expected = [s for s, subject, _ in held if s >= start and matching.matches_subject(subject.encode())]
            assert kept.stream.pending(matching, start) == len(expected)
            assert kept.stream.next_sequences(matching, start, 1000).tolist() == expected
            assert kept.stream.pending(matching, start, 40) == len([s for s in expected if s <= 40])


def test_the_last_of_each_subject_can_be_had_as_of_a_sequence() -> None:
    kept = Kept()
    kept.publish(("s.a", "1"), ("s.b", "2"), ("s.a", "3"), ("s.c", "4"))
    everything = kept.stream.filter(())
    assert kept.stream.last_per_subject(everything).tolist() == [2, 3, 4]
    assert kept.stream.last_per_subject(everything, 2).tolist() == [1, 2]


def test_the_last_message_of_a_subject_steps_back_when_it_is_deleted() -> None:
    kept = Kept()
    kept.publish(*[("s.a", str(number)) for number in range(5)], ("s.b", "x"))
    for gone, last in ((5, 4), (3, 4), (4, 2), (2, 1)):
        assert kept.stream.delete(gone)
        message = kept.stream.last("s.a")
        assert message is not None
        assert message.sequence == last
    assert not kept.stream.delete(5)


@pytest.mark.parametrize("marker", [0, 60 * SECOND])
def test_a_message_goes_when_its_time_to_live_is_over_and_a_marker_tells_of_it(marker: int) -> None:
    kept = Kept(allow_msg_ttl=True, subject_delete_marker_ttl=marker, max_msgs_per_subject=1)
    kept.publish(("s.a", "1", {"Nats-TTL": "2s"}), ("s.b", "2"))
    assert kept.stream.next_expiry_ns is not None
    kept.clock.advance(2)
    published = kept.stream.expire(kept.clock.now_ns())
    assert published.removed.sequences.tolist() == [1]
    assert kept.sequences() == ([2, 3] if marker else [2])
    if marker:
        message = kept.stream.last("s.a")
        assert message is not None
        assert b"Nats-Marker-Reason: MaxAge\r\nNats-TTL: 1m0s\r\nNats-Rollup: sub\r\n" in message.headers
        kept.clock.advance(60)
        kept.stream.expire(kept.clock.now_ns())
        assert kept.sequences() == [2]


def test_what_is_past_its_time_is_gone_when_the_stream_is_opened() -> None:
    kept = Kept(max_age=SECOND)
    kept.publish(("s.a", "1"))
    kept.clock.advance(0.5)
    kept.publish(("s.a", "2"))
    kept.clock.advance(0.6)
    kept.reopen()
    assert kept.sequences() == [2]


def test_time_does_not_go_back_with_the_clock() -> None:
    kept = Kept()
    kept.publish(("s.a", "1"))
    kept.clock.advance(-100)
    kept.publish(("s.a", "2"))
    found = kept.stream.read(words(1, 2))
    assert found.times[0] == found.times[1]


def test_purging_beyond_the_end_moves_the_next_sequence() -> None:
    kept = Kept()
    kept.publish(("s.a", "1"))
    assert kept.stream.purge(PurgeRequest(seq=100)) == 1
    kept.reopen(proper=False)
    assert (kept.stream.first_seq, kept.stream.last_seq) == (100, 99)
    assert kept.publish(("s.a", "2")).sequences.tolist() == [100]


def test_sequences_are_never_given_out_twice() -> None:
    kept = Kept()
    kept.publish(("s.a", "1"), ("s.a", "2"))
    kept.stream.purge(PurgeRequest())
    for proper in (True, False):
        kept.reopen(proper=proper)
        assert kept.stream.last_seq == 2
    assert kept.publish(("s.a", "3")).sequences.tolist() == [3]


def test_a_stream_that_is_full_refuses_only_what_does_not_fit() -> None:
    kept = Kept(discard=Discard.NEW, max_msgs=2)
    published = kept.publish(*[("s.a", str(number)) for number in range(4)])
    assert published.sequences.tolist() == [1, 2, 0, 0]
    kept.stream.delete(1)
    assert kept.publish(("s.a", "x")).sequences.tolist() == [3]


def test_after_a_failed_append_nothing_more_is_accepted() -> None:
    kept = Kept()
    kept.publish(("s.a", "1"))
    kept.disk.fault = Fault(frozenset({"pwritev", "sync"}), 1, errno.EIO)
    published = kept.publish(("s.a", "2"))
    with pytest.raises(StrandlineError):
        published.ticket.result(PATIENCE_S)
    with pytest.raises(StrandlineError):
        kept.publish(("s.a", "3"))
    with pytest.raises(StrandlineError):
        kept.publish(("s.a", "4"))
    kept.reopen(proper=False)
    assert kept.sequences()[0] == 1
    assert kept.held()[-1][2] in ("1", "2")


def test_a_stream_is_left_to_another_when_its_index_is_written_and_can_be_read_on() -> None:
    later = LaterExecutor()
    kept = Kept(executor=later)
    kept.publish(("s.a", "1"))
    later.run_all()
    written = kept.stream.snapshot()
    with pytest.raises(Unavailable):
        kept.stream.retire()
    later.run_all()
    assert written.done()
    kept.stream.retire()
    with contextlib.closing(Stream.open(FOLDER, disk=kept.disk, clock=kept.clock, executor=later)) as another:
        assert another.last_seq == 1
        assert kept.sequences() == [1]


def test_what_was_written_and_never_synced_is_not_salvaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.streams.storage.SEGMENT_BYTES", 1024)
    later = LaterExecutor()
    kept = Kept(max_msgs_per_subject=1, executor=later)
    kept.publish(("s.a", "1" * 600), ("s.b", "2"))
    later.run_all()
    kept.disk.fault = Fault(frozenset({"sync"}), 1, errno.EIO)
    failed = kept.publish(("s.a", "3" * 600))  # which begins another segment, and is synced after it was written
    later.run_all()
    assert failed.ticket.exception() is not None
    assert kept.stream.durable_seq == 2
    with pytest.raises(Poisoned):
        kept.held()
    salvaged = kept.stream = kept.stream.salvage()
    assert [(sequence, payload[0]) for sequence, _, payload in kept.held()] == [(1, "1"), (2, "2")]
    assert (salvaged.failure, salvaged.last_seq, salvaged.durable_seq) == (None, 2, 2)
    assert salvaged.barrier().exception() is None
    for change in (
        lambda: kept.publish(("s.a", "4")),
        lambda: salvaged.delete(1),
        lambda: salvaged.purge(PurgeRequest()),
        lambda: salvaged.expire(kept.clock.now_ns()),
        lambda: salvaged.update(salvaged.config, kept.clock.now_ns()),
    ):
        with pytest.raises(Poisoned):
            change()
    assert len(salvaged.remove(words(1))) == 0
    assert kept.sequences() == [1, 2]
    kept.reopen()
    assert kept.sequences() in ([1, 2], [2, 3])
    published = kept.publish(("s.b", "5"))
    later.run_all()
    assert published.ticket.exception() is None


def test_what_is_on_its_way_to_the_log_moves_no_sequence_when_the_oldest_part_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strandline.broker.streams.storage.SEGMENT_BYTES", 1024)
    later = LaterExecutor()
    kept = Kept(max_msgs_per_subject=1, executor=later)
    for number in range(3):  # each has a part of the log of its own
        kept.publish(("s.a", str(number) * 700))
        later.run_all()
    oldest = kept.stream._log.first_place  # noqa: SLF001 - no client can see it
    kept.stream.compact_step()
    later.run_all()
    kept.publish(*((f"s.{key}", "on its way") for key in "bcd"))
    kept.stream.compact_step()
    later.run_all()
    kept.stream.compact_step()
    assert kept.stream._log.first_place > oldest  # noqa: SLF001 - no client can see it
    held = kept.held()
    assert [sequence for sequence, _, _ in held] == [3, 4, 5, 6]
    kept.reopen(proper=False)
    assert kept.held() == held


def test_an_index_of_what_the_log_never_held_is_never_written() -> None:
    later = OutOfOrder()
    kept = Kept(executor=later)
    kept.publish(("s.a", "1"))
    later.run_all()
    kept.publish(("s.b", "never stored"), ("s.c", "never stored"))
    before = len(later)
    kept.stream.snapshot()
    if len(later) > before:
        later.run_last()
    later.forget_all()
    kept.reopen(proper=False)
    for number in range(3):
        kept.publish(("s.d", str(number)))
        later.run_all()
    held = kept.held()
    assert [payload for _, _, payload in held][-1] == "2"
    kept.reopen(proper=False)
    assert kept.held() == held


def test_a_stream_that_is_well_or_in_memory_has_nothing_to_salvage() -> None:
    for storage in (Storage.FILE, Storage.MEMORY):
        kept = Kept(storage=storage)
        assert kept.stream.is_on_disk is (storage is Storage.FILE)
        with pytest.raises(InvalidInput):
            kept.stream.salvage()


def test_nothing_is_accepted_once_the_state_is_ahead_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    with monkeypatch.context() as patched:
        patched.setattr(JournalLog, "append", _refuse)
        with pytest.raises(InvalidInput):
            kept.publish(("s.a", "1"))
    with pytest.raises(Poisoned):
        kept.publish(("s.a", "2"))
    kept.reopen(proper=False)
    assert kept.sequences() == []


def _refuse(log: JournalLog, entry: Entry) -> Ticket:
    del log, entry
    raise InvalidInput("not this one")


def test_a_closed_stream_says_so() -> None:
    kept = Kept()
    kept.stream.close()
    kept.stream.close()
    with pytest.raises(Closed):
        kept.publish(("s.a", "1"))


def test_a_stream_begins_at_its_first_sequence() -> None:
    kept = Kept(first_seq=100)
    assert (kept.stream.first_seq, kept.stream.last_seq) == (100, 99)
    kept.publish(("s.a", "1"))
    kept.reopen(proper=False)
    assert kept.sequences() == [100]


def test_a_message_can_be_found_by_its_time() -> None:
    kept = Kept()
    start = kept.clock.now_ns()
    for number in range(5):
        kept.publish(("s.a", str(number)))
        kept.clock.advance(1)
    kept.stream.delete(3)
    assert [kept.stream.sequence_at(start + offset) for offset in (0, SECOND, SECOND + 1, 9 * SECOND)] == [1, 2, 4, 6]


@pytest.mark.parametrize("seed", range(6))
def test_an_index_never_knows_more_than_the_log(seed: int) -> None:
    kept = Kept(durability=WRITTEN)
    kept.publish(("s.a", "1"), ("s.a", "2"))
    kept.stream.snapshot().result(PATIENCE_S)
    kept.publish(("s.a", "perhaps"))
    kept.disk.crash(Random(seed))
    kept.reopen(proper=False)
    assert kept.sequences()[:2] == [1, 2]
    kept.publish(("s.b", "x"), ("s.b", "y"), ("s.b", "z"))
    held = kept.held()
    kept.reopen(proper=False)
    assert kept.held() == held


def test_with_written_durability_a_process_may_die() -> None:
    kept = Kept(durability=WRITTEN)
    assert kept.publish(("s.a", "1")).ticket.done()
    kept.reopen(proper=False)
    assert kept.sequences() == [1]
