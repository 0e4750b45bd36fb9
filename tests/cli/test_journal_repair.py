"""`strandline journal repair`: the plan first, then a question, then the repair; and the damaged bytes are kept."""

import json
import shutil
from pathlib import Path

import pytest

from strandline.errors import OffsetsLost
from strandline.journal import Journal, JournalReader
from tests.cli.journal_runs import flip, make_journal, run, run_process, segments_of, snapshot
from tests.cli.terminal import run_on_terminal


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    journal = make_journal(tmp_path / "journal")
    flip(segments_of(journal)[1], 300)
    return journal


def test_a_dry_run_shows_the_plan_changes_nothing_and_exits_with_3(damaged: Path) -> None:
    before = snapshot(damaged)
    ran = run("repair", damaged, "--dry-run")
    assert ran.code == 3
    assert "as lost; the " in ran.out
    assert "3 offsets are lost" in ran.out
    assert "nothing was changed" in ran.err
    assert snapshot(damaged) == before


def test_a_repair_tells_where_the_damaged_bytes_are(damaged: Path) -> None:
    before = segments_of(damaged)[1].read_bytes()
    ran = run("repair", damaged, "--yes")
    assert ran.code == 0
    (kept,) = (damaged / "quarantine").iterdir()
    assert f"kept: {kept}\n" in ran.out
    assert ran.out.endswith("repaired; everything was read again and is whole\n")
    position = int(kept.stem.split("-")[1])
    assert kept.read_bytes() == before[position : position + len(kept.read_bytes())]
    assert run("verify", damaged).code == 0


def test_after_a_repair_the_journal_opens_and_only_what_was_damaged_is_lost(damaged: Path) -> None:
    run("repair", damaged, "--yes")
    with JournalReader.open(damaged) as reader, pytest.raises(OffsetsLost) as lost:
        list(reader.scan(0))
    with Journal.open(damaged) as journal:
        for offset in range(180):
            if lost.value.offset <= offset < lost.value.resume_at:
                continue
            assert journal.fetch(offset).value == f"{offset // 3}.{offset % 3} ".encode() * 8
        assert journal.append([b"and on"]).base_offset == 180


def test_programs_get_the_plan_and_the_outcome(damaged: Path) -> None:
    planned = run("repair", damaged, "--dry-run", "--json")
    assert planned.code == 3
    told = json.loads(planned.out)
    assert [step["step"] for step in told["steps"]] == ["BeginRepair", "MarkLost", "RebuildIndex", "WriteCheckpoint"]
    assert (told["applied"], told["kept"], len(told["damage"])) == (False, [], 1)
    ((first, end),) = told["lost"]
    assert end - first == 3
    done = json.loads(run("repair", damaged, "--yes", "--json").out)
    assert (done["applied"], done["lost"]) == (True, [[first, end]])
    assert [Path(path).is_file() for path in done["kept"]] == [True]


def test_a_whole_journal_is_left_as_it_is(tmp_path: Path) -> None:
    make_journal(tmp_path)
    before = snapshot(tmp_path)
    ran = run("repair", tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, f"{tmp_path}: there is nothing to repair\n", "")
    assert snapshot(tmp_path) == before


def test_without_a_terminal_it_asks_for_yes(damaged: Path) -> None:
    before = snapshot(damaged)
    ran = run_process("repair", damaged, input="y\n")
    assert ran.returncode == 1
    assert "there is no terminal to ask on\nhint: look at the plan with --dry-run, then repeat with --yes" in ran.stderr
    assert "plan:" in ran.stdout
    assert snapshot(damaged) == before


def test_on_a_terminal_it_asks_first(damaged: Path) -> None:
    before = snapshot(damaged)
    code, shown = run_on_terminal("repair", str(damaged), typed="n\n")
    assert code == 1
    assert shown.index("plan:") < shown.index("carry this out?") < shown.index("nothing was changed")
    assert snapshot(damaged) == before
    code, shown = run_on_terminal("repair", str(damaged), typed="y\n")
    assert code == 0
    assert "repaired; everything was read again and is whole" in shown


def test_a_torn_tail_alone_is_no_damage(tmp_path: Path) -> None:
    journal = make_journal(tmp_path)
    last = segments_of(journal)[-1]
    last.write_bytes(last.read_bytes() + b"torn")
    assert run("repair", journal, "--dry-run").code == 0
    ran = run("repair", journal, "--yes")
    assert ran.code == 0
    assert "no record is lost" in ran.out
    assert [path.read_bytes() for path in (journal / "quarantine").iterdir()] == [b"torn"]


def test_beside_a_writer_only_a_dry_run_is_possible(damaged: Path) -> None:
    with Journal.open(damaged):
        before = snapshot(damaged)
        ran = run("repair", damaged, "--yes")
        assert (ran.code, ran.out) == (1, "")
        assert "is locked by another writer\nhint: " in ran.err
        looked = run("repair", damaged, "--dry-run")
        assert looked.code == 3
        assert "note: a writer is at work" in looked.err
        assert snapshot(damaged) == before


def test_a_full_copy_and_its_repair_do_not_touch_the_original(damaged: Path, tmp_path: Path) -> None:
    before = snapshot(damaged)
    shutil.copytree(damaged, tmp_path / "copy")
    assert run_process("repair", tmp_path / "copy", "--yes").returncode == 0
    assert snapshot(damaged) == before


def test_an_index_that_is_gone_is_rebuilt_without_a_word_of_damage(tmp_path: Path) -> None:
    make_journal(tmp_path)
    index = min(tmp_path.glob("*.index"))
    right = index.read_bytes()
    index.unlink()
    ran = run("repair", tmp_path, "--yes")
    assert ran.code == 0
    assert ran.out.endswith(f"{tmp_path}: repaired\n")
    assert index.read_bytes() == right
