"""The exit code of `strandline scan` over a repository: open findings fail it, settled ones do not."""

import json
from pathlib import Path

import pytest

from tests.cli.runs import run_command
from tests.cli.scan_command import Repository


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path)
    repository.commit(one="alpha_12345678\n", two="beta_12345678\n")
    return repository


def test_open_findings_fail_the_scan_and_the_code_can_be_chosen(shop: Repository) -> None:
    ran = shop.scan()
    assert ran.code == 1
    assert "exit code 1: 2 open findings (--exit-zero leaves with 0)" in ran.err
    assert shop.scan("--exit-code", "7").code == 7
    assert shop.scan("--exit-code=7", "--quiet").code == 7
    assert shop.scan("--exit-code", "0").code == 0
    assert shop.scan("--exit-code").code == 1, "the value may be left out"
    assert shop.scan("--exit-code", "--json").code == 1
    assert shop.scan("--exit-zero").code == 0
    assert shop.scan("--exit-code=many").code == 2


def test_a_settled_finding_no_longer_fails_it_and_reopened_it_does(shop: Repository) -> None:
    shop.scan()
    first, second = shop.ids()
    assert shop.triage(first, "--as", "false-positive").code == 0
    ran = shop.scan()
    assert ran.code == 1
    assert "findings: 2, 1 open" in ran.err
    assert shop.triage(second, "--as", "revoked").code == 0
    ran = shop.scan("--json")
    assert ran.code == 0
    summary = json.loads(ran.out.splitlines()[-1])["summary"]
    assert (summary["findings"], summary["open"]) == (2, 0)
    shop.triage(first, "--as", "open")
    assert shop.scan().code == 1


def test_rules_and_confidence_narrow_it(shop: Repository) -> None:
    ran = shop.scan("--rule", "beta", "--json")
    *rows, last = map(json.loads, ran.out.splitlines())
    assert ([row["rule_id"] for row in rows], last["summary"]["open"], ran.code) == (["beta"], 1, 1)
    misspelt = shop.scan("--rule", "beta", "--rule", "alhpa*", "--exit-code", "4")
    assert (misspelt.code, "--rule alhpa*: no rule of this scan has this id" in misspelt.err) == (1, True)
    assert shop.scan("--confidence", "0").code == 1
    assert shop.scan("--confidence", "10").code == 0
    assert "not a confidence" in shop.scan("--confidence", "very").err


def test_states_choose_what_counts(shop: Repository) -> None:
    shop.scan()
    for finding in shop.ids():
        shop.triage(finding, "--as", "confirmed")
    assert shop.scan().code == 0
    ran = shop.scan("--is", "open", "--is", "confirmed")
    assert ran.code == 1
    assert "exit code 1: 2 findings" in ran.err


def test_only_new_findings_can_fail_it(shop: Repository) -> None:
    assert shop.scan("--is", "new").code == 1, "at first everything is new"
    assert shop.scan("--is", "new").code == 0
    shop.commit(three="alpha_00000003\n", one="\nalpha_12345678\n")
    ran = shop.scan("--is", "new", "--json")
    *rows, _ = map(json.loads, ran.out.splitlines())
    assert (ran.code, [row["path"] for row in rows]) == (1, ["three"])
    assert len(shop.ids("--is", "new")) == 1
    assert len(shop.ids()) == 3
    run_command("scan", shop.folder / "two", "--rules", shop.rules, "--state", shop.state, "--without-spark")
    assert not shop.ids("--is", "new", "--rule", "beta"), "a scan of a part makes nothing new"
