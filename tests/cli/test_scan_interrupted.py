"""A scan that Ctrl-C or a kill ends: nothing calls it clean, what it stored is shown, and it goes on."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.findings_runs import done
from tests.cli.scan_command import Repository
from tests.cli.stopped_scans import stopped


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path)
    repository.commit(**{f"file{number}": f"alpha_0000000{number}\n" for number in range(8)})
    return repository


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
