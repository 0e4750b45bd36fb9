"""`strandline findings coverage`: items by how completely they were scanned."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from strandline.cli.ignore_options import print_unfinished
from strandline.cli.output import AsJson, emit_rows, to_json
from strandline.cli.state_options import DEFAULT_STATE, DEFAULT_TENANT, KeyFileOption, StateOption, TenantOption
from strandline.detect.locations import shown
from strandline.findings.coverage import coverage_of
from strandline.findings.listed_sources import current_sources, unfinished_scans
from strandline.findings.reports.values import ReportCoverage, Status, UnfinishedFacts, reason_text, utc
from strandline.scan.state import open_state

Limit = Annotated[int, typer.Option("--limit", min=0, help="Incomplete items to list.")]


def coverage(
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Count the items of the last scans by how completely they were scanned, and list the incomplete ones."""
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        open_scans = unfinished_scans(state)
        found = coverage_of(state, current_sources(state), open_scans)
        print_coverage(found, [scan.facts for scan in open_scans], limit=limit, as_json=as_json)


def print_coverage(found: ReportCoverage, unfinished: Sequence[UnfinishedFacts], *, limit: int, as_json: bool) -> None:
    """Print items by status and reason, then the incomplete ones, then the unfinished scans."""
    items = [
        {"status": one.status.value, "reason": one.reason, "path": shown(one.path)} for one in found.incomplete[:limit]
    ]
    counts = [{"status": row.status.value, "reason": row.reason, "items": row.items} for row in found.counts]
    if as_json:
        scans = [{**scan._asdict(), "started": utc(scan.started_ns)} for scan in unfinished]
        counted = {"items": found.items(), "bytes_seen": found.bytes_seen, "counts": counts, "incomplete": items}
        print(to_json({**counted, "unfinished": scans}))
        return
    if not counts and not unfinished:
        print("no items: nothing was scanned", file=sys.stderr)
    emit_rows(({**row, "reason": _words(str(row["reason"]))} for row in counts), as_json=False, title="items")
    emit_rows(
        ({**item, "reason": _words(item["reason"])} for item in items),
        as_json=False,
        title="incomplete items",
    )
    left = found.items() - found.items(Status.SCANNED) - len(items)
    if left:
        # The items that an unfinished scan did not reach are counted, and not listed.
        hint = " (--limit shows more)" if len(found.incomplete) > limit else ""
        print(f"and {left:,} more incomplete items{hint}", file=sys.stderr)
    print_unfinished(unfinished)


def _words(code: str) -> str:
    return f"{reason_text(code)} ({code})" if code else ""
