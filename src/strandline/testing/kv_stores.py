"""The contract of a bucket as checks, each a coroutine function of a connection with fresh buckets.

Every invariant that `strandline.kv.contracts` lists has a check here. The checks let time pass by a function of the
backend: a twin moves its clock, a server needs real time.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from strandline.testing.contract import named
from strandline.testing.kv_helpers import CheckedKv, KvStoreCheck
from strandline.testing.kv_values import VALUE_CHECKS
from strandline.testing.kv_watches import WATCH_CHECKS

OpenKv = Callable[[], AbstractAsyncContextManager[CheckedKv]]
"""Opens a connection, connected, whose new buckets are empty."""

KV_STORE_CHECKS: tuple[KvStoreCheck, ...] = (*VALUE_CHECKS, *WATCH_CHECKS)
"""Every promise of the contract, as a function whose name says what must hold."""


async def run_kv_store_check(check: KvStoreCheck, open_kv: OpenKv) -> None:
    """Run one check over a connection of its own; `ContractBroken` carries its name."""
    with named(check.__name__):
        async with open_kv() as kv:
            await check(kv)


def check_kv_store(open_kv: OpenKv) -> None:
    """Run every check, each in an event loop of its own; `ContractBroken` names the first that fails."""
    for check in KV_STORE_CHECKS:
        asyncio.run(run_kv_store_check(check, open_kv))
