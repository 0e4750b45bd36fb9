"""`strandline findings triage`: store a decision about findings."""

import getpass
from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit
from strandline.cli.state_options import DEFAULT_STATE, DEFAULT_TENANT, KeyFileOption, StateOption, TenantOption
from strandline.findings.filters import StateName
from strandline.findings.finding_ids import ID_SHOWN, find_ids
from strandline.findings.triage import decide
from strandline.pipeline.triage import TriageState
from strandline.scan.state import open_state

Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of findings, or prefixes of them.")]
As = Annotated[StateName, typer.Option("--as", metavar="STATE", help="open, confirmed, false-positive or revoked.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, stored with the decision.")]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", envvar="STRANDLINE_USER", help="Author; by default the login name."),
]


def triage(
    ids: Ids,
    decided: As,
    reason: Reason = "",
    by: By = None,
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    as_json: AsJson = False,
) -> None:
    """Mark findings as confirmed, false positive, revoked, or open again.

    Every decision is kept with its author and reason; the latest one is current. Repeating the current one changes
    nothing.
    """
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        findings = find_ids(state, ids)
        events = decide(state, findings, TriageState[decided.name], who=by or _user(), why=reason)
    changed = {event.finding_id for event in events}
    for finding in findings:
        record = {"finding_id": finding.hex(), "state": decided.value, "changed": finding in changed}
        if as_json:
            emit(record, as_json=True)
        else:
            print(f"{finding.hex()[:ID_SHOWN]}: {decided.value}" + ("" if finding in changed else ", unchanged"))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        return "unknown"
