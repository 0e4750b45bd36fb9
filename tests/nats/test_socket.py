"""The blocking connection: logins, TLS, limits on waits, refusals, and bytes that come in any pieces."""

import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path

import pytest

from strandline.errors import Closed, FormatError
from strandline.nats import JetStreamApi, NatsSocket, ReadPlan, stream_state
from strandline.nats.cancellation import CancelToken
from strandline.nats.deliveries import receive_deliveries
from strandline.nats.errors import (
    AccessRefused,
    ConnectionDropped,
    DeliveryBroken,
    JetStreamDisabled,
    LoginRefused,
    NoAnswer,
    ServerRefused,
    TlsRefused,
    Unreachable,
)
from strandline.nats.handshake import ServerInfo, format_login, parse_info
from strandline.nats.jetstream import ConsumerSpec
from strandline.nats.logins import Login
from strandline.nats.push_consumer import PushConsumer
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import _targets
from strandline.wire import Ack, ProtocolViolation, Times, format_ack, format_headers, format_msg
from tests import identities_nats as identities
from tests.ports import free_ports
from tests.servers_nats import NatsServer, running_nats
from tests.waiting import PATIENCE_S


def ask(settings: NatsSettings) -> None:
    """Connect and ask something."""
    with NatsSocket.connect(settings) as connection:
        assert b"account_info_response" in connection.request("$JS.API.INFO").payload


def refused(settings: NatsSettings, error: type[Exception], *secrets: str) -> None:
    with pytest.raises(error) as raised:
        ask(settings)
    told = repr(raised.value) + str(raised.value) + repr(pickle.loads(pickle.dumps(raised.value)))  # noqa: S301 - ours
    assert not any(secret in told for secret in secrets)


def test_a_user_and_a_password_or_a_token_are_in_the_url() -> None:
    with running_nats(identities.USER) as server:
        ask(NatsSettings(server.url_with(identities.USER_INFO), timeout_s=PATIENCE_S))
        refused(NatsSettings(server.url_with("ann:wr0ng"), timeout_s=PATIENCE_S), LoginRefused, "wr0ng")
        refused(NatsSettings(server.url, timeout_s=PATIENCE_S), LoginRefused)
    with running_nats(identities.TOKEN) as server:
        ask(NatsSettings(server.url_with(identities.TOKEN_TEXT), timeout_s=PATIENCE_S))
        refused(NatsSettings(server.url_with("wr0ng"), timeout_s=PATIENCE_S), LoginRefused, "wr0ng")


def test_a_key_signs(tmp_path: Path) -> None:
    user = identities.make_nkey()
    seed = tmp_path / "seed"
    seed.write_bytes(user.seed)
    other = tmp_path / "other"
    other.write_bytes(identities.make_nkey().seed)
    with running_nats(identities.nkey_settings(user)) as server:
        ask(NatsSettings(server.url, creds_file=str(seed), timeout_s=PATIENCE_S))
        refused(NatsSettings(server.url, creds_file=str(other), timeout_s=PATIENCE_S), LoginRefused, other.read_text())


def test_a_creds_file_or_its_text_signs(tmp_path: Path) -> None:
    operator = identities.make_operator()
    file = tmp_path / "user.creds"
    file.write_text(operator.creds)
    with running_nats(operator.settings) as server:
        ask(NatsSettings(server.url, creds_file=str(file), timeout_s=PATIENCE_S))
        ask(NatsSettings(server.url, creds=operator.creds_base64, timeout_s=PATIENCE_S))
        stranger = identities.make_operator()
        refused(
            NatsSettings(server.url, creds=stranger.creds_base64, timeout_s=PATIENCE_S), LoginRefused, stranger.creds
        )


