"""Findings as SARIF 2.1.0, for code hosts and editors.

    level                 error, warning or note: high, medium or low confidence
    rank                  ten times the confidence
    partialFingerprints   `strandlineFinding/v1`: the finding's id, which survives a move of the line;
                          `strandlinePlace/v1`: path, rule, and which secret of that rule there: the same in every clone
    suppressions          false positives and revoked secrets; a confirmed finding is not suppressed
    %SRCROOT%             the root of the first source; `%SRCROOT2%` and so on for others
    logicalLocations      a member of an archive, a cell of a table, a record of a journal
    notifications         items that were not scanned, or scanned in part, and unfinished scans

Invariants: valid under the published schema; no hash of a secret; the line and the column of an archive's member are
never given as those of the archive, whose region is its first line.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from strandline.detect.locations import Location, format_display, shown, text_bytes
from strandline.findings.reports.values import (
    ARCHIVES,
    Incomplete,
    Level,
    Report,
    ReportFinding,
    RuleFacts,
    SourceFacts,
    Status,
    plain_verification,
    state_name,
    utc,
)
from strandline.pipeline.triage import TriageState

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
NOTIFICATIONS_MAX = 1_000
LINE_LENGTH_MAX = 400
_LEVELS = {Level.HIGH: "error", Level.MEDIUM: "warning", Level.LOW: "note"}
_NOTICE = {Status.FAILED: "error", Status.PARTIAL: "warning", Status.SKIPPED: "note"}
_UNFINISHED = "scan-unfinished"
_SUPPRESSED = {TriageState.FALSE_POSITIVE, TriageState.REVOKED}

Object: TypeAlias = dict[str, Any]


def format_sarif(report: Report) -> Iterator[str]:
    """Yield the pieces of a SARIF log of one run."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report)]}
    yield from json.JSONEncoder(indent=1).iterencode(log)
    yield "\n"


def _run(report: Report) -> Object:
    names = sorted({finding.rule_id for finding in report.findings} | set(report.rules))
    index = {name: at for at, name in enumerate(names)}
    sources = report.facts.sources
    driver = {
        "name": "strandline",
        **({"version": report.facts.version} if report.facts.version else {}),
        "rules": [_rule(report.rule(name)) for name in names],
        "notifications": [*(_notification_kind(status) for status in _NOTICE), _unfinished_kind()],
    }
    git = [_provenance(number, source) for number, source in enumerate(sources) if source.kind == "git" and source.root]
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"strandline/{report.facts.tenant}/"},
        "invocations": [_invocation(report)],
        **({"originalUriBaseIds": roots} if (roots := _roots(sources)) else {}),
        **({"versionControlProvenance": git} if git else {}),
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, report.rule(finding.rule_id), index) for finding in report.findings],
    }


def _rule(rule: RuleFacts) -> Object:
    text = rule.description or f"Secret found by rule {rule.rule_id}."
    return {
        "id": rule.rule_id,
        "name": "".join(part.capitalize() for part in rule.rule_id.replace("_", "-").split("-")) or rule.rule_id,
        "shortDescription": {"text": text.partition(":")[0].rstrip(".") + "."},
        "fullDescription": {"text": text},
        "help": {"text": f"{text} Revoke it at its issuer, then remove it; the git history still contains it."},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["security", "secret", *rule.tags], "security-severity": "8.0", "precision": "high"},
    }


def _result(finding: ReportFinding, rule: RuleFacts, index: Mapping[str, int]) -> Object:
    first, *others = finding.locations
    described = rule.description.partition(":")[0].rstrip(".") or f"A secret of rule {finding.rule_id}"
    where = f"{shown(first.path)}, line {first.line}" if first.line else finding.display
    known = "verified as live" if finding.is_live else f"{finding.level} confidence"
    advice = (
        "Revoke it at its issuer, then remove it."
        if finding.level == Level.HIGH or finding.is_live
        else "Check whether it is real."
    )
    result: Object = {
        "ruleId": finding.rule_id,
        "ruleIndex": index[finding.rule_id],
        "level": _LEVELS[finding.level],
        "rank": float(finding.location.confidence * 10),
        "message": {"text": f"{described} in {where} ({known}). {advice}"},
        "locations": [_location(first, finding.source)],
        "partialFingerprints": {
            "strandlineFinding/v1": finding.finding_id,
            "strandlinePlace/v1": f"{_uri(finding.path)}:{finding.rule_id}:{finding.nth}",
        },
        "occurrenceCount": len(finding.locations),
        "properties": {
            "confidence": finding.location.confidence,
            "state": finding.state,
            **({"via": list(first.via)} if first.via else {}),
            **({"inner": first.inner} if first.inner else {}),
            **({"commit": first.commit} if first.commit else {}),
            **({"commits": finding.commits.plain()} if finding.commits is not None else {}),
            **({"owners": list(map(shown, finding.owners))} if finding.owners else {}),
            **({"verification": verified} if (verified := plain_verification(finding.verification)) else {}),
            **({"firstSeen": utc(finding.first_seen_ns)} if finding.first_seen_ns else {}),
        },
    }
    if others:
        result["relatedLocations"] = [
            {"id": number, **_location(at, finding.source), "message": {"text": f"also in {format_display(at)}"}}
            for number, at in enumerate(others, 1)
        ]
    decision = finding.decision
    if decision is not None and decision.state in _SUPPRESSED:
        why = f"{state_name(decision.state)} ({decision.who}): {decision.why}".removesuffix(": ")
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": shown(why)}]
    return result


