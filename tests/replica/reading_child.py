"""An ordinary reader of a followed copy: `python -m tests.replica.reading_child PATH`; prints each balance it sees.

Each transaction moves an amount between two accounts, so that a consistent database always has the same sum.
"""

import sys

import apsw

SUM = 1_000_000


def main(path: str) -> None:
    """Read until killed."""
    connection = apsw.Connection(path)
    connection.set_busy_timeout(120_000)
    last = -1
    while True:
        ((total, moves),) = connection.execute("SELECT (SELECT sum(amount) FROM account), (SELECT count(*) FROM move)")
        if total != SUM:
            print(f"torn: {total}", flush=True)  # noqa: T201 - what a test looks for
        if moves != last:
            last = moves
            print(moves, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
