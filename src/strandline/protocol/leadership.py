"""Who may hold a lease, for how long, and under which epoch: one candidate's decisions, without a clock or a store.

A lease is one record in a store that compares and swaps. A `Candidate` is a process that wants it: what it has seen,
what it has sent, and what it was given. All times are of the candidate's own monotonic clock; no time of another
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
"""Of the writes whose outcome is unknown, so many are remembered; an older one is not taken for ours if it arrives."""


class LeaseRecord(NamedTuple):
    """What the store holds. `nonce` counts the writes of a session, so that no two records are equal."""

    epoch: int
    holder: str
    address: str
    session: str
    nonce: int
    ttl_ns: int
    released: bool = False


class Sighting(NamedTuple):
    """A record as it was last read, None if there was none, and when this very record was first seen."""

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
    """A lease that was given: the record that says so, its version, and when it has to be given up."""

    record: LeaseRecord
    version: str
    deadline_ns: int


class Candidate(NamedTuple):
    """A process that wants the lease. `known` is the highest epoch that it has heard of, wherever."""

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


# The guards: each protects against one way to two holders, or to an epoch that was there before.


def observe(
    before: Sighting | None, record: LeaseRecord | None, version: str | None, asked_ns: int, answered_ns: int
) -> Sighting:
    """Return what a candidate has seen after a read.

    The same version keeps its age, another one begins anew: its writer was alive. The age begins when the answer came,
    for the record may have been written while the question was on its way.
    """
    if before is not None and before.version == version:
        return before
    return Sighting(record, version, max(asked_ns, answered_ns))


def is_expired(sighting: Sighting, ttl_ns: int, now_ns: int) -> bool:
    """Return whether a record was seen unchanged for a whole lease, so that its holder has given up."""
    return now_ns - sighting.since_ns >= ttl_ns


def deadline_of(sent_ns: int, answered_ns: int, ttl_ns: int, margin_ns: int) -> int:
    """Return until when a write gives the lease.

    It counts from before the write was sent: others may have seen it long before the answer came. It ends a margin
    early: their clocks may be quicker.
    """
    return min(sent_ns, answered_ns) + ttl_ns - margin_ns


def is_held(tenure: Tenure | None, now_ns: int) -> bool:
    """Return whether a tenure lasts, its deadline excluded; asked anew before each act, for any call may be late."""
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
    """Return the record by which a holder that has given up says so. It keeps the epoch, which a deletion forgets."""
    return record._replace(nonce=nonce, ttl_ns=0, released=True)


def revoked(record: LeaseRecord, session: str) -> LeaseRecord:
    """Return the record by which an operator takes a lease from its holder, who does not know of it yet.

    It keeps the epoch, and the time too: others wait until the holder has noticed or given up.
    """
    return record._replace(session=session, nonce=next_nonce(0), released=True)


def admits(stored_epoch: int, epoch: int) -> bool:
    """Return whether something written under one epoch may be replaced or followed under another: never a lower one."""
    return epoch >= stored_epoch


def own_attempt(attempts: tuple[Attempt, ...], record: LeaseRecord | None) -> Attempt | None:
    """Return the write of ours that made a record, told by session and nonce; None if none of these did."""
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


# What a candidate does: each returns the candidate afterwards, and what it is to write.


def after_epoch(candidate: Candidate, epoch: int, now_ns: int) -> Candidate:
    """Return the candidate after it was told of an epoch, by the data that a holder has written.

    If that is news, there was a holder since it last looked; so a record that is missing again was missing for no time.
    """
    if epoch <= candidate.known:
        return candidate
    seen = candidate.sighting
    if seen is not None and seen.record is None:
        seen = seen._replace(since_ns=now_ns)
    return candidate._replace(known=epoch, sighting=seen)


def wait_ns(candidate: Candidate, now_ns: int) -> int | None:
    """Return how long the record must stay as it is before it may be claimed; 0 is now, None is not before a look."""
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
    """Return whether a candidate without a tenure may claim what it has seen."""
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
    """Return the candidate without its tenure, and the write that gives the lease back; None if it has nothing to give.

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
    """Remember a write, and forget those that expected another version: nothing makes them succeed any more."""
    others = tuple(known for known in candidate.attempts if known.expected == attempt.expected)
    attempts = (*others, attempt)[-ATTEMPTS_MAX:]
    return candidate._replace(nonce=attempt.record.nonce, attempts=attempts), attempt
