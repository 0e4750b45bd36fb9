"""Consumer groups: deliveries and acknowledgements. One group is one set of consumers over one log of offsets.

**The promise.** A confirmed acknowledgement survives a crash; the floor, `acked_until`, moves only
after the acknowledgement is recorded; no two callers hold one offset at the same time; an offset without an
answer in time is delivered again, and its delivery count grows each time until it is acknowledged.

**The state** (`GroupState`) is pure: no clock, no file, no lock. Acknowledged offsets are an exclusive frontier and,
above it, pages of 512 bits, so they may come in any order and from any distance ahead. Each offset in flight, or
waiting for redelivery, is one integer, shared by a dict (by offset) and a heap with lazy deletion (by time).

**On disk** a group is two files, `<name>.snapshot` and `<name>.delta` (`docs/formats/groups.md`). A commit appends
one frame of fixed-width operations to the delta. Frames are numbered for the life of the group, and a snapshot says
which number comes next; so any delta that reaches that number completes it, an old one as well as a new one, and a
crash between any two steps of a compaction neither repeats an operation nor loses one. A frame also says how many
frames were durable when it was written: a bad frame before a later one that proves it durable is damage, reported and
left alone; a bad frame at the end is a torn write that was never acknowledged.

**Trade-offs.**

- Marks, takes, nacks and extensions take effect in memory before their frame is written, so that no other caller gets
  the same offset meanwhile; the caller is told after. Acknowledgements take effect after. If the write fails the
  group is poisoned, so what was reserved is never seen to be undone.
- Expiry is not recorded: it follows from the deadlines. It makes no difference when `pop_expired` is called.
- The number of a delivery is its epoch. Answers other than an acknowledgement need the delivery to be in flight
  still; an acknowledgement is taken whenever it comes.
- Waiting offsets are delivered in the order of their ready times, not of offsets: a message that fails repeatedly does
  not delay the others.
- After anything but a proper close, opening writes both files anew, as what it read may never have reached the disk.
- A delta is read as a whole and compaction keeps it about as small as the snapshot; so memory while opening is a
  small multiple of the state.
- The opener of a group holds the lock of its folder; a group has no lock of its own.

**An owner with a state of its own** uses a `Recorder` instead of a `Group`: the same files, written with operations
that the owner formats. Its state beyond offsets are counters: numbers that come back with the state.
"""

from strandline.groups.acks import Acks, acks_but
from strandline.groups.changes import Ack, AckBelow, Change, Extend, Mark, Nack, Result, Take
from strandline.groups.config import GroupConfig
from strandline.groups.events import GroupCompacted, GroupOpened, GroupPoisoned
from strandline.groups.group import Group
from strandline.groups.names import format_group_file, parse_group_file
from strandline.groups.operations import (
    INFLIGHT,
    WAITING,
    format_acked,
    format_counters,
    format_deliveries,
    runs,
)
from strandline.groups.recorder import Recorder
from strandline.groups.repair import GroupRepaired, repair_group
from strandline.groups.report import GroupContent, GroupReport, inspect_group
from strandline.groups.schedule import Scheduled, format_scheduled
from strandline.groups.state import OFFSET_LIMIT, Captured, Delivery, GroupState
from strandline.groups.store import group_names, remove_group
from strandline.journal.config import SYNCED, WRITTEN, Durability

__all__ = [
    "INFLIGHT",
    "OFFSET_LIMIT",
    "SYNCED",
    "WAITING",
    "WRITTEN",
    "Ack",
    "AckBelow",
    "Acks",
    "Captured",
    "Change",
    "Delivery",
    "Durability",
    "Extend",
    "Group",
    "GroupCompacted",
    "GroupConfig",
    "GroupContent",
    "GroupOpened",
    "GroupPoisoned",
    "GroupRepaired",
    "GroupReport",
    "GroupState",
    "Mark",
    "Nack",
    "Recorder",
    "Result",
    "Scheduled",
    "Take",
    "acks_but",
    "format_acked",
    "format_counters",
    "format_deliveries",
    "format_group_file",
    "format_scheduled",
    "group_names",
    "inspect_group",
    "parse_group_file",
    "remove_group",
    "repair_group",
    "runs",
]
