"""Repairs of a fold that has missed updates: from the bucket's listing if that is complete, else from another fold.

**Promise.** An incomplete listing never deletes anything. For a mirror (`FoldMode`) the listing is always complete.
For an archive the truth is every write minus every real delete: a bucket that evicts current values (by age, by a time
to live, because it is full) does not list them all, and then only another fold, an artifact, has them. A repair that is
interrupted is repeated, because the cursor that completes it is written last; until then the old cursor stays.

**Invariants.** Every decision is a function of `strandline.protocol.repairs` and `windows`, explored by the models of
`strandline.sim`. Before a diff everything received is stored. An observed eviction is durable before the listing is
used, and is never forgotten (`FoldCursor.seen_evicting`), for settings can be edited back. The bucket is
observed again after the listing. A failed listing ends the watch; half a listing is never used.

| mode | the cursor has expired, or there is data without a cursor |
|---|---|
| `AUTO` (default) | diff with the listing if it is complete, else with an artifact; refused if there is none |
| `RELIST` | diff with the listing; refused if it is known to be incomplete |
| `RESTORE` | diff with an artifact, always |
| `NONE` | the bucket's state is read again; missed deletes stay missed, and an event reports that |

A bucket that was created again under the same name (another identity), or whose log ends before the cursor, is another
log: the cursor is forgotten first, durably, and the fold is repaired like one without. So is one of another scope, but
only if a repair is asked for (`repair_fold`): without, another scope is refused, for it is more often a wrong path.

**Limits.** No repair can detect this: A removal from the *middle* of a log: a delete marker that is purged there
(`purge_deletes`, `nats stream rmm`) or that expires by a time to live of its own, before every fold has read it, leaves
no trace in where the log begins. Keep markers for longer than the longest absence of a fold. The same goes for a value
with a time to live that replaced another and expired meanwhile; and for an archive whose bucket drops values, for an
operator's purge. `verify_against` finds what they leave behind.
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
