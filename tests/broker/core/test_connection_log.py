"""What the log says of clients: enough to see a mistake or an attack, and never a secret."""

import logging

import pytest

from strandline.broker.core import connection_log
from strandline.broker.settings import AccountSettings, Permissions, Rule, ServerSettings, UserSettings
from tests.broker.core.world import CONNECT, InMemoryServer

PERMISSIONS = Permissions(publish=Rule(deny=("secret.>",)), subscribe=Rule(deny=("secret.>",)))
USERS = ServerSettings(accounts=(AccountSettings(users=(UserSettings("ann", "pw", permissions=PERMISSIONS),)),))
ANN = b'CONNECT {"verbose":false,"pedantic":false,"user":"ann","pass":"pw"}\r\n'


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "strandline.broker")
    return caplog


def _lines(log: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in log.records]


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (b'CONNECT {"user":"ann","pass":"hunter2"}\r\n', ' - User "ann"'),
        (b'CONNECT {"user":"a\\nb\\"","pass":"hunter2"}\r\n', ' - User "a\\nb\\""'),
        (b'CONNECT {"auth_token":"hunter2"}\r\n', ' - Token "[REDACTED]"'),
        (b'CONNECT {"nkey":"UABC","sig":"hunter2"}\r\n', ' - Nkey "UABC"'),
        (b"PUB hunter2 1\r\nx\r\n", ""),
    ],
)
def test_who_may_not_come_in_is_named_and_the_password_is_not(
    log: pytest.LogCaptureFixture, said: bytes, line: str
) -> None:
    InMemoryServer(USERS).client(said, port=4711)
    assert _lines(log) == [("ERROR", f"127.0.0.1:4711 - cid:1 - authentication error{line}")]
    assert "hunter2" not in log.text


def test_what_a_client_may_not_do_is_said(log: pytest.LogCaptureFixture) -> None:
    said = b"PUB secret.x 1\r\nx\r\nPUB a $JS.ACK.x 0\r\n\r\nSUB secret.> q 1\r\nSUB secret.y 2\r\nSUB fine 3\r\n"
    InMemoryServer(USERS).client(ANN + said, host="::1", port=1)
    ann = '[::1]:1 - cid:1 - "$G/user:ann" - '
    assert _lines(log) == [
        ("ERROR", f'{ann}Publish Violation - Subject "secret.x"'),
        ("ERROR", f'{ann}Publish Violation - Reply "$JS.ACK.x"'),
        ("ERROR", f'{ann}Subscription Violation - Subject "secret.>", Queue: "q", SID 1'),
        ("ERROR", f'{ann}Subscription Violation - Subject "secret.y", SID 2'),
    ]


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ("", ""),
        ('"user":"a"', ' - "$G/user:a"'),
        ('"name":"n","lang":"go","version":"1.2"', ' - "v1.2:go:n"'),
        ('"lang":"go","auth_token":"hunter2"', ' - "go" - "$G/token"'),
        ('"name":"a\\nb\\"c é\\u2028","nkey":"UABC"', ' - "a\\nb\\"c é\\u2028" - "$G/nkey:UABC"'),
    ],
)
def test_a_client_is_called_by_what_it_says_of_itself(log: pytest.LogCaptureFixture, options: str, label: str) -> None:
    said = f'CONNECT {{"verbose":false,"pedantic":false{"," if options else ""}{options}}}\r\nPUB a\r\n'
    InMemoryServer().client(said.encode())
    ((level, line),) = _lines(log)
    assert level == "ERROR"
    assert line.startswith(f"127.0.0.1:0 - cid:1{label} - Client parser ERROR: ")
    assert "hunter2" not in line


def test_a_client_cannot_fill_the_log(log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_log, "VIOLATIONS_LOGGED_MAX", 3)
    InMemoryServer(USERS).client(ANN + b"PUB secret.x 1\r\nx\r\n" * 50 + b"SUB secret." + b"x" * 3000 + b" 1\r\n")
    assert len(log.records) == 3
    assert log.records[-1].getMessage().endswith("further violations of this client are not logged")


def test_long_names_are_cut(log: pytest.LogCaptureFixture) -> None:
    InMemoryServer(USERS).client(b'CONNECT {"user":"%s"}\r\n' % (b"x" * 3000))
    assert len(log.records[0].getMessage()) < 400


def test_why_a_client_is_sent_away_is_said_and_silence_is_no_error(log: pytest.LogCaptureFixture) -> None:
    world = InMemoryServer(ServerSettings(max_payload=10))
    world.client(CONNECT + b"PUB a 20\r\n")
    assert _lines(log) == [("ERROR", "127.0.0.1:0 - cid:1 - maximum payload exceeded: 20 vs 10")]
    log.clear()
    late = InMemoryServer(USERS).client(b"")
    late.session.tick(late.session.next_due_ns)
    assert _lines(log) == [("DEBUG", "127.0.0.1:0 - cid:1 - Authentication Timeout")]


def test_a_client_that_does_not_answer_is_pinged_and_then_gone(log: pytest.LogCaptureFixture) -> None:
    client = InMemoryServer(ServerSettings(ping_max=1)).client(CONNECT)
    for _ in range(2):
        client.session.tick(client.session.next_due_ns)
    who = "127.0.0.1:0 - cid:1 - "
    told = ["Client Ping Timer", "Client Ping Timer", "Stale Client Connection - Closing"]
    assert _lines(log) == [("DEBUG", who + text) for text in told]
