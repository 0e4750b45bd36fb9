"""Triage: store decisions about findings, or about their secrets wherever they are, and take them back.

Invariants: a decision is kept for ever, and so is its undo; the latest one is current; a decision that is current
already is not stored again; the decisions of one call have one time, which is how the last call is found again.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from strandline.clock import SystemClock
from strandline.errors import InvalidInput
from strandline.findings.decisions import UNDO, Decisions, standing
from strandline.findings.report_builder import observations
from strandline.findings.reports.values import Decision
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import FindingId, SecretHash
from strandline.pipeline.secret_decisions import record_secret_decisions
from strandline.pipeline.triage import Decided, TriageEvent, TriageState
from strandline.scan.state import State


class Change(NamedTuple):
    """What a call decided about a finding; `changed` if that was not so before."""

    finding: FindingId
    state: TriageState
    changed: bool


def decide(
    state: State, findings: Sequence[FindingId], decided: TriageState, *, who: str, why: str = ""
) -> list[TriageEvent]:
    """Store a decision about findings, all or none of up to 10,000, and return the events that were new."""
    current = _current(state, findings)
    # Later than the current decisions, whatever the clock says: the latest decision is the current one.
    when = max([SystemClock().now_ns(), *(one.when_ns + 1 for one in current if one is not None)])
    events = [
        TriageEvent(state.tenant, finding, decided, when, who, why)
        for finding, now in zip(findings, current, strict=True)
        if now is None or (now.state, now.who, now.why) != (decided, who, why)
    ]
    _record(state, events)
    return events


def decide_everywhere(
    state: State, findings: Sequence[FindingId], decided: TriageState, *, who: str, why: str = ""
) -> list[Change]:
    """Store a decision about the secrets of findings: it holds for every finding of them, now and later."""
    decisions = Decisions(state)
    current = _current(state, findings)
    when = max([SystemClock().now_ns(), *(one.when_ns + 1 for one in current if one is not None)])
    new: dict[SecretHash, Decided] = {}
    changes = []
    for finding, now in zip(findings, current, strict=True):
        secret = _secret(state, finding)
        kept = standing(decisions.secrets.get(secret, []))
        is_known = now is not None and kept[-1:] == [now] and (now.state, now.who, now.why) == (decided, who, why)
        changes.append(Change(finding, decided, not is_known))
        if not is_known:
            new[secret] = Decided(decided, when, who, why)
    record_secret_decisions(state.stores.state, state.tenant, new.items())
    return changes


def undo(state: State, findings: Sequence[FindingId], *, who: str) -> list[Change]:
    """Take the latest decision about each finding back; without one, nothing changes."""
    decisions = Decisions(state)
    when = SystemClock().now_ns()
    own: list[TriageEvent] = []
    of_secrets: dict[SecretHash, Decided] = {}
    changes = []
    for finding in findings:
        history = state.stores.reads.history(state.tenant, finding)
        if history is None:
            continue
        secret = history.finding.secret
        made = decisions.all_of(secret, history.decisions)
        kept = standing(made)
        if not kept:
            changes.append(Change(finding, TriageState.OPEN, changed=False))
            continue
        *before, last = kept
        restored = before[-1].state if before else TriageState.OPEN
        when_ns = max(when, made[-1].when_ns + 1)
        if last.everywhere:
            of_secrets[secret] = Decided(restored, when_ns, who, UNDO)
        else:
            alone = [one.state for one in before if not one.everywhere]
            left = alone[-1] if alone else TriageState.OPEN
            own.append(TriageEvent(state.tenant, finding, left, when_ns, who, UNDO))
        changes.append(Change(finding, restored, changed=True))
    _record(state, own)
    record_secret_decisions(state.stores.state, state.tenant, of_secrets.items())
    return changes


def last_decided(state: State) -> list[FindingId]:
    """Return the findings of the last call that decided something and was not taken back."""
    decisions = Decisions(state)
    latest: dict[FindingId, Decision] = {}
    for finding, secret, has_own in _decided(state, decisions):
        history = state.stores.reads.history(state.tenant, finding) if has_own else None
        kept = standing(decisions.all_of(secret, history.decisions if history else ()))
        if kept:
            latest[finding] = kept[-1]
    if not latest:
        raise InvalidInput("there is no decision to undo", hint="`strandline findings show ID` has the history")
    when_ns = max(one.when_ns for one in latest.values())
    return [finding for finding, one in latest.items() if one.when_ns == when_ns]


def _decided(state: State, decisions: Decisions) -> Iterator[tuple[FindingId, SecretHash, bool]]:
    """Yield each finding with a decision, its secret, and whether a decision is about the finding itself."""
    policies = (counts.policy for counts in state.stores.reads.counts_by_policy(state.tenant))
    seen: set[FindingId] = set()
    for row in chain.from_iterable(rows for policy in policies for rows in observations(state, policy)):
        finding = row.finding
        if finding.finding_id not in seen and (row.decision is not None or finding.secret in decisions.secrets):
            seen.add(finding.finding_id)
            yield finding.finding_id, finding.secret, row.decision is not None


def _current(state: State, findings: Sequence[FindingId]) -> list[Decision | None]:
    """Return the decision that holds for each finding."""
    decisions = Decisions(state)
    own: list[TriageEvent | None] = []
    for first in range(0, len(findings), BATCH_ROWS_MAX):
        own += state.stores.triage.triage_of(state.tenant, findings[first : first + BATCH_ROWS_MAX])
    if not decisions.secrets:
        return [decisions.current(None, event) for event in own]
    secrets = (_secret(state, finding) for finding in findings)
    return [decisions.current(secret, event) for secret, event in zip(secrets, own, strict=True)]


def _record(state: State, events: Sequence[TriageEvent]) -> None:
    for first in range(0, len(events), BATCH_ROWS_MAX):
        state.stores.triage.record_triage(events[first : first + BATCH_ROWS_MAX])


def _secret(state: State, finding: FindingId) -> SecretHash:
    history = state.stores.reads.history(state.tenant, finding)
    if history is None:
        raise InvalidInput("a finding is gone", hint="`strandline findings list --all` shows those that are left")
    return history.finding.secret
