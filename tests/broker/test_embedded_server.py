"""A server for a block on a thread of its own: however the block is left, the thread ends, and errors are told."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from strandline.broker.embedded_server import running
from strandline.broker.server import Server
from strandline.errors import StrandlineError


class Stopped(Exception):
    """What a signal raises."""


@pytest.fixture
def signalled() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("signalled")
def test_an_exception_while_a_server_begins_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set(threading.enumerate())
    begin, close = Server.start, Server.close
    done: list[str] = []

    async def start(server: Server) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        await begin(server)
        done.append("begun")

    async def end(server: Server) -> None:
        await close(server)
        done.append("closed")

    monkeypatch.setattr(Server, "start", start)
    monkeypatch.setattr(Server, "close", end)
    with pytest.raises(Stopped), running():
        pytest.fail("it began")
    assert done == ["begun", "closed"]
    assert set(threading.enumerate()) <= threads


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    close = Server.close

    async def fail(server: Server) -> None:
        await close(server)
        raise StrandlineError("the disk is full")

    monkeypatch.setattr(Server, "close", fail)


@pytest.mark.usefixtures("failing")
def test_an_error_while_a_server_closes_is_raised() -> None:
    with pytest.raises(StrandlineError, match="the disk is full"), running():
        pass


@pytest.mark.usefixtures("failing")
def test_an_error_of_the_block_comes_before_one_of_the_server() -> None:
    with pytest.raises(Stopped) as raised, running():
        raise Stopped
    assert raised.value.__notes__ == ["the server failed, too: the disk is full"]
