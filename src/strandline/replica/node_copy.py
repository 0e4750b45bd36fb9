"""The database of a node: what it holds, set aside where that is in no history, and followed in place.

Invariants: as long as it is held here no other connection commits (`write_lock`); what it holds is known as a
transaction of the replica, or it is set aside whole before a page of it is overwritten. It is known where the log ends
exactly at the place that was noted for a transaction, or where its pages are those of a restored transaction.

    .<database>-strandline-node    the last transaction and the end of the log with it, and the same for the next one,
                                   written before the next one is (JSON)
    .<database>-strandline         the same of a replicator, for the time in which this node led
    .<database>-strandline-node.lock
                                   held while a node runs
    <database>.set-aside-1, …      databases with commits that are in no history
"""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.errors import FormatError, StrandlineError
from strandline.files import OsDisk, storage_errors
from strandline.lazy_imports import deferred
from strandline.objects import ObjectStore
from strandline.replica.capture import TABLE, Change, LogState
from strandline.replica.connections import sqlite_errors
from strandline.replica.cursor import (
    ReplicaCursor,
    Shipped,
    is_same_place,
    log_fields,
    parse_log,
    read_cursor,
    write_cursor,
)
from strandline.replica.errors import ReplicaForeign
from strandline.replica.follower import Followed, Follower, followed_fields, parse_followed
from strandline.replica.layout import LEVELS, LtxFile
from strandline.replica.lineage import find_lineage
from strandline.replica.ltx import HEADER_BYTES, LtxHeader, parse_header
from strandline.replica.restore import restore
from strandline.replica.restore_points import find_fork, plan_restore
from strandline.replica.shipper import EMPTY, Position, Shipper, find_position, position_of
from strandline.replica.wal import HEADER_BYTES as LOG_HEADER_BYTES
from strandline.replica.wal import WalPosition
from strandline.replica.write_lock import WriteLock

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

logger = logging.getLogger("strandline.replica")
_VERSION = 1
_OWN_HEADER_FIELDS = ((18, 20), (24, 28), (40, 44), (92, 100))
"""Bytes of page 1 that a backup or a restored copy has of its own: versions, counters and the schema's number."""
_COMPARED_BYTES = 1 << 20


class Known(NamedTuple):
    """A transaction of the replica, and where the log ends when the database holds exactly that."""

    followed: Followed
    log: LogState


