"""Durable scans of DataFrames: each row once by its key and version, whatever Spark reads it from.

frame        the source: the columns that name rows, their versions, and the cells of a row
rows         scans rows in tasks, but for those that the ledger has
scan         commits results in the driver, page by page, and keeps the inventory
"""

from strandline.spark.table_scan.frame import FrameSource
from strandline.spark.table_scan.scan import TableScanned, scan_table

__all__ = ["FrameSource", "TableScanned", "scan_table"]
