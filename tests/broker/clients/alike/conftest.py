"""A fixture for conversations with both servers at once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest

from tests.broker.clients.raw import PACES, Body, Script, differences
from tests.broker.clients.servers import KINDS, set_up
from tests.servers_nats import NatsServer

Compare = Callable[..., None]


@pytest.fixture
def compare(shared_servers: Callable[[str], NatsServer]) -> Compare:
    """Give a test a function that has a conversation with both servers and fails where they part."""

    def alike(script: Script, connect: Body = "") -> None:
        @contextmanager
        def servers(pace: int) -> Iterator[list[NatsServer]]:
            if pace == PACES[0]:
                yield [shared_servers(kind) for kind in KINDS]
            else:
                with _servers("") as own:
                    yield own

        _assert_alike(script, servers, connect)

    return alike


@pytest.fixture
def compare_with() -> Compare:
    """Give a test the same for servers of its own, with settings of its own."""

    def alike(script: Script, settings: str, connect: Body = "", **options: Any) -> None:  # noqa: ANN401
        _assert_alike(script, lambda _: _servers(settings, **options), connect)

    return alike


@contextmanager
def _servers(settings: str, **options: Any) -> Iterator[list[NatsServer]]:  # noqa: ANN401
    with ExitStack() as stack:
        yield [stack.enter_context(set_up(kind, settings, **options)) for kind in KINDS]


def _assert_alike(
    script: Script, servers: Callable[[int], AbstractContextManager[list[NatsServer]]], connect: Body
) -> None:
    """Fail if the servers part at every pace: where only a stall made them, they do not at a slower one."""
    for pace in PACES:
        with servers(pace) as both:
            try:
                found = differences(script, [server.port for server in both], connect, pace=pace)
            except Exception:  # the script had no answer to go on with
                if pace == PACES[-1]:
                    raise
                continue
        if not found:
            return
    pytest.fail("\n" + "\n".join(found), pytrace=False)
