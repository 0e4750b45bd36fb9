"""`strandline findings show`: one finding in full."""

from dataclasses import replace
from typing import Annotated

import typer

from strandline.cli.output import AsJson, Record, emit, emit_rows, to_json
from strandline.cli.state_options import DEFAULT_STATE, DEFAULT_TENANT, KeyFileOption, StateOption, TenantOption
from strandline.detect.locations import COMMIT_SHOWN, format_display, format_url, shown
from strandline.findings.detail import FindingDetail, find_detail, location_seen
from strandline.findings.diff import POLICY_SHOWN
from strandline.findings.finding_ids import ID_SHOWN, find_ids
from strandline.findings.reports.values import CommitSpan, level_of, plain_verification, state_name, utc
from strandline.pipeline.reads import Seen
from strandline.pipeline.triage import TriageState
from strandline.pipeline.verifications import Verification
from strandline.scan.state import open_state

COMMITS_SHOWN = 20
_COLUMNS = ("place", "confidence", "version", "policy", "first_seen")

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the finding, or a prefix of it.")]


def show(
    finding: Id,
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a finding: its places, other findings of the same secret, and the decisions."""
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        (found,) = find_ids(state, [finding])
        detail = find_detail(state, found)
    print_detail(detail, as_json=as_json)


def print_detail(detail: FindingDetail, *, as_json: bool) -> None:
    """Print a finding in full, as tables or as one JSON object."""
    record = _record(detail)
    places = [_place(detail, seen) for seen in detail.history.seen]
    span = detail.commits
    versions = detail.versions.history(seen.observation.ovid for seen in detail.history.seen)
    others = [
        {"id": other.finding_id.hex()[:ID_SHOWN], "rule": other.rule_id, "place": format_display(other.location)}
        for other in detail.same_secret
    ]
    decisions = [
        {
            "when": utc(one.when_ns),
            "state": state_name(one.state),
            "about": "the secret, everywhere" if one.everywhere else "this finding",
            "who": one.who,
            "why": one.why,
        }
        for one in detail.decisions
    ]
    if as_json:
        record = {**record, "verification": plain_verification(detail.verification)}
        commits = {"commits": {**span.plain(), "history": [one.plain() for one in versions]}} if span else {}
        print(to_json({**record, "places": places, **commits, "same_secret": others, "decisions": decisions}))
        return
    emit({name: value for name, value in record.items() if value}, as_json=False)
    emit_rows(({name: row[name] for name in _COLUMNS} for row in places), as_json=False, title="places")
    emit_rows(map(_commit, versions[-COMMITS_SHOWN:]), as_json=False, title=_commits_title(len(versions)))
    emit_rows(others, as_json=False, title="the same secret elsewhere")
    printable = ({name: shown(value) for name, value in row.items()} for row in decisions)
    emit_rows(printable, as_json=False, title="decisions")


def _record(detail: FindingDetail) -> Record:
    latest, decision = detail.location, detail.decision
    return {
        "finding_id": detail.history.finding.finding_id.hex(),
        "rule": detail.rule.rule_id,
        "what": detail.rule.description,
        "place": format_display(latest),
        "source": latest.source,
        "confidence": f"{latest.confidence} ({level_of(latest.confidence).value})",
        "read_through": " → ".join(latest.via),
        "commit": latest.commit,
        "at_head": "" if detail.commits is None else "yes" if detail.commits.at_head else "no",
        "first_seen": utc(detail.history.committed_ns),
        "state": state_name(TriageState.OPEN if decision is None else decision.state),
        "verification": _verification(detail.verification),
    }


def _verification(answer: Verification | None) -> str:
    """Return the last answer of a provider as a sentence."""
    if answer is None:
        return ""
    return f"{answer.state.value}, {utc(answer.when_ns)}, {answer.host}: {answer.reason}"


def _commits_title(total: int) -> str:
    return f"commits (last {COMMITS_SHOWN} of {total:,} versions)" if total > COMMITS_SHOWN else "commits"


def _commit(span: CommitSpan) -> Record:
    """Return the commits of one version as a row of a table."""
    facts = span.first
    return {
        "commit": facts.commit[:COMMIT_SHOWN],
        "date": facts.date,
        "author": shown(f"{facts.author} <{facts.email}>") if facts.author or facts.email else "",
        "last": "" if span.last.commit == facts.commit else span.last.commit[:COMMIT_SHOWN],
        "at HEAD": "yes" if span.at_head else "",
    }


def _place(detail: FindingDetail, seen: Seen) -> Record:
    at = location_seen(seen)
    commit = at.commit or detail.versions.commit(seen.observation.ovid)
    at = replace(at, commit=commit)
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
