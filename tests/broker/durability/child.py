"""A server in a process that is there to be killed, and begins quickly, as what it needs is loaded already.

Invariant: each life is a process of its own over the same folder, at the same port.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from strandline.broker.embedded_server import serve
from strandline.broker.settings import ServerSettings
from strandline.journal import SYNCED, Durability
from strandline.lazy_imports import leave_pandas_out
from tests.forkserver import forkserver
from tests.ports import free_ports
from tests.straced import let_anyone_trace, traced
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S


class Mortal:
    """A server over a folder, between one death and the next."""

    def __init__(self, context: ForkServerContext, folder: Path, durability: Durability) -> None:
        self.folder = folder
        self._durability = durability
        (self.port,) = free_ports(1)
        self._context = context
        self._process: ForkServerProcess | None = None
        self._tracing = ExitStack()

    def start(self, strace: Sequence[str] = ()) -> bool:
        """Begin a life, under strace if it has arguments; return whether it lived long enough to serve."""
        told, theirs = self._context.Pipe()
        with told:
            process = self._context.Process(
                target=keep_serving, args=(theirs, self.folder, self.port, self._durability), daemon=True
            )
            process.start()
            theirs.close()
            self._process = process
            assert told.poll(WAIT_S), "it does not begin"
            assert told.recv() == "made"
            if strace:
                assert process.pid is not None
                self._tracing.enter_context(traced(process.pid, *strace))
            told.send("go")
            assert told.poll(WAIT_S), "it does not serve"
            try:
                word: str = told.recv()
            except (EOFError, ConnectionResetError):
                return False
            return word == "serving"

    def wait_for_death(self, within_s: float) -> bool:
        """Return whether it is dead by then."""
        assert self._process is not None
        self._process.join(within_s)
        return self._process.exitcode is not None

    def kill(self) -> None:
        """End this life, if it has not ended."""
        if self._process is not None:
            self._process.kill()
            self._process.join(WAIT_S)
            assert self._process.exitcode == -9, f"it ended by itself, with {self._process.exitcode}"
            self._process.close()
            self._process = None
        self._tracing.close()


@contextmanager
def mortal(folder: Path, durability: Durability = SYNCED) -> Iterator[Mortal]:
    """Yield a server that does not live yet."""
    server = Mortal(forkserver(), folder, durability)
    try:
        yield server
    finally:
        server.kill()


def keep_serving(told: Connection, folder: Path, port: int, durability: Durability) -> None:
    """Serve until this is killed; wait for a word first, so that somebody can trace it from the beginning."""
    let_anyone_trace()
    leave_pandas_out()
    told.send("made")
    told.recv()

    async def run() -> None:
        async with serve(ServerSettings(port=port, store_dir=folder, durability=durability)):
            told.send("serving")
            await asyncio.Event().wait()

    asyncio.run(run())
