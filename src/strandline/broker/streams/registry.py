"""The streams of one account: created, changed, found and removed, within the limits of the account.

Invariants: a created stream survives a crash. Its consumers are notified before it changes or is removed, and may
refuse a change. A stream that cannot be opened is reported and not touched.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from strandline.broker.api import codes
from strandline.broker.api.account_limits import AccountUsage, check_account
from strandline.broker.api.checks import check_create
from strandline.broker.api.config import Storage, StreamConfig, StreamSource
from strandline.broker.api.error_text import for_clients, for_log
from strandline.broker.api.origins import Neighbours, StreamSubjects
from strandline.broker.api.requests import InfoRequest
from strandline.broker.api.responses import AccountLimits, ClusterInfo, SourceInfo, StreamInfo
from strandline.broker.streams.files import remove_leftovers, remove_stream, stream_exists
from strandline.broker.streams.shared_limits import SharedLimits
from strandline.broker.streams.storage import Ticket, is_passed
from strandline.broker.streams.stream import Stream
from strandline.clock import Clock, SystemClock
from strandline.errors import Closed, StrandlineError
from strandline.files import Disk, OsDisk
from strandline.journal import SYNCED, Durability

logger = logging.getLogger("strandline.broker")


def _no_consumers(name: str) -> int:
    del name
    return 0


def source_info(source: StreamSource) -> SourceInfo:
    """Return the status of an origin that was never reached."""
    return SourceInfo(
        name=source.name,
        external=source.external,
        filter_subject=source.filter_subject,
        subject_transforms=source.subject_transforms,
    )


def _origins(config: StreamConfig) -> tuple[SourceInfo | None, tuple[SourceInfo, ...]]:
    mirror = None if config.mirror is None else source_info(config.mirror)
    return mirror, tuple(map(source_info, config.sources))


def loss_problem(stream: Stream) -> str:
    """Return the text for people about a stream that has lost messages, and what to do."""
    count, name = len(stream.losses.sequences), stream.config.name
    messages = "1 message" if count == 1 else f"{count:,} messages"
    return f"damage took {messages}; STREAM.INFO names them, a request to $JS.API.STREAM.LOST.ACCEPT.{name} accepts it"


class Followers(Protocol):
    """The consumers of streams, as the registry sees them."""

    def creating(self, name: str) -> None:
        """Remove everything that was kept with another stream of that name."""

    def created(self, stream: Stream) -> None:
        """Learn of a new stream."""

    def check_update(self, stream: Stream, config: StreamConfig) -> None:
        """Refuse, by `ApiError`, a configuration that conflicts with the consumers of the stream."""

    def updated(self, stream: Stream, old: StreamConfig) -> None:
        """Learn of a changed configuration."""

    def purged(self, name: str) -> None:
        """Learn that messages were purged."""

    def deleting(self, name: str) -> None:
        """Release a stream before its removal."""

    def deleted(self, name: str) -> None:
        """Learn that a stream was removed, and remove its consumers."""


@dataclass
class Streams:
    """The streams of one account by name, and the parts that observe them."""

    folder: Path | None = None
    disk: Disk = field(default_factory=OsDisk)
    clock: Clock = field(default_factory=SystemClock)
    durability: Durability = SYNCED
    executor: Executor | None = None
    server_name: str = ""
    domain: str = ""
    consumer_count: Callable[[str], int] = _no_consumers
    origins: Callable[[StreamConfig], tuple[SourceInfo | None, tuple[SourceInfo, ...]]] = _origins
    consumers: "Followers | None" = None
    vacate: Callable[[str], None] = lambda _name: None
    """Called before a stream is removed, so that no other thread uses its files; raises if one still does."""
    on_delete: Callable[[str], None] = lambda _name: None
    streams: dict[str, Stream] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Streams of the folder that could not be opened, and why; they are left alone."""
    coming: dict[str, StreamConfig] = field(default_factory=dict)
    """Streams that are being restored: their names and subjects are reserved."""
    subjects: StreamSubjects = field(default_factory=StreamSubjects)
    limits: AccountLimits = field(default_factory=AccountLimits)
    shared_limits: SharedLimits = field(default_factory=SharedLimits)
    """Limits that this account shares with others."""

    def __post_init__(self) -> None:
        """Be counted among the accounts of the server."""
        self.shared_limits.add(self.used)

    def open_all(self) -> None:
        """Open every stream of the folder; one that cannot be opened is recorded, and the others are opened."""
        if self.folder is None:
            return
        self.disk.make_folder(self.folder)
        for name in self.disk.names(self.folder):
            if not stream_exists(self.disk, self.folder / name):
                with suppress(StrandlineError):  # creating a stream of that name reports it
                    remove_leftovers(self.disk, self.folder / name)
            else:
                try:
                    self.streams[name] = self._open(self.folder / name)
                    self._bound(self.streams[name])
                except StrandlineError as error:
                    self._lose(self.folder / name, error)

    def _open(self, folder: Path) -> Stream:
        stream = Stream.open(
            folder, disk=self.disk, clock=self.clock, durability=self.durability, executor=self.executor
        )
        if len(stream.losses.sequences):
            logger.error("stream %s: %s", folder.name, loss_problem(stream))
        return stream

    def reopen(self, stream: Stream) -> Stream:
        """Open a failed stream again from disk; the failed one can be read until it is closed.

        The registry does not know the new one before `replace`. Any thread may call this while the stream is not
        removed.
        """
        name = stream.config.name
        if self.folder is None:
            raise Closed(f"stream {name}")
        stream.retire()
        return self._open(self.folder / name)

    def replace(self, stream: Stream) -> None:
        """Replace a failed stream by its successor."""
        name = stream.config.name
        old = self.streams[name]
        stream.claims = old.claims
        old.forget_batches()
        self.streams[name] = stream
        self._bound(stream)

    def _lose(self, folder: Path, error: StrandlineError) -> None:
        self.unreadable[folder.name] = str(error)
        advice = (
            "restore its folder from a backup, or move it away to begin without it, and restart the server; "
            f"`strandline journal verify {folder / 'journal'}` tells what is left"
        )
        logger.error("stream %s cannot be opened: %s", folder.name, for_log(error, advice))

    def close(self) -> None:
        """Close every stream."""
        for name, stream in self.streams.items():
            try:
                stream.close()
            except StrandlineError:  # the caller received it; the other streams have to be closed, too
                continue
            except Exception:
                logger.exception("closing stream %s failed", name)

    def barrier(self) -> list[Ticket]:
        """Return the tickets that are not done yet; when they are, everything answered so far is durable.

        Failed streams are left out, as in every response about many streams.
        """
        return [
            ticket
            for stream in self.streams.values()
            if stream.failure is None and not is_passed(ticket := stream.barrier())
        ]

    def find(self, name: str) -> Stream:
        """Return a stream; `ApiError` if there is none of that name."""
        try:
            return self.streams[name]
        except KeyError:
            raise codes.STREAM_NOT_FOUND.error() from None

    @property
    def neighbours(self) -> Neighbours:
        """The configurations of all streams, and of those being restored."""
        configs = {name: stream.config for name, stream in self.streams.items()} | self.coming
        return Neighbours(configs, self.subjects)

    # Streams.

    def create(self, config: StreamConfig, *, pedantic: bool = False) -> Stream:
        """Create a stream, or return the existing one with the same configuration."""
        config = check_create(config, self.neighbours, pedantic=pedantic)
        if config.name in self.coming:
            raise codes.STREAM_NAME_EXIST.error()
        if config.name in self.unreadable:
            raise codes.STREAM_OFFLINE_REASON.with_text(err=for_clients(self.unreadable[config.name]))
        if config.name not in self.streams:
            self.check_room(config)
            folder = self.folder / config.name if self.folder is not None else None
            if self.consumers is not None:
                self.consumers.creating(config.name)
            self.streams[config.name] = Stream.create(
                folder,
                config,
                disk=self.disk,
                clock=self.clock,
                durability=self.durability,
                executor=self.executor,
            )
            self._bound(self.streams[config.name])
            if self.consumers is not None:
                self.consumers.created(self.streams[config.name])
        return self.streams[config.name]

    def attach(self, stream: Stream) -> None:
        """Add a stream that another part of the server created."""
        self.coming.pop(stream.config.name, None)
        self.streams[stream.config.name] = stream
        self._bound(stream)
        if self.consumers is not None:
            self.consumers.created(stream)

    def _bound(self, stream: Stream) -> None:
        """Give a stream its shared limits, and the room of its account, if bounded."""
        stream.share(self.shared_limits)
        storage = stream.config.storage
        limit = self.limits.max_memory if storage is Storage.MEMORY else self.limits.max_storage
        if limit >= 0:
            stream.set_room(lambda: limit - self.used().bytes[storage])

    def check_room(self, config: StreamConfig, old: StreamConfig | None = None) -> None:
        """Refuse a stream, new or changed, for which the account or the server has no room."""
        check_account(config, self.limits, self.used(), old)
        self.shared_limits.check(config, old)

    def used(self) -> AccountUsage:
        """Return bytes and reservations of the streams; those being restored count, too, except for their bytes."""
        bytes_used, reserved = {Storage.FILE: 0, Storage.MEMORY: 0}, {Storage.FILE: 0, Storage.MEMORY: 0}
        for stream in self.streams.values():
            bytes_used[stream.config.storage] += stream.byte_count
            reserved[stream.config.storage] += max(0, stream.config.max_bytes)
        for config in self.coming.values():
            reserved[config.storage] += max(0, config.max_bytes)
        return AccountUsage(len(self.streams) + len(self.coming), bytes_used, reserved)

    def delete(self, name: str) -> None:
        """Remove a stream with everything in it."""
        stream = self.find(name)
        self.vacate(name)
        if self.consumers is not None:
            self.consumers.deleting(name)
        del self.streams[name]
        self.on_delete(name)
        with suppress(StrandlineError):  # a disk that fails may be why it is removed
            stream.close(keep_index=False)
        if self.folder is not None and stream.config.storage is Storage.FILE:
            remove_stream(self.disk, self.folder / name)
        if self.consumers is not None:
            self.consumers.deleted(name)

    def update(self, stream: Stream, config: StreamConfig, now_ns: int) -> None:
        """Give a stream a configuration that was checked."""
        self.check_room(config, stream.config)
        if self.consumers is None:
            stream.update(config, now_ns)
            return
        self.consumers.check_update(stream, config)
        old = stream.config
        stream.update(config, now_ns)
        self.consumers.updated(stream, old)

    def info(
        self,
        stream: Stream,
        now_ns: int,
        *,
        request: InfoRequest | None = None,
        leader: bool = False,
        subjects: dict[str, int] | None = None,
    ) -> StreamInfo:
        """Return a stream as it is shown; without a request, as in a list."""
        mirror, sources = self.origins(stream.config)
        return StreamInfo(
            config=stream.config.with_server() if request is not None else stream.config,
            created=stream.created_ns,
            state=stream.state(
                consumers=self.consumer_count(stream.config.name),
                subjects=subjects,
                deleted=request is not None and request.deleted_details,
            ),
            domain=self.domain,
            cluster=ClusterInfo(leader=self.server_name) if leader and self.server_name else None,
            mirror=mirror,
            sources=sources,
            ts=now_ns,
        )
