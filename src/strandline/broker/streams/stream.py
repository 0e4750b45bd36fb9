"""A stream: its state in memory, its messages in the log. The only part of the package that does I/O.

Invariants: an accepted publish is in the log before its ticket is done. The state may be ahead of the disk, but never
differs from the log. After any failure within a change, other than a refusal, the stream accepts nothing more until it
is opened again, and only the result of `salvage` may be shown. One thread at a time uses a stream; tickets are settled
in another.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np

from strandline.broker.api.codes import INSUFFICIENT_RESOURCES
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.requests import PurgeRequest
from strandline.broker.api.schema import to_json
from strandline.broker.listeners import Listeners
from strandline.broker.streams.arrays import Times, Words, in_order
from strandline.broker.streams.checkpoint import StreamCheckpoint
from strandline.broker.streams.copier import Claim, Copied, Copier, OriginBatch
from strandline.broker.streams.delete_markers import mark_gone
from strandline.broker.streams.files import StreamFiles, remove_leftovers
from strandline.broker.streams.message_reader import MessageReader
from strandline.broker.streams.publisher import Publisher
from strandline.broker.streams.records import Config, Gone, Position
from strandline.broker.streams.recovery import recover
from strandline.broker.streams.shared_limits import SharedLimits
from strandline.broker.streams.state import Removed, State
from strandline.broker.streams.storage import JournalLog, MemoryLog, MessageLog, Ticket
from strandline.broker.streams.stream_store import StreamStore
from strandline.broker.streams.stream_view import StreamView
from strandline.broker.streams.subjects import Filter
from strandline.broker.streams.write_batch import Anchor, PublishBatch, Published, WriteBatch
from strandline.clock import Clock, SystemClock
from strandline.errors import Closed, FormatError, InvalidInput, StrandlineError
from strandline.files import Disk, OsDisk
from strandline.journal import SYNCED, Durability

_NO_ROWS: Words = np.zeros(0, np.uint64)


class Stream(StreamView):
    """One open stream, from `create` or `open`."""

    def __init__(
        self,
        state: State,
        log: MessageLog,
        files: StreamFiles | None,
        executor: Executor | None = None,
        refusal: StrandlineError | None = None,
    ) -> None:
        super().__init__(state, MessageReader(state, log, self._refuse_if_unread))
        self._log = log
        self._store = StreamStore(state, log, files, executor, refusal)
        self._publisher = Publisher(state, self._read_place)
        self._copier = Copier(state, self._publisher, self._read_last)
        self._anchor = Anchor()
        self._listeners: Listeners[[Removed]] = Listeners()
        self._shared_limits = SharedLimits()
        self.claims: list[Claim] = []
        self._closed = False
        if state.config.allow_msg_schedules:
            self._publisher.scheduler.recover(self._reader)

    @classmethod
    def create(
        cls,
        folder: Path | None,
        config: StreamConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        durability: Durability = SYNCED,
        executor: Executor | None = None,
        start_ns: int | None = None,
    ) -> "Stream":
        """Create a stream with a checked configuration, which must not exist; without a folder, in memory.

        Its time begins now; for a stream that `store` fills it begins at `start_ns`, and is then that of its messages.
        """
        clock = clock or SystemClock()
        state = State(config, clock.now_ns())
        state.now_ns = state.now_ns if start_ns is None else start_ns
        if folder is None or config.storage is Storage.MEMORY:
            return cls(state, MemoryLog(), None)
        disk = disk or OsDisk()
        files = StreamFiles(disk, folder)
        remove_leftovers(disk, folder)
        files.make_folder()
        log = JournalLog.open(files.journal, disk, clock, durability, executor)
        try:
            place, json = log.next_place, to_json(config)
            files.write_checkpoint(
                StreamCheckpoint(log.identity, place, state.index.last_seq, 0, state.created_ns, json)
            )
            state.configs = [(place, json)]
        except BaseException:
            log.close()
            raise
        return cls(state, log, files, executor)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        durability: Durability = SYNCED,
        executor: Executor | None = None,
    ) -> "Stream":
        """Open the stream in a folder as of its last durable change."""
        disk, clock = disk or OsDisk(), clock or SystemClock()
        files = StreamFiles(disk, folder)
        checkpoint = files.read_checkpoint()
        if checkpoint is None:
            raise FormatError(str(folder), "there is no stream", hint="create one with Stream.create")
        log = JournalLog.open(files.journal, disk, clock, durability, executor)
        try:
            state = recover(files, checkpoint, log, log.next_place)
            if state.losses.is_new:
                files.write_losses(state.losses, log.identity)
            if log.first_place < checkpoint.place:
                files.settle()
                log.remove_below(checkpoint.place)
            stream = cls(state, log, files, executor)
            stream.expire(clock.now_ns())
        except BaseException:
            log.close()
            raise
        return stream

    def salvage(self) -> "Stream":
        """Return the durable part of a failed stream: for reading, never for writing.

        Both have the same log; drop this one without closing it. Any thread may call it, after `last_ticket`.
        """
        log, files, failure = self._log, self._store.files, self.failure
        if failure is None or files is None or not isinstance(log, JournalLog):
            raise InvalidInput(f"stream {self.config.name} has not failed, or is in memory")
        checkpoint = files.read_checkpoint()
        if checkpoint is None:
            raise failure
        return Stream(recover(files, checkpoint, log, log.durable_place), log, files, self._store.executor, failure)

    def probe(self) -> None:
        """Raise `StorageRefused` unless the stream's disk takes something now. Any thread may call it."""
        if self._store.files is not None:
            self._store.files.probe()

    def retire(self) -> None:
        """Leave the files to another that opens them; it can be read until it is closed. After `last_ticket`."""
        self._store.retire()

    # Additions.

    def publish(self, batch: PublishBatch, now_ns: int) -> Published:
        """Take messages in. Their answers may be sent once the ticket is done."""
        with self._store:
            write_batch = self._begin(now_ns)
            sequences, answers = self._publisher.publish(write_batch, batch)
            return self._commit(write_batch, sequences, answers)

    def store(
        self, sequences: Words, times: Times, subjects: list[bytes], headers: list[bytes], payloads: list[bytes]
    ) -> Published:
        """Take messages in under sequences and times of their own, which rise, as a mirror does."""
        with self._store:
            write_batch = self._begin(self._state.now_ns, marks=False)  # which would take the sequences of these
            batch = PublishBatch(subjects, payloads, headers)
            write_batch.add_placed(sequences, times, batch, self._copier.dues(times, headers))
            self._copier.note(write_batch, headers)
            self._publisher.note_schedules(sequences, times, batch)
            return self._commit(write_batch, sequences, {})

    def copy(self, batch: OriginBatch, now_ns: int) -> Copied:
        """Take messages of an origin in, in order, up to the first for which there is no room."""
        with self._store:
            write_batch = self._begin(now_ns)
            if self._shared_limits.room(self.config.storage, 0) < 0:
                return Copied(self._commit(write_batch, _NO_ROWS, {}), 0, INSUFFICIENT_RESOURCES.error())
            count, refusal = self._copier.take(write_batch, batch)
            return Copied(self._commit(write_batch, _NO_ROWS, {}), count, refusal)

    def position(self, name: bytes) -> Position | None:
        """Return the position of a source, None if nothing of it was ever stored."""
        return self._state.origins.get(name)

    def skip(self, last_seq: int) -> Ticket:
        """Use up the sequences up to one, as a mirror does whose origin has no messages there."""
        with self._store:
            write_batch = self._begin(self._state.now_ns)
            if last_seq > self._state.index.last_seq:
                write_batch.anchor()
                write_batch.control(Gone(write_batch.time_ns, last_seq, _NO_ROWS))
                self._state.index.last_seq = last_seq
            return self._commit(write_batch, _NO_ROWS, {}).ticket

    def set_interest(self, filters: tuple[Filter, ...] | None) -> None:
        """Set the interest of consumers; a stream with interest retention stores nothing else. None: everything."""
        self._publisher.set_interest(filters)

    def set_room(self, room: Callable[[], int]) -> None:
        """Set the function that returns the room of the account, in bytes as `state` counts them."""
        self._publisher.set_room(room)

    def share(self, shared_limits: SharedLimits) -> None:
        """Have the server's room, and its bound of atomic batches, together with other streams."""
        self._shared_limits = shared_limits
        self._publisher.atomic.count_in(shared_limits.batches)
        if shared_limits.limit(self.config.storage) >= 0:
            self._publisher.set_server_room(lambda size: shared_limits.room(self.config.storage, size))

    def on_abandoned(self, told: Callable[[bytes, str], None]) -> None:
        """Call a function with every abandoned atomic batch, and the reason."""
        self._publisher.atomic.on_abandoned = told

    # Removals.

    def remove(self, sequences: Words) -> Removed:
        """Remove acknowledged messages; recorded, and durable with the next barrier.

        While nothing can be written they stay: consumers repeat the removal after the stream was opened again.
        """
        if self.refusal is not None:
            return Removed()
        try:
            return self._remove(sequences, self._state.now_ns)
        except StrandlineError:
            if self.failure is None:
                raise
            return Removed()

    def delete(self, sequence: int) -> bool:
        """Remove one message, or accept its loss; return whether it was either."""
        chosen = np.array([sequence], np.uint64)
        return len(self._remove(chosen, self._state.now_ns)) > 0 or self.accept_losses(chosen) > 0

    def purge(self, request: PurgeRequest) -> int:
        """Remove many messages; return their number. Losses before the remaining messages are accepted, too."""
        last_seq = request.seq - 1 if request.seq and not request.filter else 0
        purged = len(self._remove(self._reader.purged_by(request), self._state.now_ns, last_seq, by_purge=True))
        if not request.filter:
            lost = self.losses.sequences
            self.accept_losses(lost[lost < np.uint64(request.seq or self.first_seq)])
        return purged

    def accept_losses(self, sequences: Words) -> int:
        """Accept that messages are lost, which is durable when this returns; return how many were."""
        losses = self.losses
        if not np.isin(sequences, losses.sequences).any():
            return 0
        left = losses.without(sequences, self._log.first_place)
        self._store.keep_losses(left)
        return len(losses.sequences) - len(left.sequences)

    def note_told(self) -> None:
        """Record that the advisory of the loss was sent."""
        self.losses.is_told = True
        self._store.keep_losses(self.losses)

    def expire(self, now_ns: int) -> Published:
        """Remove expired messages and abandoned batches; the stored messages of the result are delete markers."""
        with self._store:
            write_batch = self._begin(now_ns)
            self._publisher.atomic.abandon(write_batch.time_ns)
            self._publisher.fire(write_batch)
            return self._commit(write_batch, _NO_ROWS, {})

    @property
    def next_expiry_ns(self) -> int | None:
        """When `expire` may have something to do, None if nothing is known of."""
        due = (
            self._state.expiry.next_ns(self._state.index, self._state.config.max_age),
            self._publisher.atomic.next_ns(),
            self._publisher.scheduler.next_ns(),
        )
        return min((time_ns for time_ns in due if time_ns is not None), default=None)

    def update(self, config: StreamConfig, now_ns: int) -> Removed:
        """Take a checked configuration over."""
        json = to_json(config)
        with self._store:
            write_batch = self._begin(now_ns)
            self._state.configs.append((write_batch.place, json))
            write_batch.control(Config(write_batch.time_ns, json))
            self._state.set_config(config, write_batch.removals)
            self._publisher.configure(config)
            return self._commit(write_batch, _NO_ROWS, {}).removed

    def _remove(self, sequences: Words, now_ns: int, last_seq: int = 0, *, by_purge: bool = False) -> Removed:
        state = self._state
        with self._store:
            write_batch = self._begin(now_ns)
            write_batch.removals.by_purge = by_purge
            live = sequences[state.is_live(sequences)]
            if len(live) or last_seq > state.index.last_seq:
                if last_seq > state.index.last_seq:
                    write_batch.anchor()
                state.remove(live, write_batch.removals)
                state.index.last_seq = max(state.index.last_seq, last_seq)
                write_batch.control(Gone(write_batch.time_ns, state.index.last_seq, in_order(live)))
            return self._commit(write_batch, _NO_ROWS, {}, told=True).removed

    # One change.

    def _begin(self, now_ns: int, *, marks: bool = True) -> WriteBatch:
        """Begin a change: remove expired messages, with delete markers where they are configured."""
        self._refuse_if_unusable()
        state = self._state
        state.squeeze()
        state.tick(now_ns)
        write_batch = WriteBatch(state, self._log.next_place, self._anchor)
        rows = state.expire(write_batch.removals)
        if len(rows) and marks and state.config.subject_delete_marker_ttl:
            mark_gone(write_batch, rows, self._log)
        return write_batch

    def _commit(
        self, write_batch: WriteBatch, sequences: Words, answers: dict[int, bytes], *, told: bool = False
    ) -> Published:
        """Append the gathered records, and notify listeners of removals."""
        if not told:
            write_batch.tell_moved()
        published = write_batch.published(sequences, answers)
        published.ticket = self._store.last_ticket
        if not write_batch.is_empty:
            entry = write_batch.entry()
            published.ticket = self._store.append(entry)
            self._shared_limits.note(self.config.storage, entry.size)
        if len(published.removed):
            self._listeners.tell(self._state.config.name, published.removed)
        return published

    def _refuse_if_unusable(self) -> None:
        if self._closed:
            raise Closed(f"stream {self._state.config.name}")
        self._store.refuse_if_broken()

    def _refuse_if_unread(self, last_seq: int) -> None:
        """Refuse to read messages that the log may not have."""
        if self._closed or last_seq > self._store.durable_seq:
            self._refuse_if_unusable()

    def barrier(self) -> Ticket:
        """Return a ticket that is done when everything accepted so far is as durable as asked, failed if it is not."""
        return self._store.barrier()

    @property
    def failure(self) -> StrandlineError | None:
        """Why the stream accepts and shows nothing until it is opened again; None if it works."""
        return self._store.failure

    @property
    def refusal(self) -> StrandlineError | None:
        """Why the stream accepts nothing; its messages are durable unless there is a `failure`. None if it works."""
        return self._store.refusal

    @property
    def last_ticket(self) -> Ticket:
        """When this is settled, well or not, nothing of the stream is on its way to its log."""
        return self._store.last_ticket

    @property
    def is_on_disk(self) -> bool:
        """Whether it can be opened again."""
        return self._store.files is not None

    @property
    def is_in_doubt(self) -> bool:
        """Whether it has failed and will be opened again: missing messages may come back."""
        return self._store.files is not None and self._store.is_broken

    def forget_batches(self) -> None:
        """Drop uncommitted atomic batches, without a notice."""
        self._publisher.atomic.clear()

    def on_failed(self, told: Callable[[BaseException], object]) -> None:
        """Call a function with the cause of a `failure`, from any thread and perhaps more than once."""
        self._store.on_failed = told

    def add_listener(self, listener: Callable[[Removed], None]) -> Callable[[], None]:
        """Call a function with all removed messages, at once and in order; return the function that ends that."""
        return self._listeners.add(self._state.config.name, listener)

    @property
    def durable_seq(self) -> int:
        """The last sequence that is as durable as asked; later messages may not be shown yet."""
        return self._store.durable_seq

    def _read_last(self, number: int, write_batch: WriteBatch) -> tuple[bytes, bytes]:
        index = self._state.index
        place = index.rows.place_at[index.row_of(index.subjects.last_at[number])]
        return write_batch.read_back(place) or self._read_place(place)

    def _read_place(self, place: int) -> tuple[bytes, bytes]:
        found = self._log.read(np.array([place], np.int64))
        return found.headers[0], found.values[0]

    # Housekeeping.

    def compact_step(self) -> bool:
        """Do a little against dead records; return whether there is more to do at once."""
        self._refuse_if_unusable()
        return self._store.step()

    def snapshot(self) -> Future[None]:
        """Write the index, so that the next restart is quick."""
        return self._store.snapshot()

    def close(self, *, keep_index: bool = True) -> None:
        """Finish work under way, write the index, and release the files. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self.forget_batches()
        try:
            self._store.settle(keep_index=keep_index)
        finally:
            self._log.close()
