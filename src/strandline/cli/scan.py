"""`strandline scan`: scan files, git histories, tables and journals for leaked secrets, each object version once."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.command_log import LogFormat, LogFormatOption, command_log
from strandline.cli.findings_selection import Confidence, States
from strandline.cli.findings_selection import Rules as OnlyRules
from strandline.cli.ignore_options import Baselines, IgnoreFiles, NoIgnore
from strandline.cli.metrics_options import MetricsHost, MetricsPort, Monitoring
from strandline.cli.output import AsJson, to_json
from strandline.cli.scan_addresses import reads_stdin
from strandline.cli.scan_progress import ScanProgress
from strandline.cli.scan_results import EXIT_FOUND, ResultOptions, form_of
from strandline.cli.scan_sources import (
    Chosen,
    check_repositories,
    journal_to_follow,
    repository_source,
    sources_of,
)
from strandline.cli.scan_summary import Counts, failed_items, outcome_record, plan_record, print_outcome, print_plan
from strandline.cli.scan_workers import WorkerOptions, session_factory
from strandline.cli.serve_config import config_path_of, has_alarms
from strandline.cli.state_options import (
    DEFAULT_STATE,
    DEFAULT_TENANT,
    CoordinationOption,
    KeyFileOption,
    StateOption,
    TenantOption,
)
from strandline.cli.verify_options import Verify, VerifyHosts
from strandline.config.file import find_file
from strandline.detect import Limits, RuleSet, load_builtin, load_rules
from strandline.errors import InvalidInput
from strandline.extras import require
from strandline.findings.filters import make_filters
from strandline.findings.report_builder import scan_report
from strandline.findings.reports.formats import ReportFormat
from strandline.findings.reports.values import Report
from strandline.metrics.metric import HOST, MetricSource
from strandline.pipeline.key_files import TenantUnknown
from strandline.pipeline.stores import NoPipeline
from strandline.scan import Outcome, ScanRequest, explain, explain_parts
from strandline.scan import scan as run_scan
from strandline.scan.retries import retried
from strandline.scan.sources import Source
from strandline.scan.state import State, StateMissing, folder_of_state, open_state
from strandline.scan.workers import FEW_ITEMS

if TYPE_CHECKING:
    from strandline.alarms import AlarmWatch
    from strandline.cli.scan_alarms import ScanAlarms
    from strandline.verify import Addresses, Verified

LEASE_S = 30.0
GITLEAKS_FILE = ".gitleaks.toml"
BUILTIN = "builtin"

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH]…",
        help="Folders and files, repositories, or addresses: s3://bucket, docker://image:tag, - (standard input).",
    ),
]
StdinName = Annotated[
    str, typer.Option("--stdin-name", metavar="PATH", help="Path of the standard input, for rules and reports.")
]
PlatformOption = Annotated[
    str | None, typer.Option("--platform", metavar="OS/ARCH", help="Platform of a container image; this machine's.")
]
InventoryOption = Annotated[
    str | None,
    typer.Option(
        "--inventory",
        metavar="ADDRESS",
        help="S3 Inventory (manifest.json), or a table, that lists the bucket's objects.",
    ),
]
InventoryColumns = Annotated[
    str | None,
    typer.Option(
        "--inventory-columns",
        metavar="key=…,version=…,size=…",
        help="Columns of a table (Parquet, CSV, Delta) with key, ETag and size of each object.",
    ),
]
Repos = Annotated[
    str | None,
    typer.Option(
        "--repos",
        metavar="FILE",
        help="File of repositories, an address or a path and optionally a name a line; - is standard input.",
    ),
]
Rules = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE|builtin",
        help="Rules file in the TOML of gitleaks; by default the nearest .gitleaks.toml, else the built-in rules.",
    ),
]
Tables = Annotated[list[str] | None, typer.Option("--table", metavar="parquet:PATH", help="Scan a Parquet table.")]
TableKey = Annotated[str | None, typer.Option("--table-key", metavar="COLUMN", help="Column that identifies a row.")]
Journals = Annotated[list[Path] | None, typer.Option("--journal", metavar="PATH", help="Scan a journal.")]
IsGit = Annotated[bool, typer.Option("--git", help="Scan the whole history of git repositories.")]
Staged = Annotated[bool, typer.Option("--staged", help="Scan lines that the index adds: for a hook.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="REV|DATE", help="Scan lines that commits of HEAD add since a revision or a date."),
]
Depth = Annotated[
    int | None,
    typer.Option("--depth", metavar="N", min=1, help="Fetch N commits of each branch of remote repositories."),
]
Excludes = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Exclude paths, as .gitignore does.")
]
ExcludeFrom = Annotated[Path | None, typer.Option("--exclude-from", metavar="FILE", help="File of globs, one a line.")]
SourceName = Annotated[
    str, typer.Option("--source-name", metavar="NAME", help="Name of the source, the same on every machine.")
]
FileBytesMax = Annotated[
    int | None, typer.Option("--max-file-bytes", metavar="N", min=1, help="Skip larger files, and count them.")
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", envvar="STRANDLINE_MASTER", help="Spark master; by default local[*]."),
]
WithSpark = Annotated[
    bool, typer.Option("--with-spark", help=f"Scan on Spark also if fewer than {FEW_ITEMS:,} items are to be scanned.")
]
WithoutSpark = Annotated[
    bool, typer.Option("--without-spark", help="Scan on this machine, without Spark, however many items there are.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting, as for spark-submit.")
]
Ui = Annotated[bool, typer.Option("--ui", help="Start the Spark web UI.")]
Form = Annotated[ReportFormat | None, typer.Option("--format", help="Format of the findings; by default a table.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.")]
Explain = Annotated[bool, typer.Option("--explain", help="Print the plan of the scan and its reasons; scan nothing.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an interrupted scan; this is the default.")]
RetryParked = Annotated[bool, typer.Option("--retry-parked", help="Retry parked shards.")]
ExitCode = Annotated[
    int | None,
    typer.Option(
        "--exit-code",
        metavar="N",
        min=0,
        max=255,
        help=f"Exit with N if findings are open, whatever else failed; {EXIT_FOUND} by default.",
    ),
]
AllowComments = Annotated[
    bool,
    typer.Option(
        "--allow-comments/--no-allow-comments", help="Leave out findings that a comment such as gitleaks:allow allows."
    ),
]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 also if findings are open.")]
Lease = Annotated[float, typer.Option("--lease-s", min=1, help="Lease duration of a shard, in seconds.", hidden=True)]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Scan one journal as it grows, until Ctrl-C or SIGTERM.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no summary.")]


def scan(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    ctx: typer.Context,
    paths: Paths = None,
    repos: Repos = None,
    rules: Rules = None,
    table: Tables = None,
    table_key: TableKey = None,
    journal: Journals = None,
    follow_on: Follow = False,
    git: IsGit = False,
    staged: Staged = False,
    since: Since = None,
    depth: Depth = None,
    exclude: Excludes = None,
    exclude_from: ExcludeFrom = None,
    source_name: SourceName = "",
    max_file_bytes: FileBytesMax = None,
    stdin_name: StdinName = "stdin",
    inventory: InventoryOption = None,
    inventory_columns: InventoryColumns = None,
    platform: PlatformOption = None,
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    coordination: CoordinationOption = None,
    master: Master = None,
    with_spark: WithSpark = False,
    without_spark: WithoutSpark = False,
    conf: Settings = None,
    ui: Ui = False,
    form: Form = None,
    output: Output = "-",
    ignore_file: IgnoreFiles = None,
    baseline: Baselines = None,
    no_ignore: NoIgnore = False,
    allow_comments: AllowComments = True,
    explain_only: Explain = False,
    resume: Resume = False,  # noqa: ARG001 - the same command again is how a scan goes on
    retry_parked: RetryParked = False,
    exit_code: ExitCode = None,
    exit_zero: ExitZero = False,
    rule: OnlyRules = None,
    confidence: Confidence = None,
    states: States = None,
    verify: Verify = False,
    verify_host: VerifyHosts = None,
    lease_s: Lease = LEASE_S,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HOST,
    log_format: LogFormatOption = LogFormat.TEXT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Scan files, git histories, tables and journals for leaked secrets.

    Each object version is scanned once for each set of rules. Findings are stored in the state folder, without a byte
    of a secret. Running the same command again resumes an interrupted scan, and scans only new and changed items.
    The exit code is 1 if findings are open: found, and not settled by triage, a baseline or an ignore file.
    """
    with command_log("scan", log_format) as log:
        monitoring = Monitoring(log, metrics_port, metrics_host, lambda: _alarms(ctx))
        require("scan", "hyperscan")
        rule_set = rules_of(rules_file(rules, quiet=quiet))
        chosen = Chosen(
            paths=paths or [],
            tables=table or [],
            journals=journal or [],
            git=git,
            staged=staged,
            since=since,
            depth=depth,
            excludes=exclude or [],
            exclude_from=exclude_from,
            name=source_name,
            size_max=max_file_bytes,
            table_key=table_key,
            stdin_name=stdin_name,
            inventory=inventory,
            inventory_columns=inventory_columns,
            platform=platform,
        )
        filters = make_filters(rule, None, states, confidence)
        filters.check_rules(rule_set.by_id)
        if follow_on and exit_code is None:  # the end of it is a signal, not a verdict
            exit_code = 0
        addresses = _addresses(verify_host or (), staged=staged, follow_on=follow_on) if verify else None
        results = ResultOptions(
            form_of(form, output),
            output,
            ignore_file,
            baseline,
            no_ignore,
            0 if exit_zero else EXIT_FOUND if exit_code is None else exit_code,
            quiet,
            as_json,
            filters,
        )
        opened = partial(open_state, tenant=tenant, key_file=key_file, coordination=coordination, create=True)
        factory = session_factory(master, conf or [], ui=ui)
        if follow_on and (without_spark or explain_only):
            raise InvalidInput("--follow needs Spark", hint="leave out --without-spark and --explain")
        is_quick = reads_stdin(chosen.paths) or staged or since is not None
        without_spark = without_spark or (is_quick and not (with_spark or master or conf or ui))
        run_on = WorkerOptions(factory, master, with_spark, without_spark, has_options=bool(master or conf or ui))
        limits = Limits(allow_comments=allow_comments)
        if repos is not None:
            if follow_on or explain_only:
                raise InvalidInput("--repos excludes --follow and --explain", hint="explain one repository")
            if verify:
                hint = "ask after the scan, with `strandline findings verify`"
                raise InvalidInput("--repos excludes --verify", hint=hint)
            request_for = partial(_request, rules=rule_set, limits=limits, lease_s=lease_s, retry_parked=retry_parked)
            _scan_repositories(repos, chosen, where, opened, request_for, run_on, results, monitoring)
            return
        sources = sources_of(chosen, folder_of_state(where))
        request_of = partial(_request, sources, rule_set, limits=limits, lease_s=lease_s, retry_parked=retry_parked)
        if explain_only:
            with _state_to_look_at(where, opened) as state:
                _explain(request_of(state), run_on, quiet=quiet, as_json=as_json)
        elif follow_on:
            from strandline.cli.scan_follow import follow  # noqa: PLC0415 - only this needs journals and streams

            source = journal_to_follow(sources)
            with opened(where) as state:
                told_of = partial(_told_of, monitoring.alarms())
                follow(state, request_of(state), source, factory, results, monitoring, told_of)
        else:
            with opened(where) as state:
                _scan(state, request_of(state), run_on, results, monitoring, addresses)


