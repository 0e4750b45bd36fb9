"""What a connection leaves behind: nothing of its own, and a caller's client as it was."""

import asyncio
import gc
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from strandline.errors import Closed
from strandline.kv import ConnectionDropped, ConnectionState, NotConnected, Overrun, Put
from strandline.kv.nats import NatsConnection
from strandline.kv.nats.bucket_reader import BucketReader
from strandline.nats import NatsSettings
from strandline.nats.cancellation import CancelToken
from tests.identities_nats import (
    TIMEOUT,
    TOKEN,
    TOKEN_TEXT,
    USER,
    make_certificates,
    make_nkey,
    make_operator,
    nkey_settings,
)
from tests.kv.nats.opening import bucket, next_batch, until, value
from tests.servers_nats import NatsServer, running_nats
from tests.waiting import PATIENCE_S


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("strandline-")}


def sockets() -> int:
    gc.collect()
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += str(each.readlink()).startswith("socket:")
    return found


def test_a_shutdown_leaves_no_thread_task_or_socket(nats_server: NatsServer) -> None:
    async def main() -> None:
        before = sockets()
        connection = NatsConnection(nats_server.url)
        for _ in range(3):
            await connection.connect()
            assert connection.state.name == "CONNECTED"
            store, writer, watcher = await bucket(connection)
            await writer.put("a.1", b"1")
            for overrun in Overrun:
                chosen = store.watcher(overrun=overrun)
                assert chosen is not None
                await next_batch(await chosen.watch_prefix("a."))
            async with await watcher.watch_all() as stopped:
                await next_batch(stopped)
            scan = store.reader().scan_batches()
            async for batch in scan:
                assert len(batch)
                break
            await scan.aclose()  # type: ignore[attr-defined]
            assert threads()
            await connection.shutdown()
            assert connection.state.name == "SHUTDOWN"
            assert not threads()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert sockets() == before
            with pytest.raises(NotConnected):
                await watcher.watch_all()

    asyncio.run(main())


