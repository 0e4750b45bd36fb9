"""The same bytes said to a real nats-server and to sessions of ours are answered with the same bytes."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from strandline.broker.settings import AccountSettings, JetStreamSettings, ServerSettings, UserSettings
from strandline.broker.settings.configuration import read_configuration
from tests.broker.core.world import CONNECT, Client, InMemoryServer, RealClient
from tests.servers_nats import NatsServer, running_nats

VERBOSE = CONNECT.replace(b'"verbose":false,"pedantic":false', b'"verbose":true,"pedantic":true')
NO_HEADERS = b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\n'
NO_ECHO = CONNECT.replace(b"{", b'{"echo":false,')
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
Script = list[tuple[str, bytes]]


def connect(user: str, secret: str = "p", **more: object) -> bytes:  # noqa: S107 - of a server that lives for seconds
    options = {
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
        "user": user,
        "pass": secret,
    }
    return b"CONNECT " + json.dumps({**options, **more}).encode() + b"\r\n"


def pubs(*subjects: bytes) -> bytes:
    return b"".join(b"PUB %b 1\r\na\r\n" % subject for subject in subjects)


def subs(*patterns: bytes, first: int = 1) -> bytes:
    return b"".join(b"SUB %b %d\r\n" % (pattern, sid) for sid, pattern in enumerate(patterns, first))


ALONE: dict[str, bytes] = {
    "nothing of its own": b"CONNECT {}\r\nPING\r\n",
    "before CONNECT": b"PING\r\nSUB foo 1\r\nPUB foo 2\r\nhi\r\n",
    "twice": b'CONNECT {"verbose":true}\r\nCONNECT {"verbose":false}\r\nSUB a 1\r\n',
    "a CONNECT that is no JSON": b"CONNECT {x\r\nPING\r\n",
    "a CONNECT of a list": b"CONNECT []\r\nPING\r\n",
    "a CONNECT without options": b"CONNECT\r\nPING\r\n",
    "a CONNECT of other types": b'CONNECT {"verbose":1}\r\nPING\r\n',
    "an unknown protocol": b'CONNECT {"protocol":7}\r\nPING\r\n',
    "no responders without headers": b'CONNECT {"headers":false,"no_responders":true}\r\nPING\r\n',
    "words in lower case and LF": CONNECT + b"sub foo 1\npub foo 2\nhi\r\nPUB foo 1\r\nx\r\nunsub 1\nping\n",
    "odd blanks": CONNECT + b"SUB\tfoo   1 \r\nPUB foo  r   2 \r\nhi\r\nPUB\tfoo\t1\r\na\r\n",
    "a size with zeros": CONNECT + b"SUB foo 1\r\nPUB foo 002\r\nhi\r\n",
    "words of a server": CONNECT + b"+OK\r\nINFO {}\r\nPING now\r\nPONG then\r\n",
    "an error of the client": CONNECT + b"-ERR 'hello'\r\nPING\r\n",
    "an unknown word": CONNECT + b"HELLO\r\n",
    "an empty line": CONNECT + b"\r\n",
    "a message of a server": CONNECT + b"MSG foo 1 0\r\n\r\n",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "wrong subjects": CONNECT + b"SUB foo..bar 1\r\nSUB foo. 1\r\nSUB >.foo 1\r\nSUB .a 1\r\nSUB a.> q..z 3\r\n",
    "wrong subjects, verbose": VERBOSE + b"SUB foo..bar 1\r\nSUB a 2\r\nUNSUB 2\r\nUNSUB 77\r\n",
    "too many arguments of SUB": CONNECT + b"SUB foo 1 2 3\r\nPING\r\n",
    "too few arguments of SUB": CONNECT + b"SUB foo\r\nPING\r\n",
    "no arguments of SUB": CONNECT + b"SUB\r\nPING\r\n",
    "UNSUB of what is not there": CONNECT + b"UNSUB 77\r\nUNSUB 77 abc\r\n",
    "UNSUB with odd numbers": CONNECT + b"SUB foo 1\r\nUNSUB 1 -3\r\nSUB foo 2\r\nUNSUB 2 0\r\nPUB foo 0\r\n\r\n",
    "a sid that is taken": CONNECT + b"SUB foo 1\r\nSUB bar 1\r\nPUB foo 0\r\n\r\nPUB bar 0\r\n\r\n",
    "a payload longer than its size": CONNECT + b"SUB foo 1\r\nPUB foo 2\r\nhix\r\nPING\r\n",
    "a payload that ends with LF": CONNECT + b"SUB foo 1\r\nPUB foo 2\r\nhi\nPING\r\n",
    "too many arguments of PUB": CONNECT + b"PUB foo a b 2\r\nhi\r\n",
    "no size": CONNECT + b"PUB foo\r\nhi\r\n",
    "a size that is none": CONNECT + b"PUB foo -1\r\nhi\r\n",
    "a size of many digits": CONNECT + b"PUB foo 0000000002\r\nhi\r\n",
    "a payload too large": CONNECT + b"PUB foo 2000000\r\nhi\r\n",
    "a line too long": CONNECT + b"PUB " + b"x" * 5000 + b" 0\r\n\r\n",
    "headers larger than all": CONNECT + b"HPUB foo 12 10\r\n0123456789\r\n",
    "headers without leave": NO_HEADERS + b"HPUB h 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    "headers": CONNECT
    + b"SUB h 1\r\nHPUB h 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHPUB h 0 2\r\nhi\r\nHPUB h r 5 7\r\nhellohi\r\n",
    "verbose": VERBOSE + b"PONG\r\nSUB foo 1\r\nPUB foo 2\r\nhi\r\nUNSUB 1 1\r\nUNSUB 1\r\n",
    "pedantic": VERBOSE + b"SUB > 1\r\nPUB foo.* 1\r\na\r\nPUB foo..x 1\r\nb\r\nPUB > 1\r\nc\r\nPUB foo a.* 1\r\nd\r\n",
    "odd published subjects": CONNECT
    + b"SUB > 1\r\nSUB foo.bar 2\r\nSUB foo.* 3\r\nPUB foo.* 1\r\na\r\nPUB foo..x 1\r\nb\r\n"
    b"PUB foo. 1\r\nc\r\nPUB > 1\r\nd\r\nPUB a\x00b 1\r\ne\r\n",
    "no echo": NO_ECHO + b"SUB h 1\r\nSUB q 2\r\nPUB h 2\r\nhi\r\nPUB h q 2\r\nhi\r\n",
    "no responders": CONNECT
    + b"SUB r 2\r\nPUB nobody r 1\r\na\r\nSUB q.* w 3\r\nPUB nobody q.1 1\r\na\r\nSUB s.* 4\r\nUNSUB 4 1\r\n"
    b"PUB nobody s.1 1\r\na\r\nPUB nobody s.1 1\r\na\r\nHPUB nobody s.2 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    "a limit": CONNECT + b"SUB foo 1\r\nUNSUB 1 2\r\n" + b"PUB foo 1\r\nx\r\n" * 3 + b"UNSUB 1\r\n",
    "a limit that is reached": CONNECT
    + b"SUB foo 1\r\n"
    + b"PUB foo 1\r\nx\r\n" * 2
    + b"UNSUB 1 1\r\nPUB foo 1\r\ny\r\n",
    "a limit of later": CONNECT + b"SUB foo 1\r\nPUB foo 1\r\n1\r\nUNSUB 1 3\r\n" + b"PUB foo 1\r\nx\r\n" * 3,
    "a limit of a request": CONNECT
    + b"SUB r 1\r\nUNSUB 1 1\r\nSUB ask 2\r\nPUB ask r 0\r\n\r\nPUB r 1\r\na\r\nPUB r r 1\r\na\r\n",
    "many at once": CONNECT
    + b"SUB many.* 1\r\nSUB other.7 2\r\n"
    + b"".join(b"PUB many.%d 1\r\nx\r\n" % n for n in range(300)),
    "many with odd blanks": CONNECT + b"SUB foo 1\r\n" + b"PUB  foo   1 \r\nx\r\n" * 40,
    "many of one shape": CONNECT
    + b"SUB s 1\r\n"
    + b"".join(b"PUB s r.%03d 3\r\n%03d\r\n" % (n, n) for n in range(900)),
    "many with headers": CONNECT
    + b"SUB s.* 1\r\n"
    + b"".join(b"HPUB s.%d 18 19\r\n%bx\r\n" % (n, HEADERS) for n in range(500)),
    "replies of the server's own": CONNECT
    + b"SUB > 1\r\n"
    + b"".join(
        b"PUB a %b 1\r\nx\r\n" % r
        for r in (b"$JS.ACK.x", b"_R_.x", b"_GR_.x", b"$GR.x", b"$JS.ACK", b"$JS.API.x", b"_R_")
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_one_client_is_answered_as_by_nats_server(name: str, nats_server: NatsServer) -> None:
    with closing(RealClient(nats_server.port)) as real:
        assert InMemoryServer().client(b"").say(ALONE[name]) == real.say(ALONE[name])


def test_how_a_conversation_is_cut_does_not_show() -> None:
    for name, data in ALONE.items():
        if len(data) < 1000 and "CONNECT" not in name:
            whole = InMemoryServer().client(b"").say(data)
            assert InMemoryServer().client(b"").say(*(bytes([byte]) for byte in data)) == whole, name


def test_the_greeting_has_the_fields_of_nats_server(nats_server: NatsServer) -> None:
    real = RealClient(nats_server.port)
    info = json.loads(real.greeting[5:])
    ours = InMemoryServer().client(b"").session.greeting()
    assert ours.endswith(b"} \r\n")
    # A key for authentication by another service, which we do not have.
    assert list(json.loads(ours[5:])) == [key for key in info if key != "xkey"]
    again = json.loads(
        real.say(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n').split(b"INFO ")[1].split(b"\r\n")[0]
    )
    client = InMemoryServer().client(b'CONNECT {"verbose":false,"protocol":1}\r\n')
    told = client.say(b"PING\r\nPING\r\n").split(b"\r\n")
    assert (told[0], told[2:]) == (b"PONG", [b"PONG", b""])
    assert list(json.loads(told[1][5:])) == [key for key in again if key != "xkey"]
    real.close()


def test_the_greeting_of_a_domain_has_its_fields_in_their_order() -> None:
    user = UserSettings(nkey="U" + "A" * 55)
    settings = ServerSettings(jetstream=JetStreamSettings(domain="X"), accounts=(AccountSettings(users=(user,)),))
    client = InMemoryServer(settings).client(b"")
    fields = list(json.loads(client.session.greeting()[5:]))
    assert fields[fields.index("client_ip") :] == ["client_ip", "nonce", "domain", "api_lvl"]
    fields = list(json.loads(client.session.server_info.format_info(1, "127.0.0.1", ldm=True)[5:]))
    assert fields[fields.index("client_ip") :] == ["client_ip", "domain", "ldm", "api_lvl"]


SETTINGS = """
accounts {
  A: { jetstream: enabled, users: [
    { user: a, password: p }
    { user: p, password: p, permissions: {
        publish: { allow: ["can.pub", "c.*"], deny: ["c.no"] }
        subscribe: { allow: ["foo.*", "bar.>", "q.x grp", "_INBOX.>"], deny: ["bar.secret.>", "bar.x"] } } }
    { user: d, password: p, permissions: { subscribe: { deny: ["secret.>", "s.one q1"] } } }
    { user: r, password: p, permissions: { subscribe: "svc.>", allow_responses: true } }
    { user: two, password: p, permissions: { publish: zzz, subscribe: "svc.>", allow_responses: { max: 2 } } }
  ] }
  B: { users: [ { user: b, password: "$2a$04$P/.bd.7unw9Ew7yWJqXsl.f4oNRLQGvadEL2YnqQXbbb.IVQajRdK" } ] }
}
"""
TOGETHER: dict[str, Script] = {
    "two accounts": [
        ("one", connect("a") + b"SUB > 1\r\n"),
        ("two", connect("b", "foo") + b"SUB > 1\r\nPUB x 1\r\na\r\n"),
        ("one", b"PUB y 1\r\nb\r\n"),
    ],
    "wrong credentials": [
        ("one", connect("a", "q")),
        ("two", connect("nobody")),
        ("three", connect("b", "bar")),
        ("four", b"CONNECT {}\r\n"),
        ("five", b"PING\r\n"),
        ("six", b"NONSENSE\r\n"),
        ("seven", b"SUB a 1\r\n"),
        ("eight", b'CONNECT {"auth_token":"p"}\r\n'),
    ],
    "publishing": [
        ("one", connect("a") + b"SUB > 1\r\n"),
        (
            "two",
            connect("p") + pubs(b"no", b"c.no", b"can.pub", b"c.x no.way", b"c.x.y"),
        ),
        ("two", b"HPUB c.no 18 18\r\n" + HEADERS + b"\r\nHPUB c.yes 18 18\r\n" + HEADERS + b"\r\n"),
        ("two", b"".join(b"PUB c.%b 1\r\na\r\n" % (b"no" if n == 77 else b"%02d" % (n % 100)) for n in range(200))),
        ("three", connect("p", verbose=True) + b"PUB no 1\r\na\r\nPUB c.a 1\r\na\r\nSUB nope 1\r\n"),
    ],
    "subscribing": [
        (
            "one",
            connect("p") + subs(b"foo.*", b"foo.x", b"bar.>", b"bar.x", b"bar.secret.y", b"bar.secret.>"),
        ),
        (
            "one",
            subs(b"bar.*", b">", b"*", b"q.x", b"q.x grp", b"q.x other", b"bar.x grp", first=8),
        ),
        (
            "two",
            connect("a") + pubs(b"bar.x", b"bar.y", b"bar.secret.a", b"q.x", b"foo.x"),
        ),
        ("two", b"PUB bar.x _INBOX.1 1\r\na\r\nHPUB bar.secret.x 18 18\r\n" + HEADERS + b"\r\n"),
    ],
    "filtering": [
        (
            "one",
            connect("d")
            + b"SUB > 1\r\nSUB s.one q1 2\r\nSUB s.one q2 3\r\nSUB s.one 4\r\nSUB *.* q1 5\r\nSUB secret.* 6\r\n",
        ),
        ("one", b"PUB secret.x 1\r\na\r\nPUB ok 1\r\nb\r\n"),
        ("two", connect("a") + b"SUB secret.> all 1\r\n"),
        ("two", b"PUB secret.x 1\r\na\r\nPUB s.one 1\r\nc\r\nPUB secret.y _INBOX.1 1\r\nc\r\n"),
        ("one", b"SUB _INBOX.1 9\r\nPUB secret.z.z _INBOX.1 1\r\nd\r\n"),
    ],
    "answering": [
        ("one", connect("a") + b"SUB _INBOX.> 1\r\n"),
        ("two", connect("r") + b"SUB svc.> 1\r\nPUB _INBOX.z 1\r\na\r\nPUB foo 1\r\na\r\n"),
        ("three", connect("two") + b"SUB svc.b.> 1\r\nPUB zzz 1\r\na\r\nPUB _INBOX.z 1\r\na\r\n"),
        ("one", b"PUB svc.x _INBOX.q 1\r\na\r\n"),
        ("two", b"PUB _INBOX.q 1\r\n1\r\nPUB _INBOX.q 1\r\n2\r\n"),
        ("one", b"PUB svc.b.x _INBOX.q 1\r\na\r\n"),
        ("three", b"PUB _INBOX.q 1\r\n1\r\nPUB _INBOX.q 1\r\n2\r\nPUB _INBOX.q 1\r\n3\r\n"),
        ("two", b"PUB _INBOX.other 1\r\n1\r\nPUB _INBOX.q reply 1\r\n2\r\n"),
    ],
}


@contextmanager
def real_clients(port: int) -> Iterator[dict[str, RealClient]]:
    clients: dict[str, RealClient] = {}
    with ExitStack() as stack:

        class Clients(dict[str, RealClient]):
            def __missing__(self, name: str) -> RealClient:
                self[name] = client = RealClient(port)
                stack.callback(client.close)
                return client

        clients = Clients()
        yield clients


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NatsServer, InMemoryServer]]:
    with running_nats(SETTINGS) as server:
        path = tmp_path_factory.mktemp("guarded") / "server.conf"
        path.write_text(SETTINGS)
        yield server, InMemoryServer(read_configuration(path).settings)


@pytest.mark.parametrize("name", TOGETHER)
def test_several_clients_are_answered_as_by_nats_server(name: str, guarded: tuple[NatsServer, InMemoryServer]) -> None:
    server, world = guarded
    ours: dict[str, Client] = {}
    with real_clients(server.port) as real:
        for who, data in TOGETHER[name]:
            said = {who: real[who].say(data)}
            said |= {other: real[other].say(b"") for other in list(real) if other != who and b"<" not in said[who]}
            ours.setdefault(who, world.client(b"") if who not in ours else ours[who])
            answers = {who: ours[who].say(data)}
            answers |= {other: ours[other].heard() for other in said if other != who}
            assert answers == said, (who, data)
    for client in ours.values():
        client.session.close()


def test_a_wider_pattern_than_any_allowed_one_is_refused(guarded: tuple[NatsServer, InMemoryServer]) -> None:
    _, world = guarded  # nats-server takes it, and delivers what is not allowed
    client = world.client(connect("p"))
    assert client.say(b"SUB foo.> 1\r\n") == b"-ERR 'Permissions Violation for Subscription to \"foo.>\"'\r\n"
    assert client.say(b"SUB *.x 1\r\n").startswith(b"-ERR 'Permissions Violation")
