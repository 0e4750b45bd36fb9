"""What a consumer is told to do, and what it shows of itself: pauses, resets, updates, and its end."""

from dataclasses import replace

import numpy as np
import pytest

from strandline.broker.api.advisories import MessageTerminated, Paused
from strandline.broker.api.codes import ApiError
from strandline.broker.api.consumer_config import AckPolicy, DeliverPolicy
from strandline.broker.api.requests import PurgeRequest
from strandline.broker.api.times import ZERO_TIME_NS
from strandline.broker.consumers.feed import ADVISORIES_MAX
from tests.broker.consumers.helpers import SECOND, StreamWithConsumers, Value, sequences, statuses


def test_a_paused_consumer_delivers_nothing_until_the_time_has_come() -> None:
    world = StreamWithConsumers()
    world.routes.listen("d.1")
    consumer = world.consumer(deliver_subject="d.1", idle_heartbeat=SECOND)
    until_ns = world.now_ns + 10 * SECOND
    consumer.pause(until_ns, world.now_ns)
    world.publish("1")
    world.run()
    assert not world.routes.take()
    info = consumer.info(world.now_ns)
    assert (info.paused, info.pause_remaining, info.config.pause_until) == (True, 10 * SECOND, until_ns)

    world.wait(9)
    assert set(statuses(world.routes.take())) == {"100 Idle Heartbeat"}
    world.wait(1.1)

    assert sequences(world.routes.take()) == [1]
    assert world.told == [Paused("S", "C", True, until_ns), Paused("S", "C", False, until_ns)]


def test_a_paused_consumer_can_be_told_to_go_on() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    world.publish("1")
    consumer.pause(world.now_ns + 10 * SECOND, world.now_ns)
    assert not world.pull(consumer, '{"batch": 1, "expires": 60000000000}')

    consumer.pause(ZERO_TIME_NS, world.now_ns)
    world.run()

    assert sequences(world.routes.take()) == [1]
    assert consumer.info(world.now_ns).config.pause_until is None


@pytest.mark.parametrize(
    ("options", "sequence", "problem"),
    [
        ({"deliver_policy": DeliverPolicy.NEW}, 1, "invalid reset: not allowed"),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 3}, 2, "invalid reset: below start seq"),
        (
            {"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": 1_700_000_002 * SECOND},
            1,
            "invalid reset: below start time",
        ),
    ],
)
def test_a_reset_to_where_the_consumer_never_was_is_refused(
    options: dict[str, Value], sequence: int, problem: str
) -> None:
    world = StreamWithConsumers()
    for number in range(5):
        world.publish(str(number))
        world.wait(1)
    consumer = world.consumer(**options)

    with pytest.raises(ApiError) as refused:
        consumer.resets_to(sequence)

    assert refused.value.description == problem


def test_a_reset_without_a_sequence_goes_back_to_what_is_acknowledged() -> None:
    world = StreamWithConsumers()
    world.publish(*"12345")
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT)
    sent = world.pull(consumer, "4")
    world.answer(consumer, sent[0], sent[1])

    assert consumer.resets_to(0) == 3
    consumer.reset(3)
    world.run()

    assert [one.numbers for one in world.pull(consumer, "9")] == [(1, 3, 1, 2), (1, 4, 2, 1), (1, 5, 3, 0)]


def test_another_filter_counts_anew_from_where_the_consumer_is() -> None:
    world = StreamWithConsumers()
    world.publish(("s.a", "1"), ("s.b", "2"), ("s.a", "3"), ("s.b", "4"))
    consumer = world.consumer(filter_subject="s.a")
    world.pull(consumer, "1")

    consumer.update(replace(consumer.config, filter_subject="s.b"), world.now_ns)
    world.run()

    assert consumer.info(0).num_pending == 2
    assert sequences(world.pull(consumer, "9")) == [2, 4]


def test_another_deliver_subject_is_sent_to_when_somebody_listens_there() -> None:
    world = StreamWithConsumers()
    world.routes.listen("d.1")
    consumer = world.consumer(deliver_subject="d.1")

    consumer.update(replace(consumer.config, deliver_subject="d.2"), world.now_ns)
    world.publish("1")
    assert not world.routes.take()
    world.routes.listen("d.2")
    world.run()

    assert [(one.to, one.sequence) for one in world.routes.take()] == [("d.2", 1)]


def test_more_may_be_outstanding_after_an_update() -> None:
    world = StreamWithConsumers()
    world.publish("1", "2", "3")
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1)
    assert sequences(world.pull(consumer, '{"batch": 5, "expires": 60000000000}')) == [1]

    consumer.update(replace(consumer.config, max_ack_pending=3), world.now_ns)
    world.run()

    assert sequences(world.routes.take()) == [2, 3]


def test_a_closed_consumer_does_nothing_more() -> None:
    world = StreamWithConsumers()
    world.routes.listen("d.1")
    consumer = world.consumer(deliver_subject="d.1", idle_heartbeat=SECOND)

    consumer.close()
    world.publish("1")
    world.wait(0.5)

    assert not world.routes.take()
    assert not world.routes.watchers
    assert not consumer.step(world.now_ns)
    assert not consumer.tick(world.now_ns)


def test_what_is_shown_has_the_times_of_the_last_delivery_and_answer() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT)
    assert consumer.info(0).delivered.last_active is None
    world.publish("1")
    sent = world.pull(consumer, "1")
    delivered_ns = world.now_ns
    world.wait(1)
    world.answer(consumer, *sent)

    info = consumer.info(world.now_ns)

    assert (info.delivered.last_active, info.ack_floor.last_active) == (delivered_ns, world.now_ns)
    assert (info.stream_name, info.name, info.created, info.ts) == ("S", "C", consumer.created_ns, world.now_ns)


def test_nobody_is_told_of_each_message_that_a_purge_takes_away() -> None:
    world = StreamWithConsumers()
    world.publish(*"12345")
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT)
    world.pull(consumer, "4")

    world.stream.delete(1)
    assert [type(one) for one in world.told] == [MessageTerminated]
    world.stream.purge(PurgeRequest(seq=3))
    assert consumer.info(0).num_ack_pending == 2
    world.stream.purge(PurgeRequest())
    consumer.note_purged()

    assert len(world.told) == 1
    assert (consumer.info(0).num_ack_pending, consumer.info(0).num_pending) == (0, 0)


def test_nobody_is_told_of_each_of_many_messages_that_go_together() -> None:
    world = StreamWithConsumers()
    world.publish(*map(str, range(ADVISORIES_MAX + 1)))
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=-1)
    world.pull(consumer, str(ADVISORIES_MAX + 1))

    world.stream.remove(np.arange(1, ADVISORIES_MAX + 2, dtype=np.uint64))

    assert consumer.info(0).num_ack_pending == 0
    assert not world.told
