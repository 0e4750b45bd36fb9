"""Logs in JSON: every line of standard error is an object, whoever printed it, the error that ends a command too."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from strandline.cli.command_log import CommandLog, LogFormat, command_log
from strandline.errors import InvalidInput
from tests.replica.databases import database, fill
from tests.waiting import PATIENCE_S, eventually

KEYS = {"time", "level", "component", "message"}


def parsed(text: str) -> list[dict[str, object]]:
    """Return the lines of a log, each of which is an object."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert set(line) >= KEYS, line
        assert line["level"] in {"debug", "info", "warning", "error"}
    return lines


def test_lines_of_others_become_lines_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        with command_log("scan", LogFormat.JSON) as log:
            log.say("told\nof two lines", event="one", path=Path("/a"), at="nats://u:hunter2@h")
            sys.stderr.write("warning: printed\n")
            sys.stderr.write("begun")
            logging.getLogger("strandline.x").warning("logged %s", "\x1b[31m<b>")
            raise InvalidInput("it is wrong", hint="do this")

    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 1
    written = capsys.readouterr().err
    assert "hunter2" not in written
    assert "\x1b" not in written
    told, printed, logged, begun, failed = parsed(written)
    assert (told["event"], told["path"], told["message"]) == ("one", "/a", "told\nof two lines")
    assert (printed["level"], printed["message"]) == ("warning", "printed")
    assert (logged["logger"], logged["level"]) == ("strandline.x", "warning")
    assert begun["message"] == "begun"
    assert (failed["level"], failed["message"], failed["hint"]) == ("error", "it is wrong", "do this")


def test_text_is_the_message_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        with command_log("scan", LogFormat.TEXT) as log:
            log.fail("error: no", event="failed")
            raise InvalidInput("it is wrong")

    with pytest.raises(InvalidInput):
        command()
    assert capsys.readouterr().err == "error: no\n"
    assert not CommandLog("x").is_json


def run(arguments: Sequence[str], folder: Path, *, until: str | None) -> list[dict[str, object]]:
    """Run a command with a log in JSON until a line says something; return its lines."""
    file = folder / "log"
    with file.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "strandline", *arguments], stderr=out, stdout=subprocess.DEVNULL, cwd=folder
        )
        try:
            if until is not None:
                eventually(lambda: until in file.read_text() or process.poll() is not None, until)
                process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
    return parsed(file.read_text())


def test_every_line_of_commands_that_run_for_long_is_an_object(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("nothing\n")
    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)
    form = ("--log-format", "json")
    commands: list[tuple[list[str], str | None, str]] = [
        (["serve", "-p", "-1", "-js", "-sd", "store", "--metrics-port", "0", *form], "Server is ready", "broker"),
        (["queue", "serve", "q", "--metrics-port", "0", *form], "serving", "queue"),
        (["replica", "run", "a.db", (tmp_path / "r").as_uri(), "--metrics-port", "0", *form], "replicating", "replica"),
        (["lease", "watch", (tmp_path / "l").as_uri(), "key", *form], "missing", "lease"),
        (["scan", "files", "--without-spark", "--metrics-port", "0", *form], None, "scan"),
        (["fold", "run", "nats://127.0.0.1:1/none", "f.fold", "--timeout", "0.2", *form], None, "fold"),
        (["serve", "-p", "-1", "-js", "-sd", "a.db", *form], None, "broker"),
    ]
    for arguments, until, component in commands:
        lines = run(arguments, tmp_path, until=until)
        assert {line["component"] for line in lines} == {component}, arguments
        assert lines, arguments
        if "--metrics-port" in arguments:
            assert any("http://127.0.0.1:" in str(line["message"]) for line in lines), arguments
        if arguments[0] == "fold" or "a.db" in arguments[-3]:
            assert lines[-1]["level"] == "error", arguments
