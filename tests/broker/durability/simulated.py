"""A whole broker without sockets, threads or a real disk: sessions, routes and JetStream over a disk that loses power.

Invariants: everything happens when a test says so, in one thread, so a number says when the power goes; clients see
bytes, as over a socket. After `crash` nothing of the old broker is asked again.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from random import Random
from typing import ParamSpec, TypeVar

from strandline.broker.context import ServerContext
from strandline.broker.core.accounts import Accounts
from strandline.broker.core.server_info import make_server_info
from strandline.broker.core.session import Session
from strandline.broker.jetstream import JetStream
from strandline.broker.settings import GLOBAL_ACCOUNT, ServerSettings
from strandline.clock import ManualClock
from strandline.sim import SimDisk
from tests import tally
from tests.broker.socket_client import SocketClient
from tests.journal.helpers import WatchedDisk
from tests.journal.model import PowerCut

FOLDER = Path("/sim/account")
START_NS = 1_700_000_000_000_000_000
P = ParamSpec("P")
R = TypeVar("R")


class SometimesLater(Executor):
    """Runs what it is given at once or, while `is_waiting`, when it is told to."""

    def __init__(self) -> None:
        self.is_waiting = False
        self._waiting: deque[Callable[[], object]] = deque()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Run it, or keep it."""
        future: Future[R] = Future()

        def run() -> None:
            future.set_result(fn(*args, **kwargs))

        self._waiting.append(run)
        if not self.is_waiting:
            self.run_all()
        return future

    def run_all(self) -> None:
        """Run what waits."""
        while self._waiting:
            self._waiting.popleft()()


class TreeDisk(SimDisk):
    """A simulated disk whose folders stand in folders."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents."""
        for each in (*reversed(folder.parents), folder):
            super().make_folder(each)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, of files and of folders."""
        return sorted({*super().names(folder), *(each.name for each in self._folders if each.parent == folder != each)})


class SimBroker:
    """One life of a broker after the other, over one disk."""

    def __init__(self) -> None:
        self.disk = TreeDisk()
        self.cut = PowerCut()
        self.clock = ManualClock(START_NS)
        self.lives = 0

    def start(self) -> None:
        """Begin a life over what is on the disk."""
        self.lives += 1
        self._soon: deque[Callable[[], None]] = deque()
        self._wakes = False
        self.executor = SometimesLater()
        settings = ServerSettings()
        self._accounts = Accounts(settings, self._soon.append)
        self._server_info = make_server_info(settings, auth_required=False, port=1)
        context = ServerContext(wake=self._wake, post=self._soon.append, executor=self.executor, server_name="sim")
        router = self._accounts.by_name[GLOBAL_ACCOUNT].router
        self.jetstream = JetStream(GLOBAL_ACCOUNT, FOLDER, router, context, clock=self.clock)
        self.jetstream.streams.disk = WatchedDisk(self.disk, self.cut)
        self.jetstream.open()
        self._clients = 0

    def connect(self) -> SocketClient:
        """Return a new client."""
        self._clients += 1
        return SocketClient(SimSocket(self, self._clients))

    def session(self, number: int) -> Session:
        """Return the server's side of a new connection."""
        return Session(number, self._server_info, self._accounts, self.clock, lambda: None)

    def turn(self) -> None:
        """Do everything that there is to do now, but for what waits for the disk."""
        while self._soon or self._wakes:
            if self._wakes:
                self._wakes = False
                self.jetstream.flush(self.clock.now_ns())
            while self._soon:
                self._soon.popleft()()

    def settle(self) -> None:
        """Let the disk do what waits for it, and do what follows."""
        self.turn()
        self.executor.run_all()
        self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what is due then."""
        self.clock.advance(seconds)
        for _ in range(50):
            due_ns = self.jetstream.next_due_ns
            if due_ns is None or due_ns > self.clock.now_ns():
                return
            self.jetstream.tick(self.clock.now_ns())
            self.settle()

    def crash(self, random: Random) -> None:
        """Lose power."""
        tally.count(tally.POWER_LOSSES)
        self.cut.left = None
        self.disk.crash(random)

    def _wake(self) -> None:
        self._wakes = True


class SimSocket:
    """The client's end of a connection."""

    def __init__(self, broker: SimBroker, number: int) -> None:
        self._broker = broker
        self._session = broker.session(number)

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        """Let the server have some bytes; it gathers what many clients send before its next turn."""
        self._session.feed(bytes(data))

    def recv(self, size: int) -> bytes:
        """Return what the server has sent; what waits for the disk waits no longer, if there is nothing else."""
        del size
        for step in (self._broker.turn, self._broker.settle):
            step()
            data = b"".join(self._session.take_output())
            self._session.note_buffered(0)
            if data:
                return data
        raise TimeoutError("the server says nothing")

    def settimeout(self, seconds: float | None) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """End the connection."""
        self._session.close("Client Closed")
