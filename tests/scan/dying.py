"""Drivers in processes of their own that die between two writes of a store, or at an item."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.pipeline.sql import PostgresDatabase, SqliteDatabase
from strandline.scan.request import ScanRequest
from strandline.scan.worker import shard_scanner
from tests.scan.threaded_workers import ThreadWorkers, scanned
from tests.waiting import PATIENCE_S

PAGE_ITEMS = 3


LEASE_S = 2 * PATIENCE_S
"""A lease that no worker of a slow machine loses; `hours_later` is when another one may have what it held."""


@contextmanager
def hours_later(hours: int = 1) -> Iterator[None]:
    """Let it be so much later to whoever claims a shard: the leases of now are over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemClock, "now_ns", lambda _: time.time_ns() + hours * 3600 * 10**9)
        yield


def live(
    request: ScanRequest, writes: int | None = None, *, after: bool = False, workers: int = 1, hours: int = 0
) -> int:
    """Do a scan in a child that is killed at its n-th write, before or after it; return how the child ended."""
    with hours_later(hours):
        return forked(lambda: _scan(request, writes, after, workers))


def forked(what: Callable[[], Any]) -> int:
    """Do something in a child, and return how the child ended."""
    child = multiprocessing.get_context("fork").Process(target=what)
    child.start()
    child.join(PATIENCE_S)
    assert child.exitcode is not None, "the child does not end"
    return child.exitcode


def _scan(request: ScanRequest, writes: int | None, after: bool, workers: int) -> None:
    shard_scanner.PAGE_ITEMS_MAX = PAGE_ITEMS
    if writes is not None:
        for database in (SqliteDatabase, PostgresDatabase):
            die_at(database, "write", writes, after)
    scanned(request, ThreadWorkers(workers))


def die_at(owner: Any, name: str, count: int, after: bool) -> None:  # noqa: ANN401
    """Let this process be killed at the n-th call of a method."""
    whole = getattr(owner, name)
    left = [count]

    def counted(self: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401
        left[0] -= 1
        if not left[0] and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = whole(self, *args, **more)
        if not left[0] and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)
