"""A follower: a local copy of a replicated database that is kept current in place, while ordinary connections read it.

Invariants: readers see the database after one transaction of the replica or after another, never between; a follower
that is killed anywhere leaves a database that any SQLite opens at the transaction before or the one after; files are
applied in order and without a gap, each following the one before it by its predecessor and under no lower epoch.

A transaction is applied as SQLite itself would commit it in rollback mode: under its exclusive lock the old content of
the pages goes to a rollback journal, which is synced; then the pages are written and synced, and the journal is
removed. A reader that finds the journal of a dead follower rolls back. In page 1 the copy is marked as a database
without a write-ahead log, and its change counter moves with every transaction, so that readers drop what they cached.

    <database>                    the copy; readers open it read-only
    <database>-journal            while a transaction is applied
    <database>-strandline         how far it is (JSON): a hint, since applying a file again changes nothing
"""

import contextlib
import json
import os
import secrets
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.errors import FormatError
from strandline.files import OsDisk, storage_errors
from strandline.lazy_imports import deferred
from strandline.objects import ObjectStore
from strandline.replica.capture import sqlite_errors
from strandline.replica.errors import LtxDamaged, ReplicaFork, ReplicaGap
from strandline.replica.layout import LEVELS, Layout, LtxFile
from strandline.replica.ltx import LtxReader, lock_page
from strandline.replica.restore import plan_restore, restore
from strandline.replica.shipper import EMPTY, Position

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

BATCH_BYTES = 32 << 20
"""How many bytes of files are applied as one transaction, at least one file."""
LOCK_PAUSE_S = 0.005
ROLL_BACK_MS = 5000
_VERSION = 1
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_SECTOR_BYTES = 512
_U32 = struct.Struct(">I")
_JOURNAL_HEADER = struct.Struct(">8s5I")
_CHANGE_COUNTER, _SIZE, _VALID_FOR = 24, 28, 92


class Followed(NamedTuple):
    """How far a follower is."""

    position: Position
    epoch: int
    timestamp_ms: int