class NodeCopy(Follower):
    """The database of a node. Used by one thread."""

    def __init__(
        self,
        store: ObjectStore,
        path: Path,
        *,
        told: Callable[[Path, int], None] = lambda _file, _txid: None,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(store, path)
        self.followed = None
        self.lock: WriteLock | None = None
        self._told = told
        self._give_up = give_up
        self._known: Known | None = None

    @property
    def _state_path(self) -> Path:
        return self._path.with_name(f".{self._path.name}-strandline-node")

    def hold(self) -> bool:
        """Keep other connections from writing, if there is a database; return False where that was given up."""
        if self.lock is not None and not self.lock.is_current():
            logger.warning("%s was removed or replaced", self._path)
            self.lock.close()
            self.lock = self.followed = self._known = None
        if self.lock is None and self._path.exists():
            if self._path.stat().st_size == 0:  # an application has opened it, and made no table yet
                _create(self._path)
            self.lock = WriteLock(self._path)
        return self.lock is None or self.lock.acquire(self._give_up)

    def is_new(self) -> bool:
        """Return whether the replica has no transaction yet, so that this database may be the first of it."""
        return find_position(self._store, self._layout) == EMPTY

    def is_blank(self) -> bool:
        """Return whether there is no database, or one without a table: nothing that a replica should begin with."""
        return self.lock is None or self.lock.page_count() <= 1

    def settle(self, epoch: int = 0) -> bool:
        """Find out which transaction the database holds; set it aside and restore it where it holds none.

        Return False where there is no replica to compare it with. `epoch` is the one under which it was led last.
        """
        if self.followed is not None and self.lock is not None and self.lock.is_current():
            return True
        if not self.hold():
            return False
        known = None if self.lock is None else self._find_known(self.lock, epoch)
        if known is None:
            if self.is_new():
                return False
            self._restore()
            return True
        self._remember(known)
        return True

    def fork(self) -> None:
        """Set the database aside, since the replica does not continue it, and restore it."""
        assert self.lock is not None  # noqa: S101 - it was settled
        self.followed = self._known = None
        self._restore()

    def publish(self, epoch: int, check: Callable[[], object]) -> None:
        """Write the first transaction under an epoch, then make ready for a replicator; the lock stays held.

        Errors of the store leave everything as it was: a later attempt finds out whether this one has arrived.
        """
        assert self.followed is not None  # noqa: S101 - the caller has settled it
        assert self.lock is not None  # noqa: S101
        page, count, page_size = self.lock.first_page(), self.lock.page_count(), self.lock.page_size
        shipper = Shipper(self._store, self._layout, self.followed.position, epoch=epoch)
        nowhere = LogState((0, 0), WalPosition(0, (0, 0)), count, page_size)
        shipment = shipper.pack(Change(page_size, count, iter([(1, page)]), 0, nowhere))
        check()
        position = shipper.ship(shipment)
        # A frame that is in no database file yet: the log goes on from it, and does not begin anew.
        self._commit({1: page}, count, page_size, Followed(position, epoch, shipment.header.timestamp_ms))
        shipped, inode = Shipped(position, self.lock.state()), self._path.stat().st_ino
        write_cursor(self._path, ReplicaCursor(self._store.address, shipped, inode=inode))

    @contextlib.contextmanager
    def opened_to_writers(self) -> Iterator[None]:
        """Let others write; the log goes on from where it is at least until the block ends."""
        if self.lock is None:
            _create(self._path)
            self.hold()
        assert self.lock is not None  # noqa: S101 - `hold` has opened it
        self.lock.pin()
        try:
            self.lock.release()
            yield
        finally:
            self.lock.unpin()
        self.followed = self._known = None

    def close(self) -> None:
        """Let go of the database."""
        super().close()
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    # What the database holds

    def _find_known(self, lock: WriteLock, epoch: int) -> Known | None:
        log = lock.state()
        noted = self._noted(epoch)
        if log.position.offset == LOG_HEADER_BYTES:  # a log without a frame says nothing of the database
            return self._compared(lock, log, noted)
        for known in noted:
            if known.log == log:
                return known
        return next((found for known in noted if (found := self._shipped_since(known, log)) is not None), None)

    def _noted(self, epoch: int) -> list[Known]:
        """Return the transactions that were noted beside the database, with the end of the log of each."""
        noted = list[Known]()
        with contextlib.suppress(OSError, FormatError):
            noted += reversed(
                parse_node_state(self._state_path.read_text(), str(self._state_path), self._store.address)
            )
        with contextlib.suppress(OSError, FormatError):
            cursor = read_cursor(self._path)
            if cursor is not None and cursor.is_at(self._store.address):
                sending = cursor.sending
                has_arrived = sending is not None and self._is_in_replica(sending.position)
                for one in (sending if has_arrived else None, cursor.shipped):
                    if one is not None and one.state is not None:
                        noted.append(Known(Followed(one.position, epoch, 0), one.state))
        return noted

    def _is_in_replica(self, position: Position) -> bool:
        """Return whether a transaction of a cursor has arrived: one that was on its way may not have."""
        candidates = (
            file
            for level in LEVELS
            for file in self._layout.files(level, after=position.txid - 1 if level == 0 else 0)
            if file.max_txid == position.txid
        )
        return any(position_of(self._store, file) == position and self._is_of_history(file) for file in candidates)

    def _is_of_history(self, file: LtxFile) -> bool:
        """Tell whether a transaction is the one that merged files have, and none that came late under a free name."""
        return find_fork(self._store, self._layout.all_files(), file) is None

    def _shipped_since(self, known: Known, log: LogState) -> Known | None:
        """Return the transaction that ends with the log, by the places in the log that the files themselves name."""
        followed, offset = known.followed, known.log.position.offset
        if known.log.salts != log.salts:
            return None
        for file in self._layout.files(0, after=followed.position.txid):
            header = self._header_of(file.key)
            if header is None or header.salts != log.salts or header.wal_offset != offset:
                return None
            offset += header.wal_size
            if offset == log.position.offset:
                if not self._is_of_history(file):
                    return None
                return Known(Followed(position_of(self._store, file), header.epoch, header.timestamp_ms), log)
        return None

    def _header_of(self, key: str) -> LtxHeader | None:
        found = self._store.get(key, stop=HEADER_BYTES)
        return None if found is None else parse_header(found.body, key)

    def _compared(self, lock: WriteLock, log: LogState, noted: list[Known]) -> Known | None:
        """Return a noted transaction whose pages the database has; a connection that ended may have removed the log."""
        for known in noted:
            if known.followed.position == EMPTY:
                continue
            here, there = self._part("here"), self._part("there")
            try:
                _back_up(lock.connection, here)
                restore(self._store, self._layout, there, txid=known.followed.position.txid)
                if _are_equal(here, there):
                    return known._replace(log=log)
            except StrandlineError as error:
                logger.info(
                    "%s is not compared with transaction %d: %s", self._path, known.followed.position.txid, error
                )
            finally:
                here.unlink(missing_ok=True)
                there.unlink(missing_ok=True)
        return None

    def _part(self, name: str) -> Path:
        part = self._path.with_name(f".{self._path.name}.{name}")
        part.unlink(missing_ok=True)
        return part

    # Following

    def _begin(self) -> None:
        self.settle()

    def _restore(self) -> None:
        """Restore the database: as a new file, or in place after it was set aside."""
        if self.lock is None:
            self._restore_file()
        if self.lock is not None and self.followed is None:
            self._check_lineage(self.lock)
            self._set_aside(self.lock)
            self.followed = Followed(EMPTY, 0, 0)
            self._known = Known(self.followed, self.lock.state())
            for file in plan_restore(self._layout.all_files(), address=self._store.address):
                self._apply([file])

    def _restore_file(self) -> None:
        part = self._part("following")
        for suffix in ("-journal", "-wal", "-shm"):  # of an earlier database: SQLite would write it into this one
            self._path.with_name(f"{self._path.name}{suffix}").unlink(missing_ok=True)
        restored = restore(self._store, self._layout, part)
        try:
            self._path.hardlink_to(part)  # never over a file: an application may have made and opened one meanwhile
        except FileExistsError:
            self.hold()
            return
        finally:
            part.unlink()
        OsDisk().sync_folder(self._path.absolute().parent)
        if self.hold() and self.lock is not None and self.lock.state().position.offset == LOG_HEADER_BYTES:
            followed = Followed(restored.position, restored.epoch, restored.timestamp_ms)
            self._remember(Known(followed, self.lock.state()))

    def _check_lineage(self, lock: WriteLock) -> None:
        """Refuse a database that belongs to another replica."""
        with sqlite_errors(self._path):
            has_table = list(lock.connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (TABLE,)))
            rows = list(lock.connection.execute(f"SELECT lineage FROM {TABLE}")) if has_table else []  # noqa: S608 - ours
        if rows and rows[0][0] != find_lineage(self._store):
            raise ReplicaForeign(self._store.address, "it holds the replica of another database")

    def _set_aside(self, lock: WriteLock) -> None:
        if self.is_blank():
            return
        part = self._part("set-aside")
        _back_up(lock.connection, part)
        number = 1
        while (kept := self._path.with_name(f"{self._path.name}.set-aside-{number}")).exists():
            number += 1
        part.rename(kept)
        OsDisk().sync_folder(kept.parent)
        noted = max((known.followed.position.txid for known in self._noted(0)), default=0)
        logger.warning(
            "%s may have commits after transaction %d that were not shipped: kept as %s", self._path, noted, kept
        )
        self._told(kept, noted)

    def _commit(self, pages: Mapping[int, bytes], commit: int, page_size: int, followed: Followed) -> None:
        assert self.lock is not None  # noqa: S101 - it is settled first
        transaction = self.lock.prepare(pages, commit, page_size)
        after = Known(followed, transaction.state)
        noted = [*([self._known] if self._known else []), after]
        _replace(self._state_path, format_node_state(noted, self._store.address))
        self.lock.write(transaction)
        self.followed, self._known = followed, after

    def _remember(self, known: Known) -> None:
        _replace(self._state_path, format_node_state([known], self._store.address))
        self.followed, self._known = known.followed, known


