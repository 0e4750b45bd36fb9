"""The options of `list` and `export` that select findings, and the report that they ask for.

A command takes a `Selection` in the place of the options; `selecting` gives the command line the options.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated

import typer

from strandline.cli.ignore_options import Baselines, IgnoreFiles, NoIgnore
from strandline.cli.state_options import DEFAULT_STATE, DEFAULT_TENANT, KeyFileOption, StateOption, TenantOption
from strandline.findings.filters import ShownState, make_filters
from strandline.findings.ignores import load_ignores
from strandline.findings.report_builder import build_report
from strandline.findings.reports.values import Report
from strandline.scan.state import open_state

Rules = Annotated[list[str] | None, typer.Option("--rule", metavar="ID", help="Findings of this rule (* and ? match).")]
Paths = Annotated[
    list[str] | None, typer.Option("--path", metavar="GLOB", help="Findings in matching paths, as in a .gitignore.")
]
States = Annotated[
    list[ShownState] | None,
    typer.Option(
        "--is",
        metavar="STATE",
        help="Findings in this state: open, confirmed, false-positive, revoked; new since the scan before; live.",
    ),
]
Confidence = Annotated[
    str | None,
    typer.Option("--confidence", metavar="LEVEL|N", help="Minimum confidence: low, medium, high, or 0 to 10."),
]
Sources = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="KIND|NAME", help="Findings in file, git, table, journal, or a source by name."),
]
Owners = Annotated[
    list[str] | None,
    typer.Option(
        "--owner", metavar="@TEAM|none", help="Findings that an owner in CODEOWNERS owns; none: without an owner."
    ),
]
All = Annotated[bool, typer.Option("--all", help="All findings ever stored, also those that are gone.")]


@dataclass(frozen=True)
class Selection:
    """The options of a command."""

    where: StateOption = DEFAULT_STATE
    tenant: TenantOption = DEFAULT_TENANT
    key_file: KeyFileOption = None
    rule: Rules = None
    path: Paths = None
    states: States = None
    confidence: Confidence = None
    source: Sources = None
    owner: Owners = None
    everything: All = False
    ignore_file: IgnoreFiles = None
    baseline: Baselines = None
    no_ignore: NoIgnore = False

    def report(self, *, coverage: bool = False) -> Report:
        """Return the selected findings."""
        filters = make_filters(self.rule, self.path, self.states, self.confidence, self.source, self.owner)
        with open_state(self.where, tenant=self.tenant, key_file=self.key_file) as state:
            report = build_report(state, everything=self.everything, coverage=coverage)
            if not self.no_ignore:
                roots = [one.root for one in report.facts.sources]
                ignores = load_ignores(state.key, files=self.ignore_file, baselines=self.baseline, roots=roots)
                report = report.ignoring(ignores)
        return filters.apply(report)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of a selection in the place of its parameter `selection`."""
    options = inspect.signature(Selection).parameters

    @wraps(command)
    def run(**given: object) -> None:
        chosen = Selection(**{name: given.pop(name) for name in options})  # type: ignore[arg-type] # as typer read them
        command(selection=chosen, **given)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        parameters += options.values() if parameter.name == "selection" else [parameter]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
