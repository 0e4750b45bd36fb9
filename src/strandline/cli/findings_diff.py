"""`strandline findings diff`: what two policies found otherwise, or what became known between two times."""

import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

import typer

from strandline.cli.findings_list import table_row
from strandline.cli.output import AsJson, emit_rows, to_json
from strandline.cli.results import findings_by_id
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
from strandline.errors import InvalidInput
from strandline.findings.reports import RuleFacts
from strandline.findings.reports.jsonl import plain_finding
from strandline.pipeline.identity import FindingId, PolicyHash
from strandline.scan.policies import known_policies

POLICY_SHOWN = 12
_AGO = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

Old = Annotated[str | None, typer.Argument(metavar="[OLD]", help="A policy, or the beginning of its hash.")]
New = Annotated[str | None, typer.Argument(metavar="[NEW]", help="Another policy; by default the latest.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="What became known after this time: ISO 8601, or 7d, 12h.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="And by this time; by default now.")]


class Difference(NamedTuple):
    """Findings that are only on one side, how many are on both, and between what."""

    between: str
    only_old: list[FindingId]
    only_new: list[FindingId]
    both: int


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
    """Show what changed: between two policies, over what both scanned, or between two times, under one policy.

    Without arguments the two latest policies are compared. Times are UTC unless they say otherwise.
    """
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        found = _of_times(state, old, since, until) if since or until else _of_policies(state, old, new)
        print_difference(state, found, as_json=as_json)


def print_difference(state: State, found: Difference, *, as_json: bool) -> None:
    """Print what is only on one side, a row each."""
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


def parse_time(text: str, now_ns: int) -> int:
    """Return a time in nanoseconds since 1970: ISO 8601, in UTC unless it says otherwise, or so long ago."""
    ago = _AGO.fullmatch(text)
    if ago:
        return now_ns - int(timedelta(**{_UNITS[ago[2]]: int(ago[1])}).total_seconds()) * 1_000_000_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is no time", hint="give 2026-05-01, 2026-05-01T12:00:00+02:00, or how long ago: 30m, 12h, 7d, 2w"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000_000) * 1_000


def _of_policies(state: State, old: str | None, new: str | None) -> Difference:
    policies = _policies(state)
    latest = policies[0]
    if old is None:
        if len(policies) == 1:
            raise InvalidInput("there is one policy only", hint="change the rules and scan again, or give --since TIME")
        before, after = policies[1], latest
    else:
        before, after = _chosen(policies, old), latest if new is None else _chosen(policies, new)
    found = state.stores.reads.policy_diff(state.tenant, before, after)
    between = f"{before.hex()[:POLICY_SHOWN]} → {after.hex()[:POLICY_SHOWN]}, {found.objects:,} objects scanned by both"
    return Difference(between, found.only_old, found.only_new, found.both)


def _of_times(state: State, policy: str | None, since: str | None, until: str | None) -> Difference:
    policies = _policies(state)
    chosen = policies[0] if policy is None else _chosen(policies, policy)
    now = SystemClock().now_ns()
    first, last = parse_time(since, now) if since else 0, parse_time(until, now) if until else now
    if first > last:
        raise InvalidInput("--since is later than --until")
    before = set(state.stores.reads.known_at(state.tenant, chosen, max(first, 0)).findings)
    after = set(state.stores.reads.known_at(state.tenant, chosen, max(last, 0)).findings)
    between = f"policy {chosen.hex()[:POLICY_SHOWN]}, {_shown(first)} → {_shown(last)}"
    return Difference(between, sorted(before - after), sorted(after - before), len(before & after))


def _policies(state: State) -> list[PolicyHash]:
    """Return the policies that a command may name, the latest first."""
    latest = known_policies(state.stores, state.tenant)
    others = [counts.policy for counts in state.stores.reads.counts_by_policy(state.tenant)]
    policies = list(dict.fromkeys([*latest, *others]))
    if not policies:
        raise InvalidInput("nothing was scanned yet", hint="run `strandline scan` first")
    return policies


def _chosen(policies: Iterable[PolicyHash], text: str) -> PolicyHash:
    every = list(policies)
    found = [one for one in every if one.hex().startswith(text.lower())] if text else []
    if len(found) == 1:
        return found[0]
    known = ", ".join(one.hex()[:POLICY_SHOWN] for one in every)
    problem = "no policy's hash begins" if not found else f"{len(found)} policies have a hash that begins"
    raise InvalidInput(f"{problem} with {text!r}", hint=f"the latest first: {known}")


def _shown(time_ns: int) -> str:
    return "the beginning" if time_ns <= 0 else datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
