"""The stores of a process that takes part after part: those of a lake stay open, with the pages that were read.

A lake's ledger is read from its pages. A task that opened it anew would read it whole, once for each part.

Invariants: stores are used by one call at a time, and not again after an error, nor when the lake was made anew since.
They serve the parts of one plan: what another scan reads, it reads from the lake as it is then, with its own keys and
credentials. Settling sees every row of its run: the run was over before the first question of the step.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import StrandlineError
from strandline.pipeline.ledger import SteadyLedger
from strandline.pipeline.sql.migrations import SchemaStatus
from strandline.pipeline.stores import LAKES, Stores
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried

_Kept = tuple[tuple[object, ...], SchemaStatus, Stores]
_lock = threading.Lock()
_kept: list[_Kept] = []
"""At most one entry: processes work on one scan at a time."""


@contextmanager
def kept_stores(request: ScanRequest, plan: int, step: str = "") -> Iterator[Stores]:
    """Open the stores of a request, or use those of the last call of this process for the same plan.

    Within a step of the plan the ledger is as it was when the step first asked (`SteadyLedger`).
    """
    if not request.address.startswith(LAKES):
        with request.open_stores() as stores:
            yield stores
        return
    named = (plan, request.address, request.coordination, request.lease_ttl_s, request.key)
    stores, status = _taken(named) or _opened(request)
    try:
        if isinstance(stores.ledger, SteadyLedger):
            stores.ledger.hold((plan, step) if step else None)
        yield stores
    except BaseException:
        stores.close()
        raise
    _keep((named, status, stores))


def close_kept() -> None:
    """Close the stores that are kept, if any: what was read takes memory, which other work of the process needs."""
    if (kept := _popped()) is not None:
        kept[2].close()


def _opened(request: ScanRequest) -> tuple[Stores, SchemaStatus]:
    stores = request.open_stores()
    try:
        return stores, stores.database.status()
    except BaseException:
        stores.close()
        raise


def _taken(named: tuple[object, ...]) -> tuple[Stores, SchemaStatus] | None:
    if (kept := _popped()) is None:
        return None
    before, status, stores = kept
    is_same = False
    try:
        is_same = before == named and retried(stores.database.status) == status
    except StrandlineError:
        return None  # such as credentials that expired; if it is the store, opening it anew says so
    finally:
        if not is_same:
            stores.close()
    return (stores, status) if is_same else None


def _popped() -> _Kept | None:
    with _lock:
        return _kept.pop() if _kept else None


def _keep(kept: _Kept) -> None:
    with _lock:
        old = _kept.pop() if _kept else None
        _kept.append(kept)
    if old is not None:
        old[2].close()
