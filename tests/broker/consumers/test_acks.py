"""What clients answer: acknowledgements of every kind, what is delivered again, and the floor."""

import pytest

from strandline.broker.api.advisories import AckSample, MaxDeliveries, MessageNaked, MessageTerminated
from strandline.broker.api.consumer_config import AckPolicy
from strandline.broker.api.requests import PurgeRequest
from strandline.broker.consumers import Consumer
from tests.broker.consumers.helpers import SECOND, Sent, StreamWithConsumers, Value, sequences, statuses, words


def delivered(
    policy: AckPolicy = AckPolicy.EXPLICIT, count: int = 5, **options: Value
) -> tuple[StreamWithConsumers, Consumer, list[Sent]]:
    """Return a consumer that has delivered so many messages."""
    world = StreamWithConsumers()
    world.publish(*map(str, range(count)))
    consumer = world.consumer(ack_policy=policy, **options)
    return world, consumer, world.pull(consumer, str(count))


def floor(consumer: Consumer) -> tuple[int, int]:
    info = consumer.info(0)
    return info.ack_floor.consumer_seq, info.ack_floor.stream_seq


def test_an_acknowledged_message_is_not_delivered_again() -> None:
    world, consumer, sent = delivered()

    world.answer(consumer, *sent[:4])
    world.wait(31)

    assert sequences(world.pull(consumer, '{"batch": 5, "no_wait": true}')) == [5]


@pytest.mark.parametrize("payload", ["", "+ACK", "+OK", "+TERM", "+TERM no use"])
def test_every_form_of_done_is_done(payload: str) -> None:
    world, consumer, sent = delivered()

    world.answer(consumer, sent[0], payload=payload)

    assert consumer.info(0).num_ack_pending == 4
    assert floor(consumer) == (1, 1)


def test_the_floor_moves_when_the_lowest_is_acknowledged() -> None:
    world, consumer, sent = delivered()

    world.answer(consumer, sent[1])
    assert floor(consumer) == (0, 0)
    world.answer(consumer, sent[0])
    assert floor(consumer) == (2, 2)
    world.answer(consumer, *sent[2:])
    assert floor(consumer) == (5, 5)


def test_many_acknowledgements_are_one_column() -> None:
    world, consumer, sent = delivered(count=200)

    world.answer(consumer, *sent[:150])

    assert consumer.info(0).num_ack_pending == 50
    assert floor(consumer) == (150, 150)


def test_an_acknowledgement_of_all_takes_everything_before_with_it() -> None:
    world, consumer, sent = delivered(AckPolicy.ALL)

    world.answer(consumer, sent[3])

    assert consumer.info(0).num_ack_pending == 1
    assert floor(consumer) == (4, 4)
    world.answer(consumer, sent[1])
    assert floor(consumer) == (4, 4)


def test_without_acknowledgements_what_is_delivered_is_done() -> None:
    _, consumer, _ = delivered(AckPolicy.NONE)

    assert floor(consumer) == (5, 5)
    assert consumer.info(0).num_ack_pending == 0
    assert consumer.next_due_ns is None


def test_who_asks_for_it_is_told_that_an_answer_was_taken() -> None:
    world, consumer, sent = delivered()

    for one, payload in zip(sent, ("+ACK", "-NAK", "+WPI", "+TERM", "what?"), strict=True):
        answers = world.answer(consumer, one, payload=payload, reply="_INBOX.ack")
        assert [(one.to, one.payload, one.headers) for one in answers] == [("_INBOX.ack", "", "")]


def test_an_answer_to_what_was_never_delivered_does_nothing() -> None:
    world, consumer, _ = delivered(count=2)
    world.publish("3")
    unseen = Sent("", "", "", "$JS.ACK.S.C.1.3.3.1.0", "")

    assert not world.answer(consumer, unseen, reply="_INBOX.ack")
    assert consumer.info(0).num_ack_pending == 2
    assert consumer.info(0).num_pending == 1


def test_an_answer_that_makes_no_sense_is_passed_over() -> None:
    world, consumer, sent = delivered()
    nonsense = Sent("", "", "", "$JS.ACK.S.C.x.1.1.1.1", "")

    world.answer(consumer, nonsense, sent[0], payload="+ACK")
    world.answer(consumer, sent[1], payload="what?")

    assert consumer.info(0).num_ack_pending == 4


