"""The public journal: open, append, read, retain, close.

Invariants: at most one `Journal` has a folder open, in all processes; what `append` returned is as durable as it was
asked to be; opening either yields a journal with contiguous offsets or raises and changes nothing.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from strandline.clock import Clock, SystemClock
from strandline.errors import Closed, CommitFailed, InvalidInput
from strandline.events import Events
from strandline.files import Disk, OsDisk, storage_errors, storage_hint
from strandline.gather import Gather
from strandline.journal.appends import Append, Appended
from strandline.journal.async_iteration import in_a_thread
from strandline.journal.batch import Batch, Record
from strandline.journal.columns import Columns, Timestamps, Values, columns_of
from strandline.journal.config import SYNCED, Durability, JournalConfig, KiB, MiB, check_durability
from strandline.journal.folder import lock_folder, recover
from strandline.journal.lost_offsets import note_lost, read_lost_file
from strandline.journal.quarantine import has_quarantine
from strandline.journal.reader import Reader
from strandline.journal.segment import SEGMENT_HEADER_BYTES
from strandline.journal.writer import Writer

T = TypeVar("T")

GATHER_BYTES_MAX = 8 * MiB
SHORT_BYTES_MAX = 4 * KiB
"""A single value up to this size is copied into its batch; a longer one is written from where it is."""


class Journal:
    """A segmented append log in one folder: what was acknowledged survives a crash. Safe to use from many threads."""

    def __init__(
        self, disk: Disk, folder: Path, config: JournalConfig, writer: Writer, reader: Reader, executor: Executor
    ) -> None:
        """Use `Journal.open`."""
        self._disk = disk
        self._folder = folder
        self._config = config
        self._writer = writer
        self._reader = reader
        self._gather: Gather[Append] = Gather(
            writer.commit,
            executor,
            queue_bytes_max=config.queue_bytes_max,
            batch_bytes_max=min(GATHER_BYTES_MAX, config.segment_bytes_max - SEGMENT_HEADER_BYTES),
            idle=writer.publish_when_idle,
        )
        self._short_bytes_max = min(SHORT_BYTES_MAX, config.record_bytes_max, config.append_bytes_max)
        self._held = ExitStack()
        self._closing = threading.Lock()
        self._is_closed = False
        self._is_retired = False
        self._has_let_go = False

    def __repr__(self) -> str:
        """Say where it is, which offsets it holds, and how far they are durable."""
        view = self._writer.view()
        end = ", closed" if self._is_closed else f", durable={view.durable_offset}"
        return f"Journal({str(self._folder)!r}, [{view.first_offset}, {view.written_offset}){end})"

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: JournalConfig | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        events: Events | None = None,
    ) -> Self:
        """Open a journal for writing and reading, creating it where there is none, recovering it where it crashed.

        Raises `Locked` where another writer has it, `Damaged` where durable bytes are gone (nothing is changed then),
        `FormatError` where the folder is something else, and `StorageRefused` where the file system says no.
        """
        folder = Path(path)
        disk = disk or OsDisk()
        with ExitStack() as held:
            with storage_errors(folder):
                held.callback(lock_folder(disk, folder).release)
            if executor is None:
                executor = held.enter_context(ThreadPoolExecutor(1, "strandline-journal"))
            journal = cls.open_unlocked(folder, config, disk, clock or SystemClock(), executor, events or Events())
            journal._held = held.pop_all()  # noqa: SLF001 - its own class
            return journal

    @classmethod
    def open_unlocked(
        cls,
        folder: Path,
        config: JournalConfig | None,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        events: Events,
    ) -> Self:
        """Open a journal in a folder whose lock the caller holds, as `JournalSet` does."""
        config = config or JournalConfig()
        with storage_errors(folder):
            found = recover(disk, folder, events)
            writer = Writer(
                disk,
                folder,
                config,
                clock,
                executor,
                events,
                identity=found.identity or os.urandom(16),
                segments=found.segments,
                next_offset=found.next_offset,
            )
        return cls(disk, folder, config, writer, Reader(disk, folder, writer), executor)

    # Appending.

    def append(
        self,
        values: Values,
        *,
        keys: Values | None = None,
        headers: Values | None = None,
        timestamps: Timestamps | None = None,
        durability: Durability = SYNCED,
    ) -> Appended:
        """Append records, all or none of them, and return when they are as durable as asked.

        Columns are sequences of bytes, or Arrow binary arrays, of equal length; timestamps are nanoseconds.
        """
        if keys is None and headers is None and timestamps is None and type(values) is list and len(values) == 1:
            value = values[0]
            if type(value) is bytes and len(value) <= self._short_bytes_max and self._gather.lead():
                return self._append_alone(self._writer.commit_value, value, durability)
        columns = self._columns(values, keys, headers, timestamps, durability)
        if not columns.count:
            return self._nothing()
        if self._gather.lead():
            return self._append_alone(self._writer.commit_columns, columns, durability)
        append = Append(columns, durability)
        self._gather.run(append)
        return append.wait()

    def _append_alone(self, commit: Callable[[T, Durability], Appended], what: T, durability: Durability) -> Appended:
        """Commit while no other caller is here: without a queue, or a request to wait for."""
        try:
            self._refuse_if_unusable()
            check_durability("durability", durability)
            return commit(what, durability)
        finally:
            self._gather.follow()

    def append_soon(
        self,
        values: Values,
        *,
        keys: Values | None = None,
        headers: Values | None = None,
        timestamps: Timestamps | None = None,
        durability: Durability = SYNCED,
    ) -> "Future[Appended]":
        """Queue records and return a future; blocks only while the queue is full."""
        append = self._prepare(values, keys, headers, timestamps, durability)
        if append is None:
            nothing: Future[Appended] = Future()
            nothing.set_result(self._nothing())
            return nothing
        future = append.future()
        self._gather.soon(append)
        return future

    async def append_async(
        self,
        values: Values,
        *,
        keys: Values | None = None,
        headers: Values | None = None,
        timestamps: Timestamps | None = None,
        durability: Durability = SYNCED,
    ) -> Appended:
        """Append as `append` does, without blocking the event loop."""
        append = self._prepare(values, keys, headers, timestamps, durability)
        if append is None:
            return self._nothing()
        future = append.future()
        if not self._gather.try_soon(append):
            await asyncio.get_running_loop().run_in_executor(None, self._gather.soon, append)
        return await asyncio.wrap_future(future)

    def sync(self) -> int:
        """Make everything that was appended durable, and return the durable offset (exclusive)."""
        self._refuse_if_unusable()
        with self._commit_errors():
            self._writer.sync()
        return self.durable_offset

    def _prepare(
        self,
        values: Values,
        keys: Values | None,
        headers: Values | None,
        timestamps: Timestamps | None,
        durability: Durability,
    ) -> Append | None:
        columns = self._columns(values, keys, headers, timestamps, durability)
        return Append(columns, durability) if columns.count else None

    def _columns(
        self,
        values: Values,
        keys: Values | None,
        headers: Values | None,
        timestamps: Timestamps | None,
        durability: Durability,
    ) -> Columns:
        self._refuse_if_unusable()
        check_durability("durability", durability)
        return columns_of(values, keys, headers, timestamps, self._config)

    def _nothing(self) -> Appended:
        return Appended(self.next_offset, 0)

    def _refuse_if_unusable(self) -> None:
        self._refuse_if_closed()
        refusal = self._writer.refusal()
        if refusal is not None:
            raise refusal

    @contextmanager
    def _commit_errors(self) -> Iterator[None]:
        """Turn an `OSError` of the body into poison and `CommitFailed`: some of it may have happened."""
        try:
            yield
        except OSError as error:
            self._writer.fail(error)
            raise CommitFailed(str(self._folder), str(error), hint=storage_hint(error)) from error

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise Closed(str(self._folder))

    # Reading.

    def fetch(self, offset: int, *, visibility: Durability = SYNCED) -> Record:
        """Return one record; raises `OffsetBelowRetained`, `OffsetBeyondEnd` or `OffsetsLost` where there is none."""
        self._refuse_if_closed()
        return self._reader.fetch(offset, visibility)

    def scan(
        self,
        start: int,
        *,
        stop: int | None = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
        visibility: Durability = SYNCED,
    ) -> Iterator[Batch]:
        """Return an iterator of batches from `start` to `stop` (exclusive), or to what is readable now.

        At most `max_records` records, and at most `max_bytes` bytes of payload though at least one record.
        """
        self._refuse_if_closed()
        return self._reader.scan(start, stop=stop, max_records=max_records, max_bytes=max_bytes, visibility=visibility)

    def follow(self, start: int, *, timeout_s: float | None = None, visibility: Durability = SYNCED) -> Iterator[Batch]:
        """Return an iterator of batches from `start` that waits for more.

        It ends when nothing came for `timeout_s` seconds, or when the journal is closed.
        """
        self._refuse_if_closed()
        return self._reader.follow(start, timeout_s=timeout_s, visibility=visibility)

    def scan_async(
        self,
        start: int,
        *,
        stop: int | None = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
        visibility: Durability = SYNCED,
    ) -> AsyncIterator[Batch]:
        """Return what `scan` returns, for `async for`: it reads in a thread of its own."""
        return in_a_thread(
            self.scan(start, stop=stop, max_records=max_records, max_bytes=max_bytes, visibility=visibility)
        )

    def follow_async(
        self, start: int, *, timeout_s: float | None = None, visibility: Durability = SYNCED
    ) -> AsyncIterator[Batch]:
        """Return what `follow` returns, for `async for`: it reads and waits in a thread of its own."""
        self._refuse_if_closed()
        return self._reader.follow_async(
            start, timeout_s=timeout_s, visibility=visibility, has_ended=lambda: self._is_closed or self._is_retired
        )

    def lost(self) -> list[Batch]:
        """Return the batches that stand for offsets which damage took, in order: a reader of these gets `OffsetsLost`.

        Quick where no repair was ever needed. Where one of an earlier version left no note everything is read, once.
        """
        self._refuse_if_closed()
        with storage_errors(self._folder):
            known = read_lost_file(self._disk, self._folder, self.identity)
            if known is None and not has_quarantine(self._disk, self._folder):
                return []
            ranges = [(self.first_offset, self.next_offset)] if known is None else known
            found = [batch for first, end in ranges for batch in self._reader.lost_in(first, end)]
            if known is None:
                places = [(batch.base_offset, batch.next_offset) for batch in found]
                note_lost(self._disk, self._folder, self.identity, places)
        return found

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder

    @property
    def is_closed(self) -> bool:
        """Whether it was closed and has let go of its files, so that it can be opened again."""
        return self._has_let_go

    @property
    def identity(self) -> bytes:
        """Sixteen bytes that no other journal has; offsets mean something only together with them."""
        return self._writer.identity

    @property
    def first_offset(self) -> int:
        """The lowest offset that can be read."""
        return self._writer.view().first_offset

    @property
    def next_offset(self) -> int:
        """The offset that the next record will have."""
        return self._writer.view().written_offset

    @property
    def durable_offset(self) -> int:
        """Everything below this is on stable storage."""
        return self._writer.view().durable_offset

    @property
    def stored_bytes(self) -> int:
        """How many bytes its segments take, up to the last record."""
        return sum(segment.bytes for segment in self._writer.view().segments)

    # Retention and the end.

    @property
    def oldest_segment_end(self) -> int | None:
        """The offset after the oldest segment, which `remove_below` could remove; None while there is only one."""
        segments = self._writer.view().segments
        return segments[1].base_offset if len(segments) > 1 else None

    def remove_below(self, offset: int) -> int:
        """Remove whole sealed segments whose records are all below `offset`, atomically; return how many went."""
        self._refuse_if_unusable()
        if offset < 0:
            raise InvalidInput(f"offsets begin at 0; {offset} is not one")
        with self._commit_errors():
            count = self._writer.remove_below(offset)
        self._reader.forget_removed()
        return count

    def remove_old(self) -> int:
        """Apply the configured retention by bytes and age now; it also runs whenever a segment is sealed."""
        self._refuse_if_unusable()
        with self._commit_errors():
            count = self._writer.remove_old()
        self._reader.forget_removed()
        return count

    def retire(self) -> None:
        """Release the folder as `close` does, so that it can be opened anew; what was readable stays so until then.

        For a journal that has failed: who opens it anew changes nothing that is durable, unless it removes segments.
        """
        with self._closing:
            if not self._is_closed:
                self._stop_writing()

    def _stop_writing(self) -> None:
        if self._is_retired:
            return
        self._is_retired = True
        try:
            self._gather.drain()
            with self._commit_errors():
                self._writer.close()
        finally:
            self._held.close()

    def close(self) -> None:
        """Finish what is queued, make it durable, and release the folder. Closing twice is harmless."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._stop_writing()
            finally:
                self._reader.close()
                self._has_let_go = True

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
