"""Which findings `list` and `export` are about: the options they share, and the report that these ask for.

A command takes a `Selection` in the place of the options; `selecting` puts the options there for the command line.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from strandline.cli.findings_filters import All, Confidence, Paths, Rules, Sources, States, make_filters
from strandline.cli.ignores import Baselines, IgnoreFiles, NoIgnore, load_ignores
from strandline.cli.results import report_of
from strandline.cli.state import DEFAULT_STATE, DEFAULT_TENANT, KeyFileOption, StateOption, TenantOption, open_state
from strandline.findings.reports import Report


@dataclass(frozen=True)
class Selection:
    """The options, as they were given."""

    where: StateOption = DEFAULT_STATE
    tenant: TenantOption = DEFAULT_TENANT
    key_file: KeyFileOption = None
    rule: Rules = None
    path: Paths = None
    states: States = None
    confidence: Confidence = None
    source: Sources = None
    everything: All = False
    ignore_file: IgnoreFiles = None
    baseline: Baselines = None
    no_ignore: NoIgnore = False

    def report(self, *, coverage: bool = False) -> Report:
        """Return the findings that were asked for."""
        filters = make_filters(self.rule, self.path, self.states, self.confidence, self.source)
        with open_state(self.where, tenant=self.tenant, key_file=self.key_file) as state:
            report = report_of(state, everything=self.everything, coverage=coverage)
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
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what typer looks at
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
