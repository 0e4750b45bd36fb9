"""`strandline journal dump`: records as lines that people, or programs, can read."""

import base64
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.shown import escape
from strandline.journal import WRITTEN, Journal
from tests.cli.journal_runs import SCRIPT, flip, make_journal, run, segments_of, snapshot
from tests.waiting import PATIENCE_S


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with Journal.open(tmp_path / "journal") as opened:
        opened.append([b"plain", "grün".encode(), b"\x00\xff\n\\"])
        opened.append([b"v"], keys=[b"k\t"], headers=[b"a=1"], timestamps=[1_700_000_000_000_000_001])
    return tmp_path / "journal"


def dumped(*arguments: str | Path) -> list[dict[str, object]]:
    ran = run("dump", *arguments, "--json")
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def test_people_get_a_line_per_record_with_its_bytes_escaped(journal: Path) -> None:
    before = snapshot(journal)
    ran = run("dump", journal)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "0  value=plain",
        "1  value=grün",
        r"2  value=\x00\xff\n\\",
        r"3  time=2023-11-14T22:13:20.000000001Z  key=k\t  headers=a=1  value=v",
    ]
    assert snapshot(journal) == before


def test_programs_get_text_or_base64_but_never_a_guess(journal: Path) -> None:
    assert dumped(journal) == [
        {"offset": 0, "value": "plain"},
        {"offset": 1, "value": "grün"},
        {"offset": 2, "value_base64": base64.b64encode(b"\x00\xff\n\\").decode()},
        {"offset": 3, "timestamp_ns": 1_700_000_000_000_000_001, "key": "k\t", "headers": "a=1", "value": "v"},
    ]


@given(st.binary())
def test_escaped_bytes_stay_on_one_line_and_can_be_told_apart(data: bytes) -> None:
    shown = escape(data)
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable()
    if data.isascii():
        assert shown.encode().decode("unicode_escape").encode() == data


def test_a_range_is_chosen_by_start_stop_and_limit(tmp_path: Path) -> None:
    make_journal(tmp_path)

    def offsets(*options: str) -> list[object]:
        return [record["offset"] for record in dumped(tmp_path, *options)]

    assert offsets() == list(range(180))
    assert offsets("--start", "100", "--stop", "104") == [100, 101, 102, 103]
    assert offsets("--start", "100", "--limit", "2") == [100, 101]
    assert offsets("--limit", "0") == []
    assert offsets("--start", "177", "--stop", "1000", "--limit", "50") == [177, 178, 179]
    assert offsets("--start", "180") == []
    assert offsets("--start", "10", "--stop", "5") == []


def test_an_offset_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with Journal.open(make_journal(tmp_path)) as journal:
        journal.remove_below(100)
        first = journal.first_offset
    below, beyond = (run("dump", tmp_path, "--start", start) for start in ("0", "500"))
    assert (below.code, beyond.code) == (1, 1)
    assert f"offset 0 is below the retained range [{first}, 180)" in below.err
    assert f"hint: start at {first}" in below.err
    assert "offset 500 is beyond the readable range" in beyond.err
    assert dumped(tmp_path)[0]["offset"] == first


@pytest.mark.parametrize("option", ["--start", "--stop", "--limit"])
def test_a_negative_number_is_a_wrong_command_line(option: str, journal: Path) -> None:
    ran = run("dump", journal, option, "-1")
    assert (ran.code, ran.out) == (2, "")


def test_lost_offsets_are_skipped_and_named(tmp_path: Path) -> None:
    make_journal(tmp_path)
    flip(segments_of(tmp_path)[1], 200)
    assert run("repair", tmp_path, "--yes").code == 0
    ran = run("dump", tmp_path, "--json")
    assert ran.code == 0
    assert ran.err.startswith("note: offsets [")
    assert len(ran.out.splitlines()) == 177


def test_damage_ends_it_with_exit_code_3_after_what_comes_before(tmp_path: Path) -> None:
    make_journal(tmp_path)
    flip(segments_of(tmp_path)[1], 200)
    ran = run("dump", tmp_path, "--json")
    assert ran.code == 3
    assert "the checksum does not match" in ran.err
    lines = ran.out.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == list(range(len(lines)))


def test_records_that_are_not_durable_are_shown_only_when_asked_for(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        journal.append([b"durable"])
        journal.append([b"written"], durability=WRITTEN)
        assert len(dumped(tmp_path)) == 1
        assert len(dumped(tmp_path, "--written")) == 2


def test_following_shows_what_comes_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [*SCRIPT, "dump", str(tmp_path), "--follow"]
    with Journal.open(tmp_path) as journal:
        journal.append([b"first"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "0  value=first\n"
            journal.append([b"second"])
            assert child.stdout.readline() == "1  value=second\n"
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130
    assert "Traceback" not in said


def test_following_stops_where_it_was_told_to(tmp_path: Path) -> None:
    make_journal(tmp_path)
    began = time.monotonic()
    assert [record["offset"] for record in dumped(tmp_path, "--follow", "--start", "90", "--limit", "2")] == [90, 91]
    assert time.monotonic() - began < PATIENCE_S


def test_a_reader_that_leaves_early_is_no_error_worth_a_traceback(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        journal.append([b"a long value " * 100] * 2000)
    command = [*SCRIPT, "dump", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert "Traceback" not in child.stderr.read()
