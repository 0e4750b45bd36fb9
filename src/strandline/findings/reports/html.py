"""A report as one HTML file that needs no network.

The file holds a style, a script and the data, and a policy (`Content-Security-Policy`) by which the browser runs only
this script, applies only this style and loads nothing else. The data is JSON in a block that no browser runs; the
script makes text nodes of it.

Invariants: names of files, rules and decisions are shown as text and never interpreted, not even `</script>`; no hash
of a secret is in the file: findings of one secret share a number.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files

from strandline.detect.locations import Location, shown
from strandline.findings.reports.values import (
    HIGH,
    MEDIUM,
    CommitSpan,
    Level,
    Report,
    ReportFinding,
    Status,
    reason_text,
    state_name,
    utc,
)
from strandline.pipeline.triage import TriageState

INCOMPLETE_MAX = 1_000
_HOLE = re.compile(r"\{\{(\w+)\}\}")
_OPEN, _CONFIRMED = state_name(TriageState.OPEN), state_name(TriageState.CONFIRMED)
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def format_html(report: Report) -> Iterator[str]:
    """Yield the pieces of the page."""
    style, script = _part("report.css"), _part("report.js")
    filled = {
        "csp": _policy(style, script),
        "title": escape(f"Strandline report: {_scanned(report)}"),
        "heading": escape(_heading(report)),
        "facts": _facts(report),
        "style": style,
        "tiles": _tiles(report),
        "notices": _notices(report),
        "footer": _footer(report),
        "data": embedded(_data(report)),
        "script": script,
    }
    for at, piece in enumerate(_HOLE.split(_part("report.html"))):
        yield filled[piece] if at % 2 else piece


def embedded(value: object) -> str:
    """Return JSON that stands in a script block as data: nothing in it ends the block or begins a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _part(name: str) -> str:
    return files("strandline.findings.reports").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _data(report: Report) -> dict[str, object]:
    rules = sorted({finding.rule_id for finding in report.findings})
    numbers = {rule: at for at, rule in enumerate(rules)}
    groups: dict[bytes, int] = {}
    coverage = report.coverage
    return {
        "high": HIGH,
        "medium": MEDIUM,
        "sources": [[source.kind, shown(source.name)] for source in report.facts.sources],
        "rules": [
            [rule.rule_id, shown(rule.description), rule.provider, rule.tags] for rule in map(report.rule, rules)
        ],
        "findings": [
            _row(finding, numbers[finding.rule_id], groups.setdefault(finding.secret, len(groups)))
            for finding in report.findings
        ],
        "coverage": [[row.status, reason_text(row.reason), row.reason, row.items] for row in coverage.counts],
        "incomplete": [
            [item.status, reason_text(item.reason), shown(item.path)] for item in coverage.incomplete[:INCOMPLETE_MAX]
        ],
        "left": coverage.items() - coverage.items(Status.SCANNED),
    }


