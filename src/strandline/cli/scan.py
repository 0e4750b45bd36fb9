"""`strandline scan`: find leaked secrets in files, histories, tables and journals, each object version once.

The same command again goes on where the last one stopped, or finds that there is nothing to do.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.ignore_options import Baselines, IgnoreFiles, NoIgnore
from strandline.cli.output import AsJson, to_json
from strandline.cli.scan_progress import ScanProgress
from strandline.cli.scan_results import EXIT_FOUND, ResultOptions, form_of
from strandline.cli.scan_sources import Chosen, journal_to_follow, sources_of
from strandline.cli.scan_summary import failed_items, outcome_record, plan_record, print_outcome, print_plan
from strandline.cli.state_options import (
    DEFAULT_STATE,
    DEFAULT_TENANT,
    CoordinationOption,
    KeyFileOption,
    StateOption,
    TenantOption,
)
from strandline.detect import RuleSet, load_builtin, load_rules
from strandline.errors import InvalidInput, MissingExtra
from strandline.findings.report_builder import scan_report
from strandline.findings.reports.formats import ReportFormat
from strandline.pipeline.key_files import TenantUnknown
from strandline.pipeline.stores import NoPipeline
from strandline.scan import Outcome, ScanRequest, Tell, explain
from strandline.scan import scan as run_scan
from strandline.scan.sources import Source
from strandline.scan.state import State, StateMissing, open_state, state_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_S = 30.0

Paths = Annotated[list[Path] | None, typer.Argument(metavar="[PATH]…", help="Folders and files, or repositories.")]
Rules = Annotated[
    Path | None,
    typer.Option("--rules", metavar="FILE", help="Rules in the TOML of gitleaks, instead of our own set."),
]
Tables = Annotated[list[str] | None, typer.Option("--table", metavar="parquet:PATH", help="Scan a Parquet table.")]
TableKey = Annotated[str | None, typer.Option("--table-key", metavar="COLUMN", help="The column that names a row.")]
Journals = Annotated[list[Path] | None, typer.Option("--journal", metavar="PATH", help="Scan a journal.")]
IsGit = Annotated[bool, typer.Option("--git", help="Scan the whole history of the repositories, each blob once.")]
Staged = Annotated[bool, typer.Option("--staged", help="Scan what is staged in the repositories: for a hook.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="REV|DATE", help="Scan what HEAD has since a revision or a date.")
]
Excludes = Annotated[list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Leave paths out, as git does.")]
ExcludeFrom = Annotated[Path | None, typer.Option("--exclude-from", metavar="FILE", help="Globs, one on a line.")]
SourceName = Annotated[
    str, typer.Option("--source-name", metavar="NAME", help="Name the source, so that it is the same on any machine.")
]
FileBytesMax = Annotated[
    int | None, typer.Option("--max-file-bytes", metavar="N", min=1, help="Larger files are skipped, and said to be.")
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", envvar="STRANDLINE_MASTER", help="A Spark master; here, by default."),
]
WithoutSpark = Annotated[
    bool, typer.Option("--without-spark", help="Work in this process alone: quicker for little, as in a hook.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark, as spark-submit takes it.")
]
Ui = Annotated[bool, typer.Option("--ui", help="Let Spark show its own pages.")]
Form = Annotated[
    ReportFormat | None, typer.Option("--format", help="Write the findings in this format instead of a table.")
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to write them; - is the terminal.")]
Explain = Annotated[bool, typer.Option("--explain", help="Say what would be done, and why; do nothing.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run: the same as without, for those who ask.")]
RetryParked = Annotated[bool, typer.Option("--retry-parked", help="Take up what was put aside after failing again.")]
ExitCode = Annotated[
    bool, typer.Option("--exit-code", help=f"Leave with {EXIT_FOUND} if anything was found; what failed only shows.")
]
Lease = Annotated[
    float, typer.Option("--lease-s", min=1, help="How long a worker that is gone is waited for.", hidden=True)
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Scan the one journal as it grows, until Ctrl-C or SIGTERM.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")]


def scan(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    paths: Paths = None,
    rules: Rules = None,
    table: Tables = None,
    table_key: TableKey = None,
    journal: Journals = None,
    follow_on: Follow = False,
    git: IsGit = False,
    staged: Staged = False,
    since: Since = None,
    exclude: Excludes = None,
    exclude_from: ExcludeFrom = None,
    source_name: SourceName = "",
    max_file_bytes: FileBytesMax = None,
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    coordination: CoordinationOption = None,
    master: Master = None,
    without_spark: WithoutSpark = False,
    conf: Settings = None,
    ui: Ui = False,
    form: Form = None,
    output: Output = "-",
    ignore_file: IgnoreFiles = None,
    baseline: Baselines = None,
    no_ignore: NoIgnore = False,
    explain_only: Explain = False,
    resume: Resume = False,  # noqa: ARG001 - the same command again is how a scan goes on
    retry_parked: RetryParked = False,
    exit_code: ExitCode = False,
    lease_s: Lease = LEASE_S,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find leaked secrets, exactly once for each version of an object and each set of rules.

    Findings are kept in the state folder without a byte of any secret. The same command again goes on where the last
    one stopped, and looks only at what is new or changed.
    """
    rule_set = rules_of(rules)
    chosen = Chosen(
        paths=paths or [],
        tables=table or [],
        journals=journal or [],
        git=git,
        staged=staged,
        since=since,
        excludes=exclude or [],
        exclude_from=exclude_from,
        name=source_name,
        size_max=max_file_bytes,
        table_key=table_key,
        by_path=rule_set.looks_at_paths,
    )
    results = ResultOptions(form_of(form, output), output, ignore_file, baseline, no_ignore, exit_code, quiet, as_json)
    opened = partial(open_state, tenant=tenant, key_file=key_file, coordination=coordination, create=True)
    factory = session_factory(master, conf or [], ui=ui)
    if follow_on and (without_spark or explain_only):
        raise InvalidInput("--follow runs on Spark until it is stopped", hint="leave out --without-spark and --explain")
    run = runner(factory, master, without_spark=without_spark, has_options=bool(master or conf or ui))
    sources = sources_of(chosen, state_folder(where))
    request_of = partial(_request, sources, rule_set, lease_s=lease_s, retry_parked=retry_parked)
    if explain_only:
        with _state_to_look_at(where, opened) as state:
            _explain(request_of(state), quiet=quiet, as_json=as_json)
    elif follow_on:
        from strandline.cli.scan_follow import follow  # noqa: PLC0415 - nobody else needs journals and streams

        source = journal_to_follow(sources)
        with opened(where) as state:
            follow(state, request_of(state), source, factory, results)
    else:
        with opened(where) as state:
            _scan(state, request_of(state), run, results)


