"""A follower: a local copy of a replicated database that is kept current in place, while ordinary connections read it.

Invariants: readers see the database after one transaction of the replica or after another, never between; a follower
that is killed anywhere leaves a database that any SQLite opens at the transaction before or the one after; files are
applied in order and without a gap, each following the one before it by its predecessor and under no lower epoch.

A transaction is applied as SQLite itself would commit it in rollback mode: under its exclusive lock the old content of
the pages goes to a rollback journal, which is synced; then the pages are written and synced, and the journal is
removed. A reader that finds the journal of a dead follower rolls back. In page 1 the copy is marked as a database
without a write-ahead log, and its change counter moves with every transaction, so that readers drop what they cached.

How far a copy is follows from its change counter: the state names the counter before and after the transaction that is
applied next, and is synced before the copy is touched. A copy with another counter is of an unknown state, and is
written anew. So no kill and no power cut makes a follower skip a transaction or apply an old one over newer pages.

    <database>                    the copy; readers open it read-only
    <database>-journal            while a transaction is applied
    <database>-strandline         how far it is before and after the transaction that is applied (JSON)

Memory is bounded: pages go through a file without a name, beside the copy.
"""

import contextlib
import json
import os
import secrets
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from strandline.errors import FormatError, Unavailable
from strandline.files import OsDisk, replace_file, storage_errors
from strandline.lazy_imports import deferred
from strandline.objects import ObjectStore
from strandline.replica.connections import real_path, sqlite_errors
from strandline.replica.cursor import cursor_path
from strandline.replica.errors import LtxDamaged, ReplicaFork, ReplicaGap
from strandline.replica.layout import LEVELS, Layout, LtxFile
from strandline.replica.ltx import LtxReader, lock_page
from strandline.replica.restore import file_pieces, restore
from strandline.replica.restore_points import plan_restore
from strandline.replica.shipper import EMPTY, Position

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

BATCH_BYTES = 32 << 20
"""How many bytes of files are applied as one transaction, at least one file."""
LOCK_PAUSE_S = 0.005
ROLL_BACK_MS = 5000
_VERSION = 2
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


class FollowerState(NamedTuple):
    """How far a copy is, by its change counter: at `to` where it is `counter`, at `before` where it is one less."""

    to: Followed
    counter: int
    before: Followed | None = None

    def find(self, counter: int) -> Followed | None:
        """Return how far a copy with a change counter is; None where that is not known."""
        if counter == self.counter:
            return self.to
        return self.before if counter == _previous(self.counter) else None


