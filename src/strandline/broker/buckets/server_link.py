"""The link of embedded buckets to their server, usable from any thread of the process.

Invariants: the server's state is used on its own thread alone; a caller in another loop awaits the result. Nothing is
returned before it is as durable as configured. A call that is pending when the server closes, or made afterwards,
raises `Closed`, whether or not the server's loop still runs. Cancelling a call disturbs no other.
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


class AccountJetStream(Protocol):
    """The part of an account's JetStream that buckets need."""

    clock: Clock
    streams: StreamService
    listeners: Listeners[[]]
    shutdown: ShutdownHooks

    def publish_gathered(self, now_ns: int) -> None:
        """Store the messages that clients have published so far."""

    def stored(self, name: str, published: Published) -> None:
        """Note messages that were stored in a stream."""

    def follow(self, name: str) -> None:
        """Note that a stream was created."""


class ServerLink:
    """One account of a server, and the server's loop."""

    def __init__(self, jetstream: AccountJetStream, loop: asyncio.AbstractEventLoop) -> None:
        self.jetstream = jetstream
        self._loop = loop

    @property
    def is_running(self) -> bool:
        """Whether the server is running."""
        return not self.jetstream.shutdown.is_over and self._loop.is_running()

    async def call(self, work: Callable[[], Result]) -> Result:
        """Run `work` on the server's thread and return its result; `Closed` if the server is closed."""
        shutdown = self.jetstream.shutdown
        if asyncio.get_running_loop() is self._loop:
            shutdown.check()
            return work()
        done: Future[Result] = Future()

        def refuse() -> None:
            if done.set_running_or_notify_cancel():
                done.set_exception(Closed("the server"))

        def run() -> None:
            if not shutdown.discard(refuse) or not done.set_running_or_notify_cancel():
                return  # it was refused or cancelled
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                done.set_exception(error)

        shutdown.add(refuse)
        try:
            self.post(run)
        except Closed:
            shutdown.discard(refuse)
            raise
        return await asyncio.wrap_future(done)

    def post(self, work: Callable[[], None]) -> None:
        """Run `work` on the server's thread, soon."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise Closed("the server") from None


async def durable(ticket: Ticket) -> None:
    """Wait for durability; raise the error if it failed."""
    if ticket.done():
        ticket.result()
    else:
        await asyncio.wrap_future(ticket)
