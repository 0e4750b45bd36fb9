"""The server: its listeners, its connections, and JetStream of every account, on one asyncio loop.

Invariants: everything but fsync runs on the loop's thread. What `start` opened, `close` lets go of, whatever happened:
no task, thread, socket or file is left. No client can keep the server from closing.
"""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from strandline.broker.api.answers import AccountLimits
from strandline.broker.core.accounts import Accounts
from strandline.broker.core.facts import ServerFacts, facts_of
from strandline.broker.core.session import Session
from strandline.broker.jetstream import JetStream, Surroundings
from strandline.broker.jetstream.absent import Absent
from strandline.broker.settings import AccountSettings, ServerSettings
from strandline.broker.settings.model import format_address
from strandline.broker.sockets.connection import READ_BYTES, Connection, Listener
from strandline.broker.sockets.tls import server_context
from strandline.broker.turn import Turn
from strandline.clock import Clock, SystemClock
from strandline.errors import Locked, Unavailable
from strandline.files import OsDisk, storage_errors

if TYPE_CHECKING:
    from strandline.broker.monitoring import Monitor

logger = logging.getLogger("strandline.broker")
THREADS_MAX = 4
"""How many threads write to disks."""
PASSWORD_THREADS_MAX = 2
"""How many look at slow passwords: apart from the others, so that strangers do not hold up what is to be stored."""
BACKLOG = 4_096
HANDLES_MAX = 1 << 30
CLOSING_S = 2.0
"""How long `close` waits for what clients still have to take."""
_LISTEN_HINTS = {
    errno.EADDRINUSE: "another server is there; port -1 takes a free one",
    errno.EACCES: "ports below 1024 are for root",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    socket.EAI_NONAME: "this machine has no such address",
}


