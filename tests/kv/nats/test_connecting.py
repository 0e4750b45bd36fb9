"""Connecting to a real nats-server: every kind of login and TLS, and a typed error with a hint where it is refused."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from strandline.errors import StrandlineError
from strandline.kv import (
    AccessRefused,
    ConnectionDropped,
    ConnectionState,
    JetStreamDisabled,
    LoginRefused,
    NoAnswer,
    NotConnected,
    StoreConfig,
    TlsRefused,
    Unreachable,
)
from strandline.kv.nats import NatsConnection
from strandline.nats import NatsSettings
from tests.identities_nats import (
    TOKEN,
    TOKEN_TEXT,
    USER,
    USER_INFO,
    Certificates,
    make_certificates,
    make_nkey,
    make_operator,
    nkey_settings,
)
from tests.kv.nats.opening import bucket, hasty, until
from tests.ports import free_ports
from tests.servers_nats import NatsServer, fresh_bucket, running_nats
from tests.waiting import PATIENCE_S


async def use(settings: NatsSettings) -> list[str]:
    """Write, read, scan and watch once, over both kinds of connection; return the keys."""
    async with NatsConnection(settings) as connection:
        store, writer, watcher = await bucket(connection)
        await writer.put("a", b"1")
        entry = await store.reader().get("a")
        assert entry is not None
        async with await watcher.watch_all() as watch:
            assert len(await asyncio.wait_for(watch.batch(), PATIENCE_S)) == 1
        return await store.reader().keys()


def refusal(settings: NatsSettings) -> StrandlineError:
    """Return what connecting is refused with."""

    async def connect() -> StrandlineError:
        connection = NatsConnection(settings)
        with pytest.raises(StrandlineError) as caught:
            await connection.connect()
        assert connection.state is ConnectionState.NEW
        assert not await connection.is_healthy()
        assert caught.value.hint
        return caught.value

    return asyncio.run(connect())


def test_a_user_with_a_password_may_connect() -> None:
    with running_nats(USER) as server:
        assert asyncio.run(use(NatsSettings(server.url_with(USER_INFO)))) == ["a"]
        wrong = refusal(NatsSettings(server.url_with("ann:wr0ng")))
        assert isinstance(wrong, LoginRefused)
        assert "wr0ng" not in f"{wrong} {wrong.hint} {wrong.__cause__}"
        assert isinstance(refusal(NatsSettings(server.url)), LoginRefused)


def test_a_token_may_connect() -> None:
    with running_nats(TOKEN) as server:
        assert asyncio.run(use(NatsSettings(server.url_with(TOKEN_TEXT)))) == ["a"]
        assert isinstance(refusal(NatsSettings(server.url_with("another"))), LoginRefused)


def test_an_nkey_may_connect(tmp_path: Path) -> None:
    known, unknown = make_nkey(), make_nkey()
    (tmp_path / "known").write_bytes(known.seed)
    (tmp_path / "unknown").write_bytes(unknown.seed)
    with running_nats(nkey_settings(known)) as server:
        assert asyncio.run(use(NatsSettings(server.url, creds_file=str(tmp_path / "known")))) == ["a"]
        assert isinstance(refusal(NatsSettings(server.url, creds_file=str(tmp_path / "unknown"))), LoginRefused)


def test_credentials_of_an_operator_s_user_may_connect(tmp_path: Path) -> None:
    operator, stranger = make_operator(), make_operator()
    (tmp_path / "user.creds").write_text(operator.creds)
    with running_nats(operator.settings) as server:
        assert asyncio.run(use(NatsSettings(server.url, creds=operator.creds_base64))) == ["a"]
        assert asyncio.run(use(NatsSettings(server.url, creds_file=str(tmp_path / "user.creds")))) == ["a"]
        assert isinstance(refusal(NatsSettings(server.url, creds=stranger.creds_base64)), LoginRefused)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_server(files: Certificates) -> Iterator[NatsServer]:
    with running_nats(files.settings(), scheme="tls") as server:
        yield server


@pytest.mark.filterwarnings("ignore:returning true from eof_received")
def test_a_server_with_tls_is_trusted_by_its_authority(files: Certificates, tls_server: NatsServer) -> None:
    assert asyncio.run(use(NatsSettings(tls_server.url, tls_ca=str(files.ca)))) == ["a"]
    assert asyncio.run(use(NatsSettings(tls_server.url, tls_ca=str(files.ca), tls_server_name="localhost"))) == ["a"]
    for wrong in (
        NatsSettings(tls_server.url, tls_ca=str(files.other_ca)),
        NatsSettings(tls_server.url),
        NatsSettings(tls_server.url, tls_ca=str(files.ca), tls_server_name="elsewhere"),
    ):
        assert isinstance(refusal(wrong), TlsRefused)


def test_a_server_that_wants_certificates_refuses_who_has_none(files: Certificates) -> None:
    with running_nats(files.settings(mutual=True), scheme="tls") as server:
        both = {"tls_cert": str(files.client_cert), "tls_key": str(files.client_key)}
        assert asyncio.run(use(NatsSettings(server.url, tls_ca=str(files.ca), **both))) == ["a"]  # type: ignore[arg-type]
        assert isinstance(refusal(NatsSettings(server.url, tls_ca=str(files.ca))), TlsRefused)


@pytest.mark.parametrize("user_info", ["", USER_INFO])
def test_no_secret_is_sent_to_a_server_that_does_not_encrypt(user_info: str) -> None:
    port = free_ports(1)[0]
    heard = bytearray()
    with closing(socket.create_server(("127.0.0.1", port))) as listener:

        async def main() -> None:
            hung_up = asyncio.Event()

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b'INFO {"server_id":"x","version":"2.15.1","auth_required":true,"headers":true}\r\n')
                while data := await reader.read(1000):
                    heard.extend(data)
                    writer.write(b"PONG\r\n" * data.count(b"PING"))
                writer.close()
                await writer.wait_closed()
                hung_up.set()

            async with await asyncio.start_server(serve, sock=listener):
                at = f"{user_info}@" if user_info else ""
                connection = NatsConnection(NatsSettings(f"tls://{at}127.0.0.1:{port}", timeout_s=PATIENCE_S))
                with pytest.raises(TlsRefused):
                    await connection.connect()
                await asyncio.wait_for(hung_up.wait(), PATIENCE_S)

        asyncio.run(main())
    assert b"s3cret" not in heard


def test_where_nobody_listens_the_error_names_the_address() -> None:
    port = free_ports(1)[0]
    began = time.monotonic()
    refused = refusal(NatsSettings(f"nats://ann:s3cret@127.0.0.1:{port}", timeout_s=2 * PATIENCE_S))
    assert isinstance(refused, Unreachable)
    assert f"127.0.0.1:{port}" in str(refused)
    assert "s3cret" not in str(refused)
    assert time.monotonic() - began < PATIENCE_S


def test_a_server_that_says_nothing_is_given_up_after_the_limit() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        began = time.monotonic()
        refused = refusal(NatsSettings(f"nats://127.0.0.1:{mute.getsockname()[1]}", timeout_s=0.4))
        assert isinstance(refused, Unreachable)
        assert time.monotonic() - began < PATIENCE_S


def test_another_of_several_servers_is_taken_if_one_is_down(nats_server: NatsServer) -> None:
    dead = f"nats://127.0.0.1:{free_ports(1)[0]}"
    assert asyncio.run(use(NatsSettings([dead, nats_server.url]))) == ["a"]


def test_a_server_without_jetstream_has_no_buckets() -> None:
    async def open_bucket(url: str) -> None:
        async with NatsConnection(url) as connection:
            await connection.store("b", StoreConfig())

    with running_nats(jetstream=None) as server, pytest.raises(JetStreamDisabled) as caught:
        asyncio.run(open_bucket(server.url))
    assert caught.value.hint
    two = (
        "accounts { A { users: [{user: a, password: a}] }, B { jetstream: enabled, users: [{user: b, password: b}] } }"
    )
    with running_nats(two) as server:
        assert asyncio.run(use(NatsSettings(server.url_with("b:b")))) == ["a"]
        with pytest.raises(JetStreamDisabled):
            asyncio.run(open_bucket(server.url_with("a:a")))


LIMITED = """
authorization { timeout: 600, users: [
  { user: all, password: pw }
  { user: reader, password: pw, permissions: { publish: { allow: ["$JS.API.>", "$JS.FC.>"] }, subscribe: "_INBOX.>" } }
  { user: deaf, password: pw, permissions: { publish: ">", subscribe: "nothing" } }
  { user: other, password: pw, permissions: { publish: { deny: "$JS.API.STREAM.MSG.GET.>" } } }
] }
"""


def test_what_the_credentials_do_not_allow_is_told_at_once_and_by_subject() -> None:
    async def main(server: NatsServer) -> None:
        name = fresh_bucket()
        async with NatsConnection(server.url_with("all:pw")) as connection:
            _, writer, _ = await bucket(connection, name=name)
            await writer.put("Key", b"1")
        began = time.monotonic()
        async with NatsConnection(server.url_with("reader:pw")) as connection:
            store = await connection.store(name)
            assert await store.reader().get("Key") is not None
            writer = store.writer()  # type: ignore[assignment]
            with pytest.raises(AccessRefused, match=f"KV.{name}.Key") as caught:
                await writer.put("Key", b"2")
            assert caught.value.hint
        async with NatsConnection(server.url_with("deaf:pw")) as connection:
            with pytest.raises(AccessRefused, match="answers"):
                await connection.store(name)
        async with NatsConnection(server.url_with("other:pw")) as connection:
            reader = (await connection.store(name)).reader()
            with pytest.raises(AccessRefused, match=r"MSG\.GET"):
                await reader.get("Key")
            assert await reader.keys() == ["Key"]
        assert time.monotonic() - began < PATIENCE_S

    with running_nats(LIMITED) as server:
        asyncio.run(main(server))


def test_a_connection_that_was_never_connected_says_so(nats_server: NatsServer) -> None:
    async def main() -> None:
        connection = NatsConnection(nats_server.url)
        assert connection.state is ConnectionState.NEW
        assert connection.capabilities.watch
        with pytest.raises(NotConnected):
            await connection.store("b")
        await connection.shutdown()
        assert connection.state is ConnectionState.NEW

    asyncio.run(main())


def test_a_server_that_stops_answering_is_unhealthy_and_reads_end_at_the_limit() -> None:
    async def main(server: NatsServer) -> None:
        async with hasty(server.url) as (connection, store, _, _):
            with server.frozen():
                began = time.monotonic()
                assert not await connection.is_healthy()
                with pytest.raises(NoAnswer) as caught:
                    await store.reader().get("a")
                assert caught.value.retryable
                assert time.monotonic() - began < PATIENCE_S
            await until(connection.is_healthy)

    with running_nats() as server:
        asyncio.run(main(server))


def test_credentials_that_expire_end_the_connection_which_says_so() -> None:
    async def main(server: NatsServer, creds: str) -> bool:
        connection = NatsConnection(NatsSettings(server.url, creds=creds))
        try:
            await connection.connect()
            store, _, _ = await bucket(connection)
        except (LoginRefused, NotConnected, ConnectionDropped):
            await connection.shutdown()
            return False

        async def is_over() -> bool:
            try:
                await store.reader().get("a")
            except (NotConnected, ConnectionDropped):
                return True
            return False

        await until(is_over)
        assert not await connection.is_healthy()

        async def is_refused() -> bool:
            try:
                await connection.connect()
            except LoginRefused:
                return True
            except ConnectionDropped:  # the server closed before it was asked
                return False
            return False

        await until(is_refused)
        await connection.shutdown()
        return True

    for valid_s in (3, 20, 100):  # those that are over before a busy machine has begun show nothing
        operator = make_operator(valid_s=valid_s)
        with running_nats(operator.settings) as server:
            if asyncio.run(main(server, operator.creds_base64)):
                return
    pytest.fail("no connection was made in time")
