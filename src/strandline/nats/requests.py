"""The contract of requests from an event loop, and their outcomes: an answer, no listener, or no answer."""

from collections.abc import Mapping
from typing import Protocol

from strandline.nats.settings import NatsSettings


class Unanswered(Exception):
    """A request was sent and has no answer; `waited_s` if it is for time alone, None if the connection was lost."""

    def __init__(self, waited_s: float | None) -> None:
        super().__init__("unanswered")
        self.waited_s = waited_s


class NoListener(Exception):
    """No subscriber listens to the subject of a request, so nothing was done."""


class RequestTransport(Protocol):
    """A connected client that carries requests."""

    @property
    def settings(self) -> NatsSettings:
        """Return how it is connected."""
        ...

    @property
    def is_over(self) -> bool:
        """Tell whether its client was closed, and will not come back by itself."""
        ...

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        limit_s: float | None = None,
    ) -> bytes:
        """Send and return the answer's payload; `ConnectionDropped`, `NoListener`, `Unanswered`, or a refusal.

        `limit_s` is how long to wait, that of the settings if None.
        """
        ...

    async def answers(self) -> bool:
        """Tell whether the server answers a ping now; never raises."""
        ...

    async def close(self) -> None:
        """Close the client if it is ours."""
        ...
