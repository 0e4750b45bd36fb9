"""One finding in full: its history, the commits that hold it, and other findings of the same secret."""

from dataclasses import dataclass, replace

from strandline.detect.locations import Location, read_location
from strandline.errors import InvalidInput
from strandline.findings.commit_spans import Versions, versions_of
from strandline.findings.decisions import Decisions
from strandline.findings.finding_ids import ID_SHOWN
from strandline.findings.listed_sources import current_sources
from strandline.findings.report_builder import rule_facts, rule_names
from strandline.findings.reports.values import CommitSpan, Decision, RuleFacts
from strandline.pipeline.identity import FindingId
from strandline.pipeline.reads import FindingHistory, Seen
from strandline.pipeline.triage import current
from strandline.pipeline.verifications import Verification, read_verifications
from strandline.scan.state import State

SAME_SECRET_MAX = 50


@dataclass(frozen=True)
class SameSecret:
    """Another finding of the same secret, at its latest location."""

    finding_id: FindingId
    rule_id: str
    location: Location


@dataclass(frozen=True)
class FindingDetail:
    """A finding with everything that the stores hold of it; `versions` has the commits of those in a history."""

    history: FindingHistory
    rule: RuleFacts
    versions: Versions
    same_secret: list[SameSecret]
    decisions: list[Decision]
    decision: Decision | None
    """The current decision, or None."""
    verification: Verification | None = None
    """The last answer of the secret's provider, or None."""

    @property
    def location(self) -> Location:
        """Return the latest location, with the commit that brought it."""
        at = _latest(self.history)
        commit = self.versions.commit(self.history.seen[-1].observation.ovid) if self.history.seen else ""
        return replace(at, commit=commit) if commit else at

    @property
    def commits(self) -> CommitSpan | None:
        """Return the commits that it is in, if its repository's history was scanned."""
        return self.versions.span(seen.observation.ovid for seen in self.history.seen)


def find_detail(state: State, finding: FindingId) -> FindingDetail:
    """Return a finding in full, with at most `SAME_SECRET_MAX` findings of the same secret."""
    history = _history(state, finding)
    names = rule_names(state)
    rule_id = names.get(history.finding.rule) or f"rule {history.finding.rule.hex()[:ID_SHOWN]}"
    rows = state.stores.reads.findings_of_secret(state.tenant, history.finding.secret)
    others = [row for row in rows if row.finding_id != history.finding.finding_id][:SAME_SECRET_MAX]
    same = [
        SameSecret(row.finding_id, names.get(row.rule, ""), _latest(_history(state, row.finding_id))) for row in others
    ]
    decisions = Decisions(state)
    secret = history.finding.secret
    return FindingDetail(
        history,
        rule_facts([rule_id])[rule_id],
        versions_of(state, current_sources(state), [seen.observation.ovid for seen in history.seen]),
        same,
        decisions.all_of(secret, history.decisions),
        decisions.current(secret, current(history.decisions)),
        read_verifications(state.stores.state, state.tenant).get(secret),
    )


def location_seen(seen: Seen) -> Location:
    """Return the location of one sighting."""
    return read_location(seen.observation.location_display, seen.observation.location_url)


def _history(state: State, finding: FindingId) -> FindingHistory:
    history = state.stores.reads.history(state.tenant, finding)
    if history is None:
        raise InvalidInput(f"the finding {finding.hex()[:ID_SHOWN]} is gone")
    return history


def _latest(history: FindingHistory) -> Location:
    return location_seen(history.seen[-1]) if history.seen else read_location(None, None)
