"""Triage: store decisions about findings.

Invariants: a decision is kept for ever; the latest one is current; a decision that is current already is not stored
again.
"""

from collections.abc import Sequence

from strandline.clock import SystemClock
from strandline.pipeline.identity import FindingId
from strandline.pipeline.triage import TriageEvent, TriageState
from strandline.scan.state import State


def decide(
    state: State, findings: Sequence[FindingId], decided: TriageState, *, who: str, why: str = ""
) -> list[TriageEvent]:
    """Store a decision about findings, and return the events that were new."""
    current = state.stores.triage.triage_of(state.tenant, findings)
    # Later than the current decisions, whatever the clock says: the latest decision is the current one.
    when = max([SystemClock().now_ns(), *(event.when_ns + 1 for event in current if event is not None)])
    events = [
        TriageEvent(state.tenant, finding, decided, when, who, why)
        for finding, event in zip(findings, current, strict=True)
        if event is None or (event.state, event.who, event.why) != (decided, who, why)
    ]
    if events:
        state.stores.triage.record_triage(events)
    return events
