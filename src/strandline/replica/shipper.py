"""Shipping: changes become level-0 files, one transaction each, created where there is none.

Invariants: the position moves after the upload, never before; a transaction's name is free or ours, so that of two
leaders that both hold themselves for one exactly one writes it; each file names its leader's epoch and its predecessor.
A name may be free because the file of another leader was merged and removed meanwhile: a shipper that was away for
longer than `SURE_FOR_S`, the least for which retention keeps single transactions, looks for that before its position
moves.

One file is one write, since no multipart upload is created where there is none on every store (decision 0039): a
transaction of more than a store takes in one write ends the replicator.

A file of more than `SPOOL_BYTES` is on disk, beside the database, until it is in the object store.
"""

import mmap
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from strandline.errors import Unavailable
from strandline.objects import ObjectConflict, ObjectStore, ObjectTooLarge
from strandline.replica.capture import Change
from strandline.replica.errors import LtxDamaged, ReplicaFenced, TransactionTooLarge
from strandline.replica.layout import LEVELS, Layout, LtxFile
from strandline.replica.ltx import HEADER_BYTES, Buffer, LtxHeader, encode, file_checksum, parse_header


class Position(NamedTuple):
    """A place in the history of a replica: the last transaction, and the checksum of the file that ends with it."""

    txid: int
    checksum: int


EMPTY = Position(0, 0)
SURE_FOR_S = 120.0
SPOOL_BYTES = 16 << 20
PIECE_BYTES = 4 << 20


class Shipment(NamedTuple):
    """A change as the file of the next transaction, ready to be written any number of times."""

    txid: int
    body: Buffer
    header: LtxHeader

    @property
    def position(self) -> Position:
        """Return the position after it."""
        return Position(self.txid, file_checksum(self.body))


class Shipper:
    """Writes the next transactions of one replica."""

    def __init__(
        self,
        store: ObjectStore,
        layout: Layout,
        position: Position = EMPTY,
        *,
        epoch: int = 0,
        folder: Path | None = None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._layout = layout
        self._epoch = epoch
        self.position = position
        self._sure_s = _elapsed_s()

    def pack(self, change: Change) -> Shipment:
        """Return a change as the next transaction; nothing is written."""
        txid = self.position.txid + 1
        header = LtxHeader(
            change.page_size,
            change.commit,
            txid,
            txid,
            time.time_ns() // 1_000_000,
            change.start,
            max(0, change.state.position.offset - change.start),
            change.state.salts,
            self._epoch,
            0 if change.is_whole else self.position.checksum,
        )
        return Shipment(txid, _spooled(encode(header, change.pages), self._folder), header)

    def ship(self, shipment: Shipment) -> Position:
        """Write a transaction and return the new position.

        `ReplicaFenced` where another leader has written it. Other errors leave the position where it was, and the same
        shipment may be shipped again: where an earlier attempt has written it after all, that is found out.
        """
        key = self._layout.key(0, shipment.txid, shipment.txid)
        metadata = self._layout.metadata(shipment.header.timestamp_ms)
        position, sent_s = shipment.position, _elapsed_s()
        try:
            self._store.put(key, shipment.body, if_absent=True, metadata=metadata)
        except ObjectConflict:
            if not self._is_ours(key, shipment.body):
                raise self._fenced(key, shipment.txid) from None
        except ObjectTooLarge as error:
            raise TransactionTooLarge(self._store.address, shipment.txid, error.size) from error
        if _elapsed_s() - self._sure_s > SURE_FOR_S:
            self._check_not_merged(key, position)
        self._sure_s = sent_s
        self.position = position
        return self.position

    def _is_ours(self, key: str, body: Buffer) -> bool:
        """Return whether an object has these bytes: an earlier attempt has written it after all."""
        info = self._store.head(key)
        if info is None:
            raise Unavailable(f"{key} was there, and is not", hint="it is tried again")
        if info.size != len(body):
            return False
        for start in range(0, len(body), PIECE_BYTES):
            found = self._store.get(key, start=start, stop=min(start + PIECE_BYTES, len(body)))
            if found is None or found.body != body[start : start + PIECE_BYTES]:
                return False
        return True

    def _check_not_merged(self, key: str, position: Position) -> None:
        """Take a transaction back where a merged file has another one of its number."""
        for level in LEVELS[1:]:
            for file in self._layout.files(level):
                if not file.min_txid <= position.txid <= file.max_txid:
                    continue
                if file.max_txid == position.txid and position_of(self._store, file) == position:
                    continue  # an attempt of ours, whose answer was lost
                error = self._fenced(file.key, position.txid)
                self._store.delete(key)
                raise error

    def _fenced(self, key: str, txid: int) -> ReplicaFenced:
        found = self._store.get(key, stop=HEADER_BYTES)
        epoch = parse_header(found.body, key).epoch if found else 0
        return ReplicaFenced(self._store.address, txid, epoch)


def _spooled(pieces: Iterable[bytes], folder: Path | None) -> Buffer:
    """Return pieces as one buffer: in memory, or in a file without a name where they are large."""
    held, size = list[bytes](), 0
    pieces = iter(pieces)
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > SPOOL_BYTES:
            break
    else:
        return b"".join(held)
    with tempfile.TemporaryFile(dir=folder) as file:
        for piece in held:
            file.write(piece)
        held.clear()
        for piece in pieces:
            file.write(piece)
        file.flush()
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def find_position(store: ObjectStore, layout: Layout, *, after: int = 0) -> Position:
    """Return the last position of a replica, whichever level it is in; `EMPTY` where there is none."""
    last = max(
        (file for level in LEVELS for file in layout.files(level, after=after if level == 0 else 0)),
        key=lambda file: (file.max_txid, -file.level),
        default=None,
    )
    return EMPTY if last is None else position_of(store, last)


def position_of(store: ObjectStore, last: LtxFile) -> Position:
    """Return the position at the end of a file."""
    head, tail = store.get(last.key, stop=HEADER_BYTES), store.get(last.key, start=max(0, last.size - 8))
    if head is None or tail is None:
        raise LtxDamaged(last.key, "it went away while the replica was read")
    checksum = parse_header(head.body, last.key).end_checksum(file_checksum(tail.body))
    return Position(last.max_txid, checksum)


def _elapsed_s() -> float:
    """Return the time of a clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
