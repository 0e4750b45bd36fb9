"""Commands take from `strandline.toml` what the command line leaves out."""

import json
import re
from pathlib import Path

import pytest

from strandline.cli.scan_results import EXIT_FOUND
from strandline.cli.serve_config import configured_flags, has_alarms
from strandline.cli.serve_run import run
from strandline.config import ConfigInvalid, read_file
from strandline.detect import expand
from strandline.errors import InvalidInput
from tests.cli.runs import run_command

SECRET = expand("GITHUB_TOKEN={{github-crc32:ghp_}}\n", "a seed")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project with a configuration, work in a folder of it, and return it."""
    for name in ("src", "docs", "src/deep"):
        (tmp_path / name).mkdir()
    (tmp_path / "src" / "a.py").write_text(SECRET)
    (tmp_path / "src" / "skipped.py").write_text(SECRET)
    (tmp_path / "docs" / "b.md").write_text(SECRET)
    (tmp_path / "strandline.toml").write_text("""
state = "state"

[scan]
paths = ["src"]
exclude = ["skipped.py"]
without-spark = true
""")
    monkeypatch.chdir(tmp_path / "src" / "deep")
    return tmp_path


def test_a_scan_without_arguments_is_the_projects_from_any_folder_of_it(project: Path) -> None:
    assert run_command("scan", "--quiet").code == EXIT_FOUND
    assert (project / "state" / "pipeline.db").exists()
    listed = run_command("findings", "list", "--json").out.splitlines()
    assert len(listed) == 1
    assert "a.py" in listed[0]


def test_a_command_line_that_names_something_to_scan_takes_nothing_to_scan_from_the_file(project: Path) -> None:
    assert run_command("scan", "--quiet", project / "docs").code == EXIT_FOUND
    listed = run_command("findings", "list", "--json").out.splitlines()
    assert len(listed) == 1
    assert "b.md" in listed[0]


def test_another_file_or_none_can_be_asked_for(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('tenant = "other"\n')

    def tenant(*options: str | Path) -> str:
        rows = run_command(*options, "config", "show", "scan", "--json").out.splitlines()
        [row] = [row for row in map(json.loads, rows) if row["key"] == "scan.tenant"]
        return f"{row['value']} {row['place']}"

    assert tenant() == "default None"
    assert tenant("--config", other) == f"other {other}:1"
    (project / "strandline.toml").write_text('[scan]\ntenant = "mine"\n')
    assert tenant() == f"mine {project}/strandline.toml:2"
    assert tenant("--no-config") == "default None"


def test_an_error_of_the_file_is_reported_by_every_command_that_reads_it(project: Path) -> None:
    (project / "strandline.toml").write_text('[scan]\npath = ["src"]\n')
    for command in (["scan"], ["findings", "list"], ["config", "show"]):
        ran = run_command(*command)
        assert ran.code == 1
        assert ran.err == (
            f"error: {project}/strandline.toml:2: scan.path: there is no such key in [scan]\n"
            "hint: did you mean paths?\n"
        )


def test_help_reads_no_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", "postgresql://me:hush@db/x")
    for text in ('state = { env = "DB" }\n', "[scan"):
        (project / "strandline.toml").write_text(text)
        for command in (["scan"], ["findings", "list"], ["fold", "run"], ["pipeline", "rotate-key"]):
            ran = run_command(*command, "--help")
            assert (ran.code, ran.err) == (0, "")
            assert "hush" not in ran.out


@pytest.mark.parametrize(
    ("text", "flags", "param"),
    [
        ('master = "spark://x:1"\n[scan]\nconf = ["a=b"]\nui = true\n', ["--without-spark"], "has_options"),
        ("[scan]\nwithout-spark = true\n", ["--master", "local[1]"], "without_spark"),
    ],
)
def test_a_flag_beats_what_contradicts_it_in_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, text: str, flags: list[str], param: str
) -> None:
    class Told(Exception):
        pass

    def tell(*given: object, **options: object) -> None:
        raise Told(options.get(param, given[3]))

    (project / "strandline.toml").write_text(text)
    monkeypatch.setattr("strandline.cli.scan.WorkerOptions", tell)
    with pytest.raises(Told, match="False"):
        run_command("scan", *flags, project / "docs")


def test_json_beats_the_format_of_the_file(project: Path) -> None:
    (project / "strandline.toml").write_text('[scan]\nwithout-spark = true\nformat = "sarif"\n')
    lines = run_command("scan", "--json", project / "docs").out.splitlines()
    assert json.loads(lines[-1])["summary"]


def test_what_is_shown_says_where_it_comes_from_and_hides_secrets(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "strandline.toml").write_text('[scan]\nstate = { env = "DB" }\n[serve]\npass = { env = "DB" }\n')
    monkeypatch.setenv("DB", "postgresql://me:hush@db/x")
    monkeypatch.setenv("STRANDLINE_COORDINATION", "etcd://me:hush@etcd/x")
    monkeypatch.setenv("STRANDLINE_SCAN_MASTER", "local[2]")
    for form in ([], ["--json"]):
        ran = run_command("config", "show", *form)
        assert ran.code == 0
        assert "hush" not in ran.out
        assert "STRANDLINE_SCAN_MASTER" in ran.out
        assert "etcd://me:***@etcd/x" in ran.out
        assert f"{project}/strandline.toml:2" in ran.out


def test_the_schema_is_printed_as_it_is_shipped() -> None:
    assert json.loads(run_command("config", "schema").out)["title"] == "strandline.toml"


class TestServe:
    def flags(self, *arguments: str, **environ: str) -> list[str]:
        return configured_flags(arguments, environ)

    def test_the_section_and_variables_stand_for_flags(self, project: Path) -> None:
        (project / "strandline.toml").write_text(
            '[serve]\nport = 4333\njetstream = true\nstore_dir = "data"\npass = { env = "PW" }\nuser = "me"\n'
        )
        flags = self.flags(PW="hush", STRANDLINE_SERVE_PORT="4334", STRANDLINE_SERVE_DEBUG="true")
        assert flags == [
            "--port=4334",
            "--debug=true",
            "--jetstream=true",
            f"--store_dir={project}/data",
            "--user=me",
            "--pass=hush",
        ]

    def test_a_configuration_file_of_the_servers_own_leaves_the_section_out(self, project: Path) -> None:
        (project / "strandline.toml").write_text("[serve]\nport = 4333\n")
        assert self.flags() == ["--port=4333"]
        for own in (["-c", "server.conf"], ["--config=server.conf"]):
            assert self.flags(*own) == []
            assert self.flags(*own, STRANDLINE_SERVE_DEBUG="true") == ["--debug=true"]

    @pytest.mark.parametrize("text", ["[alarms]\n", "[ alarms ]\n", "alarms.webhook = []\n", "alarms = {}\n"])
    def test_a_section_for_alarms_is_seen_however_it_is_written(self, project: Path, text: str) -> None:
        file = project / "strandline.toml"
        file.write_text(text)
        assert read_file(file, {}).path == file, "it is a section"
        assert has_alarms(file, {})
        file.write_text("[serve]\nport = 4333\n")
        assert not has_alarms(file, {})
        assert has_alarms(None, {"STRANDLINE_ALARMS_COMMAND": "true"})
        file.unlink()
        assert has_alarms(file, {}), "the error is for who reads the settings"

    def test_help_version_and_signals_read_no_file(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (project / "strandline.toml").write_text("[serve")
        (project / "pid").write_text("none")
        assert run(["-h"]) == run(["-v"]) == 0
        assert "Usage" in capsys.readouterr().out
        with pytest.raises(InvalidInput, match="holds no process id"):
            run(["--signal", f"quit={project}/pid"])
        with pytest.raises(ConfigInvalid, match="is not TOML"):
            run(["-js"])

    def test_without_either_there_is_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert self.flags(STRANDLINE_STATE="x") == []


def test_the_example_of_the_page_does_the_projects_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = re.findall(r"<!-- configuration -->\n```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "strandline.toml").write_text(example)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(SECRET)
    (tmp_path / "src" / "a.lock").write_text(SECRET)
    monkeypatch.chdir(tmp_path)
    assert (
        run_command("--no-config", "scan", "--without-spark", "--format=baseline", "-o", "known.json", "src").code
        == EXIT_FOUND
    )
    shown = [json.loads(line) for line in run_command("config", "show", "--json").out.splitlines()]
    from_file = {row["key"]: row["value"] for row in shown if row["source"] == "file"}
    assert from_file == {
        "scan.paths": [str(tmp_path / "src")],
        "scan.exclude": ["*.lock"],
        "scan.state": str(tmp_path / "scans"),
        "scan.without-spark": True,
        "scan.baseline": [str(tmp_path / "known.json")],
        "findings.state": str(tmp_path / "scans"),
        "findings.confidence": "medium",
        "pipeline.state": str(tmp_path / "scans"),
        "fold.creds": str(tmp_path / "nats.creds"),
        "serve.port": 4333,
        "serve.jetstream": True,
        "ui.state": str(tmp_path / "scans"),
    }
    ran = run_command("scan", "--json")
    assert ran.code == 0
    assert json.loads(ran.out.splitlines()[-1])["summary"]
