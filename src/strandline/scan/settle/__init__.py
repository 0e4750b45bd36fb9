"""The end of a scan: the ledger is asked about every listed item, and the inventory is kept.

outcome            counts, incomplete items and findings of a scan
recheck            listed items with the versions and ledger rows that the run brought
"""

__all__ = ()
