"""Whether a store honours conditional writes: tried on an object of its own, and refused where it does not.

Invariants: the probe writes one small object under `strandline-probe/` and removes it. It shows that a condition is
honoured by one client at a time; whether racing clients are told apart only `race_conditions` can show, and only by
chance, so it is for people who choose a store, not for every start.
"""

import contextlib
import uuid
from concurrent.futures import ThreadPoolExecutor

from strandline.errors import Conflict, StrandlineError
from strandline.objects.contracts import ObjectStore
from strandline.objects.errors import ConditionsIgnored

PROBE_PREFIX = "strandline-probe/"
WRONG_ETAG = '"00000000000000000000000000000000"'


def probe_conditions(store: ObjectStore) -> None:
    """Raise `ConditionsIgnored` unless three writes whose conditions do not hold are refused."""
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    try:
        if _is_written(store, key, if_match=WRONG_ETAG):
            raise ConditionsIgnored(store.address, "it replaced an object that does not exist")
        etag = store.put(key, b"1", if_absent=True)
        if _is_written(store, key, if_absent=True):
            raise ConditionsIgnored(store.address, "it created an object that exists")
        if _is_written(store, key, if_match=WRONG_ETAG):
            raise ConditionsIgnored(store.address, "it replaced an object that has another ETag")
        store.put(key, b"2", if_match=etag)
        if _is_written(store, key, if_match=etag):
            raise ConditionsIgnored(store.address, "it replaced an object whose ETag had changed")
    finally:
        with contextlib.suppress(StrandlineError):  # what failed before says more; the object is named for what it is
            store.delete(key)


def race_conditions(store: ObjectStore, *, rounds: int = 20, writers: int = 8) -> None:
    """Raise `ConditionsIgnored` if two of several threads that create one object at once are both told they did."""
    with ThreadPoolExecutor(writers) as pool:
        for _ in range(rounds):
            key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"

            def create(writer: int, key: str = key) -> bool:
                return _is_written(store, key, if_absent=True, body=b"%d" % writer)

            won = sum(pool.map(create, range(writers)))
            store.delete(key)
            if won != 1:
                raise ConditionsIgnored(store.address, f"{won} of {writers} racing writers created one object")


def _is_written(
    store: ObjectStore, key: str, *, if_absent: bool = False, if_match: str | None = None, body: bytes = b"0"
) -> bool:
    try:
        store.put(key, body, if_absent=if_absent, if_match=if_match)
    except Conflict:
        return False
    return True
