"""A scan that Ctrl-C or a kill ends: nothing calls it clean, what it stored is shown, and it goes on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.findings_runs import done
from tests.cli.scan_command import Repository
from tests.waiting import PATIENCE_S

STOPS = """
import signal, sys
from strandline.scan.worker import shard_scanner
from strandline.scan.worker.page_writer import PageWriter
from strandline.cli.app import main

shard_scanner.PAGE_ITEMS_MAX = 1
flush, flushed = PageWriter.flush, []

def flush_and_stop(page, row):
    flush(page, row)
    flushed.append(row)
    if len(flushed) == 3:
        print("three items are committed", file=sys.stderr, flush=True)
        signal.pause()

PageWriter.flush = flush_and_stop
main()
"""
"""The command, with pages of one item; it waits for a signal after the third."""


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path)
    repository.commit(**{f"file{number}": f"alpha_0000000{number}\n" for number in range(8)})
    return repository


def stopped(shop: Repository, number: signal.Signals, *arguments: str) -> tuple[int, str, str]:
    """Scan in a process of its own, and send it a signal after three items."""
    words = ["scan", str(shop.folder), "--rules", str(shop.rules), "--state", str(shop.state), "--without-spark"]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPS, *words, "--lease-s", "1", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"STRANDLINE_USER": "ada"},
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "three items are committed" in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, said + err


def test_ctrl_c_prints_what_is_stored_and_nothing_calls_it_clean(shop: Repository, tmp_path: Path) -> None:
    code, out, err = stopped(shop, signal.SIGINT, "-o", str(tmp_path / "report.sarif"))
    assert code == 130, err
    assert out.count("alpha") == 3
    assert "3 of 8 items are scanned" in err
    assert "interrupted: 3 findings are stored" in err
    assert "the same command goes on" in err
    assert not (tmp_path / "report.sarif").exists()
    listed = done("list", state=shop.state)
    assert listed.out.count("alpha") == 3
    assert "is not finished: 3 of 8 items are scanned; if it was interrupted, the same command goes on" in listed.err
    counted = json.loads(done("coverage", "--json", state=shop.state).out)
    assert {row["status"]: row["items"] for row in counted["counts"]} == {"scanned": 3, "failed": 5}
    assert [scan["done"] for scan in counted["unfinished"]] == [3]
    err = done("coverage", state=shop.state).err
    assert "unfinished: the scan of " in err
    assert "and 5 more incomplete items\n" in err, "no limit shows them"
    sarif = json.loads(done("export", "--format", "sarif", state=shop.state).out)
    (invocation,) = sarif["runs"][0]["invocations"]
    assert not invocation["executionSuccessful"]
    said = [one["descriptor"]["id"] for one in invocation["toolExecutionNotifications"]]
    assert said == ["item-failed", "scan-unfinished"]
    assert "Findings may be missing" in done("export", "--format", "html", state=shop.state).out
    again = shop.scan("--lease-s", "1")
    assert again.code == 1
    assert again.out.count("alpha") == 8
    assert "resuming" in again.err
    assert "unfinished" not in done("list", state=shop.state).err
    assert json.loads(done("coverage", "--json", state=shop.state).out)["unfinished"] == []


def test_a_killed_rescan_shows_the_last_one_and_what_is_new(shop: Repository) -> None:
    for _ in range(2):
        shop.scan()
    shop.commit(**{f"more{number}": f"beta_0000000{number}\n" for number in range(5)})
    code, _, _ = stopped(shop, signal.SIGKILL)
    assert code == -signal.SIGKILL
    listed = done("list", state=shop.state)
    assert (listed.out.count("alpha"), listed.out.count("beta")) == (8, 3)
    assert "3 of 5 items are scanned" in listed.err
    assert len(shop.ids("--is", "new")) == 3
