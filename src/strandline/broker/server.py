"""The server: its listeners, its connections, and JetStream of every account, on one asyncio loop.

Invariants: everything but fsync runs on the loop's thread. `close` releases all that `start` opened, whatever happened:
no task, thread, socket or file remains. No client can keep the server from closing.
"""

import asyncio
import contextlib
import contextvars
import logging
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from strandline.broker.api.responses import AccountLimits
from strandline.broker.commit_cycle import CommitCycle
from strandline.broker.context import ServerContext
from strandline.broker.core.accounts import Accounts
from strandline.broker.core.protocol_trace import ProtocolTracer
from strandline.broker.core.server_info import ServerInfo, make_server_info, new_server_id
from strandline.broker.core.session import Session
from strandline.broker.jetstream import JetStream
from strandline.broker.jetstream.disabled import DisabledJetStream
from strandline.broker.logs import Log, heard_by
from strandline.broker.settings import AccountSettings, ServerSettings
from strandline.broker.settings.model import format_address
from strandline.broker.sockets.acceptor import ConnectionAcceptor
from strandline.broker.sockets.connection import Connection, ListenerOptions
from strandline.broker.sockets.descriptors import descriptor_budget
from strandline.broker.sockets.read_size import READ_BYTES_MAX
from strandline.broker.sockets.tls import server_context
from strandline.broker.store import format_account_folder, open_store, storage_unavailable
from strandline.broker.streams.shared_limits import SharedLimits
from strandline.broker.system_requests import SystemRequests
from strandline.broker.thread_runner import Post, ThreadRunner
from strandline.clock import Clock, SystemClock
from strandline.errors import Locked, Unavailable
from strandline.files import Disk
from strandline.metrics.metric import Durations

if TYPE_CHECKING:
    from strandline.broker.monitoring import Monitor
    from strandline.broker.monitoring.http import MonitorCounters

logger = logging.getLogger("strandline.broker")
THREADS_MAX = 4
"""How many threads write to disks."""
PASSWORD_THREADS_MAX = 2
"""Threads that check slow password hashes, apart from the others, so that strangers do not delay storing."""
PASSWORD_RETRY_S = 0.1
"""How long a password waits for its next check where a thread cannot be started."""
CLOSING_S = 2.0
"""How long `close` waits for clients to read their output."""


