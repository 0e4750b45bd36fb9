"""A plan as one etcd transaction: its conditions and its writes.

    shard     its record as it was read; then its record, and its place in the index of active shards
    owner     of a shard that is held or given up: there, with its value, on its lease; then removed if given up
    run       its record as it was read; then its record, and its place in the index of runs that are not over

Invariants: a plan of `SHARDS_MAX` shards and a run has at most 128 conditions and 128 operations; conditions that once
failed fail for ever (revisions only grow, records are never removed, and no owner key returns to a lease), so that a
transaction may be sent again until it is known to have landed or failed.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from strandline.errors import Damaged
from strandline.pipeline.coordination.codec import Owner, format_owner, format_run, format_shard
from strandline.pipeline.coordination.etcd_client import (
    OPERATIONS_MAX,
    Compare,
    Operation,
    absent,
    delete,
    lease_is,
    present,
    put,
    unchanged,
    value_is,
)
from strandline.pipeline.coordination.etcd_keys import Noun, format_key
from strandline.pipeline.coordination.record_store import OwnerChange, Plan, RunChange, ShardChange, owner_change
from strandline.protocol.shards import ShardKey, ShardRecord, ShardStatus

SHARDS_MAX = (OPERATIONS_MAX - 5) // 3
"""The number of shards in one transaction: three keys each, beside those of a run."""

_DEADLINE = struct.Struct("<q")


class OwnerKey(NamedTuple):
    """An owner key, present or planned: its value and its etcd lease."""

    value: bytes
    lease: int


class Written(NamedTuple):
    """A record that a transaction writes: its name, its revision before (0 if it was not there), and its value."""

    name: bytes
    revision: int
    value: bytes


class Transaction(NamedTuple):
    """Conditions, and the operations to apply if all of them hold."""

    compares: list[Compare]
    operations: list[Operation]


def transaction(prefix: bytes, plan: Plan, owners: Mapping[ShardKey, OwnerKey]) -> Transaction:
    """Return the transaction for a plan; `owners` has the key of each owner that is taken, held or released."""
    compares = [_as_read(record) for record in written(prefix, plan)]
    operations = [put(record.name, record.value) for record in written(prefix, plan)]
    if plan.unchanged_run is not None:
        run, revision = plan.unchanged_run
        compares.append(unchanged(format_key(prefix, Noun.RUN, run.key), revision))
    if plan.run is not None:
        operations += _run_index(prefix, plan.run)
    for change in plan.shards:
        operations += _shard_index(prefix, change)
        name = format_key(prefix, Noun.OWNER, change.after.key)
        match owner_change(change):
            case OwnerChange.NONE:
                pass
            case OwnerChange.TAKEN:
                operations.append(put(name, *owners[change.after.key]))
            case OwnerChange.HELD:
                compares += _owned(name, owners[change.after.key])
            case OwnerChange.RELEASED:
                compares += _owned(name, owners[change.after.key])
                operations.append(delete(name))
    return Transaction(compares, operations)


def written(prefix: bytes, plan: Plan) -> list[Written]:
    """Return the records that a plan writes."""
    records = [
        Written(format_key(prefix, Noun.SHARD, after.key), before.version if before else 0, format_shard(after))
        for before, after in plan.shards
    ]
    if plan.run is not None:
        before, after = plan.run
        name = format_key(prefix, Noun.RUN, after.key)
        records.append(Written(name, before.version if before else 0, format_run(after)))
    return records


def owner_value(shard: ShardRecord) -> bytes:
    """Return the value of the owner key of a leased shard."""
    if shard.owner is None:
        raise AssertionError("only a leased shard has an owner")
    return format_owner(Owner(shard.owner, shard.fence))


def format_deadline(deadline: int | None) -> bytes:
    """Return the value of an active shard in the index: the deadline of its lease, or nothing."""
    return b"" if deadline is None else _DEADLINE.pack(deadline)


def parse_deadline(value: bytes) -> int | None:
    """Return the deadline of an active shard's lease, or None."""
    if not value:
        return None
    if len(value) != _DEADLINE.size:
        raise Damaged("etcd", "an entry of the index of active shards is broken", safe="nothing was changed")
    deadline: int = _DEADLINE.unpack(value)[0]
    return deadline


def _as_read(record: Written) -> Compare:
    return unchanged(record.name, record.revision) if record.revision else absent(record.name)


def _owned(name: bytes, owner: OwnerKey) -> list[Compare]:
    return [present(name), value_is(name, owner.value), lease_is(name, owner.lease)]


def _run_index(prefix: bytes, change: RunChange) -> Iterator[Operation]:
    name = format_key(prefix, Noun.ACTIVE_RUN, change.after.key)
    if change.after.over:
        yield delete(name)
    elif change.before is None:
        yield put(name, b"")


def _shard_index(prefix: bytes, change: ShardChange) -> Iterator[Operation]:
    before, after = change.before.record if change.before else None, change.after
    name = format_key(prefix, Noun.ACTIVE_SHARD, after.key)
    if after.status is not ShardStatus.ACTIVE:
        yield delete(name)
    elif before is None or (before.status, before.deadline) != (after.status, after.deadline):
        yield put(name, format_deadline(after.deadline))
