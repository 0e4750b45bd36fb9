"""Reports from the stores: the findings in the items that the last scans listed, or all findings ever stored.

Invariants: nothing is written; a stored finding outside the listed items is only in a report of everything.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from strandline.detect.locations import Location
from strandline.findings.commit_spans import Versions, judged, versions_of
from strandline.findings.coverage import coverage_of
from strandline.findings.decisions import Decisions
from strandline.findings.listed_sources import (
    ListedSource,
    OpenScan,
    current_sources,
    location_of,
    unfinished_scans,
)
from strandline.findings.reports.values import (
    ARCHIVES,
    Report,
    ReportCoverage,
    ReportFacts,
    ReportFinding,
    RuleFacts,
    in_order,
)
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import FindingId, OvidHash, PolicyHash, RuleFingerprint, SecretHash, StableItemId
from strandline.pipeline.reads import Observed
from strandline.pipeline.verifications import Verification, read_verifications
from strandline.scan.codeowners import CodeOwners
from strandline.scan.inventory import Inventory, find_inventory
from strandline.scan.owner_rules import load_owner_rules
from strandline.scan.state import State
from strandline.scan.unfinished import UnfinishedScan, find_unfinished
from strandline.version import __version__

_Order: TypeAlias = tuple[bool, int, str, int, int, str, str, str]


class SeenAt(NamedTuple):
    """An observation and the number of its source."""

    row: Observed
    source: int


class Context(NamedTuple):
    """What observations are judged by: names of rules, sources, decisions, commits, answers of providers, owners."""

    names: Mapping[RuleFingerprint, str]
    listed: Sequence[ListedSource]
    decisions: Decisions
    versions: Versions
    verified: Mapping[SecretHash, Verification]
    owners: Sequence[CodeOwners] = ()

    def is_new(self, source: int, first_ns: int) -> bool:
        """Return whether a finding became known after the scan before the last one of its source."""
        return bool(self.listed) and first_ns > self.listed[source].previous_ns

    def owners_of(self, source: int, at: Location) -> tuple[str, ...]:
        """Return the owners of a place in a source."""
        return self.owners[source].of(_owned_path(at)) if self.owners else ()


def build_report(
    state: State,
    *,
    inventories: Sequence[Inventory] | None = None,
    unfinished: Sequence[UnfinishedScan] | None = None,
    everything: bool = False,
    coverage: bool = False,
) -> Report:
    """Return a report of the last scans, or of some inventories; `everything` adds findings that are gone.

    It names the unfinished scans, or those given, and has their findings so far.

    `coverage` also asks the ledger about each listed item.
    """
    open_scans = unfinished_scans(state, unfinished)  # before inventories: a scan writes its own, then deletes its mark
    listed = current_sources(state, inventories)
    seen = list(_everything(state, listed) if everything else current_of(state, listed, open_scans))
    context = context_of(state, listed, open_scans, (one.row.observation.ovid for one in seen))
    findings = in_order(findings_of(seen, context))
    facts = facts_of(state, context.listed, open_scans)
    rules = RuleBook({finding.rule_id for finding in findings})
    covered = coverage_of(state, listed, open_scans) if coverage else ReportCoverage()
    return Report(findings, rules, covered, facts)


def context_of(
    state: State,
    listed: Sequence[ListedSource],
    open_scans: Sequence[OpenScan],
    ovids: Iterable[bytes],
    policies: Iterable[PolicyHash] | None = None,
) -> Context:
    """Return what observations of some object versions are judged by; the sources of unfinished scans come last.

    `policies` are those that have findings, which the stores are asked for if they are not known.
    """
    versions = versions_of(state, listed, ovids)
    listed = [*listed, *(source for scan in open_scans for source in scan.sources)]
    return Context(
        rule_names(state, policies),
        listed,
        Decisions(state),
        versions,
        read_verifications(state.stores.state, state.tenant),
        owners_of(state, listed),
    )


def facts_of(state: State, listed: Sequence[ListedSource], open_scans: Sequence[OpenScan]) -> ReportFacts:
    """Return the scans of a report, and their times."""
    policies = list(dict.fromkeys(one.policy for one in listed))
    return ReportFacts(
        tenant=state.name,
        policy=", ".join(policy.hex() for policy in policies),
        sources=[one.source for one in listed],
        finished_ns=max((one.finished_ns for one in listed), default=0),
        version=__version__,
        unfinished=[scan.facts for scan in open_scans],
    )


def scan_report(state: State, inputs_digest: bytes, *, coverage: bool = False) -> Report:
    """Return a report of the last scan of one set of sources (`ScanRequest.inputs_digest`)."""
    mark = find_unfinished(state.stores.state, state.tenant, inputs_digest)
    inventory = find_inventory(state.stores.state, state.tenant, inputs_digest)
    return build_report(
        state,
        inventories=[inventory] if inventory else [],
        unfinished=[mark] if mark else [],
        coverage=coverage,
    )


class RuleBook(Mapping[str, RuleFacts]):
    """Rules by id, loaded at first use: a table of findings needs none of them."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    @cached_property
    def _facts(self) -> dict[str, RuleFacts]:
        return rule_facts(self._names)

    def __getitem__(self, name: str) -> RuleFacts:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def rule_facts(names: Iterable[str]) -> dict[str, RuleFacts]:
    """Return descriptions and tags of built-in rules; other rules have their id alone."""
    from strandline.detect.rules.gitleaks import load_builtin  # noqa: PLC0415 - a table of findings needs no rules

    known = load_builtin().by_id
    facts = {}
    for name in names:
        rule = known.get(name)
        facts[name] = RuleFacts(name) if rule is None else RuleFacts(name, rule.description, rule.tags)
    return facts


