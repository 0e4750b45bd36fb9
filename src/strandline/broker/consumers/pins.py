"""Which client a priority group is pinned to.

Invariants: at most one client is; it keeps the pin as long as it asks for messages within the timeout. Pure.
"""

import secrets

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Pin:
    """The pin of the one group that a consumer has."""

    def __init__(self, timeout_ns: int) -> None:
        self.timeout_ns = timeout_ns
        self.identifier = ""
        self.since_ns = 0
        self.until_ns: int | None = None

    def give(self, now_ns: int) -> str:
        """Pin to a new client; return what it is to identify itself with."""
        self.identifier = "".join(secrets.choice(_LETTERS) for _ in range(22))
        self.since_ns = now_ns
        self.prolong(now_ns)
        return self.identifier

    def prolong(self, now_ns: int) -> None:
        """Let the pinned client have it for another while."""
        self.until_ns = now_ns + self.timeout_ns

    def release(self) -> None:
        """Pin to nobody."""
        self.identifier = ""
        self.since_ns = 0
        self.until_ns = None
