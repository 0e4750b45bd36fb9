"""Somebody who behaves, beside those who do not: asks and publishes all the time, and knows how long each took."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from tests.broker.socket_client import SocketClient
from tests.servers_nats import NatsServer, fresh_bucket
from tests.waiting import PATIENCE_S

PAUSE_S = 0.005
WORST_S = 60.0
MEDIAN_S = 2.0
"""Of a machine that does much else: far below these when it does not. Benchmarks say how long it takes."""


class Neighbour:
    """A client whose messages are answered, whatever others do."""

    def __init__(self, port: int) -> None:
        self.times_s: list[float] = []
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._client = SocketClient(port)
        self._name = fresh_bucket()
        self._client.api(f"STREAM.CREATE.{self._name}", {"name": self._name, "storage": "memory"})
        self._client.subscribe(f"{self._name}.echo", "echo")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        sequence = 0
        try:
            while not self._stop.is_set():
                sequence += 1
                began = time.monotonic()
                self._client.publish(f"{self._name}.echo", b"%d" % sequence)
                assert self._client.next().payload == b"%d" % sequence
                assert self._client.request(self._name, b"x").json()["seq"] == sequence
                self.times_s.append(time.monotonic() - began)
                time.sleep(PAUSE_S)
        except BaseException as error:  # noqa: BLE001 - told to who waits for it
            self.failures.append(error)

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
        assert max(self.times_s) < WORST_S, sorted(self.times_s)[-5:]
        assert statistics.median(self.times_s) < MEDIAN_S, statistics.median(self.times_s)


@contextmanager
def undisturbed(server: NatsServer, grows_at_most: int = 32 << 20) -> Iterator[Neighbour]:
    """See that a neighbour is served well during the block, and that the server grows by no more than so much."""
    neighbour = Neighbour(server.port)
    peak = Peak(server.pid)
    try:
        yield neighbour
        neighbour.wait_for(20)
    finally:
        grown = peak.stop()
        neighbour.stop()
    assert grown < grows_at_most, f"the server grew by {grown >> 20} MiB"


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


def connections(server: NatsServer) -> int:
    """Return how many clients the server has."""
    answer = server.monitor("/varz")
    assert isinstance(answer, dict)
    count = answer["connections"]
    assert isinstance(count, int)
    return count


def eventually(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Return as soon as a condition holds."""
    give_up = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.01)
