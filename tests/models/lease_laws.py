"""The laws of a shard's leases, each checked on every answer in `LeaseModel`, refusals included.

They are written from the promises, not from the code: nothing here calls a decision or a guard.
"""

from typing import Literal, NamedTuple

from strandline.protocol.runs import RunRecord
from strandline.protocol.shards import Cursor, Lease, OpEntry, Outcome, ShardRecord, ShardStatus

TERMINAL = {ShardStatus.DONE, ShardStatus.SPLIT}
AFTER = {"complete": ShardStatus.DONE, "park": ShardStatus.PARKED}


class LeaseWorld(NamedTuple):
    """The time and the records."""

    now: int
    shard: ShardRecord
    run: RunRecord


class Asked(NamedTuple):
    """What is asked: by whom, with which clock, and the id and content's hash of an operation that has them."""

    kind: Literal["acquire", "unpark", "renew", "checkpoint", "complete", "park"]
    lease: Lease
    at: int
    cursor: Cursor | None = None
    op_id: int | None = None
    payload_hash: int = 0


class Answer(NamedTuple):
    """What became of it: the world after it, or None if it was refused."""

    after: LeaseWorld | None
    outcome: Outcome | None = None
    replayed: bool = False


def broken_law(before: LeaseWorld, asked: Asked, answer: Answer) -> str | None:
    """Return the first law that an answer breaks, or None."""
    if asked.op_id is not None:
        for entry in _remembered(before):
            if entry.op_id == asked.op_id:
                return _broken_repeat(before, asked, answer, entry)
    if answer.after is None:
        return None
    if answer.replayed:
        return "an operation was answered as a repeat that never was"
    takes = asked.kind in {"acquire", "unpark"}
    return (
        (_broken_taking if takes else _broken_writing)(before.shard, asked, answer.after.shard)
        or _broken_record(before.shard, asked, answer.after.shard)
        or _broken_memory(before, asked, answer, answer.after)
    )


def _remembered(world: LeaseWorld) -> tuple[OpEntry, ...]:
    return world.shard.ops + world.run.ops


def _broken_repeat(before: LeaseWorld, asked: Asked, answer: Answer, recorded: OpEntry) -> str | None:
    """A repeat is answered as the first time, and changes nothing; the same id with other content is refused."""
    if asked.payload_hash != recorded.payload_hash:
        return None if answer.after is None else "an operation's id was taken for other content"
    if answer.after is None:
        return "a repeated operation was refused"
    if answer.after != before:
        return "a repeated operation acted twice"
    if not answer.replayed or answer.outcome != recorded.outcome:
        return "a repeated operation was answered otherwise"
    return None


def _broken_writing(before: ShardRecord, asked: Asked, after: ShardRecord) -> str | None:
    """Only the holder of the latest lease writes, before its deadline, to an active shard; the fence stays."""
    lease = asked.lease
    if lease.tenant != before.tenant:
        return "a stranger's write was accepted"
    if before.status != ShardStatus.ACTIVE:
        return f"a write to a shard that is {before.status.name.lower()} was accepted"
    if lease.fence != before.fence:
        return "a write under an old fence was accepted"
    if before.deadline is None or asked.at >= before.deadline:
        return "a write at or after the deadline was accepted"
    if lease.worker != before.owner:
        return "a write of somebody without the lease was accepted"
    return None if after.fence == before.fence else "a write changed the fence"


def _broken_taking(before: ShardRecord, asked: Asked, after: ShardRecord) -> str | None:
    """A shard is taken only from nobody, unparked only when parked, and always under a new fence."""
    if asked.lease.tenant != before.tenant:
        return "a stranger was given a lease"
    if after.fence <= before.fence:
        return "a shard changed hands without a new fence"
    if asked.kind == "unpark":
        return None if before.status == ShardStatus.PARKED else "a shard was unparked that was not parked"
    if before.status != ShardStatus.ACTIVE:
        return f"a shard that is {before.status.name.lower()} was given away"
    if before.deadline is not None and asked.at < before.deadline:
        return "two leases last at once"
    return None if after.owner == asked.lease.worker else "a lease was given to somebody else"


def _broken_record(before: ShardRecord, asked: Asked, after: ShardRecord) -> str | None:
    """Fence and cursor never go back, the cursor is where it was asked to be, and what is over stays so."""
    if after.fence < before.fence:
        return "the fence went back"
    if before.status in TERMINAL and after.status != before.status:
        return "a shard that was over came back"
    if after.status != AFTER.get(asked.kind, ShardStatus.ACTIVE):
        return f"{asked.kind} left the shard {after.status.name.lower()}"
    if after.status != ShardStatus.ACTIVE and after.owner is not None:
        return f"a shard that is {after.status.name.lower()} is leased"
    if asked.kind == "renew" and (after.deadline or 0) < (before.deadline or 0):
        return "a lease became shorter by renewing it"
    return _broken_cursor(before, asked, after)


def _broken_cursor(before: ShardRecord, asked: Asked, after: ShardRecord) -> str | None:
    key = after.cursor.key
    if key < before.cursor.key:
        return "the cursor went back"
    if after.cursor != (before.cursor if asked.cursor is None else asked.cursor):
        return "the cursor is not where it was asked to be"
    if asked.cursor is not None and not key:
        return "a cursor that says nothing was accepted"
    return None if key < before.spec.end else "the cursor left the shard"


def _broken_memory(before: LeaseWorld, asked: Asked, answer: Answer, after: LeaseWorld) -> str | None:
    """An operation that was done is remembered, beside all before it."""
    wanted = set(_remembered(before))
    if asked.op_id is not None and answer.outcome is not None:
        wanted.add(OpEntry(asked.op_id, asked.payload_hash, answer.outcome))
    return None if set(_remembered(after)) == wanted else "what was done is not what is remembered"
