"""`strandline findings diff`: findings of two policies, or of two times, compared."""

import sys
from typing import Annotated

import typer

from strandline.cli.findings_list import table_row
from strandline.cli.output import AsJson, emit_rows, to_json
from strandline.cli.state_options import DEFAULT_STATE, DEFAULT_TENANT, KeyFileOption, StateOption, TenantOption
from strandline.findings.diff import Difference, diff_policies, diff_times
from strandline.findings.report_builder import findings_by_id
from strandline.findings.reports.jsonl import plain_finding
from strandline.findings.reports.values import RuleFacts
from strandline.scan.state import State, open_state

Old = Annotated[str | None, typer.Argument(metavar="[OLD]", help="A policy: a prefix of its hash.")]
New = Annotated[str | None, typer.Argument(metavar="[NEW]", help="Another policy; by default the latest.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Findings that became known after this time: ISO 8601, or 7d, 12h."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="And by this time; by default now.")]


def diff(
    old: Old = None,
    new: New = None,
    since: Since = None,
    until: Until = None,
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare the findings of two policies over the same objects, or of one policy at two times.

    Without arguments the two latest policies are compared. Times are UTC unless they have an offset.
    """
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        found = diff_times(state, old, since=since, until=until) if since or until else diff_policies(state, old, new)
        print_difference(state, found, as_json=as_json)


def print_difference(state: State, found: Difference, *, as_json: bool) -> None:
    """Print the findings that are on one side only, a row each."""
    known = findings_by_id(state, [*found.only_old, *found.only_new])
    marked = [("-", one) for one in found.only_old] + [("+", one) for one in found.only_new]
    rows = [(mark, known[one]) for mark, one in marked if one in known]
    if as_json:
        for mark, finding in rows:
            print(to_json({"change": mark, **plain_finding(finding, RuleFacts(finding.rule_id))}))
        return
    emit_rows(({"": mark, **table_row(finding)} for mark, finding in rows), as_json=False)
    counts = f"{len(found.only_new):,} new, {len(found.only_old):,} gone, {found.both:,} in both"
    print(f"{found.between}: {counts}", file=sys.stderr)
