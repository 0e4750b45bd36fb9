"""The server on real sockets: beginnings, limits, ends, and what is left of it."""

import asyncio
import gc
import json
import logging
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from strandline.broker.core import session as sessions
from strandline.broker.core.session import Session
from strandline.broker.embedded_server import running, serve
from strandline.broker.server import THREADS_MAX, Server
from strandline.broker.settings import (
    AccountSettings,
    JetStreamSettings,
    LogSettings,
    ServerSettings,
    TlsSettings,
    UserSettings,
    WebsocketSettings,
)
from strandline.errors import Unavailable
from tests.broker.sockets.websocket_bytes import frame, request
from tests.identities_nats import Certificates, make_certificates
from tests.waiting import PATIENCE_S, eventually

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
PATIENT = WebsocketSettings(handshake_timeout_s=PATIENCE_S)
Test = Callable[[], Awaitable[None]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Peer:
    """A client that says what a test tells it to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.info: dict[str, Any] = {}

    async def line(self) -> bytes:
        """Return the next line, empty at the end; the second INFO, which follows the first PONG, is not one."""
        while b'"connect_info"' in (line := await asyncio.wait_for(self.reader.readline(), PATIENCE_S)):
            pass
        return line

    async def greeted(self) -> None:
        """Wait for INFO."""
        line = await self.line()
        assert line.startswith(b"INFO "), line
        self.info = json.loads(line[5:])

    async def say(self, data: bytes) -> None:
        """Send something."""
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, data: bytes) -> list[bytes]:
        """Send something and PING, and return the lines before PONG."""
        await self.say(data + b"PING\r\n")
        lines: list[bytes] = []
        while (line := await self.line()) != b"PONG\r\n":
            assert line, lines
            lines.append(line)
        return lines

    async def is_ended(self) -> bool:
        """Read to the end, and tell whether it came."""
        try:
            while await asyncio.wait_for(self.reader.read(1 << 20), PATIENCE_S):
                pass
        except ConnectionError:
            pass
        return True


@asynccontextmanager
async def connected(port: int, *, tls: ssl.SSLContext | None = None, greet: bool = True) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
    peer = Peer(reader, writer)
    try:
        if greet:
            await peer.greeted()
            await peer.say(CONNECT)
        yield peer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    give_up = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < give_up, f"not so in time: {what}"
        await asyncio.sleep(0.005)


def are_connected(server: Server, count: int) -> Callable[[], bool]:
    """Return what tells whether so many clients are there."""
    return lambda: server.connection_count == count


def run(test: Test) -> None:
    """Run a test on a loop of its own, and see that nothing of it is left."""
    before = _there()
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))
    assert_nothing_is_left(before)


def assert_nothing_is_left(before: tuple[Counter[str], int]) -> None:
    """Wait for threads that are about to end; what has ended of a test before is not missed."""
    threads, handles = before

    def is_nothing_left() -> bool:
        now_threads, now_handles = _there()
        return not now_threads - threads and now_handles <= handles

    eventually(is_nothing_left, f"no more than {before} is left")


def _there() -> tuple[Counter[str], int]:
    gc.collect()
    return Counter(thread.name for thread in threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))


def settings(**changes: Any) -> ServerSettings:  # noqa: ANN401 - whatever settings are
    return ServerSettings(**{"port": 0, "auth_timeout_s": PATIENCE_S, **changes})


def tls_settings(certificates: Certificates, **changes: Any) -> TlsSettings:  # noqa: ANN401 - whatever settings are
    files = {"cert_file": certificates.cert, "key_file": certificates.key, "ca_file": certificates.ca}
    return TlsSettings(**{"timeout_s": PATIENCE_S, **files, **changes})


def client_context(certificates: Certificates, *, own: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if own:
        context.load_cert_chain(certificates.client_cert, certificates.client_key)
    return context


STREAM = b'{"name":"S","subjects":["s"]}'
CREATE = b"SUB in.* 1\r\nPUB $JS.API.STREAM.CREATE.S in.1 %d\r\n%s\r\n" % (len(STREAM), STREAM)


def test_a_server_for_a_block_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with serve() as server:
            folder = server.store_dir
            async with connected(server.port) as peer, connected(server.port, greet=False):
                await peer.ask(CREATE)
                await peer.say(b"PUB s in.2 5\r\nhello\r\n")
                assert (await peer.line()).startswith(b"MSG in.2 1")
                await until(are_connected(server, 2), "both are there")
        assert folder is not None
        assert not folder.exists()

    run(test)


def test_what_was_acknowledged_is_there_when_the_server_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        for number in (1, 2, 3):
            async with serve(store_dir=tmp_path) as server, connected(server.port) as peer:
                await peer.ask(CREATE)
                await peer.say(b"PUB s in.2 5\r\nhello\r\n")
                await peer.line()
                assert json.loads(await peer.line()) == {"stream": "S", "seq": number}

    run(test)


def test_a_server_without_a_name_leads_its_streams_by_its_id() -> None:
    async def test() -> None:
        async with serve() as server, connected(server.port) as peer:
            await peer.ask(CREATE)
            await peer.say(b"PUB $JS.API.STREAM.INFO.S in.3 0\r\n\r\n")
            while not (line := await peer.line()).startswith(b"MSG in.3 "):
                assert line
            shown = json.loads(await peer.line())
            assert shown["cluster"] == {"leader": server.server_id} == {"leader": peer.info["server_name"]}

    run(test)


def test_accounts_share_the_room_of_their_server() -> None:
    names = ("ann", "bob")
    accounts = [AccountSettings(name, (UserSettings(user=name, password="p"),)) for name in names]  # noqa: S106
    limits = JetStreamSettings(max_storage=1_000_000)
    reserving = b'{"name":"S","subjects":["s"],"max_bytes":600000}'
    create = b"SUB in.* 1\r\nPUB $JS.API.STREAM.CREATE.S in.1 %d\r\n%s\r\n" % (len(reserving), reserving)

    async def created(server: Server, name: str) -> dict[str, Any]:
        async with connected(server.port, greet=False) as peer:
            await peer.greeted()
            await peer.say(b'CONNECT {"user":"%s","pass":"p","verbose":false}\r\n%s' % (name.encode(), create))
            assert (await peer.line()).startswith(b"MSG in.1 ")
            answer: dict[str, Any] = json.loads(await peer.line())
            return answer

    async def test() -> None:
        async with serve(settings(accounts=(AccountSettings(), *accounts), jetstream=limits)) as server:
            answers = [await created(server, name) for name in names]
            assert "error" not in answers[0]
            assert answers[1]["error"]["err_code"] == 10047

    run(test)


def test_a_server_without_asyncio_runs_on_a_thread_of_its_own() -> None:
    before = _there()
    with running() as url:
        port = int(url.rpartition(":")[2])

        async def test() -> None:
            async with connected(port) as peer:
                assert await peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2\r\n", b"hi\r\n"]

        asyncio.run(test())
    assert_nothing_is_left(before)


def test_a_store_that_cannot_be_is_refused_in_words_that_tools_match(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def test() -> None:
        for folder, reason in (
            (tmp_path / "file", "storage directory is not a directory"),
            (tmp_path / "file" / "below", "storage directory is not a directory"),
            (
                Path("/proc/nothing"),
                "could not create storage directory - mkdir /proc/nothing: no such file or directory",
            ),
        ):
            with pytest.raises(Unavailable) as refused:
                async with serve(store_dir=folder):
                    pass
            assert (str(refused.value), str(folder) in (refused.value.hint or "")) == (
                f"Can't start JetStream: {reason}",
                True,
            )

    run(test)


def test_a_port_that_is_taken_and_a_store_that_is_in_use_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with serve(store_dir=tmp_path) as server:
            with pytest.raises(Unavailable, match=r"Error listening on port: .*address already in use") as taken:
                async with serve(port=server.port):
                    pass
            assert taken.value.hint == "another server uses this port; port -1 picks a free one"
            with pytest.raises(Unavailable, match="another server uses"):
                async with serve(store_dir=tmp_path):
                    pass

    run(test)
    with pytest.raises(Unavailable), running(settings(host="203.0.113.7")):
        pass


def test_who_waits_for_room_is_called_when_everything_goes_at_once() -> None:
    async def test() -> None:
        async with (
            serve(settings(max_payload=1024, max_pending=64 << 10)) as server,
            connected(server.port) as peer,
        ):
            assert await peer.ask(b"") == []
            (session,) = server.sessions
            called = asyncio.Event()
            session.write(b"+OK\r\n" * 4096)
            assert not session.has_room
            session.when_room[called.set] = called.set
            await asyncio.wait_for(called.wait(), PATIENCE_S)

    run(test)


def test_connections_leave_handles_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (6, 6))

    async def test() -> None:
        async with (
            serve() as server,
            connected(server.port),
            connected(server.port),
            connected(server.port),
            connected(server.port) as late,
        ):
            assert await late.line() == b"-ERR 'maximum connections exceeded'\r\n"

    run(test)


def test_there_are_no_more_connections_than_there_may_be() -> None:
    async def test() -> None:
        async with serve(settings(max_connections=2)) as server:
            async with connected(server.port) as first, connected(server.port):
                async with connected(server.port) as late:
                    assert await late.line() == b"-ERR 'maximum connections exceeded'\r\n"
                    assert await late.is_ended()
                assert await first.ask(b"") == []
            await until(are_connected(server, 0), "the others have gone")
            async with connected(server.port) as again:
                assert await again.ask(b"") == []

    run(test)


def test_a_client_that_does_not_read_is_cut_off_and_nobody_else_notices(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with (
            serve(settings(max_pending=1 << 20, write_deadline_s=PATIENCE_S)) as server,
            connected(server.port) as slow,
            connected(server.port) as quick,
        ):
            await slow.ask(b"SUB flood 1\r\n")
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined] # a stream's transport reads
            frames = b"PUB flood 65536\r\n%s\r\n" % bytes(65_536)
            for _ in range(1000):
                await quick.say(frames)
                if server.connection_count == 1:
                    break
                await quick.ask(b"")
            assert server.connection_count == 1
            assert await quick.ask(b"SUB a 2\r\nPUB a 1\r\nx\r\n") == [b"MSG a 2 1\r\n", b"x\r\n"]

    run(test)
    assert " - cid:1 - Slow Consumer Detected: MaxPending of 1048576 Exceeded" in caplog.text
    assert caplog.text.count("Slow Consumer") == 1


def test_a_client_that_takes_nothing_for_too_long_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with (
            serve(settings(write_deadline_s=0.2)) as server,
            connected(server.port) as slow,
            connected(server.port) as quick,
        ):
            await slow.ask(b"SUB flood 1\r\n")
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined] # a stream's transport reads
            await quick.ask(b"PUB flood 1000000\r\n%s\r\n" % bytes(1_000_000) * 12)
            await until(are_connected(server, 1), "the slow one is cut off")

    caplog.set_level(logging.DEBUG, "strandline.broker")
    run(test)
    assert " - cid:1 - Slow Consumer Detected: WriteDeadline of 0.2s exceeded" in caplog.text
    for line in ("created", "closed: Slow Consumer (Write Deadline)"):
        assert f" - cid:1 - Client connection {line}\n" in caplog.text


def test_a_client_whose_frames_fail_after_they_were_put_aside_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Session) -> None:
        raise RuntimeError("a mistake of ours")

    async def test() -> None:
        async with serve(settings()) as server, connected(server.port) as peer, connected(server.port) as other:
            await peer.ask(b"")
            monkeypatch.setattr(sessions, "SLICE_S", -1.0)
            monkeypatch.setattr(Session, "resume", fail)
            await peer.say(b"PING\r\n" * 1000)
            assert await peer.is_ended()
            monkeypatch.undo()
            assert await other.ask(b"") == []

    run(test)


def test_what_was_opened_is_let_go_of_whatever_fails_before(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("it cannot end")

    async def test() -> None:
        with pytest.raises(ValueError, match="cannot end"):
            async with serve(settings(store_dir=tmp_path)) as server:
                server.jetstreams["$G"].end_pulls = fail  # type: ignore[method-assign]
        async with serve(settings(store_dir=tmp_path)) as again:
            assert again.connection_count == 0

    run(test)


def test_clients_of_a_lame_duck_are_told_and_let_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = asyncio.Event()
    until_empty = Server._until_empty  # noqa: SLF001 - the time that clients are given

    async def until_told(server: Server, within_s: float) -> None:
        await may_go_on.wait()
        await until_empty(server, within_s)

    monkeypatch.setattr(Server, "_until_empty", until_told)

    async def test() -> None:
        async with serve(settings(lame_duck_s=0.3, lame_duck_grace_s=0.1)) as server:
            async with connected(server.port) as one, connected(server.port) as two:
                await one.ask(b"")
                await two.ask(b"")
                ending = asyncio.create_task(server.lame_duck())
                assert json.loads((await one.line())[5:])["ldm"] is True
                with pytest.raises(OSError, match=r"refused|Connect"):
                    await asyncio.open_connection("127.0.0.1", server.port)
                assert await one.ask(b"") == []
                may_go_on.set()
                assert await one.is_ended()
                assert await two.is_ended()
                await ending
            assert server.connection_count == 0

    run(test)


async def _talks(server: Server, peer: Peer) -> None:
    assert await peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2\r\n", b"hi\r\n"]
    assert server.connection_count == 1


def test_tls_begins_after_info(certificates: Certificates) -> None:
    async def test() -> None:
        async with serve(settings(tls=tls_settings(certificates))) as server:
            assert server.url.startswith("tls://")
            async with connected(server.port, greet=False) as peer:
                await peer.greeted()
                assert peer.info["tls_required"] is True
                await peer.writer.start_tls(client_context(certificates), server_hostname="localhost")
                await peer.say(CONNECT)
                await _talks(server, peer)
            async with connected(server.port) as plain:
                assert await plain.is_ended()

    run(test)


def test_tls_may_be_left_to_the_client(certificates: Certificates) -> None:
    async def test() -> None:
        async with serve(settings(tls=tls_settings(certificates), allow_non_tls=True)) as server:
            async with connected(server.port) as plain:
                await _talks(server, plain)
            await until(are_connected(server, 0), "the first has gone")
            async with connected(server.port, greet=False) as peer:
                await peer.greeted()
                await peer.writer.start_tls(client_context(certificates), server_hostname="localhost")
                await peer.say(CONNECT)
                await _talks(server, peer)

    run(test)


def test_tls_may_come_before_info(certificates: Certificates) -> None:
    async def test() -> None:
        first = tls_settings(certificates, handshake_first=True)
        async with (
            serve(settings(tls=first)) as server,
            connected(server.port, tls=client_context(certificates)) as peer,
        ):
            await _talks(server, peer)

    run(test)


def test_a_server_that_waits_for_tls_first_greets_those_who_wait_too(certificates: Certificates) -> None:
    async def test() -> None:
        slow = tls_settings(certificates, handshake_first=True, handshake_first_fallback_s=PATIENCE_S)
        async with (
            serve(settings(tls=slow)) as server,
            connected(server.port, tls=client_context(certificates)) as peer,
        ):
            await _talks(server, peer)
        quick = tls_settings(certificates, handshake_first=True, handshake_first_fallback_s=0.1)
        async with serve(settings(tls=quick)) as server, connected(server.port, greet=False) as patient:
            await patient.greeted()
            await patient.writer.start_tls(client_context(certificates), server_hostname="localhost")
            await patient.say(CONNECT)
            await _talks(server, patient)

    run(test)


def test_a_client_needs_a_certificate_where_one_is_asked_for(certificates: Certificates) -> None:
    async def test() -> None:
        mutual = tls_settings(certificates, verify=True, handshake_first=True)
        async with serve(settings(tls=mutual)) as server:
            async with connected(server.port, tls=client_context(certificates, own=True)) as peer:
                await _talks(server, peer)
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                async with connected(server.port, tls=client_context(certificates)):
                    pass

    run(test)


def test_a_client_that_never_begins_its_handshake_is_let_go(certificates: Certificates) -> None:
    lines: list[str] = []
    tls = tls_settings(certificates, timeout_s=0.1, handshake_first=True)
    secure = WebsocketSettings(tls=tls, handshake_timeout_s=0.1)
    plain = WebsocketSettings(handshake_timeout_s=0.1)

    async def test() -> None:
        for told in (settings(tls=tls), settings(websocket=secure), settings(websocket=plain)):
            async with (
                serve(told, log=lambda _, text: lines.append(text)) as server,
                connected(server.websocket_port or server.port, greet=False) as silent,
            ):
                assert await silent.is_ended()

    run(test)
    assert [line.partition("id:1 - ")[2] for line in lines] == [
        "Client connection created",
        "TLS handshake error: timeout",
        "Client connection closed: TLS Handshake Failure",
        "Client connection created",
        "TLS handshake error: timeout",
        "Client connection closed: TLS Handshake Failure",
        "Client connection created",
        "Websocket error: timeout",
        "Client connection closed: Protocol Violation",
    ]


def test_every_server_hears_its_own_lines_and_the_logger_those_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    heard: dict[str, list[str]] = {"one": [], "two": []}

    def log(name: str) -> Callable[[str, str], None]:
        return lambda level, text: heard[name].append(f"{level} {text.rpartition(' - ')[2]}")

    secret = bcrypt.hashpw(b"p", bcrypt.gensalt(4)).decode()
    accounts = (AccountSettings(users=(UserSettings(user="ann", password=secret),)),)

    class Broken:
        def write_out(self) -> None:
            raise ValueError("it cannot be written to")

    async def refused(server: Server, peer: Peer) -> None:
        await peer.say(b'CONNECT {"user":"ann","pass":"wrong"}\r\n')
        assert await peer.is_ended()
        await until(are_connected(server, 0), "it has gone")

    async def test() -> None:
        async with (
            serve(settings(accounts=accounts, lame_duck_s=0.1), log=log("one")) as one,
            serve(settings(log=LogSettings(trace=True)), log=log("two")) as two,
            serve(settings(accounts=accounts)) as three,
        ):
            async with connected(two.port) as peer:
                await peer.ask(b"")
            await until(are_connected(two, 0), "it has gone")
            for server in (one, three):
                async with connected(server.port, greet=False) as peer:
                    await refused(server, peer)
            async with connected(one.port, greet=False):
                await until(are_connected(one, 1), "it has come")
                one.cycle.write(Broken())  # the log line is the server's, not that of the caller
                await until(lambda: len(heard["one"]) > 4, "the turn has run")
                await one.lame_duck()

    caplog.set_level(logging.ERROR, "strandline.broker")
    caplog.handler.setLevel(logging.NOTSET)  # it is the logger that keeps the rest from being made
    run(test)
    assert [line.partition("\n")[0] for line in heard["one"]] == [
        "DBG Client connection created",
        'ERR User "ann"',
        "DBG Client connection closed: Authentication Failure",
        "DBG Client connection created",
        "ERR writing to a client failed",
        "INF Closing existing clients",
        "DBG Client connection closed: Server Shutdown",
    ]
    assert [line for line in heard["two"] if not line.startswith("TRC <<- [CONNECT")] == [
        "DBG Client connection created",
        "TRC <<- [PING]",
        "TRC ->> [PONG]",
        "DBG Client connection closed: Client Closed",
    ]
    assert [record.getMessage().partition(" - ")[2] for record in caplog.records] == [
        'cid:1 - authentication error - User "ann"'
    ]


async def _websocket(port: int, tls: ssl.SSLContext | None) -> None:
    async with connected(port, tls=tls, greet=False) as peer:
        await peer.say(request())
        while (await peer.line()).strip():
            pass
        assert (await peer.reader.readexactly(2))[0] == 0x82
        await peer.line()
        await peer.say(frame(CONNECT + b"SUB a 1\r\nPUB a") + frame(b" 2\r\nhi\r\nPING\r\n"))
        data = b""
        while b"PONG\r\n" not in data:
            data += await peer.reader.read(1 << 16)
        assert b"MSG a 1 2\r\nhi\r\n" in data
        await peer.say(frame(b"\x03\xe8", 8))
        data = b""
        while part := await peer.reader.read(1 << 16):
            data += part
        assert data.endswith(b"\x88\x02\x03\xe8")


def test_websocket_clients_are_clients_like_others(certificates: Certificates) -> None:
    async def test() -> None:
        async with serve(settings(websocket=PATIENT)) as server:
            assert server.websocket_port is not None
            await _websocket(server.websocket_port, None)
            async with connected(server.websocket_port, greet=False) as lost:
                await lost.say(b"GET / HTTP/1.1\r\n\r\n")
                assert (await lost.line()).startswith(b"HTTP/1.1 400")
                assert await lost.is_ended()
        secure = replace(PATIENT, tls=tls_settings(certificates))
        async with serve(settings(websocket=secure)) as server:
            assert server.websocket_port is not None
            await _websocket(server.websocket_port, client_context(certificates))

    run(test)


@pytest.mark.parametrize("limits", [{"max_pending": 1 << 20}, {"write_deadline_s": 0.2}], ids=["bytes", "time"])
def test_a_websocket_client_that_does_not_read_its_pongs_is_cut_off(limits: dict[str, Any]) -> None:
    async def test() -> None:
        async with serve(settings(websocket=PATIENT, **limits)) as server:
            assert server.websocket_port is not None
            async with connected(server.websocket_port, greet=False) as slow:
                await slow.say(request())
                await slow.reader.readuntil(b"\r\n\r\n")
                slow.writer.transport.pause_reading()  # type: ignore[attr-defined] # a stream's transport reads
                slow.writer.write(frame(b"p" * 125, 9) * 120_000)
                await until(are_connected(server, 0), "the slow one is cut off")

    run(test)


def test_strangers_who_try_passwords_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: may_go_on.wait(PATIENCE_S) and False)
    users = (UserSettings(user="slow", password="$2a$11$"), UserSettings(user="ann", password="p"))  # noqa: S106
    accounts = (AccountSettings(name="$G", users=users),)

    async def test() -> None:
        async with serve(settings(accounts=accounts)) as server, AsyncExitStack() as stack:
            stack.callback(may_go_on.set)
            for number in range(THREADS_MAX * 4):
                stranger = await stack.enter_async_context(connected(server.port, greet=False))
                await stranger.say(b'CONNECT {"user":"slow","pass":"%d"}\r\nPING\r\n' % number)
            async with connected(server.port, greet=False) as ann:
                await ann.greeted()
                await ann.say(
                    b'CONNECT {"user":"ann","pass":"p","verbose":false}\r\n' + CREATE + b"PUB s in.2 1\r\nx\r\n"
                )
                said = [await ann.line() for _ in range(4)]
                assert said[-1] == b'{"stream":"S","seq":1}\r\n', said

    run(test)


def test_a_login_waits_while_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, may_start, refused = threading.Thread.start, threading.Event(), list[str]()
    cycles = Counter[int]()

    def start_some(thread: threading.Thread) -> None:
        if thread.name.startswith("strandline-passwords") and not may_start.is_set():
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    secret = bcrypt.hashpw(b"p", bcrypt.gensalt(4)).decode()
    accounts = (AccountSettings(name="$G", users=(UserSettings(user="ann", password=secret),)),)

    async def test() -> None:
        limits = settings(accounts=accounts, auth_timeout_s=PATIENCE_S)
        async with serve(limits) as server, connected(server.port, greet=False) as ann:
            await ann.greeted()
            await ann.say(b'CONNECT {"user":"ann","pass":"p","verbose":false}\r\nPING\r\n')
            loop = asyncio.get_running_loop()

            def count_cycle() -> None:
                cycles[len(refused)] += 1
                loop.call_soon(count_cycle)

            count_cycle()
            await until(lambda: len(refused) > 5, "the check was repeated")
            assert max(cycles.values()) > 20, "a check without a thread keeps the loop busy"
            may_start.set()
            assert await ann.line() == b"PONG\r\n"

    with caplog.at_level(logging.ERROR, "strandline.broker"):
        run(test)
    assert caplog.messages == ["checking a password failed, will retry: can't start new thread"]


def test_new_settings_hold_for_who_comes_next(certificates: Certificates) -> None:
    async def test() -> None:
        async with serve() as server, connected(server.port) as old:
            await old.ask(b"")
            server.reload(settings(max_payload=100, tls=tls_settings(certificates), allow_non_tls=True))
            async with connected(server.port) as new:
                assert new.info["max_payload"] == 100
                assert new.info["tls_available"] is True
                assert new.info["server_id"] == server.server_id
            assert await old.ask(b"") == []

    run(test)


def test_a_server_closes_though_clients_do_not_read() -> None:
    async def test() -> None:
        async with serve() as server, connected(server.port) as slow, connected(server.port) as quick:
            await slow.ask(b"SUB flood 1\r\n")
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined] # a stream's transport reads
            await quick.ask(b"PUB flood 1000000\r\n%s\r\n" % bytes(1_000_000) * 12)
            await server.close()
            assert server.connection_count == 0

    run(test)