def _addresses(given: Sequence[str], *, staged: bool, follow_on: bool) -> "Addresses | None":
    """Return the addresses of providers to ask; None, with a word, where verification is ignored."""
    if staged or follow_on:
        what = "--staged, which is for hooks" if staged else "--follow"
        print(f"note: --verify is ignored with {what}; `strandline findings verify` asks later", file=sys.stderr)
        return None
    from strandline.verify import parse_addresses  # noqa: PLC0415 - few scans

    return parse_addresses(given)


def _scan(
    state: State,
    request: ScanRequest,
    run_on: WorkerOptions,
    results: ResultOptions,
    monitoring: Monitoring,
    addresses: "Addresses | None" = None,
) -> None:
    """Run a scan, ask providers if that is wanted, and print the results."""
    results.check(state.key)
    began = time.monotonic()
    try:
        with (
            ScanProgress(quiet=results.quiet, log=monitoring.log) as progress,
            _told_of(monitoring.alarms(), str(state.address)) as told,
            monitoring.serve(progress.counts.metrics, *told.metric_sources, health=progress.counts.health()),
        ):
            outcome = run_scan(request, run_on.workers(progress.tell), progress.tell)
            verified = None if addresses is None else _verify(state, request, results, addresses)
            told.ended(outcome, lambda: results.chosen(scan_report(state, request.inputs_digest), state.key))
    except KeyboardInterrupt:
        results.show_interrupted(results.chosen(scan_report(state, request.inputs_digest), state.key))
    seconds = time.monotonic() - began
    read = partial(scan_report, state, request.inputs_digest, coverage=results.with_coverage)
    report = results.chosen(retried(read), state.key)
    counts = Counts(len(report.findings), len(results.failing(report)))
    summary = outcome_record(outcome, counts, seconds)
    if verified is not None:
        from strandline.cli.verification import print_verified, verified_record  # noqa: PLC0415 - few scans

        summary = {**summary, "verification": verified_record(verified)}

    def tell() -> None:
        print_outcome(outcome, counts, seconds)
        if verified is not None:
            print_verified(verified)

    results.show(report, summary, tell, failed=failed_items(outcome))


