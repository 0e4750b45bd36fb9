"""`scan --follow`: a journal is scanned as it grows, until a signal; what it found is listed as of any other scan."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from strandline.cli import scan as command
from strandline.detect import expand
from strandline.errors import StrandlineError
from strandline.findings.report_builder import build_report
from strandline.journal import Journal
from strandline.scan.state import DEFAULT_TENANT, open_state
from tests.alarms.receiver import SECRET, receiving
from tests.cli.runs import run_command
from tests.waiting import PATIENCE_S, eventually


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


def test_one_whose_java_is_killed_raises_an_alarm_that_is_resolved_when_it_runs_again(tmp_path: Path) -> None:
    journal, state = tmp_path / "j", tmp_path / "state"
    append(journal, "1")
    with receiving() as server:
        (tmp_path / "strandline.toml").write_text(
            f'[alarms]\nwebhook = ["{server.url}"]\nwebhook-secret = {{ env = "HOOK_SECRET" }}\noutbox = "outbox"\n'
        )
        with following(tmp_path, journal, state) as process:
            eventually(lambda: len(places(state)) == 1, "the first record is scanned")
            (java,) = (one for one in psutil.Process(process.pid).children(recursive=True) if one.name() == "java")
            java.kill()
            assert process.wait(PATIENCE_S) == 1
        assert server.states("scan_stopped") == ["raised"]
        assert b"/j" not in b"".join(server.bodies), "no path of what was scanned"
        append(journal, "2")
        with following(tmp_path, journal, state) as process:
            eventually(lambda: server.states("scan_stopped") == ["raised", "resolved"], "it runs again")
            eventually(lambda: len(places(state)) == 2, "from where it was")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        assert server.states("scan_stopped") == ["raised", "resolved"], "who stops it knows"


@contextmanager
def following(folder: Path, journal: Path, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Follow a journal in a process of its own."""
    words = ["scan", "--journal", str(journal), "--follow", "--quiet", "--state", str(state)]
    with subprocess.Popen(
        [sys.executable, "-m", "strandline", *words], cwd=folder, env=os.environ | {"HOOK_SECRET": SECRET}
    ) as process:
        try:
            yield process
        finally:
            process.kill()
