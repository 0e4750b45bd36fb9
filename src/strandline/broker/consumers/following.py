"""Consumers as those who read streams: what they do when one is made, changed, purged or removed, and when they fail.

Invariants: consumers go before their stream, and their files after it; whatever is left of a stream's consumers when
another stream of that name is made is nobody's, and is gone for good before there is that stream.
"""

import contextlib
from collections.abc import Callable

from strandline.broker.api import codes
from strandline.broker.api.advisories import Advisory, StreamAction
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.consumer_checks import violates_limits
from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.files import ConsumerFiles
from strandline.broker.consumers.interest import follow_interest
from strandline.broker.consumers.registry import DELETED, SHUTDOWN, Post, Registry
from strandline.broker.routes import Routes
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.storage import is_passed
from strandline.broker.streams.stream import Stream
from strandline.errors import StrandlineError


class Following(Registry):
    """The consumers of an account, told what becomes of its streams."""

    def __init__(
        self,
        streams: StreamService,
        routes: Routes,
        *,
        tell: Callable[[Advisory], None],
        request_turn: Callable[[Consumer], None],
        post: Post,
    ) -> None:
        super().__init__(streams, routes, tell=tell, request_turn=request_turn, post=post)
        streams.consumers = self
        streams.consumer_count = self.count

    def creating(self, name: str) -> None:
        """Remove what the consumers of another stream of that name have left."""
        self._clear(name)

    def created(self, stream: Stream) -> None:
        """Learn of a new stream."""
        self._begin(stream)
        follow_interest(stream, ())
        self._tell(StreamAction(stream.config.name, "create"))

    def check_update(self, stream: Stream, config: StreamConfig) -> None:
        """Refuse limits that consumers of the stream exceed already."""
        entries = self._entries.get(stream.config.name, {})
        violating = [name for name, entry in entries.items() if violates_limits(entry.config, config)]
        if violating:
            raise codes.STREAM_UPDATE.with_text(err=f"change to limits violates consumers: {', '.join(violating)}")

    def updated(self, stream: Stream, old: StreamConfig) -> None:
        """Learn of a changed configuration; with another retention some messages may go at once."""
        if stream.config.retention is not old.retention:
            for consumer in self.of(stream.config.name):
                self._follow(stream, consumer)
            self._settle(stream)
        self._tell_when_durable(stream, StreamAction(stream.config.name, "modify"))

    def _tell_when_durable(self, stream: Stream, advisory: Advisory) -> None:
        ticket = stream.barrier()
        if is_passed(ticket):
            self._tell(advisory)
            return
        ticket.add_done_callback(
            lambda done: self._post(lambda: self._tell(advisory)) if done.exception() is None else None
        )

    def purged(self, name: str) -> None:
        """Let consumers go on where the stream begins now."""
        for consumer in self.of(name):
            consumer.note_purged()

    def deleting(self, name: str) -> None:
        """Let go of the consumers of a stream that is going."""
        for entry in self._entries.pop(name, {}).values():
            self._end(name, entry)
        self.unreadable = {key: problem for key, problem in self.unreadable.items() if key[0] != name}

    def deleted(self, name: str) -> None:
        """Remove what consumers of a stream kept."""
        self._clear(name)
        self._tell(StreamAction(name, "delete"))

    def _clear(self, name: str) -> None:
        if self.streams.folder is not None:
            ConsumerFiles(self.streams.disk, self.streams.folder / name).remove_all()

    # Consumers that end for a reason of the server.

    def end_pulls(self) -> None:
        """Tell pulls that wait, while their clients are still there, that the server ends."""
        for entries in self._entries.values():
            for entry in entries.values():
                entry.consumer.end_pulls()

    def lose(self, consumer: Consumer, error: Exception) -> None:
        """Let go of a consumer that failed: it is offline, as it was last written; one that is not kept is gone."""
        stream = consumer.stream
        entries = self._entries.get(stream.config.name, {})
        entry = entries.get(consumer.name)
        if entry is None or entry.consumer is not consumer:
            return
        del entries[consumer.name]
        consumer.close(SHUTDOWN if entry.is_kept else DELETED)
        consumer.on_done = None
        self.ended(consumer)
        if entry.is_kept:
            self.unreadable[stream.config.name, consumer.name] = str(error) or type(error).__name__
        with contextlib.suppress(StrandlineError):  # what is wrong with its storage was said already
            entry.state.abandon()
            self._settle(stream)
