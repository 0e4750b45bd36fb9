"""Operations by id: a 64-bit hash of the request, and its outcome, for as long as it is remembered.

Invariants: a remembered operation has the same outcome again, whatever the record's state now; the same id
with other content is refused; a record remembers its latest operations, and forgets the oldest first.
"""

from strandline.protocol.canonical import derive_64, prefixed, to_signed, to_unsigned, u8, u32, u64
from strandline.protocol.errors import OpIdConflict
from strandline.protocol.shards import Cursor, OpEntry, OpKind, Outcome, ParkReason, ShardSpec, check_number

_OP_ID = "gossip.scanner_runtime.distributed.op_id"
_PAYLOAD = "gossip/coord/v1/op-payload"
_TAGS = {
    OpKind.CHECKPOINT: b"checkpoint",
    OpKind.COMPLETE: b"complete",
    OpKind.PARK: b"park",
    OpKind.SPLIT_REPLACE: b"split_replace",
    OpKind.SPLIT_RESIDUAL: b"split_residual",
    OpKind.CREATE_RUN: b"create_run",
    OpKind.REGISTER_SHARDS: b"register_shards",
    OpKind.COMPLETE_RUN: b"complete_run",
    OpKind.FAIL_RUN: b"fail_run",
    OpKind.CANCEL_RUN: b"cancel_run",
    OpKind.UNPARK: b"unpark",
}


def op_id(run: int, shard: int, fence: int, kind: OpKind, sequence: int = 0) -> int:
    """Return the id of a worker's operation under a fence; `sequence` tells several of one kind apart."""
    data = u64(to_unsigned(run)) + u64(to_unsigned(shard)) + u64(fence) + u8(kind)
    return to_signed(derive_64(_OP_ID, data + u64(sequence) if sequence else data))


def payload_hash(kind: OpKind, payload: bytes) -> int:
    """Return the hash of an operation's content; it is never 0."""
    return derive_64(_PAYLOAD, _TAGS[kind] + payload) or 1


def cursor_payload(cursor: Cursor) -> bytes:
    """Return the content of a checkpoint or completion."""
    return prefixed(cursor.key) + prefixed(cursor.token)


def park_payload(reason: ParkReason) -> bytes:
    """Return the content of a parking."""
    return u8(reason)


def specs_payload(specs: tuple[ShardSpec, ...]) -> bytes:
    """Return the content of a split."""
    return u32(len(specs)) + b"".join(prefixed(part) for spec in specs for part in spec)


def replay(ops: tuple[OpEntry, ...], op_id: int, payload_hash: int) -> Outcome | None:
    """Return the recorded outcome of an operation, or None if it is not remembered."""
    check_number("an operation's id", op_id)
    for entry in ops:
        if entry.op_id == op_id:
            if entry.payload_hash != payload_hash:
                raise OpIdConflict(op_id)
            return entry.outcome
    return None


def remember(ops: tuple[OpEntry, ...], entry: OpEntry, limit: int) -> tuple[OpEntry, ...]:
    """Return the operations with one more, without the oldest if there is no room."""
    check_number("the time", entry.outcome.at)
    return (*ops, entry)[-limit:]
