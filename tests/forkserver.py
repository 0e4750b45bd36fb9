"""Processes that begin in milliseconds: forks of a server that has imported what they need.

Invariants: a process of tests has one such server, and its first user decides what it imports, so all users ask here.
Children leave pandas out where they begin: pyarrow would import it for each of them, and none of them needs it.
"""

import multiprocessing
from functools import cache
from multiprocessing.context import ForkServerContext

_IMPORTED = (
    *("apsw", "nats", "rocksdict", "strandline.kv.nats.connection", "tests.artifacts.child"),
    *("tests.artifacts.follower_child", "tests.broker.durability.child"),
    *("tests.broker.mirrors.child", "tests.broker.streams.child"),
    *("tests.fold.child", "tests.fold.folding", "tests.journal.child"),
)


@cache
def forkserver() -> ForkServerContext:
    """Return what starts processes by forking the server, which it starts for the first of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    return context
