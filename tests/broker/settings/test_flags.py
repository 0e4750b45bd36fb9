"""The flags of nats-server in Go's syntax, and what they become."""

from pathlib import Path

import pytest

from strandline.broker.settings import ServerSettings, UserSettings
from strandline.broker.settings.errors import FlagRefused, NotServed
from strandline.broker.settings.flags import CommandLine, parse_command_line
from strandline.journal import SYNCED, WRITTEN


def settings(*arguments: str) -> ServerSettings:
    """Return the settings of a command line."""
    return parse_command_line(arguments).settings().settings


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "4333", "-a", "127.0.0.1", "-js", "-sd", "/d"),
        ("--port=4333", "--addr=127.0.0.1", "--jetstream", "--store_dir=/d"),
        ("-port", "4333", "--net", "127.0.0.1", "-jetstream=true", "-store_dir", "/d"),
    ],
)
def test_one_dash_or_two_with_or_without_an_equals_sign(arguments: tuple[str, ...]) -> None:
    found = settings(*arguments)
    assert (found.host, found.port, found.store_dir) == ("127.0.0.1", 4333, Path("/d"))
    assert found.jetstream is not None
    assert found.durability is SYNCED


def test_flags_of_test_suites(tmp_path: Path) -> None:
    found = settings(
        *("-p", "-1", "-m", "-1", "-n", "one", "-P", "pid", "--ports_file_dir", str(tmp_path), "-DV", "-l", "log")
    )
    assert (found.port, found.http_port, found.server_name) == (-1, -1, "one")
    assert (found.pid_file, found.ports_file_dir) == (Path("pid"), tmp_path)
    assert (found.log.debug, found.log.trace, found.log.file) == (True, True, Path("log"))
    assert settings("--user", "a", "--pass", "b").accounts[0].users == (UserSettings("a", "b"),)
    assert settings("--auth", "t").token == "t"  # noqa: S105 - of no server
    assert settings("-js", "--sync", "written").durability is WRITTEN
    assert settings("-js=false").jetstream is None


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.conf"
    file.write_text("port: 1\nmax_payload: 1KB\naccounts { A { users: [{user: x, password: y}] } }")
    found = settings("-c", str(file), "-p", "2", "--user", "a", "--pass", "b")
    assert (found.port, found.max_payload) == (2, 1024)
    assert [account.name for account in found.accounts] == ["$G"]


def test_tls_by_flags_needs_a_certificate_and_a_key(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca"):
        (tmp_path / name).touch()
    files = ("--tlscert", str(tmp_path / "cert"), "--tlskey", str(tmp_path / "key"))
    found = settings("--tlsverify", *files, "--tlscacert", str(tmp_path / "ca"))
    assert found.tls is not None
    assert found.tls.verify
    assert found.tls.ca_file == tmp_path / "ca"
    with pytest.raises(FlagRefused, match="TLS Server certificate must be present and valid"):
        parse_command_line(("--tls",))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-h",), CommandLine("help")),
        (("version",), CommandLine("version")),
        (("-v",), CommandLine("version")),
        (("-t", "-c", "f"), CommandLine("test", Path("f"))),
        (("--signal", "ldm=12"), CommandLine("signal", signal="ldm", pid="12")),
        (("-sl=reload=/run/pid",), CommandLine("signal", signal="reload", pid="/run/pid")),
    ],
)
def test_some_command_lines_only_ask_for_a_moments_work(arguments: tuple[str, ...], expected: CommandLine) -> None:
    assert parse_command_line(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bogus",), "flag provided but not defined: -bogus"),
        (("-p",), "flag needs an argument: -p"),
        (("-p", "x"), "invalid value 'x' for flag -p: parse error"),
        (("extra",), "unrecognized command: 'extra'"),
        (("-t",), "must specify a configuration file to test"),
        (("-sl", "jump"), "unknown signal 'jump'"),
    ],
)
def test_a_wrong_command_line_is_refused_in_nats_servers_words(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(FlagRefused, match=message):
        parse_command_line(arguments)


def test_flags_for_what_is_not_here_say_so() -> None:
    with pytest.raises(NotServed, match="clusters are not served"):
        parse_command_line(("--routes", "nats://127.0.0.1:6222"))