def test_a_watch_that_is_given_up_while_it_begins_leaves_nothing_behind(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with NatsConnection(nats_server.url) as connection:
            store, writer, _ = await bucket(connection)
            await writer.put("a.1", b"1")
            before, tasks = sockets(), asyncio.all_tasks()
            for number in range(40):
                watcher = store.watcher(overrun=list(Overrun)[number % 3])
                assert watcher is not None
                beginning = asyncio.ensure_future(watcher.watch_prefix("a."))
                await asyncio.sleep(0.0005 * (number // 3))  # wherever it has come to by then
                beginning.cancel()
                if number % 2:
                    await asyncio.sleep(0)
                    beginning.cancel()
                with suppress(asyncio.CancelledError):
                    await (await beginning).stop()
            await until(_no_threads)
            assert (sockets(), asyncio.all_tasks()) == (before, tasks)

    asyncio.run(main())


@pytest.mark.parametrize("is_attached", [False, True], ids=["attaching", "attached"])
def test_a_shutdown_ends_a_watch_that_begins(
    nats_server: NatsServer, is_attached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = threading.Event()
    open_reader = BucketReader.open

    def slowly(*args: Any, cancel: CancelToken, **options: Any) -> BucketReader:  # noqa: ANN401 - as they are
        if is_attached:
            reader = open_reader(*args, cancel=cancel, **options)
            began.set()
            assert cancel.wait(PATIENCE_S)
            return reader
        began.set()
        assert cancel.wait(PATIENCE_S)
        return open_reader(*args, cancel=cancel, **options)

    async def main() -> None:
        before = sockets()
        connection = NatsConnection(nats_server.url)
        await connection.connect()
        _, _, watcher = await bucket(connection)
        monkeypatch.setattr(BucketReader, "open", slowly)
        beginning = asyncio.ensure_future(watcher.watch_all())
        assert await asyncio.to_thread(began.wait, PATIENCE_S)
        await asyncio.wait_for(connection.shutdown(), PATIENCE_S)
        assert not threads()
        with pytest.raises(Closed, match="the connection"):
            await beginning
        assert sockets() == before

    asyncio.run(main())


def test_a_loop_that_ends_without_a_shutdown_takes_the_threads_with_it(nats_server: NatsServer) -> None:
    async def main() -> None:
        connection = NatsConnection(nats_server.url)
        await connection.connect()
        _, _, watcher = await bucket(connection)
        await watcher.watch_all()
        assert threads()
        await connection._linked().close()  # noqa: SLF001 - the client alone, the watch goes on

    asyncio.run(main())
    asyncio.run(until(_no_threads))


async def _no_threads() -> bool:
    return not threads()


async def use(client: Client) -> None:
    """Read, write, list and watch over a client that somebody else owns, and leave it as it was."""
    connection = NatsConnection.from_client(client)
    assert connection.state is ConnectionState.NEW
    async with connection:
        store, writer, watcher = await bucket(connection)
        version = await writer.put("a", b"1")
        assert await value(store.reader(), "a") == b"1"
        assert await store.reader().keys() == ["a"]
        async with await watcher.watch_all() as watch:
            assert await next_batch(watch) == [Put("a", b"1", version)]
        assert await connection.is_healthy()
        left = await watcher.watch_all()
    with pytest.raises(Closed):
        await left.batch(), await left.batch()
    assert client.is_connected
    await connection.connect()
    await connection.shutdown()
    await client.close()
    with pytest.raises(NotConnected):
        await connection.connect()


def test_a_client_of_the_caller_s_is_used_and_never_closed(nats_server: NatsServer) -> None:
    async def main() -> None:
        await use(await nats.connect(nats_server.url, connect_timeout=PATIENCE_S))

    asyncio.run(main())


def test_the_subject_of_answers_and_the_tls_of_the_caller_s_client_are_taken_over(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    permissions = "{ publish: '>', subscribe: '_MINE.>' }"
    users = f"authorization {{ users: [ {{ user: ann, password: pw, permissions: {permissions} }} ], {TIMEOUT} }}"
    tls = files.settings().replace("}", ", handshake_first: true }")

    async def main(server: NatsServer) -> None:
        context = ssl.create_default_context(cafile=str(files.ca))
        client = await nats.connect(
            f"tls://ann:pw@127.0.0.1:{server.port}",
            tls=context,
            tls_hostname="localhost",
            tls_handshake_first=True,
            inbox_prefix="_MINE",
            connect_timeout=PATIENCE_S,
        )
        await use(client)

    with running_nats(f"{users}\n{tls}", scheme="tls") as server:
        asyncio.run(main(server))


def test_nothing_is_kept_for_later_while_the_caller_s_client_is_away() -> None:
    async def main(server: NatsServer) -> None:
        client = await nats.connect(
            server.url,
            reconnect_time_wait=0.05,
            max_reconnect_attempts=-1,
            connect_timeout=PATIENCE_S,
            error_cb=_ignore,
        )
        async with NatsConnection.from_client(client, timeout_s=PATIENCE_S) as connection:
            store, writer, _ = await bucket(connection)
            await writer.put("a", b"1")
            server.kill()

            async def is_away() -> bool:
                return not client.is_connected

            await until(is_away)
            with pytest.raises(ConnectionDropped):
                await writer.put("a", b"2")
            server.start()
            await until(connection.is_healthy)
            assert await value(store.reader(), "a") == b"1"
        await client.close()

    with running_nats() as server:
        asyncio.run(main(server))


async def _ignore(_error: Exception) -> None:
    pass


def test_bulk_reads_log_in_as_the_caller_s_client_does(tmp_path: Path) -> None:
    key, operator = make_nkey(), make_operator()
    (tmp_path / "creds").write_text(operator.creds)
    logins: list[tuple[str, dict[str, object]]] = [
        (USER, {"user": "ann", "password": "s3cret pass"}),
        (TOKEN, {"token": TOKEN_TEXT}),
        (nkey_settings(key), {"nkeys_seed_str": key.seed.decode()}),
        (operator.settings, {"user_credentials": str(tmp_path / "creds")}),
    ]
    for settings, options in logins:
        with running_nats(settings) as server:

            async def main(url: str, options: dict[str, object]) -> None:
                await use(await nats.connect(url, connect_timeout=PATIENCE_S, **options))

            asyncio.run(main(server.url, options))
    with running_nats(TOKEN) as server:
        asyncio.run(main(server.url_with(TOKEN_TEXT), {}))
    files = make_certificates(tmp_path)
    both = NatsSettings("h", tls_ca=str(files.ca), tls_cert=str(files.client_cert), tls_key=str(files.client_key))
    with running_nats(files.settings(mutual=True), scheme="tls") as server:
        asyncio.run(main(server.url, {"tls": both.ssl_context()}))
