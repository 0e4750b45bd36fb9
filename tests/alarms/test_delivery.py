"""Delivery: at least once and in order, to receivers that fail, hang, repeat and redirect, and after a kill."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from strandline.alarms import AlarmSettings, AlarmWatch, CommandReceiver, Condition, Delivery, Outbox, Webhook
from strandline.alarms.alarm import Notice
from strandline.alarms.delivery import PAUSE_MAX_S, UNCLAIMED_S, pause_s
from strandline.alarms.outbox import format_alarm_name
from strandline.alarms.receivers import NotTaken
from strandline.clock import ManualClock
from strandline.errors import InvalidInput
from tests.alarms.receiver import SECRET, WebhookServer, receiving
from tests.waiting import PATIENCE_S, eventually

NOTICE = Notice("i.1", "i", "raised", "test", "s", "a problem", {}, 1, 2)


def boxed(folder: Path, server: WebhookServer, clock: ManualClock, timeout_s: float = 60.0) -> tuple[Outbox, Delivery]:
    webhook = Webhook(server.url, SECRET, timeout_s=timeout_s)
    outbox = Outbox(folder, (webhook.name,), clock)
    return outbox, Delivery(outbox, [webhook], clock)


def test_a_receiver_that_fails_is_tried_again_with_growing_pauses_and_gets_each_notice_in_order(tmp_path: Path) -> None:
    clock = ManualClock()
    with receiving() as server:
        outbox, delivery = boxed(tmp_path, server, clock)
        server.statuses = [500, 503, 301, 401]
        outbox.observe(Condition("test", "s", "broken"))
        outbox.observe(Condition("test", "s", None))
        errors = list[str]()
        for attempt in range(4):
            (tried,) = delivery.run()
            errors.append(tried.error)
            assert not delivery.run(), "the pause is not over"
            clock.advance(pause_s(attempt))
        assert "answers 500" in errors[0]
        assert "redirect" in errors[2]
        assert "check the secret" in errors[3]
        assert not any("T0KEN" in error for error in errors), "an address may hold a token"
        assert len(server.bodies) == 4, "a redirect is not followed"
        assert [not each.error for each in delivery.run()] == [True, True]
        server.wait_mended("test")
        assert all(server.signatures)
        assert not outbox.alarms(), "what every receiver knows is gone"
        assert (delivery.delivered, delivery.failed) == (2, 4)
    assert pause_s(1000) == PAUSE_MAX_S


def test_an_answer_that_is_lost_counts_as_none_and_the_notice_comes_again_with_its_id(tmp_path: Path) -> None:
    clock = ManualClock()
    with receiving() as server:
        outbox, delivery = boxed(tmp_path, server, clock, timeout_s=0.2)
        outbox.observe(Condition("test", "s", "broken"))
        server.hangs.clear()
        (tried,) = delivery.run()
        assert "no answer within 0.2 s" in tried.error
        server.hangs.set()
        eventually(lambda: server.notices, "the first attempt arrived after all")
        outbox, delivery = boxed(tmp_path, server, clock)  # another process
        (again,) = delivery.run(now=True)
        assert not again.error
        assert [notice["id"] for notice in server.notices] == [tried.pending.notice.id] * 2
        assert server.bodies[0] == server.bodies[1]
        assert server.states("test") == ["raised"]


def test_an_answer_in_drops_has_the_time_of_one_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                for drop in b"HTTP/1.1 200 OK\r\nX: " + b"." * 200 + b"\r\nContent-Length: 0\r\n\r\n":
                    connection.sendall(bytes([drop]))
                    ended.wait(0.02)

        ended = threading.Event()
        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        with pytest.raises(NotTaken, match=r"no answer within 0\.5 s"):
            Webhook(f"http://127.0.0.1:{listening.getsockname()[1]}/x", SECRET, timeout_s=0.5).send(NOTICE)
        ended.set()
        dripping.join()


def test_what_was_raised_before_a_kill_is_delivered_after_it(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from strandline.alarms import *\n"
        "url, folder = sys.argv[1:]\n"
        "name = Webhook(url, 'x').name\n"
        "Outbox(Path(folder), (name,)).observe(Condition('test', 's', 'broken'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with receiving() as server:
        ended = subprocess.run([sys.executable, "-c", program, server.url, str(tmp_path)], check=False)
        assert ended.returncode == -signal.SIGKILL
        assert not server.notices
        settings = AlarmSettings((server.url,), SECRET, outbox=tmp_path, look_every_s=0.05)
        with AlarmWatch(settings, lambda: [Condition("test", "s", None)]):
            eventually(lambda: server.states("test") == ["raised", "resolved"], "both")
        assert not list(tmp_path.glob("*.alarm"))


def test_a_command_reads_the_notice_and_its_exit_code_counts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    CommandReceiver(f"sh -c 'cat > {out}; echo $STRANDLINE_ALARM_STATE >> {out}'").send(NOTICE)
    body, _, state = out.read_text().rpartition("}")
    assert json.loads(body + "}")["id"] == "i.1"
    assert state.strip() == "raised"
    with pytest.raises(NotTaken, match="sh ended with 3: no"):
        CommandReceiver("sh -c 'echo no >&2; exit 3'").send(NOTICE)
    with pytest.raises(NotTaken, match=r"did not end within 0\.1 s"):
        CommandReceiver("sleep 100", timeout_s=0.1).send(NOTICE)
    with pytest.raises(NotTaken, match="cannot be started: No such file"):
        CommandReceiver("/nothing/here").send(NOTICE)


@pytest.mark.parametrize(
    ("url", "secret", "said"),
    [
        ("ftp://h/x", "s", "http or https"),
        ("https://u:p@h/x", "s", "holds no user"),
        ("https://h/x", "", "needs a secret"),
        ("https://h/T0KEN x", "s", "holds a space"),
        ("https://h/T0KEN\n", "s", "holds a space"),
        ("https://h:port/T0KEN", "s", "cannot be read"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused(url: str, secret: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        Webhook(url, secret)
    assert "T0KEN" not in str(refused.value)


def test_errors_of_connections_and_tls_read_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotTaken, match=r"127\.0\.0\.1:1: nothing listens there"):
        Webhook("http://127.0.0.1:1/T0KEN", SECRET).send(NOTICE)
    with receiving() as server, pytest.raises(NotTaken, match="TLS failed"):
        Webhook(server.url.replace("http:", "https:"), SECRET).send(NOTICE)
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(made, check=True, capture_output=True)
    taken: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    tls = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    tls.socket = context.wrap_socket(tls.socket, server_side=True)
    thread = threading.Thread(target=tls.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        url = f"https://localhost:{tls.server_port}/T0KEN"
        with pytest.raises(NotTaken, match="its certificate is not trusted: self-signed certificate"):
            Webhook(url, SECRET).send(NOTICE)
        Webhook(url, SECRET, ca_file=tmp_path / "cert.pem").send(NOTICE)
        assert taken == ["/T0KEN"]
    finally:
        tls.shutdown()
        tls.server_close()
        thread.join()
    with receiving() as proxy:  # it gets what is for another host
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        Webhook("http://hooks.example.org/x", SECRET).send(NOTICE)
        assert proxy.states("test") == ["raised"]


def test_a_damaged_file_is_told_and_hides_no_other(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, ("r",))
    outbox.observe(Condition("test", "s", "broken"))
    (tmp_path / f"{'0' * 32}.alarm").write_bytes(b"{")
    assert [alarm.subject for alarm in outbox.alarms()] == ["s"]
    assert len(outbox.damaged()) == 1
    assert os.listdir(tmp_path)  # noqa: PTH208 - it is left alone


@contextmanager
def no_http() -> Iterator[str]:
    """Listen for the block, and answer with what is not HTTP; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/T0KEN"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_an_answer_that_is_not_http_is_none_and_keeps_no_other_receiver_waiting(tmp_path: Path) -> None:
    with no_http() as url, receiving() as server:
        with AlarmWatch(AlarmSettings((url, server.url), SECRET, outbox=tmp_path)) as alarms:
            alarms.tell(Condition("test", "s", "broken"))
        assert server.states("test") == ["raised"]
        (alarm,) = alarms.outbox.alarms()
        (left,) = alarm.pending
        assert "its answer is not HTTP" in left.error
        assert "T0KEN" not in left.error


