"""The records of `LeaseModel` as small numbers and back: millions of them are hashed, kept and sent between cores.

Invariant: `parse_world(format_world(world))` is the world itself, but for the times at which operations were done: they
are all 0, as nothing reads them but to answer a repeat, and otherwise each history would be told apart by its times.
"""

from collections.abc import Iterable
from typing import TypeAlias

from strandline.protocol.runs import RunRecord, RunStatus
from strandline.protocol.shards import (
    Cursor,
    CursorSemantics,
    OpEntry,
    OpKind,
    Outcome,
    ParkReason,
    ShardRecord,
    ShardSpec,
    ShardStatus,
)
from tests.models.lease_laws import Asked, LeaseWorld

TENANT = b"t" * 32
RUN, SHARD = 1, 2
OWNER, CURSOR = 2, 4
"""Where these stand among the numbers of a shard."""
KINDS = {
    "checkpoint": OpKind.CHECKPOINT,
    "complete": OpKind.COMPLETE,
    "park": OpKind.PARK,
    "unpark": OpKind.UNPARK,
}

Numbers: TypeAlias = tuple[int, ...]
Local: TypeAlias = tuple[int, Numbers, Numbers]
"""The time, the shard and the operations of the run."""


def cursor_at(number: int) -> Cursor:
    """Return the cursor of a number; 0 is nothing yet."""
    return Cursor(bytes([number]) if number else b"")


class LeaseCodec:
    """Knows every operation that may be asked for, each by its index."""

    def __init__(self, known: Iterable[Asked], cursor_max: int) -> None:
        ids = ((asked.op_id, asked.payload_hash, KINDS[asked.kind]) for asked in known if asked.op_id is not None)
        self._known = list(dict.fromkeys(ids))
        self._indexes = {(op_id, hashed): index for index, (op_id, hashed, _) in enumerate(self._known)}
        spec = ShardSpec(end=bytes([cursor_max + 1]))
        self._shard = ShardRecord(TENANT, RUN, SHARD, spec)
        self._run = RunRecord(TENANT, RUN, RunStatus.ACTIVE, CursorSemantics.COMPLETED, 0)

    def start(self) -> Local:
        """Return the world at the beginning: nobody has the shard."""
        return self.format_world(LeaseWorld(0, self._shard, self._run))

    def format_world(self, world: LeaseWorld) -> Local:
        """Return the numbers of a world; a change that they do not tell is an error."""
        shard = world.shard
        if _untold(shard) != _untold(self._shard) or world.run[:-1] != self._run[:-1]:
            raise AssertionError("something changed that no lease should change")
        numbers = (
            shard.status.value,
            shard.fence,
            shard.owner or 0,
            -1 if shard.deadline is None else shard.deadline,
            shard.cursor.key[0] if shard.cursor.key else 0,
            -1 if shard.park_reason is None else shard.park_reason.value,
            *map(self._format_op, shard.ops),
        )
        return world.now, numbers, tuple(map(self._format_op, world.run.ops))

    def parse_world(self, local: Local) -> LeaseWorld:
        """Return the world of numbers."""
        now, (status, fence, owner, deadline, cursor, reason, *ops), run_ops = local
        shard = self._shard._replace(
            status=ShardStatus(status),
            fence=fence,
            owner=owner or None,
            deadline=None if deadline < 0 else deadline,
            cursor=cursor_at(cursor),
            park_reason=None if reason < 0 else ParkReason(reason),
            ops=tuple(map(self._parse_op, ops)),
        )
        return LeaseWorld(now, shard, self._run._replace(ops=tuple(map(self._parse_op, run_ops))))

    def _format_op(self, entry: OpEntry) -> int:
        return self._indexes[entry.op_id, entry.payload_hash]

    def _parse_op(self, number: int) -> OpEntry:
        op_id, hashed, kind = self._known[number]
        return OpEntry(op_id, hashed, Outcome(kind, 0))


def _untold(shard: ShardRecord) -> tuple[object, ...]:
    return *shard[:4], shard.semantics, shard.cursor.token, shard.parent, shard.spawned
