"""`strandline findings`: look at what scans found, decide about it, and take it elsewhere."""

import typer

from strandline.cli.lazy import Lazy, lazy_group

COMMANDS = (
    Lazy("list", "findings_list:list_findings", "List the findings that are in what was last scanned, by place."),
    Lazy(
        "show",
        "findings_show:show",
        "Show a finding: every place it was seen at, other places of the same secret, and what was decided.",
    ),
    Lazy("triage", "findings_triage:triage", "Decide about findings: is it a secret, a false alarm, or revoked?"),
    Lazy(
        "export",
        "findings_export:export",
        "Write the findings of what was last scanned to a file, whole or not at all.",
    ),
    Lazy(
        "coverage",
        "findings_coverage:coverage",
        "Show how well the items of the last scans were looked at, and those that were not fully, with the reason.",
    ),
    Lazy(
        "diff",
        "findings_diff:diff",
        "Show what changed: between two policies, over what both scanned, or between two times, under one policy.",
    ),
)

app = typer.Typer(
    help="What scans found: list, show, triage, export, coverage, diff.",
    no_args_is_help=True,
    cls=lazy_group(*COMMANDS),
)
