"""When a replicator makes its next step: pauses, and the pace of its uploads, as pure code."""

from typing import NamedTuple

UPLOAD_EVERY_S = 1.0
BURST = 60
REFUSED_PAUSE_S = 30.0
"""How long a store that refuses a credential or the bucket is left alone before it is asked again."""


class Pause(NamedTuple):
    """How long a replicator has nothing to do, unless something is committed or it is woken.

    With `is_backoff` nothing ends the pause: the store, or the database, is given time. With `is_pace` a commit does
    not end it, and a waiter does.
    """

    seconds: float
    is_backoff: bool = False
    is_pace: bool = False


class Pace:
    """How often uploads without a waiter begin: as fast as the store takes them, until a burst is used up.

    It holds up an upload of all there is, and never one of a backlog, which would grow behind it.

    An unused upload is kept for later, up to `BURST` of them: a commit now and then is shipped at once, and a database
    that is written all the time costs `3600 / every_s` uploads an hour.
    """

    def __init__(self, every_s: float, now_s: float) -> None:
        self._every_s = every_s
        self._full_s = now_s
        """When the last of the burst is there again."""

    def wait_s(self, now_s: float) -> float:
        """Return how long the next upload is to wait."""
        return max(0.0, self._full_s - (BURST - 1) * self._every_s - now_s)

    def spend(self, now_s: float) -> None:
        """Count an upload."""
        self._full_s = min(max(self._full_s, now_s) + self._every_s, now_s + BURST * self._every_s)