@pytest.mark.parametrize("mutual", [False, True])
def test_tls_is_spoken_with_a_server_that_is_trusted(tmp_path: Path, mutual: bool) -> None:
    certificates = identities.make_certificates(tmp_path)
    with running_nats(certificates.settings(mutual=mutual), scheme="tls") as server:
        own = {"tls_cert": str(certificates.client_cert), "tls_key": str(certificates.client_key)} if mutual else {}
        ask(NatsSettings(server.url, tls_ca=str(certificates.ca), timeout_s=PATIENCE_S, **own))  # type: ignore[arg-type]
        refused(NatsSettings(server.url, tls_ca=str(certificates.other_ca), timeout_s=PATIENCE_S), TlsRefused)
        if mutual:
            with pytest.raises((TlsRefused, Unreachable)):
                ask(NatsSettings(server.url, tls_ca=str(certificates.ca), timeout_s=PATIENCE_S))


def test_a_server_without_tls_is_refused_before_the_login_is_sent(nats_server: NatsServer) -> None:
    refused(NatsSettings(nats_server.url.replace("nats://", "tls://"), timeout_s=PATIENCE_S), TlsRefused)


FULL = b"-ERR 'maximum connections exceeded'\r\n"


@pytest.mark.parametrize(("first", "then"), [(FULL, b""), (b"", FULL)])
def test_a_server_that_has_no_room_is_not_one_that_refuses_the_login(first: bytes, then: bytes) -> None:
    with refusing(first, then) as settings, pytest.raises(Unreachable, match="maximum connections exceeded"):
        ask(settings)


def test_a_real_server_that_has_no_room_is_unreachable() -> None:
    with running_nats("max_connections: 1") as server:
        settings = NatsSettings(server.url, timeout_s=PATIENCE_S)
        with NatsSocket.connect(settings):
            refused(settings, Unreachable)


@contextmanager
def refusing(first: bytes, then: bytes) -> Iterator[NatsSettings]:
    """Run a server that says something after its INFO, something after a login, and hangs up."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(b"INFO {}\r\n" + first)
                if client.recv(4096):
                    client.sendall(then)
                    client.shutdown(socket.SHUT_WR)
                    client.recv(4096)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield NatsSettings(f"nats://127.0.0.1:{listener.getsockname()[1]}", timeout_s=PATIENCE_S)
        thread.join(PATIENCE_S)


def test_another_server_is_taken_if_one_refuses_the_login_or_is_not_trusted(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    with running_nats(identities.TOKEN) as server:
        ask(NatsSettings([server.url, nats_server.url], timeout_s=PATIENCE_S))
        refused(NatsSettings([server.url, "nats://127.0.0.1:1"], timeout_s=PATIENCE_S), LoginRefused)
    (tmp_path / "other").mkdir()
    known, unknown = identities.make_certificates(tmp_path), identities.make_certificates(tmp_path / "other")
    with running_nats(unknown.settings(), scheme="tls") as one, running_nats(known.settings(), scheme="tls") as two:
        ask(NatsSettings([one.url, two.url], tls_ca=str(known.ca), timeout_s=PATIENCE_S))
        refused(NatsSettings([one.url, "tls://127.0.0.1:1"], tls_ca=str(known.ca), timeout_s=PATIENCE_S), TlsRefused)


def test_the_end_of_a_connection_within_a_tls_handshake_is_an_outage() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(b'INFO {"tls_required":true}\r\n')
                client.recv(4096)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        refused(NatsSettings(f"tls://127.0.0.1:{listener.getsockname()[1]}", timeout_s=PATIENCE_S), Unreachable)
        thread.join(PATIENCE_S)


@contextmanager
def unanswering() -> Iterator[NatsSettings]:
    """Give the settings of a server that does not even accept connections: its backlog is full."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield NatsSettings(f"nats://127.0.0.1:{listener.getsockname()[1]}", timeout_s=2 * PATIENCE_S)
        for each in waiting:
            each.close()


