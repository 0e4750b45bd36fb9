"""The root command: version, usage errors, and how errors become messages and exit codes."""

import subprocess
import sys

import pytest

from strandline import __version__
from strandline.cli import app as cli
from strandline.errors import Damaged, StrandlineError


def strandline(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from strandline.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def raising(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Run `main` over an app that raises; return the exit code and what standard error says."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert isinstance(left.value.code, int)
    captured = capsys.readouterr()
    assert captured.out == ""
    return left.value.code, captured.err


def test_the_version_is_printed() -> None:
    ran = strandline("--version")
    assert (ran.stdout, ran.returncode) == (f"strandline {__version__}\n", 0)


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "strandline", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == (f"strandline {__version__}\n", 0)


def test_a_wrong_command_line_exits_with_2_and_prints_nothing_on_standard_output() -> None:
    ran = strandline("no-such-command")
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert "no-such-command" in ran.stderr


def test_an_error_is_explained_with_its_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = StrandlineError("it is locked", hint="close the other writer")
    assert raising(error, monkeypatch, capsys) == (1, "error: it is locked\nhint: close the other writer\n")


def test_an_error_without_a_hint_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(StrandlineError("no"), monkeypatch, capsys) == (1, "error: no\n")


def test_damage_exits_with_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = raising(Damaged("a.journal", "checksum differs", safe="run repair"), monkeypatch, capsys)
    assert code == 3
    assert said.endswith("hint: run repair\n")


def test_an_interrupt_exits_with_130() -> None:
    code = "from strandline.cli.app import app, main\n@app.command()\ndef wait():\n    raise KeyboardInterrupt\nmain()"
    ran = subprocess.run([sys.executable, "-c", code, "wait"], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("", 130)
    assert "Traceback" not in ran.stderr
