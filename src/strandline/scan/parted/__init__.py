"""Large scans: listing, plan and settle are the work of tasks, and the driver holds counts.

**Promise.** A scan that is planned in parts comes to the rows, ids and counts of one that its driver plans alone; the
memory of the driver grows with chunks of items (of 4,096 in a manifest, 50,000 in an inventory), not with items.

**How.**

    cut       each source says where its listing is cut (`sources.listing_parts`); a listing that was cut before is cut
              at the same places, so that a part meets exactly the rows that the last inventory has of it; a part
              that is too large ends early (of files, of a bucket), and what is left is listed in the next round
    plan      a task lists a part, joins it with those rows in the order of both, and asks the ledger about the rest; it
              writes the items to scan as chunks of the manifest, and all items as chunks of the plan
    run       the driver puts the chunks of all parts together, in order: that is the manifest; shards are ranges of it
              by bytes, and workers take them as always (`scan.run`, `scan.worker`)
    settle    a task reads the chunks of its part again, asks the ledger about what was to be scanned, writes the part
              of the inventory, and returns sums; the driver adds sums and writes the head

A part that is the same as in the last inventory is settled when it is planned: nothing is written for it, and the new
inventory has its old chunks. So a scan without changes lists, compares, and writes one head.

**Which way.** One rule (`scan.workers.is_large`): from 200,000 listed items on, if the workers are Spark's. The last
inventory tells before the listing; a first listing that grows past it is begun again by tasks. `--explain` says so.

**Repeated tasks.** Spark may run a task twice. Chunks of manifest and plan have ids that a task draws, and only those
count that its answer names; a part of the inventory has one name, and its rows are of the same plan. Chunks of a driver
that died are found by a note and deleted after a day (`run.orphan_manifests`).

**Trade-offs.** The last inventory is joined by range, the ledger is asked by key: tasks of a first scan ask for every
item. After an interrupted scan of files each task reads all its notes of read versions. A source that cannot be cut is
one part, listed by one task with the memory that the driver would need. A part holds its items in memory, compressed.
Rounds wait for their slowest part. Of a source that is cut otherwise than before (a bucket, then an inventory of it)
each part looks at all rows of the last inventory.
"""

__all__ = ()
