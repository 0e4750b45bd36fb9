"""A consumer that is asked: batches, limits, statuses, and who is served."""

import pytest

from strandline.broker.api.consumer_config import AckPolicy, ReplayPolicy
from tests.broker.consumers.helpers import MILLI, SECOND, StreamWithConsumers, Value, sequences, statuses


def test_a_pull_gets_as_many_messages_as_it_asks_for() -> None:
    world = StreamWithConsumers()
    world.publish("1", "2", "3")
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT)

    sent = world.pull(consumer, '{"batch": 2}')

    assert [(one.to, one.subject, one.payload) for one in sent] == [("_INBOX.1", "s.a", "1"), ("_INBOX.1", "s.a", "2")]
    assert [one.numbers for one in sent] == [(1, 1, 1, 2), (1, 2, 2, 1)]
    assert consumer.info(world.now_ns).num_waiting == 0


def test_an_empty_pull_asks_for_one_message_and_a_number_for_so_many() -> None:
    world = StreamWithConsumers()
    world.publish("1", "2", "3", "4")
    consumer = world.consumer()

    assert sequences(world.pull(consumer)) == [1]
    assert sequences(world.pull(consumer, "2")) == [2, 3]
    assert sequences(world.pull(consumer, '{"batch":0}')) == [4]


def test_a_pull_waits_for_messages_to_come() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    assert not world.pull(consumer, '{"batch": 2, "expires": 5000000000}')

    world.publish("1")
    assert sequences(world.routes.take()) == [1]
    assert consumer.info(world.now_ns).num_waiting == 1
    world.publish("2")
    assert sequences(world.routes.take()) == [2]
    assert consumer.info(world.now_ns).num_waiting == 0


def test_a_pull_that_expires_is_told_what_it_did_not_get() -> None:
    world = StreamWithConsumers()
    world.publish("1")
    consumer = world.consumer()
    assert sequences(world.pull(consumer, '{"batch": 50, "expires": 400000000, "idle_heartbeat": 100000000}')) == [1]

    world.wait(1)

    sent = world.routes.take()
    assert statuses(sent) == ["100 Idle Heartbeat"] * 3 + ["408 Request Timeout"]
    assert sent[0].headers == "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    expected = "NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 49\r\nNats-Pending-Bytes: 0\r\n\r\n"
    assert sent[-1].headers == expected


@pytest.mark.parametrize(("every_ns", "count"), [(1, 19), (-5, 0)])
def test_heartbeats_come_no_more_often_than_is_good(every_ns: int, count: int) -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    assert world.pull(consumer, f'{{"batch": 1, "expires": {SECOND}, "idle_heartbeat": {every_ns}}}') == []
    world.wait(2)
    assert statuses(world.routes.take()) == ["100 Idle Heartbeat"] * count + ["408 Request Timeout"]


def test_a_pull_that_does_not_wait_is_told_that_there_is_nothing() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()

    sent = world.pull(consumer, '{"batch": 5, "no_wait": true}')

    assert [one.headers for one in sent] == ["NATS/1.0 404 No Messages\r\n\r\n"]


def test_a_pull_that_does_not_wait_ends_when_it_has_all_there_is() -> None:
    world = StreamWithConsumers()
    world.publish("1", "2")
    consumer = world.consumer()

    sent = world.pull(consumer, '{"batch": 5, "no_wait": true}')

    assert sequences(sent) == [1, 2]
    assert statuses(sent) == ["404 No Messages"]


def test_a_pull_that_waits_once_ends_with_the_first_messages() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    assert not world.pull(consumer, '{"batch": 5, "no_wait": true, "expires": 5000000000}')

    world.publish("1", "2")

    sent = world.routes.take()
    assert sequences(sent) == [1, 2]
    assert statuses(sent) == ["404 No Messages"]


def test_a_pull_that_does_not_wait_is_refused_while_others_want_more_than_there_is() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1)
    world.publish("1", "2", "3")
    assert sequences(world.pull(consumer, '{"batch": 10, "expires": 5000000000}', "_INBOX.1")) == [1]

    sent = world.pull(consumer, '{"batch": 1, "no_wait": true}', "_INBOX.2")

    assert [one.headers for one in sent] == ["NATS/1.0 408 Requests Pending\r\n\r\n"]


