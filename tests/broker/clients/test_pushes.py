"""Consumers that push, by nats-py: callbacks, queue groups, flow control, heartbeats, ordered consumers, events."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from tests.broker.clients.servers import WITHIN_S, connected, eventually, settled
from tests.servers_nats import NatsServer


async def _filled(js: JetStreamContext, name: str, count: int = 6, size: int = 0, **config: Any) -> None:  # noqa: ANN401
    await js.add_stream(name=name, subjects=[f"{name}.>"], **config)
    for number in range(count):
        await js.publish_async(f"{name}.{number % 3}", b"%d" % number + b" " * size)
    await js.publish_async_completed()


async def _bodies(subscription: JetStreamContext.PushSubscription, count: int) -> list[int]:
    return [int((await subscription.next_msg(WITHIN_S)).data) for _ in range(count)]


async def test_an_ephemeral_subscription_gets_all_and_goes_with_its_client(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    subscription = await _used_in_time(lambda threshold_s: js.subscribe(f"{name}.>", inactive_threshold=threshold_s))
    assert await _bodies(subscription, 6) == [0, 1, 2, 3, 4, 5]
    consumer = await subscription.consumer_info()
    assert consumer.push_bound
    await subscription.unsubscribe()
    await eventually(lambda: _has_no_consumers(js, name))


async def _used_in_time(
    subscribe: Callable[[float], Awaitable[JetStreamContext.PushSubscription]],
) -> JetStreamContext.PushSubscription:
    """Subscribe with longer and longer thresholds: nats-py makes the consumer first, and subscribes when it has it."""
    for threshold_s in (0.2, 5.0, 30.0):
        subscription = await subscribe(threshold_s)
        with suppress(NotFoundError):
            await subscription.consumer_info()
            return subscription
    pytest.fail("no consumer was used in time")


async def test_messages_are_acknowledged_after_a_callback(js: JetStreamContext, name: str) -> None:
    got: list[bytes] = []

    async def take(message: Msg) -> None:
        got.append(message.data)

    await _filled(js, name)
    await js.subscribe(f"{name}.>", cb=take, durable="c")
    await eventually(lambda: len(got) == 6)
    await eventually(lambda: _floor(js, name, 6))


async def _floor(js: JetStreamContext, name: str, sequence: int) -> bool:
    floor = (await js.consumer_info(name, "c")).ack_floor
    return floor is not None and floor.stream_seq == sequence


async def test_a_durable_goes_on_where_it_was(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    config = api.ConsumerConfig(ack_wait=0.3)
    subscription = await js.subscribe(f"{name}.>", durable="c", manual_ack=True, config=config)
    await _until_seen(subscription, {0, 1, 2, 3})
    await subscription.unsubscribe()
    await js.publish(f"{name}.0", b"6")
    again = await js.subscribe(f"{name}.>", durable="c", manual_ack=True, config=config)
    assert await _until_seen(again, {4, 5, 6}) == {4, 5, 6}
    await js.add_consumer(name, durable_name="d", deliver_subject=f"to.{name}")
    bound = await js.subscribe_bind(name, api.ConsumerConfig(deliver_subject=f"to.{name}"), "d")
    assert await _bodies(bound, 7) == [0, 1, 2, 3, 4, 5, 6]


async def _until_seen(subscription: JetStreamContext.PushSubscription, wanted: set[int]) -> set[int]:
    """Acknowledge messages until all that are wanted have come; return what came. Some come again, if that was late."""
    seen: set[int] = set()
    while not wanted <= seen:
        message = await subscription.next_msg(WITHIN_S)
        seen.add(int(message.data))
        if int(message.data) in wanted:
            await message.ack_sync(WITHIN_S)
    return seen


async def test_a_queue_group_shares_a_push_consumer(server: NatsServer, js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 0)
    async with connected(server.url) as other:
        config = api.ConsumerConfig(ack_wait=600)
        first, second = [
            await each.subscribe(f"{name}.>", queue="workers", durable="workers", config=config)
            for each in (js, other.jetstream(timeout=WITHIN_S))
        ]
        await settled(other)
        for number in range(60):
            await js.publish(f"{name}.a", b"%d" % number)
        await eventually(lambda: first.pending_msgs + second.pending_msgs == 60)
        assert first.pending_msgs
        assert second.pending_msgs


async def test_unacknowledged_pushes_come_again(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 1)
    config = api.ConsumerConfig(ack_wait=0.2, max_deliver=2)
    subscription = await js.subscribe(f"{name}.>", durable="c", manual_ack=True, config=config)
    first, second = [await subscription.next_msg(WITHIN_S) for _ in range(2)]
    assert [each.metadata.num_delivered for each in (first, second)] == [1, 2]
    with pytest.raises(nats.errors.TimeoutError):
        await subscription.next_msg(0.4)


async def test_an_ordered_consumer_gets_everything_in_order(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 500, size=1000)
    subscription = await js.subscribe(f"{name}.>", ordered_consumer=True)
    assert await _bodies(subscription, 500) == list(range(500))
    info = await subscription.consumer_info()
    assert (info.config.flow_control, info.config.mem_storage, info.config.ack_policy) == (True, True, "none")


async def test_an_ordered_consumer_recovers_when_its_consumer_is_lost(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    subscription = await js.subscribe(f"{name}.>", ordered_consumer=True, idle_heartbeat=0.2)
    assert await _bodies(subscription, 6) == [0, 1, 2, 3, 4, 5]
    await eventually(lambda: _is_deleted(js, subscription))
    for number in range(6, 9):
        await js.publish(f"{name}.0", b"%d" % number)
    assert await _bodies(subscription, 3) == [6, 7, 8]


async def _is_deleted(js: JetStreamContext, subscription: JetStreamContext.PushSubscription) -> bool:
    """Delete the consumer of a subscription, unless that makes another one just now, as no heartbeat came in time."""
    with suppress(NotFoundError):
        lost = await subscription.consumer_info()
        return await js.delete_consumer(lost.stream_name, lost.name)
    return False


async def test_flow_control_goes_on_while_the_client_keeps_up(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 400, size=5_000)
    subscription = await js.subscribe(f"{name}.>", flow_control=True, idle_heartbeat=0.5)
    assert await _bodies(subscription, 400) == list(range(400))


async def test_heartbeats_come_while_nothing_else_does(nc: Client, js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 1)
    raw = await nc.subscribe(f"to.{name}")
    await js.add_consumer(
        name, name="c", deliver_subject=f"to.{name}", idle_heartbeat=0.2, ack_policy=api.AckPolicy.NONE
    )
    assert (await raw.next_msg(WITHIN_S)).data == b"0"
    beat = await raw.next_msg(WITHIN_S)
    assert beat.headers == {
        "Status": "100",
        "Description": "Idle Heartbeat",
        "Nats-Last-Consumer": "1",
        "Nats-Last-Stream": "1",
    }


async def test_events_of_streams_and_consumers_are_told(nc: Client, js: JetStreamContext, name: str) -> None:
    events = await nc.subscribe("$JS.EVENT.ADVISORY.>")
    await settled(nc)
    await _filled(js, name, 1)
    await js.add_consumer(name, durable_name="c")
    subscription = await js.pull_subscribe_bind("c", name)
    (message,) = await subscription.fetch(1, timeout=WITHIN_S)
    await message.term()
    await eventually(lambda: _has_none_pending(js, name))  # a consumer that goes may take with it what it has not heard
    await js.delete_consumer(name, "c")
    await js.delete_stream(name)
    wanted = {
        f"STREAM.CREATED.{name}",
        f"CONSUMER.CREATED.{name}.c",
        f"CONSUMER.MSG_TERMINATED.{name}.c",
        f"CONSUMER.DELETED.{name}.c",
        f"STREAM.DELETED.{name}",
    }
    while wanted:
        event = await events.next_msg(WITHIN_S)
        subject = event.subject.removeprefix("$JS.EVENT.ADVISORY.")
        if name in subject:
            assert json.loads(event.data)["stream"] == name
            wanted.discard(subject)


async def _has_none_pending(js: JetStreamContext, name: str) -> bool:
    return bool((await js.consumer_info(name, "c")).num_ack_pending == 0)


async def test_an_ephemeral_goes_with_a_lost_client(server: NatsServer, js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    async with connected(server.url) as other:
        others = other.jetstream(timeout=WITHIN_S)
        await _used_in_time(lambda threshold_s: others.subscribe(f"{name}.>", inactive_threshold=threshold_s))
        other._transport.close()  # type: ignore[union-attr] # noqa: SLF001 - as if its cable were cut
        await eventually(lambda: _has_no_consumers(js, name))


async def _has_no_consumers(js: JetStreamContext, name: str) -> bool:
    return not await js.consumers_info(name)


async def test_one_slow_subscriber_does_not_hold_up_another(
    server: NatsServer, js: JetStreamContext, name: str
) -> None:
    await _filled(js, name, 300, size=10_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\nSUB to.%s 1\r\nPING\r\n' % name.encode())
    await reader.readuntil(b"PONG\r\n")
    await js.add_consumer(name, name="slow", deliver_subject=f"to.{name}", ack_policy=api.AckPolicy.NONE)
    subscription = await js.subscribe(f"{name}.>", ordered_consumer=True)
    assert await _bodies(subscription, 300) == list(range(300))
    writer.close()
