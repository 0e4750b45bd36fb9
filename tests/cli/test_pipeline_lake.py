"""`strandline pipeline` on a lake: made, shown, checked and compacted, with errors that say what to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.pipeline.stores import open_stores
from strandline.testing.persistence_helpers import after, batch_of, done, found
from tests.cli.runs import Ran, run_command


def run(*arguments: str | Path) -> Ran:
    return run_command("pipeline", *arguments)


def told(*arguments: str | Path) -> dict[str, Any]:
    ran = run(*arguments, "--json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    assert isinstance(record, dict)
    return record


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A lake with a page of each kind."""
    address = f"file://{tmp_path}/lake"
    assert told("init", address)["created"]
    with open_stores(address) as stores:
        stores.findings.upsert_batch(batch_of(found()))
        stores.ledger.batch_upsert([done("a")], after=after([done("a")]))
    return address


def test_a_lake_is_made_shown_and_checked(lake: str) -> None:
    assert not told("init", lake)["created"]
    assert told("migrate", lake)["applied"] == []
    status = told("status", lake)
    assert (status["rows"]["ledger_entries"], status["rows"]["findings"]) == (1, 1)
    assert [policy["scanned_clean"] for policy in status["policies"]] == [1]
    assert told("verify", lake)["whole"]


def test_pages_are_folded_once_and_shown_the_same(lake: str) -> None:
    before = told("status", lake)["rows"]
    assert told("compact", lake, "--dry-run")["pages"] == 2
    first = told("compact", lake)
    assert (first["pages"], first["rows"], first["applied"]) == (
        2,
        {"findings": 1, "occurrences": 1, "observations": 1, "ledger": 1},
        True,
    )
    assert told("compact", lake, "--grace-h", "0")["deleted"] == 2
    assert told("status", lake)["rows"] == before
    ran = run("compact", lake)
    assert "folded 0 pages" in ran.out


def test_a_lake_is_copied_into_a_file(lake: str, tmp_path: Path) -> None:
    rows = told("copy", lake, tmp_path / "copied.db")["rows"]
    assert (rows["findings"], rows["ledger"]) == (1, 1)
    assert "findings: 1" in run("copy", lake, tmp_path / "copied.db").out
    assert told("verify", tmp_path / "copied.db")["whole"]
    ran = run("copy", lake, lake)
    assert (ran.code, "into itself" in ran.err) == (1, True)


def test_what_is_no_lake_is_not_compacted(tmp_path: Path) -> None:
    run("init", tmp_path / "pipeline.db")
    ran = run("compact", tmp_path / "pipeline.db")
    assert ran.code == 1
    assert "only a lake is compacted" in ran.err
    ran = run("compact", f"file://{tmp_path}/nothing")
    assert "holds no pipeline" in ran.err
    assert "strandline pipeline init" in ran.err
