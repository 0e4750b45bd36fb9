"""Bytes of a stream's segment are flipped on disk and its journal is repaired: readers go on over what is lost."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig, StreamSource
from nats.js.errors import NotFoundError

from strandline.broker.embedded_server import serve
from strandline.broker.settings import ServerSettings
from tests.broker.clients.servers import settled
from tests.broker.durability.child import mortal
from tests.broker.durability.damage import damage
from tests.broker.socket_client import Ended, SocketClient
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
COUNT = 40
LOST = (9, 20)
LEFT = [number for number in range(1, COUNT + 1) if number not in LOST]
STATE_FIELDS = [
    "messages",
    "bytes",
    "first_seq",
    "first_ts",
    "last_seq",
    "last_ts",
    "num_subjects",
    "num_deleted",
    "deleted",
    "lost",
    "consumer_count",
]
"""In nats-server's order."""
ADVISORY = "$JS.EVENT.ADVISORY.STREAM.LOST.orders"


@asynccontextmanager
async def serving(store: Path) -> AsyncIterator[tuple[Client, Callable[[], Awaitable[tuple[int, Any]]]]]:
    """Serve a store; yield a client, and what asks for the server's health."""
    async with serve(ServerSettings(port=0, store_dir=store, http_port=-1)) as server:
        client = await nats.connect(server.url, connect_timeout=WAIT_S)

        def ask() -> tuple[int, Any]:
            with closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=WAIT_S)) as connection:
                connection.request("GET", "/healthz")
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

        async def health() -> tuple[int, Any]:
            return await asyncio.get_running_loop().run_in_executor(None, ask)

        try:
            yield client, health
        finally:
            await client.close()


