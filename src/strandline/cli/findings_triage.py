"""`strandline findings triage`: store a decision about findings, chosen by id, secret, rule, path or state."""

import getpass
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from strandline.cli.findings_selection import Selection, selecting
from strandline.cli.output import AsJson, emit
from strandline.errors import InvalidInput
from strandline.findings.filters import StateName
from strandline.findings.finding_ids import ID_SHOWN, find_ids
from strandline.findings.reports.values import state_name
from strandline.findings.triage import Change, decide, decide_everywhere, last_decided, undo
from strandline.pipeline.identity import FindingId
from strandline.pipeline.triage import TriageState
from strandline.scan.state import State, open_state

LINES_MAX = 20

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Ids of findings, or prefixes of them.")]
As = Annotated[
    StateName | None, typer.Option("--as", metavar="STATE", help="open, confirmed, false-positive or revoked.")
]
Secrets = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="ID", help="Findings of the same secret as this finding, wherever they are."),
]
Everywhere = Annotated[
    bool,
    typer.Option("--everywhere", help="Decide about the secrets: for all their findings, those of later scans too."),
]
Undo = Annotated[
    bool, typer.Option("--undo", help="Take the latest decision back: of the chosen findings, or the last call's.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the chosen findings; store nothing.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, stored with the decision.")]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", envvar="STRANDLINE_USER", help="Author; by default the login name."),
]


@selecting
def triage(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    selection: Selection,
    ids: Ids = None,
    decided: As = None,
    secret: Secrets = None,
    everywhere: Everywhere = False,
    take_back: Undo = False,
    dry_run: DryRun = False,
    reason: Reason = "",
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Mark findings as confirmed, false positive, revoked, or open again.

    Findings are named by id, or chosen as in `list`: by rule, path, state, confidence, source, or secret. Every
    decision is kept with its author and reason; the latest one is current. Repeating the current one changes nothing.
    """
    if (decided is None) != take_back:
        raise InvalidInput("give either --as STATE or --undo", hint="--as open marks findings as open again")
    if take_back and (everywhere or reason):
        raise InvalidInput("--undo takes a decision back as it was made", hint="leave out --everywhere and --reason")
    with open_state(selection.where, tenant=selection.tenant, key_file=selection.key_file) as state:
        findings = _chosen(state, selection, ids or [], secret or [], is_undo=take_back)
        who = by or _user()
        if dry_run:
            changes = [Change(finding, TriageState[decided.name if decided else "OPEN"], False) for finding in findings]
        elif decided is None:
            changes = undo(state, findings, who=who)
        elif everywhere:
            changes = decide_everywhere(state, findings, TriageState[decided.name], who=who, why=reason)
        else:
            events = decide(state, findings, TriageState[decided.name], who=who, why=reason)
            new = {event.finding_id for event in events}
            changes = [Change(finding, TriageState[decided.name], finding in new) for finding in findings]
    _print(changes, as_json=as_json, dry_run=dry_run, is_undo=take_back)


def _chosen(
    state: State, selection: Selection, ids: Sequence[str], secrets: Sequence[str], *, is_undo: bool
) -> list[FindingId]:
    """Return the findings of a call: by id, by secret or by the options of `list`."""
    has_filters = any((selection.rule, selection.path, selection.states, selection.confidence, selection.source))
    if bool(ids) + bool(secrets) + has_filters > 1:
        raise InvalidInput(
            "findings are chosen in one way only", hint="give ids, or --secret, or options such as --rule and --path"
        )
    if ids:
        return find_ids(state, ids)
    if secrets:
        return _of_secrets(state, find_ids(state, secrets))
    if has_filters:
        found = [FindingId(bytes.fromhex(one.finding_id)) for one in selection.report().findings]
        if not found:
            raise InvalidInput("no finding matches", hint="`strandline findings list` takes the same options")
        return found
    if is_undo:
        return last_decided(state)
    raise InvalidInput("no findings are chosen", hint="give ids, or --secret, --rule, --path, --is or --confidence")


def _of_secrets(state: State, findings: Sequence[FindingId]) -> list[FindingId]:
    """Return the findings of the secrets of findings, each once."""
    found: dict[FindingId, None] = {}
    for finding in findings:
        history = state.stores.reads.history(state.tenant, finding)
        rows = state.stores.reads.findings_of_secret(state.tenant, history.finding.secret) if history else []
        found.update(dict.fromkeys(row.finding_id for row in rows))
    return list(found)


def _print(changes: Sequence[Change], *, as_json: bool, dry_run: bool, is_undo: bool) -> None:
    if as_json:
        for finding, state, changed in changes:
            emit({"finding_id": finding.hex(), "state": state_name(state), "changed": changed}, as_json=True)
        return
    note = ", not stored" if dry_run else ", unchanged"
    for finding, state, changed in changes[:LINES_MAX]:
        print(f"{finding.hex()[:ID_SHOWN]}: {state_name(state)}" + ("" if changed else note))
    if len(changes) > LINES_MAX:
        print(f"and {len(changes) - LINES_MAX:,} more", file=sys.stderr)
    if len(changes) > 1:
        count = sum(change.changed for change in changes)
        undone = "" if dry_run or is_undo or not count else "; `strandline findings triage --undo` takes this back"
        print(f"{len(changes):,} findings, {count:,} changed{undone}", file=sys.stderr)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        return "unknown"
