"""Requests from an event loop: each gets its own answer, and a lost server is noticed and replaced."""

import asyncio
from typing import ClassVar

import pytest

from strandline.errors import RecordTooLarge
from strandline.nats import NatsClient, NatsSettings
from strandline.nats.errors import AccessRefused, ConnectionDropped, Unreachable
from strandline.nats.logins import Login
from strandline.nats.requests import NoListener, Unanswered
from tests import identities_nats as identities
from tests.kv.nats.opening import until
from tests.servers_nats import NatsCluster, NatsServer, running_nats
from tests.waiting import PATIENCE_S


def test_requests_at_once_get_each_their_own_answer(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await NatsClient.connect(NatsSettings(nats_server.url, timeout_s=PATIENCE_S))
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


def test_many_refusals_at_once_fail_each_their_own_request() -> None:
    permissions = "{ subscribe: '_INBOX.>', publish: { allow: ['$JS.API.>', 'Upper'] } }"
    user = f"{{ user: ann, password: pw, permissions: {permissions} }}"
    rules = f"authorization {{ users: [ {user} ], {identities.TIMEOUT} }}"

    async def main(server: NatsServer) -> None:
        client = await NatsClient.connect(NatsSettings(server.url_with("ann:pw"), timeout_s=2 * PATIENCE_S))
        subjects = [f"secret.{number}" for number in range(500)]
        async with asyncio.timeout(PATIENCE_S):
            outcomes = await asyncio.gather(*map(client.request, subjects), return_exceptions=True)
            assert all(isinstance(outcome, AccessRefused) for outcome in outcomes)
            refused, unheard = await asyncio.gather(*map(client.request, ("upper", "Upper")), return_exceptions=True)
        assert isinstance(refused, AccessRefused)
        assert isinstance(unheard, NoListener)
        await client.close()

    with running_nats(rules) as server:
        asyncio.run(main(server))


@pytest.mark.parametrize("host", ["a..b", "a" * 70])
def test_a_name_that_no_host_can_have_is_unreachable(host: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(Unreachable, match="name"):
                await NatsClient.connect(NatsSettings(f"nats://{host}:4222"))

    asyncio.run(main())


class _Unsteady(NatsSettings):
    """Settings whose login raises as often as it is said."""

    failures: ClassVar[int] = 0

    def login(self) -> Login:
        if type(self).failures:
            type(self).failures -= 1
            raise KeyError("no signature now")
        return Login()


def test_what_a_login_raises_is_raised_and_ends_no_reconnect() -> None:
    async def main(server: NatsServer) -> None:
        settings = _Unsteady(server.url)
        _Unsteady.failures = 1
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(KeyError):
                await NatsClient.connect(settings)
        client = await NatsClient.connect(settings)
        _Unsteady.failures = 2
        server.restart(kill=True)
        await until(client.answers)
        assert not _Unsteady.failures
        await client.close()

    with running_nats() as server:
        asyncio.run(main(server))


def test_a_client_goes_on_with_another_server_if_one_refuses_it() -> None:
    async def main(one: NatsServer, two: NatsServer) -> None:
        client = await NatsClient.connect(NatsSettings([one.url, two.url]))
        one.settings = identities.TOKEN
        one.restart(kill=True)
        await until(client.answers)
        await client.close()

    with running_nats() as one, running_nats() as two:
        asyncio.run(main(one, two))


def test_a_large_request_does_not_hold_the_loop_up(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await NatsClient.connect(NatsSettings(nats_server.url, timeout_s=PATIENCE_S))
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
        client = await NatsClient.connect(NatsSettings(first.url, timeout_s=30))
        assert client.server is not None
        server_id = client.server.server_id
        first.kill()

        async def is_elsewhere() -> bool:
            return client.server is not None and client.server.server_id != server_id and await client.answers()

        await until(is_elsewhere)
        await client.close()

    asyncio.run(main())
