"""Errors of replicas, in the tree of `strandline.errors`.

InvalidInput
├── DatabaseRefused      the file cannot be replicated: no SQLite, no WAL mode, read-only, a library with a fault
├── TransactionTooLarge  a transaction has more bytes than the store takes in one write
└── ReplicaForeign       the place holds the replica of another database
Damaged
├── LtxDamaged           an LTX file is not whole, or not one
├── PageDamaged          a page of a database cannot be what it is read as
└── ReplicaGap           transactions are missing between two files
Conflict
├── ReplicaFenced        another leader wrote the next transaction first
├── ReplicaFork          a file does not continue what was applied
├── NodeNameTaken        another process is a node of the same name
└── NotLeading           this node does not lead, or no longer: nothing that it commits is acknowledged
StrandlineError
├── HistoryLost          the log was used again before it was read; a snapshot goes on
└── RestorePointMissing  the replica does not reach the transaction or time that was asked for
"""

from strandline.errors import Conflict, Damaged, InvalidInput, StrandlineError


class DatabaseRefused(InvalidInput):
    """A file that cannot be replicated; nothing was changed."""

    def __init__(self, path: str, reason: str, *, hint: str) -> None:
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class ReplicaForeign(InvalidInput):
    """The place holds the replica of another database; nothing was written there."""

    def __init__(self, address: str, reason: str) -> None:
        hint = "give this database a place of its own; a database that was restored from a replica goes on with it"
        super().__init__(f"{address}: {reason}", hint=hint)
        self.address = address
        self.reason = reason


class TransactionTooLarge(InvalidInput):
    """A transaction, which may be a whole database, has more bytes than the store takes in one write."""

    def __init__(self, address: str, txid: int, size: int) -> None:
        super().__init__(
            f"{address}: transaction {txid} has {size} bytes, more than the store takes in one write",
            hint="replicate to an empty place: the first snapshot of a database goes there in parts of any number",
        )
        self.address = address
        self.txid = txid
        self.size = size


class LtxDamaged(Damaged):
    """An LTX file is not whole, or not one; nothing of it was used."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem, safe="restore to a transaction before it, or from another replica")


class PageDamaged(Damaged):
    """A page cannot be what it is read as: the database was damaged before it was replicated, or its file since."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(
            f"page {number}", problem, safe="run `strandline replica verify`, and restore it with --verify"
        )
        self.number = number


class ReplicaGap(Damaged):
    """Transactions are missing in a replica, or a file does not follow the one before it."""

    def __init__(self, path: str, txid: int, problem: str) -> None:
        safe = f"restore to transaction {txid}, or let the leader write a snapshot"
        super().__init__(path, f"{problem} after transaction {txid}", safe=safe)
        self.txid = txid


class ReplicaFenced(Conflict):
    """Another leader has written the next transaction; this one writes no more."""

    def __init__(self, address: str, txid: int, epoch: int) -> None:
        super().__init__(
            f"{address}: transaction {txid} was written by another leader, of epoch {epoch}",
            hint="stop writing here; restore from the replica, and set aside what was not replicated",
        )
        self.address = address
        self.txid = txid
        self.epoch = epoch


class ReplicaAhead(Conflict):
    """The replica has transactions that this database does not have; nothing was shipped."""

    def __init__(self, address: str, txid: int, reason: str) -> None:
        super().__init__(
            f"{address}: it has transaction {txid}, which this database does not have: {reason}",
            hint="set it aside and restore from the replica; --adopt (`adopt=True`) ships it as it is, as the next one",
        )
        self.address = address
        self.txid = txid
        self.reason = reason


class ReplicaFork(Conflict):
    """A file does not continue what was applied: it is of another history, or of an older leader."""

    def __init__(self, address: str, txid: int, file: str, epoch: int, known_epoch: int) -> None:
        super().__init__(
            f"{address}: {file}, of epoch {epoch}, does not continue transaction {txid}, of epoch {known_epoch}",
            hint="remove the copy and let it be restored, once it is clear which history is the right one",
        )
        self.address = address
        self.txid = txid
        self.file = file
        self.epoch = epoch
        self.known_epoch = known_epoch


class NotLeading(Conflict):
    """This node does not lead, or leads under another epoch than the one that was meant, 0 if none was."""

    def __init__(self, path: str, epoch: int) -> None:
        under = f" under epoch {epoch}" if epoch else ""
        super().__init__(f"{path}: this node does not lead{under}", hint="send the write to the leader")
        self.path = path
        self.epoch = epoch


class NodeNameTaken(Conflict):
    """Another process that runs is a node of the same name; this one ends, and has written nothing."""

    def __init__(self, address: str, name: str, sign: str) -> None:
        super().__init__(
            f"{address}: another process is the node {name!r}: it {sign}",
            hint="give each node of a replica a name of its own (--name), or end the other process",
        )
        self.address = address
        self.name = name
        self.sign = sign


class HistoryLost(StrandlineError):
    """The write-ahead log does not continue where it was read last; only a snapshot goes on from here."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}", hint="a snapshot is taken by itself")
        self.path = path
        self.reason = reason


class RestorePointMissing(StrandlineError):
    """The replica does not hold what was asked for."""

    def __init__(self, address: str, problem: str, *, hint: str) -> None:
        super().__init__(f"{address}: {problem}", hint=hint)
        self.address = address
        self.problem = problem
