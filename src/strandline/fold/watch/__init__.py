"""Keeping a fold up to date: a bucket's updates go through the owner's hooks into the store, and the cursor follows.

**Promise.** The store's cursor never names what is not in the store. It is written with the data, after `apply` has
returned, and never on receipt. After a restart a fold continues from its store's cursor, and receives only
missing updates; if the bucket's log begins later, it is repaired (`strandline.fold.repair`), or refused with a hint.

**Invariants.** One batch is stored at a time, in the order received; the next is received meanwhile. A batch that could
not be stored comes before everything newer; the store, which is poisoned then, is opened again first, and what is
really in it decides whether the batch is stored once more. Sixteen failures in a row end the watch. Events of one
moment are handled in this order: stop, window, repair, export, receive. After an outage of a bucket that was watched
once, the watch reconnects (`SourceAway`, `SourceBack`); errors of the first watch are raised.

**Parts.** `watch_applied` runs until it is stopped; `catch_up` until the fold holds what the bucket held; `repair_fold`
does the same after a repair that was asked for. `Batching` says when a batch is stored, `Hooks` what else is done with
it, `Exports` asks for something between two batches. `strandline.fold.events` are told to `Hooks.events`.

**Trade-offs.** Updates are whole columns from the wire to the store; a hook that wants objects makes them itself. Two
batches are in memory. An update waits for its batch's window, 2 ms unless told otherwise. Delivery to `apply` is at
least once: after a crash, what was applied and not stored is applied again.
"""

from strandline.fold.watch.exports import Exporter, ExportRequest, Exports
from strandline.fold.watch.hooks import Applied, Hooks, parse_each
from strandline.fold.watch.pending_updates import Batching
from strandline.fold.watch.runner import catch_up, repair_fold, watch_applied

__all__ = [
    "Applied",
    "Batching",
    "ExportRequest",
    "Exporter",
    "Exports",
    "Hooks",
    "catch_up",
    "parse_each",
    "repair_fold",
    "watch_applied",
]
