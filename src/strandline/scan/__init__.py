"""Scan sources for secrets: plan what is left, run workers that commit by themselves, settle.

**Promise.** Every object version that the sources list is scanned once for each policy, and never again; every finding
is stored once; every item that could not be scanned is counted with its reason. After any crash (workers, executors,
the driver) the same request continues and comes to the same rows; a second driver of the same request joins its run.

**How.**

    request    the sources, the rules, the tenant and the stores of a scan; `state` opens the stores of a folder
    sources    files, git histories, Parquet tables, journals: listed and read behind one Protocol
    plan       the sources are listed; versions come from the source, the last inventory or earlier reads; the ledger
               is asked; the rest becomes a manifest
    run        the manifest cut into shards, which workers take under leases
    worker     takes shards, reads and scans items after the cursor, and commits page by page
    settle     the ledger is asked about every listed item; the inventory is kept for the next scan
    parted     the same for large scans, by tasks that each take a part of the listing
    driver     resumes, plans, runs and settles; `workers` is the Protocol of those that start workers: in this
               process and others of this machine (`local_workers`), or as tasks of Spark (`strandline.spark.workers`)

A worker first tests many items at once; only those that may hold a secret are scanned one by one (`item_scanner`).

**Workers take shards.** A task of Spark is a worker, not a shard: it begins with the shard of its number and then
claims any free one. So few tasks do many shards, a split shard finds a worker, and the shard of a dead worker is taken
over when its lease ends. A task that Spark runs twice is one more worker.

**Work is not repeated.** A page is committed as findings, ledger, cursor (`strandline.pipeline`): work continues after
the last page. An item that the ledger has is not read; a file with known content and new timestamps is read and not
scanned. A changed rule scans old items alone (`rule_deltas`): results of an older policy are carried over where no
added rule hits and no removed rule had hit, and are then, row for row, those of a full scan.

**Failures.** An item that cannot be read or scanned is recorded with a code, and the rest continues. An item that kills
workers is isolated in pages of one item, split off, and parked with its shard; `retry_parked` tries it again. Calls to
an unavailable store are repeated for a minute; then the scan ends with a typed error.

**Formats.** All state is in the pipeline's stores: `docs/formats/scan-state.md`. Compiled engines are cached by policy
(`engine_cache`).

**Trade-offs.** The listing is held in memory, compressed: at most 300 bytes an item; `parted` avoids that for
folders of 200,000 items or more. A page is a second of work, or 8,000 items: the work that a killed worker repeats, and
the delay of progress. The manifest of a driver that died before its run began stays for a day, until the scan is done
again (`orphan_manifests`). Where the history of a blob grew, a carried finding keeps the place that was seen first.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.scan.driver import explain, explain_parts, scan
    from strandline.scan.events import Event, Listed, NoExecutor, Planned, Resumed, StateNearby, Tell
    from strandline.scan.inventory import find_inventory, read_inventories
    from strandline.scan.local_workers import LocalWorkers
    from strandline.scan.parted.parted_scan import CutSource
    from strandline.scan.plan.planner import Plan, Reason, explained
    from strandline.scan.request import ScanRequest
    from strandline.scan.run.progress import Progress, rates
    from strandline.scan.settle.outcome import Outcome
    from strandline.scan.settle.sums import ItemNote
    from strandline.scan.state import State, StateMissing, open_state
    from strandline.scan.workers import Workers, WorkersBySize

__all__ = [
    "CutSource",
    "Event",
    "ItemNote",
    "Listed",
    "LocalWorkers",
    "NoExecutor",
    "Outcome",
    "Plan",
    "Planned",
    "Progress",
    "Reason",
    "Resumed",
    "ScanRequest",
    "State",
    "StateMissing",
    "StateNearby",
    "Tell",
    "Workers",
    "WorkersBySize",
    "explain",
    "explain_parts",
    "explained",
    "find_inventory",
    "open_state",
    "rates",
    "read_inventories",
    "scan",
]

# Import a public name at its first use: readers of findings need no driver and no workers.
__getattr__ = _lazy_names(
    __name__,
    {
        "driver": ("explain", "explain_parts", "scan"),
        "events": ("Event", "Listed", "NoExecutor", "Planned", "Resumed", "StateNearby", "Tell"),
        "inventory": ("find_inventory", "read_inventories"),
        "local_workers": ("LocalWorkers",),
        "parted.parted_scan": ("CutSource",),
        "plan.planner": ("Plan", "Reason", "explained"),
        "request": ("ScanRequest",),
        "run.progress": ("Progress", "rates"),
        "settle.outcome": ("Outcome",),
        "settle.sums": ("ItemNote",),
        "state": ("State", "StateMissing", "open_state"),
        "workers": ("Workers", "WorkersBySize"),
    },
)