def _location(at: Location, source: int) -> Object:
    inner = at.path.partition("!")[0] if ARCHIVES.intersection(at.via) else at.path
    physical: Object = {"artifactLocation": {"uri": _uri(inner), "uriBaseId": _base(source)}}
    is_text = at.line and inner == at.path and not at.row and not at.field
    # Code hosts require a line for every place; line 1 stands for an item without lines.
    physical["region"] = _region(at) if is_text else {"startLine": 1}
    location: Object = {"physicalLocation": physical}
    if not is_text and (inner != at.path or at.row or at.field):
        location["logicalLocations"] = [
            {"fullyQualifiedName": format_display(at), "kind": "member" if inner != at.path else "data"}
        ]
    return location


def _region(at: Location) -> Object:
    begin = max(1, at.column)
    # A longer one has several lines, such as a private key, and where it ends is not stored.
    end = {"endColumn": begin + at.length} if 0 < at.length <= LINE_LENGTH_MAX else {}
    return {"startLine": at.line, "startColumn": begin, **end}


def _invocation(report: Report) -> Object:
    facts, shown_items = report.facts, list(report.coverage.incomplete[:NOTIFICATIONS_MAX])
    notices = [_notification(item) for item in shown_items]
    left = _unlisted(report, shown_items)
    notices += [
        _notice(status, f"{count:,} more items: {status.value}, {reason or 'no reason given'}.")
        for (status, reason), count in sorted(left.items())
    ]
    notices += [
        {"descriptor": {"id": _UNFINISHED}, "level": "error", "message": {"text": f"{scan.text.capitalize()}."}}
        for scan in facts.unfinished
    ]
    return {
        "executionSuccessful": not facts.unfinished,
        **({"startTimeUtc": utc(facts.started_ns)} if facts.started_ns else {}),
        **({"endTimeUtc": utc(facts.finished_ns)} if facts.finished_ns else {}),
        **({"toolExecutionNotifications": notices} if notices else {}),
        "properties": {
            "policy": facts.policy,
            "items": {status.value: report.coverage.items(status) for status in Status},
            "bytesSeen": report.coverage.bytes_seen,
            "ignored": dict(report.ignored),
        },
    }


def _unlisted(report: Report, listed: Sequence[Incomplete]) -> Counter[tuple[Status, str]]:
    """Return the number of items without a notification of their own, by status and reason."""
    rows = [row for row in report.coverage.counts if row.status in _NOTICE]
    counted: Counter[tuple[Status, str]] = Counter({(row.status, row.reason): row.items for row in rows})
    counted.subtract(Counter((item.status, item.reason) for item in listed))
    return +counted


def _notification(item: Incomplete) -> Object:
    said = _notice(item.status, f"{shown(item.path)}: {item.status.value}, {item.reason or 'no reason given'}.")
    where = {"physicalLocation": {"artifactLocation": {"uri": _uri(item.path), "uriBaseId": _base(item.source)}}}
    return {**said, "locations": [where]}


def _notice(status: Status, text: str) -> Object:
    return {"descriptor": {"id": f"item-{status.value}"}, "level": _NOTICE[status], "message": {"text": text}}


def _notification_kind(status: Status) -> Object:
    words = {
        Status.FAILED: "could not be scanned",
        Status.PARTIAL: "was scanned in part",
        Status.SKIPPED: "was skipped on purpose",
    }
    text = {"text": f"An item {words[status]}."}
    advice = {"text": "See `strandline findings coverage`; the next scan retries these items."}
    name = f"Item{status.value.capitalize()}"
    return {
        "id": f"item-{status.value}",
        "name": name,
        "shortDescription": text,
        "fullDescription": text,
        "help": advice,
        "defaultConfiguration": {"level": _NOTICE[status]},
    }


def _unfinished_kind() -> Object:
    text = {"text": "A scan began and did not end: findings may be missing."}
    return {
        "id": _UNFINISHED,
        "name": "ScanUnfinished",
        "shortDescription": text,
        "fullDescription": text,
        "help": {"text": "Run the same command again: it goes on where it stopped."},
        "defaultConfiguration": {"level": "error"},
    }


def _roots(sources: Sequence[SourceFacts]) -> Object:
    known = enumerate(sources)
    return {
        _base(number): {"uri": _folder_uri(source.root), "description": {"text": shown(source.name)}}
        for number, source in known
        if source.root
    }


def _provenance(number: int, source: SourceFacts) -> Object:
    return {
        "repositoryUri": _folder_uri(source.root),
        **({"revisionId": source.revision} if source.revision else {}),
        "mappedTo": {"uriBaseId": _base(number)},
    }


def _base(source: int) -> str:
    return "%SRCROOT%" if source == 0 else f"%SRCROOT{source + 1}%"


def _uri(path: str) -> str:
    """Return a relative path as a URI reference; its colons are encoded, so that none ends a scheme."""
    return quote(text_bytes(path), "/!$'()*;=,+~@").lstrip("/")


def _folder_uri(root: str) -> str:
    return f"file://{quote(text_bytes(root.rstrip('/')))}/"
