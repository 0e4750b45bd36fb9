"""An outage of the source: the watch retries for as long as the policy allows.

Invariants: only what may pass is waited for: a lost connection, an answer that did not come, a server that refuses for
now. What the first watch meets is told at once, for that is more often a wrong address than an outage. A stop ends the
waiting.
"""

import asyncio
from contextlib import suppress

from strandline.errors import StrandlineError
from strandline.fold.events import SourceAway, SourceBack
from strandline.fold.watch.context import Context
from strandline.kv import ConnectionDropped, JetStreamDisabled, NoAnswer, ServerRefused, Unreachable

AWAY = (ConnectionDropped, JetStreamDisabled, NoAnswer, ServerRefused, Unreachable)
"""What may pass for a source that was there; a cluster without a leader looks like one without JetStream."""
PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 5.0


class Outage:
    """How long the source has been away."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._was_there = False
        self._began: float | None = None
        self._pause_s = PAUSE_S_MIN

    def end(self) -> None:
        """Note that the source is there."""
        if self._began is not None:
            self._context.emit(SourceBack(self._loop.time() - self._began))
        self._was_there, self._began, self._pause_s = True, None, PAUSE_S_MIN

    async def sit_out(self, error: StrandlineError) -> None:
        """Wait a little, or until stopped; raise the error if it will not pass, or has lasted too long."""
        if not (self._was_there and isinstance(error, AWAY)) or error is self._context.flusher.hook_error:
            raise error
        now = self._loop.time()
        self._began = now if self._began is None else self._began
        seconds = now - self._began
        if seconds >= self._context.policy.outage_s_max:
            raise error
        self._context.emit(SourceAway(str(error), seconds))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause_s):
                await self._context.stop.wait()
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
