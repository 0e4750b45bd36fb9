"""Coordination: the lease, the cursor and the fence of each shard of a run.

**Promise.** A run is cut into shards; at any time at most one worker may change a shard, and it says so with a lease
and a fence. A shard's cursor never moves back, and its parts after a split are exactly the whole. An operation with an
id is done once, however often it is asked for. Once a lease is lost, by time or to another worker, nothing more is
accepted from it: no checkpoint, split, completion or parking.

**How.** The decisions are pure functions of `strandline.protocol`, which take a record and the time, and return a
record. `Coordinator` reads records from a `RecordStore`, lets them decide, and writes the result if what was read is
unchanged; otherwise it reads again, up to nine times. So every store has the same behaviour, and what the model proves
of the functions holds for all of them. Stores: `MemoryRecords`, `SqliteRecords`, and those for PostgreSQL, etcd and
objects.

**Formats.** A record is one value (`codec`), beside the few columns or keys that its store needs for finding it.
Workers claim from an index of active shards by deadline, never by reading every record.

**Trade-offs.** Time is an argument, so that workers with clocks apart see leases end at different times: the fence, not
the clock, keeps two workers from changing one shard. A run's record is read, not written, when shards are claimed, so
that claims of different shards do not meet. Claims that fail again and again make a worker pause (`Throttled`); the
pause is kept by the coordinator it spoke to, and forgotten when that one ends. Parked shards do not keep a run from
being done; `Progress` tells how many there are.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.pipeline.coordination.coordinator import Coordinator, NoneAvailable, Throttled
    from strandline.pipeline.coordination.interfaces import RunCoordinator, RunReader, ShardCoordinator
    from strandline.pipeline.coordination.memory import CommitHook, MemoryRecords
    from strandline.pipeline.coordination.record_store import RecordStore
    from strandline.pipeline.coordination.sqlite import SqliteRecords

__all__ = [
    "CommitHook",
    "Coordinator",
    "MemoryRecords",
    "NoneAvailable",
    "RecordStore",
    "RunCoordinator",
    "RunReader",
    "ShardCoordinator",
    "SqliteRecords",
    "Throttled",
]

# Import a public name at its first use, so that a command loads only the modules that it needs.
__getattr__ = _lazy_names(
    __name__,
    {
        "coordinator": (
            "Coordinator",
            "NoneAvailable",
            "Throttled",
        ),
        "interfaces": (
            "RunCoordinator",
            "RunReader",
            "ShardCoordinator",
        ),
        "memory": (
            "CommitHook",
            "MemoryRecords",
        ),
        "record_store": ("RecordStore",),
        "sqlite": ("SqliteRecords",),
    },
)
