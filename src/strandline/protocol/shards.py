"""Shards as values: a range of keys, its cursor, its lease, and its latest operations.

A shard covers the keys of `[start, end)`, ordered by bytes; an empty start or end is no bound. Its cursor is the last
key that is committed (or handed out, as the run's `CursorSemantics` says); an empty key is nothing yet.

Invariants, checked by `check_invariants` after every decision:

1. the tenant has 32 bytes, and ids fit 64 signed bits;
2. the range is not empty, and keys and metadata are within their limits;
3. the cursor is empty or inside of the range, within its limits, and has no token without a key;
4. the fence is not negative;
5. owner and deadline are both there or both not;
6. only an active shard is leased, and then its fence is at least 1;
7. a shard has a reason to be parked if and only if it is parked;
8. a shard that is done has a cursor; one that is split has at least two others in its place;
9. spawned shards are at most 1,024, distinct, and of derived ids (negative as signed numbers), and so is a shard with
   a parent, and no other;
10. the operations remembered are at most 16, of distinct ids, with hashes that are not zero.

Records are hashable, and their `repr` shows no key, cursor, token or metadata.
"""

from enum import IntEnum
from typing import NamedTuple

from strandline.errors import InvalidInput
from strandline.protocol.errors import RecordBroken, shown

KEY_BYTES_MAX = 4_096
TOKEN_BYTES_MAX = 16_384
METADATA_BYTES_MAX = 16_384
CHILDREN_PER_OP_MAX = 256
SPAWNED_PER_SHARD_MAX = 1_024
OPS_PER_SHARD_MAX = 16
OPS_PER_RUN_MAX = 8
INITIAL_SHARDS_MAX = 10_000
ID_BYTES = 32
CHILDREN_PER_OP_MIN = 2


class Code(IntEnum):
    """An enumeration that records store as a number."""

    __hash__ = int.__hash__  # an enum hashes its name, in Python; models hash millions of records


class ShardStatus(Code):
    """The state of a shard; only an active one can be leased."""

    ACTIVE = 0
    DONE = 1
    SPLIT = 2
    PARKED = 3


class ParkReason(Code):
    """The reason why a shard was parked."""

    PERMISSION_DENIED = 0
    NOT_FOUND = 1
    POISONED = 2
    TOO_MANY_ERRORS = 3
    OTHER = 4


class CursorSemantics(Code):
    """The meaning of a cursor's key: the last one committed, or the last one handed out."""

    COMPLETED = 0
    DISPATCHED = 1


class OpKind(Code):
    """The operations that are remembered by their id."""

    CHECKPOINT = 0
    COMPLETE = 1
    PARK = 2
    SPLIT_REPLACE = 3
    SPLIT_RESIDUAL = 4
    CREATE_RUN = 5
    REGISTER_SHARDS = 6
    COMPLETE_RUN = 7
    FAIL_RUN = 8
    CANCEL_RUN = 9
    UNPARK = 10


class RunKey(NamedTuple):
    """The key of a run's record."""

    tenant: bytes
    run: int


class ShardKey(NamedTuple):
    """The key of a shard's record."""

    tenant: bytes
    run: int
    shard: int


class ShardSpec(NamedTuple):
    """The extent of a shard: the keys of `[start, end)`, and the connector's metadata."""

    start: bytes = b""
    end: bytes = b""
    metadata: bytes = b""

    def __repr__(self) -> str:
        return f"ShardSpec({len(self.start)}, {len(self.end)} and {len(self.metadata)} bytes)"


class Cursor(NamedTuple):
    """The position of a shard; an empty key is the beginning."""

    key: bytes = b""
    token: bytes = b""

    def __repr__(self) -> str:
        return f"Cursor({len(self.key)} and {len(self.token)} bytes)"


class Lease(NamedTuple):
    """A worker's right to a shard until a deadline, under a fence."""

    tenant: bytes
    run: int
    shard: int
    worker: int
    fence: int
    deadline: int

    @property
    def key(self) -> ShardKey:
        """The key of the shard's record."""
        return ShardKey(self.tenant, self.run, self.shard)


class Outcome(NamedTuple):
    """The result of an operation, which is remembered and returned again when the operation is repeated."""

    kind: OpKind
    at: int
    spawned: tuple[int, ...] = ()


class OpEntry(NamedTuple):
    """An operation that was done."""

    op_id: int
    payload_hash: int
    outcome: Outcome

    def __repr__(self) -> str:
        return f"OpEntry({shown(self.op_id)}, {self.outcome.kind.name})"


