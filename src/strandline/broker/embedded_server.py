"""A server inside a process: for as long as a block runs, on this loop or on a thread of its own.

Invariants: when the block is left, however, nothing of the server is left. What is not given is nats-server's default,
but for a free port, the loopback address, JetStream, and storage that is gone with the block unless `store_dir` says
where.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path

from strandline.broker.logs import Log, own_log
from strandline.broker.server import Server
from strandline.broker.settings import ServerSettings


def _settings(
    settings: ServerSettings | None, port: int | None, store_dir: str | PathLike[str] | None
) -> ServerSettings:
    settings = ServerSettings(port=0) if settings is None else settings
    if port is not None:
        settings = replace(settings, port=port)
    return settings if store_dir is None else replace(settings, store_dir=Path(store_dir))


@asynccontextmanager
async def serve(
    settings: ServerSettings | None = None,
    *,
    port: int | None = None,
    store_dir: str | PathLike[str] | None = None,
    log: Log | None = None,
) -> AsyncIterator[Server]:
    """Run a server on this loop; `server.url` is where clients connect.

    `settings` say everything; without them the port is a free one. `log` is told what a log would have, by level
    (`INF`, `WRN`, `ERR`, `DBG`, `TRC`) and text; without it, that goes to the logger `strandline.broker`.
    """
    with own_log(log):
        server = Server(_settings(settings, port, store_dir), log=log)
        await server.start()
        try:
            yield server
        finally:
            await server.close()


@contextmanager
def running(
    settings: ServerSettings | None = None,
    *,
    port: int | None = None,
    store_dir: str | PathLike[str] | None = None,
    log: Log | None = None,
) -> Iterator[str]:
    """Run a server on a thread of its own, for people without asyncio; yields where clients connect.

    An error of the server, also one while it closes, is raised when the block is left; if the block raises one of its
    own, that one carries a note of it.
    """
    loop, stop, started = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    urls: list[str] = []
    errors: list[BaseException] = []

    async def run() -> None:
        async with serve(settings, port=port, store_dir=store_dir, log=log) as server:
            urls.append(server.url)
            started.set()
            await stop.wait()

    def main() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(run())
        except BaseException as error:  # noqa: BLE001 - it is raised by whoever waits
            errors.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=main, name="strandline-broker")
    try:
        # An exception of a signal can come at any time from here on, and the thread must end all the same.
        thread.start()
        started.wait()
        if urls:
            yield urls[0]
    except BaseException as error:
        _end(thread, loop, stop)
        for other in errors:
            error.add_note(f"the server failed, too: {other}")
        raise
    _end(thread, loop, stop)
    if errors:
        raise errors[0]


def _end(thread: threading.Thread, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Let a server go that may have ended already, or may not have begun."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(stop.set)
    with suppress(RuntimeError):  # it has hardly begun, and ends by itself
        thread.join()
