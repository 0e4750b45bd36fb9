"""What a consumer does not forget when its process ends, properly or not."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from strandline.broker.api.advisories import MaxDeliveries
from strandline.broker.api.consumer_config import AckPolicy, DeliverPolicy
from strandline.broker.consumers import Consumer, open_state
from strandline.clock import ManualClock
from strandline.groups import WRITTEN, GroupConfig, inspect_group
from strandline.sim import SimDisk
from tests.broker.consumers.helpers import CONSUMERS, SECOND, StreamWithConsumers, Value, sequences
from tests.broker.jetstream.fakes import Held


def durable(count: int = 5, **options: Value) -> tuple[StreamWithConsumers, Consumer]:
    """Return a consumer on disk, and a stream with so many messages."""
    world = StreamWithConsumers(on_disk=True)
    world.publish(*map(str, range(1, count + 1)))
    options.setdefault("ack_policy", AckPolicy.EXPLICIT)
    return world, world.consumer(state=world.state("C"), **options)


def shown(consumer: Consumer) -> tuple[object, ...]:
    info = consumer.info(0)
    delivered, floor = info.delivered, info.ack_floor
    return (
        (delivered.consumer_seq, delivered.stream_seq),
        (floor.consumer_seq, floor.stream_seq),
        info.num_ack_pending,
        info.num_redelivered,
        info.num_pending,
    )


def test_a_process_that_dies_goes_on_where_it_was() -> None:
    world, consumer = durable(ack_wait=SECOND)
    sent = world.pull(consumer, "4")
    world.answer(consumer, sent[0], sent[2])
    world.wait(1)
    again = world.pull(consumer, "1")
    before = shown(consumer)

    world.reopen()

    assert before == ((5, 4), (1, 1), 2, 1, 1)
    assert shown(world.consumers["C"]) == before
    world.answer(world.consumers["C"], *again)
    assert shown(world.consumers["C"])[1] == (3, 3)
    world.wait(1)
    sent = world.pull(world.consumers["C"], '{"batch": 9, "no_wait": true}')
    assert [one.numbers[:2] for one in sent if one.reply] == [(2, 4), (1, 5)]


def test_the_deadline_of_what_is_outstanding_is_kept() -> None:
    world, consumer = durable(ack_wait=5 * SECOND)
    world.pull(consumer, "1")
    world.wait(3)
    world.reopen()

    assert world.consumers["C"].next_due_ns == world.now_ns + 2 * SECOND


@pytest.mark.parametrize("seed", range(5))
def test_an_acknowledgement_that_was_confirmed_survives_power_loss(seed: int) -> None:
    world, consumer = durable()
    sent = world.pull(consumer, "5")
    assert world.answer(consumer, sent[1], sent[3], reply="_INBOX.ack")

    world.reopen(Random(seed))
    world.wait(31)

    assert sequences(world.pull(world.consumers["C"], "9")) == [1, 3, 5]


def test_what_was_acknowledged_a_second_ago_survives_power_loss() -> None:
    world, consumer = durable()
    world.answer(consumer, world.pull(consumer, "1")[0])
    world.wait(1)
    assert consumer.next_due_ns is None

    world.reopen(Random(1))

    assert shown(world.consumers["C"])[1] == (1, 1)


def test_what_was_given_up_stays_given_up() -> None:
    world, consumer = durable(1, ack_wait=SECOND, max_deliver=1)
    world.pull(consumer, "1")
    world.wait(2)
    assert [type(one) for one in world.told] == [MaxDeliveries]

    world.reopen()

    assert shown(world.consumers["C"])[2:4] == (0, 0)
    world.wait(60)
    assert len(world.told) == 1
    assert not sequences(world.pull(world.consumers["C"], '{"batch": 1, "no_wait": true}'))


def test_a_place_between_the_last_messages_of_subjects_is_kept() -> None:
    world = StreamWithConsumers(on_disk=True, max_msgs_per_subject=5)
    world.publish(("s.a", "1"), ("s.b", "2"), ("s.a", "3"), ("s.c", "4"), ("s.d", "5"), ("s.b", "6"))
    policy = DeliverPolicy.LAST_PER_SUBJECT
    consumer = world.consumer(state=world.state("C"), deliver_policy=policy, filter_subject="s.>")
    assert sequences(world.pull(consumer, "1")) == [3]
    world.publish(("s.a", "7"))

    world.reopen()

    assert world.consumers["C"].info(0).num_pending == 4
    assert sequences(world.pull(world.consumers["C"], "9")) == [4, 5, 6, 7]


def test_a_consumer_that_is_ahead_of_its_stream_falls_back() -> None:
    world, consumer = durable(3)
    world.pull(consumer, "3")
    world.stream = StreamWithConsumers(on_disk=True).stream
    world.publish("1")

    made = world.consumer(state=world.consumers["C"].state, ack_policy=AckPolicy.EXPLICIT)

    assert made.info(0).num_ack_pending == 1
    world.publish("2")
    assert sequences(world.pull(made, "9")) == [2]


def test_a_reset_holds_after_a_crash() -> None:
    world, consumer = durable()
    world.answer(consumer, *world.pull(consumer, "5"), reply="_INBOX.ack")
    consumer.reset(3)
    assert shown(consumer) == ((0, 2), (0, 2), 0, 0, 3)

    world.reopen(Random(3))

    assert shown(world.consumers["C"]) == ((0, 2), (0, 2), 0, 0, 3)
    assert [one.numbers for one in world.pull(world.consumers["C"], "2")] == [(1, 3, 1, 2), (1, 4, 2, 1)]


def test_the_files_are_those_of_a_group_and_stay_small() -> None:
    world, _ = durable(0)
    state = world.state("D", GroupConfig(compact_bytes_min=4096))
    consumer = world.consumer("D", state=state, ack_policy=AckPolicy.EXPLICIT)
    for _ in range(200):
        world.publish("x", "x", "x")
        sent = world.pull(consumer, "3")
        world.answer(consumer, *sent[:2], *sent[2:3] * (consumer.info(0).num_ack_pending < 50))

    report = inspect_group(world.disk, CONSUMERS / "D", "state")

    assert report is not None
    assert report.content is not None
    assert report.delta_bytes is not None
    assert report.delta_bytes < 3 * 4096
    assert report.content.inflight == consumer.info(0).num_ack_pending
    assert report.content.acked_until == consumer.info(0).ack_floor.stream_seq + 1


def test_a_closed_state_can_be_opened() -> None:
    world, consumer = durable()
    world.pull(consumer, "2")
    consumer.close()
    consumer.state.close()

    again = world.state("C")
    assert len(again.pending) == 2
    again.close()


def test_where_the_page_cache_is_enough_nobody_hears_before_it_is_in_a_file() -> None:
    disk, executor, told = SimDisk(), Held(), list[int]()
    place = Path("/sim/C")

    def post(call: Callable[[], None]) -> None:
        call()

    state = open_state(disk, place, clock=ManualClock(), executor=executor, post=post, durability=WRITTEN)
    state.begin(1)
    for number in (1, 2):
        state.deliver(np.array([number], np.uint64), SECOND)
        state.write()
        state.when_synced(lambda number=number: told.append(number))  # type: ignore[misc]
        if number == 1:
            assert told == []
            executor.run()
        assert told[-1] == number
    disk.kill()
    again = open_state(disk, place, clock=ManualClock(), executor=executor, post=post)
    assert list(again.pending.first) == [1, 2]
