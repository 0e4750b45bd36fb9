"""`strandline findings show`: all that is known of one finding."""

import os
from collections.abc import Iterator
from typing import Annotated

import typer

from strandline.cli.findings_ids import ID_SHOWN, find_ids
from strandline.cli.output import AsJson, Record, emit, emit_rows, to_json
from strandline.cli.results import decision_of, git_places, rule_facts, rule_names
from strandline.cli.state import (
    DEFAULT_STATE,
    DEFAULT_TENANT,
    KeyFileOption,
    State,
    StateOption,
    TenantOption,
    open_state,
)
from strandline.detect.locations import Location, format_display, format_url, read_location, shown
from strandline.errors import InvalidInput
from strandline.findings.reports.values import level_of, state_name, utc
from strandline.pipeline.identity import FindingId
from strandline.pipeline.reads import FindingHistory, Seen
from strandline.pipeline.triage import TriageState, current

SHOWN_MAX = 50
POLICY_SHOWN = 12
_SHOWN = ("place", "confidence", "version", "policy", "first_seen")

Id = Annotated[str, typer.Argument(metavar="ID", help="The finding's id, or the beginning of it.")]


def show(
    finding: Id,
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a finding: every place it was seen at, other places of the same secret, and what was decided."""
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        (found,) = find_ids(state, [finding])
        history = _history(state, found)
        others = list(_other_places(state, history))
        rule = rule_names(state).get(history.finding.rule) or f"rule {history.finding.rule.hex()[:ID_SHOWN]}"
        in_git = git_places(state, history.finding.item)
    record = _record(history, rule)
    places = [_place(seen) for seen in history.seen]
    commits = [{"commit": at.commit, "path": shown(os.fsdecode(at.path))} for at in in_git.places] if in_git else []
    decisions = [
        {"when": utc(event.when_ns), "state": state_name(TriageState(event.state)), "who": event.who, "why": event.why}
        for event in history.decisions
    ]
    if as_json:
        counted = {"commits": commits, "commits_total": in_git.total} if in_git else {}
        print(to_json({**record, "places": places, **counted, "same_secret": others, "decisions": decisions}))
        return
    emit({name: value for name, value in record.items() if value}, as_json=False)
    emit_rows(({name: row[name] for name in _SHOWN} for row in places), as_json=False, title="places")
    total = in_git.total if in_git else 0
    more = f", the first of {total:,}" if total > len(commits) else ""
    emit_rows(commits, as_json=False, title=f"commits that brought it{more}")
    emit_rows(others, as_json=False, title="the same secret elsewhere")
    printable = ({name: shown(value) for name, value in row.items()} for row in decisions)
    emit_rows(printable, as_json=False, title="decisions")


def _record(history: FindingHistory, rule: str) -> Record:
    (facts,) = rule_facts([rule]).values()
    latest = _latest(history)
    decision = decision_of(current(history.decisions))
    return {
        "finding_id": history.finding.finding_id.hex(),
        "rule": rule,
        "what": facts.description,
        "place": format_display(latest),
        "source": latest.source,
        "confidence": f"{latest.confidence} ({level_of(latest.confidence).value})",
        "read_through": " → ".join(latest.via),
        "commit": latest.commit,
        "first_seen": utc(history.committed_ns),
        "state": state_name(TriageState.OPEN if decision is None else decision.state),
    }


def _place(seen: Seen) -> Record:
    at = _location(seen)
    return {
        "place": format_display(at),
        "path": at.path,
        "commit": at.commit,
        "confidence": at.confidence,
        "bytes": f"{seen.occurrence.byte_offset}+{seen.occurrence.byte_length}",
        "version": seen.occurrence.version.hex()[:ID_SHOWN],
        "policy": seen.observation.policy.hex()[:POLICY_SHOWN],
        "first_seen": utc(seen.observation_ns),
        "url": format_url(at),
    }


def _other_places(state: State, history: FindingHistory) -> Iterator[Record]:
    """Yield where else the secret is, at most so many."""
    rows = state.stores.reads.findings_of_secret(state.tenant, history.finding.secret)
    names = rule_names(state)
    for row in [row for row in rows if row.finding_id != history.finding.finding_id][:SHOWN_MAX]:
        yield {
            "id": row.finding_id.hex()[:ID_SHOWN],
            "rule": names.get(row.rule, ""),
            "place": format_display(_latest(_history(state, row.finding_id))),
        }


def _history(state: State, finding: FindingId) -> FindingHistory:
    history = state.stores.reads.history(state.tenant, finding)
    if history is None:
        raise InvalidInput(f"the finding {finding.hex()[:ID_SHOWN]} is gone")
    return history


def _latest(history: FindingHistory) -> Location:
    return _location(history.seen[-1]) if history.seen else read_location(None, None)


def _location(seen: Seen) -> Location:
    return read_location(seen.observation.location_display, seen.observation.location_url)