def test_a_longer_ack_subject_is_understood() -> None:
    world, consumer, sent = delivered()
    numbers = sent[0].reply.split(".")[2:]
    longer = Sent("", "", "", "$JS.ACK._.hash." + ".".join(numbers), "")

    world.answer(consumer, longer)

    assert floor(consumer) == (1, 1)


def test_a_message_that_is_not_answered_in_time_is_delivered_again_and_counted() -> None:
    world, consumer, _ = delivered(count=2, ack_wait=SECOND)

    world.wait(1)
    sent = world.pull(consumer, "5")

    assert [one.numbers for one in sent] == [(2, 1, 3, 0), (2, 2, 4, 0)]
    info = consumer.info(0)
    assert (info.num_ack_pending, info.num_redelivered, info.delivered.consumer_seq) == (2, 2, 4)
    world.answer(consumer, *sent)
    assert floor(consumer) == (4, 2)
    assert consumer.info(0).num_redelivered == 0


def test_progress_puts_the_deadline_off() -> None:
    world, consumer, sent = delivered(count=1, ack_wait=SECOND)

    world.wait(0.9)
    world.answer(consumer, sent[0], payload="+WPI")
    world.wait(0.9)
    assert statuses(world.pull(consumer, '{"no_wait": true, "batch": 1}')) == ["404 No Messages"]
    world.wait(0.2)

    assert sequences(world.pull(consumer, "1")) == [1]


def test_a_message_that_is_given_back_is_delivered_at_once_before_new_ones() -> None:
    world, consumer, sent = delivered(count=2)
    world.publish("3")

    world.answer(consumer, sent[1], payload="-NAK")

    assert [one.numbers[:2] for one in world.pull(consumer, "2")] == [(2, 2), (1, 3)]
    assert world.told == [MessageNaked("S", "C", 2, 2, 1)]


@pytest.mark.parametrize("delay", ['-NAK {"delay": 5000000000}', "-NAK 5s", "-NAK 5000ms"])
def test_a_message_can_be_given_back_for_later(delay: str) -> None:
    world, consumer, sent = delivered(count=1)

    world.answer(consumer, sent[0], payload=delay)

    world.wait(4.9)
    assert statuses(world.pull(consumer, '{"no_wait": true, "batch": 1}')) == ["404 No Messages"]
    world.wait(0.2)
    assert sequences(world.pull(consumer, "1")) == [1]


def test_a_delay_that_is_none_means_at_once() -> None:
    world, consumer, sent = delivered(count=1)

    world.answer(consumer, sent[0], payload="-NAK soon")

    assert sequences(world.pull(consumer, "1")) == [1]


def test_back_off_waits_longer_each_time() -> None:
    world, consumer, _ = delivered(count=1, backoff=(SECOND, 3 * SECOND), max_deliver=4)
    world.pull(consumer, '{"batch": 10, "expires": 60000000000}')

    times = []
    for _ in range(3):
        before = world.now_ns
        while not sequences(world.routes.take()):
            world.wait(0.5)
        times.append((world.now_ns - before) / SECOND)

    assert times == [1.0, 3.0, 3.0]


def test_a_message_is_delivered_so_often_and_no_more() -> None:
    world, consumer, _ = delivered(count=1, ack_wait=SECOND, max_deliver=2)
    world.pull(consumer, '{"batch": 10, "expires": 60000000000}')
    world.wait(10)

    assert [one.numbers[:2] for one in world.routes.take()] == [(2, 1)]
    assert world.told == [MaxDeliveries("S", "C", 1, 2)]
    info = consumer.info(0)
    assert (info.num_ack_pending, info.num_redelivered) == (0, 1)
    assert floor(consumer) == (0, 0)


def test_a_message_that_is_given_back_too_often_is_given_up() -> None:
    world, consumer, sent = delivered(count=1, max_deliver=1)

    world.answer(consumer, sent[0], payload="-NAK")
    world.pull(consumer, '{"batch": 1, "expires": 1000000000}')

    assert [type(one) for one in world.told] == [MessageNaked, MaxDeliveries]
    assert consumer.info(0).num_ack_pending == 0