async def api(client: Client, subject: str, body: object = None) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Ask the API."""
    answer = await client.request(f"$JS.API.{subject}", b"" if body is None else json.dumps(body).encode(), WAIT_S)
    return json.loads(answer.data)


async def fill(client: Client) -> None:
    """Publish, each message in a batch of its own, and have consumers in the middle of it."""
    stream = client.jetstream(timeout=WAIT_S)
    await stream.add_stream(name="orders", subjects=["orders.>"], allow_direct=True)
    for number in range(1, COUNT + 1):
        await stream.publish(f"orders.{number % 4}", f"message {number:04}".encode())
    pulled = await stream.pull_subscribe("orders.>", "puller", config=ConsumerConfig(ack_wait=1))
    for message in (await pulled.fetch(10, timeout=WAIT_S))[:8]:
        await message.ack_sync(WAIT_S)
    await stream.add_consumer(
        "orders", ConsumerConfig(durable_name="pusher", deliver_subject="to", ack_policy=AckPolicy.ALL)
    )


async def numbers(wait: Callable[[], Awaitable[Any]], until: int = COUNT) -> list[int]:
    """Return the numbers of messages, acknowledging each, up to one."""
    found: list[int] = []
    while not found or found[-1] != until:
        message = await wait()
        if message.reply.startswith("$JS.ACK"):
            await message.ack()
        found.append(int(message.data.decode().split()[1]))
    return found


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(WAIT_S):
        while not await check():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


async def check_consumers(client: Client) -> None:
    """Every kind of consumer gets what is left, and comes to its end."""
    stream = client.jetstream(timeout=WAIT_S)
    pulled = await stream.pull_subscribe_bind("puller", "orders")

    async def pull() -> Any:  # noqa: ANN401 - a message
        return (await pulled.fetch(1, timeout=WAIT_S))[0]

    assert sorted(set(await numbers(pull))) == [number for number in LEFT if number > 9]
    to = await client.subscribe("to")
    assert await numbers(lambda: to.next_msg(WAIT_S)) == LEFT
    ordered = await stream.subscribe("orders.>", ordered_consumer=True)
    assert await numbers(lambda: ordered.next_msg(WAIT_S)) == LEFT
    pushed = await stream.subscribe("orders.>", manual_ack=True)
    assert await numbers(lambda: pushed.next_msg(WAIT_S)) == LEFT

    async def all_done() -> bool:
        shown = [await stream.consumer_info("orders", name) for name in ("puller", "pusher")]
        return all(
            (each.num_pending, each.num_ack_pending, each.ack_floor and each.ack_floor.stream_seq) == (0, 0, COUNT)
            for each in shown
        )

    await eventually(all_done)


async def check_gets(client: Client) -> None:
    """Messages are got one by one and many at a time, and what is lost is not found."""
    stream = client.jetstream(timeout=WAIT_S)
    for direct in (False, True):
        for sequence in LOST:
            with pytest.raises(NotFoundError):
                await stream.get_msg("orders", sequence, direct=direct)
        assert (await stream.get_msg("orders", 21, direct=direct)).data == b"message 0021"
        found = await stream.get_msg("orders", 20, direct=direct, next=True, subject="orders.>")
        assert found.data == b"message 0021"
    inbox = await client.subscribe("batch")
    await client.publish("$JS.API.DIRECT.GET.orders", b'{"seq":1,"batch":100}', reply="batch")
    got = [(await inbox.next_msg(WAIT_S)).data for _ in LEFT]
    assert got == [f"message {number:04}".encode() for number in LEFT]


async def check_copies(client: Client) -> None:
    """A mirror and a source have what is left."""
    stream = client.jetstream(timeout=WAIT_S)
    await stream.add_stream(name="mirror", mirror=StreamSource(name="orders"))
    await stream.add_stream(name="sourced", sources=[StreamSource(name="orders")])

    async def all_there() -> bool:
        states = [(await stream.stream_info(name)).state for name in ("mirror", "sourced")]
        return [state.messages for state in states] == [len(LEFT), len(LEFT)]

    await eventually(all_there)
    assert (await stream.stream_info("mirror")).state.last_seq == COUNT
    snapshot = await client.subscribe("snapshot")
    answer = await api(client, "STREAM.SNAPSHOT.orders", {"deliver_subject": "snapshot"})
    assert answer["state"]["messages"] == len(LEFT)
    while (message := await snapshot.next_msg(WAIT_S)).data:
        if message.reply:
            await client.publish(message.reply)
    assert message.headers is None or message.headers["Status"] == "204"


def test_every_reader_goes_on_over_what_damage_took_and_it_is_told_until_it_is_accepted(tmp_path: Path) -> None:
    asyncio.run(go_on_over_damage(tmp_path))


async def go_on_over_damage(tmp_path: Path) -> None:
    """Fill a stream, damage it, read it in every way, and accept the loss."""
    async with serving(tmp_path) as (client, health):
        await fill(client)
        assert (await health())[0] == 200
    damage(tmp_path, *(f"message {number:04}".encode() for number in LOST))
    async with serving(tmp_path) as (client, health):
        status, told = await health()
        assert status == 503
        assert "orders" in told["error"]
        assert "$JS.API.STREAM.LOST.ACCEPT.orders" in told["error"]
        advisories = await client.subscribe(ADVISORY)
        advisory = json.loads((await advisories.next_msg(WAIT_S)).data)
        assert (advisory["stream"], advisory["lost"]["msgs"]) == ("orders", list(LOST))
        info = await api(client, "STREAM.INFO.orders", {"deleted_details": True})
        assert info["state"]["lost"]["msgs"] == list(LOST)
        assert info["state"]["lost"]["bytes"] > 0
        assert (info["state"]["messages"], info["state"]["last_seq"]) == (len(LEFT), COUNT)
        assert (info["state"]["num_deleted"], info["state"]["deleted"]) == (2, list(LOST))
        assert list(info["state"]) == STATE_FIELDS
        missing = (await api(client, "STREAM.MSG.GET.orders", {"seq": LOST[0]}))["error"]
        assert (missing["code"], missing["err_code"]) == (404, 10037)
        await check_consumers(client)
        await check_gets(client)
        await check_copies(client)
    async with serving(tmp_path) as (client, health):
        advisories = await client.subscribe(ADVISORY)
        assert await api(client, "STREAM.MSG.DELETE.orders", {"seq": 20}) == {
            "type": "io.nats.jetstream.api.v1.stream_msg_delete_response",
            "success": True,
        }
        assert (await api(client, "STREAM.INFO.orders"))["state"]["lost"]["msgs"] == [9]
        assert (await health())[0] == 503
        accepted = await api(client, "STREAM.LOST.ACCEPT.orders")
        assert (accepted["success"], accepted["accepted"]) == (True, 1)
        assert (await health())[0] == 200
        assert "lost" not in (await api(client, "STREAM.INFO.orders"))["state"]
        await settled(client)
        while advisories.pending_msgs:  # it was told before, too
            await advisories.next_msg(WAIT_S)
        with pytest.raises(NothingCame):
            await advisories.next_msg(1.5)
    async with serving(tmp_path) as (client, health):
        assert (await health())[0] == 200
        assert (await client.jetstream(timeout=WAIT_S).publish("orders.1", b"and on")).seq == COUNT + 1


def test_a_server_killed_while_a_loss_is_accepted_has_it_lost_or_accepted_and_what_was_answered_holds(
    tmp_path: Path,
) -> None:
    with mortal(tmp_path) as server:
        assert server.start()
        with SocketClient(server.port) as client:
            client.api("STREAM.CREATE.orders", {"name": "orders", "subjects": ["orders.>"]})
            for number in range(1, 12):
                client.request("orders.a", f"message {number:04}".encode())
        server.kill()
        for sequence in (3, 5, 7):
            damage(tmp_path, f"message {sequence:04}".encode())
            assert server.start()
            answered = sequence == 5
            with SocketClient(server.port) as client:
                assert client.api("STREAM.INFO.orders")["state"]["lost"]["msgs"] == [sequence]  # type: ignore[index]
                client.publish("$JS.API.STREAM.LOST.ACCEPT.orders", reply=client.inbox)
                if answered:
                    client.subscribe(client.inbox, "1")
                    assert client.request("$JS.API.STREAM.LOST.ACCEPT.orders").json()["success"]
                server.kill()
                with pytest.raises(Ended):
                    client.flush()
            assert server.start()
            with SocketClient(server.port) as client:
                state: Any = client.api("STREAM.INFO.orders")["state"]
                assert state.get("lost") is None or (not answered and state["lost"]["msgs"] == [sequence])
                client.api("STREAM.LOST.ACCEPT.orders")
            server.kill()
