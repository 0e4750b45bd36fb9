"""`strandline journal demo`: a true story, and an exit code that would tell if it were not."""

import json
import tempfile
import time
from pathlib import Path

import pytest

from strandline.cli import journal_demo
from strandline.cli.journal_demo import Acknowledged, format_acknowledged, parse_acknowledged, values_of
from strandline.journal import Journal
from tests.cli.journal_runs import run, run_process, segments_of
from tests.waiting import PATIENCE_S

QUICK = ("--seconds", "0.2")


def test_the_story_is_told_in_a_few_seconds_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    began = time.monotonic()
    ran = run_process("demo", *QUICK)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert time.monotonic() - began < PATIENCE_S
    assert "SIGKILL" in ran.stdout
    assert ran.stdout.endswith("What was acknowledged survived.\n")
    assert list(tmp_path.iterdir()) == []


def test_the_figures_agree_with_the_journal_that_is_kept(tmp_path: Path) -> None:
    ran = run("demo", *QUICK, "--keep", tmp_path / "kept", "--json")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert 0 < told["acknowledged_records"] <= told["survived_records"] == told["scan_rows"]
    assert told["segments"] == len(segments_of(tmp_path / "kept"))
    assert run("verify", tmp_path / "kept").code == 0


def test_a_kept_journal_is_named(tmp_path: Path) -> None:
    ran = run("demo", *QUICK, "--keep", tmp_path)
    assert ran.code == 0
    assert f"strandline journal inspect {tmp_path}" in ran.out


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    ran = run("demo", "--keep", tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert "this is not an empty folder\nhint: give a new one" in ran.err


def test_a_record_that_was_promised_and_is_not_there_is_told_with_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(tmp_path / "kept") as journal:
        journal.append(values_of(0, 0))
    promised = [Acknowledged(0, 0, 0), Acknowledged(1, 0, 8)]
    monkeypatch.setattr(journal_demo, "_write_and_kill", lambda *_: (promised, 1.0))
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda **_: _Folder(tmp_path / "kept"))
    ran = run("demo")
    assert ran.code == 1
    assert "1 acknowledged appends are not there" in ran.err


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        return str(self._path)

    def __exit__(self, *_: object) -> None:
        pass


def test_a_writer_that_ends_by_itself_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_demo, "_CHILD", "raise SystemExit(7)")
    ran = run("demo", "--keep", tmp_path)
    assert ran.code == 1
    assert "the writer ended by itself, with 7" in ran.err


def test_a_line_that_the_kill_cut_short_promises_nothing() -> None:
    done = Acknowledged(3, 14, 159)
    line = format_acknowledged(done)
    assert parse_acknowledged(line) == done
    assert all(parse_acknowledged(line[:end]) is None for end in range(len(line)))
