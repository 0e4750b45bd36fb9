"""The fetcher: reads the next items while the items before them are scanned.

An item comes out as one of

    known       the ledger has it: another worker did it after the plan
    problem     it cannot be read; its version is weak
    carried     an older policy saw it whole; with `content` if added rules have to look at it
    content     its bytes, to be scanned

Invariants: the ledger is asked before bytes are read, for versions that are known, and before they are scanned, for
late versions (its answer may lack the latest rows: an item that is scanned twice has the same rows); a fetch is bounded
in items and bytes; an item that is read part by part ends its fetch, and nothing is read while it is gone through.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import (
    ObservationId,
    OvidHash,
    StableItemId,
    VersionKind,
    stable_item_ids,
)
from strandline.pipeline.pages import Scanned
from strandline.pipeline.reads import Observed
from strandline.pipeline.stores import Stores
from strandline.scan.plan.ledger_facts import ledger_rows
from strandline.scan.plan.rule_deltas import Base, allowed_key, by_object, carried, may_be_carried
from strandline.scan.plan.versions import ovids_of
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried
from strandline.scan.run.manifest import Row
from strandline.scan.sources import Content, ItemProblem, ItemReader, Problem
from strandline.scan.sources.source import ExpectingReader

FETCH_ITEMS_MAX = 1_000
FETCH_BYTES_MAX = 16 << 20
_NO_OVID = OvidHash(b"")
_NO_ITEM = StableItemId(b"")


@dataclass(slots=True)
class Entry:
    """An item, as far as it is known."""

    row: Row
    item: StableItemId
    version: bytes = b""
    ovid: OvidHash = _NO_OVID
    kind: VersionKind = VersionKind.STRONG
    is_known: bool = False
    problem: ItemProblem | None = None
    content: Content | None = field(default=None, repr=False)
    carried: Scanned | None = field(default=None, repr=False)
    was_allowed: bool = False
    stat: bytes | None = field(default=None, repr=False)
    is_clear: bool = False
    """Whether a test of many items found no secret in this one."""
    may_add: bool | None = None
    """Whether added rules may find anything in this one, which may be carried over; None if no test of many told."""


@dataclass(frozen=True)
class Fetched:
    """Entries in order; `is_open` if the parts of the last one are still to be read."""

    entries: Sequence[Entry]
    is_open: bool


class Fetcher:
    """Fetches items for one worker; one call at a time."""

    def __init__(self, stores: Stores, request: ScanRequest, run_id: int, bases: Sequence[Base | None]) -> None:
        self._stores = stores
        self._request = request
        self._run_id = run_id
        self._bases = bases
        self._readers: dict[int, ItemReader] = {}
        self._stack = ExitStack()

    def close(self) -> None:
        """Close the readers."""
        self._stack.close()
        self._readers.clear()

    def fetch(self, rows: Sequence[Row]) -> Fetched:
        """Return the items of the first of some rows, as many as are within bounds."""
        entries = self._entries(rows)
        self._mark_known([entry for entry in entries if entry.row.version is not None and entry.problem is None])
        self._carry([entry for entry in entries if entry.row.base >= 0 and not entry.is_known])
        count, is_open = self._read(entries)
        entries = entries[:count]
        self._name(entries)
        self._mark_known([entry for entry in entries if _told_by_reading(entry)])
        return Fetched(entries, is_open)

    def read_again(self, entry: Entry) -> Content:
        """Return an item's content from its beginning, if it is still the version that was read."""
        content = self._reader(entry.row.source).read(entry.row.locator, entry.row.extra)
        if content.version != entry.version:
            raise Problem.CHANGED_WHILE_READ.error()
        return content

    def _entries(self, rows: Sequence[Row]) -> list[Entry]:
        entries = [Entry(row, row.item or _NO_ITEM, row.version or b"", row.ovid or _NO_OVID) for row in rows]
        self._identify([entry for entry in entries if not entry.item])
        for entry in entries:
            if entry.row.problem is not None:
                entry.problem = Problem(entry.row.problem).error(entry.row.version or b"none")
                entry.version, entry.ovid = b"", _NO_OVID
        self._name([entry for entry in entries if entry.version and not entry.ovid])
        return entries

    def _identify(self, entries: Sequence[Entry]) -> None:
        """Give items of a manifest that an older version wrote their ids."""
        for number in {entry.row.source for entry in entries}:
            source = self._request.sources[number]
            chosen = [entry for entry in entries if entry.row.source == number]
            column = stable_item_ids(source.tag, source.instance, [entry.row.locator for entry in chosen])
            for entry, item in zip(chosen, column.to_pylist(), strict=True):
                entry.item = item

    def _mark_known(self, entries: Sequence[Entry]) -> None:
        request = self._request
        ovids = [entry.ovid for entry in entries]
        ask = partial(ledger_rows, self._stores.ledger, request.tenant, request.policy_hash, advisory_run=self._run_id)
        rows = retried(lambda: ask(ovids))
        for entry, row in zip(entries, rows, strict=True):
            if row is not None and row.suppresses:
                entry.is_known, entry.content, entry.carried = True, None, None

    def _carry(self, entries: Sequence[Entry]) -> None:
        """Attach the results of an older policy that are still valid."""
        for number in {entry.row.base for entry in entries}:
            base = self._bases[number]
            if base is not None:
                self._carry_from(base, [entry for entry in entries if entry.row.base == number])

    def _carry_from(self, base: Base, entries: Sequence[Entry]) -> None:
        tenant, ovids = self._request.tenant, [entry.ovid for entry in entries]
        keys = [allowed_key(base.policy, ovid) for ovid in ovids]
        rows = retried(lambda: ledger_rows(self._stores.ledger, tenant, base.policy, ovids))
        marks = retried(lambda: self._stores.state.multi_get(tenant, keys))
        seen = retried(lambda: self._observed(base, ovids))
        for entry, row, mark in zip(entries, rows, marks, strict=True):
            entry.was_allowed = mark is not None
            if row is not None and may_be_carried(row) and not (entry.was_allowed and base.removed):
                entry.carried = carried(row, seen.get(entry.ovid, ()), base)

    def _observed(self, base: Base, ovids: Sequence[OvidHash]) -> Mapping[OvidHash, list[Observed]]:
        found: list[Observed] = []
        after: ObservationId | None = None
        while page := self._stores.reads.observed(self._request.tenant, base.policy, ovids, after=after):
            found += page
            after = page[-1].observation.observation_id
            if len(page) < BATCH_ROWS_MAX:
                break
        return by_object(found)

    def _read(self, entries: Sequence[Entry]) -> tuple[int, bool]:
        """Read items within bounds; return their number, and whether the last is open."""
        size = 0
        self._announce(entries)
        for count, entry in enumerate(entries, 1):
            if entry.is_known or entry.problem is not None:
                continue
            if entry.carried is not None and self._is_carried_unread(entry):
                continue
            row = entry.row
            try:
                content = self._reader(row.source).read(row.locator, row.extra)
            except ItemProblem as problem:
                entry.problem, entry.carried = problem, None
                continue
            entry.content, entry.stat = content, content.stat
            if content.version != entry.version:
                entry.version, entry.carried, entry.ovid = content.version, None, _NO_OVID
            if not isinstance(content.parts, list):
                return count, True
            size += content.size
            if size >= FETCH_BYTES_MAX:
                return count, False
        return len(entries), False

    def _announce(self, entries: Sequence[Entry]) -> None:
        """Tell readers over a network what they will read."""
        coming = [
            entry.row
            for entry in entries
            if not (entry.is_known or entry.problem or (entry.carried is not None and self._is_carried_unread(entry)))
        ]
        for number in {row.source for row in coming}:
            reader = self._reader(number)
            if isinstance(reader, ExpectingReader):
                reader.expect([(row.locator, row.size) for row in coming if row.source == number])

    def _is_carried_unread(self, entry: Entry) -> bool:
        base = self._bases[entry.row.base] if entry.carried is not None else None
        return base is not None and not base.added

    def _name(self, entries: Sequence[Entry]) -> None:
        """Give items their ledger keys, those of each kind as a column."""
        for entry in entries:
            if entry.problem is not None:
                entry.version, entry.kind, entry.ovid = entry.problem.version, entry.problem.kind, _NO_OVID
        for kind in VersionKind:
            chosen = [entry for entry in entries if entry.kind is kind and entry.version and not entry.ovid]
            keys = ovids_of([entry.item for entry in chosen], [entry.version for entry in chosen], kind)
            for entry, key in zip(chosen, keys, strict=True):
                entry.ovid = key

    def _reader(self, number: int) -> ItemReader:
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = self._stack.enter_context(self._request.sources[number].open())
        return reader


def _told_by_reading(entry: Entry) -> bool:
    return entry.content is not None and entry.content.version != entry.row.version
