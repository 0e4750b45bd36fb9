"""The replicator: one thread that captures the commits of a database and ships them, for as long as it lives.

Invariants: `position` names only what is in the object store; commits that arrive while an upload runs go with the next
one; a waiter is answered after a change that had everything which was committed before it asked. An error of the store
is waited out, and said in `status`, and the change it hit is shipped before any later one. So is an error of the
database that passes: it is busy, its disk is full, the file is gone for now. A change that was read and could not be
shipped is followed by a snapshot. Where another leader has written, nothing more is shipped. One replicator holds a
database: a lock beside it keeps a second one out.

    .<database>-strandline         how far the log was read and shipped (JSON), replaced after each upload
    .<database>-strandline.lock    held while a replicator runs

The file is a hint: it is believed only if the object store and the log agree with it, and otherwise a snapshot goes on.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from strandline.errors import Closed, FormatError, InvalidInput, Locked, StrandlineError, Unavailable, UnknownOutcome
from strandline.files import OsDisk, storage_error
from strandline.lazy_imports import deferred
from strandline.objects import ObjectStore
from strandline.replica.capture import Capture, Change, LogState, check_database
from strandline.replica.errors import DatabaseRefused, HistoryLost
from strandline.replica.layout import Layout
from strandline.replica.lineage import check_lineage, find_lineage
from strandline.replica.shipper import EMPTY, Position, Shipment, Shipper, find_position
from strandline.replica.wakeups import FileChanges
from strandline.replica.wal import WalPosition

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

CHECKPOINT_BYTES = 4 << 20
LOOK_EVERY_S = 1.0
GATHER_S_MAX = 0.05
"""The next upload waits for as many writers as shared the last one, for half the time of that and no longer than so."""
_PAUSE_S, _PAUSE_S_MAX = 0.1, 30.0
_VERSION = 1


@dataclass(frozen=True)
class ReplicaStatus:
    """How a replicator is doing. `lag_s` is since when commits wait that are not in the store; 0 where none do."""

    position: Position
    lag_s: float
    shipped_bytes: int
    snapshots: int
    checkpoints: int
    error: str | None


@dataclass
class _Counts:
    shipped_bytes: int = 0
    snapshots: int = 0
    checkpoints: int = 0
    waiting_since_s: float | None = None
    error: StrandlineError | None = None
    requested: int = 0
    answered: int = 0
    shared: int = 0
    """How many waiters the last upload answered."""
    upload_s: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)


class Replicator:
    """Ships one database to an object store, from `start` to `close`."""

    def __init__(self, path: Path, store: ObjectStore, *, epoch: int = 0) -> None:
        self.path = path
        self._store = store
        self._layout = Layout(store)
        self._epoch = epoch
        self._stop = threading.Event()
        self._counts = _Counts()
        self._thread: threading.Thread | None = None
        self._ended: BaseException | None = None
        self._checkpoint_at = CHECKPOINT_BYTES
        self._is_lost = False

    def start(self) -> Self:
        """Take the database, find out where to go on, and ship from then on."""
        check_database(self.path)
        disk = OsDisk()
        try:
            self._lock = disk.lock(self.path.with_name(f".{self.path.name}-strandline.lock"))
        except Locked:
            hint = "one replicator holds a database; end the other one, or give this one another database"
            raise Locked(str(self.path), hint=hint) from None
        try:
            known = self._read_hint()
            # The place is this path's: whatever database stands there now goes on under its identity.
            self._capture = Capture(self.path, (find_lineage(self._store) or "") if known else "")
            self._changes = FileChanges(self._capture.log_path)
            self._begin(known)
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._run, name=f"strandline-replica-{self.path.name}", daemon=True)
        self._thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

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
        )

    def wait_durable(self, timeout_s: float | None = None) -> Position:
        """Return when everything that was committed before this call is in the object store, and its position.

        `Unavailable` after `timeout_s`; an error that ended the replicator is raised here too.
        """
        counts = self._counts
        with counts.changed:
            counts.requested += 1
            mine = counts.requested
            if mine >= counts.answered + counts.shared:
                counts.changed.notify_all()
            self._changes.wake()
            done = counts.changed.wait_for(lambda: counts.answered >= mine or self._is_over(), timeout_s)
            if counts.answered >= mine:
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
            if flush and self._thread is not None:
                with suppress(Closed):
                    self.wait_durable(LOOK_EVERY_S * 30)
        finally:
            self._stop.set()
            if self._thread is not None:
                self._changes.wake()
                self._thread.join()
                self._thread = None
                self._release()

    def _is_over(self) -> bool:
        return self._ended is not None or self._stop.is_set()

    def _release(self) -> None:
        for name in ("_changes", "_capture"):
            held = getattr(self, name, None)
            if held is not None:
                held.close()
        self._lock.release()

    def _begin(self, known: tuple[Position, LogState] | None) -> None:
        """Go on from the last position, without a snapshot where the log continues."""
        head = find_position(self._store, self._layout, after=max(0, known[0].txid - 1) if known else 0)
        check_lineage(self._store, self._capture.lineage, is_empty=head == EMPTY)
        self._shipper = Shipper(self._store, self._layout, head, epoch=self._epoch)
        self._snapshot_due = known is None or known[0] != head or not self._capture.resume(known[1])

    def _read_hint(self) -> tuple[Position, LogState] | None:
        """Return what an earlier replicator of this path and place knew; None where there is nothing to read."""
        with suppress(OSError, FormatError):
            position, state, address = parse_hint(self._hint_path.read_text(), str(self._hint_path))
            return (position, state) if address == self._store.address else None
        return None

    @property
    def _hint_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}-strandline")

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._try_round()
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting caller
            self._ended = error
        finally:
            with self._counts.changed:
                self._counts.changed.notify_all()

    def _try_round(self) -> None:
        """Do a round; wait where the database is busy, its disk full, or the file gone for now."""
        try:
            self._round()
        except (Unavailable, DatabaseRefused, HistoryLost) as error:
            self._counts.error = error
            self._stop.wait(LOOK_EVERY_S)
        except OSError as error:
            self._counts.error = storage_error(self.path, error)
            self._stop.wait(LOOK_EVERY_S)

    def _round(self) -> None:
        counts = self._counts
        self._gather()
        requested = counts.requested
        change = self._next_change()
        if change is not None:
            try:
                self._ship(self._shipper.pack(change))
            except BaseException:
                self._snapshot_due = True
                raise
            if self._stop.is_set() and counts.error is not None:
                return
            self._write_hint(change.state)
            counts.snapshots += change.is_whole
        counts.error = None
        if change is None or change.is_all:
            with counts.changed:
                if change is not None:
                    counts.shared = requested - counts.answered
                counts.answered = requested
                counts.changed.notify_all()
        if self._capture.log_bytes() >= self._checkpoint_at:
            self._checkpoint()
        elif change is None:
            self._changes.wait(LOOK_EVERY_S)

    def _gather(self) -> None:
        """Give writers that were answered together a moment to commit again: they share the next upload too."""
        counts = self._counts
        if counts.shared > 1:
            with counts.changed:
                enough = counts.answered + counts.shared
                counts.changed.wait_for(
                    lambda: counts.requested >= enough or self._is_over(), min(GATHER_S_MAX, counts.upload_s / 2)
                )

    def _next_change(self) -> Change | None:
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
        self._snapshot_due = False
        return change

    def _checkpoint(self) -> None:
        """Let the log begin anew; where it cannot, because of a reader, try again when it has grown."""
        is_done = False
        try:
            is_done = self._capture.checkpoint()
        except HistoryLost:
            self._snapshot_due = True
        finally:
            self._checkpoint_at = CHECKPOINT_BYTES + (0 if is_done else self._capture.log_bytes())
        self._counts.checkpoints += is_done

    def _reopen(self) -> None:
        """Take the database anew: it may be another file by now."""
        self._capture.close()
        check_database(self.path)
        self._capture = Capture(self.path, self._capture.lineage)
        self._changes.watch(self._capture.log_path)
        self._is_lost, self._snapshot_due = False, True

    def _ship(self, shipment: Shipment) -> None:
        """Write a transaction, however long the store is away; give up only where this replicator is closed."""
        counts, pause_s = self._counts, _PAUSE_S
        counts.waiting_since_s = started_s = time.monotonic()
        while True:
            try:
                self._shipper.ship(shipment)
            except (Unavailable, UnknownOutcome) as error:
                counts.error = error
                if self._stop.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
                continue
            counts.error = counts.waiting_since_s = None
            counts.shipped_bytes += len(shipment.body)
            counts.upload_s = time.monotonic() - started_s
            return

    def _write_hint(self, state: LogState) -> None:
        # It is not synced: an old one, or none, costs a snapshot and nothing else.
        temporary = self._hint_path.with_name(f"{self._hint_path.name}.tmp")
        with suppress(OSError):
            temporary.write_text(format_hint(self.position, state, self._store.address))
            temporary.replace(self._hint_path)


def format_hint(position: Position, state: LogState, address: str) -> str:
    """Return a position in a place and the state of a log, as the text of the file beside the database."""
    body = {
        "version": _VERSION,
        "address": address,
        "txid": position.txid,
        "checksum": f"{position.checksum:016x}",
        "salts": state.salts,
        "offset": state.position.offset,
        "log_checksum": state.position.checksum,
        "pages": state.pages,
        "page_size": state.page_size,
    }
    return json.dumps(body) + "\n"


def parse_hint(text: str, path: str) -> tuple[Position, LogState, str]:
    """Return what `format_hint` wrote."""
    try:
        body = json.loads(text)
        if body["version"] != _VERSION:
            raise FormatError(path, f"version {body['version']} is of a later Strandline")
        first, second = body["salts"]
        one, other = body["log_checksum"]
        state = LogState((first, second), WalPosition(body["offset"], (one, other)), body["pages"], body["page_size"])
        return Position(body["txid"], int(body["checksum"], 16)), state, str(body["address"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, "it is not a replicator's file") from error
