"""Requests from an event loop: each gets its own answer, and a lost server is noticed and replaced."""

import asyncio

import pytest

from strandline.errors import RecordTooLarge
from strandline.nats import NatsClient, NatsSettings
from strandline.nats.errors import ConnectionDropped
from strandline.nats.requests import NoListener, Unanswered
from tests.kv.nats.opening import until
from tests.servers_nats import NatsCluster, NatsServer, running_nats
from tests.waiting import PATIENCE_S


def test_requests_at_once_get_each_their_own_answer(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await NatsClient.connect(NatsSettings(nats_server.url))
        names = [f"none{number}" for number in range(300)]
        answers = await asyncio.gather(*(client.request(f"$JS.API.STREAM.INFO.{name}") for name in names))
        assert all(b"stream not found" in answer for answer in answers)
        with pytest.raises(NoListener):
            await client.request("nobody.listens")
        with pytest.raises(RecordTooLarge):
            await client.request("a", b"x" * (1 << 20), {"a": "b"})
        await client.close()
        with pytest.raises(ConnectionDropped):
            await client.request("a")

    asyncio.run(main())


def test_a_large_request_does_not_hold_the_loop_up(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await NatsClient.connect(NatsSettings(nats_server.url))
        large = b"x" * ((1 << 20) - 1000)
        with nats_server.frozen():
            sending = [asyncio.ensure_future(client.request("$JS.API.INFO", large)) for _ in range(20)]
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(50):
                    await asyncio.sleep(0)
            assert not any(each.done() for each in sending)
        assert all(await asyncio.gather(*sending))
        await client.close()

    asyncio.run(main())


def test_a_server_that_sends_no_pongs_is_lost_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.nats.client.PING_EVERY_S", 0.05)

    async def main(server: NatsServer) -> None:
        client = await NatsClient.connect(NatsSettings(server.url, timeout_s=2 * PATIENCE_S))
        with server.frozen():
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises((Unanswered, ConnectionDropped)):
                    await client.request("$JS.API.INFO")
        await until(client.answers)
        await client.close()

    with running_nats() as server:
        asyncio.run(main(server))


def test_a_client_goes_on_with_a_server_that_it_was_told_of(nats_cluster: NatsCluster) -> None:
    async def main() -> None:
        first = nats_cluster.members[0]
        client = await NatsClient.connect(NatsSettings(first.url, timeout_s=5))
        assert client.server is not None
        server_id = client.server.server_id
        first.kill()

        async def is_elsewhere() -> bool:
            return client.server is not None and client.server.server_id != server_id and await client.answers()

        await until(is_elsewhere)
        await client.close()

    asyncio.run(main())
