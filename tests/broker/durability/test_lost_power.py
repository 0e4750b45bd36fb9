"""The power goes at a change of the disk, any of hundreds, while clients publish, take, acknowledge and compete.

The broker is whole but for sockets and threads, its disk a simulated one that loses, tears and reorders what was not
synced. After each loss a new broker starts over what is left, and must know everything that the old one said.
"""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from strandline.errors import StrandlineError
from tests.broker.durability.simulated import SimBroker
from tests.broker.durability.workload import (
    ACK_WAIT_S,
    CONFIRMED,
    CONSUMERS,
    Publisher,
    RestartedServer,
    Worker,
    Writer,
    check_all,
    is_taken,
    prepare,
)
from tests.broker.socket_client import Message, SocketClient
from tests.broker.streams.world import everything_small
from tests.journal.helpers import telling

STEPS = 60
LIVES = 2


class Simulation:
    """Clients of a broker whose disk loses power after so many changes, in each of its lives."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self.broker = SimBroker()
        self.world = RestartedServer(port=0, disk_fails=self._is_off)
        self.broker.start()
        prepare(self.broker.connect())
        self.publishers = [Publisher(self.world, stream, number) for stream in CONSUMERS for number in range(2)]
        self.workers = [Worker(self.world, stream) for stream in CONSUMERS]
        self.writers = [Writer(self.world, number) for number in range(2)]
        self._connect()

    def _connect(self) -> None:
        self.clients = {job: self.broker.connect() for job in (*self.publishers, *self.workers, *self.writers)}
        for worker in self.workers:
            worker.listen(self.clients[worker])
        for job in (*self.publishers, *self.writers):
            self.clients[job].subscribe(f"{self.clients[job].inbox}.*", "1")
        for publisher in self.publishers:
            self.clients[publisher].send(publisher.again(self.clients[publisher].inbox))
        self.control = self.broker.connect()

    def live(self, changes: int | None) -> None:
        """Do one thing after the other until the power goes, after so many changes of the disk or at the end."""
        self.broker.cut.left = changes
        steps: Sequence[Callable[[], None]] = (
            self._publish, self._publish, self._take, self._take, self._compete, self._hear, self._wait, self._ask
        )  # fmt: skip
        for _ in range(STEPS):
            self.broker.executor.is_waiting = self.random.random() < 0.7
            try:
                self.random.choice(steps)()
            except (StrandlineError, OSError):
                assert self._is_off(), "something fails though the disk does not"
            if self._is_off():
                return

    def _is_off(self) -> bool:
        return self.broker.cut.left == 0

    def crash(self) -> None:
        """Lose power, and begin again."""
        self.broker.crash(self.random)
        self.world.life += 1
        self.broker.start()
        self._connect()

    # What clients do.

    def _publish(self) -> None:
        for publisher in self.publishers:
            if self.random.random() < 0.5:
                client = self.clients[publisher]
                client.send(publisher.more(self.random.randrange(1, 6), client.inbox))

    def _take(self) -> None:
        worker = self.random.choice(self.workers)
        self.clients[worker].send(worker.pull(self.clients[worker].inbox))
        if self.random.random() < 0.5:
            self._hear_worker(worker)

    def _compete(self) -> None:
        for writer in self.writers:
            self.clients[writer].send(writer.attempt(self.clients[writer].inbox))
        for writer in self.writers:
            writer.take(self.clients[writer].next())

    def _hear(self) -> None:
        for publisher in self.publishers:
            for message in self._heard(self.clients[publisher]):
                publisher.take(message)
        for worker in self.workers:
            self._hear_worker(worker)

    def _hear_worker(self, worker: Worker) -> None:
        client = self.clients[worker]
        for message in self._heard(client):
            if message.sid == CONFIRMED:
                worker.confirm(message, self.world.life)
            elif not message.status and self.random.random() < 0.9:
                client.send(worker.acknowledge(message, client.inbox, self.world.life))

    def _wait(self) -> None:
        self.broker.advance(self.random.choice([0.001, 0.3, 0.3, 1.5 * ACK_WAIT_S]))

    def _ask(self) -> None:
        """Make, change and remove other streams and consumers."""
        self.broker.executor.is_waiting = False
        name = f"OTHER{self.random.randrange(2)}"
        config = {"name": name, "subjects": [f"{name}.*"], "description": str(self.random.random())}
        consumer = {"stream_name": name, "config": {"durable_name": "D", "ack_policy": "explicit"}}
        asked = self.random.choice(
            [
                (f"STREAM.CREATE.{name}", config),
                (f"STREAM.UPDATE.{name}", config),
                (f"CONSUMER.DURABLE.CREATE.{name}.D", consumer),
                (f"CONSUMER.DELETE.{name}.D", b""),
                (f"STREAM.DELETE.{name}", b""),
                (f"STREAM.PURGE.{name}", b""),
            ]
        )
        self.control.request(f"$JS.API.{asked[0]}", asked[1])

    def _heard(self, client: SocketClient) -> list[Message]:
        heard: list[Message] = []
        try:
            while True:
                heard.append(client.next())
        except TimeoutError:
            return heard

    # The end.

    def finish(self) -> None:
        """Bring to an end what was begun, and compare."""
        self.broker.executor.is_waiting = False
        for _ in range(40):
            self._hear()
            self.broker.advance(1.1 * ACK_WAIT_S)
            for worker in self.workers:
                self.clients[worker].send(worker.pull(self.clients[worker].inbox))
            if all(is_taken(self.control, stream) for stream in CONSUMERS):
                break
        self._hear()
        assert not any(publisher.waiting for publisher in self.publishers)
        check_all(self.world, self.control)


def changes_of(seed: str) -> int:
    """Return how many changes of the disk the clients of a seed make in one life."""
    simulation = Simulation(seed)
    before = simulation.broker.cut.seen
    simulation.live(None)
    return simulation.broker.cut.seen - before


def lose_power(seed: str, cut: int) -> RestartedServer:
    """Lose power after so many changes, and again in the next life, and see what is left."""
    with telling(seed=seed, cut=cut):
        simulation = Simulation(seed)
        for life in range(LIVES):
            simulation.live(cut // (life + 1))
            simulation.crash()
        simulation.finish()
        return simulation.world


def lose_power_everywhere(seed: str, losses: int) -> None:
    """Lose power so many times, at changes of the disk spread over all that there are, and once at rest."""
    with everything_small():
        total = changes_of(seed)
        for cut in range(1, total + 2, max(1, total // losses)):
            lose_power(seed, cut)


@pytest.mark.parametrize("seed", ["a", "b", "c", "d"])
def test_what_was_acknowledged_survives_the_loss_of_power(seed: str) -> None:
    lose_power_everywhere(seed, 6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_the_same_at_hundreds_of_changes(seed: int) -> None:
    lose_power_everywhere(str(seed), 100)