class Server:
    """A server that was told some settings; `serve` is the way to have one."""

    def __init__(self, settings: ServerSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.facts: ServerFacts
        self.accounts: Accounts
        self.loop: asyncio.AbstractEventLoop
        self.turn: Turn
        self.jetstreams: dict[str, JetStream] = {}
        self.store_dir: Path | None = None
        self.read_buffer = bytearray(READ_BYTES)
        self.started_ns = 0
        self.is_lame_duck = False
        self._connections: dict[int, Connection] = {}
        self._last_client = 0
        self._handles = _handles_for_clients()
        self._listener = Listener()
        self._websocket_listener = Listener()
        self._sockets: list[asyncio.Server] = []
        self._held = ExitStack()
        self._is_empty: asyncio.Event
        self._executor: ThreadPoolExecutor
        self._password_executor: ThreadPoolExecutor
        self.port = 0
        self.websocket_port: int | None = None
        self.http_port: int | None = None
        self._monitor: Monitor | None = None

    # What it is.

    @property
    def server_id(self) -> str:
        """What no other server is called."""
        return self.facts.server_id

    @property
    def server_name(self) -> str:
        """What people call it."""
        return self.facts.server_name or self.facts.server_id

    @property
    def url(self) -> str:
        """Where clients connect, without credentials."""
        return format_address("nats" if self.settings.tls is None else "tls", self.settings.host, self.port)

    @property
    def sessions(self) -> Iterator[Session]:
        """Those of all clients."""
        return (connection.session for connection in self._connections.values())

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    @property
    def total_connections(self) -> int:
        """How many clients have connected since the start."""
        return self._last_client

    # Beginning and end.

    async def start(self) -> None:
        """Open what is kept, then listen."""
        loop = asyncio.get_running_loop()
        try:
            self.started_ns = self.clock.now_ns()
            self.loop = loop
            self.turn = Turn(loop, self.clock)
            self._held.callback(self.turn.close)
            self._is_empty = asyncio.Event()
            self._is_empty.set()
            self._executor = ThreadPoolExecutor(THREADS_MAX, "strandline-broker")
            self._held.callback(self._executor.shutdown)
            self._password_executor = ThreadPoolExecutor(PASSWORD_THREADS_MAX, "strandline-passwords")
            self._held.callback(self._password_executor.shutdown, cancel_futures=True)
            self.accounts = Accounts(self.settings, loop.call_soon, self._beside)
            self._configure(self.settings)
            self._open_jetstream(loop)
            await self._listen(loop)
        except BaseException:
            await self.close()
            raise

    def _configure(self, settings: ServerSettings) -> None:
        """Make what follows from settings; nothing has changed if that raises."""
        websocket = settings.websocket
        listener = Listener(
            settings.tls, None if settings.tls is None else server_context(settings.tls), settings.allow_non_tls
        )
        websocket_listener = Listener(websocket=websocket)
        if websocket is not None and websocket.tls is not None:
            websocket_listener = Listener(websocket.tls, server_context(websocket.tls), websocket=websocket)
        self._listener, self._websocket_listener = listener, websocket_listener

    def _open_jetstream(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = self.settings
        if settings.jetstream is None:
            return
        if settings.store_dir is None:
            self.store_dir = Path(tempfile.mkdtemp(prefix="strandline-"))
            self._held.callback(shutil.rmtree, self.store_dir, ignore_errors=True)
        else:
            self.store_dir = settings.store_dir
        folder = self.store_dir / "strandline"
        if (self.store_dir / "jetstream").is_dir():
            logger.warning("%s holds streams of nats-server, which are not read", self.store_dir)
        with storage_errors(folder):
            OsDisk().make_folder(folder)
            try:
                self._held.callback(OsDisk().lock(folder / "lock").release)
            except Locked as error:
                hint = "stop that server, or give this one another folder (store_dir, -sd)"
                raise Unavailable(f"another server keeps its data in {self.store_dir}", hint=hint) from error
        for account in settings.accounts:
            if account.jetstream is not None and account.name != settings.system_account:
                limits = AccountLimits(**asdict(account.jetstream))
                self._open_account(account, limits, folder / quote(account.name, safe="$"), loop)
            else:
                Absent(self.accounts.by_name[account.name].router)

    def _open_account(
        self,
        account: AccountSettings,
        limits: AccountLimits,
        folder: Path,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        settings, name = self.settings, account.name

        def wake() -> None:
            wakes[0]()

        def post(call: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(call)

        wakes: list[Callable[[], None]] = []
        jetstream = JetStream(
            name,
            folder,
            self.accounts.by_name[name].router,
            Surroundings(
                wake=wake,
                post=post,
                pause=self._pause,
                resume=self._resume,
                limits=lambda: self.facts.wire_limits,
                executor=self._executor,
                server_name=settings.server_name,
            ),
            clock=self.clock,
            durability=settings.durability,
            domain=settings.jetstream.domain if settings.jetstream is not None else "",
            limits=limits,
            remotes=settings.remotes_of(account),
        )
        wakes.append(self.turn.add(jetstream))
        self._held.callback(jetstream.close)
        jetstream.open()
        self.jetstreams[name] = jetstream

    def _beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Look at a password on another thread, then do something on this one."""
        self._password_executor.submit(work).add_done_callback(lambda _: self.loop.call_soon_threadsafe(done))

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = self.settings

        async def listen(host: str, port: int, listener: Callable[[], Listener]) -> int:
            with _listen_errors(host, port):
                server = await loop.create_server(
                    lambda: Connection(self, listener), host or None, max(port, 0), backlog=BACKLOG
                )
            self._sockets.append(server)
            return int(server.sockets[0].getsockname()[1])

        self.port = await listen(settings.host, settings.port, lambda: self._listener)
        if settings.websocket is not None:
            websocket = settings.websocket
            self.websocket_port = await listen(websocket.host, websocket.port, lambda: self._websocket_listener)
        self.facts = facts_of(settings, auth_required=self.accounts.needs_credentials, port=self.port)
        if settings.http_port is not None:
            from strandline.broker.monitoring import Monitor  # noqa: PLC0415 - only who asks for it pays for it

            self._monitor = await Monitor.start(self)
            self.http_port = self._monitor.port

    async def close(self) -> None:
        """End every connection, make everything durable, and let go of all of it. Closing twice is harmless."""
        try:
            await self._end_all()
        finally:
            self._held.close()
        await asyncio.sleep(0)  # what was posted from other threads meanwhile finds nothing to do

    async def _end_all(self) -> None:
        if self._monitor is not None:
            await self._monitor.close()
            self._monitor = None
        for server in self._sockets:
            server.close()
        for jetstream in self.jetstreams.values():
            jetstream.end_pulls()
        for connection in list(self._connections.values()):
            connection.end("Server Shutdown")
        await self._until_empty(CLOSING_S)
        for connection in list(self._connections.values()):
            connection.abort("Server Shutdown")
        await self._until_empty(CLOSING_S)
        for server in self._sockets:
            await server.wait_closed()
        self._sockets.clear()

    async def _until_empty(self, seconds: float) -> None:
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), seconds)

    async def lame_duck(self) -> None:
        """Take no more clients, ask those who are here to go elsewhere, and end them one by one."""
        self.is_lame_duck = True
        for server in self._sockets:
            server.close()
        for session in list(self.sessions):
            session.lame_duck()
        settings = self.settings
        grace_s = min(settings.lame_duck_grace_s, settings.lame_duck_s)
        await self._until_empty(grace_s)
        staying = list(self._connections.values())
        pause_s = min(1.0, (settings.lame_duck_s - grace_s) / len(staying)) if staying else 0.0
        for connection in staying:
            connection.end("Server Shutdown")
            await asyncio.sleep(pause_s)
        await self._until_empty(CLOSING_S)

    def reload(self, settings: ServerSettings) -> None:
        """Take new settings over: users, permissions, limits and certificates, for those who connect from now on."""
        accounts = self.accounts
        self._configure(settings)
        accounts.reload(settings)
        self.settings = settings
        self.facts = replace(
            facts_of(settings, auth_required=accounts.needs_credentials, port=self.port), server_id=self.facts.server_id
        )

    # Connections.

    def open_session(self, connection: Connection, host: str, port: int, *, is_websocket: bool) -> Session:
        """Return the session of a new connection."""
        self._last_client += 1
        session = Session(
            self._last_client,
            self.facts,
            self.accounts,
            self.clock,
            connection.note_output,
            host=host,
            port=port,
            kind="WEBSOCKET" if is_websocket else "STANDARD",
        )
        self._connections[session.client_id] = connection
        self._is_empty.clear()
        self._follow(session)
        return session

    @property
    def is_full(self) -> bool:
        """Whether there are more connections than there may be."""
        limit = self.settings.max_connections
        return len(self._connections) > min(self._handles, limit if limit is not None else self._handles)

    def _follow(self, session: Session) -> None:
        """Let a session do what it does with time."""

        def tick(now_ns: int) -> None:
            session.tick(now_ns)
            if session.client_id in self._connections:
                if session.closing is not None:
                    self._connections[session.client_id].note_output()
                self.turn.at(session, session.next_due_ns, tick)

        self.turn.at(session, session.next_due_ns, tick)

    def forget(self, connection: Connection) -> None:
        """Let go of a connection that has ended."""
        self._connections.pop(connection.session.client_id, None)
        self.turn.at(connection.session, None, lambda _: None)
        if self._monitor is not None:
            self._monitor.note_closed(connection.session)
        if not self._connections:
            self._is_empty.set()

    def _pause(self, client_id: int) -> None:
        connection = self._connections.get(client_id)
        if connection is not None:
            connection.pause("storage")

    def _resume(self, client_id: int) -> None:
        connection = self._connections.get(client_id)
        if connection is not None:
            connection.resume("storage")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _handles_for_clients() -> int:
    """Return how many connections leave a quarter of the process's handles to files: a stream needs them to go on."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - soft // 4 if soft != resource.RLIM_INFINITY else HANDLES_MAX


@contextmanager
def _listen_errors(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise Unavailable(
            f"cannot listen on {host or '*'}:{port}: {reason}", hint=_LISTEN_HINTS.get(error.errno or 0)
        ) from error
