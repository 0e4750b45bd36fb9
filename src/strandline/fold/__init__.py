"""A local copy of a bucket that survives restarts: its stores, and the contract that they keep.

**Promise.** A cursor never runs ahead of its data. Whatever happens (a kill, a full disk, a power cut), everything that
a store's cursor covers is in the store when it is opened again; so whoever goes on from the cursor misses nothing. Data
may be ahead of the cursor, which costs a repetition and is never wrong: a change says what holds after it.

**Invariants.** `apply` takes a batch and the cursor after it in one step, in which the last write per key wins. What it
returned from survives the process, and the machine if the store is `SYNCED`, which is the default. A store whose write
failed takes nothing more until it is opened again. Every question sees one moment between two batches.

**Parts.** `SnapshotStore` is the contract; `strandline.testing.check_snapshot_store` tells whether a store of your own
keeps it. `FoldBatch` holds changes as columns, `FoldBatch.from_updates` takes a bucket's as they come.

| store | where | choose it for |
|---|---|---|
| `AppendLogStore` | memory, and one file that is appended to | folds that fit into memory; the default |
| `SqliteStore` | an SQLite file | folds larger than memory, or readers in other processes and languages |
| `RocksDbStore` | a folder of RocksDB's | very large folds, many writes |
| `MemoryStore` | memory | tests, and folds that may be built again |

**Format.** `docs/formats/snapshot-log.md`. Whatever the store, a key's version and value are one record,
`[ver_len u8][version][value]`, and `verify` returns the same digest for the same state.

**Trade-offs.** The append log frames records, not batches: a torn batch leaves its first changes under the old cursor.
Its rule for bad bytes is strict: what a torn write leaves at the end is dropped, but where whole records follow bad
bytes, or a record in the middle does not match its checksum, opening it is `Damaged`, and only `repair_append_log` cuts
it there. On a file system that reorders the sectors of an append, a power cut can do that too. `WRITTEN` saves the sync
of every batch and gives up, with the power, the last seconds: the cursor is then as old as the data. One process
applies, which a lock beside the path sees to.
"""

from strandline.fold.append_log import AppendLogStore, Cut, repair_append_log
from strandline.fold.batches import FoldBatch
from strandline.fold.memory import MemoryStore
from strandline.fold.records import FoldEntry, format_record, parse_record
from strandline.fold.rocksdb import RocksDbStore
from strandline.fold.sqlite import SqliteStore
from strandline.fold.store import Held, SnapshotStore, Verified

__all__ = [
    "AppendLogStore",
    "Cut",
    "FoldBatch",
    "FoldEntry",
    "Held",
    "MemoryStore",
    "RocksDbStore",
    "SnapshotStore",
    "SqliteStore",
    "Verified",
    "format_record",
    "parse_record",
    "repair_append_log",
]
