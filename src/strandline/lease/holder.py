"""The holder of a lease: it claims the lease, renews it in a thread, ends it in time, and is checked before each write.

Invariants: `check` and `is_held` compare the clock at the call with the deadline and wait for no thread; so a holder
that was paused, or whose store does not answer, does not act past its deadline. An ended tenure never resumes.
`LeaseEnded` is told at the deadline at the latest, however long a request takes. `check` does not
guard later acts: the data must carry the epoch (`Fence.check_over`).
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from strandline.clock import NS_PER_S, elapsed_ns
from strandline.errors import Damaged, StrandlineError, Unavailable, UnknownOutcome
from strandline.events import Event, Events
from strandline.lease.claimant import DEFAULT_TIMING, Claimant, LeaseTiming, no_floor
from strandline.lease.errors import FenceStale, LeaseHeld, LeaseLost
from strandline.lease.stores import LeaseStore, LimitedLeaseStore
from strandline.protocol import leadership
from strandline.protocol.leadership import LeaseRecord, Tenure

logger = logging.getLogger("strandline.lease")
RETRY_PART = 4
"""A failed renewal is retried after this fraction of the renewal interval."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The fence of a tenure: its epoch, which is written with the data."""

    epoch: int

    def check_over(self, epoch: int) -> None:
        """Refuse to write over something of a greater epoch: `FenceStale`."""
        if not leadership.admits(epoch, self.epoch):
            raise FenceStale(self.epoch, epoch)


@dataclass(frozen=True, slots=True)
class LeaseTaken(Event):
    """This process holds the lease now."""

    address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaseEnded(Event):
    """This process holds the lease no longer: released, taken by another, or not renewed in time."""

    address: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderSeen(Event):
    """The record names another epoch, or was released."""

    address: str
    epoch: int
    holder: str
    holder_address: str
    released: bool


@dataclass(frozen=True, slots=True)
class LeaseTrouble(Event):
    """A request to the store failed; it is retried."""

    address: str
    error: str


@dataclass(frozen=True, slots=True)
class LeaseHealth:
    """The leader, its tenure, and the state of renewals. Times are seconds from or until now, or None."""

    address: str
    is_held: bool
    epoch: int
    """The epoch of the last record seen, 0 if there was none."""
    leader: str
    """Its holder, empty if there is none or it was released."""
    leader_address: str
    leader_for_s: float | None
    """The time since this process first saw that epoch."""
    renews_in_s: float | None
    expires_in_s: float | None
    """The deadline of renewal, if the lease is held here; otherwise the time until the record can be claimed."""
    last_error: str
    failures: int
    """The number of consecutive failed calls."""


