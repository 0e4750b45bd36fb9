"""What a stream does beside its messages' business: appending, compacting, writing its index, and opening.

Invariants: after a failed append nothing more is accepted; the index is written when everything it knows is on stable
storage; what waits for the disk without anybody waiting for it runs on the executor, if there is one.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.schema import from_json
from strandline.broker.streams.compaction import Compaction
from strandline.broker.streams.files import StreamFiles
from strandline.broker.streams.front import Front
from strandline.broker.streams.log import DONE, Entry, JournalLog, MessageLog, Ticket
from strandline.broker.streams.replay import Replay, sequence_at
from strandline.broker.streams.snapshot import capture
from strandline.broker.streams.state import State
from strandline.errors import Damaged, Poisoned

SNAPSHOT_BYTES_MIN = 64 << 20


class Keeper:
    """Keeps a stream's log and files in order."""

    def __init__(self, state: State, log: MessageLog, files: StreamFiles | None, executor: Executor | None) -> None:
        self._state = state
        self._log = log
        self._files = files
        self._executor = executor
        self._compaction = Compaction(state, log, self)
        self._writing: Future[None] = DONE
        self._broken: BaseException | None = None
        self._index_due = SNAPSHOT_BYTES_MIN
        self._since_index = 0
        self.last_ticket: Ticket = DONE

    def append(self, entry: Entry) -> Ticket:
        """Append records; if that fails, the state is ahead of the log, and nothing more is accepted."""
        try:
            ticket = self._log.append(entry)
        except BaseException as error:
            self._broken = error
            raise
        self._since_index += entry.size
        self.last_ticket = ticket
        return ticket

    def refuse_if_broken(self) -> None:
        """Raise `Poisoned` if an append has failed."""
        if self._broken is not None:
            raise Poisoned(f"stream {self._state.config.name}", str(self._broken)) from self._broken

    def step(self) -> bool:
        """Do a little against dead records, or write the index; return whether there is more to do at once."""
        if self._compaction.step():
            return True
        if self._since_index > self._index_due and self._writing.done():
            self._writing.result()
            self.snapshot()
        return False

    def let_go(self, end: int) -> Future[None]:
        """Write the new front, and let go of the log below a place; for compaction, which made sure nothing is lost."""
        state, log, files = self._state, self._log, self._files
        front = None
        if isinstance(log, JournalLog):
            state.forget_configs(end)
            front = Front(log.identity, end, self.last_seq_at(end), 0, state.created_ns, state.config_at(end))

        def work() -> None:
            if files is not None and front is not None and isinstance(log, JournalLog):
                log.sync()  # what was moved may be worth more to its owner than the stream's durability now says
                files.write_front(front)
            log.remove_below(end)

        return self._beside(work)

    def _beside(self, work: Callable[[], None]) -> Future[None]:
        """Do what waits for the disk where nobody waits for it, if there is such a place."""
        if self._executor is not None:
            return self._executor.submit(work)
        done: Future[None] = Future()
        try:
            work()
            done.set_result(None)
        except Exception as error:  # noqa: BLE001 - it is raised to whoever asks for the result
            done.set_exception(error)
        return done

    def last_seq_at(self, place: int) -> int:
        """Return the last sequence at a place of the log."""
        if not isinstance(self._log, JournalLog):
            return self._state.index.last_seq
        return sequence_at(self._log.scan(place), self._state.index.last_seq)

    def snapshot(self) -> Future[None]:
        """Write down what is known, so that the next restart is quick."""
        log, files = self._log, self._files
        if files is None or not isinstance(log, JournalLog):
            return DONE
        captured, place = capture(self._state), log.next_place

        def work() -> None:
            log.sync()
            size = files.write_index(captured, log.identity, place)
            self._index_due = max(SNAPSHOT_BYTES_MIN, 4 * size)

        self._since_index = 0
        self._writing = self._beside(work)
        return self._writing

    def settle(self, *, keep_index: bool) -> None:
        """Wait for what is under way, and write the index a last time."""
        self._writing.exception()  # whatever became of it, it is over
        if keep_index and self._broken is None and self._since_index:
            self.last_ticket.result()
            self.snapshot().result()


def recover(files: StreamFiles, front: Front, log: JournalLog) -> State:
    """Return the state that a stream's files and log say it has."""
    if front.identity != log.identity:
        raise Damaged(str(files.folder), "the journal is not this stream's", safe="restore both from the same copy")
    found = files.read_index(log.identity, front.place, log.next_place)
    if found is None:
        state, place = State(from_json(StreamConfig, front.config), front.created_ns), front.place
        state.index.last_seq, state.index.last_time = front.last_seq, front.last_time
        state.configs = [(front.place, front.config)]
    else:
        state, place = found
    Replay(state, str(files.folder)).run(log.scan(place))
    return state
