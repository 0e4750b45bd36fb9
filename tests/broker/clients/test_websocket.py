"""nats-py by WebSocket: the same protocol through another door."""

import pytest

from tests.broker.clients.servers import WITHIN_S, StartServer, connected, is_refused, settled
from tests.ports import free_ports

# nats-py calls aiohttp in a way that aiohttp advises against, and would try again for ever if that were an error.
pytestmark = pytest.mark.filterwarnings("ignore:parameter 'timeout':DeprecationWarning")


def _door(port: int) -> str:
    return f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}"


async def test_messages_of_every_size_go_both_ways(start: StartServer, name: str) -> None:
    (port,) = free_ports(1)
    server = start(_door(port))
    async with connected(f"ws://127.0.0.1:{port}") as web, connected(server.url) as plain:
        theirs, ours = await web.subscribe(f"{name}.web"), await plain.subscribe(f"{name}.plain")
        await settled(web)
        await settled(plain)
        for size in (0, 1, *range(50, 127), *range(65_450, 65_540), 500_000):  # frames of 126 and 65,536 are among them
            await web.publish(f"{name}.plain", bytes(size), headers={"A": "b"})
            await plain.publish(f"{name}.web", bytes(size))
            assert len((await ours.next_msg(WITHIN_S)).data) == size
            assert len((await theirs.next_msg(WITHIN_S)).data) == size


async def test_streams_and_buckets(start: StartServer, name: str) -> None:
    (port,) = free_ports(1)
    start(_door(port))
    async with connected(f"ws://127.0.0.1:{port}") as client:
        js = client.jetstream(timeout=WITHIN_S)
        await js.add_stream(name=name, subjects=[f"{name}.>"])
        for number in range(20):
            await js.publish_async(f"{name}.a", b"%d" % number)
        await js.publish_async_completed()
        subscription = await js.subscribe(f"{name}.>", ordered_consumer=True)
        assert [int((await subscription.next_msg(WITHIN_S)).data) for _ in range(20)] == list(range(20))
        bucket = await js.create_key_value(bucket=name, direct=True)
        assert await bucket.put("a", b"1") == 1
        assert (await bucket.get("a")).value == b"1"


async def test_a_password_is_asked_for_there_too(start: StartServer) -> None:
    (port,) = free_ports(1)
    start(f"authorization {{ user: ann, password: s3cret }}\n{_door(port)}")
    url = f"ws://127.0.0.1:{port}"
    async with connected(url, user="ann", password="s3cret") as client:  # noqa: S106 - of a server of seconds
        await settled(client)
    assert await is_refused(url, user="ann", password="wrong")  # noqa: S106
