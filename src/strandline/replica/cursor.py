"""The cursor of a replicator: what is in the object store, what is on its way there, and how far the log was read.

    .<database>-strandline    JSON, replaced and synced before each upload

Invariants: a transaction is named here before it can be in the object store. So a replica that ends with a transaction
that is named here was written last from this database; where it ends with another one, another leader has written, or
this database is an older copy. A database that was restored is another file, of which a cursor says nothing. No upload
needs a second write: the next one, or the next start, finds out which of the two transactions the replica ends with.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from strandline.errors import FormatError
from strandline.files import OsDisk, read_file, replace_file
from strandline.objects import local_folder
from strandline.replica.capture import LogState
from strandline.replica.errors import ReplicaAhead
from strandline.replica.shipper import EMPTY, Position
from strandline.replica.wal import WalPosition

_VERSION = 2


class Shipped(NamedTuple):
    """A transaction of this database; `state` is None where the log is not read on from there."""

    position: Position
    state: LogState | None = None


class ReplicaCursor(NamedTuple):
    """What a replicator knows of its replica."""

    address: str
    shipped: Shipped = Shipped(EMPTY)
    sending: Shipped | None = None
    is_complete: bool = True
    """Whether the replica has the whole database; False while its first snapshot is shipped in parts."""
    inode: int = 0
    """Of the database file: a cursor says nothing of another file that took its place. 0 where it is not known."""

    def is_at(self, address: str) -> bool:
        """Tell whether it is of the replica at an address, however that is written."""
        return is_same_place(self.address, address)

    def find(self, head: Position) -> Shipped | None:
        """Return the transaction that the replica ends with; None where nothing of this database is in it.

        `ReplicaAhead` where the replica has transactions that this database does not have.
        """
        for known in (self.sending, self.shipped):
            if known is not None and known.position == head:
                return known
        if head.txid < self.shipped.position.txid or head == EMPTY:
            return None
        last = self.shipped.position.txid
        reason = f"it was shipped up to {last}, and another leader wrote since, or this is an older copy"
        raise ReplicaAhead(self.address, head.txid, reason)


def is_same_place(one: str, other: str) -> bool:
    """Tell whether two addresses are of one place: with a "/" at the end or without, and by whatever links and "..".

    A leader that takes its own place for another one begins it anew, over the history of the next leader.
    """
    return _place(one) == _place(other)


def _place(address: str) -> str:
    folder = local_folder(address) if address.startswith("file:///") else None
    return address.rstrip("/") if folder is None else os.path.realpath(folder)


def cursor_path(database: Path) -> Path:
    """Return where the cursor of a database is."""
    return database.with_name(f".{database.name}-strandline")


def write_cursor(database: Path, cursor: ReplicaCursor) -> None:
    """Make a cursor durable."""
    replace_file(OsDisk(), cursor_path(database), format_cursor(cursor).encode())


def read_cursor(database: Path) -> ReplicaCursor | None:
    """Return the cursor of a database; None where there is none, or one of another file."""
    path = cursor_path(database)
    found = read_file(OsDisk(), path)
    cursor = None if found is None else parse_cursor(found, str(path))
    return cursor if cursor and cursor.inode in (0, database.stat().st_ino) else None


def format_cursor(cursor: ReplicaCursor) -> str:
    """Return a cursor as JSON."""
    body = {
        "version": _VERSION,
        "address": cursor.address,
        "inode": cursor.inode,
        "complete": cursor.is_complete,
        "shipped": _fields(cursor.shipped),
        "sending": None if cursor.sending is None else _fields(cursor.sending),
    }
    return json.dumps(body) + "\n"


def parse_cursor(text: str | bytes, path: str) -> ReplicaCursor:
    """Return what `format_cursor` wrote, or version 1, which had a transaction that is in the store."""
    try:
        body = json.loads(text)
        if body["version"] == 1:
            return ReplicaCursor(str(body["address"]), _parse({**body, "log": body}))
        if body["version"] != _VERSION:
            raise FormatError(path, f"version {body['version']} is of a later Strandline")
        sending = None if body["sending"] is None else _parse(body["sending"])
        return ReplicaCursor(
            str(body["address"]), _parse(body["shipped"]), sending, bool(body["complete"]), body["inode"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, "it is not the cursor of a replicator") from error


def log_fields(state: LogState) -> dict[str, object]:
    """Return how far a log was read, as fields of JSON."""
    return {
        "salts": state.salts,
        "offset": state.position.offset,
        "log_checksum": state.position.checksum,
        "pages": state.pages,
        "page_size": state.page_size,
    }


def parse_log(fields: dict[str, Any]) -> LogState:
    """Return what `log_fields` gave."""
    first, second = fields["salts"]
    one, other = fields["log_checksum"]
    return LogState((first, second), WalPosition(fields["offset"], (one, other)), fields["pages"], fields["page_size"])


def _fields(shipped: Shipped) -> dict[str, object]:
    log = {} if shipped.state is None else {"log": log_fields(shipped.state)}
    return {"txid": shipped.position.txid, "checksum": f"{shipped.position.checksum:016x}", **log}


def _parse(fields: dict[str, Any]) -> Shipped:
    log = fields.get("log")
    return Shipped(Position(fields["txid"], int(fields["checksum"], 16)), None if log is None else parse_log(log))
