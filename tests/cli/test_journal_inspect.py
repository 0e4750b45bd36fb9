"""`strandline journal inspect`: what a journal is, without touching it."""

import json
from pathlib import Path

import pytest

from strandline.journal import Journal
from tests.cli.journal_runs import CONFIG, make_journal, run, run_process, segments_of, snapshot


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return make_journal(tmp_path / "journal")


def test_everything_is_told_and_nothing_changed(journal: Path) -> None:
    before = snapshot(journal)
    ran = run("inspect", journal, "--json")
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert (told["first_offset"], told["next_offset"], told["durable_offset"]) == (0, 180, 180)
    assert told["bytes"] == sum(path.stat().st_size for path in segments_of(journal))
    assert (told["writer"], told["torn"], told["damage"], told["quarantine"]) == (False, None, [], [])
    with Journal.open(journal) as opened:
        assert told["identity"] == opened.identity.hex()
    assert snapshot(journal).keys() == before.keys()


def test_segments_are_told_one_by_one(journal: Path) -> None:
    told = json.loads(run("inspect", journal, "--json").out)["segments"]
    assert [segment["segment"] for segment in told] == [path.name for path in segments_of(journal)]
    assert [segment["base_offset"] for segment in told] == [0, *(segment["end_offset"] for segment in told[:-1])]
    assert sum(segment["records"] for segment in told) == 180
    assert all(segment["created"] and segment["last_append"] for segment in told)


def test_people_get_tables(journal: Path) -> None:
    ran = run("inspect", journal)
    assert ran.code == 0
    assert "next_offset     180" in ran.out
    assert "none seen; verify reads everything" in ran.out
    assert all(path.name in ran.out for path in segments_of(journal))


def test_it_works_beside_a_writer(journal: Path) -> None:
    with Journal.open(journal, CONFIG) as opened:
        opened.append([b"more"])
        before = snapshot(journal)
        told = json.loads(run("inspect", journal, "--json").out)
        assert snapshot(journal) == before
        assert (told["writer"], told["next_offset"], told["durable_offset"]) == (True, 181, 181)
        assert "at work" in run("inspect", journal).out


def test_a_torn_tail_is_told_and_left(journal: Path) -> None:
    last = segments_of(journal)[-1]
    last.write_bytes(last.read_bytes() + b"torn")
    before = snapshot(journal)
    ran = run("inspect", journal)
    assert ran.code == 0
    assert "4 bytes at the end were never acknowledged" in ran.out
    assert json.loads(run("inspect", journal, "--json").out)["torn"]["bytes"] == 4
    assert snapshot(journal) == before


def test_damage_that_can_be_seen_without_reading_everything_is_told_with_exit_code_3(journal: Path) -> None:
    segments_of(journal)[1].unlink()
    ran = run("inspect", journal)
    assert ran.code == 3
    assert "1 place is damaged" in ran.out
    assert "a segment is missing" in ran.err
    assert "hint: offsets [0, " in ran.err
    told = json.loads(run("inspect", journal, "--json").out)
    assert told["damage"][0]["problem"] == "a segment is missing"


def test_what_does_not_belong_there_is_named(journal: Path) -> None:
    (journal / "notes.txt").write_text("mine")
    (journal / "quarantine").mkdir()
    (journal / "quarantine" / "old.bytes").write_text("old")
    ran = run("inspect", journal)
    assert "notes.txt" in ran.out
    assert "1 files that a repair moved aside" in ran.out


def test_an_empty_journal_is_a_journal(tmp_path: Path) -> None:
    Journal.open(tmp_path).close()
    told = json.loads(run("inspect", tmp_path, "--json").out)
    assert (told["first_offset"], told["next_offset"], len(told["segments"])) == (0, 0, 1)


def test_it_runs_as_a_process(journal: Path) -> None:
    ran = run_process("inspect", journal, "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["next_offset"] == 180
