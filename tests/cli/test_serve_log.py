"""The log of `strandline serve`: nats-server's lines, in a file that may be moved away or grow too large."""

import os
import re
from pathlib import Path

import pytest

from strandline.broker.settings import LogSettings
from strandline.cli.serve_log import ServerLog
from strandline.errors import InvalidInput


def test_lines_are_as_nats_server_writes_them(tmp_path: Path) -> None:
    log = ServerLog(LogSettings(tmp_path / "log", debug=True, utc=True))
    log.note("hello")
    log.tell("DBG", "more")
    log.tell("TRC", "much more")
    log.change(LogSettings(tmp_path / "log", timestamps=False))
    log.tell("DBG", "not wanted any more")
    log.error("broken")
    log.close()
    first, second, third = (tmp_path / "log").read_text().splitlines()
    assert re.fullmatch(r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[INF\] hello", first)
    assert second.endswith("[DBG] more")
    assert re.fullmatch(r"\[\d+\] \[ERR\] broken", third)


def test_a_file_beyond_its_limit_is_begun_anew(tmp_path: Path) -> None:
    file = tmp_path / "log"
    log = ServerLog(LogSettings(file, timestamps=False, size_limit=100))
    for number in range(10):
        log.note(f"line {number} of ten")
    log.close()
    assert file.stat().st_size <= 130
    assert "line 9" in file.read_text() + (tmp_path / "log.old").read_text()


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot open the log file"):
        ServerLog(LogSettings(tmp_path / "nowhere" / "log"))


def test_a_log_that_nobody_reads_disturbs_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    log = ServerLog(LogSettings(tmp_path / "log"))
    os.close(reader)
    log.note("lost")
    with pytest.raises(InvalidInput):
        log.change(LogSettings(tmp_path / "nowhere" / "log"))
    log.note("lost too")
    log.close()
