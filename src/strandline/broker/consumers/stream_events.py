"""The reactions of consumers to streams being created, updated, purged or deleted.

Invariants: consumers close before their stream, and their files are removed after it; leftovers of an earlier stream of
the same name are durably removed before the new stream exists.
"""

from typing import TYPE_CHECKING

from strandline.broker.api import codes
from strandline.broker.api.advisories import Advisory, StreamAction
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.consumer_checks import violates_limits
from strandline.broker.consumers.files import ConsumerFiles
from strandline.broker.consumers.interest import update_interest
from strandline.broker.streams.storage import is_passed
from strandline.broker.streams.stream import Stream

if TYPE_CHECKING:
    from strandline.broker.consumers.registry import Registry


class StreamEvents:
    """Forwards events of streams to the consumers of an account."""

    def __init__(self, registry: "Registry") -> None:
        self._registry = registry

    def creating(self, name: str) -> None:
        """Remove leftover consumer files of an earlier stream of that name."""
        self._clear(name)

    def created(self, stream: Stream) -> None:
        """Register a new stream; a restored one has its consumers already."""
        if stream.config.name not in self._registry.restoring:
            self._registry.begin(stream)
            update_interest(stream, ())
        self._registry.tell(StreamAction(stream.config.name, "create"))

    def check_update(self, stream: Stream, config: StreamConfig) -> None:
        """Refuse limits that existing consumers exceed."""
        entries = self._registry.entries.get(stream.config.name, {})
        violating = [name for name, entry in entries.items() if violates_limits(entry.config, config)]
        if violating:
            raise codes.STREAM_UPDATE.with_text(err=f"change to limits violates consumers: {', '.join(violating)}")

    def updated(self, stream: Stream, old: StreamConfig) -> None:
        """Apply a changed configuration; with another retention policy, messages may be removed at once."""
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
        """Move consumers to the new beginning of the stream."""
        for consumer in self._registry.of(name):
            consumer.note_purged()

    def deleting(self, name: str) -> None:
        """Close the consumers of a stream that is being deleted."""
        registry = self._registry
        for entry in registry.entries.pop(name, {}).values():
            registry.end(name, entry)
        registry.loader.offline.forget(name)

    def deleted(self, name: str) -> None:
        """Remove the consumer files of a deleted stream."""
        self._clear(name)
        self._registry.tell(StreamAction(name, "delete"))

    def _clear(self, name: str) -> None:
        streams = self._registry.streams
        if streams.folder is not None:
            ConsumerFiles(streams.disk, streams.folder / name).remove_all()
