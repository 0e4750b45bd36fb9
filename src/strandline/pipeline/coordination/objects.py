"""Coordination records in object storage: one object for each run and shard, written by conditional puts alone.

No store of objects writes two of them at once, so every kind of plan has one object whose write decides:

    a run, or one shard        its own write
    a claim                    the shard's; then the run is read again, and the claim undone if it had changed
    a split                    the parent's: parts are written before, and exist once the parent names them
    a registration             the run's, which comes last: shards of a run that is not active cannot be claimed
    a run with one shard       the shard's: the run holds the intent before, and every reader of the run resolves it

Invariants: a plan that was answered `DONE` was decided on versions that were current at its deciding write; wherever a
writer dies, other callers see all of its plan or nothing, or finish it; a write whose answer was lost is read back, and
is never repeated; a part that its parent names and that is gone is damage, never one shard fewer. Objects are listed
and read only if their ETag is new.

A claim costs the same whatever the number of shards: each process begins at a random shard of its own, goes on from
where it found one free, and lists one page from there. Only a page without a free shard makes it list them all.
"""

import random
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from strandline.objects import ObjectConflict, ObjectStore, WriteUnknown
from strandline.pipeline.coordination.codec import format_run, format_shard, parse_run, parse_shard
from strandline.pipeline.coordination.object_records import (
    NO_NONCE,
    NONCE_BYTES,
    Envelope,
    Intent,
    damaged,
    format_envelope,
    format_intent,
    format_run_key,
    format_runs_prefix,
    format_shard_key,
    format_shards_prefix,
    parse_envelope,
    parse_intent,
    parse_run_key,
)
from strandline.pipeline.coordination.record_store import Claimable, Plan, Result, RunChange, ShardChange, Versioned
from strandline.protocol.runs import Progress, RunRecord
from strandline.protocol.shards import RunKey, ShardKey, ShardRecord, ShardStatus

_THREADS = 16
_FEW = 4
"""Objects that are read one after another; more are read at once."""
_OVER = (ShardStatus.DONE, ShardStatus.SPLIT)
"""States that a shard never leaves."""
_HELD_READS = 32
"""So many renewed shards are read to see that one is held still."""
_CLAIM_KEYS = 1_000
"""A claim lists so many shards: stores list a thousand keys with one request."""
_parsed = lru_cache(maxsize=1 << 16)(parse_shard)
"""Records of shards are values: most are asked for again and again, and few change."""


class _Stored(NamedTuple):
    """An object as it was read."""

    etag: str
    envelope: Envelope


