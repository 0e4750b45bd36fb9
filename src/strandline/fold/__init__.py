"""A local copy of a bucket that survives restarts: its stores, and the contract that they keep.

**Promise.** A cursor never runs ahead of its data. Whatever happens (a kill, a full disk, a power cut), everything that
a store's cursor covers is in the store when it is opened again; so a watch from the cursor misses nothing. Data
may be ahead of the cursor, which costs a repetition and is never wrong: a change says what holds after it.

**Invariants.** `apply` takes a batch and the cursor after it in one step, in which the last write per key wins. What it
returned from survives the process, and the machine if the store is `SYNCED`, which is the default. A store whose write
failed takes nothing more until it is opened again. Every question sees one moment between two batches.

**Parts.** `SnapshotStore` is the contract; `strandline.testing.check_snapshot_store` tells whether a store of your own
keeps it. `FoldBatch` holds changes as columns, `FoldBatch.from_updates` takes a bucket's as they come. `open_fold`
opens any of them by its path. `strandline.fold.watch` keeps a fold up to date with its bucket (`watch_applied`), and
`strandline.fold.repair` mends one that has missed updates. Without asyncio: `strandline.follow`. `open_read_only`
reads a fold that another process keeps current; `verify_against` compares one with its bucket at its cursor, `diff` two
folds with each other, and `history` tells what a bucket still holds of a key's past.

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
applies, which a lock beside the path sees to. The append log holds its file in memory, records that no longer count
too, until it is compacted; and it finds keys by an index that the first question builds (0.3 s for a million keys), so
that filling and opening a fold do not wait for it.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.fold.append_log import AppendLogStore, Cut, repair_append_log
from strandline.fold.backends import Backend, backend_of, existing_backend, holder_of, open_fold, open_read_only
from strandline.fold.batches import FoldBatch, Pages, PutColumns
from strandline.fold.bucket_comparison import Comparison, Keys, history, verify_against
from strandline.fold.cursor import FoldCursor, format_fold_cursor, parse_fold_cursor
from strandline.fold.differences import Difference, diff
from strandline.fold.errors import (
    AnotherSource,
    BucketOutruns,
    ModeChanged,
    RepairRefused,
    ScopeChanged,
    StoreKeptFailing,
)
from strandline.fold.memory import MemoryStore
from strandline.fold.records import FoldEntry, format_record, parse_record
from strandline.fold.repair import (
    KeyChange,
    RepairMode,
    RepairPlan,
    RepairPolicy,
    RepairPreview,
    Restorer,
    preview_repair,
)
from strandline.fold.scopes import ALL, Scope
from strandline.fold.store import FoldReader, Held, SnapshotStore, StoreFiles, StoreSnapshot, Verified
from strandline.fold.watch import Applied, Batching, Exports, Hooks, catch_up, parse_each, repair_fold, watch_applied
from strandline.lazy_imports import lazy_names as _lazy_names
from strandline.protocol.fold_modes import FoldMode

if _TYPE_CHECKING:
    from strandline.fold.rocksdb import RocksDbStore
    from strandline.fold.sqlite import SqliteStore

__all__ = [
    "ALL",
    "AnotherSource",
    "AppendLogStore",
    "Applied",
    "Backend",
    "Batching",
    "BucketOutruns",
    "Comparison",
    "Cut",
    "Difference",
    "Exports",
    "FoldBatch",
    "FoldCursor",
    "FoldEntry",
    "FoldMode",
    "FoldReader",
    "Held",
    "Hooks",
    "KeyChange",
    "Keys",
    "MemoryStore",
    "ModeChanged",
    "Pages",
    "PutColumns",
    "RepairMode",
    "RepairPlan",
    "RepairPolicy",
    "RepairPreview",
    "RepairRefused",
    "Restorer",
    "RocksDbStore",
    "Scope",
    "ScopeChanged",
    "SnapshotStore",
    "SqliteStore",
    "StoreFiles",
    "StoreKeptFailing",
    "StoreSnapshot",
    "Verified",
    "backend_of",
    "catch_up",
    "diff",
    "existing_backend",
    "format_fold_cursor",
    "format_record",
    "history",
    "holder_of",
    "open_fold",
    "open_read_only",
    "parse_each",
    "parse_fold_cursor",
    "parse_record",
    "preview_repair",
    "repair_append_log",
    "repair_fold",
    "verify_against",
    "watch_applied",
]

# Import the stores that need an extra (`rocksdb`, `sqlite`) when they are first asked for.
__getattr__ = _lazy_names(
    __name__,
    {
        "rocksdb": ("RocksDbStore",),
        "sqlite": ("SqliteStore",),
    },
)
