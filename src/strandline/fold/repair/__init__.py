"""Repairs of a fold that has missed updates: from a listing where that is the truth, from another fold elsewhere.

**Promise.** Nothing is deleted on the word of a listing that is not the truth. To a mirror (`FoldMode`) it always is.
For an archive the truth is every write minus every real delete: a bucket that evicts current values (by age, by a time
to live, because it is full) does not list them all, and then only another fold, an artifact, can tell. A repair that is
interrupted is repeated, because the cursor that calls it complete is written last; and until then the old one stands.

**Invariants.** Every decision is a function of `strandline.protocol.repairs` and `windows`, explored by the models of
`strandline.sim`. Before a diff everything received is stored. That a bucket was seen to evict is durable before its
listing counts, and is never forgotten (`FoldCursor.seen_evicting`), for settings can be edited back. The bucket is
observed again after the listing. A failed listing ends the watch; half a listing is never used.

| mode | the cursor fell out, or there is data without a cursor |
|---|---|
| `AUTO` (default) | diff with the listing if it is the truth, else with an artifact; refused if there is none |
| `RELIST` | diff with the listing; refused where it is known not to be the truth |
| `RESTORE` | diff with an artifact, always |
| `NONE` | the bucket's state is told again; deletes that were missed stay missed, which an event says |

A bucket that was made anew under the same name (another identity), or whose log ends before the cursor, is another
log: the cursor is forgotten first, durably, and the fold is repaired like one without. So is one of another scope, but
only if a repair is asked for (`repair_fold`): without, another scope is refused, for it is more often a wrong path.

**What no repair can see.** A removal from the *middle* of a log: a delete marker that is purged there (`purge_deletes`,
`nats stream rmm`) or that expires by a time to live of its own, before every fold has read it, leaves no trace in where
the log begins. Keep markers for longer than the longest absence of a fold. The same goes for a value with a time to
live that replaced another and expired meanwhile; and for an archive whose bucket drops values, for an operator's purge.
`verify_against` finds what they leave behind.
"""

from strandline.fold.repair.policy import RepairPolicy, Restorer
from strandline.fold.repair.preview import KeyChange, RepairPreview, preview_repair
from strandline.protocol.repairs import KeyRepair, RepairMode, RepairPlan

__all__ = [
    "KeyChange",
    "KeyRepair",
    "RepairMode",
    "RepairPlan",
    "RepairPolicy",
    "RepairPreview",
    "Restorer",
    "preview_repair",
]
