"""A table of a replicated SQLite database as a Spark source.

**Promise.** A DataFrame over a replica has the rows of one table as they were after one transaction, the same in every
task, whatever is written, merged or removed meanwhile; where files went away, the query fails.

**How.** The planner lists the replica, plans what a restore would apply, and finds the table's pages by the page
indexes of these files (`strandline.replica.pages`). Each task fetches its share of the leaf pages by range
requests and decodes their rows (`strandline.replica.tables`). Nothing is restored, on any disk.

**Types.** SQLite's columns take any value; a DataFrame's do not. The affinity of a declared type gives the type of a
column, and a schema that the user gives may choose another of the four. A value that does not fit is an error, never
null.

**Trade-offs.** Decoding is Python: about a tenth of SQLite's own speed on a restored file, on every core at once. It
pays for some tables of a large database, or many cores; to read everything on one machine, restore it.
"""

from strandline.spark.replicas.reader import read_replica

__all__ = ["read_replica"]
