"""The server that buckets are in, reached from any thread of its process.

Invariants: the server's state is touched on its own thread alone; who calls from another loop waits there for the
answer. Nothing is returned before what it tells is as durable as asked. Whoever waits when the server closes, or calls
afterwards, hears `Closed`, whether or not its loop goes on. Who stops to wait disturbs nobody.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from strandline.broker.listeners import Listeners
from strandline.broker.shutdown_hooks import ShutdownHooks
from strandline.broker.streams import Published, Ticket
from strandline.broker.streams.service import StreamService
from strandline.clock import Clock
from strandline.errors import Closed

Result = TypeVar("Result")


class Home(Protocol):
    """What buckets need of an account's JetStream."""

    clock: Clock
    streams: StreamService
    listeners: Listeners[[]]
    shutdown: ShutdownHooks

    def publish_gathered(self, now_ns: int) -> None:
        """Store what clients have published so far."""

    def stored(self, name: str, published: Published) -> None:
        """Hear what was put into a stream."""

    def follow(self, name: str) -> None:
        """Hear that a stream was made."""


class Host:
    """One account of a server, and the loop that it runs on."""

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self.home = home
        self._loop = loop

    @property
    def is_there(self) -> bool:
        """Whether the server runs."""
        return not self.home.shutdown.is_over and self._loop.is_running()

    async def call(self, work: Callable[[], Result]) -> Result:
        """Do something on the server's thread and return what it returns; `Closed` if that is over."""
        shutdown = self.home.shutdown
        if asyncio.get_running_loop() is self._loop:
            shutdown.check()
            return work()
        done: Future[Result] = Future()

        def refuse() -> None:
            if done.set_running_or_notify_cancel():
                done.set_exception(Closed("the server"))

        def run() -> None:
            if not shutdown.discard(refuse) or not done.set_running_or_notify_cancel():
                return  # it was refused, or nobody waits any more
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it belongs to who called
                done.set_exception(error)

        shutdown.add(refuse)
        try:
            self.post(run)
        except Closed:
            shutdown.discard(refuse)
            raise
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