def findings_of(seen: Iterable[SeenAt], context: Context) -> Iterator[ReportFinding]:
    """Yield each finding once, with all its places."""
    grouped: dict[FindingId, list[SeenAt]] = {}
    for one in seen:
        grouped.setdefault(one.row.finding.finding_id, []).append(one)
    for group in grouped.values():
        group.sort(key=lambda one: one.source)  # in whatever pages they came: the latest scan counts
        first = group[0]
        finding = first.row.finding
        first_ns = min(one.row.first_ns for one in group)
        places = _places([one.row for one in group], context.versions)
        yield ReportFinding(
            finding_id=finding.finding_id.hex(),
            rule_id=rule_name(context.names, finding.rule),
            secret=finding.secret,
            locations=places,
            first_seen_ns=first_ns,
            decision=context.decisions.current(finding.secret, first.row.decision),
            source=first.source,
            is_new=context.is_new(first.source, first_ns),
            commits=context.versions.span(one.row.observation.ovid for one in group),
            owners=context.owners_of(first.source, places[0]),
            verification=context.verified.get(finding.secret),
        )


def rule_name(names: Mapping[RuleFingerprint, str], rule: RuleFingerprint) -> str:
    """Return the id of a rule, or a part of its fingerprint if no policy names it."""
    return names.get(rule) or f"rule {rule.hex()[:12]}"


def owners_of(state: State, listed: Sequence[ListedSource]) -> list[CodeOwners]:
    """Return the rules of owners of each source; empty rules where a source has none."""
    rules = load_owner_rules(state.stores.state, state.tenant, (one.instance for one in listed))
    return [rules.get(one.instance) or CodeOwners() for one in listed]


def _owned_path(at: Location) -> str:
    """Return the path that CODEOWNERS is about: an archive's, for its members."""
    return at.path.partition("!")[0] if ARCHIVES.intersection(at.via) else at.path


def _places(rows: Sequence[Observed], versions: Versions) -> tuple[Location, ...]:
    """Return the places of a finding, each once: those of current versions first, then the latest of older ones.

    A place that many versions share has the commit that brought the first of them.
    """
    if len(rows) == 1:  # of most findings: nothing is to be merged or sorted
        return (_place(rows, versions)[1],)
    places: dict[Location, list[Observed]] = {}
    for row in rows:
        at = location_of(row)
        # A location that an older version of this program stored has a commit of its own.
        places.setdefault(replace(at, confidence=0) if versions.commit(row.observation.ovid) else at, []).append(row)
    found = [_place(group, versions) for group in places.values()]
    return tuple(at for _, at in sorted(found, key=lambda one: one[0]))


def _place(rows: Sequence[Observed], versions: Versions) -> tuple[_Order, Location]:
    """Return one place of some versions, with its sort key."""
    ovids = [row.observation.ovid for row in rows]
    latest = max(
        rows, key=lambda row: (versions.is_current(row.observation.ovid), versions.last_s(row.observation.ovid))
    )
    at = _measured(location_of(latest), latest)
    span = versions.span(ovids)
    at = at if span is None else replace(at, commit=span.first.commit)
    is_old = not any(map(versions.is_current, ovids))
    newest_s = max(map(versions.last_s, ovids)) if is_old else 0
    return (is_old, -newest_s, at.path, at.line, at.column, at.row, at.field, at.commit), at


