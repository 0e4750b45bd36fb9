"""Whether the log of a bucket still continues an artifact: the decision of a watch, asked before there is a fold.

Invariants: pure. An artifact that is continued here is one that a watch resumes after without a repair, as long as the
log does not move on.
"""

from typing import NamedTuple

from strandline.artifacts.manifest import Manifest
from strandline.fold.repair.decisions import Course, decide, foreign_reason
from strandline.kv import Retention
from strandline.protocol import windows
from strandline.protocol.fold_modes import chosen_mode
from strandline.protocol.repairs import RepairMode


class Continuity(NamedTuple):
    """Whether a fold of an artifact takes only what came after it, and why."""

    continues: bool
    reason: str


def log_continues(manifest: Manifest, retention: Retention, now_ns: int) -> Continuity:
    """Return whether a log continues an artifact."""
    cursor = manifest.fold_cursor
    first, last = retention.first_revision, retention.last_revision
    if foreign_reason(cursor, retention) is not None:
        found = f"this one ends at revision {last}" if cursor.revision > last else "the bucket was created again"
        return Continuity(continues=False, reason=f"the artifact is of another log: {found}")
    mode = chosen_mode(cursor.mode, None, seen_evicting=cursor.seen_evicting)
    decision = decide(cursor._replace(mode=mode), retention, RepairMode.AUTO, now_ns, has_data=bool(manifest.entries))
    if decision.course in (Course.RESUME, Course.SKIP_GAP):
        return Continuity(continues=True, reason=f"the log begins at revision {first}")
    if not windows.resume_window_ok(cursor.revision, first):
        reason = f"the artifact is older than the log's floor: it is of revision {cursor.revision}"
        return Continuity(continues=False, reason=f"{reason}, and the log begins at {first}")
    return Continuity(continues=False, reason=decision.reason)
