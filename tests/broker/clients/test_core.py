"""Core NATS by nats-py: subjects, queues, requests, headers, limits and the ways a connection ends."""

import asyncio
import os
import signal
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.broker.clients.servers import WITHIN_S, StartServer, connected, eventually, is_refused, settled
from tests.servers_nats import NatsServer


async def test_a_message_reaches_everybody_who_listens_once(nc: Client, name: str) -> None:
    exact, star, tail = [await nc.subscribe(f"{name}.{each}") for each in ("a.b", "*.b", ">")]
    other = await nc.subscribe(f"{name}.a")
    await nc.publish(f"{name}.a.b", b"one")
    for subscription in (exact, star, tail):
        message = await subscription.next_msg(WITHIN_S)
        assert (message.subject, message.data, message.reply) == (f"{name}.a.b", b"one", "")
    await settled(nc)
    assert [each.pending_msgs for each in (exact, star, tail, other)] == [0, 0, 0, 0]


async def test_messages_come_in_the_order_they_were_sent_whatever_their_size(nc: Client, name: str) -> None:
    subscription = await nc.subscribe(name)
    sizes = [0, 1, 100, 5_000, 70_000, 300_000, 3, 1_048_576]
    for number, size in enumerate(sizes):
        await nc.publish(name, bytes([number]) * size)
    got = [await subscription.next_msg(WITHIN_S) for _ in sizes]
    assert [message.data for message in got] == [bytes([number]) * size for number, size in enumerate(sizes)]


async def test_of_a_queue_group_one_member_gets_each_message(server: NatsServer, nc: Client, name: str) -> None:
    async with connected(server.url) as other:
        members = [await client.subscribe(name, queue="q") for client in (nc, other, other)]
        second_group = await other.subscribe(name, "r")
        everybody = await other.subscribe(name)
        await settled(other)
        for number in range(90):
            await nc.publish(name, b"%d" % number)
        await settled(nc)
        await eventually(lambda: sum(each.pending_msgs for each in members) == 90)
        await eventually(lambda: (second_group.pending_msgs, everybody.pending_msgs) == (90, 90))
        assert all(each.pending_msgs > 0 for each in members)


async def test_a_subscription_ends_after_as_many_messages_as_it_asked_for(nc: Client, name: str) -> None:
    got: list[bytes] = []

    async def take(message: Msg) -> None:
        got.append(message.data)

    subscription = await nc.subscribe(name, cb=take)
    await subscription.unsubscribe(limit=3)
    for number in range(5):
        await nc.publish(name, b"%d" % number)
    await settled(nc)
    await eventually(lambda: got == [b"0", b"1", b"2"])


async def test_nobody_hears_on_a_subject_after_unsubscribing(nc: Client, name: str) -> None:
    subscription = await nc.subscribe(name)
    await subscription.unsubscribe()
    with pytest.raises(nats.errors.NoRespondersError):
        await nc.request(name, timeout=WITHIN_S)


async def test_requests_are_answered_and_many_at_once_keep_apart(server: NatsServer, nc: Client, name: str) -> None:
    async def double(message: Msg) -> None:
        await message.respond(message.data * 2)

    async with connected(server.url) as other:
        await other.subscribe(name, cb=double)
        await settled(other)
        answers = await asyncio.gather(*[nc.request(name, b"%d" % number, WITHIN_S) for number in range(50)])
        assert [answer.data for answer in answers] == [b"%d" % number * 2 for number in range(50)]
        old_style = await nc.request(name, b"x", WITHIN_S, old_style=True)
        assert old_style.data == b"xx"


async def test_a_request_that_nobody_hears_fails_at_once(nc: Client, name: str) -> None:
    with pytest.raises(nats.errors.NoRespondersError):
        await nc.request(name, b"x", timeout=WITHIN_S)


async def test_a_request_that_nobody_answers_times_out(nc: Client, name: str) -> None:
    await nc.subscribe(name)
    with pytest.raises(nats.errors.TimeoutError):
        await nc.request(name, b"x", timeout=0.1)


async def test_headers_arrive_as_they_were_sent(nc: Client, name: str) -> None:
    subscription = await nc.subscribe(name)
    await nc.publish(name, b"body", headers={"A": "1", "b-C": "two words", "Empty": ""})
    message = await subscription.next_msg(WITHIN_S)
    assert (message.headers, message.data) == ({"A": "1", "b-C": "two words", "Empty": ""}, b"body")


