"""Servers with small limits, of both kinds, each shared by the tests that want the same."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.broker.clients.servers import kind, running  # noqa: F401 - a fixture
from tests.broker.socket_client import SocketClient, pub_frame
from tests.leftovers import shared_server
from tests.servers_nats import NatsServer

SMALL = """
max_pending: 4MB
max_payload: 256KB
max_control_line: 2KB
"""
"""Limits that are soon reached."""
PULLED = {"ack_policy": "none", "inactive_threshold": 600 * 10**9}
"""A consumer that is still there when a machine has stalled for seconds."""
Servers = Callable[[str], NatsServer]


def warm_up(port: int) -> None:
    """Have a server load what it loads when it is first needed, so that it does not count as growing."""
    with SocketClient(port) as client:
        client.api("STREAM.CREATE.WARM", {"name": "WARM"})
        made = client.api("CONSUMER.CREATE.WARM", {"stream_name": "WARM", "config": PULLED})
        client.send(pub_frame("WARM", b"x" * 100) * 2000)
        client.subscribe(client.inbox, "1")
        client.publish(f"$JS.API.CONSUMER.MSG.NEXT.WARM.{made['name']}", b"1000", reply=client.inbox)
        assert all(client.next().payload for _ in range(1000))
        client.api("STREAM.DELETE.WARM")


@pytest.fixture(scope="session")
def all_servers() -> Iterator[Callable[[str, str], NatsServer]]:
    """Return the server of a kind with some settings, started when it is first asked for."""
    started: dict[tuple[str, str], NatsServer] = {}
    with ExitStack() as stack:

        def server(kind: str, settings: str) -> NatsServer:
            if (kind, settings) not in started:
                started[kind, settings] = stack.enter_context(running(kind, settings))
                stack.enter_context(shared_server(started[kind, settings]))
                if settings == SMALL:
                    warm_up(started[kind, settings].port)
            return started[kind, settings]

        yield server


@pytest.fixture
def servers(kind: str, all_servers: Callable[[str, str], NatsServer]) -> Servers:  # noqa: F811 - the fixture
    """Give a test servers by their settings; tests keep apart by names."""
    return lambda settings: all_servers(kind, settings)


@pytest.fixture
def server(servers: Servers) -> NatsServer:
    """Give a test the server with small limits."""
    return servers(SMALL)
