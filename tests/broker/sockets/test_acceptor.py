"""Entrances on real sockets: places, pauses and ends."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from strandline.broker.sockets import acceptor
from strandline.broker.sockets.acceptor import ConnectionAcceptor
from strandline.broker.sockets.descriptors import descriptor_budget
from strandline.errors import Unavailable
from tests.waiting import PATIENCE_S

WITHIN_S = PATIENCE_S


class Guest(asyncio.Protocol):
    """Says one line to whoever comes."""

    def __init__(self, acceptor: ConnectionAcceptor) -> None:
        self._acceptor = acceptor
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(b"come in\n")

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._acceptor.release(self)


class CountedAcceptor:
    """An acceptor with some places, and who was there at the same time."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.acceptor = ConnectionAcceptor(lambda: self.places)
        self.guests: list[Guest] = []
        self.most = 0
        self.ports: list[int] = []

    def make(self, address: tuple[str, int]) -> Guest:
        assert address[0] == "127.0.0.1"
        self.most = max(self.most, self.acceptor.count + 1)
        self.guests.append(Guest(self.acceptor))
        return self.guests[-1]

    async def visit(self, number: int = 0) -> "Visitor":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[number])
        return Visitor(reader, writer)


class Visitor:
    """Who has connected, and may have been accepted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def comes_in(self) -> bool:
        return await asyncio.wait_for(self._reader.readline(), WITHIN_S) == b"come in\n"

    def go(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def world(places: int, sockets: int = 1) -> AsyncIterator[CountedAcceptor]:
    made = CountedAcceptor(places)
    for _ in range(sockets):
        made.ports.append(await made.acceptor.listen("127.0.0.1", 0, made.make))
    try:
        yield made
    finally:
        await made.acceptor.close()
        for guest in made.guests:
            if hasattr(guest, "transport"):
                guest.transport.abort()
        await until(lambda: made.acceptor.count == 0)


async def until(condition: Callable[[], bool]) -> None:
    give_up = asyncio.get_running_loop().time() + WITHIN_S
    while not condition():
        assert asyncio.get_running_loop().time() < give_up, "it never came true"
        await asyncio.sleep(0.005)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


def test_whoever_finds_no_place_waits_until_somebody_goes(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with world(3, sockets=2) as here:
            visitors = [await here.visit(number % 2) for number in range(40)]
            await until(lambda: here.acceptor.count == 3)
            await until(lambda: "No connections are accepted for now" in caplog.text)
            for _ in range(37):
                before = len(here.guests)
                next(iter(here.guests)).transport.abort()
                here.guests.pop(0)
                await until(lambda: len(here.guests) >= before)  # noqa: B023 - awaited before it changes
            assert all([await visitor.comes_in() for visitor in visitors])
            assert here.most == 3
            for visitor in visitors:
                visitor.go()

    run(test)
    assert caplog.text.count("No connections are accepted for now: the limit of 3 connections is reached") == 1


def test_more_places_let_more_in_at_once() -> None:
    async def test() -> None:
        async with world(1) as here:
            first, second = await here.visit(), await here.visit()
            assert await first.comes_in()
            here.places = 2
            here.acceptor.resume()
            assert await second.comes_in()
            first.go()
            second.go()

    run(test)


def test_without_handles_it_waits_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, tries = socket.socket.accept, []

    def accept(self: socket.socket) -> tuple[socket.socket, object]:
        tries.append(1)
        if len(tries) <= 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    monkeypatch.setattr(acceptor, "RETRY_S", 0.1)

    async def test() -> None:
        async with world(9) as here:
            began = asyncio.get_running_loop().time()
            visitors = [await here.visit() for _ in range(5)]
            assert all([await visitor.comes_in() for visitor in visitors])
            assert asyncio.get_running_loop().time() - began > 0.25
            for visitor in visitors:
                visitor.go()

    run(test)
    assert caplog.text.count("No connections are accepted for now: Too many open files") == 1


def test_a_connection_that_cannot_be_taken_in_leaves_its_place() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        real = loop.connect_accepted_socket
        refused: list[socket.socket] = []

        async def connect(make: Callable[[], asyncio.BaseProtocol], accepted: socket.socket) -> object:
            if not refused:
                refused.append(accepted)
                raise OSError(errno.EINVAL, "it has gone")
            return await real(make, accepted)

        loop.connect_accepted_socket = connect  # type: ignore[assignment] # as much of it as is used
        async with world(1) as here:
            first, second = await here.visit(), await here.visit()
            assert not await first.comes_in()
            assert await second.comes_in()
            assert refused[0].fileno() == -1
            first.go()
            second.go()

    run(test)


def test_who_is_accepted_while_it_closes_can_be_told() -> None:
    async def test() -> None:
        async with world(9) as here:
            visitor = await here.visit()
            await until(lambda: here.acceptor.count == 1)
            await here.acceptor.close()
            assert await visitor.comes_in()
            with pytest.raises(OSError, match=r"refused|Connect"):
                await here.visit()
            visitor.go()

    run(test)


def test_all_addresses_of_a_name_have_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        sockets = await acceptor.listening_sockets("", 0)
        try:
            assert len({each.getsockname()[1] for each in sockets}) == 1
            with pytest.raises(Unavailable, match="address already in use"):
                await acceptor.listening_sockets("", int(sockets[0].getsockname()[1]))
        finally:
            for each in sockets:
                each.close()

    def create(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "no such family")

    async def nowhere() -> None:
        with pytest.raises(Unavailable, match="cannot assign requested address"):
            await acceptor.listening_sockets("127.0.0.1", 0)

    run(test)
    monkeypatch.setattr(socket, "create_server", create)
    run(nowhere)


@pytest.mark.parametrize(
    ("limit", "connections"),
    [
        (4, (1, 1, 1)),
        (256, (160, 16, 16)),
        (1024, (640, 64, 64)),
        (1 << 20, (786_112, 64, 256)),
        (-1, (805_306_048, 64, 256)),
    ],
)
def test_a_quarter_of_the_handles_is_left_to_files(
    monkeypatch: pytest.MonkeyPatch, limit: int, connections: tuple[int, ...]
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert descriptor_budget()[:3] == connections
