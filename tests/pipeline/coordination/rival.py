"""A worker in a process of its own: `python -m tests.pipeline.coordination.rival etcd|postgres WHERE NAME WINS`.

It takes shard 0 of the run again and again, each time after the last lease ended, and prints the fences it got.
"""

import sys
import time
from contextlib import ExitStack

from strandline.errors import Unavailable
from strandline.pipeline.coordination import Coordinator, RecordStore
from strandline.pipeline.coordination.etcd import EtcdRecords
from strandline.pipeline.coordination.postgres import PostgresRecords
from strandline.pipeline.sql import PostgresDatabase
from strandline.protocol.errors import AlreadyLeased
from strandline.protocol.shards import ShardKey
from tests.pipeline.coordination.rivals import RUN
from tests.servers_etcd import connected


def main(kind: str, where: str, name: str, wins: int) -> None:
    """Win the shard so often."""
    with ExitStack() as stack:
        coordinator = Coordinator(_open(stack, kind, where, name), lease_ttl_ns=1_000_000)
        while wins:
            try:
                taken = coordinator.acquire_and_restore(time.time_ns(), ShardKey(*RUN, 0), wins)
            except (AlreadyLeased, Unavailable):
                time.sleep(0.001)
            else:
                sys.stdout.write(f"{taken.lease.fence}\n")
                wins -= 1


def _open(stack: ExitStack, kind: str, where: str, name: str) -> RecordStore:
    if kind == "etcd":
        return EtcdRecords(stack.enter_context(connected(where)), prefix=name)
    return PostgresRecords(stack.enter_context(PostgresDatabase(where, schema=name)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