def _measured(at: Location, row: Observed) -> Location:
    """Return a location with the length of its secret, unless the secret is inside something else."""
    return at if at.via else replace(at, length=row.occurrence.byte_length)


def findings_by_id(state: State, ids: Iterable[FindingId]) -> dict[FindingId, ReportFinding]:
    """Return some findings, each with all places under all policies."""
    wanted = set(ids)
    if not wanted:
        return {}
    seen = (one for one in _everything(state, []) if one.row.finding.finding_id in wanted)
    verified = read_verifications(state.stores.state, state.tenant)
    found = findings_of(seen, Context(rule_names(state), (), Decisions(state), Versions(), verified))
    return {FindingId(bytes.fromhex(one.finding_id)): one for one in found}


def observations(state: State, policy: PolicyHash, ovids: Sequence[OvidHash] | None = None) -> Iterator[list[Observed]]:
    """Yield the observations of a policy, in some object versions or in all, page by page."""
    for part in _batches(ovids):
        after = None
        while rows := state.stores.reads.observed(state.tenant, policy, part, after=after):
            yield rows
            after = rows[-1].observation.observation_id


def _batches(ovids: Sequence[OvidHash] | None) -> list[Sequence[OvidHash] | None]:
    if ovids is None:
        return [None]
    return [ovids[at : at + BATCH_ROWS_MAX] for at in range(0, len(ovids), BATCH_ROWS_MAX)]


class Among(NamedTuple):
    """Some findings, and the object versions that they were observed in, by policy."""

    findings: Collection[FindingId]
    ovids: Mapping[PolicyHash, Sequence[OvidHash]]


def current_of(
    state: State,
    listed: Sequence[ListedSource],
    open_scans: Sequence[OpenScan] = (),
    among: Among | None = None,
) -> Iterator[SeenAt]:
    """Yield the observations in what the last and the unfinished scans listed, of all findings or of some."""
    for policy in policies_of(listed, open_scans):
        of_policy = [(number, one) for number, one in enumerate(listed) if one.policy == policy]
        items = items_of(open_scans, policy, len(listed))
        for rows in _among(state, policy, among):
            for number, one in of_policy:
                of_source = [row for row in rows if row.observation.ovid in one.ovids]
                yield from (SeenAt(row, number) for row in judged(one, of_source))
            if items:
                yield from (SeenAt(row, items[row.finding.item]) for row in rows if row.finding.item in items)


def stored_of(state: State, among: Among) -> Iterator[SeenAt]:
    """Yield all observations of some findings, as of the first source."""
    for policy in among.ovids:
        for rows in _among(state, policy, among):
            yield from (SeenAt(row, 0) for row in rows)


def policies_of(listed: Sequence[ListedSource], open_scans: Sequence[OpenScan]) -> list[PolicyHash]:
    """Return the policies of the last and the unfinished scans, each once."""
    return list(dict.fromkeys([*(one.policy for one in listed), *(one.policy for one in open_scans)]))


def _among(state: State, policy: PolicyHash, among: Among | None) -> Iterator[list[Observed]]:
    if among is None:
        return observations(state, policy)
    pages = observations(state, policy, among.ovids.get(policy, ()))
    return ([row for row in rows if row.finding.finding_id in among.findings] for rows in pages)


def items_of(open_scans: Sequence[OpenScan], policy: PolicyHash, first: int) -> dict[StableItemId, int]:
    """Return the items that unfinished scans look at under a policy, with the numbers of their sources in a report."""
    items: dict[StableItemId, int] = {}
    for scan in open_scans:
        if scan.policy == policy:
            items.update({item: first + number for item, number in scan.items.items()})
        first += len(scan.sources)
    return items


def _everything(state: State, listed: Sequence[ListedSource]) -> Iterator[SeenAt]:
    numbers = {row.finding.finding_id: number for row, number in current_of(state, listed)}
    for counts in state.stores.reads.counts_by_policy(state.tenant):
        for rows in observations(state, counts.policy):
            yield from (SeenAt(row, numbers.get(row.finding.finding_id, 0)) for row in rows)


def rule_names(state: State, policies: Iterable[PolicyHash] | None = None) -> dict[RuleFingerprint, str]:
    """Return the ids of rules by fingerprint, from some policies or from every one that has findings."""
    names: dict[RuleFingerprint, str] = {}
    if policies is None:
        policies = [counts.policy for counts in state.stores.reads.counts_by_policy(state.tenant)]
    for policy in policies:
        record = state.stores.policies.get_policy(state.tenant, policy)
        names.update({fingerprint: name for name, fingerprint in record.rules} if record is not None else {})
    return names
