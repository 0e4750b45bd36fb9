"""Contract checks: whether a backend of your own keeps the promises that the rest of the system stands on.

**Use.** Hand over a function that opens an empty backend; the first promise that is broken raises `ContractBroken`,
which names the check and says what was seen instead.

    from contextlib import nullcontext
    from strandline.testing import DELIVERIES_MAX, check_queue_storage

    check_queue_storage(lambda clock: nullcontext(MyStorage(clock=clock, deliveries_max=DELIVERIES_MAX)))

The checks need no test runner. With one, give each check of `QUEUE_STORAGE_CHECKS` a test of its own: a check is a
function of a fresh storage and its clock, and its name says what must hold.

**What it does not do.** The checks look at one process and never crash it: durability is for the backend's own tests.
Nothing in the library imports this package.
"""

from strandline.testing.contract import ContractBroken
from strandline.testing.queue_storage import QUEUE_STORAGE_CHECKS, OpenStorage, check_queue_storage
from strandline.testing.queue_words import DELIVERIES_MAX, CheckedStorage, QueueStorageCheck

__all__ = [
    "DELIVERIES_MAX",
    "QUEUE_STORAGE_CHECKS",
    "CheckedStorage",
    "ContractBroken",
    "OpenStorage",
    "QueueStorageCheck",
    "check_queue_storage",
]
