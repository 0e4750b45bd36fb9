"""The signals that end a command which runs until it is told to stop.

Invariants: from the beginning to the end of the block SIGTERM and SIGINT end nothing by themselves; whichever thread
the system hands one to, the command learns of it. Afterwards they do what they did before. Children that are started
meanwhile take them as usual.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """What tells a command that it is to end."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._signal: int | None = None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the signal that came, and forget it; None after the timeout."""
        self._event.wait(timeout_s)
        self._event.clear()
        received, self._signal = self._signal, None
        return received

    def is_noted(self) -> bool:
        """Return whether a signal came that `wait` has not returned yet."""
        return self._event.is_set()

    def note(self, number: int, _frame: FrameType | None = None) -> None:
        """Note a signal."""
        self._signal = number
        self._event.set()


@contextmanager
def ending_signals() -> Iterator[Ending]:
    """Take the signals that end a command, in the main thread."""
    ending = Ending()
    before = {number: signal.signal(number, ending.note) for number in ENDING}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
