"""A segmented append log: what was acknowledged survives a crash.

**Promise.** When `append` returns, its records are as durable as was asked: on stable storage by default, in the
operating system's cache with `WRITTEN`. They stay readable under the offsets in the receipt until retention removes
their segment. A batch is atomic: all of an append is there, or none of it.

**Invariants.**

- Offsets are contiguous from `first_offset` to `next_offset`; `first_offset <= durable_offset <= next_offset`, all
  exclusive frontiers, so that 0 means nothing and nothing else.
- A torn suffix, of which nothing was acknowledged, is cut off when the journal is opened. Damage to anything that was
  ever durable is reported and left alone: a journal with damage does not open for writing until it is repaired.
- After a failed write or fsync the journal is poisoned: nothing is acknowledged until it was reopened and read anew.
- One writer, by lock; any number of readers, in any process, without one.

**Format.** A folder of segments, each a file of batches whose body is laid out in columns as Arrow lays them out, so
that a batch on disk is an Arrow record batch: appending is one `join`, one checksum and one write, and reading is a
view over the bytes. `docs/formats/journal.md` has the byte tables; `batch`, `segment`, `index`, `manifest` and
`frontier` the code.

**How it works.** `gather` collects concurrent appends; `writer` commits them with one write and one fsync; a full
segment is synced and recorded by a checkpoint in the background. Each batch carries the durable offset known when it
was written, which is how `recovery` tells a torn write (never promised) from damage (promised, then lost).

**Trade-offs.** Retention removes whole segments only. A batch is checksummed as a whole, so reading one record checks
its whole batch. The journal knows nothing of subjects, topics or groups.
"""

from strandline.journal.appends import Appended
from strandline.journal.batch import Batch, Record
from strandline.journal.config import SYNCED, WRITTEN, Durability, JournalConfig
from strandline.journal.events import JournalPoisoned, SegmentRolled, SegmentsRemoved, TornTailCut
from strandline.journal.examination import Damage, Examination, Torn
from strandline.journal.journal import Journal
from strandline.journal.journal_reader import JournalReader, SealedSegment
from strandline.journal.journal_set import JournalSet
from strandline.journal.recovery import examine
from strandline.journal.repair import Repaired, apply_repair, plan_repair
from strandline.journal.repair_plan import RepairPlan

__all__ = [
    "SYNCED",
    "WRITTEN",
    "Appended",
    "Batch",
    "Damage",
    "Durability",
    "Examination",
    "Journal",
    "JournalConfig",
    "JournalPoisoned",
    "JournalReader",
    "JournalSet",
    "Record",
    "RepairPlan",
    "Repaired",
    "SealedSegment",
    "SegmentRolled",
    "SegmentsRemoved",
    "Torn",
    "TornTailCut",
    "apply_repair",
    "examine",
    "plan_repair",
]
