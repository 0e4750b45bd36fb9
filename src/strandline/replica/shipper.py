"""Shipping: changes become level-0 files, one transaction each, created where there is none.

Invariants: the position moves after the upload, never before; a transaction's name is free or ours, so that of two
leaders that both hold themselves for one exactly one writes it; each file names its leader's epoch and its predecessor.
"""

import time
from typing import NamedTuple

from strandline.errors import Unavailable
from strandline.objects import ObjectConflict, ObjectStore
from strandline.replica.capture import Change
from strandline.replica.errors import LtxDamaged, ReplicaFenced
from strandline.replica.layout import LEVELS, Layout
from strandline.replica.ltx import HEADER_BYTES, LtxHeader, encode, file_checksum, parse_header


class Position(NamedTuple):
    """A place in the history of a replica: the last transaction, and the checksum of the file that ends with it."""

    txid: int
    checksum: int


EMPTY = Position(0, 0)


class Shipment(NamedTuple):
    """A change as the file of the next transaction, ready to be written any number of times."""

    txid: int
    body: bytes
    header: LtxHeader


class Shipper:
    """Writes the next transactions of one replica."""

    def __init__(self, store: ObjectStore, layout: Layout, position: Position = EMPTY, *, epoch: int = 0) -> None:
        self._store = store
        self._layout = layout
        self._epoch = epoch
        self.position = position

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
        return Shipment(txid, b"".join(encode(header, change.pages)), header)

    def ship(self, shipment: Shipment) -> Position:
        """Write a transaction and return the new position.

        `ReplicaFenced` where another leader has written it. Other errors leave the position where it was, and the same
        shipment may be shipped again: where an earlier attempt has written it after all, that is found out.
        """
        key = self._layout.key(0, shipment.txid, shipment.txid)
        metadata = self._layout.metadata(shipment.header.timestamp_ms)
        try:
            self._store.put(key, shipment.body, if_absent=True, metadata=metadata)
        except ObjectConflict:
            found = self._store.get(key)
            if found is None:
                raise Unavailable(f"{key} was there, and is not", hint="it is tried again") from None
            if found.body != shipment.body:
                raise self._fenced(key, shipment.txid) from None
        self.position = Position(shipment.txid, file_checksum(shipment.body))
        return self.position

    def _fenced(self, key: str, txid: int) -> ReplicaFenced:
        found = self._store.get(key, stop=HEADER_BYTES)
        epoch = parse_header(found.body, key).epoch if found else 0
        return ReplicaFenced(self._store.address, txid, epoch)


def find_position(store: ObjectStore, layout: Layout, *, after: int = 0) -> Position:
    """Return the last position of a replica, whichever level it is in; `EMPTY` where there is none."""
    last = max(
        (file for level in LEVELS for file in layout.files(level, after=after if level == 0 else 0)),
        key=lambda file: (file.max_txid, -file.level),
        default=None,
    )
    if last is None:
        return EMPTY
    head, tail = store.get(last.key, stop=HEADER_BYTES), store.get(last.key, start=max(0, last.size - 8))
    if head is None or tail is None:
        raise LtxDamaged(last.key, "it went away while the replica was read")
    checksum = parse_header(head.body, last.key).end_checksum(file_checksum(tail.body))
    return Position(last.max_txid, checksum)
