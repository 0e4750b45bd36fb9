"""The pace of requests to one host: an interval, `Retry-After`, and a host that does not answer is left alone.

Invariants: two requests to a host are at least `INTERVAL_S` apart; a host that asks for patience gets it, and is asked
nothing until then; after `FAILURES_MAX` requests in a row without an answer a host is asked nothing more.
"""

import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime

from strandline.verify.http_client import Answer, Client, NotAnswered, Request

INTERVAL_S = 0.25
PATIENCE_S = 30.0
"""The longest that one request waits for a host that asks for patience."""
FAILURES_MAX = 3
_DEFAULT_RETRY_S = 60.0
_TOO_MANY = 429


class HostLimits:
    """Sends requests to one host at its pace."""

    def __init__(
        self,
        client: Client,
        *,
        interval_s: float = INTERVAL_S,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._interval_s, self._now_s, self._sleep = interval_s, now_s, sleep
        self._next_s = 0.0
        self._failures = 0

    def send(self, request: Callable[[], Request]) -> Answer:
        """Return an answer that is not about the pace; a request is made anew for each attempt, as it has a time."""
        answer = self._sent(request())
        if _wait_s(answer) is None:
            return answer
        answer = self._sent(request())
        if _wait_s(answer) is None:
            return answer
        raise NotAnswered("the host limits the rate of requests")

    def _sent(self, request: Request) -> Answer:
        if self._failures >= FAILURES_MAX:
            raise NotAnswered(f"the host gave no answer to {FAILURES_MAX} requests before")
        wait_s = self._next_s - self._now_s()
        if wait_s > PATIENCE_S:
            raise NotAnswered("the host limits the rate of requests")
        if wait_s > 0:
            self._sleep(wait_s)
        try:
            answer = self._client.send(request)
        except NotAnswered:
            self._failures += 1
            self._next_s = self._now_s() + self._interval_s
            raise
        self._failures = 0
        self._next_s = self._now_s() + max(self._interval_s, _wait_s(answer) or 0.0)
        return answer


def _wait_s(answer: Answer) -> float | None:
    """Return how long a host asks to wait, None if it does not."""
    given = answer.headers.get("retry-after", "")
    is_used_up = answer.headers.get("x-ratelimit-remaining") == "0"
    if answer.status != _TOO_MANY and not (answer.status in {403, 503} and (given or is_used_up)):
        return None
    if given.isascii() and given.isdigit():
        return float(given)
    try:
        when = parsedate_to_datetime(given)
    except (ValueError, OverflowError):
        return _DEFAULT_RETRY_S
    return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - time.time())
