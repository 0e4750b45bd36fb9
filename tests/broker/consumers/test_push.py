"""A consumer that sends: interest, flow control, heartbeats, rates and replays."""

from strandline.broker.api.consumer_config import AckPolicy, DeliverPolicy, ReplayPolicy
from strandline.broker.consumers import Consumer
from strandline.broker.consumers.flow_control import WINDOW_FIRST, Replay, Window
from tests.broker.consumers.helpers import MILLI, SECOND, StreamWithConsumers, Value, sequences, statuses

MiB = 1 << 20


def pushing(**options: Value) -> tuple[StreamWithConsumers, Consumer]:
    """Return a consumer that sends to somebody."""
    world = StreamWithConsumers()
    world.routes.listen("d.1")
    return world, world.consumer(deliver_subject="d.1", **options)


def test_messages_are_sent_as_they_come_under_their_own_subject() -> None:
    world, consumer = pushing()

    world.publish(("s.a", "1"), ("s.b", "2"))

    sent = world.routes.take()
    assert [(one.to, one.subject, one.payload, one.numbers) for one in sent] == [
        ("d.1", "s.a", "1", (1, 1, 1, 1)),
        ("d.1", "s.b", "2", (1, 2, 2, 0)),
    ]
    assert consumer.info(0).push_bound


def test_nothing_is_sent_while_nobody_listens() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer(deliver_subject="d.1", ack_policy=AckPolicy.EXPLICIT)
    world.publish("1")
    assert not consumer.info(0).push_bound
    assert world.idle_since(consumer) is not None

    world.routes.listen("d.1")
    world.run()
    assert sequences(world.routes.take()) == [1]
    assert world.idle_since(consumer) is None

    world.routes.leave("d.1")
    world.wait(1)
    world.publish("2")
    assert not world.routes.take()
    assert not consumer.info(0).push_bound


def test_a_consumer_for_a_queue_group_waits_for_that_group() -> None:
    world = StreamWithConsumers()
    consumer = world.consumer(deliver_subject="d.1", deliver_group="workers")
    world.routes.listen("d.1")
    world.publish("1")
    assert not world.routes.take()

    world.routes.listen("d.1", queue="workers")
    world.run()

    assert sequences(world.routes.take()) == [1]
    assert consumer.info(0).push_bound


def test_what_is_not_acknowledged_is_sent_again() -> None:
    world, _ = pushing(ack_policy=AckPolicy.EXPLICIT, ack_wait=SECOND)
    world.publish("1")

    world.wait(2.5)

    assert [one.numbers[:3] for one in world.routes.take()] == [(1, 1, 1), (2, 1, 2), (3, 1, 3)]


def test_what_found_nobody_is_sent_to_the_next_who_listens() -> None:
    world = StreamWithConsumers()
    world.routes.listen("d.1", limit=2)
    world.consumer(deliver_subject="d.1")
    world.publish("1", "2", "3")
    assert sequences(world.routes.take()) == [1, 2]

    world.routes.listen("d.1")
    world.run()

    assert [one.numbers for one in world.routes.take()] == [(1, 3, 3, 0)]


def test_headers_only_says_how_large_the_payload_is() -> None:
    world, _ = pushing(headers_only=True)

    world.publish("12345")

    assert [(one.payload, one.headers) for one in world.routes.take()] == [("", "NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n")]


def test_a_heartbeat_is_sent_when_nothing_else_is() -> None:
    world, _ = pushing(idle_heartbeat=SECOND)
    world.publish("1")
    world.wait(0.5)
    world.publish("2")
    world.routes.take()

    world.wait(2.2)

    sent = world.routes.take()
    assert [(one.to, one.subject, one.reply) for one in sent] == [("d.1", "d.1", "")] * 2
    assert sent[0].headers == "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"


def test_a_heartbeat_of_a_filtered_consumer_tells_how_far_it_looked() -> None:
    world, _ = pushing(idle_heartbeat=SECOND, filter_subject="s.a")
    world.publish(("s.a", "1"), ("s.b", "2"), ("s.b", "3"))

    world.wait(1)

    assert world.routes.take()[-1].header("Nats-Last-Stream") == "3"


