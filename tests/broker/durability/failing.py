"""A disk that fails for some files, and a broker over it."""

import errno
import os
from pathlib import Path

from strandline.broker.jetstream.stream_recovery import RETRY_MIN_NS
from strandline.clock import NS_PER_S
from tests.broker.durability.simulated import SimBroker
from tests.journal.model import CHANGES, PowerCut

SYNCS = frozenset({"sync"})
"""What leaves bytes behind that can be read, and were never durable."""


class FailingFolder(PowerCut):
    """A watch that fails changes of some files, from when it is told to."""

    def __init__(self, part: str, operations: frozenset[str] = CHANGES) -> None:
        super().__init__()
        self.fails = False
        self._part = part
        self._operations = operations

    def __call__(self, operation: str, path: Path, size: int) -> None:
        super().__call__(operation, path, size)
        if self.fails and self._part in path.parts and operation in self._operations:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail(broker: SimBroker) -> None:
    assert isinstance(broker.cut, FailingFolder)
    broker.cut.fails = True


def recover(broker: SimBroker) -> None:
    """Let the disk work again, and some time pass."""
    assert isinstance(broker.cut, FailingFolder)
    broker.cut.fails = False
    broker.advance(2 * RETRY_MIN_NS / NS_PER_S)