def test_a_connection_that_is_never_accepted_is_given_up_when_it_is_cancelled() -> None:
    with unanswering() as settings:
        cancel = CancelToken()
        timer = threading.Timer(0.2, cancel.set)
        timer.start()
        began = time.monotonic()
        with pytest.raises(Unreachable):
            NatsSocket.connect(settings, cancel=cancel)
        with pytest.raises(Unreachable):
            NatsSocket.connect(settings, cancel=cancel)
        assert time.monotonic() - began < PATIENCE_S
        timer.join()
        with pytest.raises(Unreachable, match="timed out"):
            NatsSocket.connect(settings, timeout_s=0.1)


def test_discovered_servers_follow_those_of_the_settings_and_are_known_by_name() -> None:
    settings = NatsSettings(["nats://one:1", "nats://one:1", "nats://10.0.0.2:2"])
    also = ("one:1", "10.0.0.3:3", "four:4", "[::1]:5", "::1:6", "five:x")
    assert [tuple(target) for target in _targets(settings, also)] == [
        ("one", 1, "one"),
        ("10.0.0.2", 2, "10.0.0.2"),
        ("10.0.0.3", 3, "one"),
        ("four", 4, "four"),
        ("::1", 5, "one"),
    ]
    named = NatsSettings("tls://10.0.0.1", tls_server_name="cluster")
    assert {target.name for target in _targets(named, also)} == {"cluster"}


def test_subjects_that_are_not_allowed_are_refused() -> None:
    permissions = "{ subscribe: [ '_INBOX.>' ], publish: 'a' }"
    user = f"{{ user: ann, password: pw, permissions: {permissions} }}"
    rules = f"authorization {{ users: [ {user} ], {identities.TIMEOUT} }}"
    with running_nats(rules) as server:
        settings = NatsSettings(server.url_with("ann:pw"), timeout_s=PATIENCE_S)
        with NatsSocket.connect(settings) as connection:
            connection.subscribe("secret.>")
            with pytest.raises(AccessRefused, match="secret"):
                connection.flush()
        with NatsSocket.connect(settings) as connection, pytest.raises(AccessRefused, match=r"JS\.API"):
            connection.request("$JS.API.INFO")


def test_a_server_without_jetstream_says_so() -> None:
    with running_nats(jetstream=None) as server:
        settings = NatsSettings(server.url, timeout_s=PATIENCE_S)
        with pytest.raises(JetStreamDisabled):
            stream_state(settings, "KV_b")
        with NatsSocket.connect(settings) as connection, pytest.raises(ServerRefused, match="503"):
            connection.request("nobody.listens")


def test_nobody_listens(nats_server: NatsServer) -> None:
    (port,) = free_ports(1)
    refused(NatsSettings(f"nats://127.0.0.1:{port}", timeout_s=PATIENCE_S), Unreachable)
    ask(NatsSettings((f"nats://127.0.0.1:{port}", nats_server.url), timeout_s=PATIENCE_S))