def test_flow_control_asks_at_half_of_the_window_and_stops_at_all_of_it() -> None:
    world, consumer = pushing(flow_control=True, idle_heartbeat=SECOND)
    payload = "x" * (MiB // 4)
    world.publish(*[payload] * 20)

    sent = world.routes.take()
    asked = [at for at, one in enumerate(sent) if one.status == "100 FlowControl Request"]
    # Two megabytes are the first window: more than half is out with the fourth message, more than all with the eighth.
    assert asked == [4]
    assert len(sequences(sent)) == 8
    request = sent[4]
    assert (request.to, request.subject) == ("d.1", "d.1")
    assert request.reply.startswith("$JS.FC.S.C.")
    assert len(request.reply) == len("$JS.FC.S.C.") + 4

    world.wait(1)
    assert world.routes.take()[-1].header("Nats-Consumer-Stalled") == request.reply
    consumer.take_flow(b"$JS.FC.S.C.none")
    world.run()
    assert not world.routes.take()

    consumer.take_flow(request.reply.encode())
    world.run()
    assert len(sequences(world.routes.take())) == 12


def test_the_window_doubles_with_each_answer_up_to_its_bound() -> None:
    window = Window(b"$JS.FC.S.C.")
    for _ in range(10):
        assert window.answered(window.ask())

    sizes = [MiB] * 64
    request_at = window.fits(sizes)
    assert request_at == 17
    assert window.sent(sizes[:request_at])
    assert window.fits(sizes) == 16
    assert not window.sent(sizes[:16])
    assert window.is_stalled
    assert 2 * MiB == WINDOW_FIRST


def test_answers_to_flow_control_acknowledge_where_the_consumer_says_so() -> None:
    world, consumer = pushing(
        ack_policy=AckPolicy.FLOW_CONTROL, flow_control=True, idle_heartbeat=SECOND, max_ack_pending=3
    )
    world.publish(*"12345")

    sent = world.routes.take()
    assert sequences(sent) == [1, 2, 3]
    assert statuses(sent) == ["100 FlowControl Request"]
    headers = b"NATS/1.0\r\nNats-Last-Consumer: 3\r\nNats-Last-Stream: 3\r\n\r\n"
    consumer.take_flow(sent[-1].reply.encode(), headers)
    world.run()

    assert sequences(world.routes.take()) == [4, 5]
    assert consumer.info(0).ack_floor.stream_seq == 3
    world.wait(100)
    assert consumer.info(0).num_ack_pending == 2


def test_a_client_without_room_is_sent_nothing() -> None:
    world, _ = pushing()
    world.routes.give_room("d.1", 0)
    world.publish("1")
    assert not world.routes.take()

    world.routes.give_room("d.1", 1)
    world.run()

    assert sequences(world.routes.take()) == [1]


def test_messages_are_sent_no_faster_than_the_rate_allows() -> None:
    world = StreamWithConsumers(max_msg_size=1000)
    world.routes.listen("d.1")
    world.publish(*["x" * 900] * 5)
    world.consumer(deliver_subject="d.1", rate_limit_bps=8 * 1000)
    assert sequences(world.routes.take()) == [1]

    world.wait(1)
    assert len(sequences(world.routes.take())) == 1
    world.wait(3)
    assert len(sequences(world.routes.take())) == 3


def test_a_replay_keeps_the_distances_and_catches_up_with_what_is_new() -> None:
    world = StreamWithConsumers()
    world.routes.listen("d.1")
    for pause in (0, 1, 2):
        world.wait(pause)
        world.publish("x")
    world.consumer(deliver_subject="d.1", replay_policy=ReplayPolicy.ORIGINAL)

    assert sequences(world.routes.take()) == [1]
    world.wait(0.9)
    assert not world.routes.take()
    world.wait(0.2)
    assert sequences(world.routes.take()) == [2]
    world.wait(1.8)
    assert not world.routes.take()
    world.wait(0.2)
    assert sequences(world.routes.take()) == [3]
    world.wait(5)
    world.publish("4")
    world.publish("5")
    assert sequences(world.routes.take()) == [4, 5]


def test_messages_close_together_are_replayed_together() -> None:
    replay = Replay(until=10)

    assert replay.fits([0, MILLI, 2 * MILLI, 10 * MILLI], 0) == (3, None)


def test_a_watcher_gets_the_last_of_each_subject_and_then_everything() -> None:
    world = StreamWithConsumers(max_msgs_per_subject=5)
    world.routes.listen("d.1")
    world.publish(("s.a", "1"), ("s.b", "2"), ("s.a", "3"), ("s.c", "4"), ("s.b", "5"))

    consumer = world.consumer(
        deliver_subject="d.1", deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="s.>"
    )
    sent = world.routes.take()
    assert [(one.sequence, one.numbers[3]) for one in sent] == [(3, 2), (4, 1), (5, 0)]
    world.publish(("s.a", "6"), ("s.a", "7"))
    assert [(one.sequence, one.numbers[3]) for one in world.routes.take()] == [(6, 1), (7, 0)]
    assert consumer.info(0).num_pending == 0
