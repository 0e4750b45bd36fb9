"""The contract of `QueueStorage` as checks, each a function of an empty storage and the clock that the storage reads.

Every invariant that `strandline.queue.storage` lists has a check here, and so has every sentence of its methods. The
checks do not depend on how a storage detects expiry: a message whose deadline passed has to be available whether or
not `list_expired` was called.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from strandline.clock import ManualClock
from strandline.testing.contract import named
from strandline.testing.queue_deliveries import DELIVERY_CHECKS
from strandline.testing.queue_helpers import CheckedStorage, QueueStorageCheck
from strandline.testing.queue_messages import MESSAGE_CHECKS

OpenStorage = Callable[[ManualClock], AbstractContextManager[CheckedStorage]]
"""Opens an empty storage that reads the clock and gives up on a message after `DELIVERIES_MAX` deliveries."""

QUEUE_STORAGE_CHECKS: tuple[QueueStorageCheck, ...] = (*MESSAGE_CHECKS, *DELIVERY_CHECKS)
"""Every promise of the contract, as a function whose name says what must hold."""


def check_queue_storage(open_storage: OpenStorage) -> None:
    """Run every check over a storage of its own; `ContractBroken` names the first that fails."""
    for check in QUEUE_STORAGE_CHECKS:
        clock = ManualClock()
        with named(check.__name__), open_storage(clock) as storage:
            check(storage, clock)
