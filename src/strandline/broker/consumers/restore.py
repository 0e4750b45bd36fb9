"""Consumers that come back with a stream: checked and written while nobody knows of them, opened when it is in place.

Invariants: what `write_restored` leaves is what a server that starts finds. From `bring_in` to `settle_in` the stream
is not there for anybody else, takes whatever comes, and lets nothing go that one of them may want.
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
from strandline.broker.consumers.files import NAME_BYTES_MAX, ConsumerFiles, Kept
from strandline.broker.consumers.filter_history import cut, turned
from strandline.broker.consumers.loader import SHUTDOWN
from strandline.broker.consumers.registry import Registry
from strandline.broker.consumers.state import Saved, memory_state, open_state
from strandline.broker.streams.stream import Stream
from strandline.clock import Clock
from strandline.errors import StrandlineError
from strandline.files import Disk
from strandline.gather import InlineExecutor


class Restored(NamedTuple):
    """A consumer that comes back: what is kept of it, and where it was."""

    kept: Kept
    where: Saved

    @property
    def name(self) -> str:
        """What it is called."""
        return self.kept.config.name

    @property
    def is_kept(self) -> bool:
        """Whether it is written where its stream is."""
        return not (self.kept.config.mem_storage or self.kept.config.direct)


def check_restored(
    config: ConsumerConfig,
    where: Saved,
    stream: StreamConfig,
    limits: AccountLimits,
    others: Mapping[str, Restored],
    now_ns: int,
) -> Restored:
    """Return a consumer that goes on where another one was; raise `ApiError` if it cannot be beside the others."""
    config = check_consumer(config, stream, limits)
    if config.name in others:
        raise codes.CONSUMER_ALREADY_EXISTS.error()
    if len(config.name.encode()) > NAME_BYTES_MAX:
        raise codes.CONSUMER_CREATE.with_text(err="error creating store for consumer")
    if not config.is_durable and config.inactive_threshold <= 0:
        config = replace(config, inactive_threshold=INACTIVE_DEFAULT)
    is_queue = stream.retention is Retention.WORK_QUEUE
    if is_queue:
        check_unique(config, {name: other.kept.config for name, other in others.items()})
    # What it had in a work queue is gone from there, or another's.
    history = turned((), where.delivered[1], None) if is_queue else ()
    return Restored(Kept(now_ns, config.with_level(), history), where)


def write_restored(disk: Disk, clock: Clock, stream_folder: Path, found: Restored) -> None:
    """Write a consumer, durably, where its stream is."""
    files = ConsumerFiles(disk, stream_folder)
    place = files.prepare(found.name)
    state = open_state(disk, place, clock=clock, executor=InlineExecutor(), post=_call)
    try:
        state.adopt(found.where)
    finally:
        state.close()
    files.write(found.name, found.kept)


def _call(done: Callable[[], None]) -> None:
    done()


def bring_in(registry: Registry, stream: Stream, found: Iterable[Restored]) -> Iterator[None]:
    """Have the consumers of a stream that is in its place, and not yet there for others; one with each step."""
    name, files = stream.config.name, registry.files_of(stream)
    registry.arriving.add(name)
    registry.begin(stream)
    count = 0
    for each in found:
        if files is not None and each.is_kept:
            registry.loading.revive(stream, files.place(each.name), each.kept)
        else:
            _add_to_memory(registry, stream, each)
        count += 1
        yield
    if len(registry.entries[name]) < count:
        raise codes.CONSUMER_CREATE.with_text(err="a consumer has failed")


def _add_to_memory(registry: Registry, stream: Stream, found: Restored) -> None:
    state, kept = memory_state(), found.kept
    state.adopt(found.where)
    entry = registry.add(stream, kept.config, kept.created_ns, state, kept.created_ns, is_kept=False, name=found.name)
    entry.consumer.history = cut(kept.history, state.delivered_stream, stream.first_seq)


def settle_in(registry: Registry, stream: Stream) -> None:
    """Let consumers that were brought in, all of them, decide what is stored and what stays."""
    registry.arriving.discard(stream.config.name)
    if registry.entries[stream.config.name]:
        registry.settle(stream)
    else:
        registry.follow_all(stream)


def turn_away(registry: Registry, stream_name: str) -> None:
    """Have the consumers of a stream no more that were brought in, as far as they were."""
    if stream_name not in registry.arriving:
        return
    registry.arriving.discard(stream_name)
    for entry in list(registry.entries.get(stream_name, {}).values()):
        registry.drop(entry, SHUTDOWN)
        with contextlib.suppress(StrandlineError):  # it goes, or is as it was written
            entry.state.close()
    registry.entries.pop(stream_name, None)
    registry.loading.offline.forget(stream_name)


def tell_restored(registry: Registry, stream_name: str, found: Iterable[Restored]) -> Iterator[None]:
    """Say that there are consumers, one with each step."""
    for each in found:
        config = each.kept.config
        if not config.direct:
            registry.tell(ConsumerAction(stream_name, each.name, "create"))
        if config.paused_until_ns() > each.kept.created_ns:
            registry.tell(Paused(stream_name, each.name, paused=True, pause_until=config.paused_until_ns()))
        yield