def _verify(state: State, request: ScanRequest, results: ResultOptions, addresses: "Addresses") -> "Verified":
    """Ask the providers of the selected findings."""
    from strandline.cli.verification import verify_scan  # noqa: PLC0415 - few scans

    selected = replace(results, filters=replace(results.filters, is_live=False))  # which are live is yet to be asked
    report = selected.chosen(scan_report(state, request.inputs_digest), state.key)
    return verify_scan(state, request, report.findings, addresses)


def _scan_repositories(
    repos: str,
    chosen: Chosen,
    where: str,
    opened: Callable[..., AbstractContextManager[State]],
    request_for: Callable[..., ScanRequest],
    run_on: WorkerOptions,
    results: ResultOptions,
    monitoring: Monitoring,
) -> None:
    """Scan the repositories of a list."""
    from strandline.cli.repository_list import read_list  # noqa: PLC0415 - few scans
    from strandline.cli.scan_repos import RepositoriesScan  # noqa: PLC0415 - few scans

    check_repositories(chosen)
    listed = read_list(repos)
    with opened(where) as state:
        RepositoriesScan(
            state=state,
            repositories=listed,
            source_of=lambda one: repository_source(chosen, one.address, one.name, folder_of_state(where)),
            request_of=lambda state, source: request_for((source,), state=state),
            run_on=run_on,
            results=results,
        ).run(monitoring, lambda: _told_of(monitoring.alarms(), str(state.address)))