class Follower:
    """Keeps one copy current. Used by one thread.

    `is_ending` is asked while readers hold the copy: where it says so, `catch_up` gives up with `Unavailable`.
    """

    def __init__(self, store: ObjectStore, path: Path, *, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self._layout = Layout(store)
        self._path = real_path(path)
        self._is_ending = is_ending
        self._file: apsw.VFSFile | None = None
        self._is_known = False
        self._followed: Followed | None = None

    @property
    def followed(self) -> Followed | None:
        """Return how far the copy is; None where there is none, or of an unknown state."""
        if not self._is_known and self._path.exists():
            self._followed = self._find_state()
        self._is_known = True
        return self._followed

    @followed.setter
    def followed(self, followed: Followed | None) -> None:
        self._is_known, self._followed = True, followed

    @property
    def _state_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}-strandline")

    @property
    def _journal_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}-journal")

    def _find_state(self) -> Followed | None:
        state = _read_state(self._state_path)
        if state is None:
            return None
        with storage_errors(self._path), sqlite_errors(self._path):
            if self._journal_path.exists():
                _roll_back(self._path)
            return state.find(_counter(self._opened()))

    def catch_up(self) -> Followed:
        """Apply everything that the replica has beyond the copy; return how far it is then."""
        if self.followed is None:
            self._begin()
        while files := self._next_files():
            self._apply(files)
        assert self._followed is not None  # noqa: S101 - `_begin` set it
        return self._followed

    def close(self) -> None:
        """Let go of the copy; it stays as it is."""
        if self._file is not None:
            self._file.xClose()
            self._file = None

    def _begin(self) -> None:
        """Restore the copy; where there is a file of an unknown state, write every page of it anew, in place."""
        cursor_path(self._path).unlink(missing_ok=True)  # of a leader that this was: it says nothing of a copy
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
            followed = Followed(restored.position, restored.epoch, restored.timestamp_ms)
            self._keep(FollowerState(followed, 1))
            part.rename(self._path)
            OsDisk().sync_folder(self._path.absolute().parent)
            self._followed = followed
            return
        plan = plan_restore(self._layout.all_files(), address=self._store.address)
        self._followed = Followed(EMPTY, 0, 0)
        try:
            for file in plan:
                self._apply([file])
        except BaseException:
            if self._followed.position == EMPTY:
                self._followed = None
            raise

    def _next_files(self) -> list[LtxFile]:
        """Return what follows: transactions one by one, or a merged file where they are gone.

        Transactions go in order, so that one with a gap behind it has come after they went: a late request of a former
        leader, which may not be a part of the history. What merged files have decides.
        """
        assert self._followed is not None  # noqa: S101 - the caller looked
        txid = self._followed.position.txid
        files, size = list[LtxFile](), 0
        is_held = is_ahead = False
        for file in self._layout.files(0, after=max(0, txid - 1)):
            if file.max_txid == txid:
                is_held = True  # so are those behind it, if there are any: files go in order
                continue
            expected = files[-1].max_txid + 1 if files else txid + 1
            is_ahead = True
            if file.min_txid != expected:
                return self._bridge(txid)
            if files and size + file.size > BATCH_BYTES:
                break
            files.append(file)
            size += file.size
        if files and not is_held:
            return self._merged_in_place_of(files[0]) or files
        return files if files or (is_held and not is_ahead) else self._bridge(txid)

    def _merged_in_place_of(self, single: LtxFile) -> list[LtxFile]:
        """Return the merged file that has a transaction, if there is one.

        Where the transaction before it is gone, its own name was free too: what is there now may have come late.
        """
        assert self._followed is not None  # noqa: S101 - the caller looked
        having = (file for level in LEVELS[1:] for file in self._layout.files(level))
        merged = [file for file in having if file.min_txid <= single.min_txid <= file.max_txid]
        nearest = sorted(merged, key=lambda file: file.max_txid)[:1]
        if nearest and 1 < nearest[0].min_txid < single.min_txid:  # it does not name what the copy ends with
            self._check(single, self._followed, LtxReader(file_pieces(self._store, single), single.key))
        return nearest

    def _bridge(self, txid: int) -> list[LtxFile]:
        """Return a merged file that goes on behind a transaction; none where nothing is behind it."""
        later = [file for level in LEVELS for file in self._layout.files(level) if file.max_txid > txid]
        going_on = [file for file in later if file.min_txid <= txid + 1]
        if later and not going_on:
            raise ReplicaGap(self._store.address, txid, "transactions are missing")
        return sorted(going_on, key=lambda file: file.max_txid)[-1:]

    def _apply(self, files: Sequence[LtxFile]) -> None:
        """Apply files as one transaction."""
        assert self._followed is not None  # noqa: S101 - the caller looked
        followed, commit, page_size = self._followed, 0, 0
        with storage_errors(self._path), _Pages(self._path.absolute().parent) as pages:
            for file in files:
                reader = LtxReader(file_pieces(self._store, file), file.key)
                header = reader.header
                self._check(file, followed, reader)
                pages.add(header.page_size, reader.pages())
                assert reader.end is not None  # noqa: S101 - all pages were handed out
                commit, page_size = header.commit, header.page_size
                position = Position(header.max_txid, header.end_checksum(reader.end.checksum))
                followed = Followed(position, max(header.epoch, followed.epoch), header.timestamp_ms)
            pages.cut(commit)
            self._commit(pages, commit, page_size, followed)

    def _commit(self, pages: Mapping[int, bytes], commit: int, page_size: int, followed: Followed) -> None:
        """Make pages a transaction of the copy, which says how far it is."""
        self._apply_pages(pages, commit, page_size, followed)
        self.followed = followed

    def _check(self, file: LtxFile, followed: Followed, reader: LtxReader) -> None:
        header = reader.header
        if (header.min_txid, header.max_txid) != (file.min_txid, file.max_txid):
            raise LtxDamaged(file.key, f"it holds transactions {header.min_txid} to {header.max_txid}")
        if header.epoch and header.epoch < followed.epoch:
            raise ReplicaFork(self._store.address, followed.position.txid, file.key, header.epoch, followed.epoch)
        is_next = header.min_txid == followed.position.txid + 1
        if is_next and followed.position.txid and not header.continues(followed.position.checksum):
            raise ReplicaFork(self._store.address, followed.position.txid, file.key, header.epoch, followed.epoch)

    def _apply_pages(self, pages: Mapping[int, bytes], commit: int, page_size: int, followed: Followed) -> None:
        """Make pages the content of the copy, as one transaction of SQLite."""
        with storage_errors(self._path), sqlite_errors(self._path):
            if (
                self._journal_path.exists()
            ):  # of a transaction that was not finished, by this follower or an earlier one
                _roll_back(self._path)
            self._write_pages(pages, commit, page_size, followed)

    def _write_pages(self, pages: Mapping[int, bytes], commit: int, page_size: int, followed: Followed) -> None:
        file = self._opened()
        with _locked(file, self._is_ending):
            size = file.xFileSize()
            before, counter = -(-size // page_size), _counter(file)
            first = pages[1] if 1 in pages else file.xRead(page_size, 0)
            known = self._followed if self._followed and self._followed.position != EMPTY else None
            self._keep(FollowerState(followed, _next(counter), known))
            lock = lock_page(page_size)
            old = [] if 1 in pages else [1]
            removed = (number for number in range(commit + 1, before + 1) if number != lock)
            numbers = (*old, *(number for number in pages if number <= before))
            read = (
                (number, _read_page(file, number, page_size, size)) for part in (numbers, removed) for number in part
            )
            _write_journal(self._journal_path, before, page_size, read)
            for number in pages:
                if number > 1:
                    file.xWrite(pages[number], (number - 1) * page_size)
            file.xWrite(_page_one(first, _next(counter), commit), 0)
            file.xTruncate(commit * page_size)
            file.xSync(apsw.SQLITE_SYNC_NORMAL)
            self._journal_path.unlink()
            OsDisk().sync_folder(self._path.absolute().parent)

    def _opened(self) -> "apsw.VFSFile":
        """Return the file, through SQLite's own layer, which knows of the locks of this process."""
        if self._file is None:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB
            self._file = apsw.VFSFile("", str(self._path.absolute()), [flags, 0])
        return self._file

    def _keep(self, state: FollowerState) -> None:
        """Make a state durable."""
        with storage_errors(self._state_path):
            replace_file(OsDisk(), self._state_path, format_state(state).encode())


class _Pages(Mapping[int, bytes]):
    """Pages by their numbers, ascending, in a file without a name: each where it is in the database."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed at the end of the block
        self._page_size = 0
        self._has = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, page_size: int, pages: Iterator[tuple[int, bytes]]) -> None:
        """Take the pages of a file; those of another size that came before are gone with it."""
        if page_size != self._page_size:
            self._page_size, self._has = page_size, bytearray()
        for number, page in pages:
            os.pwrite(self._file.fileno(), page, (number - 1) * page_size)
            if number >= len(self._has):
                self._has.extend(bytes(max(number + 1 - len(self._has), len(self._has))))
            self._has[number] = 1

    def cut(self, commit: int) -> None:
        """Forget the pages beyond the size of the database."""
        del self._has[commit + 1 :]

    def __iter__(self) -> Iterator[int]:
        at = self._has.find(1)
        while at >= 0:
            yield at
            at = self._has.find(1, at + 1)

    def __len__(self) -> int:
        return self._has.count(1)

    def __getitem__(self, number: int) -> bytes:
        if number not in self:
            raise KeyError(number)
        return os.pread(self._file.fileno(), self._page_size, (number - 1) * self._page_size)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and 0 < number < len(self._has) and self._has[number] == 1


def format_state(state: FollowerState) -> str:
    """Return how far a follower is, as the text of the file beside its copy."""
    before = None if state.before is None else followed_fields(state.before)
    return (
        json.dumps({"version": _VERSION, "counter": state.counter, **followed_fields(state.to), "before": before})
        + "\n"
    )


def followed_fields(followed: Followed) -> dict[str, object]:
    """Return how far a copy is, as fields of JSON."""
    return {
        "txid": followed.position.txid,
        "checksum": f"{followed.position.checksum:016x}",
        "epoch": followed.epoch,
        "timestamp_ms": followed.timestamp_ms,
    }


def parse_state(text: str, path: str) -> FollowerState:
    """Return what `format_state` wrote. Version 1 does not say of which copy it is: that is written anew."""
    try:
        body = json.loads(text)
        if body["version"] != _VERSION:
            raise FormatError(path, f"it has version {body['version']}, and not {_VERSION}")
        before = None if body["before"] is None else parse_followed(body["before"])
        return FollowerState(parse_followed(body), body["counter"], before)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, "it is not a follower's file") from error


def parse_followed(body: "dict[str, int | str]") -> Followed:
    """Return what `followed_fields` gave."""
    position = Position(int(body["txid"]), int(str(body["checksum"]), 16))
    return Followed(position, int(body["epoch"]), int(body["timestamp_ms"]))


def _read_state(path: Path) -> FollowerState | None:
    with contextlib.suppress(OSError, FormatError):
        return parse_state(path.read_text(), str(path))
    return None


@contextlib.contextmanager
def _locked(file: "apsw.VFSFile", is_ending: Callable[[], bool]) -> Iterator[None]:
    """Hold SQLite's exclusive lock; readers finish first, and new ones wait."""
    try:
        for level in (apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED, apsw.SQLITE_LOCK_EXCLUSIVE):
            while True:
                try:
                    file.xLock(level)
                    break
                except apsw.BusyError:
                    if is_ending():
                        raise Unavailable("readers hold the copy", hint="it goes on where it was") from None
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
    """Return the change counter of a copy; 0 where it has none yet."""
    if file.xFileSize() < _CHANGE_COUNTER + 4:
        return 0
    return int.from_bytes(file.xRead(4, _CHANGE_COUNTER), "big")


def _next(counter: int) -> int:
    return (counter + 1) & 0xFFFFFFFF


def _previous(counter: int) -> int:
    return (counter - 1) & 0xFFFFFFFF


def _page_one(page: bytes, counter: int, commit: int) -> bytes:
    """Return page 1 of a database without a write-ahead log, and with a change counter and a size."""
    patched = bytearray(page)
    patched[18:20] = b"\1\1"
    counted = int.from_bytes(page[_SIZE : _SIZE + 4], "big")
    if page[_CHANGE_COUNTER : _CHANGE_COUNTER + 4] == page[_VALID_FOR : _VALID_FOR + 4] and 0 < counted < commit:
        commit = counted  # pages follow that belong to no database yet (`snapshot_parts`)
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
