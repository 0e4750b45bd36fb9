"""One restore: it stores the stream of a snapshot in a folder of its own, and renames the folder when it is complete.

Invariants: the stream appears when all of it, its consumers included, is on stable storage. A restore that was
cancelled, or cut off by a crash, leaves only a folder that the next start removes. Existing streams are not touched.
Only messages that a client could have published are stored. `finish` and `remove` may run on another thread; meanwhile
only `stop` may be called.
"""

import contextlib
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from strandline.broker.api import codes
from strandline.broker.api.advisories import new_id
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.json_text import read_json
from strandline.broker.api.schema import SEQUENCE_MAX
from strandline.broker.consumers.restore import RestoredConsumer, check_restored, write_restored
from strandline.broker.consumers.state import SavedPosition
from strandline.broker.snapshots.archive import CONSUMER_PREFIX, STATE_NAME, Archived, ArchiveReader, BadArchive
from strandline.broker.snapshots.archived_consumer import parse_saved
from strandline.broker.snapshots.s2 import S2Reader
from strandline.broker.streams.admission import HEADERS_MAX
from strandline.broker.streams.files import remove_leftovers, remove_stream, stream_exists
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.stream import Stream
from strandline.errors import Closed, StrandlineError
from strandline.files import storage_errors
from strandline.journal import WRITTEN
from strandline.wire import WireLimits

_SUBJECT = re.compile(rb"[^ \t\r\n.]+(?:\.[^ \t\r\n.]+)*")
RESTORING_FOLDER = "restoring"
CONSUMER_NAME_LENGTH = 8
"""Of a consumer that comes without a name."""
CONSUMER_BYTES, CONSUMER_FACTOR = 1024, 8
"""Memory of a consumer: a constant, and a multiple of its size in the archive."""


class SavedConsumer(NamedTuple):
    """A consumer as it comes with its stream."""

    name: str
    config: ConsumerConfig
    where: SavedPosition


def forget_unfinished(streams: StreamService) -> None:
    """Remove the folders of restores that a crash cut off."""
    if streams.folder is not None:
        shutil.rmtree(streams.folder.parent / RESTORING_FOLDER, ignore_errors=True)


def _named(config: ConsumerConfig, name: str) -> ConsumerConfig:
    """Return a consumer's configuration with its name: its own, that of its entry, or a new one."""
    if config.durable_name:
        return config if config.name else replace(config, name=config.durable_name)
    if config.name and name and config.name != name:
        raise codes.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH.error()
    return replace(config, name=config.name or name or new_id(CONSUMER_NAME_LENGTH))


