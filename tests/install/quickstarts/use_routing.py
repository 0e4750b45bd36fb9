"""A write that was sent to a follower as the leader is refused."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from strandline.replica.roles import Role
from strandline.replica.routing import AsgiRouting


class Node:
    """A follower."""

    role, epoch = Role.FOLLOWER, 0

    def position(self) -> int:
        """Return that nothing was applied."""
        return 0


async def main() -> None:
    """Send one request."""
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"strandline-expect-leader", b"1")]}
    await AsgiRouting(None, Node())(scope, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 421


asyncio.run(main())
