"""Retention: which files of a replica may go, as a pure plan, and the steps that remove them.

Invariants: after every step the last transaction, and every restore point that the policy keeps, can be restored; a
plan that was cut off is made again from what is left; the newest snapshot never goes, nor does the one before the time
that is kept, from which the first moments of that time are restored. The last transaction stays as a file of its own:
followers that have it need not look further.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from strandline.errors import InvalidInput
from strandline.objects import ObjectStore
from strandline.replica.layout import LEVEL_SNAPSHOT, LtxFile
from strandline.replica.shipper import SURE_FOR_S


@dataclass(frozen=True)
class RetentionPolicy:
    """How long restore points are kept."""

    restorable_for: timedelta = timedelta(days=1)
    """Every moment of so long can be restored."""
    snapshots_min: int = 2
    """So many of the latest snapshots are kept, however old."""
    transactions_for: timedelta = timedelta(minutes=5)
    """Single transactions are kept for so long, and then only in merged files.

    A leader that was away for less than `SURE_FOR_S` relies on them to see that another leader has written. So they are
    as old as the store's own clock says, by its time of the newest file: a clock here that is ahead removes none early.
    """

    def __post_init__(self) -> None:
        if self.transactions_for < timedelta(seconds=SURE_FOR_S):
            raise InvalidInput(
                f"single transactions are kept for {self.transactions_for.total_seconds():g} s",
                hint=f"keep them for {SURE_FOR_S:g} s at least: a leader that was away for less looks at nothing else",
            )


DEFAULT_POLICY = RetentionPolicy()


def plan_retention(files: Sequence[LtxFile], now: datetime, policy: RetentionPolicy = DEFAULT_POLICY) -> list[LtxFile]:
    """Return the files that may go, in the order in which they go."""
    snapshots = sorted((file for file in files if file.level == LEVEL_SNAPSHOT), key=lambda file: file.max_txid)
    expired = [file for file in snapshots if now - file.modified > policy.restorable_for]
    young = [file for file in snapshots if file not in expired]
    base = expired[-1:]  # what happened between it and the first young snapshot is restored from it
    kept = sorted({*base, *young, *snapshots[-policy.snapshots_min :]}, key=lambda file: file.max_txid)
    floor = kept[0].max_txid if base else 0
    old = [file for file in snapshots if file not in kept]
    singles = sorted((file for file in files if file.level == 0), key=lambda file: file.min_txid)
    firsts = [file.min_txid for file in singles]
    covered = list[LtxFile]()
    sure_now = min(now, max((file.modified for file in files), default=now))
    relied_on = next((file.min_txid for file in singles if not _is_free(file, sure_now, policy)), floor + 1)
    below = [
        file
        for file in files
        if file.level != LEVEL_SNAPSHOT and file.max_txid <= (floor if file.level else min(floor, relied_on - 1))
    ]
    for merged in files:
        if merged.level == 1:
            start, stop = bisect_left(firsts, merged.min_txid), bisect_right(firsts, merged.max_txid)
            covered += _superseded(merged, singles[start:stop], sure_now, policy)
    last = max(singles, key=lambda file: file.max_txid, default=None)
    gone = sorted({*below, *covered} - {last}, key=lambda file: (file.level, file.max_txid))
    return [*old, *gone]


def _superseded(merged: LtxFile, files: Sequence[LtxFile], now: datetime, policy: RetentionPolicy) -> list[LtxFile]:
    """Return the transactions that a merged file holds, if all of them are old enough: some alone restore nothing."""
    within = [file for file in files if file.max_txid <= merged.max_txid]
    return within if all(_is_free(file, now, policy) for file in within) else []


def _is_free(single: LtxFile, now: datetime, policy: RetentionPolicy) -> bool:
    """Tell whether no leader relies on a single transaction any more."""
    return now - single.modified > policy.transactions_for


def prune(store: ObjectStore, plan: Sequence[LtxFile]) -> int:
    """Remove the files of a plan; return how many."""
    for file in plan:
        store.delete(file.key)
    return len(plan)
