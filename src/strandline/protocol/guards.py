"""The guards of coordination: each is one promise, a function that returns nothing or raises.

Decisions call them as attributes of this module, so that a model can break one guard and show its purpose. The
order in which decisions call them is part of the contract (`check_lease`).
"""

from itertools import pairwise

from strandline.protocol.errors import (
    AlreadyLeased,
    CheckpointMissingKey,
    CursorKeyTooLarge,
    CursorOutOfBounds,
    CursorRegression,
    CursorTokenTooLarge,
    LeaseExpired,
    ShardTerminal,
    SplitInvalid,
    StaleFence,
    TenantMismatch,
)
from strandline.protocol.shards import (
    CHILDREN_PER_OP_MAX,
    CHILDREN_PER_OP_MIN,
    KEY_BYTES_MAX,
    SPAWNED_PER_SHARD_MAX,
    TOKEN_BYTES_MAX,
    Cursor,
    Lease,
    ShardRecord,
    ShardSpec,
    ShardStatus,
    spec_problem,
    within,
)


def check_tenant(record: ShardRecord, tenant: bytes) -> None:
    """A tenant touches only its own records."""
    if record.tenant != tenant:
        raise TenantMismatch(record.run)


def check_not_terminal(record: ShardRecord) -> None:
    """A shard that is done, split or parked takes no further work."""
    if record.status != ShardStatus.ACTIVE:
        raise ShardTerminal(record.shard, record.status.name.lower())


def check_fence(record: ShardRecord, lease: Lease) -> None:
    """Only the latest fence may change a shard."""
    if lease.fence != record.fence:
        raise StaleFence(record.shard, lease.fence, record.fence)


def check_not_expired(record: ShardRecord, lease: Lease, now: int) -> None:
    """A lease ends at its deadline, the deadline itself excluded."""
    if not record.leased(now):
        raise LeaseExpired(record.shard, lease.fence, record.deadline)


def check_owner(record: ShardRecord, lease: Lease) -> None:
    """A fence belongs to one worker."""
    if record.owner != lease.worker:
        raise StaleFence(record.shard, lease.fence, record.fence)


def check_lease(record: ShardRecord, lease: Lease, now: int) -> None:
    """The caller holds the shard: tenant, then status, fence, expiry and owner."""
    check_tenant(record, lease.tenant)
    check_not_terminal(record)
    check_fence(record, lease)
    check_not_expired(record, lease, now)
    check_owner(record, lease)


def check_not_leased(record: ShardRecord, now: int) -> None:
    """A leased shard cannot be acquired, not even by its own worker."""
    if record.leased(now) and record.deadline is not None:
        raise AlreadyLeased(record.shard, record.deadline)


def check_cursor_size(record: ShardRecord, cursor: Cursor) -> None:
    """A cursor has a key, and neither key nor token is too large."""
    if not cursor.key:
        raise CheckpointMissingKey(record.shard)
    if len(cursor.key) > KEY_BYTES_MAX:
        raise CursorKeyTooLarge(len(cursor.key), KEY_BYTES_MAX)
    if len(cursor.token) > TOKEN_BYTES_MAX:
        raise CursorTokenTooLarge(len(cursor.token), TOKEN_BYTES_MAX)


def check_no_regression(record: ShardRecord, cursor: Cursor) -> None:
    """A cursor never moves back."""
    if cursor.key < record.cursor.key:
        raise CursorRegression(record.shard)


def check_in_bounds(record: ShardRecord, cursor: Cursor) -> None:
    """A cursor stays in its shard."""
    if not within(record.spec, cursor.key):
        raise CursorOutOfBounds(record.shard)


def check_cursor(record: ShardRecord, cursor: Cursor) -> None:
    """The cursor may be the shard's next one: within its size limits, not behind the current one, and in bounds."""
    check_cursor_size(record, cursor)
    check_no_regression(record, cursor)
    check_in_bounds(record, cursor)


def check_parts(record: ShardRecord, parts: tuple[ShardSpec, ...]) -> None:
    """Each part of a split is a range, and together they are exactly the shard's, in order."""
    for number, part in enumerate(parts):
        if problem := spec_problem(part):
            raise SplitInvalid(record.shard, f"part {number}: {problem}")
    if (parts[0].start, parts[-1].end) != (record.spec.start, record.spec.end):
        raise SplitInvalid(record.shard, "the parts do not begin and end where it does")
    for number, (left, right) in enumerate(pairwise(parts)):
        if not left.end or left.end != right.start:
            raise SplitInvalid(record.shard, f"part {number + 1} does not begin where part {number} ends")


def check_children_count(record: ShardRecord, parts: tuple[ShardSpec, ...]) -> None:
    """A split has at least two parts and at most 256."""
    if not CHILDREN_PER_OP_MIN <= len(parts) <= CHILDREN_PER_OP_MAX:
        limits = f"[{CHILDREN_PER_OP_MIN}, {CHILDREN_PER_OP_MAX}]"
        raise SplitInvalid(record.shard, f"{len(parts)} parts are not in {limits}")


def check_spawned_room(record: ShardRecord, count: int) -> None:
    """A shard spawns at most 1,024 others in its life."""
    if len(record.spawned) + count > SPAWNED_PER_SHARD_MAX:
        raise SplitInvalid(record.shard, f"it would have spawned more than {SPAWNED_PER_SHARD_MAX:,} shards")


def check_cursor_kept(record: ShardRecord, kept: ShardSpec) -> None:
    """A residual split keeps the scanned part in the shard."""
    if record.cursor.key and not within(kept, record.cursor.key):
        raise SplitInvalid(record.shard, "its cursor is already in the part to split off")
