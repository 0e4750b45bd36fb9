"""Somebody who behaves, beside those who do not: asks and publishes all the time, and knows how long each took."""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.broker.socket_client import Ended, SocketClient
from tests.servers_nats import NatsServer, fresh_bucket
from tests.waiting import PATIENCE_S, eventually

PAUSE_S = 0.005
STALL_S = 0.5
MEDIAN_S = 10.0
"""Of a machine that does much else, and stalls: far below it when it does not. Benchmarks say how long it takes."""


class Neighbour:
    """A client whose messages are answered, whatever others do."""

    def __init__(self, port: int) -> None:
        self.times_s: list[float] = []
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._port = port
        self._connect()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        self._client = SocketClient(self._port)
        self._name = fresh_bucket()
        self._client.api(f"STREAM.CREATE.{self._name}", {"name": self._name, "storage": "memory"})
        self._client.subscribe(f"{self._name}.echo", "echo")

    def _run(self) -> None:
        sequence, answered = 0, time.monotonic()
        try:
            while not self._stop.is_set():
                sequence += 1
                began = time.monotonic()
                try:
                    self._client.publish(f"{self._name}.echo", b"%d" % sequence)
                    assert self._client.next().payload == b"%d" % sequence
                    assert self._client.request(self._name, b"x").json()["seq"] == sequence
                except Ended:
                    if not self._has_stalled(answered):
                        raise
                    self._client.close()
                    self._connect()
                    sequence = 0
                    continue
                answered = time.monotonic()
                self.times_s.append(answered - began)
                time.sleep(PAUSE_S)
        except BaseException as error:  # noqa: BLE001 - told to who waits for it
            self.failures.append(error)

    def _has_stalled(self, answered: float) -> bool:
        """Tell whether this process was held up for so long that a server with short pings gave it up."""
        return "Stale Connection" in self._client.errors and time.monotonic() - answered > STALL_S

    def wait_for(self, rounds: int) -> None:
        """Return when it was answered so many times more."""
        enough = len(self.times_s) + rounds
        eventually(lambda: len(self.times_s) >= enough or bool(self.failures))

    def stop(self) -> None:
        """End, and see that nothing was wrong."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a neighbour is not answered"
        assert not self.failures, self.failures
        self._client.api(f"STREAM.DELETE.{self._name}")
        self._client.close()
        assert statistics.median(self.times_s) < MEDIAN_S, statistics.median(self.times_s)


@contextmanager
def undisturbed(server: NatsServer, grows_at_most: int = 32 << 20) -> Iterator[Neighbour]:
    """See that a neighbour is served well during the block, and that ours grows by no more than so much.

    How much nats-server grows is a matter of when it collects its garbage.
    """
    neighbour = Neighbour(server.port)
    peak = Peak(server.pid)
    try:
        yield neighbour
        neighbour.wait_for(20)
    finally:
        grown = peak.stop()
        neighbour.stop()
    assert server.is_nats_server or grown < grows_at_most, f"the server grew by {grown >> 20} MiB"


class Peak:
    """Looks at the memory of a process every few milliseconds."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._before = self._most = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Return by how much it grew at most."""
        self._stop.set()
        self._thread.join()
        return self._most - self._before

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self._most = max(self._most, self._now())

    def _now(self) -> int:
        rss: int = self._process.memory_info().rss
        return rss


def wait_until_left(server: NatsServer) -> None:
    """Return when a server has no clients: those of the test before may be counted until it has noticed their end."""
    eventually(lambda: connections(server) == 0)


def connections(server: NatsServer) -> int:
    """Return how many clients the server has."""
    answer = server.monitor("/varz")
    assert isinstance(answer, dict)
    count = answer["connections"]
    assert isinstance(count, int)
    return count
