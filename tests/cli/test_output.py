"""Printing: JSON that programs can read, tables that show data as it is, no progress in a pipe."""

import io
import json
import sys
import threading
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from strandline.cli.output import Record, emit, emit_rows, print_line, progress, to_json


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Point:
    x: int


def test_a_record_becomes_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"path": Path("a/b"), "mode": Colour.RED, "point": Point(1), "none": None}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"path": "a/b", "mode": "RED", "point": {"x": 1}, "none": None}


def test_a_record_within_a_record_is_shown_by_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"leader": {"name": "a", "epoch": 1}, "followers": [{"name": "b"}, {"name": "c"}], "kept": []}, as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["leader", "name", "a,", "epoch", "1"], ["followers", "name", "b"], ["name", "c"], ["kept", "[]"]]


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes has no JSON form"):
        to_json({"value": b"x"})


def test_rows_become_one_json_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[Record] = [{"offset": 1}, {"offset": 2}]
    emit_rows(iter(rows), as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


def test_tables_show_data_as_it_is_and_are_never_folded_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    emit_rows([{"name": "[red]", "value": long}, {"name": None, "value": 2}], as_json=False)
    emit({"name": "[bold]", "value": long}, as_json=False)
    output = capsys.readouterr().out
    assert "[red]" in output
    assert "[bold]" in output
    assert output.count(long) == 2


def test_no_rows_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    emit_rows([], as_json=False)
    emit_rows([], as_json=True)
    assert capsys.readouterr().out == ""


def test_progress_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("scanning [a]", total=10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


class SlowFile(io.StringIO):
    """A file whose writes let other threads in."""

    def write(self, text: str) -> int:
        written = super().write(text)
        time.sleep(0)
        return written


def test_lines_of_several_threads_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", file := SlowFile())

    def print_many() -> None:
        for _ in range(500):
            print_line("a" * 9)

    threads = [threading.Thread(target=print_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(file.getvalue().splitlines()) == {"a" * 9}
