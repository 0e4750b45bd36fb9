"""Coordination records in etcd: records by revision, owners on leases, and an index of active shards by deadline.

Invariants: a plan is one transaction, conditional on the revision of every record it was decided on and, under a lease,
on the shard's owner key (there, of that worker and fence, on that etcd lease); a transaction whose answer was lost is
looked up, and sent again if it has not landed, before anything is answered.

An etcd lease is granted for each acquisition, not for each worker: shards are renewed and given up one by one, and one
that its worker forgot must not live on with the others. It lasts 60 s, or as long as the shard's lease if that is
longer, from the acquisition or the last renewal. When it ends etcd removes the owner key, and nothing more is accepted
under the shard's lease; the shard can be taken when the deadline in its record has passed.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from strandline.errors import InvalidInput, Unavailable, UnknownOutcome
from strandline.pipeline.coordination.codec import parse_run, parse_shard
from strandline.pipeline.coordination.etcd_client import OPERATIONS_MAX, EtcdClient, KeyValue
from strandline.pipeline.coordination.etcd_keys import (
    PREFIX,
    Noun,
    active_shards_of,
    check_prefix,
    end_of,
    format_key,
    parse_key,
    shards_of,
)
from strandline.pipeline.coordination.etcd_plan import (
    SHARDS_MAX,
    OwnerKey,
    Transaction,
    owner_value,
    parse_deadline,
    transaction,
    written,
)
from strandline.pipeline.coordination.record_store import (
    Claimable,
    OwnerChange,
    Plan,
    Result,
    ShardChange,
    Versioned,
    owner_change,
)
from strandline.protocol.runs import Progress, RunRecord
from strandline.protocol.shards import RunKey, ShardKey, ShardRecord, ShardStatus

OWNER_TTL_S = 60
_PAUSES_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2)
_PAGE = 256
_LEASES_MAX = 10_000
_HALVES = ((-(2**63), -1), (0, 2**63 - 1))
"""Ids by sign: negative ones come first, and their digits last."""


class EtcdRecords:
    """Runs and shards below a prefix of an etcd; the caller owns the client."""

    records_per_commit_max = SHARDS_MAX
    registers_in_one_commit = True

    def __init__(self, client: EtcdClient, *, prefix: str = PREFIX, owner_ttl_s: int = OWNER_TTL_S) -> None:
        if owner_ttl_s <= 0:
            raise InvalidInput(f"the duration of an owner's lease must be positive, not {owner_ttl_s} s")
        self._client = client
        self._prefix = check_prefix(prefix)
        self._owner_ttl_s = owner_ttl_s
        self._leases: dict[ShardKey, OwnerKey] = {}

    def load_run(self, key: RunKey) -> Versioned[RunRecord] | None:
        """Return a run, or None."""
        (found,) = self._client.get(format_key(self._prefix, Noun.RUN, key))
        return Versioned(parse_run(found.value), found.mod_revision) if found else None

    def load_shards(self, keys: Sequence[ShardKey]) -> list[Versioned[ShardRecord] | None]:
        """Return shards in the order asked for, None for those that do not exist."""
        names = [format_key(self._prefix, Noun.SHARD, key) for key in keys]
        chunks = [names[first : first + OPERATIONS_MAX] for first in range(0, len(names), OPERATIONS_MAX)]
        found = [entry for chunk in chunks for entry in self._client.get(*chunk)]
        return [entry and Versioned(parse_shard(entry.value), entry.mod_revision) for entry in found]

    def commit(self, plan: Plan) -> Result:
        """Write a plan in one transaction."""
        owners = self._owners(plan)
        result = self._refusal(plan) if owners is None else self._write(plan, owners)
        for change in plan.shards:
            self._settle(change, (owners or {}).get(change.after.key), done=result is Result.DONE)
        return result

    def claimable(self, run: RunKey, now: int, shards_max: int) -> Claimable:
        """Return active shards without a valid lease."""
        index = active_shards_of(self._prefix, run)
        free: list[ShardKey] = []
        earliest: int | None = None
        for entry in self._scan(index, end_of(index)):
            deadline = parse_deadline(entry.value)
            if deadline is None or deadline <= now:
                free.append(ShardKey(*parse_key(self._prefix, entry.key)[1]))
                if len(free) >= shards_max:
                    break
            else:
                earliest = deadline if earliest is None else min(earliest, deadline)
        return Claimable(tuple(free), None if free else earliest)

    def progress(self, run: RunKey) -> Progress:
        """Return the number of shards of a run in each state."""
        counts = dict.fromkeys(ShardStatus, 0)
        beginning = shards_of(self._prefix, run)
        for shard in self._shards(beginning, end_of(beginning)):
            counts[shard.status] += 1
        return Progress(*counts.values())

    def list_shards(self, run: RunKey, after: int | None, shards_max: int) -> list[ShardRecord]:
        """Return shards of a run by id, beginning after one."""
        listed: list[ShardRecord] = []
        for first, last in _halves_after(after):
            start, end = (format_key(self._prefix, Noun.SHARD, ShardKey(*run, shard)) for shard in (first, last))
            listed += islice(self._shards(start, end + b"\0"), shards_max - len(listed))
        return listed

    def list_runs(self, tenant: bytes, after: int | None, runs_max: int) -> list[RunRecord]:
        """Return runs of a tenant by id, beginning after one."""
        listed: list[RunRecord] = []
        for first, last in _halves_after(after):
            start, end = (format_key(self._prefix, Noun.RUN, RunKey(tenant, run)) for run in (first, last))
            while len(listed) < runs_max and (found := self._client.range(start, end + b"\0", 1).found):
                listed.append(parse_run(found[0].value))
                start = found[0].key + b"0"  # past all that is below the run
        return listed

    def close(self) -> None:
        """Do nothing: the caller owns the client."""

    def _owners(self, plan: Plan) -> dict[ShardKey, OwnerKey] | None:
        """Return the owner keys of a plan, or None if one is gone."""
        owners = {}
        for change in plan.shards:
            match owner_change(change):
                case OwnerChange.NONE:
                    continue
                case OwnerChange.TAKEN:
                    owner = OwnerKey(owner_value(change.after), self._client.grant(self._ttl_s(plan, change)))
                case OwnerChange.HELD | OwnerChange.RELEASED:
                    held = self._held(change)
                    if held is None:
                        return None
                    owner = held
            owners[change.after.key] = owner
        return owners

    def _held(self, change: ShardChange) -> OwnerKey | None:
        """Return the owner key of a shard under a lease, kept alive if the lease is renewed; None if it is gone."""
        before, after = _before(change), change.after
        owner = self._leases.get(after.key)
        if owner is None or owner.value != owner_value(before):
            (found,) = self._client.get(format_key(self._prefix, Noun.OWNER, after.key))
            if found is None or found.value != owner_value(before):
                return None
            owner = OwnerKey(found.value, found.lease)
        renewed = after.deadline not in {None, before.deadline}
        return None if renewed and not self._client.keep_alive(owner.lease) else owner

    def _ttl_s(self, plan: Plan, change: ShardChange) -> int:
        lasts_ns = (change.after.deadline or 0) - plan.now
        return max(self._owner_ttl_s, -(-lasts_ns // 1_000_000_000))

    def _write(self, plan: Plan, owners: dict[ShardKey, OwnerKey]) -> Result:
        sent = transaction(self._prefix, plan, owners)
        try:
            done = self._client.transact(*sent)
        except UnknownOutcome as unknown:
            return self._resolve(plan, owners, sent, unknown)
        return Result.DONE if done else self._refusal(plan)

    def _resolve(
        self, plan: Plan, owners: dict[ShardKey, OwnerKey], sent: Transaction, unknown: UnknownOutcome
    ) -> Result:
        """Resolve a transaction whose answer was lost; sent again, it takes effect at most once."""
        for pause_s in _PAUSES_S:
            time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load, guards nothing
            with suppress(Unavailable, UnknownOutcome):
                result = self._landed(plan, owners)
                if result is None and not self._client.transact(*sent):
                    result = self._landed(plan, owners) or self._refusal(plan)
                return result or Result.DONE
        raise unknown

    def _landed(self, plan: Plan, owners: dict[ShardKey, OwnerKey]) -> Result | None:
        """Return the outcome of a transaction from its records, or None if none of them has changed."""
        records = written(self._prefix, plan)
        found = self._client.get(*(record.name for record in records))
        if [entry.mod_revision if entry else 0 for entry in found] == [record.revision for record in records]:
            return None
        ours = [entry and entry.value for entry in found] == [record.value for record in records]
        # The same worker may have taken the shard twice at the same time; the etcd lease tells which of the two it was.
        taken = [change.after.key for change in plan.shards if owner_change(change) is OwnerChange.TAKEN]
        keys = self._client.get(*(format_key(self._prefix, Noun.OWNER, key) for key in taken))
        mine = all(entry and entry.lease == owners[key].lease for entry, key in zip(keys, taken, strict=True))
        return Result.DONE if ours and mine else Result.CHANGED

    def _refusal(self, plan: Plan) -> Result:
        """Return the reason for a refused transaction."""
        for change in plan.shards:
            if change.before is None or owner_change(change) not in {OwnerChange.HELD, OwnerChange.RELEASED}:
                continue
            names = (format_key(self._prefix, noun, change.after.key) for noun in (Noun.SHARD, Noun.OWNER))
            record, owner = self._client.get(*names)
            if record is None or record.mod_revision != change.before.version:
                return Result.CHANGED
            if owner is None or owner.value != owner_value(change.before.record):
                return Result.OWNER_LOST
        return Result.CHANGED

    def _settle(self, change: ShardChange, owner: OwnerKey | None, *, done: bool) -> None:
        """Remember a kept owner key; revoke the etcd lease of a released one, ignoring errors."""
        what = owner_change(change)
        if done and owner is not None and what in {OwnerChange.TAKEN, OwnerChange.HELD}:
            if len(self._leases) >= _LEASES_MAX:
                self._leases.clear()  # they can be read again
            self._leases[change.after.key] = owner
            return
        self._leases.pop(change.after.key, None)
        if owner is not None and (what is OwnerChange.TAKEN or (done and what is OwnerChange.RELEASED)):
            with suppress(Unavailable):
                self._client.revoke(owner.lease)

    def _shards(self, start: bytes, end: bytes) -> Iterator[ShardRecord]:
        for entry in self._scan(start, end):
            if parse_key(self._prefix, entry.key)[0] is Noun.SHARD:
                yield parse_shard(entry.value)

    def _scan(self, start: bytes, end: bytes) -> Iterator[KeyValue]:
        """Yield all of a range as of one moment, page by page."""
        page = self._client.range(start, end, _PAGE)
        yield from page.found
        while page.more:
            page = self._client.range(page.found[-1].key + b"\0", end, _PAGE, page.revision)
            yield from page.found


def _before(change: ShardChange) -> ShardRecord:
    if change.before is None:
        raise AssertionError("a shard that is held was there before")
    return change.before.record


def _halves_after(after: int | None) -> list[tuple[int, int]]:
    """Return the ranges of ids after one, whose names sort as the ids do."""
    following = -(2**63) if after is None else after + 1
    return [(max(first, following), last) for first, last in _HALVES if following <= last]
