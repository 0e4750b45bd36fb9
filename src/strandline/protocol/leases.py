"""Leases and the operations under them: acquire, renew, checkpoint, complete, park.

    active, not leased   acquire      active    fence + 1   leased      cursor kept
    active, leased       renew        active    same        extended    kept
    active, leased       checkpoint   active    same        kept        advanced
    active, leased       complete     done      same        cleared     advanced
    active, leased       park         parked    same        cleared     kept

Invariants: a remembered operation is answered first, whatever the shard's state; then the lease is checked
(tenant, status, fence, expiry, owner), then the operation itself. Every success of `acquire` has a fence of its own.
"""

from typing import NamedTuple

from strandline.protocol import guards
from strandline.protocol.operations import cursor_payload, park_payload, payload_hash, remember, replay
from strandline.protocol.shards import (
    OPS_PER_SHARD_MAX,
    Cursor,
    CursorSemantics,
    Lease,
    OpEntry,
    OpKind,
    Outcome,
    ParkReason,
    ShardRecord,
    ShardSpec,
    ShardStatus,
    check_invariants,
    check_number,
)


class Acquired(NamedTuple):
    """An acquired shard: the lease, the range to scan, and the cursor to resume from."""

    lease: Lease
    spec: ShardSpec
    cursor: Cursor
    semantics: CursorSemantics


class Decided(NamedTuple):
    """The new record of a shard, the shards it spawned, and the outcome; `replayed` changes nothing."""

    record: ShardRecord
    outcome: Outcome
    spawned: tuple[ShardRecord, ...] = ()
    replayed: bool = False


def acquire(record: ShardRecord, now: int, tenant: bytes, worker: int, ttl_ns: int) -> ShardRecord:
    """Acquire a shard without a lease; `acquired` returns the worker's view of it."""
    check_number("a worker's id", worker)
    check_number("the deadline", now + ttl_ns)
    guards.check_tenant(record, tenant)
    guards.check_not_terminal(record)
    guards.check_not_leased(record, now)
    return check_invariants(record._replace(fence=record.fence + 1, owner=worker, deadline=now + ttl_ns))


def acquired(record: ShardRecord) -> Acquired:
    """Return the owner's view of a leased shard."""
    return Acquired(lease_of(record), record.spec, record.cursor, record.semantics)


def lease_of(record: ShardRecord) -> Lease:
    """Return the lease of a leased shard."""
    if record.owner is None or record.deadline is None:
        raise AssertionError("only a leased shard has a lease")
    return Lease(record.tenant, record.run, record.shard, record.owner, record.fence, record.deadline)


def renew(record: ShardRecord, lease: Lease, now: int, ttl_ns: int) -> ShardRecord:
    """Extend a valid lease; it never becomes shorter, and a repeated renewal is harmless."""
    check_number("the deadline", now + ttl_ns)
    guards.check_lease(record, lease, now)
    return check_invariants(record._replace(deadline=max(record.deadline or 0, now + ttl_ns)))


def checkpoint(record: ShardRecord, lease: Lease, now: int, cursor: Cursor, op_id: int) -> Decided:
    """Move the cursor."""
    hashed = payload_hash(OpKind.CHECKPOINT, cursor_payload(cursor))
    if outcome := replay(record.ops, op_id, hashed):
        return Decided(record, outcome, replayed=True)
    guards.check_lease(record, lease, now)
    guards.check_cursor(record, cursor)
    return decide(record._replace(cursor=cursor), op_id, hashed, Outcome(OpKind.CHECKPOINT, now))


def complete(record: ShardRecord, lease: Lease, now: int, cursor: Cursor, op_id: int) -> Decided:
    """Move the cursor for the last time; the shard is done and the lease ends."""
    hashed = payload_hash(OpKind.COMPLETE, cursor_payload(cursor))
    if outcome := replay(record.ops, op_id, hashed):
        return Decided(record, outcome, replayed=True)
    guards.check_lease(record, lease, now)
    guards.check_cursor(record, cursor)
    done = record._replace(cursor=cursor, status=ShardStatus.DONE, owner=None, deadline=None)
    return decide(done, op_id, hashed, Outcome(OpKind.COMPLETE, now))


def park(record: ShardRecord, lease: Lease, now: int, reason: ParkReason, op_id: int) -> Decided:
    """Park a shard at its cursor; the lease ends."""
    hashed = payload_hash(OpKind.PARK, park_payload(reason))
    if outcome := replay(record.ops, op_id, hashed):
        return Decided(record, outcome, replayed=True)
    guards.check_lease(record, lease, now)
    parked = record._replace(status=ShardStatus.PARKED, park_reason=reason, owner=None, deadline=None)
    return decide(parked, op_id, hashed, Outcome(OpKind.PARK, now))


def decide(
    record: ShardRecord, op_id: int, hashed: int, outcome: Outcome, spawned: tuple[ShardRecord, ...] = ()
) -> Decided:
    """Remember an operation in the record that it changed, and check every record once more."""
    ops = remember(record.ops, OpEntry(op_id, hashed, outcome), OPS_PER_SHARD_MAX)
    for child in spawned:
        check_invariants(child)
    return Decided(check_invariants(record._replace(ops=ops)), outcome, spawned)
