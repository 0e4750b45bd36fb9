"""`… | strandline scan -`: the standard input under a name, in this process."""

import json
from pathlib import Path

from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.errors import InvalidInput
from tests.cli.scan_command import RULES


def test_the_standard_input_is_scanned_without_spark_and_named(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    options = ["--rules", str(tmp_path / "rules.toml"), "--state", str(tmp_path / "state"), "--json"]
    ran = CliRunner().invoke(app, ["scan", "-", "--stdin-name", "a/b.txt", *options], input="x\n alpha_12345678\n")
    row, last = (json.loads(line) for line in ran.stdout.splitlines())
    assert (row["location"], row["path"], ran.exit_code) == ("a/b.txt:2:2", "a/b.txt", 1)
    assert last["summary"]["items"] == 1


def test_it_can_be_given_once(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["scan", "-", "-", "--state", str(tmp_path / "state")])
    assert isinstance(ran.exception, InvalidInput)
    assert "read once" in str(ran.exception)
    assert not (tmp_path / "state").exists()
