"""`scan --follow`: a journal is scanned as it grows, until a signal; what it found is listed as of any other scan."""

import json
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.cli import scan as command
from strandline.detect import expand
from strandline.errors import StrandlineError
from strandline.findings.report_builder import build_report
from strandline.journal import Journal
from strandline.scan.state import DEFAULT_TENANT, open_state
from tests.cli.runs import run_command
from tests.waiting import PATIENCE_S


def append(path: Path, seed: str) -> None:
    with Journal.open(path) as journal:
        journal.append([b"nothing", expand("GITHUB_TOKEN={{github-crc32:ghp_}}", seed).encode()])


def places(state: Path) -> list[str]:
    """Return what `findings list` shows; commands cannot be run in two threads at once."""
    with suppress(StrandlineError), open_state(str(state), tenant=DEFAULT_TENANT) as opened:
        return [finding.display for finding in build_report(opened).findings]
    return []


def test_it_goes_on_until_a_signal_and_its_findings_are_listed_meanwhile_and_after(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "session_factory", lambda *_, **__: lambda: spark)
    journal, state = tmp_path / "j", tmp_path / "state"
    append(journal, "1")
    meanwhile: list[list[str]] = []

    def grow() -> None:
        for count in (1, 2):
            deadline = time.monotonic() + PATIENCE_S
            while len(found := places(state)) < count and time.monotonic() < deadline:
                time.sleep(0.2)
            meanwhile.append(found)
            if count == 1:
                append(journal, "2")
        os.kill(os.getpid(), signal.SIGTERM)

    growing = threading.Thread(target=grow)
    growing.start()
    ran = run_command("scan", "--journal", journal, "--follow", "--state", state, "--json")
    growing.join()
    assert ran.code == 0, ran.err
    assert [len(found) for found in meanwhile] == [1, 2]
    *found, last = map(json.loads, ran.out.splitlines())
    assert len(found) == 2
    assert meanwhile[1] == places(state)
    assert last["summary"] == {"next_offset": 4, "blocks_looked_at": 2, "findings": 2}
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--journal", "{j}", "."], "--follow takes one journal and no other source"),
        (["."], "--follow takes one journal and no other source"),
        (["--journal", "{j}", "--without-spark"], "--follow needs Spark"),
        (["--journal", "{j}", "--explain"], "--follow needs Spark"),
    ],
)
def test_what_does_not_go_with_it_is_refused_before_anything_is_made(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    append(tmp_path / "j", "1")
    given = [argument.format(j=tmp_path / "j") for argument in arguments]
    ran = run_command("scan", "--follow", "--state", tmp_path / "state", *given)
    assert ran.code == 1
    assert problem in ran.err
    assert not (tmp_path / "state").exists()