@contextmanager
def peer(*pieces: bytes) -> Iterator[int]:
    """Listen as a server that says some bytes, whatever it hears, and then nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        done = threading.Event()

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                for piece in pieces:
                    client.sendall(piece)
                done.wait(2 * PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    "said", [b"", b"INFO {}\r\n", b"SSH-2.0-OpenSSH\r\n", b"INFO []\r\n", b"INFO {", b"INFO {}\r\n-ERR"]
)
def test_a_peer_that_does_not_answer_as_a_server_is_left_in_time(said: bytes) -> None:
    with peer(said) as port:
        began = time.monotonic()
        refused(NatsSettings(f"nats://127.0.0.1:{port}", timeout_s=0.5), Unreachable)
        assert time.monotonic() - began < PATIENCE_S


def test_a_question_that_nobody_answers_ends_in_time(nats_server: NatsServer) -> None:
    settings, patient = (NatsSettings(nats_server.url, timeout_s=each) for each in (0.3, PATIENCE_S))
    with NatsSocket.connect(settings, timeout_s=PATIENCE_S) as connection, NatsSocket.connect(patient) as other:
        other.subscribe("silence")
        other.flush()
        with pytest.raises(NoAnswer):
            connection.request("silence")


def answering(pair: tuple[socket.socket, socket.socket], answers: list[bytes | None]) -> JetStreamApi:
    """Return an API whose questions are answered one after the other, or not; those that follow as the last of them.

    It may have asked again before it is heard: the question that it waits for is the last.
    """
    pair[0].settimeout(0.0)
    connection = NatsSocket(pair[0], NatsSettings(timeout_s=PATIENCE_S))

    def serve() -> None:
        heard = b""
        with suppress(OSError):
            for answer in chain(answers, repeat(answers[-1])) if answers else ():
                while heard.count(b"PUB ") == 0 or not heard.endswith(b"\r\n"):
                    if not (piece := pair[1].recv(10_000)):
                        return
                    heard += piece
                inbox = heard[heard.rindex(b"PUB ") :].split(b" ")[2]
                heard = b""
                if answer is not None:
                    pair[1].sendall(format_msg(inbox, 1, answer))

    threading.Thread(target=serve, daemon=True).start()
    return JetStreamApi(connection, "$JS.API")


INFO = b"""{"config": {"name": "KV_b"}, "created": "now",
    "state": {"messages": 1, "bytes": 1, "first_seq": 3, "last_seq": 3}}"""
NOT_NOW = b'{"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}}'


@pytest.mark.parametrize("before", [[None], [NOT_NOW, NOT_NOW], [None, NOT_NOW]])
def test_a_question_about_a_stream_is_asked_again_while_it_has_no_leader(
    monkeypatch: pytest.MonkeyPatch, before: list[bytes | None]
) -> None:
    monkeypatch.setattr("strandline.nats.jetstream.ASK_AGAIN_S", 0.1)
    pair = socket.socketpair()
    with closing(pair[0]), closing(pair[1]):
        assert answering(pair, [*before, INFO]).stream("KV_b").last == 3


def test_a_question_about_a_stream_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.nats.jetstream.ASK_AGAIN_S", 0.1)
    pair = socket.socketpair()
    with closing(pair[0]), closing(pair[1]), pytest.raises(NoAnswer, match=r"within 0\.3 s"):
        answering(pair, []).stream("KV_b", timeout_s=0.3)


def test_an_answer_that_is_none_is_refused() -> None:
    pair = socket.socketpair()
    with closing(pair[0]), closing(pair[1]), pytest.raises(FormatError):
        answering(pair, [b"[]"]).stream("KV_b")


def test_a_closed_connection_does_nothing_more(nats_server: NatsServer) -> None:
    connection = NatsSocket.connect(NatsSettings(nats_server.url, timeout_s=PATIENCE_S))
    with pytest.raises(TypeError, match="pickle its settings"):
        pickle.dumps(connection)
    threading.Timer(0.05, connection.close).start()
    with pytest.raises(Closed):
        connection.receive(PATIENCE_S)
    connection.close()
    with pytest.raises(Closed):
        connection.send(b"PING\r\n")


def test_what_info_says_is_read_and_secrets_are_only_in_connect() -> None:
    assert parse_info(b'{"max_payload": 5, "nonce": "n", "ldm": true}') == ServerInfo(
        payload_bytes_max=5, nonce="n", is_leaving=True
    )
    with pytest.raises(FormatError):
        parse_info(b"[1]")
    line = format_login(ServerInfo(), Login("ann", "pw"), name="me", tls=False)
    assert line.startswith(b"CONNECT {")
    assert b'"user":"ann","pass":"pw"' in line
    assert b"sig" not in format_login(ServerInfo(), Login(seed="S", nkey="U"), name="me", tls=False)


KEY = b"$KV.b."
HEARTBEAT = format_headers([("Nats-Last-Consumer", "6")], status=100, description="Idle Heartbeat")
FLOW = format_headers(status=100, description="FlowControl Request")


def attached(pair: tuple[socket.socket, socket.socket]) -> PushConsumer:
    pair[0].settimeout(0.0)
    connection = NatsSocket(pair[0], NatsSettings())
    plan = ReadPlan(stream="KV_b", subject_prefix="$KV.b.")
    return PushConsumer(connection, plan, ConsumerSpec("c", "_INBOX.x", (">",), None), 0)


def delivery(number: int, payload: bytes, headers: bytes = b"") -> bytes:
    ack = format_ack("KV_b", "c", Ack(1, 10 * number, number, 1_700_000_000_000_000_000, max(6 - number, 0)))
    return format_msg(KEY + b"k%d" % number, 1, payload, ack.encode(), headers)


STREAM = b"".join(
    [
        delivery(1, b"one"),
        b"PING\r\n",
        delivery(2, b"\r\nMSG $KV.b.x 1 1\r\nx\r\n"),
        delivery(3, b"", format_headers([("KV-Operation", "DEL")])),
        format_msg(b"_INBOX.x", 1, b"", b"$JS.FC.KV_b.c.abcd", FLOW),
        delivery(4, b"four" * 20),
        b"+OK\r\n",
        delivery(5, b"5"),
        delivery(6, b"six"),
        format_msg(b"_INBOX.x", 1, b"", b"", HEARTBEAT),
    ]
)


def read_all(attachment: PushConsumer, other: socket.socket, pieces: list[bytes]) -> list[tuple[bytes, int, bytes]]:
    rows: list[tuple[bytes, int, bytes]] = []
    for piece in pieces:
        other.sendall(piece)
        while (delivered := attachment.receive(0.0)) is not None or attachment.connection.inbound.is_promising:
            if delivered is not None:
                columns = (delivered.subjects.to_pylist(), delivered.sequences.tolist(), delivered.payloads.to_pylist())
                rows += zip(*columns, strict=True)
    return rows


@pytest.mark.parametrize("in_one_pass", [False, True])
def test_a_stream_of_deliveries_reads_the_same_wherever_it_is_split(
    monkeypatch: pytest.MonkeyPatch, in_one_pass: bool
) -> None:
    if in_one_pass:
        monkeypatch.setattr("strandline.wire.deliveries.ROWS_MIN", 1)
        monkeypatch.setattr("strandline.nats.deliveries.PASS_BYTES_MIN", 1)
    monkeypatch.setattr("strandline.nats.receive_buffer.CAPACITY_BYTES", 256)
    expected = [
        (b"k1", 10, b"one"),
        (b"k2", 20, b"\r\nMSG $KV.b.x 1 1\r\nx\r\n"),
        (b"k3", 30, b""),
        (b"k4", 40, b"four" * 20),
        (b"k5", 50, b"5"),
        (b"k6", 60, b"six"),
    ]
    for split in range(len(STREAM) + 1):
        pair = socket.socketpair()
        with closing(pair[0]), closing(pair[1]):
            attachment = attached(pair)
            assert read_all(attachment, pair[1], [STREAM[:split], STREAM[split:]]) == expected
            assert attachment.number == 6
            assert attachment.pending == 0
            answers = pair[1].recv(1000)
            assert answers.count(b"PONG\r\n") == 1
            assert answers.count(b"PUB $JS.FC.KV_b.c.abcd 0\r\n\r\n") == 1


@pytest.mark.parametrize("in_one_pass", [False, True])
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param([delivery(2, b"x")], id="the first is missing"),
        pytest.param([delivery(1, b"x"), delivery(3, b"x")], id="one is missing"),
        pytest.param([delivery(1, b"x"), delivery(1, b"x")], id="one comes twice"),
        pytest.param([delivery(1, b"x"), format_msg(b"_INBOX.x", 1, b"", b"", HEARTBEAT)], id="a heartbeat knows more"),
        pytest.param([format_msg(b"_INBOX.x", 1, b"", b"", format_headers(status=409))], id="another status"),
        pytest.param([format_msg(b"$KV.b.x", 1, b"value", b"elsewhere")], id="something else"),
    ],
)
def test_numbers_that_do_not_follow_each_other_break_the_delivery(
    monkeypatch: pytest.MonkeyPatch, broken: list[bytes], in_one_pass: bool
) -> None:
    if in_one_pass:
        monkeypatch.setattr("strandline.wire.deliveries.ROWS_MIN", 1)
        monkeypatch.setattr("strandline.nats.deliveries.PASS_BYTES_MIN", 1)
    pair = socket.socketpair()
    with closing(pair[0]), closing(pair[1]), pytest.raises(DeliveryBroken):
        read_all(attached(pair), pair[1], [b"".join(broken)])


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("other_is_first", [False, True])
def test_messages_of_another_subscription_are_dropped(rows: int, other_is_first: bool) -> None:
    ours = b"".join(delivery(number, b"x" * 300) for number in range(1, rows + 1))
    other = (
        format_msg(
            KEY + b"k1", 2, b"y" * 300, format_ack("KV_b", "d", Ack(1, 1, 1, 1_700_000_000_000_000_000, 0)).encode()
        )
        * rows
    )
    pair = socket.socketpair()
    with closing(pair[0]), closing(pair[1]):
        connection = attached(pair).connection
        pair[1].sendall(other + ours if other_is_first else ours + other)
        taken = receive_deliveries(connection, KEY, times=Times.NONE, timeout_s=PATIENCE_S, sid=1)
        assert taken is not None
        assert taken.delivered is not None
        assert taken.delivered.sequences.tolist() == [10 * number for number in range(1, rows + 1)]
        assert taken.follows(0)
        assert not taken.others
        pair[1].sendall(other)
        assert receive_deliveries(connection, KEY, times=Times.NONE, timeout_s=0.0, sid=1) is None


def test_bytes_that_are_no_protocol_end_the_connection_after_what_came_before() -> None:
    pair = socket.socketpair()
    with closing(pair[0]), closing(pair[1]):
        attachment = attached(pair)
        pair[1].sendall(delivery(1, b"x") + b"GET / HTTP/1.1\r\n")
        delivered = attachment.receive(PATIENCE_S)
        assert delivered is not None
        assert delivered.payloads.to_pylist() == [b"x"]
        with pytest.raises(ProtocolViolation):
            attachment.receive(PATIENCE_S)


def test_a_peer_that_goes_away_drops_the_connection() -> None:
    pair = socket.socketpair()
    with closing(pair[0]):
        attachment = attached(pair)
        pair[1].sendall(delivery(1, b"x"))
        pair[1].close()
        assert attachment.receive(PATIENCE_S) is not None
        with pytest.raises(ConnectionDropped):
            attachment.receive(PATIENCE_S)


def test_a_value_larger_than_the_buffer_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.nats.receive_buffer.CAPACITY_BYTES", 64)
    pair = socket.socketpair()
    with closing(pair[0]), closing(pair[1]):
        attachment = attached(pair)
        value = bytes(range(256)) * 300
        rows = read_all(attachment, pair[1], [STREAM, b""])
        assert len(rows) == 6
        data = delivery(7, value) + delivery(8, b"y")
        pieces = [data[start : start + 7001] for start in range(0, len(data), 7001)]
        assert read_all(attachment, pair[1], pieces) == [(b"k7", 70, value), (b"k8", 80, b"y")]


def test_deliveries_of_a_foreign_prefix_are_refused() -> None:
    pair = socket.socketpair()
    with closing(pair[0]), closing(pair[1]), pytest.raises(FormatError):
        read_all(attached(pair), pair[1], [delivery(1, b"x").replace(KEY, b"$KV.c.")])
