"""Triage: decisions about findings, with author, time and reason.

A decision is an event that is kept for ever under the digest of its content; the state of a finding is that of its
largest event by (when, state, who, why). So decisions may arrive twice and in any order, two people who decide at the
same moment are told apart the same way everywhere, and the history is never lost.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.identity import DIGEST_BYTES, FindingId, TenantId
from strandline.pipeline.text_fields import check_text
from strandline.protocol.canonical import derive, prefixed, u8, u64

WHO_BYTES_MAX = 256
WHY_BYTES_MAX = 4096


class TriageState(IntEnum):
    """The state of a finding; without a decision it is open."""

    OPEN = 0
    CONFIRMED = 1
    FALSE_POSITIVE = 2
    REVOKED = 3


class Decided(NamedTuple):
    """A decision without the finding that it is about."""

    state: TriageState
    when_ns: int
    who: str
    why: str


class TriageEvent(NamedTuple):
    """A decision about a finding."""

    tenant: TenantId
    finding_id: FindingId
    state: TriageState
    when_ns: int
    who: str
    why: str

    def __repr__(self) -> str:
        return f"TriageEvent(state={TriageState(self.state).name}, when_ns={self.when_ns}, who={self.who!r})"


class Triage(Protocol):
    """Decisions about findings, durably."""

    def record_triage(self, events: Sequence[TriageEvent]) -> None:
        """Store decisions, all or none, and return once they are durable; `MissingParent` for an unknown finding."""
        ...

    def triage_of(self, tenant: TenantId, findings: Sequence[FindingId]) -> list[TriageEvent | None]:
        """Return the current decision of each finding, in their order; None for a finding without a decision."""
        ...


def check_count(findings: Sequence[FindingId]) -> None:
    """Reject a lookup of more findings than a batch has rows."""
    if len(findings) > BATCH_ROWS_MAX:
        raise BatchTooLarge(len(findings), what="findings")


def event_id(event: TriageEvent) -> bytes:
    """Return the name of a decision, from its content."""
    text = prefixed(event.who.encode()) + prefixed(event.why.encode())
    data = event.tenant + event.finding_id + u8(event.state) + u64(event.when_ns) + text
    return derive("strandline/triage-event/v1", data)


def current(events: Iterable[TriageEvent]) -> TriageEvent | None:
    """Return the current decision among those of one finding."""
    return max(events, key=order, default=None)


def order(event: TriageEvent) -> tuple[int, int, bytes, bytes]:
    """Return the sort key of a decision; the largest one is current."""
    return event.when_ns, event.state, event.who.encode(), event.why.encode()


def validate_all(events: Sequence[TriageEvent]) -> None:
    """Refuse decisions that are too many, of several tenants, or incomplete."""
    if len(events) > BATCH_ROWS_MAX:
        raise BatchTooLarge(len(events), what="decisions")
    if len({event.tenant for event in events}) > 1:
        raise InvalidInput("decisions of several tenants are in the batch", hint="write a batch for each tenant")
    for event in events:
        _validate(event)


def _validate(event: TriageEvent) -> None:
    ids: tuple[object, object] = event[:2]
    if any(not isinstance(one, bytes) or len(one) != DIGEST_BYTES for one in ids):
        raise InvalidInput(f"an id of a decision is not {DIGEST_BYTES} bytes")
    if event.state not in set(TriageState):
        raise InvalidInput(f"{event.state!r} is not a state of triage")
    when: object = event.when_ns
    if not isinstance(when, int) or not 0 <= when < 2**63:
        raise InvalidInput("a decision's time is not in nanoseconds since 1970")
    check_text(event.who, "who decided", WHO_BYTES_MAX)
    check_text(event.why, "why it was decided", WHY_BYTES_MAX, 0)
