"""An application that writes to a database in a process of its own: `python -m tests.replica.writer PATH SEED ROWS`.

It prints the number of each row after its commit, so that a test knows what was acknowledged.
"""

import random
import sys

import apsw


def main(path: str, seed: int, rows: int) -> None:
    """Insert, delete and now and then VACUUM."""
    chance = random.Random(seed)
    connection = apsw.Connection(path)
    connection.set_busy_timeout(120_000)
    connection.execute("PRAGMA wal_autocheckpoint = 20")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body BLOB)")
    for number in range(rows):
        connection.execute("INSERT INTO t (body) VALUES (?)", (chance.randbytes(chance.randint(1, 6000)),))
        if number % 50 == 49:
            connection.execute("DELETE FROM t WHERE id % 7 = ?", (chance.randint(0, 6),))
        if number % 400 == 399:
            connection.execute("VACUUM")
        print(number, flush=True)  # noqa: T201 - what was acknowledged


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
