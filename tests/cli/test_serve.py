"""`strandline serve` stands in for nats-server: flags, ready lines, files, signals and exit codes."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.runs import run_command
from tests.waiting import PATIENCE_S

STRANDLINE = [sys.executable, "-c", "from strandline.cli import main; main()", "serve"]
ENDS_WITHIN_S = PATIENCE_S


class Served:
    """A running `strandline serve`."""

    def __init__(self, process: subprocess.Popen[str], ready: str) -> None:
        self.process = process
        self.ready = ready
        found = re.search(r"\[INF\] Listening for client connections on 127\.0\.0\.1:(\d+)", ready)
        assert found, ready
        self.port = int(found[1])

    def connect(self, options: str = "{}") -> socket.socket:
        """Connect a client, and return when the server has taken it or not."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        client.sendall(f"CONNECT {options}\r\nPING\r\n".encode())
        return client

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and what it said since it was ready."""
        _, said = self.process.communicate(timeout=ENDS_WITHIN_S)
        return self.process.returncode, said


@contextmanager
def served(*arguments: str) -> Iterator[Served]:
    """Run a server until it is ready, and end it at last."""
    command = [*STRANDLINE, "-a", "127.0.0.1", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if line.endswith("[INF] Server is ready\n"):
                break
        yield Served(process, "".join(said))
    finally:
        process.kill()
        process.communicate()


def heard(client: socket.socket, until: bytes) -> bytes:
    """Read until something has come, or the end."""
    data = b""
    while until not in data and (more := client.recv(65_536)):
        data += more
    return data


def test_it_says_where_it_is_and_ends_in_good_order(tmp_path: Path) -> None:
    folder = str(tmp_path)
    flags = (
        "-p",
        "-1",
        "-m",
        "-1",
        "-js",
        "-sd",
        folder,
        "-P",
        f"{folder}/pid",
        "--ports_file_dir",
        folder,
        "-n",
        "one",
    )
    with served(*flags) as server:
        pid = server.process.pid
        ports_file = tmp_path / f"nats-server_{pid}.ports"
        ports = json.loads(ports_file.read_text())
        assert ports["nats"] == [f"nats://127.0.0.1:{server.port}"]
        assert (tmp_path / "pid").read_text() == str(pid)
        with urlopen(f"{ports['monitoring'][0]}/varz") as answer:  # noqa: S310 - it is http
            assert json.loads(answer.read())["port"] == server.port
        assert re.search(rf"^\[{pid}\] \d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{{6}} \[INF\] Starting", server.ready)
        with closing(server.connect('{"verbose":false}')) as client:
            assert b'"server_name":"one"' in heard(client, b"PONG")
        server.signal(signal.SIGTERM)
        code, said = server.end()
        assert code == 0
        told = [line.partition("] ")[2].partition(" [INF] ")[2] for line in said.splitlines()]
        assert told == [
            'Trapped "terminated" signal',
            "Initiating Shutdown...",
            "Initiating JetStream Shutdown...",
            "JetStream Shutdown",
            "Server Exiting..",
        ]
        assert f'[INF]   Store Directory: "{folder}/strandline"' in server.ready
        assert not ports_file.exists()


def test_a_reload_changes_users_and_refuses_what_takes_a_restart(tmp_path: Path) -> None:
    file, log = tmp_path / "c.conf", tmp_path / "log"
    settings = f"listen: 127.0.0.1:-1\nlog_file: '{log}'\n"
    file.write_text(settings + "authorization { user: ann, password: one }")
    process = subprocess.Popen([*STRANDLINE, "-c", str(file)], stderr=subprocess.DEVNULL, text=True)
    try:
        server = Served(process, _logged(log, "Server is ready"))
        log.rename(tmp_path / "log.1")
        server.signal(signal.SIGUSR1)
        _logged(log, "File log re-opened")
        with closing(server.connect('{"user":"ann","pass":"two","verbose":false}')) as client:
            assert b"Authorization Violation" in heard(client, b"-ERR")
        file.write_text(settings + "authorization { user: ann, password: two }\nmax_payload: 1KB")
        server.signal(signal.SIGHUP)
        assert "Reloaded: accounts" in _logged(log, "Reloaded server configuration")
        with closing(server.connect('{"user":"ann","pass":"two","verbose":false}')) as client:
            assert b'"max_payload":1024' in heard(client, b"PONG")
        refused = "authorization { user: ann, password: three }\nmax_payload: 2KB"
        file.write_text(settings.replace("-1", "4222") + refused)
        server.signal(signal.SIGHUP)
        _logged(log, "Failed to reload server configuration: config reload not supported for port")
        with closing(server.connect('{"user":"ann","pass":"three","verbose":false}')) as client:
            assert b"Authorization Violation" in heard(client, b"-ERR")
        with closing(server.connect('{"user":"ann","pass":"two","verbose":false}')) as client:
            assert b'"max_payload":1024' in heard(client, b"PONG")
        ran = subprocess.run([*STRANDLINE, "-sl", f"quit={process.pid}"], check=False)
        assert (ran.returncode, process.wait(ENDS_WITHIN_S)) == (0, 0)
    finally:
        process.kill()
        process.wait()


def _logged(log: Path, text: str) -> str:
    """Wait until a text is in a log, and return the log."""
    give_up = time.monotonic() + ENDS_WITHIN_S
    while time.monotonic() < give_up:
        found = log.read_text() if log.exists() else ""
        if text in found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{text!r} was not logged: {found}")


def test_a_lame_duck_asks_its_clients_to_go_and_ends_when_they_have(tmp_path: Path) -> None:
    with served("-p", "-1", "-js", "-sd", str(tmp_path)) as server:
        with closing(server.connect('{"protocol":1,"verbose":false}')) as client:
            heard(client, b"PONG")
            server.signal(signal.SIGUSR2)
            assert b'"ldm":true' in heard(client, b'"ldm":true')
            server.signal(signal.SIGUSR2)  # it is leaving already
        code, said = server.end()
        assert code == 0
        assert said.count("[INF] Entering lame duck mode, stop accepting new clients\n") == 1
        assert "[INF] Closing existing clients\n" in said


def test_the_protocol_is_traced_from_when_that_is_asked_for_until_it_is_no_longer(tmp_path: Path) -> None:
    file, log = tmp_path / "c.conf", tmp_path / "log"
    settings = f"listen: 127.0.0.1:-1\nlog_file: '{log}'\n"
    file.write_text(settings)
    process = subprocess.Popen([*STRANDLINE, "-c", str(file)], stderr=subprocess.DEVNULL, text=True)

    def lines() -> list[str]:
        return [line.partition(" [TRC] ")[2] for line in log.read_text().splitlines() if " [TRC] " in line]

    def reload(trace: str) -> None:
        file.write_text(f"{settings}trace: {trace}")
        server.signal(signal.SIGHUP)
        _logged(log, f"Reloaded: trace = {trace}")

    try:
        server = Served(process, _logged(log, "Server is ready"))
        assert f"[INF] Using configuration file: {file}\n" in log.read_text()
        with closing(server.connect('{"verbose":false,"user":"ann","pass":"secret"}')) as client:
            heard(client, b"PONG")
            reload("true")
            client.sendall(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
            heard(client, b"hi")
            who = "{}:{}".format(*client.getsockname()) + ' - cid:1 - "$G/user:ann" - '
            told = ["<<- [SUB a 1]", "<<- [PUB a 2]", '<<- MSG_PAYLOAD: ["hi"]']
            assert lines() == [who + text for text in (*told, "->> [MSG a 1 2]", '->> MSG_PAYLOAD: ["hi"]')]
            with closing(server.connect('{"verbose":false,"user":"bob","pass":"secret"}')) as other:
                heard(other, b"PONG")
            assert lines()[5].endswith(' - cid:2 - <<- [CONNECT {"verbose":false,"user":"bob","pass":"[REDACTED]"}]')
            reload("false")
            client.sendall(b"PUB a 5\r\nagain\r\n")
            heard(client, b"again")
        assert "again" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def test_a_port_that_is_taken_is_an_error_that_says_so() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        ran = subprocess.run(
            [*STRANDLINE, "-a", "127.0.0.1", "-p", str(port)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert ran.returncode == 1
    place = f"127.0.0.1:{port}"
    text = f'[FTL] Error listening on port: {place}, "listen tcp {place}: bind: address already in use"'
    assert text in ran.stderr
    assert "hint:" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["-v"], 0, "nats-server: v2.15.1\n"),
        (["-h"], 0, "--ports_file_dir"),
        (["-js", "--bogus"], 2, "flag provided but not defined: -bogus"),
        (["--cluster", "nats://127.0.0.1:6222"], 1, "error: clusters are not served\nhint: run nats-server for that"),
        (["-sl", "reload"], 1, "a signal needs a process id"),
        (["-sl", "reload=no-such-file"], 1, "cannot read no-such-file"),
        (["-c", "no-such-file"], 1, "open no-such-file: no such file or directory"),
    ],
)
def test_it_answers_and_refuses_on_the_command_line(arguments: list[str], code: int, text: str) -> None:
    ran = run_command("serve", *arguments)
    assert ran.code == code
    assert text in ran.out + ran.err


def test_a_configuration_is_tested_without_starting_anything(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.conf", tmp_path / "bad.conf"
    good.write_text("port: 4222\njetstream: enabled")
    bad.write_text("port: 4222\nbogus: 1")
    assert run_command("serve", "-t", "-c", good) == (0, "", f"strandline: configuration file {good} is valid\n")
    (tmp_path / "junk.pem").write_text("junk")
    broken = tmp_path / "broken.conf"
    broken.write_text(f"tls {{ cert_file: {tmp_path}/junk.pem, key_file: {tmp_path}/junk.pem }}")
    assert "TLS cannot be set up" in run_command("serve", "-t", "-c", broken).err
    assert run_command("serve", "-t", "-c", bad) == (1, "", f'error: {bad}:2:1: unknown field "bogus"\n')
