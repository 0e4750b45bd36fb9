"""Faults for the memory twin: the n-th call of a name fails, before or after it was done, or takes its time.

Invariants: what fails before, did nothing; what fails after, was done, and the caller cannot know. A fault strikes
once.
"""

import asyncio
from dataclasses import dataclass, field

from strandline.errors import StrandlineError


@dataclass(slots=True)
class _Fault:
    call: str
    left: int
    error: StrandlineError
    after: bool


@dataclass(slots=True)
class Faults:
    """What is to go wrong; empty at first. `delay_s` holds for every call."""

    delay_s: float = 0.0
    calls: dict[str, int] = field(default_factory=dict)
    _pending: list[_Fault] = field(default_factory=list)

    def fail(self, call: str, error: StrandlineError, *, nth: int = 1, after: bool = False) -> None:
        """Let the n-th call from now of this name (`put`, `get`, `watch`, …) fail, `after` it was done or instead."""
        self._pending.append(_Fault(call, nth, error, after))

    async def before(self, call: str) -> StrandlineError | None:
        """Wait, raise what fails instead of the call, and return what has to be raised after it."""
        self.calls[call] = self.calls.get(call, 0) + 1
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        struck = None
        for fault in [fault for fault in self._pending if fault.call == call]:
            fault.left -= 1
            if fault.left == 0 and struck is None:
                struck = fault
        self._pending = [fault for fault in self._pending if fault.left > 0]
        if struck is not None and not struck.after:
            raise struck.error
        return struck.error if struck else None
