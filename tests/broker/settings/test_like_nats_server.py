"""The real nats-server takes and refuses the same configuration files, and knows the same keys and flags."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from strandline.broker.settings import configuration, identities, listeners
from strandline.broker.settings.configuration import read_configuration
from strandline.broker.settings.flags import BY_NAME
from strandline.broker.settings.values import Table
from strandline.errors import StrandlineError
from tests.waiting import PATIENCE_S, eventually

BINARY = Path(sysconfig.get_path("scripts")) / "nats-server"
UNKNOWN = re.compile(r'unknown field "(\w+)"')
TAKEN = (
    'port 4222\nhost = "a", max_payload: 1KiB; ping_max: 3 # x',
    '{"port": 4222, "authorization": {"users": [{"user": "a", "password": "b"}]}}',
    "X = 5\nport: $X",
    "host: a\\tb",
    "host: http://x//y",
    "server_tags: [a\nb\n]",
    "authorization {\n user:\n a\n}",
    "accounts { A { users: [ {user: a, password: $2a$11$xyz} ] } }",
    "listen: *:4222",
    "listen: localhost:-1",
    "ping_interval: 2m30s",
    "write_deadline: '2s'",
    "jetstream: disabled",
    "jetstream: {max_mem: 64MB, max_file: 1GB, store_dir: '/tmp/x', domain: hub}",
    "jetstream { sync_interval: always }",
    "authorization { token: abc, timeout: 3 }",
    "authorization { users: [ {user: a} ] }",
    "authorization { users: [ {user: a, password: b, permissions: {publish: {allow: 'a'}, subscribe: {deny: [x]}}}]}",
    "authorization { users: [ {user: a, password: b, permissions: {allow_responses: {max: 2, expires: '1m'}}}]}",
    "accounts { A { jetstream: {max_mem: 1M, max_file: 2M, max_streams: 3, max_consumers: 4} } }",
    "accounts: [A, B]",
    "accounts { A { msg_trace: a.b } }",
    "accounts { A { trace_dest: { dest: a.b } } }",
    "accounts { A { msg_trace: { dest: a, sampling: 50 } } }",
    "accounts { A { msg_trace: { dest: a, sampling: '5%' } } }",
    "websocket { listen: '127.0.0.1:-1', no_tls: true, compression: true }",
    "http: 8222",
    "host: $HOME",
    "port: 4222 }",
    "host: x\r\nport: 1\r\n",
)
REFUSED = (
    "",
    "accounts { A { msg_trace: 'a.*' } }",
    "accounts { A { msg_trace: 'a..b' } }",
    "accounts { A { msg_trace: { dest: a, sampling: 101 } } }",
    "accounts { A { msg_trace: { dest: a, sampling: -1 } } }",
    "accounts { A { msg_trace: { dest: a, sampling: some } } }",
    "accounts { A { msg_trace: { dest: a, often: 1 } } }",
    "accounts { A { msg_trace: 5 } }",
    "accounts { A { msg_trace: [a] } }",
    "accounts { A { msg_trace: '' } }",
    "accounts { A { msg_trace: { sampling: 5 } } }",
    "accounts { A { msg_trace: { dest: a, sampling: '50 %' } } }",
    "accounts { A { msg_trace: { dest: a, sampling: 0 } } }",
    "{",
    "=1",
    "port",
    '"port',
    "port: x",
    "port:\n4222",
    "port: - 1",
    "port: 4222 host: a",
    "port: 4222 ]",
    "max_payload: 1.5MB",
    "max_payload: 12x",
    "max_payload: 1024B",
    "tls{ }",
    "x { y: 1",
    "host: 'a",
    'host: "a\\q"',
    "host: $NOT_IN_THE_ENVIRONMENT",
    "include nope.conf",
    "debug: 'true'",
    "ping_interval: 2m",
    "ping_interval: 20",
    "lame_duck_duration: '5s'",
    "listen: ':x'",
    "jetstream: maybe",
    "server_name: 'a b'",
    "authorization { user: a, token: b }",
    "authorization { users: [ {password: a} ] }",
    "authorization { users: [ {user: a, password: b}, {user: a, password: c} ] }",
    "accounts { A: {users: [{user: a, password: b}]}, B: {users: [{user: a, password: b}]} }",
    "authorization { users: [ {nkey: UABC} ] }",
    "tls { cert_file: 'x' }",
)

KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
USERS_A = "accounts { A { users: [{user: a, password: b}] } }"
IDENTITIES = (
    "authorization { token: t, users: [{user: a, password: b}] }",
    "authorization { token: t, users: [] }",
    f"authorization {{ token: t }}\n{USERS_A}",
    f"authorization {{ user: c, password: b }}\n{USERS_A}",
    f"authorization {{ user: a, password: b }}\n{USERS_A}",
    f"authorization {{ users: [{{user: c, password: b}}] }}\n{USERS_A}",
    f"authorization {{ users: [{{user: a, password: b}}] }}\n{USERS_A}",
    "authorization { token: t }\naccounts { SYS { users: [{user: a, password: b}] } }\nsystem_account: SYS",
    "authorization { user: a, password: b }\naccounts { '$SYS' { users: [{user: c, password: b}] } }",
    "authorization { token: t }\naccounts { A { jetstream: enabled } }",
    "authorization { token: t }\naccounts: [A, B]",
    "authorization { user: a, users: [{user: c, password: b}] }",
    "authorization { user: a, password: p, users: [] }",
    "authorization { user: a, password: p, token: t }",
    "authorization { password: p }",
    "authorization { password: p, token: t }",
    "authorization { token: '', users: [{user: c, password: b}] }",
    "no_auth_user: a",
    "no_auth_user: a\nauthorization { users: [{user: c, password: b}] }",
    "no_auth_user: c\nauthorization { users: [{user: c, password: b}] }",
    "no_auth_user: c\nauthorization { user: c, password: b }",
    "no_auth_user: c\nauthorization { token: c }",
    f"no_auth_user: a\n{USERS_A}",
    f"no_auth_user: x\n{USERS_A}",
    "no_auth_user: ''\nauthorization { users: [{user: c, password: b}] }",
    f"no_auth_user: {KEY}\naccounts {{ A {{ users: [{{nkey: {KEY}}}] }} }}",
    f"no_auth_user: {KEY}\n{USERS_A}",
    "websocket { listen: '127.0.0.1:-1', no_tls: true, no_auth_user: a }",
    f"websocket {{ listen: '127.0.0.1:-1', no_tls: true, no_auth_user: x }}\n{USERS_A}",
    f"authorization {{ users: [{{nkey: {KEY}}}, {{nkey: {KEY}}}] }}",
    f"authorization {{ users: [{{user: {KEY}, password: x}}, {{nkey: {KEY}}}] }}",
    f"authorization {{ token: t, users: [{{nkey: {KEY}}}] }}",
    f"authorization {{ user: a, password: b, users: [{{nkey: {KEY}}}] }}",
    f"authorization {{ users: [{{nkey: {KEY}}}] }}\n{USERS_A}",
    f"authorization {{ users: [{{nkey: {KEY}}}] }}\naccounts {{ A {{ users: [{{nkey: {KEY}}}] }} }}",
    f"authorization {{ token: t }}\naccounts {{ A {{ users: [{{nkey: {KEY}}}] }} }}",
    f"accounts {{ A {{ users: [{{nkey: {KEY}}}] }}, B {{ users: [{{nkey: {KEY}}}] }} }}",
    f"accounts {{ A {{ users: [{{nkey: {KEY}, user: x}}] }} }}",
    f"accounts {{ A {{ users: [{{nkey: {KEY}, password: x}}] }} }}",
    f"accounts {{ A {{ users: [{{nkey: {KEY[:-1]}5}}] }} }}",
    f"accounts {{ A {{ users: [{{nkey: {KEY.lower()}}}] }} }}",
    "accounts { A { users: [{user: a, password: b}, {user: a, password: b}] } }",
    "accounts { A { users: [{user: a, password: b}] }, B { users: [{user: a, password: b}] } }",
    "accounts { '$G' { users: [{user: a, password: b}] } }",
    "accounts: [A, A]",
    "accounts { A { users: [{user: '', password: b}] } }",
    "accounts { A { users: [] } }",
    "jetstream: enabled\naccounts { A { jetstream: enabled } }\nsystem_account: A",
    "accounts { A { jetstream: enabled } }\nsystem_account: A",
    "authorization { user: a, password: b, permissions: {publish: 'a b'} }",
    "authorization { users: [{user: a, password: b, permissions: {publish: {deny: 'a b'}}}] }",
    "authorization { users: [{user: a, password: b, permissions: {subscribe: 'a b'}}] }",
    "authorization { users: [{user: a, password: b, permissions: {subscribe: 'a b c'}}] }",
)
"""Configurations of identities that exclude each other, or do not."""


def nats_server(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real server for a moment."""
    return subprocess.run([str(BINARY), *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def takes(file: Path) -> bool:
    """Tell whether we take a configuration file."""
    try:
        read_configuration(file).refuse_doubts()
    except StrandlineError:
        return False
    return True


@pytest.mark.parametrize(("texts", "expected"), [(TAKEN, True), (REFUSED, False)], ids=["taken", "refused"])
def test_both_take_and_refuse_the_same_files(tmp_path: Path, texts: tuple[str, ...], expected: bool) -> None:
    file = tmp_path / "c.conf"
    for text in texts:
        file.write_bytes(text.encode())
        found = nats_server("-t", "-c", str(file))
        assert (found.returncode == 0, takes(file)) == (expected, expected), (text, found.stderr)


def refusal(folder: Path, configuration_text: str) -> str:
    """Return why nats-server does not start, "" if it does: much is checked only then."""
    file = folder / "c.conf"
    file.write_text(f"listen: '127.0.0.1:-1'\njetstream {{ store_dir: '{folder}' }}\n{configuration_text}")
    log = folder / "log"
    with log.open("wb") as output, subprocess.Popen([str(BINARY), "-c", str(file)], stderr=output) as server:
        try:
            eventually(lambda: server.poll() is not None or b"Server is ready" in log.read_bytes())
        finally:
            server.kill()
    return told_reason(log.read_text())


def told_reason(log: str) -> str:
    """Return the last reason to end in a log, "" if the server was ready: it may log more after either."""
    if "Server is ready" in log:
        return ""
    return plain([line for line in log.splitlines() if "[FTL]" in line or line.startswith("nats-server: ")][-1])


def test_a_server_that_was_ready_has_refused_nothing_whatever_it_logs_last() -> None:
    stamp = "[7] 2026/01/02 03:04:05.000000"
    ready = f"{stamp} [INF] Server is ready\n"
    assert told_reason(f"{ready}{stamp} [INF] Initiating Shutdown...\n") == ""
    assert told_reason(f"{stamp} [FTL] no users\n{stamp} [INF] Server Exiting..\n") == "no users"
    assert told_reason("nats-server: c.conf:1:2: odd\n") == "odd"


def plain(problem: str) -> str:
    """Return a refusal without its place."""
    return re.sub(r"^(nats-server: |\[\d+\] \S+ \S+ \[FTL\] )?(\S+:\d+:\d+: )?", "", problem)


@pytest.mark.parametrize("text", IDENTITIES)
def test_identities_that_exclude_each_other_are_refused_with_the_same_text(tmp_path: Path, text: str) -> None:
    theirs = refusal(tmp_path, text)
    try:
        read_configuration(tmp_path / "c.conf").refuse_doubts()
        ours = ""
    except StrandlineError as refused:
        ours = plain(str(refused).splitlines()[0])
    if "accounts {" in text and "authorization {" in text:
        # nats-server reads the two blocks in any order, and names the one that it reads first.
        ours, theirs = (each.replace("a users array", "accounts") for each in (ours, theirs))
    assert ours == theirs


@pytest.mark.parametrize(
    ("within", "table", "ours"),
    [
        ("", configuration.KEYS, {"remotes"}),
        ("authorization", identities.AUTHORIZATION, set()),
        ("accounts A", identities.ACCOUNT, {"remotes"}),
        ("accounts A limits", identities.ACCOUNT_LIMITS, set()),
        ("accounts A jetstream", identities.ACCOUNT_JETSTREAM, set()),
        ("jetstream", configuration.JETSTREAM, set()),
        ("tls", listeners.TLS, set()),
        ("websocket", listeners.WEBSOCKET, set()),
    ],
)
def test_every_key_that_we_know_is_one_of_nats_servers(
    tmp_path: Path, within: str, table: Table, ours: set[str]
) -> None:
    file = tmp_path / "c.conf"
    blocks = within.split()
    unknown = set()
    for key in table:  # one at a time, for some values make it stop looking
        text = "".join(f"{block} {{ " for block in blocks) + f"{key}: zz" + " }" * len(blocks)
        file.write_text(text)
        unknown |= set(UNKNOWN.findall(nats_server("-t", "-c", str(file)).stderr))
    assert unknown == ours


def test_every_flag_of_nats_server_is_known() -> None:
    help_text = nats_server("-h").stdout
    flags = set(re.findall(r"(?:^\s+|, ?)--?(\w+)", help_text, re.MULTILINE))
    assert len(flags) > 50
    assert flags <= set(BY_NAME)
    ours = {"sync", "log-format", "log_format", "metrics-port", "metrics_port", "metrics-host", "metrics_host"}
    assert set(BY_NAME) - flags == ours
