"""The holder of a lease, its deadline and its epoch: one candidate's decisions, without a clock or a store.

A lease is one record in a store with compare-and-swap. A `Candidate` is a process that wants it: the records it has
read, the writes it has sent, and its tenure. All times are of the candidate's own monotonic clock; no time of another
machine is ever compared.

Invariants, as long as two clocks drift apart by less than the margin within a lease, and the record is never deleted:

- at most one candidate holds the lease: a holder's time begins before its write is sent and ends a margin early, an
  observer's time begins after it has read the record and lasts the whole lease;
- every tenure has an epoch of its own, and a later tenure has a greater one;
- a tenure that is over does not come back: leading again takes another claim;
- a write is ours if session and nonce are those of a write that we sent, and by nothing else.

A missing record is claimed at once by a candidate that knows of no epoch. To others it was deleted by hand: they wait a
whole lease, and go on above the epochs that they know. That keeps the promise where the data tells every epoch that was
used, and no claim was on its way when the record went; a missing record has no version by which to tell more.
"""

from typing import NamedTuple

ATTEMPTS_MAX = 8
"""Writes of unknown outcome that are remembered; an older one does not count as ours if it arrives."""


class LeaseRecord(NamedTuple):
    """The stored record. `nonce` counts the writes of a session, so that no two records are equal."""

    epoch: int
    holder: str
    address: str
    session: str
    nonce: int
    ttl_ns: int
    released: bool = False


class Sighting(NamedTuple):
    """The last record read, None if there was none, and the time at which this version was first seen."""

    record: LeaseRecord | None
    version: str | None
    since_ns: int


class Attempt(NamedTuple):
    """A write whose outcome is not known yet; `expected` is the version it replaces, None where there is none."""

    record: LeaseRecord
    expected: str | None
    sent_ns: int
    is_claim: bool


class Tenure(NamedTuple):
    """A granted lease: its record, the record's version, and the deadline."""

    record: LeaseRecord
    version: str
    deadline_ns: int


class Candidate(NamedTuple):
    """A process that wants the lease. `known` is the highest epoch known to it from any source."""

    holder: str
    address: str
    session: str
    ttl_ns: int
    margin_ns: int
    nonce: int = 0
    known: int = 0
    sighting: Sighting | None = None
    attempts: tuple[Attempt, ...] = ()
    tenure: Tenure | None = None


# The guards: each prevents one way to two holders, or to a repeated epoch.


def observe(
    before: Sighting | None, record: LeaseRecord | None, version: str | None, asked_ns: int, answered_ns: int
) -> Sighting:
    """Return a candidate's sighting after a read.

    The same version keeps its age, a new one starts at zero because its writer was alive. The age starts when the
    answer arrives, because the record may have been written while the request was in flight.
    """
    if before is not None and before.version == version:
        return before
    return Sighting(record, version, max(asked_ns, answered_ns))


def is_expired(sighting: Sighting, ttl_ns: int, now_ns: int) -> bool:
    """Return whether a record was seen unchanged for a whole lease, so that its holder has given up."""
    return now_ns - sighting.since_ns >= ttl_ns


def deadline_of(sent_ns: int, answered_ns: int, ttl_ns: int, margin_ns: int) -> int:
    """Return the deadline of the lease that a write grants.

    It counts from before the write was sent, because others may have read it long before the answer came. It ends a
    margin early, because their clocks may be faster.
    """
    return min(sent_ns, answered_ns) + ttl_ns - margin_ns


def is_held(tenure: Tenure | None, now_ns: int) -> bool:
    """Return whether a tenure lasts, its deadline excluded; callers check before each act: any call may be late."""
    return tenure is not None and now_ns < tenure.deadline_ns


def is_own(candidate: Candidate, record: LeaseRecord) -> bool:
    """Return whether a record was written by this process. The holder's name does not tell: two may share one."""
    return record.session == candidate.session


def next_epoch(known: int, record: LeaseRecord | None) -> int:
    """Return the epoch of a claim: greater than that of the record, and than any that is known from elsewhere."""
    return max(known, record.epoch if record else 0) + 1


def next_nonce(nonce: int) -> int:
    """Return the nonce of the next write. It makes the record, and so a version made from its bytes, a new one."""
    return nonce + 1


def released(record: LeaseRecord, nonce: int) -> LeaseRecord:
    """Return the record of a released lease. It keeps the epoch, which a deletion would lose."""
    return record._replace(nonce=nonce, ttl_ns=0, released=True)


def revoked(record: LeaseRecord, session: str) -> LeaseRecord:
    """Return the record by which an operator revokes a lease before its holder knows.

    It keeps the epoch and the duration: others wait until the holder has noticed or given up.
    """
    return record._replace(session=session, nonce=next_nonce(0), released=True)


def admits(stored_epoch: int, epoch: int) -> bool:
    """Return whether data of one epoch may be replaced or followed under another: never under a lower one."""
    return epoch >= stored_epoch


def own_attempt(attempts: tuple[Attempt, ...], record: LeaseRecord | None) -> Attempt | None:
    """Return our write that made a record, by session and nonce; None if another process wrote it."""
    if record is None:
        return None
    made = (record.session, record.nonce)
    return next((attempt for attempt in attempts if (attempt.record.session, attempt.record.nonce) == made), None)


def tenure_of(
    attempt: Attempt, version: str, answered_ns: int, margin_ns: int, current: Tenure | None
) -> Tenure | None:
    """Return the tenure that a successful write gives, None if it gives none.

    A claim whose time is over when its answer comes gives none, and a renewal only prolongs a tenure that lasts.
    """
    if not attempt.is_claim and not is_held(current, answered_ns):
        return None
    record = attempt.record
    tenure = Tenure(record, version, deadline_of(attempt.sent_ns, answered_ns, record.ttl_ns, margin_ns))
    return tenure if is_held(tenure, answered_ns) else None


