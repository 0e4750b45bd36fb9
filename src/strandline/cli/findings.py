"""`strandline findings`: list, show, triage, verify, export, coverage, owners and diff of the stored findings."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand("list", "findings_list:list_findings", "List the findings of the last scans, by place."),
    LazyCommand(
        "show",
        "findings_show:show",
        "Show a finding: its places, other findings of the same secret, and the decisions.",
    ),
    LazyCommand(
        "triage", "findings_triage:triage", "Mark findings as confirmed, false positive, revoked, or open again."
    ),
    LazyCommand(
        "verify",
        "findings_verify:verify",
        "Ask the providers of findings whether their secrets are live: one read-only request each.",
    ),
    LazyCommand(
        "export", "findings_export:export", "Write the findings of the last scans to a file, whole or not at all."
    ),
    LazyCommand(
        "coverage",
        "findings_coverage:coverage",
        "Count the items of the last scans by how completely they were scanned, and list the incomplete ones.",
    ),
    LazyCommand(
        "owners", "findings_owners:owners", "Count the findings of the last scans by their owners in CODEOWNERS."
    ),
    LazyCommand(
        "diff",
        "findings_diff:diff",
        "Compare the findings of two policies over the same objects, or of one policy at two times.",
    ),
)

app = typer.Typer(
    help="Findings of scans: list, show, triage, verify, export, coverage, owners, diff.",
    no_args_is_help=True,
    cls=lazy_group(*COMMANDS),
)
