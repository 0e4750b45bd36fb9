"""Where a lease's record is: read it with its version, replace it if it still has that version, and nothing else.

Invariants of every `LeaseStore`: a read sees every write that was acknowledged; of several writes that expect the same
version at most one succeeds; `Conflict` says that nothing was written because the version is another, `Unavailable`
that nothing was done, `UnknownOutcome` that it may be, or may still be. No call is repeated in here: the lease reads
back what it does not know.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar

from strandline.errors import StrandlineError
from strandline.lease.errors import LeaseUnanswered, LeaseWriteUnanswered
from strandline.lease.records import format_record, parse_record
from strandline.objects import ObjectStore
from strandline.protocol.leadership import LeaseRecord

CALLS_MAX = 8
"""So many calls that were never answered may be waited for; while they are, further ones are refused."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and its version, which is compared and never looked into."""

    record: LeaseRecord
    version: str


class LeaseStore(Protocol):
    """One record. Calls block; any thread may make them."""

    @property
    def address(self) -> str:
        """Where the record is, without credentials; for messages."""
        ...

    def read(self) -> StoredRecord | None:
        """Return the record, None where there is none; `LeaseDamaged` or `FormatError` if it cannot be read."""
        ...

    def write(self, record: LeaseRecord, expected: str | None) -> str:
        """Replace the record of this version, None where there is none; return the new version."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class ObjectLeaseStore:
    """The record as an object; its ETag is the version. The store must honour conditions (`probe_conditions`)."""

    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._objects = objects
        self._key = key
        self.address = f"{objects.address}{'' if objects.address.endswith('/') else '/'}{key}"

    def read(self) -> StoredRecord | None:
        """Return the record, None where there is none."""
        found = self._objects.get(self._key)
        return StoredRecord(parse_record(found.body, self.address), found.info.etag) if found else None

    def write(self, record: LeaseRecord, expected: str | None) -> str:
        """Replace the record of this version, None where there is none; return the new version."""
        return self._objects.put(self._key, format_record(record), if_absent=expected is None, if_match=expected)

    def close(self) -> None:
        """Let go of connections."""
        self._objects.close()


class LimitedLeaseStore:
    """Another store whose calls end in time: one that is not answered goes on in a thread of its own, unheard."""

    def __init__(self, store: LeaseStore, limit_s: Callable[[], float]) -> None:
        self._store = store
        self._limit_s = limit_s
        self._unanswered = threading.BoundedSemaphore(CALLS_MAX)

    @property
    def address(self) -> str:
        """Where the record is."""
        return self._store.address

    def read(self) -> StoredRecord | None:
        """Return the record, None where there is none; `LeaseUnanswered` after the limit."""
        return self._within(self._store.read, LeaseUnanswered)

    def write(self, record: LeaseRecord, expected: str | None) -> str:
        """Replace the record of this version; `LeaseWriteUnanswered` after the limit."""
        return self._within(lambda: self._store.write(record, expected), LeaseWriteUnanswered)

    def close(self) -> None:
        """Let go of connections; calls that were never answered end with them, or with the process."""
        self._store.close()

    def _within(self, call: Callable[[], Result], late: Callable[[str, float], StrandlineError]) -> Result:
        limit_s = max(0.0, self._limit_s())
        if not self._unanswered.acquire(blocking=False):
            raise LeaseUnanswered(self.address, limit_s)
        answer: Future[Result] = Future()
        threading.Thread(target=self._answer, args=(call, answer), name="lease call", daemon=True).start()
        try:
            return answer.result(limit_s)
        except TimeoutError:
            if answer.done():
                return answer.result()
            raise late(self.address, limit_s) from None

    def _answer(self, call: Callable[[], Result], answer: "Future[Result]") -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
            answer.set_exception(error)
        finally:
            self._unanswered.release()
