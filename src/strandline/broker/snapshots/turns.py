"""Long work on the server's own thread, a little of it in each turn.

Invariants: all of it together takes a turn's budget and the one step that exceeds it; who waits is served in turn. Work
that fails ends, and the rest goes on.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator

from strandline.clock import Clock

logger = logging.getLogger("strandline.broker")
BUDGET_NS = 5_000_000


class Turns:
    """The work of an account that waits; each yields after a step."""

    def __init__(self, clock: Clock, post: Callable[[Callable[[], None]], object]) -> None:
        self._clock = clock
        self._post = post
        self._waiting: deque[Iterator[None]] = deque()

    def add(self, work: Iterator[None]) -> None:
        """Begin with something soon."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._post(self._go_on)

    def close(self) -> None:
        """Do no more."""
        while self._waiting:
            work = self._waiting.popleft()
            if isinstance(work, Generator):
                work.close()

    def _go_on(self) -> None:
        stop_ns = self._clock.now_ns() + BUDGET_NS
        while self._waiting:
            if self._step(self._waiting[0]):
                self._waiting.rotate(-1)
            else:
                self._waiting.popleft()
            if self._clock.now_ns() >= stop_ns:
                break
        if self._waiting:
            self._post(self._go_on)

    @staticmethod
    def _step(work: Iterator[None]) -> bool:
        """Do a little; return whether there is more."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception:
            logger.exception("a restore has failed")
            return False
        return True