class Server:
    """A server with its settings; `serve` runs one."""

    def __init__(self, settings: ServerSettings, clock: Clock | None = None, log: Log | None = None) -> None:
        self.settings = settings
        self._log = log
        self.clock = clock or SystemClock()
        self.server_id = new_server_id()
        """Unique among servers."""
        self.server_info: ServerInfo
        self.accounts: Accounts
        self.loop: asyncio.AbstractEventLoop
        self.cycle: CommitCycle
        self.jetstreams: dict[str, JetStream] = {}
        self.store_dir: Path | None = None
        self.read_buffer = bytearray(READ_BYTES_MAX)
        self.started_ns = 0
        self._connections: dict[int, Connection] = {}
        self._last_client = 0
        self.descriptors = descriptor_budget()
        self._listener = ListenerOptions()
        self._websocket_listener = ListenerOptions()
        self._acceptor = ConnectionAcceptor(lambda: self._most + self.descriptors.refused)
        self._resources = ExitStack()
        self.is_leaving = False
        """Whether it accepts no more clients, because it is about to end."""
        self.syncs = Durations()
        """How long syncs of files took."""
        self._shared_limits = SharedLimits()
        self._is_empty: asyncio.Event
        self._post: Post
        self._executor: ThreadPoolExecutor
        self._password_executor: ThreadPoolExecutor
        self._passwords: ThreadRunner
        self._password_problem = ""
        self.port = 0
        self.websocket_port: int | None = None
        self.http_port: int | None = None
        self._monitor: Monitor | None = None

    # Identity.

    @property
    def server_name(self) -> str:
        """The name for people."""
        return self.settings.server_name or self.server_id

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

    @property
    def counters(self) -> "MonitorCounters":
        """Counters of the monitoring endpoints; empty without endpoints."""
        from strandline.broker.monitoring.http import MonitorCounters  # noqa: PLC0415 - imported only on use

        return self._monitor.counters if self._monitor is not None else MonitorCounters(deque())

    # Beginning and end.

    async def start(self) -> None:
        """Open the stored data, then listen."""
        with heard_by(self._log):
            await self._start(asyncio.get_running_loop())

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.started_ns = self.clock.now_ns()
            self.loop = loop
            context = contextvars.copy_context()
            self._post = lambda call: loop.call_soon_threadsafe(call, context=context)
            self.cycle = CommitCycle(loop, self.clock)
            self._resources.callback(self.cycle.close)
            self._is_empty = asyncio.Event()
            self._is_empty.set()
            self._executor = ThreadPoolExecutor(THREADS_MAX, "strandline-broker")
            self._resources.callback(self._executor.shutdown)
            self._password_executor = ThreadPoolExecutor(PASSWORD_THREADS_MAX, "strandline-passwords")
            self._resources.callback(self._password_executor.shutdown, cancel_futures=True)
            self._passwords = ThreadRunner(self._password_executor, self._post)
            self.accounts = Accounts(self.settings, loop.call_soon, self._check_password)
            self._configure(self.settings)
            for account in self.accounts.by_name.values():
                SystemRequests(self, account)
            self._open_jetstream()
            await self._listen()
        except BaseException:
            await self.close()
            raise

    def _configure(self, settings: ServerSettings) -> None:
        """Apply settings; an error changes nothing."""
        websocket = settings.websocket
        listener = ListenerOptions(
            settings.tls, None if settings.tls is None else server_context(settings.tls), settings.allow_non_tls
        )
        websocket_listener = ListenerOptions(websocket=websocket)
        if websocket is not None and websocket.tls is not None:
            websocket_listener = ListenerOptions(websocket.tls, server_context(websocket.tls), websocket=websocket)
        self._listener, self._websocket_listener = listener, websocket_listener

    def _open_jetstream(self) -> None:
        settings = self.settings
        if settings.jetstream is None:
            return
        if settings.store_dir is None:
            self.store_dir = Path(tempfile.mkdtemp(prefix="strandline-"))
            self._resources.callback(shutil.rmtree, self.store_dir, ignore_errors=True)
        else:
            self.store_dir = settings.store_dir
        folder = self.store_dir / "strandline"
        if (self.store_dir / "jetstream").is_dir():
            logger.warning("%s holds streams of nats-server; this server does not read them", self.store_dir)
        try:
            disk = self._resources.enter_context(open_store(folder, self.descriptors.files, self._executor, self.syncs))
        except Locked as error:
            hint = "stop that server, or choose another folder (store_dir, -sd)"
            raise Unavailable(f"another server uses {self.store_dir}", hint=hint) from error
        except OSError as error:
            raise storage_unavailable(self.store_dir, error) from error
        self._shared_limits = SharedLimits(settings.jetstream.max_memory, settings.jetstream.max_storage)
        for account in settings.accounts:
            if account.jetstream is not None and account.name != settings.system_account:
                limits = AccountLimits(**asdict(account.jetstream))
                self._open_account(account, limits, folder / format_account_folder(account.name), disk)
            else:
                DisabledJetStream(self.accounts.by_name[account.name].router)

    def _open_account(
        self,
        account: AccountSettings,
        limits: AccountLimits,
        folder: Path,
        disk: Disk,
    ) -> None:
        settings, name = self.settings, account.name

        def wake() -> None:
            wakes[0]()

        wakes: list[Callable[[], None]] = []
        jetstream = JetStream(
            name,
            folder,
            self.accounts.by_name[name].router,
            ServerContext(
                wake=wake,
                post=self._post,
                pause=self._pause,
                resume=self._resume,
                limits=lambda: self.server_info.wire_limits,
                executor=self._executor,
                disk=disk,
                shared_limits=self._shared_limits,
                server_name=self.server_name,
            ),
            clock=self.clock,
            durability=settings.durability,
            domain=settings.jetstream.domain if settings.jetstream is not None else "",
            limits=limits,
            remotes=settings.remotes_of(account),
        )
        wakes.append(self.cycle.add(jetstream))
        self._resources.callback(jetstream.close)
        jetstream.open()
        self.jetstreams[name] = jetstream

    def _check_password(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Check a password on another thread; after a failure the login, which checks again, waits a moment."""

        def ended(problem: Exception | None) -> None:
            if problem is None:
                self._password_problem = ""
                done()
                return
            if self._password_problem != str(problem):  # a line for each attempt would fill the log
                self._password_problem = str(problem)
                logger.error("checking a password failed, will retry: %s", problem)
            self.loop.call_later(PASSWORD_RETRY_S, done)

        self._passwords.run(work, ended)

    async def _listen(self) -> None:
        settings, listen = self.settings, self._acceptor.listen
        self.port = await listen(
            settings.host, settings.port, lambda address: Connection(self, self._listener, address)
        )
        if settings.websocket is not None:
            websocket = settings.websocket
            self.websocket_port = await listen(
                websocket.host, websocket.port, lambda address: Connection(self, self._websocket_listener, address)
            )
        self.server_info = self._make_server_info(settings)
        if settings.http_port is not None:
            from strandline.broker.monitoring import Monitor  # noqa: PLC0415 - imported only on use

            self._monitor = await Monitor.start(self)
            self.http_port = self._monitor.port

    async def close(self) -> None:
        """End every connection, make everything durable, and release all resources. Closing twice is harmless."""
        with heard_by(self._log):
            try:
                await self._end_all()
            finally:
                self._resources.close()
        await asyncio.sleep(0)  # callbacks that other threads posted meanwhile find nothing to do

    async def _end_all(self) -> None:
        if self._monitor is not None:
            await self._monitor.close()
            self._monitor = None
        await self._acceptor.close()
        for jetstream in self.jetstreams.values():
            jetstream.end_pulls()
        for connection in list(self._connections.values()):
            connection.end("Server Shutdown")
        await self._until_empty(CLOSING_S)
        for connection in list(self._connections.values()):
            connection.abort("Server Shutdown")
        await self._until_empty(CLOSING_S)

    async def _until_empty(self, seconds: float) -> None:
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), seconds)

    async def lame_duck(self) -> None:
        """Accept no more clients, ask connected ones to go elsewhere, and end them one by one."""
        with heard_by(self._log):
            await self._let_go()

    async def _let_go(self) -> None:
        self.is_leaving = True
        self._acceptor.stop()
        for session in list(self.sessions):
            session.lame_duck()
        settings = self.settings
        grace_s = min(settings.lame_duck_grace_s, settings.lame_duck_s)
        await self._until_empty(grace_s)
        logger.info("Closing existing clients")
        staying = list(self._connections.values())
        pause_s = min(1.0, (settings.lame_duck_s - grace_s) / len(staying)) if staying else 0.0
        for connection in staying:
            connection.end("Server Shutdown")
            await asyncio.sleep(pause_s)
        await self._until_empty(CLOSING_S)

    def reload(self, settings: ServerSettings) -> None:
        """Apply new settings: users, permissions, limits and certificates, for clients that connect from now on."""
        accounts = self.accounts
        self._configure(settings)
        known = set(accounts.by_name)
        with heard_by(self._log):
            accounts.reload(settings)
        for name in accounts.by_name.keys() - known:
            SystemRequests(self, accounts.by_name[name])
        self.settings = settings
        self._acceptor.resume()
        for session in self.sessions:
            self._trace(session)
        self.server_info = self._make_server_info(settings)

    def _make_server_info(self, settings: ServerSettings) -> ServerInfo:
        server_info = make_server_info(settings, auth_required=self.accounts.needs_credentials, port=self.port)
        return replace(server_info, server_id=self.server_id)

    # Connections.

    def open_session(self, connection: Connection, host: str, port: int, *, is_websocket: bool) -> Session:
        """Return the session of a new connection."""
        self._last_client += 1
        session = Session(
            self._last_client,
            self.server_info,
            self.accounts,
            self.clock,
            connection.note_output,
            host=host,
            port=port,
            kind="WEBSOCKET" if is_websocket else "STANDARD",
        )
        self._connections[session.client_id] = connection
        self._is_empty.clear()
        self._trace(session)
        self._route_run(session)
        return session

    def _trace(self, session: Session) -> None:
        session.tracer = ProtocolTracer(session, self.settings.log) if self.settings.log.trace else None

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as there may be; accepted connections count."""
        return self._acceptor.count >= self._most

    @property
    def _most(self) -> int:
        limit, handles = self.settings.max_connections, self.descriptors.clients
        return handles if limit is None else min(limit, handles)

    def _route_run(self, session: Session) -> None:
        """Run the timers of a session."""

        def tick(now_ns: int) -> None:
            session.tick(now_ns)
            if session.client_id in self._connections:
                if session.closing is not None:
                    self._connections[session.client_id].note_output()
                self.cycle.at(session, session.next_due_ns, tick)

        self.cycle.at(session, session.next_due_ns, tick)

    def forget(self, connection: Connection) -> None:
        """Let go of a connection that has ended."""
        self._acceptor.release(connection)
        self._connections.pop(connection.session.client_id, None)
        self.cycle.at(connection.session, None, lambda _: None)
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
