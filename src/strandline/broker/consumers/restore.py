"""Consumers of a stream that is restored from a snapshot: checked, written, and opened once the stream is in place.

Invariants: the files of `write_restored` are those that a starting server loads. From `add_restored` to
`settle_restored` the stream is invisible to clients, stores every message, and removes none that a consumer may want.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from strandline.broker.api import codes
from strandline.broker.api.advisories import ConsumerAction, Paused
from strandline.broker.api.config import Retention, StreamConfig
from strandline.broker.api.consumer_checks import INACTIVE_DEFAULT, check_consumer, check_unique
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.responses import AccountLimits
from strandline.broker.consumers.files import NAME_BYTES_MAX, ConsumerFiles, ConsumerRecord
from strandline.broker.consumers.filter_history import extend_history, truncate_history
from strandline.broker.consumers.loader import SHUTDOWN
from strandline.broker.consumers.registry import Registry
from strandline.broker.consumers.state import SavedPosition, memory_state, open_state
from strandline.broker.streams.stream import Stream
from strandline.clock import Clock
from strandline.errors import StrandlineError
from strandline.files import Disk
from strandline.gather import InlineExecutor


class RestoredConsumer(NamedTuple):
    """A restored consumer: its record, and its position."""

    record: ConsumerRecord
    position: SavedPosition

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.record.config.name

    @property
    def is_kept(self) -> bool:
        """Whether it is stored on disk."""
        return not (self.record.config.mem_storage or self.record.config.direct)


def check_restored(
    config: ConsumerConfig,
    position: SavedPosition,
    stream: StreamConfig,
    limits: AccountLimits,
    others: Mapping[str, RestoredConsumer],
    now_ns: int,
) -> RestoredConsumer:
    """Return a checked consumer at a saved position; `ApiError` if it conflicts with the others."""
    config = check_consumer(config, stream, limits)
    if config.name in others:
        raise codes.CONSUMER_ALREADY_EXISTS.error()
    if len(config.name.encode()) > NAME_BYTES_MAX:
        raise codes.CONSUMER_CREATE.with_text(err="error creating store for consumer")
    if not config.is_durable and config.inactive_threshold <= 0:
        config = replace(config, inactive_threshold=INACTIVE_DEFAULT)
    is_queue = stream.retention is Retention.WORK_QUEUE
    if is_queue:
        check_unique(config, {name: other.record.config for name, other in others.items()})
    # Messages it had in a work queue are removed, or belong to another consumer.
    history = extend_history((), position.delivered[1], None) if is_queue else ()
    return RestoredConsumer(ConsumerRecord(now_ns, config.with_level(), history), position)


def write_restored(disk: Disk, clock: Clock, stream_folder: Path, found: RestoredConsumer) -> None:
    """Write a consumer durably into the folder of its stream."""
    files = ConsumerFiles(disk, stream_folder)
    folder = files.prepare(found.name)
    state = open_state(disk, folder, clock=clock, executor=InlineExecutor(), post=_call)
    try:
        state.adopt(found.position)
    finally:
        state.close()
    files.write(found.name, found.record)


def _call(done: Callable[[], None]) -> None:
    done()


def add_restored(registry: Registry, stream: Stream, found: Iterable[RestoredConsumer]) -> Iterator[None]:
    """Register the consumers of a stream that is in place but not visible yet, one with each step."""
    name, files = stream.config.name, registry.files_of(stream)
    registry.restoring.add(name)
    registry.begin(stream)
    count = 0
    for each in found:
        if files is not None and each.is_kept:
            registry.loader.open_one(stream, files.folder_of(each.name), each.record)
        else:
            _add_to_memory(registry, stream, each)
        count += 1
        yield
    if len(registry.entries[name]) < count:
        raise codes.CONSUMER_CREATE.with_text(err="a restored consumer failed")


def _add_to_memory(registry: Registry, stream: Stream, found: RestoredConsumer) -> None:
    state, record = memory_state(), found.record
    state.adopt(found.position)
    entry = registry.add(
        stream, record.config, record.created_ns, state, record.created_ns, is_kept=False, name=found.name
    )
    entry.consumer.history = truncate_history(record.history, state.delivered_stream, stream.first_seq)


def settle_restored(registry: Registry, stream: Stream) -> None:
    """Apply the interest of all restored consumers: what is stored, and what is removed."""
    registry.restoring.discard(stream.config.name)
    if registry.entries[stream.config.name]:
        registry.settle(stream)
    else:
        registry.follow_all(stream)


def drop_restored(registry: Registry, stream_name: str) -> None:
    """Unregister the restored consumers of a stream whose restore failed."""
    if stream_name not in registry.restoring:
        return
    registry.restoring.discard(stream_name)
    for entry in list(registry.entries.get(stream_name, {}).values()):
        registry.drop(entry, SHUTDOWN)
        with contextlib.suppress(StrandlineError):  # its files are removed, or stay as written
            entry.state.close()
    registry.entries.pop(stream_name, None)
    registry.loader.offline.forget(stream_name)


def announce_restored(registry: Registry, stream_name: str, found: Iterable[RestoredConsumer]) -> Iterator[None]:
    """Publish the advisories of restored consumers, one with each step."""
    for each in found:
        config = each.record.config
        if not config.direct:
            registry.tell(ConsumerAction(stream_name, each.name, "create"))
        if config.paused_until_ns() > each.record.created_ns:
            registry.tell(Paused(stream_name, each.name, paused=True, pause_until=config.paused_until_ns()))
        yield
