"""An application with its replicator inside: `python -m tests.replica.durable_writer DATABASE FOLDER FIRST`.

It inserts rows from FIRST on and prints the number of each one after `wait_durable`, so that a test which kills it
knows what was said to be durable. It checkpoints often.
"""

import random
import sys
from pathlib import Path

import apsw

from strandline.objects import open_objects
from strandline.replica import Maintenance, MaintenancePolicy, Replicator, replicator


def main(database: str, folder: str, first: int) -> None:
    """Insert rows until killed."""
    replicator.CHECKPOINT_BYTES = 60_000
    chance = random.Random(first)
    store = open_objects(f"file://{folder}")
    connection = apsw.Connection(database)
    connection.set_busy_timeout(120_000)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA wal_autocheckpoint = 10")
    connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body BLOB)")
    maintenance = Maintenance(store, MaintenancePolicy((0.05, 0.2, 1.0), 0.3))
    with Replicator(Path(database), store) as running:
        maintenance.start()
        print("ready", flush=True)  # noqa: T201
        for number in range(first, sys.maxsize):
            connection.execute("INSERT INTO t VALUES (?, ?)", (number, chance.randbytes(chance.randint(1, 3000))))
            if number % 3 == 0:
                running.wait_durable()
                print(number, flush=True)  # noqa: T201 - what was said to be durable


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
