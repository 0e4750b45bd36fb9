"""A preview of a repair: its changes and their reasons, without making them.

Invariant: the plan is the one that a repair would have now; the keys are those of this moment. Later
writes to the bucket make a preview outdated.
"""

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from strandline.fold.cursor import FoldCursor, parse_fold_cursor
from strandline.fold.errors import RepairRefused
from strandline.fold.records import FoldEntry
from strandline.fold.repair.decisions import Course, Decision, decide, decide_repair
from strandline.fold.repair.from_artifact import checked_mark, for_each_taken, vanished_keys
from strandline.fold.repair.from_listing import list_keys, stale_keys
from strandline.fold.repair.policy import RepairPolicy, decided_mode
from strandline.fold.scopes import Scope
from strandline.fold.store import FoldReader
from strandline.kv import KvStore, NotSupported, Retention, UpdateBatch
from strandline.protocol.repairs import KeyRepair, RepairPlan

_NOT_LISTED = "the bucket does not list it"
_NOT_IN_SCOPE = "it is not in the scope"
_ADDED = "the fold lacks it"
_CHANGED = "the bucket has another version of it"


class KeyChange(NamedTuple):
    """The change of a key: `TAKE` is a new or different value, `DELETE` removes it; and the reason."""

    key: bytes
    action: KeyRepair
    why: str


@dataclass(frozen=True, slots=True)
class RepairPreview:
    """A repair: its plan, its reason, the reason of a refusal if any, and the keys that it changes."""

    plan: RepairPlan
    reason: str
    refusal: str | None
    changes: list[KeyChange]
    is_needed: bool


async def preview_repair(
    bucket: KvStore, scope: Scope, fold: FoldReader, policy: RepairPolicy | None = None
) -> RepairPreview:
    """Return the changes that `repair_fold` would make to a fold, which is only read."""
    policy = policy or RepairPolicy()
    held = await asyncio.to_thread(fold.load)
    cursor = parse_fold_cursor(held.cursor) if held else FoldCursor()
    cursor = cursor._replace(mode=decided_mode(cursor, bucket.name, policy.fold_mode, asked=True))
    retention = await _retention(bucket)
    decision, is_needed = _decided(cursor, retention, policy, scope, has_data=bool(held and held.has_data))
    changes: list[KeyChange] = []
    refusal = None
    try:
        match decision.plan:
            case RepairPlan.RELIST:
                changes = await _relisted(bucket, scope, fold)
            case RepairPlan.RESTORE:
                changes = await _restored(bucket, scope, fold, policy, cursor, retention)
            case RepairPlan.RELIST_ONLY:
                changes = [change for change in await _relisted(bucket, scope, fold) if change.action is KeyRepair.TAKE]
            case _:
                refusal = "the bucket has evicted values, so its listing is incomplete"
    except RepairRefused as refused:
        refusal = refused.reason
    return RepairPreview(decision.plan or RepairPlan.REFUSE_RELIST, decision.reason, refusal, changes, is_needed)


def _decided(
    cursor: FoldCursor, retention: Retention | None, policy: RepairPolicy, scope: Scope, *, has_data: bool
) -> tuple[Decision, bool]:
    """Return the repair, and whether a watch would make it on its own."""
    can_restore, now_ns = policy.restorer is not None, policy.clock.now_ns()
    decision = decide(cursor, retention, policy.mode, now_ns, has_data=has_data, can_restore=can_restore)
    reason = decision.reason
    if decision.course is Course.FORGET:
        cursor = FoldCursor(mode=cursor.mode)
    is_needed = decision.course in (Course.FORGET, Course.REPAIR) or not scope.is_stored_as(cursor.scope)
    return decide_repair(cursor, retention, policy.mode, reason), is_needed


async def _retention(bucket: KvStore) -> Retention | None:
    watcher = bucket.watcher()
    if watcher is None:
        raise NotSupported(f"watching bucket {bucket.name!r}")
    try:
        return await watcher.retention()
    except NotSupported:
        return None


async def _relisted(bucket: KvStore, scope: Scope, fold: FoldReader) -> list[KeyChange]:
    listed: set[bytes] = set()
    changes: list[KeyChange] = []
    for prefix in scope.prefixes:
        async for batch in bucket.reader().scan_batches(prefix):
            keys = batch.key_bytes
            listed.update(keys)
            found = await asyncio.to_thread(fold.multi_get, keys)
            changes += _compared(batch, keys, found)
    for key in await asyncio.to_thread(lambda: stale_keys(fold, scope, listed, whole=True)):
        changes.append(KeyChange(key, KeyRepair.DELETE, _NOT_LISTED if scope.has(key) else _NOT_IN_SCOPE))
    return changes


def _compared(batch: UpdateBatch, keys: list[bytes], found: list[FoldEntry | None]) -> list[KeyChange]:
    changes = []
    for key, revision, local in zip(keys, batch.versions.tolist(), found, strict=True):
        if local is None:
            changes.append(KeyChange(key, KeyRepair.TAKE, _ADDED))
        elif int.from_bytes(local.version, "big") != revision:
            changes.append(KeyChange(key, KeyRepair.TAKE, _CHANGED))
    return changes


async def _restored(
    bucket: KvStore,
    scope: Scope,
    fold: FoldReader,
    policy: RepairPolicy,
    cursor: FoldCursor,
    retention: Retention | None,
) -> list[KeyChange]:
    artifact = None if policy.restorer is None else await policy.restorer.newest(scope)
    if artifact is None:
        raise RepairRefused(bucket.name, "there is no artifact", hint="give a restorer that has one")
    try:
        checked_mark(artifact, bucket.name, scope, cursor, retention, cursor.mode)
        listed = await list_keys(bucket.reader(), scope)
        return await asyncio.to_thread(_compared_with_artifact, artifact, fold, scope, listed, cursor)
    finally:
        await asyncio.to_thread(artifact.close)


def _compared_with_artifact(
    artifact: FoldReader, fold: FoldReader, scope: Scope, listed: set[bytes], cursor: FoldCursor
) -> list[KeyChange]:
    changes: list[KeyChange] = []

    def take(batch: UpdateBatch) -> None:
        changes.extend(KeyChange(key, KeyRepair.TAKE, "the artifact has another value") for key in batch.key_bytes)

    for_each_taken(artifact, fold.multi_get, scope, take, comparable=bool(cursor.revision))
    gone = vanished_keys(artifact, fold, scope, listed)
    changes += [KeyChange(key, KeyRepair.DELETE, "neither the artifact nor the bucket has it") for key in gone]
    return changes
