"""The server that copies is killed over and over; the copies have every message once, in order."""

import time
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.broker.mirrors.child import copy
from tests.broker.mirrors.hub import Hub
from tests.broker.mirrors.world import MirrorAccount
from tests.forkserver import forkserver
from tests.servers_nats import running_nats
from tests.waiting import PATIENCE_S

BATCH = 300
WAIT_S = PATIENCE_S


def copy_for_a_while(folder: Path, hub: Hub, published: int, seconds: float) -> int:
    """Let a process copy what is being published, and kill it; return how much was published."""
    context = forkserver()
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=copy, args=(str(folder), hub.settings.urls[0], theirs), daemon=True)
    child.start()
    theirs.close()
    assert ours.poll(WAIT_S)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        hub.publish(*["o"] * BATCH, first=published)
        published += BATCH
    child.kill()
    child.join()
    ours.close()
    return published


def kill_while_copying(folder: Path, times: int) -> None:
    random = Random(times)
    with running_nats() as server, closing(Hub(server.url)) as hub:
        hub.create("O", subjects=["o"])
        published = 0
        for _ in range(times):
            published = copy_for_a_while(folder, hub, published, 0.2 + random.random() / 2)
        world = MirrorAccount(folder, hub.remotes)
        world.until_last(published, "M", "S", "CHAIN")
        expected = [b"%d" % number for number in range(published)]
        for name in ("M", "S", "CHAIN"):
            stream = world.service.streams[name]
            found = stream.read(stream.next_sequences(stream.filter(()), 1, 2 * published))
            assert found.payloads == expected
        world.close()


def test_copies_are_exact_after_a_kill(tmp_path: Path) -> None:
    kill_while_copying(tmp_path, 1)


@pytest.mark.long
def test_copies_are_exact_after_many_kills(tmp_path: Path) -> None:
    kill_while_copying(tmp_path, 12)
