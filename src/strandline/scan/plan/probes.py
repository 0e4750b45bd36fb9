"""Probes: the planner itself reads items that an earlier scan left in doubt, within bounds.

A file that was written just before it was read may have been written again within the same tick of the clock, so its
stat data vouch for nothing; one that could not be read may be readable by now. Both are read here: if the ledger knows
what is found, they are done, and no worker is started for them.

Invariants: only items whose listing is what it was when they were left in doubt; at most `ITEMS_MAX` and `BYTES_MAX` of
a plan. Nothing is scanned, and nothing written.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from strandline.pipeline.identity import OvidHash, VersionKind
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.stores import Stores
from strandline.scan.plan.ledger_facts import is_done, ledger_rows
from strandline.scan.plan.versions import LISTED, late_ovids, late_versions, listed_as, ovids_of
from strandline.scan.request import ScanRequest
from strandline.scan.sources import ItemProblem, ItemReader, Source

ITEMS_MAX = 10_000
BYTES_MAX = 64 << 20


class Probes:
    """The probes of one plan."""

    def __init__(self, stores: Stores, request: ScanRequest, share: int = 1) -> None:
        self._stores = stores
        self._request = request
        self._items_left = ITEMS_MAX // share
        self._bytes_left = BYTES_MAX // share

    def resolved(
        self, source: Source, listed: pa.RecordBatch, rows: Sequence[LedgerRecord | None]
    ) -> tuple[pa.RecordBatch, list[LedgerRecord | None]]:
        """Return a batch and its ledger rows, with those that probes add."""
        after = list(rows)
        problems = listed["problem"].to_pylist()
        unseen = [at for at, (row, problem) in enumerate(zip(rows, problems, strict=True)) if row is problem is None]
        places = self._doubtful(listed, unseen, after) if unseen else []
        return self._looked_at(source, listed, after, places) if places else (listed, after)

    def _doubtful(self, listed: pa.RecordBatch, unseen: list[int], rows: list[LedgerRecord | None]) -> list[int]:
        """Return which of the unseen items a former scan left in doubt, as many as are in bounds.

        Items that failed and may succeed are not among them, but get their rows: workers retry them.
        """
        chosen = listed.take(pa.array(unseen))
        items, stats, versions, sizes = (chosen[name].to_pylist() for name in ("item", "stat", "version", "size"))
        listed_so = list(map(listed_as, stats, versions))
        late = late_versions(self._stores.state, self._request.tenant, items, listed_so)
        tenant, policy = self._request.tenant, self._request.policy_hash
        known = ledger_rows(self._stores.ledger, tenant, policy, late_ovids(items, late))
        places = []
        for place, size, row in zip(unseen, sizes, known, strict=True):
            if row is not None and row.status == DoneStatus.FAILED_RETRYABLE:
                rows[place] = row
            elif row is not None and self._items_left > 0 and (size or 0) <= self._bytes_left:
                self._items_left -= 1
                self._bytes_left -= size or 0
                places.append(place)
        return places

    def _looked_at(
        self, source: Source, listed: pa.RecordBatch, rows: list[LedgerRecord | None], places: list[int]
    ) -> tuple[pa.RecordBatch, list[LedgerRecord | None]]:
        with source.open() as reader:
            found = [_look(reader, listed, place) for place in places]
        items = [listed["item"][place].as_py() for place in places]
        ovids: dict[int, OvidHash] = {}
        for kind in VersionKind:
            at = [number for number, one in enumerate(found) if one.kind is kind]
            keys = ovids_of([items[number] for number in at], [found[number].version for number in at], kind)
            ovids.update((places[number], key) for number, key in zip(at, keys, strict=True))
        request, after = self._request, rows
        asked = [ovids[place] for place in places]
        again = ledger_rows(self._stores.ledger, request.tenant, request.policy_hash, asked)
        settled: dict[int, _Look] = {}
        for place, row, look in zip(places, again, found, strict=True):
            if is_done(row, look.problem):
                after[place], settled[place] = row, look
        return _with_versions(listed, settled, ovids), after


class _Look(NamedTuple):
    version: bytes
    kind: VersionKind
    problem: str | None = None
    is_sure: bool = False


def _look(reader: ItemReader, listed: pa.RecordBatch, place: int) -> _Look:
    try:
        content = reader.read(listed["locator"][place].as_py(), listed["extra"][place].as_py())
    except ItemProblem as problem:
        return _Look(problem.version, problem.kind, problem.code)
    is_sure = content.stat is not None and content.stat == listed["stat"][place].as_py()
    return _Look(content.version, VersionKind.STRONG, is_sure=is_sure)


def _with_versions(listed: pa.RecordBatch, settled: dict[int, _Look], ovids: dict[int, OvidHash]) -> pa.RecordBatch:
    """Return a batch in which probed items have their versions."""
    columns = {name: listed[name].to_pylist() for name in ("version", "problem", "ovid", "weak", "is_sure")}
    for place, look in settled.items():
        columns["is_sure"][place] = look.is_sure
        columns["version"][place] = look.version
        columns["problem"][place] = look.problem
        columns["ovid"][place] = ovids[place]
        columns["weak"][place] = look.kind is VersionKind.WEAK
    arrays = [
        pa.array(columns[name], LISTED.field(name).type) if name in columns else listed[name] for name in LISTED.names
    ]
    return pa.record_batch(arrays, LISTED)