def format_node_state(noted: list[Known], address: str) -> str:
    """Return the transactions that a database may hold, as the text of the file beside it."""
    body = [
        {
            "followed": followed_fields(known.followed),
            "log": log_fields(known.log),
        }
        for known in noted
    ]
    return json.dumps({"version": _VERSION, "address": address, "noted": body}) + "\n"


def parse_node_state(text: str, path: str, address: str) -> list[Known]:
    """Return what `format_node_state` wrote for the replica at an address; nothing where it was for another one."""
    try:
        body = json.loads(text)
        if body["version"] != _VERSION:
            raise FormatError(path, f"version {body['version']} is of a later Strandline")
        if not is_same_place(str(body["address"]), address):
            return []
        noted = [Known(parse_followed(one["followed"]), parse_log(one["log"])) for one in body["noted"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, "it is not a node's file") from error
    return noted


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    with storage_errors(path):
        temporary.write_text(text)
        temporary.replace(path)


def _create(path: Path) -> None:
    """Make an empty database in WAL mode."""
    with sqlite_errors(path):
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA journal_mode = wal")
        connection.close()


def _back_up(source: "apsw.Connection", to: Path) -> None:
    """Write a database, with its log, as one file that stays after a power cut."""
    with sqlite_errors(to):
        target = apsw.Connection(str(to))
        try:
            with target.backup("main", source, "main") as backup:
                backup.step()
        finally:
            target.close()
    descriptor = os.open(to, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _are_equal(one: Path, other: Path) -> bool:
    """Return whether two databases have the same pages, but for what each copy has of its own."""
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        is_first = True
        while left := bytearray(first.read(_COMPARED_BYTES)):
            right = bytearray(second.read(_COMPARED_BYTES))
            if is_first:
                for start, stop in _OWN_HEADER_FIELDS:
                    left[start:stop] = right[start:stop] = bytes(stop - start)
            if left != right:
                return False
            is_first = False
    return True
