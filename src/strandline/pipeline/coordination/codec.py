"""Records as bytes, for SQL columns and etcd values.

    "v1", kind (1 run, 2 shard, 3 owner), then the fields in order; integers are little-endian

    run      tenant 32, id i64, status u8, semantics u8, created i64, flags u8 (1 completed, 2 pending), completed i64,
             [operation], operations
    shard    tenant 32, id of run i64, id i64, status u8, semantics u8, fence i64, flags u8 (1 leased, 2 parked,
             4 parent), owner i64, deadline i64, reason u8, parent i64, start, end, metadata, cursor key, cursor token,
             spawned ids, operations
    owner    worker u64, fence u64

    bytes: u32 length, data. ids: u32 count, i64 each. operations: u32 count, each: id i64, hash u64, kind u8, time i64,
    spawned ids. An absent field is 0.

Invariants: decoding gives the record that was encoded, and that record only (`format_…` of it gives the same bytes); an
unknown version or kind is a `FormatError`, and an unknown number, a field over 1 MiB or a byte too few or too many is
`Damaged`: nothing is ever mapped to a default.
"""

import struct
from typing import Any, NamedTuple, TypeVar

from strandline.errors import Damaged, FormatError
from strandline.protocol.canonical import prefixed, to_signed, to_unsigned
from strandline.protocol.runs import RunRecord, RunStatus, check_run_invariants
from strandline.protocol.shards import (
    Code,
    Cursor,
    CursorSemantics,
    OpEntry,
    OpKind,
    Outcome,
    ParkReason,
    ShardRecord,
    ShardSpec,
    ShardStatus,
    check_invariants,
)

FIELD_BYTES_MAX = 1 << 20
VERSION = b"v1"
_RUN_KIND, _SHARD_KIND, _OWNER_KIND = 1, 2, 3

_HEAD = struct.Struct("<2sB")
_RUN = struct.Struct("<32sqBBqBq")
_SHARD = struct.Struct("<32sqqBBqBqqBq")
_OWNER = struct.Struct("<QQ")
_OP = struct.Struct("<qQBq")
_U32 = struct.Struct("<I")
_C = TypeVar("_C", bound=Code)


class Owner(NamedTuple):
    """The holder of a shard, as the value of an owner key."""

    worker: int
    fence: int


def format_run(run: RunRecord) -> bytes:
    """Return a run as bytes."""
    flags = (run.completed_at is not None) | (run.pending is not None) << 1
    fixed = (run.tenant, run.run, run.status, run.semantics, run.created_at, flags, run.completed_at or 0)
    pending = _format_op(run.pending) if run.pending else b""
    return _HEAD.pack(VERSION, _RUN_KIND) + _RUN.pack(*fixed) + pending + _format_ops(run.ops)


def parse_run(data: bytes) -> RunRecord:
    """Return a run from its bytes."""
    reader = _Reader(data, _RUN_KIND, "run record")
    tenant, run, status, semantics, created_at, flags, completed_at = reader.fixed(_RUN)
    completed, has_pending = reader.flags(flags, 2)
    record = RunRecord(
        tenant,
        run,
        reader.code(RunStatus, status),
        reader.code(CursorSemantics, semantics),
        created_at,
        reader.optional(completed_at, given=completed),
        reader.op() if has_pending else None,
        reader.ops(),
    )
    reader.end()
    return check_run_invariants(record)


def format_shard(shard: ShardRecord) -> bytes:
    """Return a shard as bytes."""
    leased, parked, parted = shard.owner is not None, shard.park_reason is not None, shard.parent is not None
    fixed = _SHARD.pack(
        shard.tenant,
        shard.run,
        shard.shard,
        shard.status,
        shard.semantics,
        shard.fence,
        leased | parked << 1 | parted << 2,
        shard.owner or 0,
        shard.deadline or 0,
        shard.park_reason or 0,
        shard.parent or 0,
    )
    fields = b"".join(map(prefixed, (*shard.spec, *shard.cursor)))
    return _HEAD.pack(VERSION, _SHARD_KIND) + fixed + fields + _format_ids(shard.spawned) + _format_ops(shard.ops)