def test_looks_are_as_far_apart_as_configured(tmp_path: Path) -> None:
    looks, looked = [0], threading.Event()

    def source() -> list[Condition]:
        looks[0] += 1
        looked.set()
        return [Condition("test", "s", "broken"), Condition("test", "t", None)]

    with receiving() as server:
        settings = AlarmSettings((server.url,), SECRET, outbox=tmp_path, look_every_s=10 * PATIENCE_S)
        with AlarmWatch(settings, source):
            assert looked.wait(PATIENCE_S)
            eventually(lambda: server.states("test") == ["raised"], "it is sent")
    assert looks == [2], "one at the beginning, one at the end"


def test_what_breaks_as_the_process_ends_is_raised(tmp_path: Path) -> None:
    seen: list[Condition] = []
    with receiving() as server:
        settings = AlarmSettings((server.url,), SECRET, outbox=tmp_path, look_every_s=10 * PATIENCE_S)
        looked = threading.Event()

        def source() -> list[Condition]:
            looked.set()
            return list(seen)

        with AlarmWatch(settings, source):
            assert looked.wait(PATIENCE_S)
            seen.append(Condition("test", "s", "it ended"))
        assert server.states("test") == ["raised"]


def test_a_condition_that_cannot_be_asked_or_stored_hides_no_other(tmp_path: Path) -> None:
    def broken() -> list[Condition]:
        raise RuntimeError

    with receiving() as server:
        settings = AlarmSettings((server.url,), SECRET, outbox=tmp_path)
        (tmp_path / format_alarm_name("test", "damaged")).write_bytes(b"{")
        both = [Condition("test", "damaged", "broken"), Condition("test", "s", "broken")]
        with AlarmWatch(settings, broken, lambda: both):
            eventually(lambda: [notice["subject"] for notice in server.notices] == ["s"], "the other one")


def test_a_process_leaves_notices_for_receivers_that_it_does_not_have(tmp_path: Path) -> None:
    clock = ManualClock()
    with receiving() as one, receiving() as other:
        outbox, delivery = boxed(tmp_path, one, clock)
        outbox.observe(Condition("test", "s", "broken"))
        _, foreign = boxed(tmp_path, other, clock)
        assert not foreign.run(now=True)
        assert [not each.error for each in delivery.run()] == [True]
        outbox.observe(Condition("test", "s", None))
        clock.advance(UNCLAIMED_S + 1)
        assert not foreign.run(now=True)
        assert not outbox.alarms(), "nobody has asked for it in a week"
