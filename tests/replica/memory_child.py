"""What a replica costs in memory: `python -m tests.replica.memory_child ship|restore|follow DATABASE FOLDER`.

It prints by how many bytes the memory of the process grew at most.
"""

import sys
from pathlib import Path

from strandline.objects import MemoryObjects, open_objects
from strandline.replica import Follower, Layout, Replicator, restore
from tests.replica.databases import database, fill


def peak_bytes() -> int:
    """Return the most memory that this process had since the peak was forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main(what: str, path: Path, folder: str) -> None:
    """Do it, and print the growth."""
    warm = path.with_name(f"warm-{what}.db")
    with database(warm) as connection:
        fill(connection, 3)
        with Replicator(warm, MemoryObjects()) as running:
            running.wait_durable()
    store = open_objects(f"file://{folder}")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = peak_bytes()
    if what == "ship":
        with Replicator(path, store) as running:
            running.wait_durable()
    elif what == "restore":
        restore(store, Layout(store), path)
    else:
        follower = Follower(store, path)
        follower.catch_up()
        follower.close()
    print(peak_bytes() - before)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
