"""A fixture for conversations with both servers at once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.broker.clients.raw import Body, Script, differences
from tests.broker.clients.servers import KINDS, set_up
from tests.servers_nats import NatsServer

Compare = Callable[..., None]


@pytest.fixture
def compare(shared_servers: Callable[[str], NatsServer]) -> Compare:
    """Give a test a function that has a conversation with both servers and fails where they part."""

    def alike(script: Script, connect: Body = "") -> None:
        found = differences(script, [shared_servers(kind).port for kind in KINDS], connect)
        assert not found, "\n" + "\n".join(found)

    return alike


@pytest.fixture
def compare_with() -> Iterator[Callable[..., None]]:
    """Give a test the same for servers of its own, with settings of its own."""
    with ExitStack() as stack:

        def alike(script: Script, settings: str, connect: Body = "", **options: Any) -> None:  # noqa: ANN401
            servers = [stack.enter_context(set_up(kind, settings, **options)) for kind in KINDS]
            found = differences(script, [server.port for server in servers], connect)
            assert not found, "\n" + "\n".join(found)

        yield alike
