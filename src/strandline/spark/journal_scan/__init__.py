"""A durable scan of a journal as it grows, on Spark's streaming: `scan_journal`.

scan        the query, its run with one shard, and the commit of each micro-batch
blocks      the tasks: parts of a journal's blocks, scanned and merged
inventory   the list of scanned block parts, by which results are shown as of any scan
"""

from strandline.spark.journal_scan.inventory import inventory_digest
from strandline.spark.journal_scan.scan import JournalScan, JournalTaken, scan_journal

__all__ = ["JournalScan", "JournalTaken", "inventory_digest", "scan_journal"]
