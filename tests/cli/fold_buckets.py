"""A bucket on a test's server that commands make folds of."""

import asyncio
import sys
from pathlib import Path

from strandline.kv import KvWriter, StoreConfig
from strandline.kv.nats import NatsConnection
from tests.cli.runs import Ran, run_command
from tests.servers_nats import NatsServer

STRANDLINE = (sys.executable, "-c", "from strandline.cli.app import main; main()")


class Bucket:
    """A bucket on the test's server, and a fold of it."""

    def __init__(self, server: NatsServer, name: str, folder: Path) -> None:
        self.server = server
        self.name = name
        self.folder = folder

    @property
    def address(self) -> str:
        """Where the bucket is."""
        return f"{self.server.url}/{self.name}"

    def write(self, *puts: tuple[str, bytes | None], config: StoreConfig | None = None) -> None:
        """Put values in order; None deletes."""

        async def write() -> None:
            async with NatsConnection(self.server.url) as connection:
                writer = (await connection.store(self.name, config)).writer()
                assert writer is not None
                for key, value in puts:
                    await _write(writer, key, value)

        asyncio.run(write())

    def fold(self, *arguments: str, name: str = "fold.log") -> Ran:
        """Run `fold run --once`."""
        return run_command("fold", "run", self.address, self.folder / name, "--once", *arguments)


async def _write(writer: KvWriter, key: str, value: bytes | None) -> None:
    if value is None:
        await writer.delete(key)
    else:
        await writer.put(key, value)
