"""Messages that went from a stream whose change is not durable yet: what a consumer shows, keeps and delivers."""

import numpy as np
import pytest

from strandline.broker.api.advisories import MessageTerminated
from strandline.broker.api.consumer_config import AckPolicy
from strandline.broker.api.requests import PurgeRequest
from strandline.broker.consumers import Consumer, pending_removals
from strandline.broker.consumers.pending import PASSED_NS, Pending
from strandline.broker.streams import Ticket
from strandline.broker.streams.entries import Entry
from strandline.broker.streams.storage import JournalLog
from strandline.errors import StorageRefused
from strandline.groups import GroupConfig
from tests.broker.consumers.executors import Later
from tests.broker.consumers.helpers import Sent, StreamWithConsumers


class Slow:
    """A world whose disk syncs when told to; its stream holds three messages."""

    def __init__(self) -> None:
        self.executor = Later()
        self.world = StreamWithConsumers(on_disk=True, executor=self.executor, max_msgs=3)
        state = self.world.state("C", GroupConfig(compact_bytes_min=1024))
        self.consumer: Consumer = self.world.consumer(state=state, ack_policy=AckPolicy.EXPLICIT)
        self.world.publish("1", "2", "3")
        self.sync()

    def sync(self) -> None:
        """Let everything become durable."""
        self.executor.run()
        self.world.run()

    def pull(self, count: int) -> list[Sent]:
        """Return messages that are delivered at once."""
        sent = self.world.pull(self.consumer, f'{{"batch": {count}, "no_wait": true}}')
        return [one for one in sent if one.reply]

    def shown(self) -> tuple[int, int, int]:
        """Return what is left, outstanding, and the floor."""
        info = self.consumer.info(self.world.now_ns)
        return info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_what_is_left_is_exact_at_once_and_what_is_kept_follows(slow: Slow) -> None:
    assert len(slow.pull(1)) == 1
    slow.world.stream.remove(np.array([1, 2], np.uint64))
    assert slow.shown() == (1, 1, 0)
    assert not slow.world.told
    slow.executor.run()
    assert slow.shown() == (1, 0, 1)
    assert [type(one) for one in slow.world.told] == [MessageTerminated]


def test_after_a_purge_the_floor_moves_when_that_is_durable(slow: Slow) -> None:
    slow.pull(1)
    slow.world.stream.purge(PurgeRequest())
    slow.consumer.note_purged()
    slow.world.run()
    assert slow.shown() == (0, 1, 0)
    slow.sync()
    assert slow.shown() == (0, 0, 3)


def test_a_message_that_may_come_back_is_not_forgotten_when_its_turn_comes_again(slow: Slow) -> None:
    (sent,) = slow.pull(1)
    slow.world.stream.remove(np.array([1], np.uint64))
    slow.world.answer(slow.consumer, sent, payload="-NAK")
    assert [one.payload for one in slow.pull(1)] == ["2"]
    assert slow.shown() == (1, 2, 0)
    slow.sync()
    assert slow.shown() == (1, 1, 1)


def test_nothing_is_delivered_beyond_very_many_messages_that_may_come_back(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_removals, "PASSED_MAX", 1)
    slow.world.stream.remove(np.array([1, 2], np.uint64))
    slow.world.routes.listen("_INBOX.1")
    slow.consumer.take_pulls([(b"_INBOX.1", b'{"batch": 1, "no_wait": true}', b"")])
    slow.world.run()
    assert not slow.world.routes.take()
    slow.sync()
    assert [one.payload for one in slow.world.routes.take()] == ["3"]


def test_what_was_passed_over_outlives_a_compaction_of_what_is_kept(slow: Slow) -> None:
    slow.world.stream.remove(np.array([1], np.uint64))
    for expected in ("2", "3"):
        (sent,) = slow.pull(1)
        assert sent.payload == expected
        for _ in range(20):
            slow.world.answer(slow.consumer, sent, payload="+WPI")
    slow.consumer.state.settle()
    assert slow.consumer.state.passed == {1}
    slow.world.disk.kill()
    state = slow.world.state("C")
    assert set(state.pending.first) == {1, 2, 3}
    assert [state.pending.count(sequence) for sequence in (1, 2, 3)] == [0, 1, 1]


def test_what_was_passed_over_is_forgotten_when_it_is_gone_for_good(slow: Slow) -> None:
    slow.world.stream.remove(np.array([1], np.uint64))
    slow.pull(1)
    slow.sync()
    assert not slow.consumer.state.passed
    slow.consumer.state.settle()
    slow.world.disk.kill()
    assert set(slow.world.state("C").pending.first) == {2}


def test_nothing_is_delivered_by_a_stream_that_failed_amid_a_change(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(log: JournalLog, entry: Entry) -> Ticket:
        raise StorageRefused(str(log), str(entry), "ENOSPC")

    monkeypatch.setattr(JournalLog, "append", refuse)
    with pytest.raises(StorageRefused):
        slow.world.publish("4")
    assert not slow.world.stream.is_live(np.array([1], np.uint64)).any()
    assert not slow.pull(3)
    assert slow.consumer.state.delivered_stream == 0


def test_a_message_that_was_passed_over_is_kept_as_such_until_it_is_delivered() -> None:
    passed, pending, delivered = Pending(), Pending(), Pending()
    for one in (passed, pending):
        one.restore(1, 1, PASSED_NS, 1)
    delivered.restore(1, 1, 5, 1)
    assert pending.expire(PASSED_NS) == [1]
    pending.queue([1])
    assert pending.entries() == passed.entries() != delivered.entries()
    assert pending.redelivered(1, 5) == 1
    assert pending.entries() == delivered.entries()
