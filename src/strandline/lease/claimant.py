"""One candidate for a lease and its store: looks, claims, renews and releases, one call at a time, without a thread.

Invariants: every decision is one of `strandline.protocol.leadership`. A write that was not plainly acknowledged is
read back before anything else is decided, and never repeated blindly; if the store does not answer that either, the
write is remembered and recognised later. Time is read right before a request is sent and right after its answer came.
"""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from strandline.clock import NS_PER_S, elapsed_ns
from strandline.errors import Conflict, Unavailable, UnknownOutcome
from strandline.lease.errors import InvalidLease, LeaseLost
from strandline.lease.records import NS_PER_MS, TEXT_MAX, TTL_MS_MAX
from strandline.lease.stores import LeaseStore
from strandline.protocol import leadership
from strandline.protocol.leadership import Attempt, Candidate, LeaseRecord, Sighting, Tenure

RELEASE_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long a lease lasts, how often it is renewed, how early it is given up, and how often others look.

    Two renewals may be missed. The margin is for clocks that do not run alike: within `ttl_s` they may differ by it.
    After a crash another leads `ttl_s` plus at most `poll_s` later.
    """

    ttl_s: float = 10.0
    renew_s: float = 2.0
    margin_s: float = 1.0
    poll_s: float = 0.5

    def __post_init__(self) -> None:
        if min(self.ttl_s, self.renew_s, self.margin_s, self.poll_s) <= 0:
            raise InvalidLease("the times of a lease are greater than 0")
        if self.ttl_s < 3 * self.renew_s + 2 * self.margin_s:
            raise InvalidLease(
                f"a lease of {self.ttl_s:g} s is too short for renewals every {self.renew_s:g} s",
                hint="ttl_s is at least 3 * renew_s + 2 * margin_s, and a few times what a write takes",
            )
        if self.ttl_s * 1000 > TTL_MS_MAX:
            raise InvalidLease(f"a lease of {self.ttl_s:g} s is longer than a day")

    @property
    def ttl_ns(self) -> int:
        """How long a lease lasts, in whole milliseconds as the record says it."""
        return int(self.ttl_s * 1000) * NS_PER_MS

    @property
    def margin_ns(self) -> int:
        """How early it is given up."""
        return int(self.margin_s * NS_PER_S)


DEFAULT_TIMING = LeaseTiming()


def no_floor() -> int:
    """Return 0: the data names no epoch."""
    return 0


class Claimant:
    """A candidate. `floor` returns the highest epoch that the guarded data names, and is asked before each claim."""

    def __init__(
        self,
        store: LeaseStore,
        holder: str,
        *,
        address: str = "",
        timing: LeaseTiming = DEFAULT_TIMING,
        floor: Callable[[], int] = no_floor,
        now_ns: Callable[[], int] = elapsed_ns,
        session: str | None = None,
    ) -> None:
        if not holder or len(holder) > TEXT_MAX or len(address) > TEXT_MAX:
            raise InvalidLease(f"a holder has a name, and name and address have at most {TEXT_MAX} characters")
        self.store = store
        self._floor = floor
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._calls = threading.Lock()
        self._candidate = Candidate(holder, address, session or uuid.uuid4().hex, timing.ttl_ns, timing.margin_ns)

    @property
    def candidate(self) -> Candidate:
        """Return what it has seen, sent and been given; a tenure whose deadline has come is over with this call."""
        with self._lock:
            self._candidate = leadership.after_deadline(self._candidate, self._now_ns())
            return self._candidate

    @property
    def tenure(self) -> Tenure | None:
        """Return the tenure that lasts now."""
        return self.candidate.tenure

    @property
    def sighting(self) -> Sighting | None:
        """Return the record as it was last seen."""
        return self.candidate.sighting

    def wait_ns(self) -> int | None:
        """Return how long the record that was seen has to stay as it is before it may be claimed."""
        return leadership.wait_ns(self.candidate, self._now_ns())

    def look(self) -> Sighting | None:
        """Read the record: what is there, whether it is ours, and whether a tenure was ended by another."""
        with self._calls:
            return self._look()

    def claim(self) -> Tenure | None:
        """Look, and claim the lease if it may be claimed; return the tenure, None if there is none yet."""
        with self._calls:
            floor = self._floor()
            self._look()
            with self._lock:
                self._candidate = leadership.after_epoch(self._candidate, floor, self._now_ns())
                sent = leadership.claim(self._candidate, self._now_ns())
                self._candidate, attempt = sent or (self._candidate, None)
            if attempt is not None:
                self._write(attempt)
        return self.tenure

    def renew(self) -> Tenure | None:
        """Prolong the tenure; return it as it is afterwards, None if it is over."""
        with self._calls:
            with self._lock:
                sent = leadership.renew(self._candidate, self._now_ns())
                self._candidate, attempt = sent or (self._candidate, None)
            if attempt is not None:
                self._write(attempt)
        return self.tenure

    def release(self) -> bool:
        """Give the tenure up, then say so in the record; return whether the record says so."""
        tenure = self._give_up()
        with self._calls:
            for _ in range(RELEASE_ATTEMPTS):
                with self._lock:
                    given_back = leadership.release(self._candidate._replace(tenure=tenure))
                    if given_back is None:
                        return False
                    self._candidate, record, version = given_back
                tenure = None
                try:
                    self.store.write(record, version)
                except (Conflict, Unavailable, UnknownOutcome) as error:
                    _raise_if_final(error)
                    seen = self._look()
                    if seen is not None and seen.record is not None and seen.record.nonce == record.nonce:
                        return leadership.is_own(self._candidate, seen.record)
                else:
                    return True
        return False

    def _give_up(self) -> Tenure | None:
        """End the tenure before anything is sent; return what is to be given back."""
        with self._lock:
            tenure = self._candidate.tenure
            self._candidate = self._candidate._replace(tenure=None)
            return tenure

    def _look(self) -> Sighting | None:
        asked_ns = self._now_ns()
        found = self.store.read()
        record, version = (found.record, found.version) if found else (None, None)
        with self._lock:
            self._candidate = leadership.after_read(self._candidate, record, version, asked_ns, self._now_ns())
            return self._candidate.sighting

    def _write(self, attempt: Attempt) -> None:
        try:
            version = self.store.write(attempt.record, attempt.expected)
        except (Conflict, Unavailable, UnknownOutcome) as error:
            _raise_if_final(error)
            self._look()
            return
        with self._lock:
            self._candidate = leadership.after_write(self._candidate, attempt, version, self._now_ns())


def revoke(store: LeaseStore, epoch: int) -> LeaseRecord:
    """Take the lease from its holder, if it has this epoch: the holder cannot renew it, and others wait its whole time.

    It returns the record that it wrote. `LeaseLost` says that the record has another epoch by now, or is gone.
    """
    found = store.read()
    if found is None or found.record.epoch != epoch:
        reason = "there is no record" if found is None else f"the record has epoch {found.record.epoch}"
        raise LeaseLost(store.address, epoch, reason)
    if found.record.released:
        return found.record
    record = leadership.revoked(found.record, uuid.uuid4().hex)
    store.write(record, found.version)
    return record


def _raise_if_final(error: Exception) -> None:
    if isinstance(error, Unavailable) and not error.retryable:
        raise error