class ShardRecord(NamedTuple):
    """A shard as it is stored."""

    tenant: bytes
    run: int
    shard: int
    spec: ShardSpec
    status: ShardStatus = ShardStatus.ACTIVE
    semantics: CursorSemantics = CursorSemantics.COMPLETED
    cursor: Cursor = Cursor()
    fence: int = 0
    owner: int | None = None
    deadline: int | None = None
    park_reason: ParkReason | None = None
    parent: int | None = None
    spawned: tuple[int, ...] = ()
    ops: tuple[OpEntry, ...] = ()

    @property
    def key(self) -> ShardKey:
        """The key of the record."""
        return ShardKey(self.tenant, self.run, self.shard)

    def leased(self, now: int) -> bool:
        """Return whether a lease lasts; at its deadline it does not."""
        return self.deadline is not None and now < self.deadline


def within(spec: ShardSpec, key: bytes) -> bool:
    """Return whether a key belongs to a range."""
    return spec.start <= key and (not spec.end or key < spec.end)


def spec_problem(spec: ShardSpec) -> str | None:
    """Return the problem of a range, or None."""
    if max(len(spec.start), len(spec.end)) > KEY_BYTES_MAX:
        return f"its bounds may have {KEY_BYTES_MAX:,} bytes"
    if len(spec.metadata) > METADATA_BYTES_MAX:
        return f"its metadata may have {METADATA_BYTES_MAX:,} bytes"
    if spec.end and spec.start >= spec.end:
        return "its range is empty"
    return None


def is_id(number: int) -> bool:
    """Return whether a number fits the 64 signed bits of an id."""
    return -(2**63) <= number < 2**63


def check_number(what: str, number: int) -> None:
    """Raise `InvalidInput` unless a number fits 64 signed bits."""
    if not is_id(number):
        raise InvalidInput(f"{what} does not fit 64 signed bits")


def check_invariants(record: ShardRecord) -> ShardRecord:
    """Return the record, or raise `RecordBroken` with the first invariant that it breaks."""
    problem = (
        _identity_problem(record)
        or spec_problem(record.spec)
        or _cursor_problem(record)
        or _lease_problem(record)
        or _status_problem(record)
        or _family_problem(record)
        or ops_problem(record.ops, OPS_PER_SHARD_MAX)
    )
    if problem:
        raise RecordBroken(f"shard {shown(record.shard)} of run {shown(record.run)}", problem)
    return record


def _identity_problem(record: ShardRecord) -> str | None:
    if len(record.tenant) != ID_BYTES:
        return f"its tenant has {len(record.tenant)} bytes"
    if not is_id(record.run) or not is_id(record.shard):
        return "an id does not fit 64 bits"
    return None


def _cursor_problem(record: ShardRecord) -> str | None:
    key, token = record.cursor
    if not key:
        return "its cursor has a token without a key" if token else None
    if not within(record.spec, key):
        return "its cursor is out of bounds"
    if len(key) > KEY_BYTES_MAX or len(token) > TOKEN_BYTES_MAX:
        return "its cursor is too large"
    return None


def _lease_problem(record: ShardRecord) -> str | None:
    if record.fence < 0:
        return "its fence is negative"
    if (record.owner is None) != (record.deadline is None):
        return "it has an owner without a deadline, or the other way round"
    if record.owner is None:
        return None
    if record.status != ShardStatus.ACTIVE:
        return f"it is {record.status.name.lower()} and leased"
    return None if record.fence else "it is leased under fence 0"


def _status_problem(record: ShardRecord) -> str | None:
    if (record.park_reason is not None) != (record.status == ShardStatus.PARKED):
        return "it is parked without a reason, or the other way round"
    if record.status == ShardStatus.DONE and not record.cursor.key:
        return "it is done and has no cursor"
    if record.status == ShardStatus.SPLIT and len(record.spawned) < CHILDREN_PER_OP_MIN:
        return "it is split into fewer than two"
    return None


def _family_problem(record: ShardRecord) -> str | None:
    spawned = record.spawned
    if len(spawned) > SPAWNED_PER_SHARD_MAX:
        return f"it spawned {len(spawned):,} shards"
    if len(set(spawned)) != len(spawned) or record.shard in spawned:
        return "it spawned a shard twice, or itself"
    if any(shard >= 0 for shard in spawned) or (record.parent is not None) != (record.shard < 0):
        return "derived ids are negative, and no others"
    return None


def ops_problem(ops: tuple[OpEntry, ...], limit: int) -> str | None:
    """Return the problem of the operations that a record remembers, or None."""
    if len(ops) > limit:
        return f"it remembers {len(ops)} operations"
    if len({entry.op_id for entry in ops}) != len(ops):
        return "it remembers an operation twice"
    return None if all(entry.payload_hash for entry in ops) else "an operation has hash 0"
