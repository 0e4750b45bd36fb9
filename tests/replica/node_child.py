"""A node with its application inside: `python -m tests.replica.node_child FOLDER NAME [jumps]`.

It inserts rows for as long as it leads, and prints each one after `wait_durable`, so that a test which kills or stops
it knows what was acknowledged. A row is `EPOCH NUMBER NAME`; the numbers of an epoch have no gap. A line on stdin hands
over; its end ends the node. With `jumps` the wall clock is an hour off, either way, and another way every moment.
"""

import os
import random
import sys
import threading
import time
from pathlib import Path

import apsw

from strandline.errors import Unavailable
from strandline.events import Event
from strandline.lease import LeaseTiming
from strandline.objects import open_objects
from strandline.replica import DatabaseSetAside, MaintenancePolicy, Node, NotLeading, Role, RoleChanged

TIMING = LeaseTiming(ttl_s=1.5, renew_s=0.3, margin_s=0.2, poll_s=0.05)
MAINTENANCE = MaintenancePolicy((0.5, 2.0, 10.0), 5.0)
"""So often that a node which starts again restores few files, however many were written."""
PAUSE_S = 0.005


def say(*words: object) -> None:
    """Print a line, whole or not at all: other threads print too, and the process is killed at any moment."""
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def tell(event: Event) -> None:
    """Print what happened to the node."""
    if isinstance(event, RoleChanged):
        say("role", event.role.value, event.epoch)
    elif isinstance(event, DatabaseSetAside):
        say("aside", event.file)


def jump() -> None:
    """Have the wall clock jump at each look: nothing but records may depend on it."""
    chance, real_ns = random.Random(1), time.time_ns

    def jumping_ns() -> int:
        return real_ns() + chance.choice([-3600, 0, 3600]) * 1_000_000_000

    time.time_ns = jumping_ns
    time.time = lambda: jumping_ns() / 1e9


def application(node: Node, ended: threading.Event) -> None:
    """Insert rows for as long as this node leads."""
    connection, epoch, number = apsw.Connection(str(node.path)), 0, 0
    connection.set_busy_timeout(100)
    while not ended.wait(PAUSE_S):
        leads_under = node.epoch
        if leads_under == 0:
            continue
        if leads_under != epoch:
            epoch, number = leads_under, 0
        try:
            connection.execute("INSERT INTO t VALUES (?, ?, ?)", (epoch, number, node.name))
        except apsw.BusyError:
            continue
        mine, number = number, number + 1
        try:
            node.wait_durable(60, epoch=epoch)
        except (NotLeading, Unavailable):
            continue
        say("durable", epoch, mine)


def main(folder: Path, name: str, *, is_jumping: bool) -> None:
    """Run a node until stdin ends."""
    if is_jumping:
        jump()
    store = open_objects(f"file://{folder}/replica")
    node = Node(
        folder / f"{name}.db",
        store,
        name,
        timing=TIMING,
        follow_every_s=0.05,
        maintenance=MAINTENANCE,
    )
    node.events.subscribe(tell)
    ended = threading.Event()
    with node:
        node.wait_for_role(Role.FOLLOWER, 0.0)
        writing = threading.Thread(target=application, args=(node, ended))
        writing.start()
        for _ in sys.stdin:
            node.hand_over()
        ended.set()
        writing.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], is_jumping="jumps" in sys.argv)
