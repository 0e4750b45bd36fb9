"""Retention of a lake: what compaction replaced is deleted after a grace period, and old batches of state as well.

    records     the pages and data files that a compaction's record names, then the record
    orphans     data files of compactions that were killed before their commit
    state       batches that an old snapshot has, and values that no key had since

Invariants: a page is deleted only after every table that has its rows was committed and recorded; a file that a table
has is never deleted; a reader that began within the grace period finds what it listed. Times are those of the store.
"""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from strandline.errors import Conflict, Damaged, InvalidInput
from strandline.objects import ObjectInfo, ObjectStore
from strandline.pipeline.identity import TenantId
from strandline.pipeline.lake.columns import TABLES
from strandline.pipeline.lake.compaction_records import read_records
from strandline.pipeline.lake.delta_log import DeltaLog, format_data_key
from strandline.pipeline.lake.layout import (
    COMPACTION,
    DATA_FILE,
    STATE,
    format_log_prefix,
    format_snapshots_prefix,
    format_trimmed,
    format_values_prefix,
    parse_number,
    parse_tenant,
    parse_value,
)
from strandline.pipeline.lake.state_log import STALE_S, StateLog, parse_batch, value_ids_of

ORPHAN_GRACE_S = 86_400.0
"""Data files that no commit names may belong to a compactor at work, which gives up after half of this."""


class ObjectGone(Damaged):
    """A page or data file is gone: another compaction folded it meanwhile, or it was deleted."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "it is gone", safe="restore the object, unless another compaction folded it")


class Retention:
    """The retention of one lake."""

    def __init__(self, store: ObjectStore, *, grace_s: float) -> None:
        if grace_s < 0:
            raise InvalidInput(f"a grace period is not negative, as {grace_s} s is")
        self._store = store
        self._grace = timedelta(seconds=grace_s)

    def run(self) -> int:
        """Delete what no reader needs any more; return the number of objects."""
        now = self._store_now()
        deleted = 0
        tables = {table: DeltaLog(self._store, table).latest() for table in TABLES}
        live = {format_data_key(table, path) for table, version in tables.items() for path in version.files}
        records = read_records(self._store)
        for info in list(self._store.list(COMPACTION)):
            if info.key in records and info.modified + self._grace <= now:
                record = records.pop(info.key)
                for key in (*record["pages"], *(key for key in record["replaced"] if key not in live)):
                    self._store.delete(key)
                    deleted += 1
                self._store.delete(info.key)
        named = live | {key for record in records.values() for key in record["replaced"]}
        for table, version in tables.items():  # the record of a commit comes later, or never if it was killed
            named |= {format_data_key(table, path) for path, at in version.removed.items() if at + self._grace > now}
        deleted += self._delete_orphans(named, now)
        for tenant in sorted({parse_tenant(info.key) for info in self._store.list(STATE)}):
            deleted += self._trim_state(StateLog(self._store, tenant), tenant, now)
        return deleted

    def _delete_orphans(self, named: set[str], now: datetime) -> int:
        """Delete data files of compactions that were killed before their commit."""
        grace = max(self._grace, timedelta(seconds=ORPHAN_GRACE_S))
        orphans = [
            info.key
            for table in TABLES
            for info in self._store.list(f"tables/{table}/")
            if DATA_FILE.fullmatch(info.key) and info.key not in named and info.modified + grace <= now
        ]
        for key in orphans:
            self._store.delete(key)
        return len(orphans)

    def _trim_state(self, log: StateLog, tenant: TenantId, now: datetime) -> int:
        """Delete batches that an old snapshot has, and values that no key had since, once no reader needs them."""
        grace = max(self._grace, timedelta(seconds=2 * STALE_S))
        values = [info for info in self._store.list(format_values_prefix(tenant)) if info.modified + grace <= now]
        snapshots = sorted(self._store.list(format_snapshots_prefix(tenant)), key=lambda info: info.key)
        base = max((info.key for info in snapshots[:-1] if info.modified + grace <= now), default=None)
        covered = -1 if base is None else parse_number(base)
        batches = sorted(self._store.list(format_log_prefix(tenant)), key=lambda info: info.key)
        since = [info for info in batches if parse_number(info.key) > covered]
        # A reader that looked within the grace period may be about to read a value that a later batch has replaced.
        used = log.read(lambda fold: fold.value_ids()) | self._used_since(now - grace, base, since)
        old = [info.key for info in values if parse_value(info.key) not in used]
        old += [info.key for info in batches if parse_number(info.key) <= covered and info.modified + grace <= now]
        old += [info.key for info in snapshots if base is not None and info.key < base]
        if covered >= 0:  # before any batch goes: a writer that slept finds the number of the first one free again
            self._store.put(format_trimmed(tenant), b"")
        for key in old:
            self._store.delete(key)
        return len(old)

    def _used_since(self, at: datetime, base: str | None, batches: Sequence[ObjectInfo]) -> set[bytes]:
        """Return the ids of the values that any key had since a time, given a snapshot and what follows it."""
        then: dict[bytes, bytes] = {}
        later = set[bytes]()
        steps = [] if base is None else [(base, False)]
        for key, is_later in [*steps, *((one.key, one.modified > at) for one in batches)]:
            found = self._store.get(key)
            if found is None:
                raise ObjectGone(f"{self._store.address}: {key}")
            batch = parse_batch(found.body, key)
            if is_later:
                later |= set(value_ids_of(batch).values())
            else:
                for operation in batch.operations:
                    then.pop(operation.key, None)
                then |= value_ids_of(batch)
        return later | set(then.values())

    def _store_now(self) -> datetime:
        """Return the time of the store, which all its clients share."""
        key = f"{COMPACTION}clock"
        self._store.put(key, secrets.token_bytes(8))
        info = self._store.head(key)
        if info is None:
            raise Conflict("another compaction deleted the object that tells the time", hint="run the command again")
        return info.modified
