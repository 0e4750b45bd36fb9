"""The run of a scan: a manifest of items, cut into shards that workers take under leases.

scan_run           found, begun, joined and ended
manifest           the rows of a run, in chunks
orphan_manifests   manifests whose driver died before the run began
shard_cuts         rows to cut at: the first shards, and splits for idle workers
totals             counts of a shard, kept as the token of its cursor
progress           counts of a run: the sum over its shards
"""

__all__ = ()