@pytest.mark.parametrize(
    ("options", "payload", "status"),
    [
        (
            {},
            '{"batch": 5, "expires": 100000000, "idle_heartbeat": 100000000}',
            "400 Bad Request - heartbeat value too large",
        ),
        (
            {},
            '{"batch":"x"}',
            "400 Bad Request - json: cannot unmarshal string into Go struct field .batch of type int",
        ),
        ({"max_batch": 3}, '{"batch": 4}', "409 Exceeded MaxRequestBatch of 3"),
        ({"max_expires": 1500 * MILLI}, '{"expires": 2000000000}', "409 Exceeded MaxRequestExpires of 1.5s"),
        ({"max_bytes": 100}, '{"max_bytes": 200}', "409 Exceeded MaxRequestMaxBytes of 100"),
        ({}, '{"batch":1, "min_pending": 2}', "400 Bad Request - Not a Overflow Priority consumer"),
        ({}, '{"batch":1, "id": "x"}', "400 Bad Request - Not a Pinned Client Priority consumer"),
        ({}, '{"batch":1, "priority": 10}', "400 Bad Request - Priority must be between 0 and 9"),
    ],
)
def test_a_pull_is_refused_in_the_words_of_nats_server(options: dict[str, Value], payload: str, status: str) -> None:
    world = StreamWithConsumers()
    world.publish("1")
    consumer = world.consumer(**options)

    sent = world.pull(consumer, payload)

    assert [one.headers for one in sent] == [f"NATS/1.0 {status}\r\n\r\n"]


def test_a_pull_that_needs_a_newer_server_is_refused() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()

    sent = world.pull(consumer, "1", headers="NATS/1.0\r\nNats-Required-Api-Level: 6\r\n\r\n")

    assert statuses(sent) == ["412 Required Api Level"]


def test_only_so_many_pulls_may_wait() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer(max_waiting=1)
    world.pull(consumer, "1", "_INBOX.1")

    assert statuses(world.pull(consumer, "1", "_INBOX.2")) == ["409 Exceeded MaxWaiting"]
    with_heartbeat = '{"batch": 1, "expires": 1000000000, "idle_heartbeat": 100000000}'
    assert not world.pull(consumer, with_heartbeat, "_INBOX.3")


def test_a_pull_ends_when_the_next_message_does_not_fit_its_bytes() -> None:
    world = StreamWithConsumers()
    world.publish("1234567890", "1234567890")
    consumer = world.consumer()
    size = len("s.a" + "$JS.ACK.S.C.1.1.1.1700000000000000000.1" + "1234567890")

    sent = world.pull(consumer, f'{{"batch": 5, "max_bytes": {size + 5}}}')

    assert sequences(sent) == [1]
    expected = "NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 4\r\nNats-Pending-Bytes: 5\r\n\r\n"
    assert sent[-1].headers == expected
    assert len(sent) == 2


def test_a_pull_whose_bytes_are_used_up_exactly_ends_without_a_word() -> None:
    world = StreamWithConsumers()
    world.publish("1234567890", "1234567890")
    consumer = world.consumer()
    size = len("s.a" + "$JS.ACK.S.C.1.1.1.1700000000000000000.1" + "1234567890")

    sent = world.pull(consumer, f'{{"batch": 5, "max_bytes": {size}}}')

    assert sequences(sent) == [1]
    assert len(sent) == 1
    assert consumer.info(world.now_ns).num_waiting == 0


def test_a_pull_that_has_its_messages_is_told_which_bytes_are_left() -> None:
    world = StreamWithConsumers()
    world.publish("1")
    consumer = world.consumer()

    sent = world.pull(consumer, '{"batch": 1, "max_bytes": 1000}')

    left = 1000 - len("s.a" + sent[0].reply + "1")
    expected = f"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: {left}\r\n\r\n"
    assert sent[1].headers == expected


def test_pulls_that_wait_share_what_is_there() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    for number in (1, 2):
        world.pull(consumer, '{"batch": 10, "expires": 5000000000}', f"_INBOX.{number}")

    world.publish(*map(str, range(6)))

    sent = world.routes.take()
    assert sorted(sequences(sent)) == [1, 2, 3, 4, 5, 6]
    assert [one.to for one in sent].count("_INBOX.1") == 3


def test_pulls_are_served_in_turns() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    for number in (1, 2):
        world.pull(consumer, '{"batch": 10, "expires": 5000000000}', f"_INBOX.{number}")

    for number in range(4):
        world.publish(str(number))

    assert [one.to for one in world.routes.take()] == ["_INBOX.1", "_INBOX.2", "_INBOX.1", "_INBOX.2"]


def test_a_pull_that_nobody_listens_for_any_more_is_dropped() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    world.pull(consumer, '{"batch": 1, "expires": 5000000000}', "_INBOX.1")
    world.pull(consumer, '{"batch": 1, "expires": 5000000000}', "_INBOX.2")
    world.routes.leave("_INBOX.1")

    world.publish("1")

    assert [(one.to, one.sequence) for one in world.routes.take()] == [("_INBOX.2", 1)]
    assert consumer.info(world.now_ns).num_waiting == 0


