"""The server that buckets are in, reached from any thread of its process.

Invariants: the server's state is touched on its own thread alone; who calls from another loop waits there for the
answer. Nothing is returned before what it tells is as durable as asked.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from strandline.broker.routes import Cancel
from strandline.broker.streams import Published, Ticket
from strandline.broker.streams.service import StreamService
from strandline.clock import Clock
from strandline.errors import Closed

Result = TypeVar("Result")


class Home(Protocol):
    """What buckets need of an account's JetStream."""

    clock: Clock
    streams: StreamService

    def publish_gathered(self, now_ns: int) -> None:
        """Store what clients have published so far."""

    def stored(self, name: str, published: Published) -> None:
        """Hear what was put into a stream."""

    def follow(self, name: str) -> None:
        """Hear that a stream was made."""

    def listen(self, name: str, heard: Callable[[], None]) -> Cancel:
        """Call somebody when something of a stream is durable, and when the stream is removed."""


class Host:
    """One account of a server, and the loop that it runs on."""

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self.home = home
        self._loop = loop

    @property
    def is_there(self) -> bool:
        """Whether the server runs."""
        return self._loop.is_running()

    async def call(self, work: Callable[[], Result]) -> Result:
        """Do something on the server's thread and return what it returns."""
        if asyncio.get_running_loop() is self._loop:
            return work()
        done: Future[Result] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it belongs to who called
                done.set_exception(error)

        self.post(run)
        return await asyncio.wrap_future(done)

    def post(self, work: Callable[[], None]) -> None:
        """Do something on the server's thread, soon."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise Closed("the server") from None


async def durable(ticket: Ticket) -> None:
    """Wait for a ticket; what went wrong is raised."""
    if ticket.done():
        ticket.result()
    else:
        await asyncio.wrap_future(ticket)
