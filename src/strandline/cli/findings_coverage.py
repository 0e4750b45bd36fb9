"""`strandline findings coverage`: how well was looked, and what needs a second look."""

import sys
from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit_rows, to_json
from strandline.cli.results import coverage_of, current_sources
from strandline.cli.state import (
    DEFAULT_STATE,
    DEFAULT_TENANT,
    KeyFileOption,
    StateOption,
    TenantOption,
    open_state,
)
from strandline.detect.locations import shown
from strandline.findings.reports import ReportCoverage, Status
from strandline.findings.reports.values import reason_text

Limit = Annotated[int, typer.Option("--limit", min=0, help="How many incomplete items to list.")]


def coverage(
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show how well the items of the last scans were looked at, and those that were not fully, with the reason."""
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        print_coverage(coverage_of(state, current_sources(state)), limit=limit, as_json=as_json)


def print_coverage(found: ReportCoverage, *, limit: int, as_json: bool) -> None:
    """Print items by status and reason, then those that are incomplete."""
    items = [
        {"status": one.status.value, "reason": one.reason, "path": shown(one.path)} for one in found.incomplete[:limit]
    ]
    counts = [{"status": row.status.value, "reason": row.reason, "items": row.items} for row in found.counts]
    if as_json:
        print(to_json({"items": found.items(), "bytes_seen": found.bytes_seen, "counts": counts, "incomplete": items}))
        return
    if not counts:
        print("nothing was listed", file=sys.stderr)
    emit_rows(({**row, "reason": _words(str(row["reason"]))} for row in counts), as_json=False, title="items")
    emit_rows(
        ({**item, "reason": _words(item["reason"])} for item in items),
        as_json=False,
        title="not, or not fully, looked at",
    )
    left = found.items() - found.items(Status.SCANNED) - len(items)
    if left:
        print(f"and {left:,} more items that were not, or not fully, looked at (--limit shows more)", file=sys.stderr)


def _words(code: str) -> str:
    return f"{reason_text(code)} ({code})" if code else ""