def parse_shard(data: bytes) -> ShardRecord:
    """Return a shard from its bytes."""
    reader = _Reader(data, _SHARD_KIND, "shard record")
    tenant, run, shard, status, semantics, fence, flags, owner, deadline, reason, parent = reader.fixed(_SHARD)
    leased, parked, parted = reader.flags(flags, 3)
    number = reader.optional(reason, given=parked)
    record = ShardRecord(
        tenant,
        run,
        shard,
        spec=ShardSpec(reader.bytes(), reader.bytes(), reader.bytes()),
        cursor=Cursor(reader.bytes(), reader.bytes()),
        status=reader.code(ShardStatus, status),
        semantics=reader.code(CursorSemantics, semantics),
        fence=fence,
        owner=reader.optional(owner, given=leased),
        deadline=reader.optional(deadline, given=leased),
        park_reason=None if number is None else reader.code(ParkReason, number),
        parent=reader.optional(parent, given=parted),
        spawned=reader.ids(),
        ops=reader.ops(),
    )
    reader.end()
    return check_invariants(record)


def format_owner(owner: Owner) -> bytes:
    """Return the value of an owner key: 19 bytes."""
    return _HEAD.pack(VERSION, _OWNER_KIND) + _OWNER.pack(to_unsigned(owner.worker), owner.fence)


def parse_owner(data: bytes) -> Owner:
    """Return the holder of a shard from the value of an owner key."""
    reader = _Reader(data, _OWNER_KIND, "owner key")
    worker, fence = reader.fixed(_OWNER)
    reader.end()
    return Owner(to_signed(worker), fence)


def _format_ids(ids: tuple[int, ...]) -> bytes:
    return struct.pack(f"<I{len(ids)}q", len(ids), *ids)


def _format_op(entry: OpEntry) -> bytes:
    outcome = entry.outcome
    return _OP.pack(entry.op_id, entry.payload_hash, outcome.kind, outcome.at) + _format_ids(outcome.spawned)


def _format_ops(ops: tuple[OpEntry, ...]) -> bytes:
    return _U32.pack(len(ops)) + b"".join(map(_format_op, ops))


class _Reader:
    """Reads fields in order, and rejects bytes that no writer produces."""

    def __init__(self, data: bytes, kind: int, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what
        version, found = self.fixed(_HEAD)
        if version != VERSION:
            raise FormatError(what, "unknown version", hint="read it with the release that wrote it")
        if found != kind:
            raise FormatError(what, f"a record of kind {kind} was expected and kind {found} found")

    def fixed(self, layout: struct.Struct) -> tuple[Any, ...]:
        end = self._at + layout.size
        if end > len(self._data):
            raise self._damaged("it ends too early")
        values = layout.unpack_from(self._data, self._at)
        self._at = end
        return values

    def bytes(self) -> bytes:
        size = self._count(1)
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def ids(self) -> tuple[int, ...]:
        count = self._count(8)
        found = struct.unpack_from(f"<{count}q", self._data, self._at)
        self._at += 8 * count
        return found

    def op(self) -> OpEntry:
        op_id, payload_hash, kind, at = self.fixed(_OP)
        return OpEntry(op_id, payload_hash, Outcome(self.code(OpKind, kind), at, self.ids()))

    def ops(self) -> tuple[OpEntry, ...]:
        return tuple(self.op() for _ in range(self._count(_OP.size)))

    def code(self, kind: type[_C], number: int) -> _C:
        try:
            return kind(number)
        except ValueError:
            raise self._damaged(f"{number} is no {kind.__name__}") from None

    def flags(self, number: int, count: int) -> list[bool]:
        if number >> count:
            raise self._damaged(f"flags {number:#x} are not known")
        return [bool(number >> bit & 1) for bit in range(count)]

    def optional(self, number: int, *, given: bool) -> int | None:
        if number and not given:
            raise self._damaged("a field that is absent is not 0")
        return number if given else None

    def end(self) -> None:
        if self._at != len(self._data):
            raise self._damaged("bytes follow its end")

    def _count(self, item_bytes: int) -> int:
        (count,) = self.fixed(_U32)
        if count * item_bytes > min(FIELD_BYTES_MAX, len(self._data) - self._at):
            raise self._damaged("a field is too large, or ends too early")
        return int(count)

    def _damaged(self, problem: str) -> Damaged:
        return Damaged(self._what, problem, safe="nothing was changed; restore the record, or cancel its run")
