"""Differences: the findings of two policies over the objects that both scanned, or of one policy at two times."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from strandline.clock import SystemClock
from strandline.errors import InvalidInput
from strandline.pipeline.identity import FindingId, PolicyHash
from strandline.scan.policies import known_policies
from strandline.scan.state import State

POLICY_SHOWN = 12
_AGO = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Difference(NamedTuple):
    """Findings on one side only, the number on both, and a description of the two sides."""

    between: str
    only_old: list[FindingId]
    only_new: list[FindingId]
    both: int


def diff_policies(state: State, old: str | None = None, new: str | None = None) -> Difference:
    """Compare two policies, named by a prefix of their hash; by default the two latest."""
    policies = policies_of(state)
    latest = policies[0]
    if old is None:
        if len(policies) == 1:
            raise InvalidInput("there is only one policy", hint="change the rules and scan again, or give --since TIME")
        before, after = policies[1], latest
    else:
        before, after = _chosen(policies, old), latest if new is None else _chosen(policies, new)
    found = state.stores.reads.policy_diff(state.tenant, before, after)
    between = f"{before.hex()[:POLICY_SHOWN]} → {after.hex()[:POLICY_SHOWN]}, {found.objects:,} objects scanned by both"
    return Difference(between, found.only_old, found.only_new, found.both)


def diff_times(
    state: State, policy: str | None = None, *, since: str | None = None, until: str | None = None
) -> Difference:
    """Compare the findings known at two times under one policy, by default the latest."""
    policies = policies_of(state)
    chosen = policies[0] if policy is None else _chosen(policies, policy)
    now = SystemClock().now_ns()
    first, last = parse_time(since, now) if since else 0, parse_time(until, now) if until else now
    if first > last:
        raise InvalidInput("--since is later than --until")
    before = set(state.stores.reads.known_at(state.tenant, chosen, max(first, 0)).findings)
    after = set(state.stores.reads.known_at(state.tenant, chosen, max(last, 0)).findings)
    between = f"policy {chosen.hex()[:POLICY_SHOWN]}, {_time_text(first)} → {_time_text(last)}"
    return Difference(between, sorted(before - after), sorted(after - before), len(before & after))


def parse_time(text: str, now_ns: int) -> int:
    """Return a time in nanoseconds since 1970, from ISO 8601 (UTC by default) or an age such as `7d`."""
    ago = _AGO.fullmatch(text)
    if ago:
        return now_ns - int(timedelta(**{_UNITS[ago[2]]: int(ago[1])}).total_seconds()) * 1_000_000_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is not a time", hint="give 2026-05-01, 2026-05-01T12:00:00+02:00, or an age: 30m, 12h, 7d, 2w"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000_000) * 1_000


def policies_of(state: State) -> list[PolicyHash]:
    """Return the policies of a tenant's scans, latest first."""
    latest = known_policies(state.stores, state.tenant)
    others = [counts.policy for counts in state.stores.reads.counts_by_policy(state.tenant)]
    policies = list(dict.fromkeys([*latest, *others]))
    if not policies:
        raise InvalidInput("no scan has run yet", hint="run `strandline scan` first")
    return policies


def _chosen(policies: Sequence[PolicyHash], text: str) -> PolicyHash:
    found = [one for one in policies if one.hex().startswith(text.lower())] if text else []
    if len(found) == 1:
        return found[0]
    known = ", ".join(one.hex()[:POLICY_SHOWN] for one in policies)
    problem = "no policy's hash begins" if not found else f"{len(found)} policies have a hash that begins"
    raise InvalidInput(f"{problem} with {text!r}", hint=f"policies, latest first: {known}")


def _time_text(time_ns: int) -> str:
    return "the beginning" if time_ns <= 0 else datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
