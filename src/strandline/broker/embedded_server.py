"""A server inside a process, for the time of a block: on this loop, or on a thread of its own.

Invariants: when the block ends, in whatever way, nothing of the server remains. Settings that are not given are
nats-server's defaults, with these exceptions: a free port, the loopback address, JetStream enabled, and storage that is
removed with the block unless `store_dir` is given.
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
    """Run a server on this loop; clients connect to `server.url`.

    Without `settings` the port is a free one. `log` receives each log line by level (`INF`, `WRN`, `ERR`, `DBG`, `TRC`)
    and text; without it, lines go to the logger `strandline.broker`.
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
    """Run a server on a thread of its own, for programs without asyncio; yield the URL for clients.

    An error of the server, also while it closes, is raised at the end of the block; if the block raises an error of its
    own, that one gets a note.
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
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
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
