"""The plan of a scan: everything that the sources list, and the part of it that is left to scan.

planner            lists, asks the ledger, and names the reason for each item
versions           the version of an item: from the listing, the stat cache, or an earlier read
read_versions      versions that the pages of a run read, until an inventory holds them
previous_scan      items that are unchanged since the last inventory
probes             items that the planner reads itself
ledger_facts       rows of the ledger as columns
rule_deltas        results of an older policy that a newer one keeps
packed_batches     compressed record batches in memory
"""

__all__ = ()