def is_lost(tenure: Tenure, version: str | None) -> bool:
    """Return whether the record is no longer that of a tenure, and no later write of ours either."""
    return tenure.version != version


# The actions of a candidate: each returns the new candidate, and the write to send.


def after_epoch(candidate: Candidate, epoch: int, now_ns: int) -> Candidate:
    """Return the candidate after it learned of an epoch from a holder's data.

    A new epoch means that there was a holder since the last read, so the age of a missing record starts again.
    """
    if epoch <= candidate.known:
        return candidate
    seen = candidate.sighting
    if seen is not None and seen.record is None:
        seen = seen._replace(since_ns=now_ns)
    return candidate._replace(known=epoch, sighting=seen)


def wait_ns(candidate: Candidate, now_ns: int) -> int | None:
    """Return the time until the unchanged record may be claimed; 0 is now, None means that a read must come first."""
    seen = candidate.sighting
    if seen is None:
        return None
    if seen.record is None:
        if candidate.known == 0:
            return 0
        ttl_ns = candidate.ttl_ns
    elif is_own(candidate, seen.record):
        return 0
    else:
        ttl_ns = seen.record.ttl_ns
    return 0 if is_expired(seen, ttl_ns, now_ns) else seen.since_ns + ttl_ns - now_ns


def may_claim(candidate: Candidate, now_ns: int) -> bool:
    """Return whether a candidate without a tenure may claim the record it has read."""
    return candidate.tenure is None and wait_ns(candidate, now_ns) == 0


def claim(candidate: Candidate, now_ns: int) -> tuple[Candidate, Attempt] | None:
    """Return the write that claims the lease, to be sent now; None if the candidate may not."""
    seen = candidate.sighting
    if seen is None or not may_claim(candidate, now_ns):
        return None
    record = LeaseRecord(
        next_epoch(candidate.known, seen.record),
        candidate.holder,
        candidate.address,
        candidate.session,
        next_nonce(candidate.nonce),
        candidate.ttl_ns,
    )
    return _sent(candidate, Attempt(record, seen.version, now_ns, is_claim=True))


def renew(candidate: Candidate, now_ns: int) -> tuple[Candidate, Attempt] | None:
    """Return the write that prolongs the tenure, to be sent now; None if it is over."""
    tenure = candidate.tenure
    if tenure is None or not is_held(tenure, now_ns):
        return None
    record = tenure.record._replace(nonce=next_nonce(candidate.nonce))
    return _sent(candidate, Attempt(record, tenure.version, now_ns, is_claim=False))


def release(candidate: Candidate) -> tuple[Candidate, LeaseRecord, str | None] | None:
    """Return the candidate without its tenure, and the write that releases the lease; None if it holds none.

    The tenure is over before the write is sent. A record of ours that came late is given back too.
    """
    seen, tenure = candidate.sighting, candidate.tenure
    if tenure is not None:
        record, version = tenure.record, tenure.version
    elif seen is not None and seen.record is not None and is_own(candidate, seen.record) and not seen.record.released:
        record, version = seen.record, str(seen.version)
    else:
        return None
    given_back = released(record, next_nonce(candidate.nonce))
    return candidate._replace(tenure=None, nonce=given_back.nonce), given_back, version


def after_write(candidate: Candidate, attempt: Attempt, version: str, answered_ns: int) -> Candidate:
    """Return the candidate after the store has said that a write of it was done."""
    if attempt not in candidate.attempts:
        return candidate
    tenure = tenure_of(attempt, version, answered_ns, candidate.margin_ns, candidate.tenure)
    known = max(candidate.known, attempt.record.epoch)
    seen = observe(candidate.sighting, attempt.record, version, answered_ns, answered_ns)
    return candidate._replace(tenure=tenure, attempts=(), known=known, sighting=seen)


def after_read(
    candidate: Candidate, record: LeaseRecord | None, version: str | None, asked_ns: int, answered_ns: int
) -> Candidate:
    """Return the candidate after a read: a write of ours is recognised, and a tenure that another has ended is over."""
    attempt = own_attempt(candidate.attempts, record)
    if attempt is not None and version is not None:
        return after_write(candidate, attempt, version, answered_ns)
    tenure = candidate.tenure
    if tenure is not None and is_lost(tenure, version):
        tenure = None
    known = max(candidate.known, record.epoch if record else 0)
    sighting = observe(candidate.sighting, record, version, asked_ns, answered_ns)
    on_their_way = tuple(attempt for attempt in candidate.attempts if attempt.expected == version)
    return candidate._replace(tenure=tenure, attempts=on_their_way, known=known, sighting=sighting)


def after_deadline(candidate: Candidate, now_ns: int) -> Candidate:
    """Return the candidate without a tenure whose deadline has come; nothing brings that tenure back."""
    if candidate.tenure is None or is_held(candidate.tenure, now_ns):
        return candidate
    return candidate._replace(tenure=None)


def _sent(candidate: Candidate, attempt: Attempt) -> tuple[Candidate, Attempt]:
    """Remember a write, and forget writes that expected another version, which can no longer succeed."""
    others = tuple(known for known in candidate.attempts if known.expected == attempt.expected)
    attempts = (*others, attempt)[-ATTEMPTS_MAX:]
    return candidate._replace(nonce=attempt.record.nonce, attempts=attempts), attempt
