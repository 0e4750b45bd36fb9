"""Rows of a table, scanned in tasks: rows that the ledger has are told and not scanned.

A task returns one row with the sums of an item, followed by one for each finding; cells never leave it.

Invariants: an item's rows are next to each other; an item that the ledger has is `done`, and has no findings here.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from strandline.pipeline.identity import VersionKind, stable_item_ids
from strandline.scan.plan.ledger_facts import ledger_rows
from strandline.scan.plan.versions import ovids_of
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried
from strandline.scan.sources import Content
from strandline.scan.worker.content_scan import scan_content
from strandline.scan.worker.engine_cache import engine_for
from strandline.spark.table_scan.frame import FrameSource

ROWS_AT_ONCE = 1_000
ROWS_DDL = (
    "locator BINARY, version BINARY, done BOOLEAN, bytes LONG, members LONG, decodes LONG, dropped LONG, allowed LONG, "
    "rule BINARY, secret BINARY, start LONG, end LONG, display STRING, url STRING"
)
_TYPES = {"LONG": pa.int64(), "BINARY": pa.binary(), "STRING": pa.string(), "BOOLEAN": pa.bool_()}
ROWS = pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in ROWS_DDL.split(", "))])


def scan_rows(request: ScanRequest, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Scan the rows of Arrow batches that the ledger does not have."""
    source = request.sources[0]
    if not isinstance(source, FrameSource):
        raise TypeError("the request is for a table")
    engine = engine_for(request.rules, request.limits, request.key)
    with retried(request.open_stores) as stores:
        for whole in batches:
            for at in range(0, whole.num_rows, ROWS_AT_ONCE):
                batch = whole.slice(at, ROWS_AT_ONCE)
                locators, parts = source.locators(batch), source.parts(batch)
                versions = source.versions(batch, parts)
                items = stable_item_ids(source.tag, source.instance, locators).to_pylist()
                ovids = ovids_of(items, versions, VersionKind.STRONG)
                known = ledger_rows(stores.ledger, request.tenant, request.policy_hash, ovids)
                found: list[dict[str, Any]] = []
                for locator, version, row, ledger in zip(locators, versions, parts, known, strict=True):
                    head: dict[str, Any] = {"locator": locator, "version": version}
                    if ledger is not None and ledger.suppresses:
                        found.append(head | {"done": True})
                        continue
                    size = sum(len(part.data) for part in row)
                    seen = scan_content(engine, source, Content(version, iter(row), size), lambda: None)
                    members, decodes, dropped = seen.scanned.gaps
                    sums = {"bytes": seen.scanned.bytes_seen, "members": members, "decodes": decodes}
                    found.append(head | sums | {"done": False, "dropped": dropped, "allowed": seen.allowed})
                    found += [
                        {
                            **head,
                            "done": False,
                            "rule": bytes(one.rule),
                            "secret": bytes(one.secret),
                            "start": one.start,
                            "end": one.end,
                            "display": one.location_display,
                            "url": one.location_url,
                        }
                        for one in seen.scanned.found
                    ]
                yield pa.RecordBatch.from_pylist(found, ROWS)
