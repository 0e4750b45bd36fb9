"""The findings of an index as columns, and each finding itself when it is asked for.

A finding with one observation, whose location's URL says everything in plain characters, is made of its row: so are
nearly all. The others (several places, escaped names, versions in a history) are made as those of a report are, and
kept as objects.

Invariants: findings are those of `build_report`, those of a report of everything behind them as gone ones, each in the
report's order; a finding that is made of its row equals that of the report, but for `numbers`, which `numbered` adds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.detect.locations import PLAIN_URL, parse_url
from strandline.findings.index_columns import VALUES, Mask, Rows, folded, sortable, unsortable
from strandline.findings.listed_sources import ListedSource, OpenScan, current_sources, unfinished_scans
from strandline.findings.report_builder import (
    Among,
    Context,
    context_of,
    current_of,
    facts_of,
    findings_of,
    items_of,
    policies_of,
    rule_name,
    stored_of,
)
from strandline.findings.reports.values import Decision, ReportFacts, ReportFinding, in_order
from strandline.pipeline.identity import FindingId, OvidHash, PolicyHash, RuleFingerprint, SecretHash
from strandline.pipeline.stored_findings import StoredFindings, read_stored_findings
from strandline.pipeline.triage import TriageState
from strandline.pipeline.verifications import Liveness
from strandline.scan.state import State

_NOWHERE = np.iinfo(np.int64).max
_STATES = {state: code for code, state in enumerate(TriageState)}
_ORDER = [
    *(("is_gone", "ascending"), ("is_live", "descending")),
    *((name, "ascending") for name in ("path", "line", "column", "rule", "id")),
]


class FindingRows:
    """The findings of an index, in order: those that are current, then those that are gone."""

    def __init__(
        self,
        facts: ReportFacts,
        made: pa.Table,
        objects: Sequence[ReportFinding],
        gone: int = 0,
        *,
        context: Context | None = None,
        decisions: Mapping[bytes, Decision | None] | None = None,
    ) -> None:
        """Take findings that are made of their rows, and others as objects, the last `gone` of which are gone.

        `decisions` are those about findings of the first kind.
        """
        self.facts = facts
        values = pa.concat_tables([made, _values_of(objects, facts, gone)])
        self.values = values.take(pc.sort_indices(values, sort_keys=_ORDER)).combine_chunks()
        """The columns of `VALUES`."""
        self.current = len(values) - (pc.sum(values["is_gone"]).as_py() or 0)
        self._objects = list(objects)
        self._context = context
        self._decisions = dict(decisions or {})

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.values)

    def finding(self, row: int) -> ReportFinding:
        """Return a finding; one that is made of its row has no `numbers`."""
        known = self.values["object"][row].as_py()
        return self._made(row) if known is None else self._objects[known]

    def ids(self, rows: Rows) -> list[FindingId]:
        """Return the ids of some findings."""
        return [FindingId(one) for one in self.values["id"].take(pa.array(rows, pa.int64())).to_pylist()]

    def row_of(self, finding: bytes) -> int | None:
        """Return where a finding is, or None."""
        at = pc.index(self.values["id"], pa.scalar(finding, pa.binary(32))).as_py()
        return None if at < 0 else int(at)

    def forget(self, *names: str) -> None:
        """Drop columns that no finding is made of, once others have taken them over."""
        self.values = self.values.drop_columns(list(names))

    def decide(self, row: int, decision: Decision | None) -> None:
        """Give a finding another decision."""
        known = self.values["object"][row].as_py()
        if known is None:
            self._decisions[self.values["id"][row].as_py()] = decision
        else:
            self._objects[known] = replace(self._objects[known], decision=decision)

    def numbered(self, rows: Rows) -> list[ReportFinding]:
        """Return some findings with their `numbers`, for which all findings at the same paths are looked at."""
        paths, asked = self.values["folded"], self.values.select(["folded", "object"]).take(pa.array(rows))
        objects = [self._objects[known] for known in asked["object"].drop_null().to_pylist()]
        elsewhere = {folded(at.path) for one in objects for at in one.locations}
        at_paths = pa.array({*asked["folded"].to_pylist(), *elsewhere}, paths.type)
        near = pc.or_(pc.is_in(paths, value_set=at_paths), pc.is_valid(self.values["object"]))
        looked = np.flatnonzero(near.to_numpy())
        found = {int(row): self.finding(int(row)) for row in looked}
        numbers = {one.finding_id: one.numbers for one in in_order(found.values())}
        # Those of current findings are as if there were no others.
        numbers |= {
            one.finding_id: one.numbers for one in in_order(one for row, one in found.items() if row < self.current)
        }
        return [replace(found[int(row)], numbers=numbers[found[int(row)].finding_id]) for row in rows]

    def _made(self, row: int) -> ReportFinding:
        """Return a finding as `findings_of` makes it of one observation."""
        assert self._context is not None  # noqa: S101 - it was made from rows of stores
        names = ("id", "secret", "rule", "first_ns", "is_new", "number", "url", "byte_length")
        one = {name: self.values[name][row].as_py() for name in names}
        secret, place = SecretHash(one["secret"]), replace(parse_url(one["url"]), length=one["byte_length"])
        return ReportFinding(
            finding_id=one["id"].hex(),
            rule_id=unsortable(one["rule"]),
            secret=secret,
            locations=(place,),
            first_seen_ns=one["first_ns"],
            decision=self._decisions.get(one["id"]),
            source=one["number"],
            is_new=one["is_new"],
            owners=self._context.owners_of(one["number"], place),
            verification=self._context.verified.get(secret),
        )


def _values_of(findings: Sequence[ReportFinding], facts: ReportFacts, gone: int) -> pa.Table:
    """Return the values of findings that are objects."""
    first_gone = len(findings) - gone
    names = [source.name for source in facts.sources]
    rows = [
        {
            "id": bytes.fromhex(one.finding_id),
            "secret": bytes(one.secret),
            "rule": sortable(one.rule_id),
            "source": sortable(
                names[one.source] if at < first_gone and one.source < len(names) else one.location.source
            ),
            "state": _STATES[TriageState.OPEN if one.decision is None else one.decision.state],
            "confidence": one.location.confidence,
            "first_ns": one.first_seen_ns,
            "is_new": one.is_new,
            "is_gone": at >= first_gone,
            "is_live": one.is_live,
            "path": sortable(one.path),
            "line": one.location.line,
            "column": one.location.column,
            "folded": folded(one.path),
            "display": folded(one.display),
            "object": at,
        }
        for at, one in enumerate(findings)
    ]
    return pa.Table.from_pylist(rows, VALUES)


def read_finding_rows(state: State) -> FindingRows:
    """Return the findings of the last scans, and those that are gone since."""
    open_scans = unfinished_scans(state)  # before inventories: a scan writes its own before it deletes its mark
    listed = current_sources(state)
    stored = read_stored_findings(state.stores, state.tenant)
    rows = _Observations(state, stored, listed, open_scans)
    return rows.findings()


class _Observations:
    """Everything that was observed: which rows a finding can be made of, and which findings need all of theirs."""

    def __init__(
        self, state: State, stored: StoredFindings, listed: Sequence[ListedSource], open_scans: Sequence[OpenScan]
    ) -> None:
        self._state, self._stored, self._listed, self._open = state, stored, listed, open_scans
        self._table = stored.observations
        has_history = any(one.source.kind == "git" for one in listed)
        ovids = self._table["ovid"].to_pylist() if has_history else ()
        policies = sorted(map(PolicyHash, pc.unique(self._table["policy"]).to_pylist()))
        self._context = context_of(state, listed, open_scans, ovids, policies)
        encoded = self._table["finding"].combine_chunks().dictionary_encode()
        self._codes: Rows = encoded.indices.to_numpy().astype(np.int64)
        self._ids = encoded.dictionary
        self._places = pc.extract_regex(self._table["url"].combine_chunks(), f"^(?:{PLAIN_URL})$")
        in_history = pa.array(list(self._context.versions.seen), pa.binary(32))
        in_versions = pc.is_in(self._table["ovid"].combine_chunks(), value_set=in_history)
        self._is_plain: Mask = _mask(self._places.is_valid()) & ~_mask(in_versions)

    def findings(self) -> FindingRows:
        """Return the findings."""
        numbers, is_judged = self._numbers()
        seen = np.flatnonzero(numbers != _NOWHERE)
        made, whole = self._split(seen, is_judged)
        current = list(
            findings_of(current_of(self._state, self._listed, self._open, self._among(whole)), self._context)
        )
        is_current = np.zeros(len(self._ids), np.bool_)
        is_current[self._codes[made]] = True
        known = pc.index_in(pa.array([bytes.fromhex(one.finding_id) for one in current], pa.binary(32)), self._ids)
        is_current[known.to_numpy()] = True
        others = np.flatnonzero(~is_current[self._codes])
        gone_made, gone_whole = self._split(others, is_judged=np.zeros_like(self._is_plain))
        gone = list(findings_of(stored_of(self._state, self._among(gone_whole)), self._context))
        rows = np.concatenate([made, gone_made])
        decisions = self._decisions(rows)
        values = self._values(rows, numbers[made], len(gone_made), decisions)
        return FindingRows(
            facts_of(self._state, self._context.listed, self._open),
            values,
            [*current, *gone],
            len(gone),
            context=self._kept_context(),
            decisions=decisions,
        )

    def _numbers(self) -> tuple[Rows, Mask]:
        """Return the first source that lists each row, and whether a source that judges what it lists does."""
        table, listed = self._table, self._listed
        numbers = np.full(len(table), _NOWHERE)
        is_judged = np.zeros(len(table), np.bool_)
        for policy in policies_of(listed, self._open):
            rows = np.flatnonzero(_mask(pc.equal(table["policy"].combine_chunks(), pa.scalar(policy, pa.binary(32)))))
            encoded = table["ovid"].take(pa.array(rows)).combine_chunks().dictionary_encode()
            first = np.full(len(encoded.dictionary) + 1, _NOWHERE)
            judged = np.zeros(len(first), np.bool_)
            for number, one in enumerate(listed):
                if one.policy == policy:
                    hits = pc.index_in(one.items["ovid"], value_set=encoded.dictionary).drop_null().to_numpy()
                    first[hits] = np.minimum(first[hits], number)
                    judged[hits] |= one.is_part and one.source.kind == "git"
            numbers[rows] = first[encoded.indices.to_numpy()]
            is_judged[rows] = judged[encoded.indices.to_numpy()]
            if items := items_of(self._open, policy, len(listed)):
                looked = (items.get(item, _NOWHERE) for item in table["item"].take(pa.array(rows)).to_pylist())
                numbers[rows] = np.minimum(numbers[rows], np.fromiter(looked, np.int64, len(rows)))
        return numbers, is_judged

    def _split(self, rows: Rows, is_judged: Mask) -> tuple[Rows, Rows]:
        """Return the rows of findings that are made of one, and the rows of the other findings."""
        codes = self._codes[rows]
        is_single = np.bincount(codes, minlength=len(self._ids))[codes] == 1
        is_made = is_single & self._is_plain[rows] & ~is_judged[rows]
        return rows[is_made], rows[~is_made]

    def _among(self, rows: Rows) -> Among:
        """Return the findings of some rows, with their object versions by policy."""
        part = self._table.select(["policy", "finding", "ovid"]).take(pa.array(rows))
        ovids: dict[PolicyHash, dict[OvidHash, None]] = {}
        for policy, ovid in sorted(zip(part["policy"].to_pylist(), part["ovid"].to_pylist(), strict=True)):
            ovids.setdefault(PolicyHash(policy), {})[OvidHash(ovid)] = None
        findings = {FindingId(one) for one in part["finding"].to_pylist()}
        return Among(findings, {policy: list(found) for policy, found in ovids.items()})

    def _values(self, rows: Rows, numbers: Rows, gone: int, decisions: Mapping[bytes, Decision | None]) -> pa.Table:
        """Return the values of findings that are made of rows, the last of which are gone."""
        table, places = self._table.take(pa.array(rows)), self._places.take(pa.array(rows))
        source, path, line, column, confidence, commit = places.flatten()
        context, size = self._context, len(rows)
        numbers = np.concatenate([numbers, np.zeros(gone, np.int64)])
        is_gone = np.arange(size) >= size - gone
        of_source = source.cast(pa.large_binary())
        if context.listed:
            names = pa.array([sortable(one.source.name) for one in context.listed], pa.large_binary())
            of_source = pc.if_else(pa.array(is_gone), of_source, names.take(pa.array(numbers)))
        before = np.array([one.previous_ns for one in context.listed] or [_NOWHERE], np.int64)
        live = [bytes(secret) for secret, one in context.verified.items() if one.state is Liveness.LIVE]
        at = pc.if_else(
            pc.equal(commit, ""), "", pc.binary_join_element_wise("@", pc.utf8_slice_codeunits(commit, 0, 7), "")
        )
        return pa.table(
            {
                "id": table["finding"],
                "secret": table["secret"],
                "rule": _named(table["rule"], context.names),
                "source": of_source,
                "state": _states(table["finding"], decisions),
                "confidence": pc.if_else(pc.equal(confidence, ""), "0", confidence).cast(pa.int64()),
                "first_ns": table["first_ns"],
                "is_new": table["first_ns"].to_numpy() > before[numbers],
                "is_gone": is_gone,
                "is_live": pc.is_in(table["secret"], value_set=pa.array(live, pa.binary(32))),
                "path": path.cast(pa.large_binary()),
                "line": line.cast(pa.int64()),
                "column": column.cast(pa.int64()),
                "folded": pc.ascii_lower(path).cast(pa.large_string()),
                "display": pc.ascii_lower(
                    pc.binary_join_element_wise(pc.binary_join_element_wise(path, at, ""), line, column, ":")
                ).cast(pa.large_string()),
                "number": numbers,
                "url": table["url"],
                "byte_length": table["byte_length"],
                "object": pa.nulls(size, pa.int64()),
            },
            schema=VALUES,
        )

    def _decisions(self, rows: Rows) -> dict[bytes, Decision | None]:
        """Return the decisions that hold for findings of some rows, of those that have any."""
        table = self._table.select(["finding", "secret"]).take(pa.array(rows))
        own, of_secrets = self._stored.decisions, self._context.decisions.secrets
        decided = pc.or_(
            pc.is_in(table["finding"], value_set=pa.array(list(own), pa.binary(32))),
            pc.is_in(table["secret"], value_set=pa.array([bytes(one) for one in of_secrets], pa.binary(32))),
        )
        part = table.filter(decided)
        return {
            finding: self._context.decisions.current(SecretHash(secret), own.get(FindingId(finding)))
            for finding, secret in zip(part["finding"].to_pylist(), part["secret"].to_pylist(), strict=True)
        }

    def _kept_context(self) -> Context:
        """Return the context without what the sources listed."""
        listed = [replace(one, items=one.items.schema.empty_table()) for one in self._context.listed]
        return self._context._replace(listed=listed)


def _named(rules: pa.ChunkedArray, names: Mapping[RuleFingerprint, str]) -> pa.Array:
    """Return the ids of rules."""
    encoded = rules.combine_chunks().dictionary_encode()
    known = [sortable(rule_name(names, RuleFingerprint(one))) for one in encoded.dictionary.to_pylist()]
    return pa.array(known, pa.large_binary()).take(encoded.indices)


def _states(findings: pa.ChunkedArray, decisions: Mapping[bytes, Decision | None]) -> Rows:
    """Return the codes of the findings' states."""
    states = np.full(len(findings), _STATES[TriageState.OPEN], np.int64)
    known = {finding: _STATES[one.state] for finding, one in decisions.items() if one is not None}
    at = pc.index_in(findings.combine_chunks(), value_set=pa.array(list(known), pa.binary(32)))
    states[_mask(at.is_valid())] = np.array(list(known.values()), np.int64)[at.drop_null().to_numpy()]
    return states


def _mask(found: pa.Array) -> Mask:
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask
