"""`strandline journal bench`: figures that were checked, and no trace afterwards."""

import json
from pathlib import Path

import pytest

from strandline.journal import Appended, Journal
from tests.cli.journal_runs import run

QUICK = ("--seconds", "0.02")


def test_every_figure_is_there_and_the_folder_is_clean_afterwards(tmp_path: Path) -> None:
    ran = run("bench", tmp_path, *QUICK, "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    measured = [(row["what"], row["batch"]) for row in rows]
    appends = [(f"append {durability}", batch) for durability in ("WRITTEN", "SYNCED") for batch in (1, 100, 1000)]
    assert measured == [*appends, ("scan to Arrow", None)]
    assert all(row["records_per_s"] > 0 and row["bytes_per_s"] > 0 and row["us_per_call"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_people_get_a_table(tmp_path: Path) -> None:
    ran = run("bench", tmp_path, *QUICK, "--record-bytes", "64")
    assert ran.code == 0
    assert "records of 64 bytes" in ran.out
    assert "append SYNCED" in ran.out


def test_a_figure_that_is_not_true_is_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "append", lambda *_, **__: Appended(0, 0))
    ran = run("bench", tmp_path, *QUICK)
    assert (ran.code, ran.out) == (1, "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_explained(tmp_path: Path) -> None:
    ran = run("bench", tmp_path / "none")
    assert (ran.code, ran.out) == (1, "")
    assert "there is no such folder\nhint: give a folder on the disk to measure" in ran.err


def test_impossible_options_are_refused(tmp_path: Path) -> None:
    assert run("bench", tmp_path, "--seconds", "0").code == 2
    assert run("bench", tmp_path, "--record-bytes", "1").code == 2
