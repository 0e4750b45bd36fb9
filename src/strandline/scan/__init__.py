"""The scan as a job: plan what is left to do, run it in workers that commit by themselves, settle.

**Promise.** Everything that the sources list is looked at once for each version and policy, and never again; what was
found is stored once; what was not looked at is said. Whatever is killed (workers, executors, the driver), the same
request goes on where it stopped and comes to the same rows; a second driver of the same request works on the same run.

**How.**

    plan      sources are listed; versions come from the source, the last inventory (`recall`) or what pages read
              (`vouched`); the ledger is asked; what is left becomes a `manifest`, and a run whose shards are ranges of
              its rows
    run       workers take shards under leases, read rows after the cursor, scan, and commit page by page (`work`,
              `shard_work`, `page_work`); who starts workers is behind one Protocol (`Workers`): here in this
              process (`local_workers`), in `strandline.spark.workers` as tasks of Spark
    settle    the ledger is asked about everything that was listed; the inventory is kept for the next scan

Items are looked at together first, many at a time; only those in which there may be something are scanned (`looking`).

**Workers take shards.** A task of Spark is a worker, not a shard: it begins with the shard of its number and then
claims any that is free, so that few tasks do many shards, a split shard finds its worker, and what a dead worker held
is taken over when its lease ends. A task that Spark runs twice is one worker more.

**What is not done again.** A page is committed as findings, ledger, cursor (`strandline.pipeline`): work goes on after
the last page. An item that the ledger has is not read; one whose content is known, although its timestamps are
new, is read and not scanned. A changed rule looks at old items alone (`deltas`): what an older policy saw is carried
over where no added rule hits and no removed rule had hit, and is then, row for row, what a full scan would have found.

**What goes wrong.** An item that cannot be read or scanned is recorded with a code, and the rest goes on. An item that
kills workers is found by making pages of one item, split off, and put aside with its shard (*parked*); `retry_parked`
tries it again. Stores that are away are waited for, a minute long, then the scan ends with a typed error.

**Formats.** All state is in the pipeline's stores: `docs/formats/scan-state.md`. Compiled engines are cached by policy
(`engines`).

**Trade-offs.** The listing is held in memory, packed (`packed`): at most 300 bytes an item. A page is a second of work,
or 8,000 items: what a killed worker does again, and how far progress is behind. A manifest that a driver wrote and died
before its run began stays for a day, until the scan is done again (`begun`). Where the history of a blob grew, a
carried finding keeps the place that was seen first.
"""

from strandline.scan.events import Event, Listed, NoExecutor, Planned, Resumed, StateNearby, Tell
from strandline.scan.inventory import find_inventory, read_inventories
from strandline.scan.local_workers import LocalWorkers
from strandline.scan.plan import Plan, Reason, explained
from strandline.scan.progress import Progress, rates
from strandline.scan.request import ScanRequest
from strandline.scan.scan import Workers, explain, scan
from strandline.scan.settle import ItemNote, Outcome
from strandline.scan.state import State, StateMissing, open_state

__all__ = [
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
    "explain",
    "explained",
    "find_inventory",
    "open_state",
    "rates",
    "read_inventories",
    "scan",
]
