"""SQLite, shipped to object storage as it commits.

**Promise.** The replicated position never names a transaction that is not in the object store, and no two leaders are
ever acknowledged for the same position.

**How.** A process beside the application, or a thread within it, reads the write-ahead log and writes each group of
commits as one file of litestream's format.

    wal           SQLite's write-ahead log, as pure code
    ltx           LTX files, as pure code
    connections   connections to a database, and which databases are refused
    capture       the commits of one database, while the application writes it
    layout        where the files of a replica are
    lineage       whose replica a place holds
    cursor        what a replicator knows of its replica, beside the database
    snapshot_parts    the first snapshot of a large database, in transactions of bounded size
    shipper       changes become transactions of a replica, each created where there is none
    replicator    does both, step by step, and comes again where the store is away
    pool          many replicators in a few threads
    restore       a database as it was after a transaction or at a time
    follower      a local copy that is kept current in place, while it is read
    roles         the roles of a node, and what routing asks of one
    node          leader or follower: promotes, demotes, rejoins
    node_events   what a node tells: its role, a database set aside, trouble, health
    node_copy     the database of a node: which transaction it holds, set aside, followed in place
    registration  the registration of a follower, and names that are taken
    nodes         who leads and who follows, as the object store has it
    directory     the same for clients that know the address of the replica alone, with what failed left out
    compaction    many files merged into one, in bounded memory; snapshots
    retention     which files may go
    maintenance   the thread that does both in their time
    btree         SQLite's b-trees, as pure code: rows from pages
    pages         the pages of a replica at one position, by range requests
    tables        the tables of a database, and their rows, from pages
    check         whether a restored database, and every file of a replica, is whole
    write_lock    SQLite's write lock, held across transactions, and the log written under it
    wal_index     the index of a write-ahead log, as pure code
    cost          what a replica uploads, keeps and costs
    metrics       what a replicator, its maintenance and a follower say to Prometheus
    conditions    what is wrong with them, for alarms
    pace          pauses between steps, and the pace of uploads
    wakeups       waiting until the log changes

**Interoperability.** litestream 0.5 restores what is written here, and what it wrote is restored here.

**Trade-offs.** A transaction of a replica is a group of commits: those that arrived while the one before was written.
A change is held in memory until it is in the store, and on disk where it has more than 16 MiB; the first snapshot of a
large database goes in parts. The log grows while the store is away. Each upload costs three syncs of local files. A
replicator that finds the log begun anew (another process wrote while none was running) writes the whole database once.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names
from strandline.replica.errors import (
    DatabaseRefused,
    HistoryLost,
    LtxDamaged,
    NodeNameTaken,
    NotLeading,
    ReplicaAhead,
    ReplicaFenced,
    ReplicaForeign,
    ReplicaFork,
    ReplicaGap,
    RestorePointMissing,
    TransactionTooLarge,
)
from strandline.replica.layout import Layout, LtxFile
from strandline.replica.restore import Applied, Restored, restore
from strandline.replica.restore_points import find_plan, find_transaction, plan_restore
from strandline.replica.shipper import Position, Shipper, find_position

if _TYPE_CHECKING:
    from strandline.replica.capture import Capture, Change
    from strandline.replica.directory import ReplicaDirectory
    from strandline.replica.follower import Followed, Follower
    from strandline.replica.maintenance import Maintenance, MaintenancePolicy
    from strandline.replica.node import Node
    from strandline.replica.node_events import DatabaseSetAside, NodeHealth, NodeTrouble, RoleChanged
    from strandline.replica.nodes import Discovered, Leader, NodeRecord, discover, register, unregister
    from strandline.replica.pool import ReplicaPool
    from strandline.replica.replicator import ReplicaStatus, Replicator
    from strandline.replica.retention import RetentionPolicy, plan_retention
    from strandline.replica.roles import ReplicaNode, Role

__all__ = [
    "Applied",
    "Capture",
    "Change",
    "DatabaseRefused",
    "DatabaseSetAside",
    "Discovered",
    "Followed",
    "Follower",
    "HistoryLost",
    "Layout",
    "Leader",
    "LtxDamaged",
    "LtxFile",
    "Maintenance",
    "MaintenancePolicy",
    "Node",
    "NodeHealth",
    "NodeNameTaken",
    "NodeRecord",
    "NodeTrouble",
    "NotLeading",
    "Position",
    "ReplicaAhead",
    "ReplicaDirectory",
    "ReplicaFenced",
    "ReplicaForeign",
    "ReplicaFork",
    "ReplicaGap",
    "ReplicaNode",
    "ReplicaPool",
    "ReplicaStatus",
    "Replicator",
    "RestorePointMissing",
    "Restored",
    "RetentionPolicy",
    "Role",
    "RoleChanged",
    "Shipper",
    "TransactionTooLarge",
    "discover",
    "find_plan",
    "find_position",
    "find_transaction",
    "plan_restore",
    "plan_retention",
    "register",
    "restore",
    "unregister",
]

# A restore imports no more than it needs: it is short, and often waited for.
__getattr__ = _lazy_names(
    __name__,
    {
        "capture": ("Capture", "Change"),
        "directory": ("ReplicaDirectory",),
        "follower": ("Followed", "Follower"),
        "maintenance": ("Maintenance", "MaintenancePolicy"),
        "node": ("Node",),
        "node_events": ("DatabaseSetAside", "NodeHealth", "NodeTrouble", "RoleChanged"),
        "nodes": ("Discovered", "Leader", "NodeRecord", "discover", "register", "unregister"),
        "pool": ("ReplicaPool",),
        "replicator": ("ReplicaStatus", "Replicator"),
        "retention": ("RetentionPolicy", "plan_retention"),
        "roles": ("ReplicaNode", "Role"),
    },
)
