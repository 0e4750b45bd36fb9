"""`strandline findings triage`: keep what somebody decided about findings."""

import getpass
from collections.abc import Sequence
from typing import Annotated

import typer

from strandline.cli.findings_filters import StateName
from strandline.cli.findings_ids import ID_SHOWN, find_ids
from strandline.cli.output import AsJson, emit
from strandline.cli.state import (
    DEFAULT_STATE,
    DEFAULT_TENANT,
    KeyFileOption,
    State,
    StateOption,
    TenantOption,
    open_state,
)
from strandline.clock import SystemClock
from strandline.pipeline.identity import FindingId
from strandline.pipeline.triage import TriageEvent, TriageState

Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of findings, or the beginnings of them.")]
As = Annotated[StateName, typer.Option("--as", metavar="STATE", help="open, confirmed, false-positive or revoked.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept with the decision.")]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", envvar="STRANDLINE_USER", help="Who decides; by default who you are here."),
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
    """Decide about findings: is it a secret, a false alarm, or revoked?

    A decision is kept for ever with who made it and why; the latest one holds. Where it holds already, nothing changes.
    """
    state_of = TriageState[decided.name]
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        findings = find_ids(state, ids)
        new = _undecided(state, findings, state_of, by or _user(), reason)
        if new:
            state.stores.triage.record_triage(new)
    changed = {event.finding_id for event in new}
    for finding in findings:
        record = {"finding_id": finding.hex(), "state": decided.value, "changed": finding in changed}
        if as_json:
            emit(record, as_json=True)
        else:
            print(f"{finding.hex()[:ID_SHOWN]}: {decided.value}" + ("" if finding in changed else ", as before"))


def _undecided(
    state: State, findings: Sequence[FindingId], decided: TriageState, who: str, why: str
) -> list[TriageEvent]:
    """Return the decisions that are not already those that hold."""
    holding = state.stores.triage.triage_of(state.tenant, findings)
    # Later than what holds, whatever the clock says: the latest decision is the one that holds.
    when = max([SystemClock().now_ns(), *(event.when_ns + 1 for event in holding if event is not None)])
    return [
        TriageEvent(state.tenant, finding, decided, when, who, why)
        for finding, event in zip(findings, holding, strict=True)
        if event is None or (event.state, event.who, event.why) != (decided, who, why)
    ]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        return "somebody"
