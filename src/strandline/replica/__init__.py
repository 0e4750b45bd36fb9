"""SQLite, shipped to object storage as it commits.

wal    SQLite's write-ahead log, as pure code
ltx    LTX files, as pure code
"""

from strandline.replica.errors import LtxDamaged

__all__ = ["LtxDamaged"]
