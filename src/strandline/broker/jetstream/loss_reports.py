"""The advisory that a stream has lost messages to damage: sent once, as soon as a client listens.

A loss is found when a stream is opened, mostly when the server starts and no client is connected yet, so the advisory
waits for a listener.

Invariants: the stream's files note an advisory that was sent, and it is not sent again unless a crash took the note. A
loss that was accepted has no advisory.
"""

import logging

from strandline.broker.advisories import Advisories
from strandline.broker.api.advisories import MessagesLost
from strandline.broker.streams import Stream
from strandline.broker.timers import Timers
from strandline.errors import StrandlineError

logger = logging.getLogger("strandline.broker")
AGAIN_NS = 1_000_000_000
"""How often it looks whether a client listens."""


class LossReports:
    """Sends the advisories of one account."""

    def __init__(self, timers: Timers, advisories: Advisories) -> None:
        self._timers = timers
        self._advisories = advisories

    def begin(self, stream: Stream, now_ns: int) -> None:
        """Send the advisory of a stream, if it has a loss that was not sent."""
        if not stream.losses.is_told:
            self._timers.set(("lost", stream.config.name), now_ns, lambda now_ns: self._report(stream, now_ns))

    def end(self, name: str) -> None:
        """Send no advisory of a stream any more."""
        self._timers.set(("lost", name), None, lambda _: None)

    def _report(self, stream: Stream, now_ns: int) -> None:
        name, lost = stream.config.name, stream.losses.shown()
        if lost is None:
            return
        advisory = MessagesLost(name, lost)
        if not self._advisories.is_heard(advisory):
            self._timers.set(("lost", name), now_ns + AGAIN_NS, lambda now_ns: self._report(stream, now_ns))
            return
        self._advisories.tell(advisory)
        try:
            stream.note_told()
        except StrandlineError as error:
            logger.warning("stream %s: sending the advisory of its loss again after a restart: %s", name, error)