class ObjectRecords:
    """Runs and shards in a store of objects that the caller opens before and closes after."""

    records_per_commit_max = 1_000
    registers_in_one_commit = False

    def __init__(self, store: ObjectStore, rng: random.Random | None = None) -> None:
        """`rng` draws where a run's first claim begins; it spreads processes, and guards nothing."""
        self._store = store
        self._rng = rng or random.Random()  # noqa: S311 - spreads load
        self._known: dict[str, _Stored] = {}
        self._claim_after: dict[RunKey, str] = {}
        self._lock = threading.Lock()

    def load_run(self, key: RunKey) -> Versioned[RunRecord] | None:
        """Return a run, or None; a change of it and a shard that was interrupted is finished first."""
        while (found := self._get(format_run_key(key))) is not None:
            if not found.envelope.intent:
                return Versioned(parse_run(found.envelope.record), found.envelope.version)
            self._resolve(key, found)
        return None

    def load_shards(self, keys: Sequence[ShardKey]) -> list[Versioned[ShardRecord] | None]:
        """Return shards in the order asked for, None for those that do not exist."""
        found = self._get_all([format_shard_key(key) for key in keys])
        return [self._existing(stored) for stored in found]

    def fence_of(self, tenant: bytes, run: int, shard: int) -> int | None:
        """Return the current fence of a shard, or None where there is no such shard."""
        (found,) = self.load_shards([ShardKey(tenant, run, shard)])
        return None if found is None else found.record.fence

    def commit(self, plan: Plan) -> Result:
        """Write a plan: the write that decides comes last, or is one that others can finish."""
        if plan.run is not None:
            return self._commit_with_run(plan, plan.run) if plan.shards else self._commit_run(plan.run)
        changed = [change for change in plan.shards if change.before is not None]
        if len(changed) > 1:
            raise AssertionError("a plan changes one shard and adds others")
        if len(changed) < len(plan.shards) and plan.unchanged_run and not self._is_unchanged(plan.unchanged_run):
            return Result.CHANGED  # before shards are added, which cannot be taken back
        for change in plan.shards:
            if change.before is None and not self._add(change.after, is_part=change.after.parent is not None):
                return Result.CHANGED
        for change in changed:
            if not self._change(change):
                return Result.CHANGED
        if plan.unchanged_run is not None and not self._is_unchanged(plan.unchanged_run):
            for change in changed:
                self._undo(change)
            return Result.CHANGED
        return Result.DONE

    def claimable(self, run: RunKey, now: int, shards_max: int) -> Claimable:
        """Return active shards without a valid lease."""
        after = self._claim_after.get(run)
        if after is not None:
            page = islice(self._store.list(format_shards_prefix(run), start_after=after), _CLAIM_KEYS)
            if found := self._first_free(run, after, {info.key: info.etag for info in page}, now, shards_max):
                return Claimable(found, None)
        listed = {info.key: info.etag for info in self._store.list(format_shards_prefix(run))}
        names = list(listed)
        first = self._rng.randrange(len(names)) if names else 0
        turned = {name: listed[name] for name in names[first:] + names[:first]}
        if found := self._first_free(run, names[first - 1] if first else "", turned, now, shards_max):
            return Claimable(found, None)
        if (deadline := self._held_until(listed, now)) is not None:
            return Claimable((), deadline)
        active = [shard for shard in self._existing_shards(listed) if shard.status == ShardStatus.ACTIVE]
        free = [shard.key for shard in active if _is_free(shard, now)]  # it became so since it was read above
        deadlines = [shard.deadline for shard in active if shard.deadline is not None]
        return Claimable(tuple(free[:shards_max]), None if free else min(deadlines, default=None))

    def progress(self, run: RunKey) -> Progress:
        """Return the number of shards of a run in each state."""
        counts = dict.fromkeys(ShardStatus, 0)
        for shard in self._shards(run):
            counts[shard.status] += 1
        return Progress(*counts.values())

    def list_shards(self, run: RunKey, after: int | None, shards_max: int) -> list[ShardRecord]:
        """Return shards of a run by id, beginning after one."""
        found = [shard for shard in self._shards(run) if after is None or shard.shard > after]
        return sorted(found, key=lambda shard: shard.shard)[:shards_max]

    def list_runs(self, tenant: bytes, after: int | None, runs_max: int) -> list[RunRecord]:
        """Return runs of a tenant by id, beginning after one."""
        keys = sorted(parse_run_key(info.key) for info in self._store.list(format_runs_prefix(tenant)))
        chosen = [key for key in keys if after is None or key.run > after][:runs_max]
        return [run.record for run in map(self.load_run, chosen) if run is not None]

    def close(self) -> None:
        """Do nothing: the caller owns the store."""

    # Writes.

    def _commit_run(self, change: RunChange) -> Result:
        key = format_run_key(change.after.key)
        before = self._at_version(key, change.before.version) if change.before else None
        if change.before and (before is None or before.envelope.intent):
            return Result.CHANGED
        return Result.DONE if self._put(key, before, format_run(change.after)) else Result.CHANGED

    def _commit_with_run(self, plan: Plan, change: RunChange) -> Result:
        """Change a run and a shard: the run holds the intent until the shard has decided it."""
        (shard,) = plan.shards
        if shard.before is None or change.before is None:
            raise AssertionError("a run changes together with a shard that exists")
        key = format_run_key(change.after.key)
        run = self._at_version(key, change.before.version)
        if run is None or run.envelope.intent:
            return Result.CHANGED
        intent = Intent(
            secrets.token_bytes(NONCE_BYTES),
            shard.after.shard,
            shard.before.version,
            format_run(change.after),
            format_shard(shard.after),
        )
        if not self._put(key, run, run.envelope.record, intent=format_intent(intent)):
            return Result.CHANGED
        held = self._get(key)
        if held is None or not held.envelope.intent:  # another caller has resolved it; the run's operations tell
            return Result.CHANGED
        return Result.DONE if self._resolve(change.after.key, held) else Result.CHANGED

    def _resolve(self, run: RunKey, held: _Stored) -> bool:
        """Finish the intent of a run, of this process or another; return whether it was applied."""
        key = format_run_key(run)
        intent = parse_intent(held.envelope.intent, key)
        applied = self._apply(ShardKey(*run, intent.shard), intent)
        self._put(key, held, intent.run_after if applied else held.envelope.record)  # or another caller did
        return applied

    def _apply(self, shard: ShardKey, intent: Intent) -> bool:
        key = format_shard_key(shard)
        while True:
            found = self._get(key)
            if found is not None and found.envelope.applied == intent.id:
                return True
            if found is None or found.envelope.version != intent.before_version:
                return False
            if self._put(key, found, intent.shard_after, applied=intent.id):
                return True

    def _add(self, shard: ShardRecord, *, is_part: bool) -> bool:
        """Write a shard that does not exist yet; a part that was left behind by a split that failed is replaced."""
        key, record = format_shard_key(shard.key), format_shard(shard)
        if self._put(key, None, record):
            return True
        found = self._get(key)
        return is_part and found is not None and self._existing(found) is None and self._put(key, found, record)

    def _change(self, change: ShardChange) -> bool:
        key = format_shard_key(change.after.key)
        before = self._at_version(key, change.before.version if change.before else 0)
        return before is not None and self._put(key, before, format_shard(change.after))

    def _is_unchanged(self, run: Versioned[RunRecord]) -> bool:
        found = self._get(format_run_key(run.record.key))
        return found is not None and found.envelope.version == run.version

    def _undo(self, change: ShardChange) -> None:
        """Take a claim back; if that fails it ends by time, without an owner."""
        key = format_shard_key(change.after.key)
        now = self._at_version(key, (change.before.version if change.before else 0) + 1)
        if now is not None and change.before is not None:
            # The fence stays used: a fence is given out once.
            self._put(key, now, format_shard(change.before.record._replace(fence=change.after.fence)))

    def _put(
        self, key: str, before: _Stored | None, record: bytes, *, applied: bytes | None = None, intent: bytes = b""
    ) -> bool:
        """Write an object over what was read; return False if that is no longer there."""
        version = before.envelope.version + 1 if before else 1
        kept = before.envelope.applied if before else NO_NONCE
        envelope = Envelope(
            version, secrets.token_bytes(NONCE_BYTES), record, kept if applied is None else applied, intent
        )
        body = format_envelope(envelope)
        try:
            if before is None:
                etag = self._store.put(key, body, if_absent=True)
            else:
                etag = self._store.put(key, body, if_match=before.etag)
        except ObjectConflict:
            return False
        except WriteUnknown as unknown:
            found = self._get(key)
            if found is not None and found.envelope.write == envelope.write:
                return True
            if found is not None and found.envelope.version == version:
                return False  # another writer has used the condition up
            raise unknown from None
        self._remember(key, _Stored(etag, envelope))
        return True

    # Reads.

    def _first_free(
        self, run: RunKey, after: str, listed: Mapping[str, str], now: int, shards_max: int
    ) -> tuple[ShardKey, ...]:
        """Return the first shards of a listing that are free, reading no more than that takes; claims go on there.

        `after` is the name before the first of them.
        """
        left = iter([name for name, etag in listed.items() if self._may_be_free(name, etag, now)])
        while names := tuple(islice(left, _THREADS)):
            found = self._refreshed({name: listed[name] for name in names})
            free: list[ShardKey] = []
            for name in names:
                shard = self._free_shard(found.get(name), now)
                if shard is None:
                    after = after if free else name
                    continue
                if not free and name <= after:  # the listing began anew
                    after = ""
                free.append(shard)
            if free:
                self._claim_after[run] = after
                return tuple(free[:shards_max])
        return ()

    def _may_be_free(self, name: str, etag: str, now: int) -> bool:
        """Return whether a listed shard is free, or may be since it was read."""
        known = self._known.get(name)
        if known is None:
            return True
        shard = _parsed(known.envelope.record)
        if shard.status in _OVER or (shard.deadline is not None and shard.deadline > now):
            return False  # it stays over, and held as long as it said unless it is unparked, which `claimable` allows
        return known.etag != etag or shard.status == ShardStatus.ACTIVE

    def _held_until(self, listed: Mapping[str, str], now: int) -> int | None:
        """Return the first known deadline if a shard is held for sure, without reading all that were renewed since.

        A shard that was held until later than now when it was read is not free: it is over, or was renewed. One that is
        still held is enough to know that the run goes on. None if that is not known, or takes no more than a few reads.
        """
        known = {name: stored for name in listed if (stored := self._known.get(name)) is not None}
        deadlines = {name: _parsed(stored.envelope.record).deadline or 0 for name, stored in known.items()}
        changed = [name for name, until in deadlines.items() if until > now and known[name].etag != listed[name]]
        if len(changed) <= _HELD_READS:
            return None
        read = self._refreshed({name: listed[name] for name in self._rng.sample(changed, _HELD_READS)})
        if not any(_parsed(stored.envelope.record).status == ShardStatus.ACTIVE for stored in read.values()):
            return None
        return min(until for until in deadlines.values() if until > now)

    def _free_shard(self, stored: _Stored | None, now: int) -> ShardKey | None:
        if stored is None or not _is_free(_parsed(stored.envelope.record), now):
            return None
        shard = self._existing(stored)
        return None if shard is None else shard.record.key

    def _shards(self, run: RunKey) -> Iterable[ShardRecord]:
        """Return the shards of a run that exist."""
        return self._existing_shards({info.key: info.etag for info in self._store.list(format_shards_prefix(run))})

    def _existing_shards(self, listed: Mapping[str, str]) -> list[ShardRecord]:
        """Return the shards of a listing that exist; a part that is missing is damage."""
        found = self._refreshed(listed)
        while missing := {key for key in self._parts_of(found.values()) if key not in found}:
            found |= {key: one for key, one in zip(missing, self._get_all(list(missing)), strict=True) if one}
            for gone in sorted(missing - found.keys()):  # parts are written before their parent names them
                raise damaged(f"{self._store.address}: {gone}", "a split names this shard, and it is gone")
        records = {key: _parsed(stored.envelope.record) for key, stored in found.items()}
        parts = {part for record in records.values() for part in _part_keys(record)}
        return [record for key, record in records.items() if record.parent is None or key in parts]

    def _refreshed(self, listed: Mapping[str, str]) -> dict[str, _Stored]:
        """Return listed objects, reading those that are new; a shard that is over never changes again."""
        with self._lock:
            known = {key: self._known[key] for key, etag in listed.items() if self._is_current(key, etag)}
        stale = [key for key in listed if key not in known]
        return known | {key: one for key, one in zip(stale, self._get_all(stale), strict=True) if one is not None}

    def _is_current(self, key: str, etag: str) -> bool:
        return key in self._known and self._known[key].etag == etag

    def _parts_of(self, found: Iterable[_Stored]) -> set[str]:
        return {key for stored in found for key in _part_keys(_parsed(stored.envelope.record))}

    def _existing(self, stored: _Stored | None) -> Versioned[ShardRecord] | None:
        """Return a shard, or None if it is a part that its parent does not name."""
        if stored is None:
            return None
        record = _parsed(stored.envelope.record)
        if record.parent is not None and not self._is_named(record, record.key._replace(shard=record.parent)):
            return None
        return Versioned(record, stored.envelope.version)

    def _is_named(self, part: ShardRecord, parent: ShardKey) -> bool:
        """Return whether a parent names a part, which it never takes back."""
        key = format_shard_key(parent)
        with self._lock:
            known = self._known.get(key)
        if known is None or part.shard not in _parsed(known.envelope.record).spawned:
            known = self._get(key)
        return known is not None and part.shard in _parsed(known.envelope.record).spawned

    def _at_version(self, key: str, version: int) -> _Stored | None:
        """Return an object at the version that a decision was made on, or None if it has another."""
        with self._lock:
            known = self._known.get(key)
        if known is None or known.envelope.version != version:
            known = self._get(key)
        return known if known is not None and known.envelope.version == version else None

    def _get(self, key: str) -> _Stored | None:
        found = self._store.get(key)
        if found is None:
            return None
        stored = _Stored(found.info.etag, parse_envelope(found.body, f"{self._store.address}: {key}"))
        self._remember(key, stored)
        return stored

    def _get_all(self, keys: Sequence[str]) -> list[_Stored | None]:
        if len(keys) <= _FEW:
            return list(map(self._get, keys))
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self._get, keys))

    def _remember(self, key: str, stored: _Stored) -> None:
        with self._lock:
            known = self._known.get(key)
            if known is None or known.envelope.version <= stored.envelope.version:
                self._known[key] = stored


def _is_free(shard: ShardRecord, now: int) -> bool:
    return shard.status == ShardStatus.ACTIVE and (shard.deadline is None or shard.deadline <= now)


def _part_keys(record: ShardRecord) -> list[str]:
    return [format_shard_key(record.key._replace(shard=part)) for part in record.spawned]
