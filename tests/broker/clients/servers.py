"""The two servers that every test here is run against: a real nats-server, and `strandline serve` in its place.

Invariants: both read the same configuration file; a test sees a `NatsServer` and is not told which of the two it is.
Both are child processes, but for tests that only want settings of their own: for them ours runs on a thread of this
process, which it starts in a fraction of the time.
"""

import asyncio
import gc
import inspect
import sysconfig
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from strandline import broker
from strandline.broker.settings.configuration import read_configuration
from tests.leftovers import shared_server
from tests.servers_nats import NatsServer, fresh_bucket, running_nats
from tests.waiting import PATIENCE_S

KINDS = ("nats-server", "strandline")
WITHIN_S = PATIENCE_S
"""How long a test waits for what has to come."""

StartServer = Callable[..., NatsServer]


def program_of(kind: str) -> tuple[str, ...]:
    """Return what starts a server of a kind."""
    return (str(Path(sysconfig.get_path("scripts")) / "strandline"), "serve") if kind == "strandline" else ()


class EmbeddedServer(NatsServer):
    """Ours on a thread of this process; it can be stopped, but not killed or sent signals."""

    def start(self) -> None:
        """Start it; it can serve when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "server.conf"
        file.write_text(self._configuration())
        self._running = broker.running(read_configuration(file).settings, log=_unheard)
        self._running.__enter__()

    def stop(self) -> None:
        """End it in good order."""
        self._running.__exit__(None, None, None)


@contextmanager
def embedded(settings: str = "", **options: Any) -> Iterator[NatsServer]:  # noqa: ANN401 - those of NatsServer
    """Run ours on a thread of this process, in a folder of its own, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="strandline-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(Path(folder), settings, **options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def set_up(kind: str, settings: str = "", **options: Any) -> AbstractContextManager[NatsServer]:  # noqa: ANN401
    """Run a server of a kind with settings of its own, which is neither killed nor sent signals."""
    return embedded(settings, **options) if kind == "strandline" else running(kind, settings, **options)


def running(kind: str, settings: str = "", **options: Any) -> AbstractContextManager[NatsServer]:  # noqa: ANN401
    """Run a server of a kind in a folder of its own, both gone afterwards."""
    return running_nats(settings, program=program_of(kind), **options)


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:  # noqa: ANN401 - those of nats.connect
    """Connect a client, which neither comes back by itself nor prints what went wrong."""
    options.setdefault("connect_timeout", WITHIN_S)
    options.setdefault("error_cb", _ignore)
    options.setdefault("allow_reconnect", False)
    client = await nats.connect(url, **options)
    try:
        yield client
    finally:
        if not client.is_closed:
            await client.close()


async def settled(*clients: Client) -> None:
    """Return when the server has seen all that was sent: nats-py's first PING may overtake what waits to be sent."""
    for client in clients:
        await client.flush(int(WITHIN_S))
        await client.flush(int(WITHIN_S))


async def is_refused(url: str, **options: Any) -> bool:  # noqa: ANN401 - those of nats.connect
    """Tell whether a client is not let in; of some refusals nats-py hears only that no answer comes."""
    options.setdefault("connect_timeout", 2)
    try:
        async with connected(url, **options):
            return False
    except (nats.errors.Error, OSError):
        return True
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # nats-py leaves what it could not use to the collector
            gc.collect()


async def eventually(condition: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the condition gives
    """Return what a condition, plain or asynchronous, gives as soon as that is true; fail when it takes too long."""
    give_up = asyncio.get_running_loop().time() + WITHIN_S
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert asyncio.get_running_loop().time() < give_up, "it never came true"
        await asyncio.sleep(0.01)


def _unheard(level: str, text: str) -> None:
    pass


async def _ignore(error: Exception) -> None:
    pass


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[Callable[[str], NatsServer]]:
    """Return the server of a kind that all tests of a process share, started when it is first asked for."""
    started: dict[str, NatsServer] = {}
    with ExitStack() as stack:

        def server(kind: str) -> NatsServer:
            if kind not in started:
                started[kind] = stack.enter_context(running(kind))
                stack.enter_context(shared_server(started[kind]))
            return started[kind]

        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Run a test once with each kind of server."""
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def server(kind: str, shared_servers: Callable[[str], NatsServer]) -> NatsServer:
    """Give a test a server that others use too; they keep apart by names."""
    return shared_servers(kind)


@pytest.fixture
def start(kind: str) -> Iterator[StartServer]:
    """Give a test servers of its own, with settings of its own."""
    with ExitStack() as stack:
        yield lambda settings="", **options: stack.enter_context(set_up(kind, settings, **options))


@pytest.fixture
def launch(kind: str) -> Iterator[StartServer]:
    """Give a test servers of its own that it may kill, start again, and send signals to."""
    with ExitStack() as stack:
        yield lambda settings="", **options: stack.enter_context(running(kind, settings, **options))


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Give a test the loop that it runs on."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def nc(runner: asyncio.Runner, server: NatsServer) -> Iterator[Client]:
    """Give a test a connected client."""
    context = connected(server.url)
    client = runner.run(context.__aenter__())
    yield client
    runner.run(context.__aexit__(None, None, None))


@pytest.fixture
def js(nc: Client) -> JetStreamContext:
    """Give a test JetStream as nats-py speaks it."""
    return nc.jetstream(timeout=WITHIN_S)


@pytest.fixture
def name() -> str:
    """Give a test a name for a stream, or bucket, that no other test uses; it is a subject as well."""
    return fresh_bucket()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    runner = pyfuncitem.funcargs.get("runner")
    names = inspect.signature(pyfuncitem.obj).parameters
    coroutine = pyfuncitem.obj(**{each: pyfuncitem.funcargs[each] for each in names})
    if isinstance(runner, asyncio.Runner):
        runner.run(coroutine)
    else:
        asyncio.run(coroutine)
    return True
