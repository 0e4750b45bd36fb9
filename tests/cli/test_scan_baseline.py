"""A baseline that was made in one clone holds in another, under another key."""

import json
import shutil
from pathlib import Path

from tests.cli.runs import Ran, run_command
from tests.cli.scan_command import RULES, Repository


def scan_clone(shop: Repository, name: str, known: Path, *more: str) -> Ran:
    """Clone the repository, and scan the clone with a state and a key of its own."""
    place = shop.folder.parent / name
    shutil.rmtree(place, ignore_errors=True)
    shop.git("clone", "--quiet", ".", str(place))
    state = shop.folder.parent / f"{name}-state"
    words = ("scan", place, "--rules", shop.rules, "--state", state, "--without-spark", "--baseline", known)
    return run_command(*words, *more)


def test_it_holds_in_a_fresh_clone_and_warns_when_it_does_not_fit(tmp_path: Path) -> None:
    shop = Repository(tmp_path)
    shop.commit(one="alpha_00000001\nalpha_00000002 beta_00000001\n", two="alpha_00000001\n")
    known = tmp_path / "known.jsonl"
    assert shop.scan("--format", "baseline", "-o", known).code == 1
    rows = [json.loads(line) for line in known.read_text().splitlines()]
    assert [(row["rule_id"], row["path"], row["nth"]) for row in rows] == [
        ("alpha", "one", 1),
        ("alpha", "one", 2),
        ("beta", "one", 1),
        ("alpha", "two", 1),
    ]
    assert {*rows[0]} == {"rule_id", "path", "line", "nth"}, "nothing is derived from a secret"
    first = scan_clone(shop, "clone", known)
    assert (first.code, "4 by baseline" in first.err, "warning" in first.err) == (0, True, False)
    shop.commit(one="\n\nalpha_00000001\nalpha_00000002 beta_00000001\nalpha_00000003\n")
    moved = scan_clone(shop, "clone", known, "--json")
    *found, _ = map(json.loads, moved.out.splitlines())
    assert (moved.code, [row["location"] for row in found]) == (1, ["one:5:1"])
    shop.commit(one="alpha_00000002\n")
    for more in ((), ("--quiet",), ("--json",), ("--quiet", "--format", "sarif")):
        err = scan_clone(shop, "clone", known, *more).err
        assert err.count(f"warning: baseline {known} does not fit: one has fewer secrets by now") == 1, more
    known.write_text(json.dumps({"rule_id": "alpha", "path": "elsewhere/one", "line": 1, "nth": 1}))
    assert "is it of another folder?" in scan_clone(shop, "clone", known).err


def test_sarif_names_a_finding_the_same_in_every_clone(tmp_path: Path) -> None:
    shop = Repository(tmp_path)
    shop.commit(one="alpha_00000001\nalpha_00000002\n")
    (tmp_path / "none").write_text("")
    places = []
    for name in ("a", "b"):
        report = json.loads(scan_clone(shop, name, tmp_path / "none", "--format", "sarif").out)
        results = report["runs"][0]["results"]
        places.append([result["partialFingerprints"]["strandlinePlace/v1"] for result in results])
    assert places == [["one:alpha:1", "one:alpha:2"]] * 2


def test_hashes_of_reports_are_no_findings_and_a_secret_beside_them_is(tmp_path: Path) -> None:
    shop = Repository(tmp_path)
    hashed = "3f9c0a51be7d46288e1b7c94d05fa6e2" * 2
    shop.commit(
        report=f'{{"finding_id": "{hashed}", "rule_id": "x", "secret": "{hashed}", "state": "open"}}\n',
        other=f'{{"name": "x", "secret": "{hashed}"}}\n',
        long=f'{{"finding_id": "{"0 " * 50_000}", "secret": "{hashed}"}}\n',
        **{".secrets.baseline": f'{{"a": [\n  {{"hashed_secret": "{hashed[:40]}"}}]}}\n'},
    )
    ran = run_command("scan", shop.folder, "--rules", "builtin", "--state", shop.state, "--without-spark", "--json")
    *rows, _ = map(json.loads, ran.out.splitlines())
    found = {row["path"] for row in rows}
    assert found == {"other", "long"}, "a line is read back to a bound, however many findings are on it"


def test_it_holds_for_a_blob_with_several_paths(tmp_path: Path) -> None:
    shop = Repository(tmp_path)
    shop.rules.write_text(f"{RULES}path = '.'\n")  # rules that look at paths see each path of a blob
    shop.commit(one="alpha_00000001\n", two="alpha_00000001\n", three="alpha_00000002\nalpha_00000001\n")
    known = tmp_path / "known.jsonl"
    assert shop.scan("--git", "--format", "baseline", "-o", known).code == 1
    rows = [json.loads(line) for line in known.read_text().splitlines()]
    assert sorted((row["path"], row["line"], row["nth"]) for row in rows) == [
        ("one", 1, 1),
        ("three", 1, 1),
        ("three", 2, 2),
        ("two", 1, 1),
    ]
    for more in ((), ("--git",)):
        ran = scan_clone(shop, "clone", known, *more)
        assert (ran.code, "warning" in ran.err) == (0, False), ran.err