def _alarms(ctx: typer.Context) -> "AlarmWatch | None":
    """Return the alarms of a scan; None where no receiver is configured, which most scans have not."""
    options = ctx.find_root().params
    if not has_alarms(config_path_of(use_file=not options.get("no_config"), given=options.get("config"))):
        return None
    from strandline.cli.alarm_options import alarms_of  # noqa: PLC0415 - few scans

    return alarms_of(ctx)


@contextmanager
def _told_of(alarms: "AlarmWatch | None", subject: str) -> "Iterator[ScanAlarms | NoAlarms]":
    """Raise alarms of the scan that the block runs."""
    if alarms is None:
        yield NoAlarms()
        return
    from strandline.cli.scan_alarms import scan_alarms  # noqa: PLC0415 - few scans

    with alarms, scan_alarms(alarms, subject) as told:
        yield told


class NoAlarms:
    """What a scan tells where no receiver is configured."""

    metric_sources: tuple[MetricSource, ...] = ()

    def ended(self, outcome: Outcome, make_report: Callable[[], Report], problem: str | None = None) -> None:
        """Tell nothing."""

    def stopped(self, problem: str | None) -> None:
        """Tell nothing."""


def _explain(request: ScanRequest, run_on: WorkerOptions, *, quiet: bool, as_json: bool) -> None:
    """Print the plan of a scan."""
    with ScanProgress(quiet=quiet) as progress:
        plan = explain(request, progress.tell)
    workers, planner = run_on.explained(plan.todo_items), run_on.planner_explained(plan.items)
    parts = explain_parts(request) if run_on.plans_in_tasks(plan.items) else []
    print(to_json(plan_record(plan, workers, planner, parts))) if as_json else print_plan(plan, workers, planner, parts)


def _request(
    sources: tuple[Source, ...], rules: RuleSet, state: State, *, limits: Limits, lease_s: float, retry_parked: bool
) -> ScanRequest:
    return ScanRequest(
        sources=sources,
        rules=rules,
        tenant=state.tenant,
        key=state.key,
        address=state.address,
        limits=limits,
        coordination=state.coordination,
        lease_ttl_s=lease_s,
        retry_parked=retry_parked,
    )


@contextmanager
def _state_to_look_at(where: str, opened: Callable[..., AbstractContextManager[State]]) -> Iterator[State]:
    """Yield the state, or a temporary empty one: `--explain` creates nothing."""
    with ExitStack() as stack:
        try:
            state = stack.enter_context(opened(where, create=False))
        except (StateMissing, TenantUnknown, NoPipeline):
            empty = stack.enter_context(TemporaryDirectory(prefix="strandline-explain-"))
            state = stack.enter_context(opened(empty, create=True))
        yield state


def rules_file(given: Path | None, *, quiet: bool = False) -> Path | None:
    """Return the file of rules: the given one, or the nearest `.gitleaks.toml`; None for the built-in rules."""
    if given is not None:
        return None if str(given) == BUILTIN else given
    found = find_file(name=GITLEAKS_FILE)
    if found is not None and not quiet:
        print(f"rules: {found} (--rules {BUILTIN} takes the built-in ones)", file=sys.stderr)
    return found


def rules_of(path: Path | None) -> RuleSet:
    """Return the rules of a file, or the built-in ones."""
    rules = load_builtin() if path is None else load_rules(path)
    if not rules.rules:
        raise InvalidInput(f"{path}: the file has no rules", hint="a rule begins with [[rules]], an id and a regex")
    return rules
