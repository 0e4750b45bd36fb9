"""What every journal command says of a path that is no journal, or that it may not read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.cli import journal_folder
from strandline.cli.journal_folder import has_writer, look, require_journal, time_of
from strandline.errors import StorageRefused
from strandline.files import OsDisk
from strandline.journal import Damage, Examination, Journal, JournalSet
from strandline.journal.examination import Progress
from strandline.journal.recovery import examine
from tests.cli.journal_runs import flip, make_journal, run, segments_of, snapshot

NOBODY = 65534
each_command = pytest.mark.parametrize("command", ["inspect", "dump", "verify", "repair"])


@each_command
def test_a_missing_folder_is_explained(command: str, tmp_path: Path) -> None:
    ran = run(command, tmp_path / "none")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {tmp_path}/none: there is no such folder\nhint: check the path\n"
    assert not (tmp_path / "none").exists()


@each_command
def test_a_file_is_explained(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    ran = run(command, tmp_path / "file")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {tmp_path}/file: this is a file\nhint: give a journal's folder\n"


@each_command
def test_a_segment_leads_to_its_folder(command: str, tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", appends=1)
    ran = run(command, segments_of(journal)[0])
    assert ran.code == 1
    assert f"hint: give the folder that it is in: {journal}\n" in ran.err


@each_command
def test_an_empty_folder_is_explained_and_stays_empty(command: str, tmp_path: Path) -> None:
    ran = run(command, tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert "there is no journal here; the folder is empty" in ran.err
    assert list(tmp_path.iterdir()) == []


@each_command
def test_a_folder_of_something_else_is_explained_and_left_alone(command: str, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    ran = run(command, tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert "there is no journal here\nhint: check the path" in ran.err
    assert snapshot(tmp_path) == {"letter.txt": b"dear"}


@each_command
def test_the_root_of_a_set_leads_to_its_journals(command: str, tmp_path: Path) -> None:
    with JournalSet.open(tmp_path) as journals:
        journals.journal("orders/0").append([b"one"])
    ran = run(command, tmp_path)
    assert ran.code == 1
    assert "this is the root of a set of journals" in ran.err
    assert run("inspect", tmp_path / "orders" / "0").code == 0


@contextmanager
def as_nobody() -> Iterator[None]:
    """Give up what root may do, for permissions to mean something."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@each_command
def test_a_folder_that_may_not_be_read_is_explained(command: str, tmp_path: Path) -> None:
    journal = make_journal(tmp_path, appends=1)
    assert run(command, journal).code == 0
    journal.chmod(0o000)
    with as_nobody():
        ran = run(command, journal)
    journal.chmod(0o755)
    assert (ran.code, ran.out) == (1, "")
    assert "Permission denied (EACCES)\nhint: check who owns the folder" in ran.err


def test_a_segment_of_something_else_is_explained(tmp_path: Path) -> None:
    journal = make_journal(tmp_path)
    segments_of(journal)[1].write_bytes(b"x" * 500)
    for command in ("verify", "repair"):
        ran = run(command, journal)
        assert ran.code == 1
        assert "this is not a journal segment\nhint: move the file elsewhere" in ran.err


def test_a_writer_is_noticed_without_a_trace(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal")
    before = snapshot(tmp_path)
    assert not has_writer(journal)
    with Journal.open(journal):
        assert has_writer(journal)
    assert not has_writer(journal)
    (journal / "lock").unlink()
    assert not has_writer(journal)
    assert not (journal / "lock").exists()
    assert set(before) - set(snapshot(tmp_path)) == {"journal/lock"}


def test_the_writer_of_a_set_is_the_writer_of_its_journals(tmp_path: Path) -> None:
    with JournalSet.open(tmp_path) as journals:
        journals.journal("orders/0").append([b"one"])
        assert has_writer(tmp_path / "orders" / "0")
    assert not has_writer(tmp_path / "orders" / "0")


def test_what_only_looked_damaged_because_a_writer_moved_on_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = make_journal(tmp_path)
    looks: list[Examination] = []

    def moving(disk: OsDisk, folder: Path, *, deep: bool, progress: Progress | None) -> Examination:
        found = examine(disk, folder, deep=deep, progress=progress)
        number = len(looks)
        found.damage += [Damage(0, 64, 8, number, number + 1, "a write in progress")]
        looks.append(found)
        return found

    monkeypatch.setattr(journal_folder, "examine", moving)
    with Journal.open(journal):
        assert look(journal).damage == []
    looks.clear()
    assert len(look(journal).damage) == 1, "without a writer, one look is enough"
    assert len(looks) == 1


def test_damage_that_stays_is_reported_beside_a_writer_too(tmp_path: Path) -> None:
    make_journal(tmp_path)
    with Journal.open(tmp_path):
        flip(segments_of(tmp_path)[0], 200)
        assert len(look(tmp_path, deep=True).damage) == 1


def test_segments_that_retention_removes_meanwhile_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_journal(tmp_path)
    failures = 1

    def removing(disk: OsDisk, folder: Path, *, deep: bool, progress: Progress | None) -> Examination:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise FileNotFoundError(2, "No such file or directory")
        return examine(disk, folder, deep=deep, progress=progress)

    monkeypatch.setattr(journal_folder, "examine", removing)
    assert look(tmp_path).next_offset == 180
    failures = 10
    assert run("verify", tmp_path).code == 1


def test_a_path_through_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    ran = run("inspect", tmp_path / "file" / "journal")
    assert ran.code == 1
    assert "there is no such folder" in ran.err


def test_an_error_of_the_file_system_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(StorageRefused):
        require_journal(tmp_path)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, None),
        (1_700_000_000_000_000_001, "2023-11-14T22:13:20.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
    ],
)
def test_times_are_shown_to_the_nanosecond(ns: int, text: str | None) -> None:
    assert time_of(ns) == text