def _scan(
    state: State, request: ScanRequest, run: Callable[[ScanRequest, Tell], Outcome], results: ResultOptions
) -> None:
    """Do a scan, and show what came of it."""
    results.check(state.key)
    began = time.monotonic()
    with ScanProgress(quiet=results.quiet) as progress:
        outcome = run(request, progress.tell)
    seconds = time.monotonic() - began
    report = results.chosen(scan_report(state, request.inputs_digest, coverage=results.with_coverage), state.key)
    found = len(report.findings)
    tell = partial(print_outcome, outcome, found, seconds)
    results.show(report, outcome_record(outcome, found, seconds), tell, failed=failed_items(outcome))


def _explain(request: ScanRequest, *, quiet: bool, as_json: bool) -> None:
    """Say what a scan would do."""
    with ScanProgress(quiet=quiet) as progress:
        plan = explain(request, progress.tell)
    print(to_json(plan_record(plan))) if as_json else print_plan(plan)


def _request(
    sources: tuple[Source, ...], rules: RuleSet, state: State, *, lease_s: float, retry_parked: bool
) -> ScanRequest:
    return ScanRequest(
        sources=sources,
        rules=rules,
        tenant=state.tenant,
        key=state.key,
        address=state.address,
        coordination=state.coordination,
        lease_ttl_s=lease_s,
        retry_parked=retry_parked,
    )


@contextmanager
def _state_to_look_at(where: str, opened: Callable[..., AbstractContextManager[State]]) -> Iterator[State]:
    """Yield the state as it is, or an empty one that goes away again where there is none: explaining leaves nothing."""
    with ExitStack() as stack:
        try:
            state = stack.enter_context(opened(where, create=False))
        except (StateMissing, TenantUnknown, NoPipeline):
            empty = stack.enter_context(TemporaryDirectory(prefix="strandline-explain-"))
            state = stack.enter_context(opened(empty, create=True))
        yield state


def runner(
    factory: Callable[[], "SparkSession"], master: str | None, *, without_spark: bool, has_options: bool
) -> Callable[[ScanRequest, Tell], Outcome]:
    """Return what does a scan: on Spark, or in this process."""
    if without_spark and has_options:
        raise InvalidInput("--without-spark goes with no option of Spark", hint="leave out --master, --conf and --ui")
    if without_spark:
        return _locally
    try:
        from strandline.spark.workers import scan_on_spark  # noqa: PLC0415 - an extra, which not every scan needs
    except MissingExtra as error:
        error.hint = f"{error.hint}, or scan in this process: --without-spark"
        raise
    return lambda request, tell: scan_on_spark(request, factory, tell, master=master)


def _locally(request: ScanRequest, tell: Tell) -> Outcome:
    return run_scan(request, tell=tell)


def rules_of(path: Path | None) -> RuleSet:
    """Return the rules of a file, or our own."""
    rules = load_builtin() if path is None else load_rules(path)
    if not rules.rules:
        raise InvalidInput(f"{path}: there is no rule in it", hint="a rule begins with [[rules]], an id and a regex")
    return rules


def session_factory(master: str | None, conf: list[str], *, ui: bool) -> Callable[[], "SparkSession"]:
    """Return what makes a session when one is needed; settings that cannot be read are refused at once."""
    settings: dict[str, str] = {}
    for entry in conf:
        name, mark, value = entry.partition("=")
        if not mark or not name.startswith("spark."):
            raise InvalidInput(f"--conf {name}: not a setting of Spark", hint="write --conf spark.name=value")
        settings[name] = value
    if master is not None and not master.startswith(
        "spark://"
    ):  # whether one of those answers is asked when it is needed
        from strandline.spark.master import check_master  # noqa: PLC0415 - as above

        check_master(master)

    def make() -> "SparkSession":
        from strandline.spark import session  # noqa: PLC0415 - as above

        return session(master=master, ui=ui, settings=settings)

    return make
