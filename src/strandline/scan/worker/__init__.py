"""A worker of a scan: takes shards, reads and scans their items, and commits page by page.

worker             takes shards until none is active
shard_scanner      one shard, page by page, under its lease
fetcher            reads the next items while others are scanned
item_scanner       one item: carried over, scanned, failed or skipped
content_scan       the bytes of an item through the engine
page_writer        one page: findings, ledger, checkpoint
engine_cache       compiled engines, in memory and in the cache folder
"""

__all__ = ()
