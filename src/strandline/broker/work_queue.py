"""Long work on the loop's thread, a bounded part of it in each cycle.

Invariants: the work of one cycle takes the budget, plus the one step that exceeds it. The work of one owner is done in
its order; owners take turns, step by step. Work that fails ends, and the rest goes on. `hold` is called when an owner
begins to wait and `release` when it has nothing left to wait for, so that what waits can be bounded.

Two queues of an account use it, and differ in when they run. Reads that clients ask for run within the commit cycle,
at once while the cycle's budget lasts. Restores and their consumers run between cycles, and never at once: a step of
them follows the read that brought it.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Any

from strandline.clock import Clock

logger = logging.getLogger("strandline.broker")
BUDGET_NS = 5_000_000
"""How long the work of one cycle may take."""
Step = Callable[[], object]
"""A step of work; it returns True if the same work has another step."""
Steps = Generator[None, None, None]


def _ignore(client_id: int) -> None:
    del client_id


class _Remaining:
    """Work of many steps, as one step after the other."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.close = steps.close

    def __call__(self) -> bool:
        """Do a step; return whether there may be another."""
        try:
            next(self._steps)
        except StopIteration:
            return False
        return True


class WorkQueue:
    """Work that waits, by owner; `schedule` asks for a call of `run`, soon."""

    def __init__(
        self,
        clock: Clock,
        schedule: Callable[[], object],
        *,
        failure: str,
        hold: Callable[[Any], None] = _ignore,
        release: Callable[[Any], None] = _ignore,
    ) -> None:
        self._clock = clock
        self._schedule = schedule
        self._failure = failure
        """The log line for work that failed."""
        self._hold = hold
        self._release = release
        self._waiting: dict[Hashable, deque[Step]] = {}
        self._spent_ns = 0
        self._is_running = False

    def do(self, client_id: int, step: Step) -> None:
        """Do something for a client: now, if the cycle has time left and nothing of the client waits."""
        queue = self._waiting.get(client_id)
        if queue is not None:
            queue.append(step)
        elif self._spent_ns < BUDGET_NS:
            if not self._spent_ns:
                self._schedule()  # the next cycle has a new budget
            self._run(step)
        else:
            self._waiting[client_id] = deque([step])
            self._hold(client_id)
            self._schedule()

    def add(self, steps: Steps) -> None:
        """Do work of many steps soon; it is an owner of its own."""
        work = _Remaining(steps)
        is_first = not self._waiting and not self._is_running
        self._waiting[work] = deque([work])
        if is_first:
            self._schedule()

    def run(self) -> None:
        """Go on with what waits, one owner after the other, while the budget lasts."""
        self._spent_ns = 0
        self._is_running = True
        waiting = self._waiting
        while waiting and self._spent_ns < BUDGET_NS:
            owner, queue = next(iter(waiting.items()))
            del waiting[owner]
            step = queue.popleft()
            if self._run(step):
                queue.appendleft(step)
            if queue:
                waiting[owner] = queue
            elif owner is not step:  # work of many steps is its own owner, and was not held
                self._release(owner)
        self._is_running = False
        if waiting:
            self._schedule()
        else:
            self._spent_ns = 0

    def _run(self, step: Step) -> object:
        start_ns = self._clock.now_ns()
        try:
            return step()
        except Exception:
            logger.exception(self._failure)
            return None
        finally:
            self._spent_ns += max(0, self._clock.now_ns() - start_ns)

    def close(self) -> None:
        """Do no more; work of many steps is closed."""
        steps = [step for queue in self._waiting.values() for step in queue]
        self._waiting.clear()
        for step in steps:
            if isinstance(step, _Remaining):
                step.close()
