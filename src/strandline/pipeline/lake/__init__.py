"""State that is only a bucket: all stores of a pipeline as objects below one prefix, and no server besides.

**Promise.** The stores keep the contracts of SQLite and PostgreSQL: a write that returned is durable and seen by every
later read, a page is there whole or not at all, and nothing is lost or doubled by a crash between any two requests.

**How.** Rows are written as pages: immutable Parquet objects, created if absent under a name of their writer and their
rows (`layout`, `columns`). A page that is written twice is one object; pages that have the same row are merged when
they are read, by the rules that all stores share (`page_cache`, `ledger_fold`, `ledger_runs`). So workers never meet:
no page depends on another. The two things that are replaced and not merged have one writer at a time by conditional
writes: runs and shards (`pipeline.coordination.objects`), and scanner state, a log of numbered batches (`state_log`).

**Fences.** A worker's fence is checked before its page is written, against the record of its shard. A page of a zombie
that came between is merged: what it found is there.

**Trade-offs.** A page costs two or three puts, and a question lists pages and reads those that are new: questions get
slower with pages that were not compacted. Workers ask for an answer that may be half a minute old, and lacks the pages
of their own run. A process holds the ledgers that it asks about on its disk, 171 bytes a row, and all findings in
memory. Batches of scanner state follow one another: an estimated ten or more a second for each tenant on S3. Keys of
tenants cannot be rotated in a lake. Times of commits are those of the writers' clocks.
"""

from strandline.pipeline.lake.database import ForeignPrefix, LakeDatabase, ListRefused, MarkerMissing
from strandline.pipeline.lake.findings import LakeFindings
from strandline.pipeline.lake.ledger import LakeLedger
from strandline.pipeline.lake.page_cache import PageCache
from strandline.pipeline.lake.reads import LakeReads
from strandline.pipeline.lake.state import LakeState

__all__ = [
    "ForeignPrefix",
    "LakeDatabase",
    "LakeFindings",
    "LakeLedger",
    "LakeReads",
    "LakeState",
    "ListRefused",
    "MarkerMissing",
    "PageCache",
]