class Lease:
    """A lease of one process, which takes over `store`. Claim it with `acquire`, call `check` before each act.

    `address` is the address of the holder for others. `floor` returns the highest epoch that the guarded data names.
    """

    def __init__(
        self,
        store: LeaseStore,
        holder: str,
        *,
        address: str = "",
        timing: LeaseTiming = DEFAULT_TIMING,
        floor: Callable[[], int] = no_floor,
        events: Events | None = None,
        now_ns: Callable[[], int] = elapsed_ns,
    ) -> None:
        self.timing = timing
        self.events = events or Events()
        self._now_ns = now_ns
        limited = LimitedLeaseStore(store, self._limit_s)
        self._claimant = Claimant(limited, holder, address=address, timing=timing, floor=floor, now_ns=now_ns)
        self._address = store.address
        self._stopped = threading.Event()
        self._keeper: threading.Thread | None = None
        self._lock = threading.Lock()
        self._kept_epoch = 0  # of a tenure whose end was not reported yet
        self._led: tuple[int, bool, int] | None = None  # epoch, released, since
        self._renew_at_ns = 0
        self._failures = 0
        self._last_error = ""

    def acquire(self, timeout_s: float | None = None) -> Fence:
        """Wait for the lease and return its fence; `LeaseHeld` after the timeout, which may be 0 for a single try.

        Unavailability of the store is retried too; other errors are raised.
        """
        give_up = None if timeout_s is None else time.monotonic() + timeout_s
        if self._claimant.tenure is None:
            self._stop_keeper()
            self._end(self._end_reason())
        while True:
            failure = self._try_claim()
            tenure = self._claimant.tenure
            if tenure is not None:
                self._keep(tenure)
                return Fence(tenure.record.epoch)
            left_s = None if give_up is None else give_up - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise failure or self._held_by_another()
            pause_s = self._pause_s()
            time.sleep(pause_s if left_s is None else min(pause_s, left_s))

    @property
    def session(self) -> str:
        """Return what tells this process from others that claim under the same name."""
        return self._claimant.candidate.session

    @property
    def is_held(self) -> bool:
        """Return whether the lease is held at this moment."""
        return self._claimant.tenure is not None

    def check(self, fence: Fence | None = None) -> Fence:
        """Return the fence if the lease is held at this moment, under the epoch of `fence` if that is given.

        Call it immediately before each visible act. `LeaseLost` says that the act must not happen.
        """
        meant = fence.epoch if fence else 0
        tenure = self._claimant.tenure
        if tenure is None:
            raise LeaseLost(self._address, meant, "it ended, or was never taken")
        if meant not in (0, tenure.record.epoch):
            raise LeaseLost(self._address, meant, f"it was taken anew under epoch {tenure.record.epoch}")
        return Fence(tenure.record.epoch)

    def release(self) -> bool:
        """Stop holding the lease, then write its release for others; return whether that succeeded."""
        self._stop_keeper()
        try:
            told = self._claimant.release()
        except StrandlineError as error:
            self._trouble(error)
            told = False
        self._end("released")
        return told

    def look(self) -> LeaseRecord | None:
        """Read the record, which names the leader, and return it; None if there is none."""
        seen = self._claimant.look()
        self._notice()
        return seen.record if seen else None

    def health(self) -> LeaseHealth:
        """Return the leader, its tenure, the next renewal and the last error, without a request to the store."""
        now_ns, candidate = self._now_ns(), self._claimant.candidate
        record = candidate.sighting.record if candidate.sighting else None
        tenure, led, wait_ns = candidate.tenure, self._led, leadership.wait_ns(candidate, now_ns)
        until_ns = tenure.deadline_ns - now_ns if tenure else wait_ns
        return LeaseHealth(
            address=self._address,
            is_held=tenure is not None,
            epoch=record.epoch if record else 0,
            leader=record.holder if record and not record.released else "",
            leader_address=record.address if record and not record.released else "",
            leader_for_s=(now_ns - led[2]) / NS_PER_S if led and record else None,
            renews_in_s=max(0, self._renew_at_ns - now_ns) / NS_PER_S if tenure else None,
            expires_in_s=until_ns / NS_PER_S if until_ns is not None and record else None,
            last_error=self._last_error,
            failures=self._failures,
        )

    def close(self) -> None:
        """Release the lease if it is held, and close the store."""
        self.release()
        self._claimant.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Claiming

    def _try_claim(self) -> StrandlineError | None:
        try:
            self._claimant.claim()
        except (Unavailable, UnknownOutcome) as error:
            if not error.retryable and isinstance(error, Unavailable):
                raise
            self._trouble(error)
            return error
        self._succeeded()
        self._notice()
        return None

    def _pause_s(self) -> float:
        wait_ns = self._claimant.wait_ns()
        poll_s = self.timing.poll_s
        return poll_s if wait_ns is None else min(poll_s, max(wait_ns / NS_PER_S, poll_s / 10))

    def _held_by_another(self) -> LeaseHeld:
        seen = self._claimant.sighting
        record = seen.record if seen else None
        if record is None:
            return LeaseHeld(self._address, "unknown: the record is missing", "", 0)
        return LeaseHeld(self._address, record.holder, record.address, record.epoch)

    # Keeping

    def _keep(self, tenure: Tenure) -> None:
        with self._lock:
            if self._keeper is not None and self._keeper.is_alive():
                return
            self._stopped = threading.Event()
            self._kept_epoch = tenure.record.epoch
            self._renew_at_ns = self._now_ns() + int(self.timing.renew_s * NS_PER_S)
            arguments = (tenure.record.epoch, self._stopped)
            self._keeper = threading.Thread(target=self._renewals, args=arguments, name="lease", daemon=True)
            self._keeper.start()

    def _renewals(self, epoch: int, stopped: threading.Event) -> None:
        """Renew until the tenure ends or `stopped` is set; report its end."""
        self.events.emit(LeaseTaken(self._address, epoch))
        while True:
            tenure = self._claimant.tenure
            if tenure is None or tenure.record.epoch != epoch:
                break
            due_ns = min(self._renew_at_ns, tenure.deadline_ns)
            if stopped.wait(max(0, due_ns - self._now_ns()) / NS_PER_S):
                return
            self._renew_once()
        self._end(self._end_reason())

    def _end(self, reason: str) -> None:
        """Report the end of a tenure, once."""
        with self._lock:
            epoch, self._kept_epoch = self._kept_epoch, 0
        if epoch:
            self.events.emit(LeaseEnded(self._address, epoch, reason))

    def _end_reason(self) -> str:
        candidate = self._claimant.candidate
        record = candidate.sighting.record if candidate.sighting else None
        if record is None:
            return "the record is missing"
        if leadership.is_own(candidate, record):
            return f"not renewed in time: {self._last_error}" if self._failures else "not renewed in time"
        return "it was revoked" if record.released else f"{record.holder} leads under epoch {record.epoch}"

    def _renew_once(self) -> None:
        sent_ns = self._now_ns()
        before = self._claimant.tenure
        try:
            tenure = self._claimant.renew()
        except (Unavailable, UnknownOutcome, Damaged) as error:
            self._trouble(error)
            tenure = before
        except Exception as error:  # after any error the tenure still ends at its deadline, and that must be reported
            logger.exception("renewing %s failed", self._address)
            self._trouble(error)
            tenure = before
        self._notice()
        is_renewed = tenure is not None and before is not None and tenure.version != before.version
        if is_renewed:
            self._succeeded()
        pause_s = self.timing.renew_s if is_renewed else self.timing.renew_s / RETRY_PART
        self._renew_at_ns = sent_ns + int(pause_s * NS_PER_S)

    def _stop_keeper(self) -> None:
        with self._lock:
            self._stopped.set()
            keeper, self._keeper = self._keeper, None
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join()

    def _limit_s(self) -> float:
        """Return the timeout of a call: the renewal interval, and not past the deadline of a tenure."""
        tenure = self._claimant.tenure
        limit_s = max(self.timing.renew_s, self.timing.poll_s)
        return limit_s if tenure is None else min(limit_s, (tenure.deadline_ns - self._now_ns()) / NS_PER_S)

    # Observed records and errors

    def _notice(self) -> None:
        seen = self._claimant.sighting
        record = seen.record if seen else None
        if record is None or (self._led and self._led[:2] == (record.epoch, record.released)):
            return
        self._led = (record.epoch, record.released, self._now_ns())
        self.events.emit(LeaderSeen(self._address, record.epoch, record.holder, record.address, record.released))

    def _trouble(self, error: Exception) -> None:
        self._failures += 1
        self._last_error = str(error)
        self.events.emit(LeaseTrouble(self._address, str(error)))

    def _succeeded(self) -> None:
        self._failures = 0
