"""Results as a report: what the stores know of the object versions that the last scan of each source listed.

Invariants: nothing is written; an item that several scans of a source listed counts as the latest of them saw it, and
what the latest scan of the whole source did not list is gone; a finding that is kept but no longer in what was listed
is shown only when everything is asked for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.cli.state import State
from strandline.detect import load_builtin
from strandline.detect.locations import Location, read_location
from strandline.findings.reports import (
    CoverageCount,
    Decision,
    Incomplete,
    Report,
    ReportCoverage,
    ReportFacts,
    ReportFinding,
    RuleFacts,
    SourceFacts,
    Status,
)
from strandline.findings.reports.values import gaps_code, in_order, status_of
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import FindingId, OvidHash, PolicyHash, RuleFingerprint, StableItemId
from strandline.pipeline.ledger import LedgerRecord
from strandline.pipeline.reads import Observed
from strandline.pipeline.triage import TriageEvent, TriageState
from strandline.scan.inventory import ITEMS, Inventory, read_inventories
from strandline.scan.sources.git_history import Seen, parse_seen
from strandline.scan.sources.source import path_text
from strandline.version import __version__

INCOMPLETE_KEPT = 10_000
_KINDS = {"fs": "file"}
_SHOWN = pa.schema([ITEMS.field(name) for name in ("source", "item", "ovid", "path", "extra")])


@dataclass(frozen=True)
class Listed:
    """A source as a scan listed it: the policy of that scan, and its items (`item`, `ovid`, `path`, `extra`)."""

    source: SourceFacts
    policy: PolicyHash
    finished_ns: int
    items: pa.Table

    @cached_property
    def _extras(self) -> dict[bytes, bytes | None]:
        return dict(zip(self.items["ovid"].to_pylist(), self.items["extra"].to_pylist(), strict=True))

    def located(self, row: Observed) -> Location:
        """Return where a finding is; one that was staged when it was seen has the commit that brought it since."""
        at = _location(row)
        extra = self._extras.get(row.observation.ovid) if at.source == "git" and not at.commit else None
        places = [place for place in parse_seen(extra).places if place.commit] if extra else []
        same = [place for place in places if path_text(place.path) == at.path]
        return replace(at, commit=(same or places)[0].commit) if places else at


class _Seen(NamedTuple):
    """One observation, and the number of the source it is in."""

    row: Observed
    source: int


def current_sources(state: State, inventories: Sequence[Inventory] | None = None) -> list[Listed]:
    """Return what the last scan of each source listed, the latest first; or what some inventories say.

    A scan of a part (one file of a folder, what is staged) tells nothing of the rest: an earlier one of the whole does.
    """
    whole: set[str] = set()
    parts: set[tuple[str, str]] = set()
    later: dict[str, list[pa.Array]] = {}
    listed = []
    for inventory in inventories if inventories is not None else read_inventories(state.stores.state, state.tenant):
        new = [
            (number, facts)
            for number, facts in enumerate(inventory.sources)
            if facts.instance not in whole and not (facts.is_part and (facts.instance, facts.name) in parts)
        ]
        whole |= {facts.instance for facts in inventory.sources if not facts.is_part}
        parts |= {(facts.instance, facts.name) for facts in inventory.sources}
        if not new:
            continue
        items = pa.concat_tables(
            [_SHOWN.empty_table()]
            + [part.select(_SHOWN.names) for part in inventory.items(state.stores.state, state.tenant)]
        )
        for number, facts in new:
            rows = items.filter(pc.equal(items["source"], number)).drop_columns("source")
            for known in later.setdefault(facts.instance, []):
                rows = rows.filter(pc.invert(pc.is_in(rows["item"], value_set=known)))
            later[facts.instance].append(rows["item"].combine_chunks())
            source = _source_facts(facts.tag, facts.name)
            listed.append(Listed(source, inventory.policy, inventory.finished_ns, rows))
    return listed


def report_of(
    state: State,
    *,
    inventories: Sequence[Inventory] | None = None,
    everything: bool = False,
    coverage: bool = False,
) -> Report:
    """Return the findings of the current sources, or all that were ever seen; `coverage` asks about each item."""
    listed = current_sources(state, inventories)
    names = rule_names(state)
    seen = _everything(state, listed) if everything else _current(state, listed)
    findings = in_order(_findings(seen, names, listed))
    policies = list(dict.fromkeys(one.policy for one in listed))
    facts = ReportFacts(
        tenant=state.name,
        policy=", ".join(policy.hex() for policy in policies),
        sources=[one.source for one in listed],
        finished_ns=max((one.finished_ns for one in listed), default=0),
        version=__version__,
    )
    rules = RuleBook({finding.rule_id for finding in findings})
    return Report(findings, rules, coverage_of(state, listed) if coverage else ReportCoverage(), facts)


def coverage_of(state: State, listed: Sequence[Listed]) -> ReportCoverage:
    """Return how well the items of sources were looked at."""
    counts: Counter[tuple[Status, str]] = Counter()
    incomplete: list[Incomplete] = []
    bytes_seen = 0
    for number, source in enumerate(listed):
        for path, row in _ledger_rows(state, source):
            status, reason = _outcome(row)
            counts[status, reason] += 1
            bytes_seen += row.bytes_seen if row is not None else 0
            if status != Status.SCANNED and len(incomplete) < INCOMPLETE_KEPT:
                incomplete.append(Incomplete(status, reason, path, number))
    order = list(Status)
    rows = [CoverageCount(status, reason, items) for (status, reason), items in counts.items()]
    rows.sort(key=lambda row: (order.index(row.status), -row.items, row.reason))
    incomplete.sort(key=lambda item: (-order.index(item.status), item.source, item.path))
    return ReportCoverage(rows, incomplete, bytes_seen)


class RuleBook(Mapping[str, RuleFacts]):
    """What is known of some rules, looked up when it is first asked for: a table of findings shows none of it."""

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
    """Return what our own set says of rules; of others, their names."""
    known = load_builtin().by_id
    facts = {}
    for name in names:
        rule = known.get(name)
        facts[name] = RuleFacts(name) if rule is None else RuleFacts(name, rule.description, rule.tags)
    return facts


def _findings(
    seen: Iterable[_Seen], names: dict[RuleFingerprint, str], listed: Sequence[Listed] = ()
) -> Iterator[ReportFinding]:
    """Yield each finding once, with all its places."""
    grouped: dict[FindingId, list[_Seen]] = {}
    for one in seen:
        grouped.setdefault(one.row.finding.finding_id, []).append(one)
    for group in grouped.values():
        first = group[0]
        finding = first.row.finding
        places = {listed[one.source].located(one.row) if listed else _location(one.row) for one in group}
        yield ReportFinding(
            finding_id=finding.finding_id.hex(),
            rule_id=names.get(finding.rule) or f"rule {finding.rule.hex()[:12]}",
            secret=finding.secret,
            locations=tuple(sorted(places, key=lambda at: (at.path, at.line, at.column, at.row, at.field, at.commit))),
            first_seen_ns=min(one.row.first_ns for one in group),
            decision=decision_of(first.row.decision),
            source=first.source,
        )


def findings_by_id(state: State, ids: Iterable[FindingId]) -> dict[FindingId, ReportFinding]:
    """Return some findings with every place at which any policy saw them."""
    wanted = set(ids)
    if not wanted:
        return {}
    seen = (one for one in _everything(state, []) if one.row.finding.finding_id in wanted)
    found = _findings(seen, rule_names(state))
    return {FindingId(bytes.fromhex(one.finding_id)): one for one in found}


def git_places(state: State, item: StableItemId) -> Seen | None:
    """Return the commits and paths of a blob, as the last scan that listed it saw them; None for any other item."""
    for inventory in read_inventories(state.stores.state, state.tenant):
        if any(source.tag == "git" for source in inventory.sources):
            for items in inventory.items(state.stores.state, state.tenant):
                extras = items.filter(pc.equal(items["item"], pa.scalar(item, pa.binary(32))))["extra"].to_pylist()
                if extras and extras[0]:
                    return parse_seen(extras[0])
    return None


def decision_of(event: TriageEvent | None) -> Decision | None:
    """Return what somebody decided, as reports say it."""
    return None if event is None else Decision(TriageState(event.state), event.when_ns, event.who, event.why)


def observations(state: State, policy: PolicyHash) -> Iterator[list[Observed]]:
    """Yield what was seen under a policy, page by page."""
    after = None
    while rows := state.stores.reads.observed(state.tenant, policy, after=after):
        yield rows
        after = rows[-1].observation.observation_id


def _current(state: State, listed: Sequence[Listed]) -> Iterator[_Seen]:
    for policy in dict.fromkeys(one.policy for one in listed):
        of_policy = [(number, _ovids(one)) for number, one in enumerate(listed) if one.policy == policy]
        for rows in observations(state, policy):
            asked = pa.array([row.observation.ovid for row in rows], pa.binary(32))
            for number, ovids in of_policy:
                is_there = pc.is_in(asked, value_set=ovids).to_pylist()
                yield from (_Seen(row, number) for row, there in zip(rows, is_there, strict=True) if there)


def _everything(state: State, listed: Sequence[Listed]) -> Iterator[_Seen]:
    numbers = {row.finding.finding_id: number for row, number in _current(state, listed)}
    for counts in state.stores.reads.counts_by_policy(state.tenant):
        for rows in observations(state, counts.policy):
            yield from (_Seen(row, numbers.get(row.finding.finding_id, 0)) for row in rows)


def _ovids(listed: Listed) -> pa.Array:
    column = listed.items["ovid"].combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _ledger_rows(state: State, listed: Listed) -> Iterator[tuple[str, LedgerRecord | None]]:
    for batch in listed.items.to_batches(max_chunksize=BATCH_ROWS_MAX):
        ovids: list[OvidHash | None] = batch["ovid"].to_pylist()
        asked = [ovid for ovid in ovids if ovid is not None]
        rows = state.stores.ledger.batch_get(state.tenant, listed.policy, asked) if asked else []
        known = dict(zip(asked, rows, strict=True))
        for ovid, path in zip(ovids, batch["path"].to_pylist(), strict=True):
            yield path.decode(errors="surrogateescape"), None if ovid is None else known[ovid]


def _outcome(row: LedgerRecord | None) -> tuple[Status, str]:
    if row is None:
        return Status.FAILED, "NOT_LOOKED_AT"
    status = status_of(row.status, is_complete=row.is_complete)
    return status, gaps_code(*row.gaps) if status == Status.PARTIAL else row.error_code or ""


def _location(row: Observed) -> Location:
    return read_location(row.observation.location_display, row.observation.location_url)


def rule_names(state: State) -> dict[RuleFingerprint, str]:
    """Return the names of rules by their fingerprints, from every policy that found anything."""
    names: dict[RuleFingerprint, str] = {}
    for counts in state.stores.reads.counts_by_policy(state.tenant):
        record = state.stores.policies.get_policy(state.tenant, counts.policy)
        names.update({fingerprint: name for name, fingerprint in record.rules} if record is not None else {})
    return names


def _source_facts(tag: str, name: str) -> SourceFacts:
    """Return what a report says of a source; one that is named for its place is also known to be there."""
    kind = _KINDS.get(tag, tag)
    if not name.startswith("/"):
        return SourceFacts(kind, name)
    path = Path(name)
    root = path.parent if kind == "file" and path.is_file() else path
    return SourceFacts(kind, path.name or name, str(root))
