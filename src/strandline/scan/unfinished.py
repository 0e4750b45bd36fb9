"""Marks of scans that began and did not end: running ones, interrupted ones, and those that failed.

    unfinished/<inputs digest>    JSON, see `UnfinishedScan`

Invariants: the mark is durable before the first item of a scan is listed, and is deleted after its inventory is
written; so sources without a mark were scanned to the end. A scan of the same sources under any rules replaces it.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from strandline.pipeline.identity import ConnectorInstanceId, PolicyHash, StableItemId, TenantId, stable_item_id
from strandline.pipeline.state import Delete, Put, ScannerState
from strandline.pipeline.stores import Stores
from strandline.protocol.errors import RunNotFound
from strandline.protocol.shards import RunKey
from strandline.scan.errors import ManifestBroken
from strandline.scan.inventory import SourceFacts, source_facts
from strandline.scan.request import ScanRequest
from strandline.scan.run.manifest import read_manifest, read_rows
from strandline.scan.run.progress import progress_of
from strandline.scan.run.scan_run import ScanRun

_FIRST, _END = b"unfinished/", b"unfinished0"
_LISTED_MAX = 1_000


@dataclass(frozen=True)
class UnfinishedScan:
    """A scan without an end: `run_id` and `manifest` are None until its items are listed."""

    inputs: str
    policy: PolicyHash
    started_ns: int
    sources: tuple[SourceFacts, ...]
    run_id: int | None = None
    manifest: int | None = None

    @property
    def name(self) -> str:
        """Return the names of the sources."""
        return ", ".join(source.name for source in self.sources)


@dataclass(frozen=True)
class Reached:
    """How far an unfinished scan came: items scanned, items to scan, and findings in them; 0 if nothing was listed."""

    done: int = 0
    items: int = 0
    findings: int = 0


def mark_unfinished(stores: Stores, request: ScanRequest, started_ns: int, run: ScanRun | None = None) -> None:
    """Store the mark of a scan; one that was interrupted keeps its run until it has another."""
    known = find_unfinished(stores.state, request.tenant, request.inputs_digest)
    mark = UnfinishedScan(request.inputs_digest.hex(), request.policy_hash, started_ns, source_facts(request.sources))
    if known is not None and known.policy == mark.policy:
        mark = replace(known, sources=mark.sources)
    if run is not None:
        mark = replace(mark, run_id=run.key.run, manifest=run.manifest.number)
    if mark != known:
        stores.state.apply_batch(request.tenant, [Put(_key(request.inputs_digest), _format(mark))])


def forget_unfinished(stores: Stores, request: ScanRequest) -> None:
    """Delete the mark of a scan that came to its end."""
    stores.state.apply_batch(request.tenant, [Delete(_key(request.inputs_digest))])


def find_unfinished(state: ScannerState, tenant: TenantId, inputs: bytes) -> UnfinishedScan | None:
    """Return the mark of a scan of some sources, or None."""
    (value,) = state.multi_get(tenant, [_key(inputs)])
    return None if value is None else _parse(value)


def read_unfinished(state: ScannerState, tenant: TenantId) -> list[UnfinishedScan]:
    """Return the unfinished scans, the latest first."""
    rows = state.list_range(tenant, _FIRST, _END, _LISTED_MAX)
    return sorted((_parse(value) for _, value in rows), key=lambda one: -one.started_ns)


def reached(stores: Stores, tenant: TenantId, scan: UnfinishedScan) -> Reached:
    """Return how far a scan came, from the coordinator."""
    if scan.run_id is None or scan.manifest is None:
        return Reached()
    manifest = read_manifest(stores.state, tenant, scan.manifest)
    if manifest is None:  # the run is over, and only the inventory is missing
        return Reached()
    try:
        progress = progress_of(stores.coordinator, ScanRun(RunKey(tenant, scan.run_id), 0, manifest))
    except RunNotFound:
        return Reached(items=manifest.rows)
    return Reached(progress.done.items, manifest.rows, progress.done.findings)


def listed_items(stores: Stores, tenant: TenantId, scan: UnfinishedScan) -> Iterator[tuple[int, StableItemId]]:
    """Yield the items that a scan was to look at, each with the number of its source."""
    manifest = read_manifest(stores.state, tenant, scan.manifest) if scan.manifest is not None else None
    if manifest is None:
        return
    instances = [bytes.fromhex(source.instance) for source in scan.sources]
    with suppress(ManifestBroken):  # the run ended meanwhile
        for _, table in read_rows(stores.state, tenant, manifest, 0, manifest.rows):
            for number, locator in zip(table["source"].to_pylist(), table["locator"].to_pylist(), strict=True):
                yield number, _item(scan.sources, instances, number, locator)


def _item(sources: Sequence[SourceFacts], instances: Sequence[bytes], number: int, locator: bytes) -> StableItemId:
    return stable_item_id(sources[number].tag, ConnectorInstanceId(instances[number]), locator)


def _key(inputs: bytes) -> bytes:
    return _FIRST + inputs


def _format(mark: UnfinishedScan) -> bytes:
    sources = [vars(one) for one in mark.sources]
    return json.dumps({**vars(mark), "policy": mark.policy.hex(), "sources": sources}).encode()


def _parse(data: bytes) -> UnfinishedScan:
    mark = json.loads(data)
    sources = tuple(SourceFacts(**one) for one in mark["sources"])
    return UnfinishedScan(**{**mark, "policy": PolicyHash(bytes.fromhex(mark["policy"])), "sources": sources})
