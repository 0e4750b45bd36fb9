"""`strandline findings export`: each format, to a file that is whole or as before, or to standard output."""

import csv
import errno
import io
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.findings import export
from strandline.pipeline.pages import Failed
from tests.cli.findings_runs import done, run
from tests.cli.scanned import FakeSource, Items, hit, scan
from tests.findings.reports.schema import check_sarif


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    items: Items = {
        "src/app.py": [hit("aws-access-key-id", "one", "src/app.py", 12, confidence=9)],
        "=cmd": [hit("github-pat", "two", "=cmd", 1)],
        "denied": Failed("PERMISSION_DENIED", retryable=False),
    }
    scan(tmp_path / "state", FakeSource("fs", str(tmp_path / "shop"), items))
    return tmp_path / "state"


def test_jsonl_is_the_default_and_goes_to_standard_output(state: Path) -> None:
    ran = done("export", state=state)
    assert [json.loads(line)["rule_id"] for line in ran.out.splitlines()] == ["github-pat", "aws-access-key-id"]
    assert ran.err == ""


@pytest.mark.parametrize("name", ["out.pdf", "out.jsonl.gz"])
def test_a_name_that_says_no_known_format_is_refused_unless_one_is_given(
    state: Path, tmp_path: Path, name: str
) -> None:
    ran = run("export", "-o", name, state=state)
    assert ran.code == 1
    assert f"{name}: {Path(name).suffix} is not a report format" in ran.err
    assert not (tmp_path / name).exists()
    done("export", "-o", name, "--format", "jsonl", state=state)
    done("export", "-o", "without", state=state)
    assert (tmp_path / name).read_text() == (tmp_path / "without").read_text()


def test_csv_has_a_row_for_each_finding_and_no_formula(state: Path) -> None:
    table = list(csv.DictReader(io.StringIO(done("export", "--format", "csv", state=state).out)))
    assert [row["path"] for row in table] == ["'=cmd", "src/app.py"]


def test_sarif_is_valid_and_says_what_was_not_looked_at(state: Path, tmp_path: Path) -> None:
    done("export", "-o", "out.sarif", state=state)
    (log,) = check_sarif((tmp_path / "out.sarif").read_text())["runs"]
    assert [result["ruleId"] for result in log["results"]] == ["github-pat", "aws-access-key-id"]
    (notice,) = log["invocations"][0]["toolExecutionNotifications"]
    assert notice["message"]["text"] == "denied: failed, PERMISSION_DENIED."
    assert log["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"file://{tmp_path}/shop/"


def test_html_is_one_page_without_a_hash_of_a_secret(state: Path, tmp_path: Path) -> None:
    (row, *_) = map(json.loads, done("export", state=state).out.splitlines())
    done("export", "-o", "out.html", state=state)
    page = (tmp_path / "out.html").read_text()
    assert "2 open secrets in 2 files" in page
    assert row["finding_id"] in page
    assert row["secret"][:12] not in page


def test_gitleaks_names_no_secret(state: Path) -> None:
    entries = json.loads(done("export", "--format", "gitleaks", state=state).out)
    assert [entry["Fingerprint"] for entry in entries] == ["=cmd:github-pat:1", "src/app.py:aws-access-key-id:12"]
    assert {entry["Secret"] for entry in entries} == {"REDACTED"}


def test_a_file_is_replaced_whole_and_the_rest_is_told(state: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("before")
    ran = done("export", "-o", "out.csv", "--rule", "aws-*", state=state)
    assert (ran.out, ran.err) == ("", "out.csv: 1 finding, csv\n")
    assert (tmp_path / "out.csv").read_text().count("\n") == 2
    assert stat.S_IMODE((tmp_path / "out.csv").stat().st_mode) & 0o111 == 0
    assert not (tmp_path / "out.csv.tmp").exists()


def test_an_export_that_fails_in_the_middle_leaves_the_old_file(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Iterator[str]:
        yield "half"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "format_report", broken)
    (tmp_path / "out.csv").write_text("before")
    assert "No space left" in run("export", "-o", "out.csv", state=state).err
    assert (tmp_path / "out.csv").read_text() == "before"


def test_a_place_that_cannot_be_written_is_an_error(state: Path) -> None:
    assert "No such file" in run("export", "-o", "no/where.csv", state=state).err
    assert "is a folder" in run("export", "-o", "shop", state=state).err


def test_the_same_results_give_the_same_report(state: Path) -> None:
    for form in ("jsonl", "csv", "sarif", "html", "baseline", "gitleaks"):
        first, second = (done("export", "--format", form, state=state).out for _ in range(2))
        assert first == second
