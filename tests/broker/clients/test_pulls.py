"""Consumers that are pulled from, by nats-py: fetches, acknowledgements, redelivery, limits, pauses and resets."""

import asyncio
import datetime as dt
import json
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js.errors import BadRequestError, NotFoundError, ServerError

from tests.broker.clients.servers import WITHIN_S, StartServer, connected, eventually, settled


async def _filled(js: JetStreamContext, name: str, count: int = 6, **config: Any) -> None:  # noqa: ANN401
    await js.add_stream(name=name, subjects=[f"{name}.>"], **config)
    for number in range(count):
        await js.publish(f"{name}.{number % 3}", b"%d" % number)


async def _puller(js: JetStreamContext, name: str, **config: Any) -> JetStreamContext.PullSubscription:  # noqa: ANN401
    # By default a message comes again after 30 seconds, which a busy machine takes for less than a test.
    await js.add_consumer(name, durable_name="c", **{"ack_wait": 3600, **config})
    return await js.pull_subscribe_bind("c", name)


def _bodies(messages: list[Msg]) -> list[int]:
    return [int(message.data) for message in messages]


async def test_a_durable_gets_every_message_once_and_remembers(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    subscription = await js.pull_subscribe(f"{name}.>", "c", stream=name)
    first = await subscription.fetch(4, timeout=WITHIN_S)
    assert _bodies(first) == [0, 1, 2, 3]
    for message in first:
        await message.ack_sync(WITHIN_S)
    await subscription.unsubscribe()
    again = await js.pull_subscribe(f"{name}.>", "c", stream=name)
    assert _bodies(await again.fetch(2, timeout=WITHIN_S)) == [4, 5]
    info = await js.consumer_info(name, "c")
    assert info.delivered
    assert info.ack_floor
    assert (info.delivered.stream_seq, info.ack_floor.stream_seq, info.num_ack_pending, info.num_pending) == (
        6,
        4,
        2,
        0,
    )


async def test_what_a_message_says_of_its_delivery(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 3)
    subscription = await _puller(js, name, filter_subject=f"{name}.1")
    (message,) = await subscription.fetch(1, timeout=WITHIN_S)
    told = message.metadata
    assert (told.stream, told.consumer, told.num_delivered, told.num_pending) == (name, "c", 1, 0)
    assert (told.sequence.stream, told.sequence.consumer) == (2, 1)
    assert abs(told.timestamp.timestamp() - time.time()) < 3600


async def test_a_fetch_waits_and_ends_when_its_time_is_up(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 2)
    subscription = await _fetched_both(js, name)
    with pytest.raises(TimeoutError):
        await subscription.fetch(1, timeout=0.1)
    waiting = asyncio.create_task(subscription.fetch(1, timeout=WITHIN_S))
    await asyncio.sleep(0.05)
    await js.publish(f"{name}.a", b"7")
    assert _bodies(await waiting) == [7]


async def _fetched_both(js: JetStreamContext, name: str) -> JetStreamContext.PullSubscription:
    """See that a fetch of ten gives the two that are there, in the end; a busy machine may need longer for that."""
    for timeout_s in (1.5, 15.0, 60.0):
        await js.add_consumer(name, durable_name=f"c{timeout_s:.0f}")
        subscription = await js.pull_subscribe_bind(f"c{timeout_s:.0f}", name)
        with suppress(TimeoutError):
            if len(await subscription.fetch(10, timeout=timeout_s)) == 2:
                return subscription
    pytest.fail("no fetch gave what is there")


async def test_heartbeats_keep_a_long_fetch_alive(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 0)
    subscription = await _puller(js, name)
    with pytest.raises(TimeoutError):
        await subscription.fetch(2, timeout=0.5, heartbeat=0.1)
    await js.publish(f"{name}.a", b"1")
    assert len(await subscription.fetch(1, timeout=WITHIN_S, heartbeat=WITHIN_S / 3)) == 1


async def test_many_fetch_from_one_consumer_and_share(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 60)
    await js.add_consumer(name, durable_name="c")
    subscriptions = [await js.pull_subscribe_bind("c", name) for _ in range(3)]
    batches = await asyncio.gather(*[each.fetch(20, timeout=WITHIN_S) for each in subscriptions])
    assert sorted(body for batch in batches for body in _bodies(batch)) == list(range(60))


async def test_a_message_not_acknowledged_comes_again(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 1)
    subscription = await _puller(js, name, ack_wait=0.2)
    (first,) = await subscription.fetch(1, timeout=WITHIN_S)
    (second,) = await subscription.fetch(1, timeout=WITHIN_S)
    assert [each.metadata.num_delivered for each in (first, second)] == [1, 2]
    await second.ack_sync(WITHIN_S)
    info = await js.consumer_info(name, "c")
    assert (info.num_redelivered, info.num_ack_pending) == (0, 0)


async def test_a_refused_message_comes_again_at_once_or_later(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 2)
    subscription = await _puller(js, name)
    one, two = await subscription.fetch(2, timeout=WITHIN_S)
    started = asyncio.get_running_loop().time()
    await one.nak()
    await two.nak(delay=0.4)
    again = [(await subscription.fetch(1, timeout=WITHIN_S))[0] for _ in range(2)]
    assert _bodies(again) == [0, 1]
    assert asyncio.get_running_loop().time() - started > 0.3


async def test_a_message_in_progress_is_not_delivered_to_others(nc: Client, js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 1)
    for ack_wait_s in (2.0, 10.0, 40.0):  # a machine that stalls for longer shows nothing
        if await _is_kept_in_progress(nc, js, name, ack_wait_s):
            return
    pytest.fail("nobody said in time that a message is in progress")


async def _is_kept_in_progress(nc: Client, js: JetStreamContext, name: str, ack_wait_s: float) -> bool:
    """See that a message comes again only when nobody says that it is in progress; tell whether that was said in time.

    Pulls that wait do not tell: what they get is told by how often it was delivered.
    """
    loop = asyncio.get_running_loop()
    consumer = f"c{ack_wait_s:.0f}"
    asked = loop.time()
    await js.add_consumer(name, durable_name=consumer, ack_wait=ack_wait_s)
    subscription = await js.pull_subscribe_bind(consumer, name)
    (message,) = await subscription.fetch(1, timeout=WITHIN_S)
    others = asyncio.create_task(subscription.fetch(1, timeout=WITHIN_S))
    began, said, longest = loop.time(), asked, 0.0
    while loop.time() - began < 1.1 * ack_wait_s:
        await asyncio.sleep(0.1)
        await message.in_progress()
        await settled(nc)
        longest, said = max(longest, loop.time() - said), loop.time()
    is_delivered = others.done()
    (again,) = await others  # nobody said so any more
    assert again.metadata.num_delivered == 2
    await again.ack_sync(WITHIN_S)
    if longest > ack_wait_s / 2:
        return False
    assert not is_delivered
    return True


async def test_a_terminated_message_never_comes_again(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 1)
    subscription = await _puller(js, name, ack_wait=0.1)
    (message,) = await subscription.fetch(1, timeout=WITHIN_S)
    await message.term()
    await eventually(lambda: _has_pending(js, name, 0))  # what is said of messages may be heard after a pull
    with pytest.raises(TimeoutError):
        await subscription.fetch(1, timeout=0.3)


async def _has_pending(js: JetStreamContext, name: str, count: int) -> bool:
    return bool((await js.consumer_info(name, "c")).num_ack_pending == count)


async def test_a_message_is_given_up_after_so_many_deliveries(nc: Client, js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 1)
    advisories = await nc.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{name}.c")
    subscription = await _puller(js, name, backoff=[0.1, 0.1], max_deliver=3)
    counts = [(await subscription.fetch(1, timeout=WITHIN_S))[0].metadata.num_delivered for _ in range(3)]
    assert counts == [1, 2, 3]
    with pytest.raises(TimeoutError):
        await subscription.fetch(1, timeout=0.3)
    told = json.loads((await advisories.next_msg(WITHIN_S)).data)
    assert (told["stream_seq"], told["deliveries"]) == (1, 3)


async def test_no_more_is_delivered_than_may_wait_for_acknowledgement(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    subscription = await _puller(js, name, max_ack_pending=2)
    first = await subscription.fetch(2, timeout=WITHIN_S)
    assert _bodies(first) == [0, 1]
    with pytest.raises(TimeoutError):
        await subscription.fetch(5, timeout=0.3)
    await first[0].ack_sync(WITHIN_S)
    assert _bodies(await subscription.fetch(1, timeout=WITHIN_S)) == [2]
    with pytest.raises(TimeoutError):
        await subscription.fetch(5, timeout=0.3)


async def test_acknowledging_one_may_acknowledge_all_before(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    subscription = await _puller(js, name, ack_policy=api.AckPolicy.ALL)
    messages = await subscription.fetch(5, timeout=WITHIN_S)
    await messages[3].ack_sync(WITHIN_S)
    info = await js.consumer_info(name, "c")
    assert info.ack_floor
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (4, 1)


async def test_without_acknowledgement_nothing_waits(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    subscription = await _puller(js, name, ack_policy=api.AckPolicy.NONE)
    assert len(await subscription.fetch(6, timeout=WITHIN_S)) == 6
    assert (await js.consumer_info(name, "c")).num_ack_pending == 0


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"deliver_policy": api.DeliverPolicy.ALL}, [0, 1, 2, 3, 4, 5]),
        ({"deliver_policy": api.DeliverPolicy.LAST}, [5]),
        ({"deliver_policy": api.DeliverPolicy.NEW}, []),
        ({"deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 4}, [3, 4, 5]),
        ({"deliver_policy": api.DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "{name}.>"}, [3, 4, 5]),
        ({"filter_subject": "{name}.1"}, [1, 4]),
        ({"filter_subjects": ["{name}.0", "{name}.2"]}, [0, 2, 3, 5]),
    ],
)
async def test_a_consumer_begins_where_it_was_told_to(
    js: JetStreamContext, name: str, config: dict[str, Any], expected: list[int]
) -> None:
    await _filled(js, name)
    filled = json.loads(json.dumps(config).replace("{name}", name))
    subscription = await _puller(js, name, **filled)
    assert (await js.consumer_info(name, "c")).num_pending == len(expected)
    await js.publish(f"{name}.0", b"99")
    later = [99] if "1" not in filled.get("filter_subject", "")[-1:] else []
    assert _bodies(await subscription.fetch(len(expected + later), timeout=WITHIN_S)) == expected + later
    assert (await js.consumer_info(name, "c")).num_pending == 0


async def test_a_consumer_begins_at_a_time(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 2)
    await asyncio.sleep(0.05)
    now = dt.datetime.now(dt.UTC)
    await asyncio.sleep(0.05)
    await js.publish(f"{name}.0", b"7")
    subscription = await _puller(js, name, deliver_policy=api.DeliverPolicy.BY_START_TIME, opt_start_time=now)
    assert _bodies(await subscription.fetch(1, timeout=WITHIN_S)) == [7]


async def test_headers_only(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    await js.publish(f"{name}.a", b"12345", headers={"A": "b"})
    subscription = await _puller(js, name, headers_only=True)
    (message,) = await subscription.fetch(1, timeout=WITHIN_S)
    assert (message.data, message.headers) == (b"", {"A": "b", "Nats-Msg-Size": "5"})


async def test_messages_replayed_at_their_own_pace(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    for _ in range(2):
        await js.publish(f"{name}.a", b"1")
        await asyncio.sleep(0.3)
    subscription = await _puller(js, name, replay_policy=api.ReplayPolicy.ORIGINAL)
    started = asyncio.get_running_loop().time()
    assert len(await subscription.fetch(2, timeout=WITHIN_S)) == 2
    assert asyncio.get_running_loop().time() - started > 0.2


async def test_a_work_queue_forgets_what_is_done(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, retention=api.RetentionPolicy.WORK_QUEUE)
    subscription = await _puller(js, name)
    with pytest.raises(BadRequestError, match="multiple non-filtered consumers"):
        await js.add_consumer(name, durable_name="d")
    for message in await subscription.fetch(4, timeout=WITHIN_S):
        await message.ack_sync(WITHIN_S)
    await eventually(lambda: _has_messages(js, name, 2))


async def _has_messages(js: JetStreamContext, name: str, count: int) -> bool:
    return (await js.stream_info(name)).state.messages == count


async def test_a_stream_of_interest_keeps_what_somebody_still_wants(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, retention=api.RetentionPolicy.INTEREST)
    assert (await js.stream_info(name)).state.messages == 0
    subscription = await _puller(js, name)
    await js.add_consumer(name, durable_name="d")
    other = await js.pull_subscribe_bind("d", name)
    await js.publish(f"{name}.a", b"1")
    for each, left in ((subscription, 1), (other, 0)):
        (message,) = await each.fetch(1, timeout=WITHIN_S)
        await message.ack_sync(WITHIN_S)
        await eventually(partial(_has_messages, js, name, left))


async def test_consumers_are_listed_changed_and_deleted(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    for each in ("c", "d"):
        await js.add_consumer(name, durable_name=each, ack_wait=10)
    assert [info.name for info in await js.consumers_info(name)] == ["c", "d"]
    changed = await js.add_consumer(name, durable_name="c", ack_wait=20, description="new")
    assert (changed.config.ack_wait, changed.config.description) == (20, "new")
    with pytest.raises((BadRequestError, ServerError)):
        await js.add_consumer(name, durable_name="c", ack_policy=api.AckPolicy.NONE)
    assert await js.delete_consumer(name, "c")
    with pytest.raises(NotFoundError):
        await js.consumer_info(name, "c")
    assert (await js.stream_info(name)).state.consumer_count == 1


async def test_an_ephemeral_goes_when_nobody_uses_it(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    info = await js.add_consumer(name, api.ConsumerConfig(inactive_threshold=0.2))
    assert len(info.name) == 8
    await eventually(lambda: _is_gone(js, name, info.name))


async def _is_gone(js: JetStreamContext, name: str, consumer: str) -> bool:
    return consumer not in [info.name for info in await js.consumers_info(name)]


async def test_a_paused_consumer_holds_back(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    subscription = await _puller(js, name)
    until = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    paused = await js.pause_consumer(name, "c", until.isoformat().replace("+00:00", "Z"))
    assert paused.paused
    assert (await js.consumer_info(name, "c")).paused
    with pytest.raises(TimeoutError):
        await subscription.fetch(1, timeout=0.1)
    assert not (await js.resume_consumer(name, "c")).paused
    assert len(await subscription.fetch(1, timeout=WITHIN_S)) == 1


async def test_a_consumer_is_set_back(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    subscription = await _puller(js, name)
    for message in await subscription.fetch(6, timeout=WITHIN_S):
        await message.ack_sync(WITHIN_S)
    reset = await js.reset_consumer(name, "c", 3)
    assert reset.reset_seq == 3
    assert _bodies(await subscription.fetch(4, timeout=WITHIN_S)) == [2, 3, 4, 5]


async def test_deliveries_and_acknowledgements_survive_a_restart(launch: StartServer, name: str) -> None:
    server = launch()
    async with connected(server.url) as client:
        js = client.jetstream(timeout=WITHIN_S)
        await _filled(js, name)
        subscription = await _puller(js, name, ack_wait=2)
        messages = await subscription.fetch(4, timeout=WITHIN_S)
        await messages[0].ack_sync(WITHIN_S)
        await messages[2].ack_sync(WITHIN_S)
    server.restart()
    async with connected(server.url) as client:
        js = client.jetstream(timeout=WITHIN_S)
        info = await js.consumer_info(name, "c")
        assert info.ack_floor
        assert (info.ack_floor.stream_seq, info.num_ack_pending, info.num_pending) == (1, 2, 2)
        subscription = await js.pull_subscribe_bind("c", name)
        again = []
        for _ in range(4):
            (message,) = await subscription.fetch(1, timeout=WITHIN_S)
            await message.ack_sync(WITHIN_S)
            again.append(message)
        assert sorted(_bodies(again)) == [1, 3, 4, 5]


async def test_limits_on_what_may_be_asked_for(nc: Client, js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    config = {"durable_name": "c", "ack_policy": "explicit", "max_batch": 2, "max_waiting": 1}
    body = json.dumps({"stream_name": name, "config": config}).encode()
    await nc.request(f"$JS.API.CONSUMER.CREATE.{name}.c", body, WITHIN_S)
    answer = await nc.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", b'{"batch": 3}', WITHIN_S)
    assert (answer.headers or {}) == {"Status": "409", "Description": "Exceeded MaxRequestBatch of 2"}


async def test_a_priority_group_overflows_only_when_it_should(nc: Client, js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    config = {"durable_name": "c", "ack_policy": "explicit", "priority_groups": ["g"], "priority_policy": "overflow"}
    body = json.dumps({"stream_name": name, "config": config}).encode()
    await nc.request(f"$JS.API.CONSUMER.CREATE.{name}.c", body, WITHIN_S)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.c"
    refused = await nc.request(subject, b'{"batch": 1}', WITHIN_S)
    assert (refused.headers or {})["Status"] == "400"
    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox)
    await nc.publish(subject, b'{"batch": 1, "group": "g", "min_pending": 5}', reply=inbox)
    assert (await subscription.next_msg(WITHIN_S)).data == b"0"
    under = await nc.request(subject, b'{"batch": 1, "group": "g", "min_pending": 50, "no_wait": true}', WITHIN_S)
    assert (under.headers or {})["Status"] == "404"


async def test_another_filter_leaves_in_a_work_queue_what_was_never_delivered(launch: StartServer, name: str) -> None:
    server = launch()
    async with connected(server.url) as client:
        js = client.jetstream(timeout=WITHIN_S)
        await _filled(js, name, retention=api.RetentionPolicy.WORK_QUEUE)
        subscription = await _puller(js, name, filter_subject=f"{name}.1")
        for message in await subscription.fetch(2, timeout=WITHIN_S):
            await message.ack_sync(WITHIN_S)
        await js.add_consumer(name, durable_name="c", filter_subjects=[f"{name}.0", f"{name}.1"])
        assert (await js.stream_info(name)).state.messages == 4
    server.restart()
    async with connected(server.url) as client:
        js = client.jetstream(timeout=WITHIN_S)
        assert (await js.stream_info(name)).state.messages == 4
