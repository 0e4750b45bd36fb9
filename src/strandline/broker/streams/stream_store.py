"""The log and files of a stream: appends, compaction, and the index.

Invariants: after a failed change, before or in the log, nothing more is accepted. A store with a refusal accepts
nothing from the beginning, and its state is durable. The index is written when all that it covers is on stable storage.
Disk work that no caller waits for runs on the executor, if there is one.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from types import TracebackType

from strandline.broker.streams.checkpoint import StreamCheckpoint
from strandline.broker.streams.compaction import Compaction
from strandline.broker.streams.entries import Entry
from strandline.broker.streams.files import StreamFiles
from strandline.broker.streams.index_file import capture
from strandline.broker.streams.losses import Losses
from strandline.broker.streams.replay import sequence_at
from strandline.broker.streams.state import State
from strandline.broker.streams.storage import DONE, JournalLog, MessageLog, Ticket
from strandline.broker.thread_runner import ThreadRunner
from strandline.errors import Closed, Poisoned, StrandlineError, Unavailable

SNAPSHOT_BYTES_MIN = 64 << 20


class StreamStore:
    """Keeps a stream's log and files in order."""

    def __init__(
        self,
        state: State,
        log: MessageLog,
        files: StreamFiles | None,
        executor: Executor | None,
        refusal: StrandlineError | None = None,
    ) -> None:
        self._state = state
        self._log = log
        self.files = files
        self._runner = ThreadRunner(executor)
        self._refusal = refusal
        self._compaction = Compaction(state, log, self)
        self._index_write: Future[None] = DONE
        self._broken: BaseException | None = None
        self._index_due = SNAPSHOT_BYTES_MIN
        self._since_index = 0
        self._durable_seq = state.index.last_seq
        self._on_the_way: deque[tuple[Ticket, int]] = deque()
        self.last_ticket: Ticket = DONE
        self.on_failed: Callable[[BaseException], object] = _ignore

    def __enter__(self) -> None:
        """Begin a change of the state that ends with an append, where changes are taken."""
        if self._refusal is not None:
            raise self._refusal

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a change; after an error the state may be ahead of the log, so nothing more is accepted."""
        if error is None or isinstance(error, Closed):
            return
        self._break(error)
        if isinstance(error, Exception) and not isinstance(error, StrandlineError):
            raise Poisoned(f"stream {self._state.config.name}", f"{type(error).__name__}: {error}") from error

    def append(self, entry: Entry) -> Ticket:
        """Append records; if that fails, the state is ahead of the log, and nothing more is accepted."""
        try:
            ticket = self._log.append(entry)
        except BaseException as error:
            self._break(error)
            raise
        self._since_index += entry.size
        if ticket is DONE and not self._on_the_way:
            self._durable_seq = self._state.index.last_seq
        else:
            self._on_the_way.append((ticket, self._state.index.last_seq))
            self._arrived()
            ticket.add_done_callback(self._settled)
        self.last_ticket = ticket
        return ticket

    def _settled(self, ticket: Future[None]) -> None:
        error = ticket.exception()
        if error is not None:
            self.on_failed(error)

    def _break(self, error: BaseException) -> None:
        if self._broken is None:
            self._broken = error
            self.on_failed(error)

    @property
    def durable_seq(self) -> int:
        """The last sequence whose append is as durable as asked; nothing after a failed append counts."""
        self._arrived()
        return self._durable_seq

    def _arrived(self) -> None:
        appends = self._on_the_way
        while appends and appends[0][0].done():
            error = appends[0][0].exception()
            if error is not None:  # the others wait for it in vain
                self._broken = self._broken or error
                return
            self._durable_seq = appends.popleft()[1]

    @property
    def is_broken(self) -> bool:
        """Whether there is a `failure`."""
        self._arrived()
        return self._broken is not None

    @property
    def failure(self) -> Poisoned | None:
        """Why nothing is accepted any more, None if it works; the state may have messages that were never stored."""
        self._arrived()
        return None if self._broken is None else Poisoned(f"stream {self._state.config.name}", str(self._broken))

    @property
    def refusal(self) -> StrandlineError | None:
        """Why no change is accepted, None if all is well."""
        return self._refusal or self.failure

    def refuse_if_broken(self) -> None:
        """Raise `Poisoned` if an append has failed."""
        failure = self.failure
        if failure is not None:
            raise failure from self._broken

    def barrier(self) -> Ticket:
        """Return a ticket that is done when everything accepted so far is durable, and fails if something is not."""
        failure = self.failure
        if failure is None:
            return self.last_ticket
        ticket: Ticket = Future()
        ticket.set_exception(failure)
        return ticket

    @property
    def executor(self) -> Executor | None:
        """Runs tasks that no caller waits for; None: they run at once."""
        return self._runner.executor

    def step(self) -> bool:
        """Do a little against dead records, or write the index; return whether there is more to do at once."""
        if self._refusal is not None:
            return False
        if self._compaction.step():
            return True
        if self._since_index > self._index_due and self._index_write.done():
            index_write, self._index_write = self._index_write, DONE
            index_write.result()
            self.snapshot()
        return False

    def let_go(self, end: int) -> Future[None]:
        """Write the new checkpoint, and remove the log below a place; compaction has made sure that nothing is lost."""
        state, log, files = self._state, self._log, self.files
        checkpoint = None
        if isinstance(log, JournalLog):
            state.forget_configs(end)
            checkpoint = StreamCheckpoint(
                log.identity, end, self.last_seq_at(end), 0, state.created_ns, state.config_at(end)
            )

        def work() -> None:
            if files is not None and checkpoint is not None and isinstance(log, JournalLog):
                log.sync()  # moved messages may have been stored under a stronger durability than the present one
                files.write_checkpoint(checkpoint)
            log.remove_below(end)

        return self._runner.run(work)

    def last_seq_at(self, place: int) -> int:
        """Return the last sequence at a place of the log."""
        if not isinstance(self._log, JournalLog):
            return self._state.index.last_seq
        last_seq = self._state.index.last_seq
        found = sequence_at(self._log.scan(place), last_seq, self._state.losses.parts)
        return last_seq if found is None else found

    def snapshot(self) -> Future[None]:
        """Write the index, so that the next restart is quick."""
        log, files = self._log, self.files
        if files is None or not isinstance(log, JournalLog):
            return DONE
        captured, place, ticket = capture(self._state), log.next_place, self.last_ticket

        def work() -> None:
            ticket.result()  # an index of records that never reach the log would match other records later
            log.sync()
            size = files.write_index(captured, log.identity, place)
            self._index_due = max(SNAPSHOT_BYTES_MIN, 4 * size)

        self._since_index = 0
        self._index_write = self._runner.run(work, after=ticket)
        return self._index_write

    def keep_losses(self, losses: Losses) -> None:
        """Write the losses, then apply them to the state."""
        if self.files is not None and isinstance(self._log, JournalLog):
            self.files.write_losses(losses, self._log.identity)
        self._state.losses = losses

    def retire(self) -> None:
        """Leave log and files to another; it does not wait for the executor, on which it may be called."""
        if not self._index_write.done():
            raise Unavailable(f"the index of stream {self._state.config.name} is being written")
        if isinstance(self._log, JournalLog):
            with suppress(StrandlineError):  # that it failed is known
                self._log.retire()

    def settle(self, *, keep_index: bool) -> None:
        """Wait for work under way, and write the index a last time."""
        self._index_write.exception()  # its error does not matter here
        if keep_index and self.refusal is None and self._since_index:
            self.last_ticket.result()
            self.snapshot().result()


def _ignore(error: BaseException) -> None:
    del error
