"""The signals that end a command which runs until it is told to stop: blocked for its threads, waited for by it.

Invariant: the signals are blocked for as long as the block lasts, and no longer: children that another part of the
process starts afterwards would inherit the mask.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def ending_signals_blocked() -> Iterator[None]:
    """Block SIGTERM and SIGINT, before any thread starts, so that no thread takes one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait_for_ending(timeout_s: float) -> int | None:
    """Return the signal that ends the command; None after the timeout."""
    received = signal.sigtimedwait(ENDING, timeout_s)
    return None if received is None else received.si_signo


def unblock_ending() -> None:
    """Let a child process take the signals, between fork and exec."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