async def test_without_echo_a_client_does_not_hear_itself(server: NatsServer, nc: Client, name: str) -> None:
    async with connected(server.url, no_echo=True) as quiet:
        own = await quiet.subscribe(name)
        await settled(quiet)
        others = await nc.subscribe(name)
        await settled(nc)
        await quiet.publish(name, b"mine")
        await settled(quiet)
        await nc.publish(name, b"yours")
        assert (await others.next_msg(WITHIN_S)).data == b"mine"
        assert (await own.next_msg(WITHIN_S)).data == b"yours"


@pytest.mark.parametrize("options", [{"verbose": True}, {"pedantic": True}, {"verbose": True, "pedantic": True}])
async def test_verbose_and_pedantic_clients_are_served(server: NatsServer, name: str, options: dict[str, bool]) -> None:
    async with connected(server.url, **options) as client:
        subscription = await client.subscribe(name)
        await client.publish(name, b"x")
        assert (await subscription.next_msg(WITHIN_S)).data == b"x"


async def test_what_the_server_says_of_itself(nc: Client) -> None:
    version = nc.connected_server_version
    assert (version.major, version.minor) == (2, 15)
    assert nc.max_payload == 1_048_576
    assert nc.client_ip == "127.0.0.1"
    assert (nc.client_id or 0) > 0
    assert await nc.rtt() < WITHIN_S


async def test_a_payload_beyond_the_limit_is_refused_before_it_is_sent(start: StartServer, name: str) -> None:
    async with connected(start("max_payload: 1000").url) as client:
        assert client.max_payload == 1000
        with pytest.raises(nats.errors.MaxPayloadError):
            await client.publish(name, bytes(1001))


async def test_a_client_that_drains_gets_what_was_on_its_way(server: NatsServer, nc: Client, name: str) -> None:
    got: list[bytes] = []

    async def slowly(message: Msg) -> None:
        await asyncio.sleep(0)
        got.append(message.data)

    async with connected(server.url) as other:
        await other.subscribe(name, cb=slowly)
        await settled(other)
        for number in range(200):
            await nc.publish(name, b"%d" % number)
        await settled(nc)
        await other.drain()
        await eventually(lambda: other.is_closed)
    assert got == [b"%d" % number for number in range(200)]


async def test_one_subscription_drains_while_others_go_on(nc: Client, name: str) -> None:
    ending: Any = await nc.subscribe(name)
    staying = await nc.subscribe(name)
    await nc.publish(name, b"1")
    await settled(nc)
    reading = asyncio.create_task(ending.next_msg(WITHIN_S))
    await asyncio.sleep(0)
    await ending.drain()
    assert (await reading).data == b"1"
    await nc.publish(name, b"2")
    assert [(await staying.next_msg(WITHIN_S)).data for _ in range(2)] == [b"1", b"2"]


async def test_no_more_clients_connect_than_are_allowed(start: StartServer) -> None:
    url = start("max_connections: 2").url
    async with connected(url) as one, connected(url) as two:
        assert await is_refused(url)
        assert one.is_connected
        await two.close()
        await eventually(lambda: _can_connect(url))


async def _can_connect(url: str) -> bool:
    return not await is_refused(url)


async def test_a_client_comes_back_after_a_restart_and_hears_again(launch: StartServer, name: str) -> None:
    server = launch()
    async with connected(
        server.url, allow_reconnect=True, reconnect_time_wait=0.05, max_reconnect_attempts=-1
    ) as client:
        subscription = await client.subscribe(name)
        await settled(client)
        server.kill()
        await eventually(lambda: not client.is_connected)
        server.start()
        await eventually(lambda: client.is_connected)
        await client.publish(name, b"again")
        assert (await subscription.next_msg(WITHIN_S)).data == b"again"


async def test_a_lame_duck_says_so_and_lets_its_clients_go(launch: StartServer) -> None:
    server = launch('lame_duck_duration: "30s"\nlame_duck_grace_period: "10ms"')
    told = asyncio.Event()

    async def note() -> None:
        told.set()

    async with connected(server.url, lame_duck_mode_cb=note) as client:
        os.kill(server.pid, signal.SIGUSR2)
        await asyncio.wait_for(told.wait(), WITHIN_S)
        await eventually(lambda: client.is_closed)


async def test_a_client_that_answers_no_pings_is_let_go(start: StartServer) -> None:
    server = start("ping_interval: 1\nping_max: 1")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    received = await asyncio.wait_for(reader.read(), WITHIN_S)
    writer.close()
    assert received.count(b"PING\r\n") >= 1
    assert received.endswith(b"-ERR 'Stale Connection'\r\n")