class Restore:
    """One restore under way."""

    def __init__(
        self, config: StreamConfig, streams: StreamService, identity: str, now_ns: int, limits: WireLimits
    ) -> None:
        self.config = config
        self.start_ns = self.heard_ns = now_ns
        self.byte_count = 0
        self.consumers: list[SavedConsumer] = []
        self.restored: dict[str, RestoredConsumer] = {}
        """The consumers as they come back, after `finish`."""
        self.is_placed = False
        """Whether the stream is in its place, and this still answers for it."""
        self._streams = streams
        self._limits = limits
        self._packed = S2Reader()
        self._archive = ArchiveReader(limits.payload_bytes_max + limits.line_bytes_max)
        self._consumer_bytes = 0
        self._abandoned = False
        self._is_stopped = False
        self._last_seq = 0
        self._folder: Path | None = None
        if streams.folder is not None and config.storage is Storage.FILE:
            self._folder = streams.folder.parent / RESTORING_FOLDER / identity
        self._stream = Stream.create(
            self._folder,
            config,
            disk=streams.disk,
            clock=streams.clock,
            durability=WRITTEN,
            executor=streams.executor,
            start_ns=0,
        )

    @property
    def stream(self) -> Stream:
        """The stream so far; after `finish`, in its final folder."""
        return self._stream

    @property
    def stored_bytes(self) -> int:
        """Bytes of the stream so far, as its account counts them."""
        return 0 if self._abandoned else self._stream.byte_count

    @property
    def held_bytes(self) -> int:
        """Approximate memory beside the stream."""
        return self._packed.held_bytes + self._archive.held_bytes + self._consumer_bytes

    def feed(self, data: bytes) -> Iterator[None]:
        """Take a further piece, a step at a time: few bytes may hold many messages."""
        self.byte_count += len(data)
        for piece in self._packed.feed(data):
            for entries in self._archive.feed(piece):
                yield from self._take(entries)
            yield

    def _take(self, entries: Iterable[Archived]) -> Iterator[None]:
        rows = []
        for entry in entries:
            if entry.sequence:
                rows.append(entry)
            else:
                self._learn(entry)
                yield
        if not rows:
            return
        check_messages(rows, self._limits)
        subjects, times, sequences, headers, payloads = map(list, zip(*rows, strict=True))
        numbers = np.array(sequences, np.uint64)
        if sequences[0] <= self._stream.last_seq or not (numbers[1:] > numbers[:-1]).all():
            raise BadArchive("messages are out of order", hint="take the snapshot again")
        self._stream.store(numbers, np.array(times, np.int64), subjects, headers, payloads)
        yield

    def _learn(self, entry: Archived) -> None:
        if entry.name == STATE_NAME:
            try:
                self._last_seq = int(read_json(entry.payload)["last_seq"])
            except (ApiError, KeyError, TypeError, ValueError, OverflowError) as error:
                raise BadArchive(f"the state cannot be read: {error}") from error
            if not 0 <= self._last_seq <= SEQUENCE_MAX:
                raise BadArchive("the state has an invalid sequence")
        elif entry.name.startswith(CONSUMER_PREFIX):
            name = entry.name.removeprefix(CONSUMER_PREFIX).decode(errors="replace")
            self._consumer_bytes += CONSUMER_BYTES + CONSUMER_FACTOR * len(entry.payload)
            self.consumers.append(SavedConsumer(name, *parse_saved(entry.payload)))
        else:
            found = entry.name.decode(errors="replace")
            raise codes.STREAM_RESTORE.with_text(err=f'expected consumer, found "{found}"')

    def check_whole(self) -> None:
        """Refuse an incomplete archive."""
        self._packed.close()
        self._archive.close()

    def finish(self) -> None:
        """Make everything durable, and put it in its place, unless it is stopped before; it may take a while."""
        if self._last_seq > self._stream.last_seq:
            self._stream.skip(self._last_seq)
        self._check_consumers()
        streams, aside = self._streams, self._folder
        if aside is None or streams.folder is None:
            return
        self._stream.close()
        for found in self.restored.values():
            self._refuse_if_stopped()
            if found.is_kept:
                write_restored(streams.disk, streams.clock, aside, found)
        self._refuse_if_stopped()
        self._place(aside, streams.folder)

    def _check_consumers(self) -> None:
        limits, now_ns = self._streams.limits, self._streams.clock.now_ns()
        for name, config, where in self.consumers:
            self._refuse_if_stopped()
            try:
                found = check_restored(_named(config, name), where, self.config, limits, self.restored, now_ns)
            except ApiError as error:
                problem = f'failed to add consumer "{name}": {error.description} ({error.err_code})'
                raise codes.STREAM_RESTORE.with_text(err=problem) from error
            self.restored[found.name] = found

    def _place(self, aside: Path, home: Path) -> None:
        streams, place = self._streams, home / self.config.name
        with storage_errors(place):
            remove_leftovers(streams.disk, place)
            if stream_exists(streams.disk, place):
                raise codes.STREAM_NAME_EXIST_RESTORE_FAILED.error()
            streams.disk.rename(aside, place)
            self._folder, self.is_placed = place, True
            streams.disk.sync_folder(home)
        self._stream = Stream.open(
            place,
            disk=streams.disk,
            clock=streams.clock,
            durability=streams.durability,
            executor=streams.executor,
        )

    def stop(self) -> None:
        """Let `finish` fail, if the stream is not in its place yet."""
        self._is_stopped = True

    def _refuse_if_stopped(self) -> None:
        if self._is_stopped:
            raise Closed("a restore")

    def hand_over(self) -> Stream:
        """Return the stream, which the caller owns from now on."""
        self._folder, self.is_placed = None, False
        return self._stream

    def close(self) -> None:
        """Let go of a stream that is in its place, and stays there."""
        with contextlib.suppress(OSError, StrandlineError):
            self._stream.close()

    def forget(self) -> None:
        """Release the memory of the restore; its files stay."""
        self._abandoned = True
        self._packed, self._archive = S2Reader(), ArchiveReader(0)
        self._consumer_bytes = 0
        self.consumers = []
        self.restored = {}

    def remove(self) -> None:
        """Remove everything so far from the disk; doing so twice is harmless."""
        with contextlib.suppress(OSError, StrandlineError):
            self._stream.close(keep_index=False)
        if self._folder is not None and self.is_placed:
            with contextlib.suppress(OSError, StrandlineError):
                remove_stream(self._streams.disk, self._folder)
        elif self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def abandon(self) -> None:
        """Let go of everything so far."""
        self.forget()
        self.remove()


def check_messages(messages: Iterable[Archived], limits: WireLimits) -> None:
    """Refuse messages that no client could have published.

    A subject must not end the line that it is written into, and sequences and times must leave room for more. All that
    a client may publish is accepted: otherwise one odd message would make a whole backup worthless.
    """
    subjects = set()
    for name, time_ns, sequence, headers, payload in messages:
        subjects.add(name)
        if not (sequence <= SEQUENCE_MAX and 0 <= time_ns <= SEQUENCE_MAX):
            raise BadArchive("a message has an invalid sequence or time")
        if len(headers) > HEADERS_MAX:
            raise BadArchive(f"message {sequence} has too many headers")
        if len(headers) + len(payload) > limits.payload_bytes_max:
            raise BadArchive(f"message {sequence} is too large", hint="raise max_payload")
    for subject in subjects:
        if len(subject) > limits.line_bytes_max:
            raise BadArchive("a subject is too long", hint="raise max_control_line")
        if not _SUBJECT.fullmatch(subject):
            raise BadArchive("a message has an invalid subject")