def _row(finding: ReportFinding, rule: int, group: int) -> list[object]:
    """Return a finding as a row for the script (`FIELDS` there)."""
    at, decision = finding.location, finding.decision
    display = finding.display
    path = shown(at.path)
    return [
        *(finding.finding_id, rule, group, finding.source, at.source, path),
        *(display.removeprefix(path) if display.startswith(path) else "", display, at.confidence, finding.level),
        *(finding.state, finding.first_seen_ns // 1_000_000_000, list(map(shown, at.via)), at.commit, _cell(at)),
        [_point(place) for place in finding.locations[1:]],
        *(("", "", 0) if decision is None else (shown(decision.who), shown(decision.why), decision.when_ns // 10**9)),
        *_commits(finding.commits),
        list(map(shown, finding.owners)),
        *_verification(finding),
    ]


def _commits(span: CommitSpan | None) -> tuple[str, str, str]:
    """Return the first and the last commit as text, and whether HEAD has the finding."""
    if span is None:
        return "", "", ""
    return span.first.text, span.last.text, "yes" if span.at_head else "no"


def _verification(finding: ReportFinding) -> tuple[str, int]:
    """Return the last answer of a provider as text, and its time in seconds."""
    answer = finding.verification
    if answer is None:
        return "", 0
    return shown(f"{answer.state.value} at {answer.host}: {answer.reason}"), answer.when_ns // 10**9


def _cell(at: Location) -> str:
    named = {"row": at.row, "column": at.field} if at.source == "table" else {"offset": at.row}
    return ", ".join(f"{name} {shown(value)}" for name, value in named.items() if value)


def _point(at: Location) -> str:
    cell = _cell(at)
    return f"line {at.line}, column {at.column}" + (f", {cell}" if cell else "")


def _scanned(report: Report) -> str:
    names = [shown(source.name) for source in report.facts.sources]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "all results"  # noqa: PLR2004


def _heading(report: Report) -> str:
    confirmed = sum(finding.state == _CONFIRMED for finding in report.findings)
    more = f", {_many(confirmed, 'finding')} confirmed" if confirmed else ""
    still_open = _open(report)
    if not still_open:
        return ("No open secrets so far" if report.facts.unfinished else "No open secrets") + more
    secrets = len({finding.secret for finding in still_open})
    return f"{_many(secrets, 'open secret')} in {_many(len(_paths(still_open)), 'file')}{more}"


def _open(report: Report) -> list[ReportFinding]:
    """Return the findings without a decision, which all figures on top are about."""
    return [finding for finding in report.findings if finding.state == _OPEN]


def _paths(findings: Iterable[ReportFinding]) -> set[tuple[int, str]]:
    return {(finding.source, finding.path) for finding in findings}


def _facts(report: Report) -> str:
    facts = report.facts
    parts = [f"<b>{escape(_scanned(report))}</b>"]
    if facts.finished_ns:
        took = (facts.finished_ns - facts.started_ns) / 1e9
        lasting = f" in {_duration(took)}" if facts.started_ns and took > 0 else ""
        parts.append(f"scanned {utc(facts.finished_ns).replace('T', ' ').replace('Z', ' UTC')}{lasting}")
    if facts.tenant != "default":
        parts.append(f"for {escape(shown(facts.tenant))}")
    return " · ".join(parts)


def _tiles(report: Report) -> str:
    findings, coverage = _open(report), report.coverage
    high = [finding for finding in findings if finding.level == Level.HIGH]
    secrets = Counter[bytes]()
    for finding in findings:
        secrets[finding.secret] += len(finding.locations)
    paths = _paths(findings)
    folders = {(source, path.rpartition("/")[0]) for source, path in paths}
    items, whole = coverage.items(), coverage.items(Status.SCANNED)
    spread = sum(count > 1 for count in secrets.values())
    tiles = [
        ("Open findings", f"{len(findings):,}", f"of {len(report.findings):,} in total", "accent"),
        ("High confidence", f"{len(high):,}", "open, and most likely real", "high" if high else "good"),
        ("Open secrets", f"{len(secrets):,}", f"{spread:,} of them in several places", "medium"),
        ("Files with open findings", f"{len(paths):,}", f"in {_many(len(folders), 'folder')}", "low"),
    ]
    if items:
        share = f"{int(1000 * whole / items) / 10:g}\u202f%"  # rounded down: 100 % means all
        said = f"of {_many(items, 'item')}, {_size(coverage.bytes_seen)}"
        tiles.append(("Fully looked at", share, said, "good" if whole == items else "medium"))
    return "".join(
        f'<div class="tile tone-{tone}"><h2>{name}</h2><p class="big">{big}</p><p class="sub">{sub}</p></div>'
        for name, big, sub, tone in tiles
    )


def _notices(report: Report) -> str:
    return "".join(
        f'<p class="notice"><b>Findings may be missing</b>: {escape(shown(scan.text))}.</p>'
        for scan in report.facts.unfinished
    )


def _footer(report: Report) -> str:
    facts = report.facts
    parts = ["This file holds no secret, and no hash of one."]
    if report.ignored:
        left = ", ".join(f"{count:,} by {reason}" for reason, count in report.ignored.items())
        parts.append(f"Findings left out: {left}.")
    if facts.policy:
        parts.append(f"Policy <code>{escape(facts.policy)}</code>.")
    parts.append(f"strandline {escape(facts.version)}".strip() + ".")
    return " ".join(parts)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _size(count: float) -> str:
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - a thousand of each unit is the next
        count, unit = count / 1000, unit + 1
    return f"{count:,.0f} {_UNITS[unit]}" if count >= 100 or not unit else f"{count:.1f} {_UNITS[unit]}"  # noqa: PLR2004


def _duration(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"  # noqa: PLR2004
