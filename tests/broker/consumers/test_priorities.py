"""Priority groups: which pull is served when not all can be."""

from strandline.broker.api.advisories import GroupPinned, GroupUnpinned
from strandline.broker.api.consumer_config import AckPolicy, PriorityPolicy
from strandline.broker.consumers import Consumer
from tests.broker.consumers.helpers import SECOND, StreamWithConsumers, Value, sequences, statuses


def grouped(policy: PriorityPolicy, **options: Value) -> tuple[StreamWithConsumers, Consumer]:
    """Return a consumer with one priority group."""
    world = StreamWithConsumers()
    consumer = world.consumer(ack_policy=AckPolicy.EXPLICIT, priority_groups=("g",), priority_policy=policy, **options)
    return world, consumer


def pull(
    world: StreamWithConsumers, consumer: Consumer, more: str = "", inbox: str = "_INBOX.1", batch: int = 10
) -> list[str]:
    """WaitingPull for the group; return the statuses that came at once."""
    sent = world.pull(consumer, f'{{"group": "g", "batch": {batch}, "expires": 60000000000{more}}}', inbox)
    world.routes.sent = sent + world.routes.sent
    return statuses(sent)


def test_a_pull_must_name_a_group_that_there_is() -> None:
    world, consumer = grouped(PriorityPolicy.OVERFLOW)

    assert statuses(world.pull(consumer, '{"batch": 1}')) == ["400 Bad Request - Priority Group missing"]
    sent = world.pull(consumer, '{"batch": 1, "group": "other"}')
    assert statuses(sent) == ["400 Bad Request - Invalid Priority Group"]


def test_overflow_is_served_only_while_enough_is_left() -> None:
    world, consumer = grouped(PriorityPolicy.OVERFLOW)
    pull(world, consumer, ', "min_pending": 3')
    world.publish("1", "2")
    assert not sequences(world.routes.take())

    world.publish("3", "4")

    assert sequences(world.routes.take()) == [1, 2]


def test_overflow_is_served_while_enough_is_outstanding() -> None:
    world, consumer = grouped(PriorityPolicy.OVERFLOW)
    world.publish("1", "2")
    pull(world, consumer, ', "min_ack_pending": 2', "_INBOX.over")
    assert not sequences(world.routes.take())

    pull(world, consumer, "", "_INBOX.main", batch=2)
    assert {one.to for one in world.routes.take()} == {"_INBOX.main"}
    world.publish("3")

    assert [(one.to, one.sequence) for one in world.routes.take()] == [("_INBOX.over", 3)]


def test_a_group_is_pinned_to_the_first_who_is_served() -> None:
    world, consumer = grouped(PriorityPolicy.PINNED_CLIENT, priority_timeout=5 * SECOND)
    pull(world, consumer, "", "_INBOX.1")
    pull(world, consumer, "", "_INBOX.2")
    world.publish("1")
    world.publish("2")

    sent = world.routes.take()
    pin = sent[0].header("Nats-Pin-Id")
    assert [one.to for one in sent] == ["_INBOX.1", "_INBOX.1"]
    assert len(pin) == 22
    assert world.told == [GroupPinned("", "S", "C", "g", pin)]
    assert consumer.info(0).priority_groups[0].pinned_client_id == pin
    assert pull(world, consumer, ', "id": "other"') == ["423 Nats-Pin-Id mismatch"]


def test_a_pin_is_lost_when_its_client_does_not_ask_in_time() -> None:
    world, consumer = grouped(PriorityPolicy.PINNED_CLIENT, priority_timeout=5 * SECOND)
    world.publish("1")
    pull(world, consumer, "", "_INBOX.1", batch=1)
    pin = world.routes.take()[0].header("Nats-Pin-Id")
    pull(world, consumer, "", "_INBOX.2", batch=1)
    world.wait(4)
    pull(world, consumer, f', "id": "{pin}"', "_INBOX.1", batch=1)
    world.wait(4)
    assert len(world.told) == 1
    world.wait(2)

    assert world.told[1] == GroupUnpinned("", "S", "C", "g", "timeout")
    world.publish("2")
    sent = world.routes.take()
    assert [(one.to, one.status.split(" ")[0]) for one in sent] == [("_INBOX.2", "")] or [
        one.to for one in sent if one.reply
    ] == ["_INBOX.2"]


def test_who_still_has_an_old_pin_is_told_so() -> None:
    world, consumer = grouped(PriorityPolicy.PINNED_CLIENT, priority_timeout=5 * SECOND)
    world.publish("1")
    pull(world, consumer, "", "_INBOX.1", batch=1)
    pin = world.routes.take()[0].header("Nats-Pin-Id")
    pull(world, consumer, f', "id": "{pin}"', "_INBOX.1")
    consumer.unpin()
    world.run()
    assert world.told[-1] == GroupUnpinned("", "S", "C", "g", "admin")

    world.publish("2")

    sent = world.routes.take()
    assert [one.headers for one in sent] == [
        "NATS/1.0 423 Nats-Wrong-Pin-Id\r\nNats-Pending-Messages: 10\r\nNats-Pending-Bytes: 0\r\n\r\n"
    ]


def test_the_lowest_number_is_served_first() -> None:
    world, consumer = grouped(PriorityPolicy.PRIORITIZED)
    pull(world, consumer, ', "priority": 2', "_INBOX.2", batch=5)
    pull(world, consumer, ', "priority": 1', "_INBOX.1a", batch=1)
    pull(world, consumer, ', "priority": 1', "_INBOX.1b", batch=2)

    for number in range(4):
        world.publish(str(number))

    assert [one.to for one in world.routes.take()] == ["_INBOX.1a", "_INBOX.1b", "_INBOX.1b", "_INBOX.2"]


def test_a_pull_that_may_not_be_served_and_does_not_wait_gets_nothing() -> None:
    world, consumer = grouped(PriorityPolicy.OVERFLOW)
    world.publish("1")

    sent = world.pull(consumer, '{"group": "g", "min_pending": 30, "batch": 1, "no_wait": true}')

    assert statuses(sent) == ["404 No Messages"]
