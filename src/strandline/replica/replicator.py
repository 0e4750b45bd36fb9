"""The replicator: captures the commits of a database and ships them, for as long as it lives.

Invariants: `position` names only what is in the object store; commits that arrive while an upload runs go with the next
one; a waiter is answered after a change that had everything which was committed before it asked. An error of the store
is waited out, and said in `status`, and the change it hit is shipped before any later one. So is an error of the
database that passes: it is busy, its disk is full, the file is gone for now. A store that refuses, because a credential
has expired, is asked again after longer pauses; one that refuses at the start is an error. A change that was read and
could not be shipped is followed by a snapshot. Where another leader has written, nothing more is shipped, and no later
start ships anything: its cursor says that the replica has transactions which this database does not have. What is
shipped is on the local disk first, so that a power cut takes nothing from the database that the replica has. One
replicator holds a database: a lock beside it keeps a second one out.

    .<database>-strandline         the cursor (`replica.cursor`), replaced before each upload
    .<database>-strandline.lock    held while a replicator runs

A replicator works in steps, of which none waits for the store to come back: in a thread of its own (`start`), or in the
threads of a `ReplicaPool` that many replicators share.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from strandline.errors import Closed, FormatError, InvalidInput, Locked, StrandlineError, Unavailable, UnknownOutcome
from strandline.files import OsDisk, storage_error
from strandline.lazy_imports import deferred
from strandline.objects import ObjectStore, StoreRefused
from strandline.replica.capture import Capture, Change, Resumed
from strandline.replica.connections import check_database, real_path
from strandline.replica.cursor import ReplicaCursor, Shipped, cursor_path, read_cursor, write_cursor
from strandline.replica.errors import DatabaseRefused, HistoryLost, ReplicaAhead
from strandline.replica.layout import Layout
from strandline.replica.lineage import check_lineage, find_lineage
from strandline.replica.pace import REFUSED_PAUSE_S, UPLOAD_EVERY_S, Pace, Pause
from strandline.replica.shipper import EMPTY, Position, Shipment, Shipper, find_position
from strandline.replica.snapshot_parts import in_parts, is_large
from strandline.replica.wakeups import FileChanges, Wakeups

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

CHECKPOINT_BYTES = 4 << 20
LOOK_EVERY_S = 1.0
SOON_S = 0.0005
FLUSH_S = 30.0
"""How long a replicator, or all those of a pool, ship what is left when they are closed."""
GATHER_S_MAX = 0.05
"""The next upload waits for as many writers as shared the last one, for half the time of that and no longer than so."""
_PAUSE_S, _PAUSE_S_MAX = 0.1, 30.0


@dataclass(frozen=True)
class ReplicaStatus:
    """How a replicator is doing. `lag_s` is since when commits wait that are not in the store; 0 where none do.

    Commits that wait for the pace of uploads count too.
    """

    position: Position
    lag_s: float
    shipped_bytes: int
    snapshots: int
    checkpoints: int
    error: str | None
    transactions: int = 0
    errors: int = 0
    """How many attempts failed."""
    last_success_s: float = 0.0
    """When everything that was committed was last in the store, in seconds since 1970; 0 where it never was."""
    is_refused: bool = False
    """Whether the store refuses the credential or the bucket: it is tried again, and needs an operator."""


@dataclass
class _Counts:
    shipped_bytes: int = 0
    snapshots: int = 0
    checkpoints: int = 0
    transactions: int = 0
    errors: int = 0
    last_success_s: float = 0.0
    waiting_since_s: float | None = None
    error: StrandlineError | None = None
    requested: int = 0
    answered: int = 0
    shared: int = 0
    """How many waiters the last upload answered."""
    upload_s: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)


class Replicator:
    """Ships one database to an object store, from `start` to `close`.

    `adopt` ships the database as it is, as the next transaction, although the replica has transactions that the
    database does not have; they stay restorable. `upload_every_s` is the `Pace` of uploads without a waiter.
    """

    def __init__(
        self,
        path: Path,
        store: ObjectStore,
        *,
        epoch: int = 0,
        adopt: bool = False,
        upload_every_s: float = UPLOAD_EVERY_S,
    ) -> None:
        if upload_every_s < 0:
            raise InvalidInput(f"{upload_every_s} s between uploads is less than none", hint="give 0, or more")
        self.path = real_path(path)
        self._store = store
        self._layout = Layout(store)
        self._epoch = epoch
        self._adopt = adopt
        self._stop = threading.Event()
        self._counts = _Counts()
        self._leave: Callable[[], None] | None = None
        self._ended: BaseException | None = None
        self._checkpoint_at = CHECKPOINT_BYTES
        self._is_lost = False
        self._pause_s = _PAUSE_S
        self._parts: Iterator[Change] | None = None
        self._under_way: tuple[Change, Shipment] | None = None
        self._requested = 0
        self._is_snapshot = False
        self._is_behind = False
        """Whether the last change was not all that there was."""
        self._pace = Pace(upload_every_s, time.monotonic())
        self._written_ns = 0
        self._clean_s = time.monotonic()
        """When the log was last seen without commits that wait."""
        self._soon_s = SOON_S

    def start(self) -> Self:
        """Take the database, find out where to go on, and ship from then on, in a thread of its own."""
        changes = FileChanges(self.path.with_name(f"{self.path.name}-wal"))
        self.open(changes)

        def run() -> None:
            while (pause := self.step()) is not None:
                if pause.is_backoff:
                    self._stop.wait(pause.seconds)
                elif pause.seconds:
                    changes.wait(pause.seconds, only_wakes=pause.is_pace)

        thread = threading.Thread(target=run, name=f"strandline-replica-{self.path.name}", daemon=True)
        self._leave = thread.join
        thread.start()
        return self

    def open(self, changes: Wakeups, leave: Callable[[], None] | None = None) -> None:
        """Take the database and find out where to go on; the caller makes the steps until `leave` has returned."""
        self._changes, self._leave = changes, leave
        try:
            check_database(self.path)
            self._lock = OsDisk().lock(self.path.with_name(f".{self.path.name}-strandline.lock"))
        except Locked:
            changes.close()
            hint = "one replicator holds a database; end the other one, or give this one another database"
            raise Locked(str(self.path), hint=hint) from None
        except BaseException:
            changes.close()
            raise
        try:
            cursor = self._read_cursor()
            # The place is this path's: whatever database stands there now goes on under its identity.
            self._capture = Capture(self.path, (find_lineage(self._store) or "") if cursor else "")
            changes.watch(self._capture.log_path)
            self._begin(cursor)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        return self if self._leave is not None else self.start()

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close(flush=kind is None)

    @property
    def position(self) -> Position:
        """Return the last position that is in the object store."""
        return self._shipper.position

    @property
    def failure(self) -> BaseException | None:
        """Return what ended the replicator before it was closed; None while it goes on."""
        return self._ended

    def status(self) -> ReplicaStatus:
        """Return how it is doing."""
        counts = self._counts
        since, error = counts.waiting_since_s, counts.error
        return ReplicaStatus(
            self.position,
            0.0 if since is None else time.monotonic() - since,
            counts.shipped_bytes,
            counts.snapshots,
            counts.checkpoints,
            None if error is None else str(error),
            counts.transactions,
            counts.errors,
            counts.last_success_s,
            isinstance(error, StoreRefused),
        )

    def wait_durable(self, timeout_s: float | None = None) -> Position:
        """Return when everything that was committed before this call is in the object store, and its position.

        `Unavailable` after `timeout_s`; an error that ended the replicator is raised here too.
        """
        return self.await_request(self.request(), timeout_s)

    def request(self) -> int:
        """Have everything that is committed now shipped at once; return what `await_request` waits for."""
        counts = self._counts
        with counts.changed:
            counts.requested += 1
            if counts.requested >= counts.answered + counts.shared:
                counts.changed.notify_all()
            self._changes.wake()
            return counts.requested

    def await_request(self, number: int, timeout_s: float | None = None) -> Position:
        """Return when a request is answered; errors are those of `wait_durable`."""
        counts = self._counts
        with counts.changed:
            done = counts.changed.wait_for(lambda: counts.answered >= number or self.is_over, timeout_s)
            if counts.answered >= number:
                return self.position
        if self._ended is not None:
            raise self._ended
        if done:
            raise Closed(f"the replicator of {self.path}")
        reason = f": {counts.error}" if counts.error else ""
        raise Unavailable(f"{self.path} is not replicated after {timeout_s} s{reason}", hint="it goes on by itself")

    @contextmanager
    def durable(self, timeout_s: float | None = None) -> Iterator[None]:
        """Have what the block commits in the object store when the block ends; a block that raises waits for nothing.

        `Unavailable` after `timeout_s`: the commit is in the database, and is shipped when that is possible.
        """
        yield
        self.wait_durable(timeout_s)

    def every_commit(self, connection: "apsw.Connection", timeout_s: float | None = None) -> None:
        """Let each commit of a connection return after it is in the object store; commits that wait go together.

        A commit that raises (`Unavailable` after `timeout_s`, `ReplicaFenced`, `Closed`) is in the database, and
        nothing says that it is in the store. The connection checkpoints no more; the replicator does.
        """
        if Path(connection.db_filename("main")).resolve() != self.path.resolve():
            problem = f"the connection is to {connection.db_filename('main')}, and {self.path} is replicated"
            raise InvalidInput(problem, hint="give a connection to the database of this replicator")

        def shipped(_: "apsw.Connection", schema: str, __: int) -> int:
            if schema == "main":
                self.wait_durable(timeout_s)
            return apsw.SQLITE_OK

        connection.set_wal_hook(shipped)

    def close(self, *, flush: bool = True) -> None:
        """Ship what is committed (`flush`), and let go of the database; raise what has ended the replicator before."""
        try:
            if flush and self._leave is not None:
                with suppress(Closed):
                    self.wait_durable(FLUSH_S)
        finally:
            self._stop.set()
            if self._leave is not None:
                self._changes.wake()
                self._leave()
                self._leave = None
                self._release()

    @property
    def is_over(self) -> bool:
        """Return whether it makes no more steps."""
        return self._ended is not None or self._stop.is_set()

    def _release(self) -> None:
        for name in ("_changes", "_capture"):
            held = getattr(self, name, None)
            if held is not None:
                held.close()
        self._lock.release()

    def _begin(self, cursor: ReplicaCursor | None) -> None:
        """Go on from the last position, without a snapshot where the log continues."""
        known_txid = cursor.shipped.position.txid if cursor else 0
        head = find_position(self._store, self._layout, after=max(0, known_txid - 1))
        check_lineage(self._store, self._capture.lineage, is_empty=head == EMPTY)
        cursor = None if self._adopt else cursor
        found = cursor.find(head) if cursor else None
        state = found.state if found else None
        resumed = Resumed.BEGAN_ANEW if state is None else self._capture.resume(state)
        if resumed is Resumed.BEHIND:
            reason = "its log ends before that; a power cut lost the rest, or this is an older copy"
            raise ReplicaAhead(self._store.address, head.txid, reason)
        self._is_complete = head != EMPTY and (cursor is None or cursor.is_complete or state is not None)
        self._shipped = found or Shipped(head)
        folder = self.path.absolute().parent
        self._shipper = Shipper(self._store, self._layout, head, epoch=self._epoch, folder=folder)
        self._snapshot_due = resumed is not Resumed.CONTINUES

    def _read_cursor(self) -> ReplicaCursor | None:
        """Return what an earlier replicator of this path and place knew; None where there is nothing to read."""
        with suppress(OSError, FormatError):
            cursor = read_cursor(self.path)
            return cursor if cursor and cursor.is_at(self._store.address) else None
        return None

    def step(self) -> Pause | None:
        """Do what is to be done next; return when to come again, or None where this replicator has ended."""
        if not self.is_over:
            try:
                return self._try_step()
            except BaseException as error:  # noqa: BLE001 - raised again by the waiting caller
                self._ended = error
        with self._counts.changed:
            self._counts.changed.notify_all()
        return None

    def _try_step(self) -> Pause:
        """Do a step; where the database is busy, its disk full, or the file gone for now, come again later."""
        try:
            return self._step()
        except (Unavailable, DatabaseRefused, HistoryLost) as error:
            self._counts.error = error
        except OSError as error:
            self._counts.error = storage_error(self.path, error)
        self._counts.errors += 1
        self._wait()
        return Pause(LOOK_EVERY_S, is_backoff=True)

    def _wait(self) -> None:
        """Note that commits wait from now on, unless some do already; of a log that cannot be read, it is assumed."""
        if self._counts.waiting_since_s is None:
            self._counts.waiting_since_s = time.monotonic()

    def _step(self) -> Pause:
        if self._under_way is None:
            wait_s = self._pace.wait_s(time.monotonic())
            if wait_s and not self._is_behind and self._counts.requested == self._counts.answered:
                # The first commit ends the pause, so that its lag is seen; those after it wait with it.
                return Pause(wait_s, is_pace=self._notes_waiting())
            self._gather()
            self._clean_s = time.monotonic()
            self._requested = self._counts.requested
            change = self._next_change()
            if change is None:
                return self._rest()
            self._pack(change)
        return self._send()

    def _notes_waiting(self) -> bool:
        """Note since when commits wait, if there are some; return whether there are."""
        now_s = time.monotonic()
        if self._counts.waiting_since_s is None:
            if not self._snapshot_due and not self._is_lost and self._capture.unfinished() is None:
                self._clean_s = now_s
                return False
            self._counts.waiting_since_s = self._clean_s
        return True

    def _rest(self) -> Pause:
        """Answer the waiters, since everything is shipped."""
        self._counts.error = self._counts.waiting_since_s = None
        self._is_behind = False
        self._answer()
        return Pause(0) if self._checkpoint() else Pause(self._look_again_s())

    def _look_again_s(self) -> float:
        """Return when to look at the log again: soon, and then less often, while a commit in it does not count yet."""
        written_ns = self._capture.unfinished()
        if written_ns is None:
            return LOOK_EVERY_S
        self._soon_s = SOON_S if written_ns != self._written_ns else min(2 * self._soon_s, LOOK_EVERY_S)
        self._written_ns = written_ns
        return self._soon_s

    def _pack(self, change: Change) -> None:
        """Make a change the next transaction: on the local disk first, then in the cursor, then on its way."""
        try:
            shipment = self._shipper.pack(change)
            self._capture.sync()
            sending = Shipped(shipment.position, None if change.is_part else change.state)
            inode = self._capture.inode
            self._write_cursor(ReplicaCursor(self._store.address, self._shipped, sending, self._is_complete, inode))
        except BaseException:
            self._snapshot_due = True
            raise
        self._under_way, self._is_behind = (change, shipment), not change.is_all
        self._wait()
        self._pace.spend(time.monotonic())

    def _send(self) -> Pause:
        """Write the transaction that is under way; where the store is away, come again with the same one."""
        assert self._under_way is not None  # noqa: S101 - the caller looked
        counts, (change, shipment) = self._counts, self._under_way
        started_s = time.monotonic()
        try:
            self._shipper.ship(shipment)
        except (Unavailable, UnknownOutcome) as error:
            counts.error, pause_s = error, self._pause_s
            counts.errors += 1
            self._pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            return Pause(REFUSED_PAUSE_S if isinstance(error, StoreRefused) else pause_s, is_backoff=True)
        self._under_way, self._pause_s = None, _PAUSE_S
        self._shipped = Shipped(shipment.position, None if change.is_part else change.state)
        counts.error = None
        counts.shipped_bytes += len(shipment.body)
        counts.transactions += 1
        counts.upload_s = time.monotonic() - started_s
        if not change.is_part:
            self._is_complete = True
            counts.snapshots += self._is_snapshot
            self._is_snapshot = False
        if change.is_all:
            counts.waiting_since_s = None
            counts.shared = self._requested - counts.answered
            self._answer()
        self._checkpoint()
        return Pause(0)

    def _answer(self) -> None:
        """Answer the waiters that asked before the last change was read."""
        self._counts.last_success_s = time.time()
        with self._counts.changed:
            self._counts.answered = self._requested
            self._counts.changed.notify_all()

    def _gather(self) -> None:
        """Give writers that were answered together a moment to commit again: they share the next upload too."""
        counts = self._counts
        if counts.shared > 1:
            with counts.changed:
                enough = counts.answered + counts.shared
                wait_s = min(GATHER_S_MAX, counts.upload_s / 2)
                if not counts.changed.wait_for(lambda: counts.requested >= enough or self.is_over, wait_s):
                    counts.shared = counts.requested - counts.answered

    def _next_change(self) -> Change | None:
        part = next(self._parts, None) if self._parts is not None and not self._snapshot_due else None
        if part is not None:
            return part
        self._parts = None
        if not self._is_lost and not self._snapshot_due:
            try:
                return self._capture.changes()
            except HistoryLost:
                self._is_lost = True
        if self._is_lost:
            self._reopen()
        try:
            change = self._capture.snapshot()
        except HistoryLost:
            self._is_lost = True
            raise
        self._snapshot_due, self._is_snapshot = False, True
        if is_large(change) and not self._is_complete:
            self._parts = in_parts(change)
            return next(self._parts)
        return change

    def _checkpoint(self) -> bool:
        """Let a long log begin anew; where it cannot, because of a reader, try again when it has grown."""
        if self._parts is not None or self._capture.log_bytes() < self._checkpoint_at:
            return False
        is_done = False
        try:
            is_done = self._capture.checkpoint()
        except HistoryLost:
            self._snapshot_due = True
        finally:
            self._checkpoint_at = CHECKPOINT_BYTES + (0 if is_done else self._capture.log_bytes())
        self._counts.checkpoints += is_done
        return True

    def _reopen(self) -> None:
        """Take the database anew: it may be another file by now."""
        self._capture.close()
        check_database(self.path)
        self._capture = Capture(self.path, self._capture.lineage)
        self._changes.watch(self._capture.log_path)
        self._is_lost, self._snapshot_due = False, True

    def _write_cursor(self, cursor: ReplicaCursor) -> None:
        """Make the cursor durable. Without one a start ships a snapshot, so on a full disk it is removed."""
        try:
            write_cursor(self.path, cursor)
        except OSError:
            cursor_path(self.path).unlink(missing_ok=True)
