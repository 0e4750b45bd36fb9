"""Secrets of findings, read again from their sources: the items of an inventory that have them, found by hash.

Invariants: an item is read as its source reads it now; what has changed since the scan is taken only if it has the
keyed hash of a finding. An item that cannot be read is passed over: its secrets may stand in others. Nothing is stored.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import NamedTuple

from strandline.detect import Engine
from strandline.detect.revealed import Revealed
from strandline.findings.report_builder import observations
from strandline.pipeline.identity import OvidHash, PolicyHash, SecretHash
from strandline.scan.inventory import Inventory
from strandline.scan.sources import ItemProblem, ItemReader, Source
from strandline.scan.state import State

ITEMS_PER_SECRET_MAX = 16
"""Of the items that have a secret, those that are tried: a key id may stand in one of them and not in another."""


class _Item(NamedTuple):
    source: int
    locator: bytes
    extra: bytes | None


class SecretVersions:
    """The object versions that have secrets; the observations of a policy are read once, for all its inventories."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._found: dict[PolicyHash, tuple[set[SecretHash], dict[SecretHash, dict[OvidHash, None]]]] = {}

    def of(self, policy: PolicyHash, wanted: set[SecretHash]) -> dict[SecretHash, Collection[OvidHash]]:
        """Return the object versions that have each wanted secret under a policy."""
        known, found = self._found.get(policy, (set(), {}))
        if not wanted <= known:
            known, found = set(wanted), {SecretHash(one): {} for one in wanted}
            for rows in observations(self._state, policy):
                for row in rows:
                    if row.finding.secret in found:
                        found[row.finding.secret][row.observation.ovid] = None
            self._found[policy] = known, found
        return {secret: ovids for secret, ovids in found.items() if secret in wanted}


class ItemSecrets:
    """Reads the secrets of one inventory; `sources` are those of the scan that made it, by their numbers."""

    def __init__(
        self,
        state: State,
        inventory: Inventory,
        sources: Mapping[int, Source],
        engine: Engine,
        versions: SecretVersions,
    ) -> None:
        self._state = state
        self._inventory = inventory
        self._sources = sources
        self._engine = engine
        self._versions = versions

    def read(self, wanted: set[SecretHash]) -> Iterator[Revealed]:
        """Yield the wanted secrets, item by item; the caller removes from `wanted` what it has."""
        where = self._versions.of(self._inventory.policy, wanted) if self._sources and wanted else {}
        items = self._items({ovid for ovids in where.values() for ovid in ovids})
        with ExitStack() as stack:
            readers: dict[int, ItemReader] = {}
            for secret, ovids in where.items():
                # A state has versions that are gone, and those of other scans: what counts is what this one has.
                for item in islice((items[ovid] for ovid in ovids if ovid in items), ITEMS_PER_SECRET_MAX):
                    if secret not in wanted:
                        break
                    if item.source not in readers:
                        readers[item.source] = stack.enter_context(self._sources[item.source].open())
                    yield from self._revealed(readers[item.source], item, wanted)

    def _revealed(self, reader: ItemReader, item: _Item, wanted: set[SecretHash]) -> Iterator[Revealed]:
        try:
            for part in reader.read(item.locator, item.extra).parts:
                yield from self._engine.reveal(part.data, wanted, part.path, part.commit)
        except ItemProblem:
            return

    def _items(self, ovids: set[OvidHash]) -> dict[OvidHash, _Item]:
        found: dict[OvidHash, _Item] = {}
        if not ovids:
            return found
        for table in self._inventory.items(self._state.stores.state, self._state.tenant):
            columns = (table[name].to_pylist() for name in ("ovid", "source", "locator", "extra"))
            for ovid, source, locator, extra in zip(*columns, strict=True):
                if ovid in ovids and source in self._sources:
                    found[ovid] = _Item(source, locator, extra)
        return found
