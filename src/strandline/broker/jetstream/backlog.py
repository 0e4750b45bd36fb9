"""Reads that clients ask for: some of them now, and what takes too long together in the turns that follow.

Invariants: reads of one client are answered in their order; nobody waits for another's longer than a turn's budget and
the one read that exceeds it. While a client has reads waiting, nothing more is read from it, so what waits is bounded.
"""

import logging
from collections import deque
from collections.abc import Callable

from strandline.clock import Clock

logger = logging.getLogger("strandline.broker")
BUDGET_NS = 5_000_000
"""How long reads may take in one turn."""
Work = Callable[[], None]


class Backlog:
    """The reads of an account that wait, by client; `wake` asks for a turn, and with it for `flush`."""

    def __init__(
        self, clock: Clock, wake: Callable[[], None], pause: Callable[[int], None], resume: Callable[[int], None]
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._pause = pause
        self._resume = resume
        self._waiting: dict[int, deque[Work]] = {}
        self._spent_ns = 0

    def do(self, client_id: int, work: Work) -> None:
        """Do something for a client, now if its turn has time left and nothing of it waits."""
        queue = self._waiting.get(client_id)
        if queue is not None:
            queue.append(work)
        elif self._spent_ns < BUDGET_NS:
            if not self._spent_ns:
                self._wake()  # the next turn has time anew
            self._run(work)
        else:
            self._waiting[client_id] = deque([work])
            self._pause(client_id)
            self._wake()

    def flush(self) -> None:
        """Go on with what waits, a client after the other, as long as there is time."""
        self._spent_ns = 0
        while self._waiting and self._spent_ns < BUDGET_NS:
            client_id, queue = next(iter(self._waiting.items()))
            del self._waiting[client_id]
            self._run(queue.popleft())
            if queue:
                self._waiting[client_id] = queue
            else:
                self._resume(client_id)
        if self._waiting:
            self._wake()
        else:
            self._spent_ns = 0

    def _run(self, work: Work) -> None:
        start_ns = self._clock.now_ns()
        try:
            work()
        except Exception:
            logger.exception("a request could not be answered")
        self._spent_ns += max(0, self._clock.now_ns() - start_ns)
