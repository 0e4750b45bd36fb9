"""Consumers as those who read streams: what they do when one is made, changed, purged or removed.

Invariants: consumers go before their stream, and their files after it; whatever is left of a stream's consumers when
another stream of that name is made is nobody's, and is gone for good before there is that stream.
"""

from typing import TYPE_CHECKING

from strandline.broker.api import codes
from strandline.broker.api.advisories import Advisory, StreamAction
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.consumer_checks import violates_limits
from strandline.broker.consumers.files import ConsumerFiles
from strandline.broker.consumers.interest import follow_interest
from strandline.broker.streams.storage import is_passed
from strandline.broker.streams.stream import Stream

if TYPE_CHECKING:
    from strandline.broker.consumers.registry import Registry


class Following:
    """Tells the consumers of an account what becomes of its streams."""

    def __init__(self, registry: "Registry") -> None:
        self._registry = registry

    def creating(self, name: str) -> None:
        """Remove what the consumers of another stream of that name have left."""
        self._clear(name)

    def created(self, stream: Stream) -> None:
        """Learn of a new stream; one that was restored has its consumers already."""
        if stream.config.name not in self._registry.arriving:
            self._registry.begin(stream)
            follow_interest(stream, ())
        self._registry.tell(StreamAction(stream.config.name, "create"))

    def check_update(self, stream: Stream, config: StreamConfig) -> None:
        """Refuse limits that consumers of the stream exceed already."""
        entries = self._registry.entries.get(stream.config.name, {})
        violating = [name for name, entry in entries.items() if violates_limits(entry.config, config)]
        if violating:
            raise codes.STREAM_UPDATE.with_text(err=f"change to limits violates consumers: {', '.join(violating)}")

    def updated(self, stream: Stream, old: StreamConfig) -> None:
        """Learn of a changed configuration; with another retention some messages may go at once."""
        registry = self._registry
        if stream.config.retention is not old.retention:
            for consumer in registry.of(stream.config.name):
                registry.follow(stream, consumer)
            registry.settle(stream)
        self._tell_when_durable(stream, StreamAction(stream.config.name, "modify"))

    def _tell_when_durable(self, stream: Stream, advisory: Advisory) -> None:
        ticket, registry = stream.barrier(), self._registry
        if is_passed(ticket):
            registry.tell(advisory)
            return
        ticket.add_done_callback(
            lambda done: registry.post(lambda: registry.tell(advisory)) if done.exception() is None else None
        )

    def purged(self, name: str) -> None:
        """Let consumers go on where the stream begins now."""
        for consumer in self._registry.of(name):
            consumer.note_purged()

    def deleting(self, name: str) -> None:
        """Let go of the consumers of a stream that is going."""
        registry = self._registry
        for entry in registry.entries.pop(name, {}).values():
            registry.end(name, entry)
        registry.loading.offline.forget(name)

    def deleted(self, name: str) -> None:
        """Remove what consumers of a stream kept."""
        self._clear(name)
        self._registry.tell(StreamAction(name, "delete"))

    def _clear(self, name: str) -> None:
        streams = self._registry.streams
        if streams.folder is not None:
            ConsumerFiles(streams.disk, streams.folder / name).remove_all()