class Follower:
    """Keeps one copy current. Used by one thread."""

    def __init__(self, store: ObjectStore, path: Path) -> None:
        self._store = store
        self._layout = Layout(store)
        self._path = path
        self._file: apsw.VFSFile | None = None
        self.followed = _read_state(self._state_path) if path.exists() else None

    @property
    def _state_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}-strandline")

    def catch_up(self) -> Followed:
        """Apply everything that the replica has beyond the copy; return how far it is then."""
        if self.followed is None:
            self._begin()
        while files := self._next_files():
            self._apply(files)
        assert self.followed is not None  # noqa: S101 - `_begin` set it
        return self.followed

    def close(self) -> None:
        """Let go of the copy; it stays as it is."""
        if self._file is not None:
            self._file.xClose()
            self._file = None

    def _begin(self) -> None:
        """Restore the copy; where there is a file of an unknown state, write every page of it anew, in place."""
        if not self._path.exists():
            part = self._path.with_name(f".{self._path.name}.following")
            part.unlink(missing_ok=True)
            restored = restore(self._store, self._layout, part)
            with part.open("r+b") as out:  # before readers see it: who opened it with a log would never let it go
                page = out.read(restored.page_size)
                out.seek(0)
                out.write(_page_one(page, 1, restored.size // restored.page_size))
                out.flush()
                os.fsync(out.fileno())
            for suffix in ("-journal", "-wal", "-shm"):  # of an earlier copy: SQLite would write it into this one
                self._path.with_name(f"{self._path.name}{suffix}").unlink(missing_ok=True)
            self._state_path.unlink(missing_ok=True)
            part.rename(self._path)
            OsDisk().sync_folder(self._path.parent)
            self._keep(Followed(restored.position, restored.epoch, restored.timestamp_ms))
            return
        plan = plan_restore(self._layout.all_files(), address=self._store.address)
        self.followed = Followed(EMPTY, 0, 0)
        for file in plan:
            self._apply([file])

    def _next_files(self) -> list[LtxFile]:
        """Return what follows: transactions one by one, or a merged file where they are gone."""
        assert self.followed is not None  # noqa: S101 - the caller looked
        txid = self.followed.position.txid
        files, size = list[LtxFile](), 0
        is_held = is_ahead = False
        for file in self._layout.files(0, after=max(0, txid - 1)):
            if file.max_txid == txid:
                is_held = True  # so are those behind it, if there are any: files go in order
                continue
            expected = files[-1].max_txid + 1 if files else txid + 1
            is_ahead = True
            if file.min_txid != expected or (files and size + file.size > BATCH_BYTES):
                break
            files.append(file)
            size += file.size
        return files if files or (is_held and not is_ahead) else self._bridge(txid)

    def _bridge(self, txid: int) -> list[LtxFile]:
        """Return a merged file that goes on behind a transaction; none where nothing is behind it."""
        later = [file for level in LEVELS for file in self._layout.files(level) if file.max_txid > txid]
        going_on = [file for file in later if file.min_txid <= txid + 1]
        if later and not going_on:
            raise ReplicaGap(self._store.address, txid, "transactions are missing")
        return sorted(going_on, key=lambda file: file.max_txid)[-1:]

    def _apply(self, files: Sequence[LtxFile]) -> None:
        """Apply files as one transaction."""
        assert self.followed is not None  # noqa: S101 - the caller looked
        followed, pages, commit, page_size = self.followed, dict[int, bytes](), 0, 0
        for file in files:
            found = self._store.get(file.key)
            if found is None:
                raise LtxDamaged(file.key, "it went away while it was read")
            reader = LtxReader([found.body], file.key)
            header = reader.header
            self._check(file, followed, reader)
            pages.update(reader.pages())
            assert reader.end is not None  # noqa: S101 - all pages were handed out
            commit, page_size = header.commit, header.page_size
            position = Position(header.max_txid, header.end_checksum(reader.end.checksum))
            followed = Followed(position, max(header.epoch, followed.epoch), header.timestamp_ms)
        kept = {number: page for number, page in pages.items() if number <= commit}
        self._commit(kept, commit, page_size, followed)

    def _commit(self, pages: Mapping[int, bytes], commit: int, page_size: int, followed: Followed) -> None:
        """Make pages a transaction of the copy, and remember how far that is."""
        self._apply_pages(pages, commit, page_size)
        self._keep(followed)

    def _check(self, file: LtxFile, followed: Followed, reader: LtxReader) -> None:
        header = reader.header
        if (header.min_txid, header.max_txid) != (file.min_txid, file.max_txid):
            raise LtxDamaged(file.key, f"it holds transactions {header.min_txid} to {header.max_txid}")
        if header.epoch and header.epoch < followed.epoch:
            raise ReplicaFork(self._store.address, followed.position.txid, file.key, header.epoch, followed.epoch)
        is_next = header.min_txid == followed.position.txid + 1
        if is_next and followed.position.txid and not header.continues(followed.position.checksum):
            raise ReplicaFork(self._store.address, followed.position.txid, file.key, header.epoch, followed.epoch)

    def _apply_pages(self, pages: Mapping[int, bytes], commit: int, page_size: int) -> None:
        """Make pages the content of the copy, as one transaction of SQLite."""
        journal = self._path.with_name(f"{self._path.name}-journal")
        with storage_errors(self._path), sqlite_errors(self._path):
            if journal.exists():  # of a transaction that was not finished, by this follower or an earlier one
                _roll_back(self._path)
            self._write_pages(journal, pages, commit, page_size)

    def _write_pages(self, journal: Path, pages: Mapping[int, bytes], commit: int, page_size: int) -> None:
        file = self._opened()
        with _locked(file):
            before = -(-file.xFileSize() // page_size)
            first = pages.get(1) or file.xRead(page_size, 0)
            changed = {**pages, 1: _page_one(first, _counter(file), commit)}
            old = [number for number in sorted(changed) if number <= before]
            old += [number for number in range(commit + 1, before + 1) if number != lock_page(page_size)]
            size = file.xFileSize()
            read = ((number, _read_page(file, number, page_size, size)) for number in old)
            _write_journal(journal, before, page_size, read)
            for number, page in changed.items():
                file.xWrite(page, (number - 1) * page_size)
            file.xTruncate(commit * page_size)
            file.xSync(apsw.SQLITE_SYNC_NORMAL)
            journal.unlink()
            OsDisk().sync_folder(self._path.parent)

    def _opened(self) -> "apsw.VFSFile":
        """Return the file, through SQLite's own layer, which knows of the locks of this process."""
        if self._file is None:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB
            self._file = apsw.VFSFile("", str(self._path.absolute()), [flags, 0])
        return self._file

    def _keep(self, followed: Followed) -> None:
        # It is not synced: an old one has files applied again, which changes nothing.
        temporary = self._state_path.with_name(f"{self._state_path.name}.tmp")
        temporary.write_text(format_state(followed))
        temporary.replace(self._state_path)
        self.followed = followed


def format_state(followed: Followed) -> str:
    """Return how far a follower is, as the text of the file beside its copy."""
    position = followed.position
    body = {
        "version": _VERSION,
        "txid": position.txid,
        "checksum": f"{position.checksum:016x}",
        "epoch": followed.epoch,
        "timestamp_ms": followed.timestamp_ms,
    }
    return json.dumps(body) + "\n"


def parse_state(text: str, path: str) -> Followed:
    """Return what `format_state` wrote."""
    try:
        body = json.loads(text)
        if body["version"] != _VERSION:
            raise FormatError(path, f"version {body['version']} is of a later Strandline")
        return Followed(Position(body["txid"], int(body["checksum"], 16)), body["epoch"], body["timestamp_ms"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, "it is not a follower's file") from error


def _read_state(path: Path) -> Followed | None:
    with contextlib.suppress(OSError, FormatError):
        return parse_state(path.read_text(), str(path))
    return None


@contextlib.contextmanager
def _locked(file: "apsw.VFSFile") -> Iterator[None]:
    """Hold SQLite's exclusive lock; readers finish first, and new ones wait."""
    try:
        for level in (apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED, apsw.SQLITE_LOCK_EXCLUSIVE):
            while True:
                try:
                    file.xLock(level)
                    break
                except apsw.BusyError:
                    time.sleep(LOCK_PAUSE_S)
        yield
    finally:
        file.xUnlock(apsw.SQLITE_LOCK_NONE)


def _roll_back(path: Path) -> None:
    """Have SQLite undo a transaction that an earlier follower did not finish."""
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(ROLL_BACK_MS)
    try:
        list(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1"))
    finally:
        connection.close()


def _read_page(file: "apsw.VFSFile", number: int, page_size: int, size: int) -> bytes:
    """Return a page; zeros behind the end of the file, which pages of another size may have left uneven."""
    start = (number - 1) * page_size
    return file.xRead(min(page_size, size - start), start).ljust(page_size, b"\0")


def _counter(file: "apsw.VFSFile") -> int:
    """Return a change counter that readers have not seen."""
    if file.xFileSize() < _CHANGE_COUNTER + 4:
        return 1
    return (int.from_bytes(file.xRead(4, _CHANGE_COUNTER), "big") + 1) & 0xFFFFFFFF


def _page_one(page: bytes, counter: int, commit: int) -> bytes:
    """Return page 1 of a database without a write-ahead log, and with a change counter and a size."""
    patched = bytearray(page)
    patched[18:20] = b"\1\1"
    for offset, value in ((_CHANGE_COUNTER, counter), (_SIZE, commit), (_VALID_FOR, counter)):
        patched[offset : offset + 4] = _U32.pack(value)
    return bytes(patched)


def _write_journal(path: Path, before: int, page_size: int, pages: Iterator[tuple[int, bytes]]) -> None:
    """Write SQLite's rollback journal: the pages as they are, which the next opening puts back."""
    nonce, count = secrets.randbits(32), 0
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as journal:
        journal.write(bytes(_SECTOR_BYTES))
        for number, page in pages:
            total = nonce + sum(page[page_size - 200 : 0 : -200])
            journal.write(_U32.pack(number) + page + _U32.pack(total & 0xFFFFFFFF))
            count += 1
        journal.flush()
        os.fsync(journal.fileno())
        head = _JOURNAL_HEADER.pack(_JOURNAL_MAGIC, count, nonce, before, _SECTOR_BYTES, page_size)
        os.pwrite(journal.fileno(), head, 0)
        os.fsync(journal.fileno())
    OsDisk().sync_folder(path.parent)
