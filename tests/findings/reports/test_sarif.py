"""SARIF: valid under the published schema, whatever things are called, and true about places."""

from typing import Any

import pytest
from hypothesis import given

from strandline.findings.reports import Report
from strandline.findings.reports.sarif import format_sarif
from tests.effort import examples
from tests.findings.reports.examples import REPORT, SECRETS, reports
from tests.findings.reports.schema import Invalid, check_sarif


def log_of(report: Report) -> dict[str, Any]:
    (run,) = check_sarif("".join(format_sarif(report)))["runs"]
    assert isinstance(run, dict)
    return run


@given(reports)
@examples(40)
def test_any_report_is_valid(report: Report) -> None:
    log_of(report)


def test_an_empty_report_is_valid() -> None:
    assert log_of(Report([]))["results"] == []


def test_the_check_knows_what_is_not_valid() -> None:
    with pytest.raises(Invalid):
        check_sarif('{"version": "2.1.0", "runs": [{"tool": {"driver": {}}}]}')


def test_a_result_names_its_rule_its_place_and_itself() -> None:
    run = log_of(REPORT)
    result = run["results"][0]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "aws-access-key-id"
    assert result["message"]["text"] == (
        "AWS access key id in src/app.py, line 12 (high confidence). Revoke it at its issuer, then remove it."
    )
    (place,) = result["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "src/app.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 12, "startColumn": 5},
    }
    assert result["partialFingerprints"] == {
        "strandlineFinding/v1": "00" * 32,
        "strandlinePlace/v1": "src/app.py:aws-access-key-id:0",
    }
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == "file:///srv/my%20shop/"


def test_the_level_follows_the_confidence() -> None:
    results = log_of(REPORT)["results"]
    by_confidence = {result["properties"]["confidence"]: result["level"] for result in results}
    assert by_confidence == {
        10: "error",
        9: "error",
        6: "error",
        5: "error",
        4: "warning",
        3: "warning",
        2: "note",
        0: "note",
    }
    assert {result["rank"] for result in results} >= {90.0, 0.0}


def test_a_member_of_an_archive_has_no_line_of_the_archive() -> None:
    (place,) = log_of(REPORT)["results"][1]["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "a.zip", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 1},
    }
    assert place["logicalLocations"] == [{"fullyQualifiedName": "a.zip!in/b.txt:3:1", "kind": "member"}]


def test_a_cell_and_a_record_are_logical_places() -> None:
    table, journal = (log_of(REPORT)["results"][at]["locations"][0] for at in (3, 4))
    assert table["logicalLocations"][0]["fullyQualifiedName"] == "orders.parquet#42/notes:1:9"
    assert journal["logicalLocations"][0]["fullyQualifiedName"] == "audit@1042:1:1"
    assert table["physicalLocation"]["region"] == {"startLine": 1}
    assert table["physicalLocation"]["artifactLocation"]["uriBaseId"] == "%SRCROOT3%"


def test_git_says_where_it_comes_from() -> None:
    run = log_of(REPORT)
    assert run["versionControlProvenance"] == [
        {
            "repositoryUri": "file:///srv/shop.git/",
            "revisionId": "1a2b3c4d5e6f",
            "mappedTo": {"uriBaseId": "%SRCROOT2%"},
        }
    ]
    assert run["results"][2]["properties"]["commit"] == "1a2b3c4d5e6f"


def test_further_places_are_related() -> None:
    result = log_of(REPORT)["results"][6]
    assert result["occurrenceCount"] == 2
    assert [place["physicalLocation"]["region"]["startLine"] for place in result["relatedLocations"]] == [9]


def test_what_was_decided_to_be_harmless_is_suppressed_and_what_is_real_is_not() -> None:
    confirmed, false_positive, revoked = log_of(REPORT)["results"][7:10]
    assert "suppressions" not in confirmed
    assert false_positive["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "false-positive (ada)"}
    ]
    assert revoked["suppressions"][0]["justification"] == "revoked (ada): because"


def test_every_item_that_was_not_fully_looked_at_is_in_a_notification() -> None:
    (invocation,) = log_of(REPORT)["invocations"]
    said = [notice["message"]["text"] for notice in invocation["toolExecutionNotifications"]]
    assert said == [
        "keys/a b.pem: failed, PERMISSION_DENIED.",
        r"\xff: skipped, SYMLINK.",
        "1 more items: failed, PERMISSION_DENIED.",
        "1 more items: failed, VANISHED.",
        "4 more items: partial, MEMBERS_SKIPPED.",
        "2 more items: skipped, SYMLINK.",
    ]
    uris = [
        notice["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for notice in invocation["toolExecutionNotifications"][:2]
    ]
    assert uris == ["keys/a%20b.pem", "%FF"]
    assert invocation["startTimeUtc"] == "2023-11-14T22:13:20Z"


def test_no_hash_of_a_secret_is_in_it() -> None:
    text = "".join(format_sarif(REPORT))
    assert not any(bytes.hex(secret)[:12] in text for secret in SECRETS)
