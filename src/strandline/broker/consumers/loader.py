"""Loads consumers from their files: at the start of the server, and after a failure.

Invariants: a failed consumer continues from its last written state, so confirmed acknowledgements hold; other consumers
are not affected, and no message that an offline consumer may want is removed. `OfflineConsumers` schedules retries.
"""

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.broker.api.error_text import for_log
from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.files import ConsumerFiles, ConsumerRecord
from strandline.broker.consumers.filter_history import truncate_history
from strandline.broker.consumers.offline import OfflineConsumers
from strandline.broker.streams.stream import Stream
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.broker.consumers.registry import Registry

logger = logging.getLogger("strandline.broker")
DELETED, SHUTDOWN = "Consumer Deleted", "Server Shutdown"
_ADVICE = "restore its folder from a backup and restart the server, or delete and recreate the consumer"


class ConsumerLoader:
    """Loads the consumers of an account."""

    def __init__(self, registry: "Registry") -> None:
        self._registry = registry
        self.offline = OfflineConsumers()

    def open_all(self) -> None:
        """Open the consumers of every stream that is open."""
        for name, stream in self._registry.streams.streams.items():
            self._registry.begin(stream)
            try:
                self._open(stream)
            except StrandlineError as error:
                self.note(name, "", error)

    def _open(self, stream: Stream) -> None:
        registry = self._registry
        files = registry.files_of(stream)
        if files is None:
            return
        for name, kept in files.read_all().items():
            self._load(stream, files, name, kept)
        if registry.entries[stream.config.name]:
            registry.settle(stream)
        else:
            registry.follow_all(stream)

    def _load(self, stream: Stream, files: ConsumerFiles, name: str, kept: ConsumerRecord | StrandlineError) -> bool:
        """Open a consumer, or record why it is offline; return whether it is open."""
        try:
            self.open_one(stream, files.folder_of(name), kept)
        except Exception as error:  # noqa: BLE001 - it concerns this consumer alone
            self.note(stream.config.name, name, error)
            return False
        self.offline.end((stream.config.name, name))
        return True

    def open_one(self, stream: Stream, place: Path, kept: ConsumerRecord | StrandlineError) -> None:
        """Open a consumer; raise the error if it cannot be opened."""
        if isinstance(kept, StrandlineError):
            raise kept
        registry, now_ns = self._registry, self._registry.streams.clock.now_ns()
        with contextlib.ExitStack() as undo:
            state = registry.open_state(place)
            undo.callback(state.abandon)
            state.begins = kept.begins
            entry = registry.add(stream, kept.config, kept.created_ns, state, now_ns, is_kept=True, name=place.name)
            undo.callback(registry.drop, entry, SHUTDOWN)
            history = entry.consumer.history = truncate_history(kept.history, state.delivered_stream, stream.first_seq)
            if history != kept.history or state.begins != kept.begins:
                registry.keep(stream, entry, kept.config, history)
            undo.pop_all()

    # Failures.

    def lose(self, consumer: Consumer, error: Exception) -> None:
        """Drop a consumer that failed in a turn, and load it again; one in memory is lost."""
        registry, stream = self._registry, consumer.stream
        entry = registry.entries.get(stream.config.name, {}).get(consumer.name)
        if entry is None or entry.consumer is not consumer:
            return
        registry.drop(entry, SHUTDOWN if entry.is_kept else DELETED)
        with contextlib.suppress(StrandlineError):  # the storage error is logged already
            entry.state.abandon()
        if entry.is_kept:
            self.note(stream.config.name, consumer.name, error)
            self.tick(registry.streams.clock.now_ns())
        else:
            _log(stream.config.name, consumer.name, error, "it is in memory and lost")
        self._settle(stream)

    def note(self, stream: str, name: str, error: Exception) -> None:
        """Mark a consumer as offline because of an error."""
        pause_ns = self.offline.note((stream, name), error, self._registry.streams.clock.now_ns())
        again = f"next attempt in {pause_ns / 1e9} s" if pause_ns else "next attempt now"
        _log(stream, name, error, _ADVICE if pause_ns is None else again)

    def tick(self, now_ns: int) -> None:
        """Load consumers whose next attempt is due."""
        for stream_name, name in self.offline.take_due(now_ns):
            stream = self._registry.streams.streams.get(stream_name)
            files = None if stream is None else self._registry.files_of(stream)
            if stream is None or files is None:
                self.offline.forget(stream_name)
            elif (kept := files.read(name)) is None:
                with contextlib.suppress(StrandlineError):  # recorded again by `delete`
                    self._registry.delete(stream_name, name)
            elif self._load(stream, files, name, kept):
                logger.warning("consumer %s of stream %s is online again", name, stream_name)
                self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        with contextlib.suppress(StrandlineError):  # a storage error of the stream, reported to publishers
            self._registry.settle(stream)


def _log(stream: str, name: str, error: Exception, advice: str) -> None:
    trace = None if isinstance(error, StrandlineError) else error
    logger.error("consumer %s of stream %s is offline: %s", name, stream, for_log(error, advice), exc_info=trace)
