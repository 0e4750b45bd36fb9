"""Where a consumer begins, and exactly how many messages are left."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from strandline.broker.api.consumer_config import DeliverPolicy
from strandline.broker.api.requests import PurgeRequest
from tests.broker.consumers.executors import Later
from tests.broker.consumers.helpers import SECOND, StreamWithConsumers, Value, sequences
from tests.effort import examples


def a_stream() -> StreamWithConsumers:
    """Return a stream with six messages, one second apart, the first of which is gone."""
    world = StreamWithConsumers(max_msgs_per_subject=5)
    for number, subject in enumerate(("s.a", "s.a", "s.b", "s.a", "s.c", "s.b"), 1):
        world.publish((subject, str(number)))
        world.wait(1)
    world.stream.delete(1)
    return world


START_NS = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [2, 3, 4, 5, 6]),
        ({"filter_subject": "s.b"}, [3, 6]),
        ({"filter_subjects": ("s.a", "s.c")}, [2, 4, 5]),
        ({"deliver_policy": DeliverPolicy.LAST}, [6]),
        ({"deliver_policy": DeliverPolicy.LAST, "filter_subject": "s.a"}, [4]),
        ({"deliver_policy": DeliverPolicy.LAST, "filter_subjects": ("s.a", "s.c")}, [5]),
        ({"deliver_policy": DeliverPolicy.LAST, "filter_subject": "s.x"}, []),
        ({"deliver_policy": DeliverPolicy.NEW}, []),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 4}, [4, 5, 6]),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 1}, [2, 3, 4, 5, 6]),
        ({"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": START_NS + 3 * SECOND}, [4, 5, 6]),
        ({"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": START_NS + 60 * SECOND}, []),
        ({"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "s.>"}, [4, 5, 6]),
        ({"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subjects": ("s.a", "s.b")}, [4, 6]),
    ],
)
def test_a_consumer_begins_where_its_policy_says(options: dict[str, Value], expected: list[int]) -> None:
    world = a_stream()
    consumer = world.consumer(**options)
    assert consumer.info(0).num_pending == len(expected)

    sent = world.pull(consumer, '{"batch": 10, "no_wait": true}')

    assert sequences(sent) == expected
    world.publish(("s.a", "7"), ("s.b", "8"), ("s.c", "9"))
    follow = world.pull(consumer, '{"batch": 10, "no_wait": true}')
    filters = consumer.config.filters
    wanted = [
        n
        for n, subject in ((7, "s.a"), (8, "s.b"), (9, "s.c"))
        if not filters or "s.>" in filters or subject in filters
    ]
    assert sequences(follow) == wanted


def test_a_start_beyond_the_end_waits_for_that_sequence() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=3)
    assert consumer.info(0).delivered.stream_seq == 2
    world.pull(consumer, "5")

    world.publish(*"12345")

    assert [one.numbers[3] for one in world.routes.take()] == [2, 1, 0]


def test_what_is_shown_before_anything_is_delivered_is_the_place_before_the_first() -> None:
    world = a_stream()

    info = world.consumer(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="s.>").info(0)

    assert (info.delivered.consumer_seq, info.delivered.stream_seq) == (0, 3)
    assert (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) == (0, 3)


def test_a_message_that_goes_before_it_is_delivered_is_not_counted() -> None:
    world = StreamWithConsumers(max_msgs_per_subject=2)
    world.publish(("s.a", "1"), ("s.b", "2"), ("s.a", "3"))
    one = world.consumer("ONE", deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="s.>")
    other = world.consumer("OTHER", filter_subject="s.a")

    world.stream.delete(3)
    world.publish(("s.a", "4"))

    assert one.info(0).num_pending == 2
    assert other.info(0).num_pending == 2
    assert sequences(world.pull(one, "5")) == [2, 4]
    assert sequences(world.pull(other, "5")) == [1, 4]


KINDS: dict[str, dict[str, Value]] = {
    "ALL": {},
    "ONE": {"filter_subject": "s.a"},
    "WILD": {"filter_subjects": ("s.*", "s.c.>")},
    "LASTS": {"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "s.>"},
}


@examples(60)
@given(st.data())
def test_what_is_left_is_exact_whatever_comes_and_goes(data: st.DataObject) -> None:
    world = StreamWithConsumers(
        max_msgs_per_subject=data.draw(st.sampled_from([-1, 1, 2])), max_msgs=data.draw(st.sampled_from([-1, 12]))
    )
    subjects = ("s.a", "s.b", "s.c.d")
    for _ in range(data.draw(st.integers(0, 6))):
        world.publish((data.draw(st.sampled_from(subjects)), "x"))
    for name in data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, unique=True)):
        world.consumer(name, **KINDS[name])
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["publish", "pull", "delete", "purge"])):
            case "publish":
                world.publish(
                    *[(data.draw(st.sampled_from(subjects)), "x") for _ in range(data.draw(st.integers(1, 4)))]
                )
            case "delete":
                world.stream.delete(data.draw(st.integers(1, max(1, world.stream.last_seq))))
            case "purge":
                world.stream.purge(PurgeRequest(filter=data.draw(st.sampled_from(["", "s.a", "s.>"]))))
            case _:
                consumer = data.draw(st.sampled_from(list(world.consumers.values())))
                left = consumer.info(0).num_pending
                sent = world.pull(consumer, f'{{"batch": {data.draw(st.integers(1, 5))}, "no_wait": true}}')
                found = [one.numbers[3] for one in sent if one.reply]
                assert found == list(range(left - 1, left - 1 - len(found), -1))
    for consumer in world.consumers.values():
        left = consumer.info(0).num_pending
        sent = world.pull(consumer, '{"batch": 100, "no_wait": true}')
        assert len(sequences(sent)) == left
        assert consumer.info(0).num_pending == 0


def test_nothing_is_delivered_before_it_is_durable() -> None:
    executor = Later()
    world = StreamWithConsumers(on_disk=True, executor=executor)
    world.routes.listen("d.1")
    push = world.consumer("PUSH", deliver_subject="d.1")
    world.publish("1", "2")
    late = world.consumer("LATE", deliver_subject="d.1")
    world.publish("3")

    assert world.stream.last_seq == 3
    assert not world.routes.take()
    assert (push.info(0).num_pending, late.info(0).num_pending) == (0, 2)
    executor.run()
    for consumer in (push, late):
        consumer.note_stored()
        world.run()
        assert [one.numbers[3] for one in world.routes.take()] == [2, 1, 0]
