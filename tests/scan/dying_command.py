"""The real command, which is killed at its n-th write of a store: `python -m tests.scan.dying_command 9 scan …`.

With 0 it lives, hours later: the leases of commands before it are over.
"""

import sys

from strandline.cli.app import main
from strandline.pipeline.sql import SqliteDatabase
from strandline.scan.worker import shard_scanner
from tests.scan.dying import PAGE_ITEMS, die_at, hours_later

if __name__ == "__main__":
    writes = int(sys.argv.pop(1))
    shard_scanner.PAGE_ITEMS_MAX = PAGE_ITEMS
    with hours_later(0 if writes else 1):
        if writes:
            die_at(SqliteDatabase, "write", writes, after=False)
        main()
