"""`strandline journal verify`: everything is read, and the exit code tells."""

import json
from pathlib import Path

import pytest

from strandline.journal import Journal
from tests.cli.journal_runs import CONFIG, flip, make_journal, run, run_process, segments_of, snapshot
from tests.cli.terminal import run_on_terminal


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return make_journal(tmp_path / "journal")


def verified(path: Path, code: int = 0) -> dict[str, object]:
    ran = run("verify", path, "--json")
    assert ran.code == code
    told = json.loads(ran.out)
    assert isinstance(told, dict)
    return told


def test_a_whole_journal_is_said_to_be_whole_with_what_was_checked(journal: Path) -> None:
    before = snapshot(journal)
    told = verified(journal)
    assert (told["whole"], told["records"], told["batches"], told["lost"]) == (True, 180, 60, 0)
    size = sum(path.stat().st_size - 64 for path in segments_of(journal))
    assert (told["segments"], told["bytes"]) == (len(segments_of(journal)), size)
    assert isinstance(told["seconds"], float)
    assert (told["torn"], told["damage"], told["notes"]) == (None, [], [])
    ran = run("verify", journal)
    assert (ran.code, ran.err) == (0, "")
    assert "checked 180 records in 60 batches and" in ran.out
    assert "/s)" in ran.out
    assert ran.out.endswith("whole\n")
    assert snapshot(journal) == before


def test_every_single_flipped_byte_of_a_segment_is_found(tmp_path: Path) -> None:
    with Journal.open(tmp_path, CONFIG) as journal:
        journal.append([b"one", b"two"])
        journal.append([b"three"])
    (segment,) = segments_of(tmp_path)
    whole = segment.read_bytes()
    for position in range(len(whole)):
        flip(segment, position)
        assert run("verify", tmp_path).code in ({1, 3} if position < 8 else {3}), f"byte {position}"
        segment.write_bytes(whole)
    assert run("verify", tmp_path).code == 0


def test_every_damaged_place_is_told_with_exit_code_3(journal: Path) -> None:
    flip(segments_of(journal)[0], 200)
    flip(segments_of(journal)[2], 300)
    ran = run("verify", journal)
    assert ran.code == 3
    assert ran.out.count("damaged: ") == 2
    assert ran.out.endswith("2 places are damaged\n")
    assert "hint: " in ran.err
    told = verified(journal, code=3)
    assert told["whole"] is False
    assert isinstance(told["damage"], list)
    assert len(told["damage"]) == 2
    assert told["records"] == 174


def test_a_torn_tail_is_told_and_is_not_damage(journal: Path) -> None:
    last = segments_of(journal)[-1]
    last.write_bytes(last.read_bytes() + b"SLB1 torn")
    ran = run("verify", journal)
    assert ran.code == 0
    assert "torn tail: 9 bytes that were never acknowledged" in ran.out
    assert ran.out.endswith("whole\n")


def test_offsets_that_a_repair_marked_are_counted_and_are_not_damage(journal: Path) -> None:
    flip(segments_of(journal)[0], 200)
    run("repair", journal, "--yes")
    told = verified(journal)
    assert (told["whole"], told["lost"], told["records"]) == (True, 3, 177)
    assert "3 offsets are marked as lost" in run("verify", journal).out


def test_what_can_be_made_again_is_a_note(journal: Path) -> None:
    min(journal.glob("*.index")).unlink()
    (journal / "manifest").unlink()
    told = verified(journal)
    assert told["whole"] is True
    assert isinstance(told["notes"], list)
    assert len(told["notes"]) == 2
    assert "note: the manifest is missing or damaged" in run("verify", journal).out


def test_it_works_beside_a_writer(journal: Path) -> None:
    with Journal.open(journal, CONFIG) as opened:
        opened.append([b"more"])
        told = verified(journal)
        assert (told["whole"], told["writer"], told["records"]) == (True, True, 181)


def test_it_runs_as_a_process_with_the_exit_code_of_damage(journal: Path) -> None:
    assert run_process("verify", journal).returncode == 0
    flip(segments_of(journal)[0], 200)
    ran = run_process("verify", journal)
    assert ran.returncode == 3
    assert ran.stderr.startswith("error: ")
    assert "Traceback" not in ran.stderr


def test_a_terminal_gets_a_bar_and_a_pipe_does_not(journal: Path) -> None:
    assert "reading" in run_on_terminal("verify", str(journal))[1]
    assert run_process("verify", journal).stderr == ""
