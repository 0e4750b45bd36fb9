"""A process that mirrors and sources a stream of another server until it is killed."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

from strandline.lazy_imports import leave_pandas_out
from strandline.nats import NatsSettings
from tests.broker.mirrors.hub import API, EXTERNAL
from tests.broker.mirrors.world import MirrorAccount
from tests.waiting import PATIENCE_S


def copy(folder: str, url: str, told: Connection) -> None:
    """Keep three copies up to date: a mirror, a source, and a source of the mirror."""
    leave_pandas_out()
    world = MirrorAccount(Path(folder), {API: NatsSettings(url, timeout_s=PATIENCE_S)})
    if "M" not in world.service.streams:
        world.create("M", mirror={"name": "O", "external": EXTERNAL})
        world.create("S", sources=[{"name": "O", "external": EXTERNAL}])
        world.create("CHAIN", sources=[{"name": "M"}])
    told.send("ready")
    while True:
        if not world.turn():
            time.sleep(0.001)
        for stream in world.service.streams.values():
            stream.compact_step()
