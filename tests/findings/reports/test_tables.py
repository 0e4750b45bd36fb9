"""JSON lines, CSV, baselines and the report of gitleaks: read back as written, and run by nobody."""

import csv
import io
import json

import pytest
from hypothesis import given

from strandline.detect.locations import Location, parse_url
from strandline.findings import Baseline, Fingerprint, Ignores, parse_baseline, parse_ignore_file
from strandline.findings.reports import Level, Report, ReportFormat, Status, format_report
from strandline.findings.reports.csv import COLUMNS, safe_cell
from strandline.findings.reports.values import gaps_code, in_order, level_of, reason_text, status_of
from strandline.pipeline.identity import TenantSecretKey
from strandline.pipeline.ledger import DoneStatus
from tests.effort import examples
from tests.findings.reports.examples import REPORT, SECRETS, finding, reports

KEY = TenantSecretKey(bytes(32))
loose = examples(60)


def text_of(report: Report, form: ReportFormat) -> str:
    return "".join(format_report(report, form))


@pytest.mark.parametrize("form", ReportFormat)
def test_every_format_can_be_written_as_utf_8_and_is_the_same_twice(form: ReportFormat) -> None:
    assert text_of(REPORT, form).encode() == text_of(REPORT, form).encode()
    assert text_of(Report([]), form).encode() is not None


class TestJsonLines:
    """An object for each finding."""

    @given(reports)
    @loose
    def test_are_ascii_and_say_where(self, report: Report) -> None:
        text = text_of(report, ReportFormat.JSONL)
        assert text.isascii()
        rows = [json.loads(line) for line in text.splitlines()]
        assert [row["finding_id"] for row in rows] == [one.finding_id for one in report.findings]
        for row, one in zip(rows, report.findings, strict=True):
            assert row["path"] == one.path
            assert parse_url(row["url"]).line == one.line
            assert len(row["other_places"]) == len(one.locations) - 1

    @pytest.mark.parametrize("form", [ReportFormat.JSONL, ReportFormat.BASELINE])
    @given(report=reports)
    @loose
    def test_are_a_baseline_that_knows_each_finding(self, form: ReportFormat, report: Report) -> None:
        named = Report(in_order(one for one in report.findings if all(place.path for place in one.locations)))
        baseline = parse_baseline(text_of(named, form), KEY)
        assert all(baseline.knows(one.rule_id, one.path, one.line + 1, one.secret, one.nth) for one in named.findings)
        if form is ReportFormat.BASELINE:
            assert not any(bytes.hex(one.secret)[:12] in text_of(named, form) for one in named.findings)

    def test_say_who_decided_and_why(self) -> None:
        rows = [json.loads(line) for line in text_of(REPORT, ReportFormat.JSONL).splitlines()]
        assert rows[9]["state"] == "revoked"
        assert rows[9]["decided"] == {"when": "2023-11-14T22:21:40Z", "who": "ada", "why": "because"}
        assert rows[0]["decided"] is None


class TestCsv:
    """A row for each finding."""

    @given(reports)
    @loose
    def test_no_cell_is_a_formula_or_breaks_a_line(self, report: Report) -> None:
        text = text_of(report, ReportFormat.CSV)
        rows = list(csv.reader(io.StringIO(text)))
        assert len(rows) == len(report.findings) + 1 == text.count("\r\n")
        assert rows[0] == list(COLUMNS)
        for row in rows[1:]:
            assert len(row) == len(COLUMNS)
            assert not any(cell.lstrip()[:1] in set("=+-@\t\r|%") for cell in row if cell.strip())

    @pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "＝1"])  # noqa: RUF001
    def test_what_a_spreadsheet_would_run_is_text(self, text: str) -> None:
        assert str(safe_cell(text)).startswith(("'", "\\"))

    def test_plain_cells_stay_as_they_are(self) -> None:
        row = next(csv.DictReader(io.StringIO(text_of(REPORT, ReportFormat.CSV))))
        assert (row["path"], row["line"], row["provider"], row["level"]) == ("src/app.py", "12", "aws", "high")
        assert row["same_secret"] == bytes.hex(SECRETS[0])[:12]


class TestGitleaks:
    """The JSON of gitleaks, redacted."""

    def test_has_an_entry_for_each_place_whose_fingerprint_can_be_ignored(self) -> None:
        entries = json.loads(text_of(REPORT, ReportFormat.GITLEAKS))
        assert len(entries) == len(REPORT.findings) + 1
        ignores = Ignores(parse_ignore_file("\n".join(entry["Fingerprint"] for entry in entries)))
        assert REPORT.ignoring(ignores).findings == []

    def test_names_no_secret(self) -> None:
        entries = json.loads(text_of(REPORT, ReportFormat.GITLEAKS))
        assert {entry["Secret"] for entry in entries} == {entry["Match"] for entry in entries} == {"REDACTED"}
        assert json.loads(text_of(Report([]), ReportFormat.GITLEAKS)) == []

    def test_is_a_baseline_by_places(self) -> None:
        baseline = parse_baseline(text_of(REPORT, ReportFormat.GITLEAKS), KEY)
        assert all(baseline.knows(one.rule_id, one.path, one.line, one.secret) for one in REPORT.findings)


class TestIgnoring:
    """Places are left out one by one."""

    def test_a_finding_stays_as_long_as_one_of_its_places_does(self) -> None:
        report = Report([finding(1, Location("file", "a", 1), Location("file", "a", 9))], ignored={"comment": 2})
        one = report.ignoring(Ignores({Fingerprint("a", "aws-access-key-id", 1): "here"}))
        assert [place.line for place in one.findings[0].locations] == [9]
        assert one.ignored == {"comment": 2}
        both = one.ignoring(Ignores(baselines=(Baseline(frozenset({("a", SECRETS[1])})),)))
        assert (list(both.findings), both.ignored) == ([], {"comment": 2, "baseline": 1})


class TestWords:
    """Numbers and codes in words."""

    def test_levels_follow_the_confidence(self) -> None:
        assert [level_of(number) for number in (0, 2, 3, 4, 5, 10)] == [
            *(Level.LOW, Level.LOW, Level.MEDIUM, Level.MEDIUM, Level.HIGH, Level.HIGH)
        ]

    def test_an_item_with_findings_and_gaps_is_partial(self) -> None:
        assert status_of(DoneStatus.SCANNED_WITH_FINDINGS, is_complete=False) == Status.PARTIAL
        assert status_of(DoneStatus.SCANNED_CLEAN, is_complete=True) == Status.SCANNED
        assert status_of(DoneStatus.FAILED_RETRYABLE, is_complete=False) == Status.FAILED
        assert status_of(DoneStatus.SKIPPED, is_complete=False) == Status.SKIPPED

    def test_codes_have_words(self) -> None:
        assert gaps_code(1, 0, 2) == "MEMBERS_SKIPPED,FINDINGS_DROPPED"
        assert reason_text("SYMLINK,NEW_CODE") == "a link, which is not followed, new code"
        assert reason_text("") == ""