def test_a_pull_outlasts_the_absence_of_its_client() -> None:
    world = StreamWithConsumers(on_disk=True)
    world.publish("1")
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT, state=world.state("C"))
    consumer.info(world.now_ns)
    (first,) = world.pull(consumer, '{"batch": 3, "expires": 20000000000}')
    world.answer(consumer, first)
    world.routes.leave("_INBOX.1")

    world.wait(3)  # what was acknowledged is synced meanwhile
    assert statuses(world.pull(consumer, '{"batch": 1, "no_wait": true}', "_INBOX.2")) == ["404 No Messages"]
    world.routes.listen("_INBOX.1")
    world.publish("2", "3")

    assert [(one.to, one.sequence) for one in world.routes.take()] == [("_INBOX.1", 2), ("_INBOX.1", 3)]


def test_messages_that_found_nobody_go_to_the_next_and_are_not_counted() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT)
    world.routes.listen("_INBOX.1", limit=1)
    world.pull(consumer, '{"batch": 5, "expires": 5000000000}', "_INBOX.1")

    world.publish("1", "2", "3")
    assert sequences(world.routes.take()) == [1]

    sent = world.pull(consumer, '{"batch": 5, "expires": 5000000000}', "_INBOX.2")
    assert [one.numbers for one in sent] == [(1, 2, 2, 1), (1, 3, 3, 0)]


def test_a_client_without_room_is_served_when_it_has_some() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    world.routes.give_room("_INBOX.1", 0)
    world.publish("1")
    assert not world.pull(consumer, '{"batch": 1, "expires": 5000000000}')

    world.routes.give_room("_INBOX.1", 1000)
    world.run()

    assert sequences(world.routes.take()) == [1]


def test_pulls_that_wait_are_told_that_the_consumer_is_deleted() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    world.pull(consumer, '{"batch": 1, "expires": 5000000000}')

    consumer.close("Consumer Deleted")

    assert [one.headers for one in world.routes.take()] == ["NATS/1.0 409 Consumer Deleted\r\n\r\n"]


def test_a_push_consumer_cannot_be_pulled_from() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer(deliver_subject="d.1")

    assert statuses(world.pull(consumer, "1")) == ["409 Consumer is push based"]


def test_a_large_batch_takes_several_turns_and_misses_nothing() -> None:
    world = StreamWithConsumers()
    world.publish(*["x" * 1000] * 3000)
    consumer = world.consumer()

    sent = world.pull(consumer, '{"batch": 5000, "no_wait": true}')

    assert sequences(sent) == list(range(1, 3001))
    assert [one.numbers[3] for one in sent[:-1]] == list(range(2999, -1, -1))


def test_a_pull_consumer_is_idle_since_it_was_asked_last() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    assert world.idle_since(consumer) == world.now_ns

    world.pull(consumer, f'{{"batch": 1, "expires": {SECOND}}}')
    assert world.idle_since(consumer) is None
    asked_ns = world.now_ns
    world.wait(2)

    assert world.idle_since(consumer) == asked_ns


def test_nothing_is_due_when_no_pull_waits_any_more() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    world.pull(consumer, f'{{"batch": 1, "expires": {SECOND}}}')
    world.publish("1")

    world.wait(2)

    assert consumer.next_due_ns is None


def test_a_pull_that_does_not_wait_stays_while_too_much_is_outstanding() -> None:
    world = StreamWithConsumers()
    world.publish("1", "2", "3")
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1)
    sent = world.pull(consumer, "1")

    assert not world.pull(consumer, '{"batch": 5, "no_wait": true}')
    assert consumer.info(world.now_ns).num_waiting == 1
    more = world.answer(consumer, *sent)
    assert sequences(more) == [2]
    assert not statuses(more)
    world.pull(consumer, '{"batch": 5, "expires": 200000000}', "_INBOX.2")
    world.wait(1)

    assert sorted(statuses(world.routes.take())) == ["404 No Messages", "408 Request Timeout"]


def test_a_replay_keeps_its_pace_for_pulls_too() -> None:
    world = StreamWithConsumers()
    world.publish("1")
    world.wait(0.3)
    world.publish("2")
    consumer = world.consumer(replay_policy=ReplayPolicy.ORIGINAL)

    assert sequences(world.pull(consumer, '{"batch": 2, "no_wait": true}')) == [1]
    world.wait(0.29)
    assert not world.routes.take()
    world.wait(0.02)

    assert sequences(world.routes.take()) == [2]