def test_no_more_than_so_many_may_be_outstanding() -> None:
    world = StreamWithConsumers()
    world.publish(*"12345")
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=2)

    sent = world.pull(consumer, '{"batch": 5, "expires": 60000000000}')
    assert sequences(sent) == [1, 2]
    sent += world.answer(consumer, sent[0])
    assert sequences(sent) == [1, 2, 3]
    world.answer(consumer, sent[1], payload="-NAK")
    assert consumer.info(0).num_ack_pending == 2


def test_next_acknowledges_and_pulls() -> None:
    world, consumer, sent = delivered(count=1)
    world.publish("2", "3")

    more = world.answer(consumer, sent[0], payload='+NXT {"batch": 1, "no_wait": true}', reply="_INBOX.next")

    assert [(one.to, one.sequence) for one in more] == [("_INBOX.next", 2)]
    more = world.answer(consumer, more[0], payload="+NXT", reply="_INBOX.next")
    assert [(one.to, one.sequence) for one in more] == [("_INBOX.next", 3)]
    assert consumer.info(0).num_ack_pending == 1


def test_termination_is_told_with_its_reason() -> None:
    world, consumer, sent = delivered(count=1)

    world.answer(consumer, sent[0], payload="+TERM it is poison")

    assert world.told == [MessageTerminated("S", "C", 1, 1, 1, "it is poison")]


def test_acknowledgements_are_measured_when_asked_for() -> None:
    world, consumer, sent = delivered(count=2, sample_freq="100%")

    world.wait(2)
    world.answer(consumer, sent[1])

    assert world.told == [AckSample("S", "C", 2, 2, 2 * SECOND, 1)]


def test_a_message_that_is_deleted_is_not_waited_for() -> None:
    world, consumer, _ = delivered(count=3)

    world.stream.delete(1)

    assert consumer.info(0).num_ack_pending == 2
    assert floor(consumer) == (1, 1)
    assert world.told == [MessageTerminated("S", "C", 1, 1, 1, "Unacknowledged message was deleted")]


def test_a_purge_leaves_nothing_to_wait_for() -> None:
    world, consumer, _ = delivered(count=3, ack_wait=SECOND)
    world.publish("4")

    world.stream.purge(PurgeRequest())

    consumer.note_purged()

    info = consumer.info(0)
    assert (info.num_ack_pending, info.num_pending) == (0, 0)
    assert (info.delivered.stream_seq, info.ack_floor.stream_seq) == (4, 4)
    world.wait(5)
    assert statuses(world.pull(consumer, '{"no_wait": true, "batch": 1}')) == ["404 No Messages"]


def test_whoever_removes_messages_hears_which_are_done() -> None:
    world, consumer, sent = delivered()
    done: list[int] = []
    consumer.on_done = lambda found: done.extend(found.tolist())

    world.answer(consumer, sent[2])
    world.answer(consumer, sent[1], payload="+TERM")
    world.answer(consumer, sent[0], payload="-NAK")

    assert done == [3, 2]
    assert consumer.wants(words(1, 2, 3, 4, 5)).tolist() == [True, False, False, True, True]


def test_what_was_given_up_is_still_wanted() -> None:
    world, consumer, sent = delivered(count=1, max_deliver=1, ack_wait=SECOND)
    world.wait(2)

    assert consumer.wants(words(1)).tolist() == [True]
    done: list[int] = []
    consumer.on_done = lambda found: done.extend(found.tolist())
    world.answer(consumer, sent[0])
    assert done == [1]
    assert consumer.wants(words(1)).tolist() == [False]


def test_with_acknowledgements_of_all_everything_before_is_done() -> None:
    world, consumer, sent = delivered(AckPolicy.ALL)
    done: list[int] = []
    consumer.on_done = lambda found: done.extend(found.tolist())

    world.answer(consumer, sent[2])

    assert done == [1, 2, 3]


def test_without_acknowledgements_what_is_delivered_is_told_as_done() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer()
    done: list[int] = []
    consumer.on_done = lambda found: done.extend(found.tolist())
    world.publish("1", "2")

    world.pull(consumer, "2")

    assert done == [1, 2]
