"""Reports to test with: one of each kind of place, and names that no format may obey."""

import os

from hypothesis import strategies as st

from strandline.detect.locations import Location
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
from strandline.pipeline.identity import SecretHash
from strandline.pipeline.triage import TriageState

SECRETS = [SecretHash(bytes([0xE0 + number]) * 32) for number in range(4)]
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\"'><img src=x onerror=alert(1)>",
    "=HYPERLINK(1)",
    "@SUM(1)",
    'a\r\nb,c;"d',
    "\u2028\u202e{{data}}{{script}}",
    "a\udcff/b",
    "javascript:alert(1)",
    "~/a b#c?d%e",
    "half \ud800",
]

RULES = {
    "aws-access-key-id": RuleFacts(
        "aws-access-key-id", "AWS access key id: names a key.", ("provider:aws", "kind:key")
    ),
    "generic-password": RuleFacts("generic-password", "A password.", ("kind:password",)),
}


def finding(number: int, *places: Location, rule: str = "aws-access-key-id", **more: object) -> ReportFinding:
    """Return a finding with an id made of a number."""
    values = {
        "secret": SECRETS[number % 4],
        "first_seen_ns": 1_700_000_000_000_000_000 + number * 86_400 * 10**9,
        **more,
    }
    return ReportFinding(f"{number:02x}" * 32, rule, locations=places, **values)  # type: ignore[arg-type]


def decided(state: TriageState, why: str = "because") -> Decision:
    """Return a decision of ada's."""
    return Decision(state, 1_700_000_500_000_000_000, "ada", why)


FINDINGS = [
    finding(0, Location("file", "src/app.py", 12, 5, 9)),
    finding(1, Location("file", "a.zip!in/b.txt", 3, 1, 4, ("zip", "base64")), rule="generic-password"),
    finding(2, Location("git", "old.py", 7, 2, 5, commit="1a2b3c4d5e6f"), source=1),
    finding(3, Location("table", "orders.parquet", 1, 9, 2, row="42", field="notes"), source=2),
    finding(4, Location("journal", "audit", 1, 1, 0, row="1042"), source=3),
    finding(5, Location("file", "id_rsa", 0, 0, 10), rule="of-another-set"),
    finding(6, Location("file", "two.txt", 1, 1, 3), Location("file", "two.txt", 9, 4, 3)),
    finding(7, Location("file", "c", 1, 1, 6), decision=decided(TriageState.CONFIRMED)),
    finding(8, Location("file", "d", 1, 1, 6), decision=decided(TriageState.FALSE_POSITIVE, "")),
    finding(9, Location("file", "e", 1, 1, 6), decision=decided(TriageState.REVOKED)),
    finding(10, Location("other", "config.py:4")),
]
SOURCES = [
    SourceFacts("file", "shop", "/srv/my shop"),
    SourceFacts("git", "shop.git", "/srv/shop.git", "1a2b3c4d5e6f"),
    SourceFacts("table", "orders"),
    SourceFacts("journal", "audit"),
]
COVERAGE = ReportCoverage(
    [
        CoverageCount(Status.SCANNED, "", 90),
        CoverageCount(Status.PARTIAL, "MEMBERS_SKIPPED", 4),
        CoverageCount(Status.SKIPPED, "SYMLINK", 3),
        CoverageCount(Status.FAILED, "PERMISSION_DENIED", 2),
        CoverageCount(Status.FAILED, "VANISHED", 1),
    ],
    [
        Incomplete(Status.FAILED, "PERMISSION_DENIED", "keys/a b.pem"),
        Incomplete(Status.SKIPPED, "SYMLINK", "\udcff", 1),
    ],
    123_456,
)
FACTS = ReportFacts("shop", "ab" * 32, SOURCES, 1_700_000_000_000_000_000, 1_700_000_094_000_000_000, "1.2.3")
REPORT = Report(FINDINGS, RULES, COVERAGE, FACTS, {"baseline": 3})

whole = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
valid = st.sampled_from([text for text in HOSTILE if text.isascii() or "\u2028" in text]) | whole
texts = st.sampled_from(HOSTILE) | whole | st.binary(max_size=12).map(os.fsdecode)
locations = st.builds(
    Location,
    source=st.sampled_from(["file", "git", "table", "journal", "other"]),
    path=texts,
    line=st.integers(0, 2**31),
    column=st.integers(0, 2**31),
    confidence=st.integers(0, 10),
    via=st.lists(st.sampled_from(["zip", "base64"]) | valid.filter(bool), max_size=2).map(tuple),
    commit=st.text("0123456789abcdef", max_size=40),
    row=texts,
    field=texts,
)
findings = st.builds(
    ReportFinding,
    finding_id=st.binary(min_size=32, max_size=32).map(bytes.hex),
    rule_id=valid.filter(bool),
    secret=st.sampled_from(SECRETS),
    locations=st.lists(locations, min_size=1, max_size=3).map(tuple),
    first_seen_ns=st.integers(0, 2**62),
    decision=st.none() | st.builds(Decision, st.sampled_from(TriageState), st.integers(0, 2**62), valid, valid),
    source=st.integers(0, 3),
)
reports = st.builds(
    lambda found, described, incomplete, name: Report(
        found,
        {one.rule_id: RuleFacts(one.rule_id, described, ("provider:x",)) for one in found},
        ReportCoverage([CoverageCount(Status.FAILED, "X", len(incomplete))], incomplete, 5),
        ReportFacts("default", "", [SourceFacts("file", name, "/" + name)], 0, 5, "1"),
    ),
    st.lists(findings, max_size=4),
    valid,
    st.lists(st.builds(Incomplete, st.sampled_from([Status.FAILED, Status.SKIPPED]), st.just("X"), texts), max_size=3),
    texts,
)
