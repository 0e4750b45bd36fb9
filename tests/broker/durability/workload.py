"""Many clients of one server that dies again and again: publishers, workers and writers who compete for keys.

Invariants: a client that loses its connection connects again and goes on; a publish whose acknowledgement did not come
is sent again under the same identifier; everything that the server said is kept, with the life in which it was said.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.broker.socket_client import Ended, Message, SocketClient, header_block, pub_frame
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
WINDOW = 40
BATCH = 25
BEHIND_MAX = 1000
KEYS = ("one", "two")
ACK_WAIT_S = 1.0
STREAMS: tuple[dict[str, object], ...] = (
    {"name": "ALL", "subjects": ["all.*"]},
    {"name": "QUEUE", "subjects": ["queue.*"], "retention": "workqueue"},
    {
        "name": "KV_cas",
        "subjects": ["$KV.cas.>"],
        "max_msgs_per_subject": 3,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "deny_delete": True,
    },
)
BUCKET, HISTORY = "KV_cas", 3
"""The bucket whose keys are competed for, as clients make one, and how many values of a key it keeps."""
DELETES_EVERY = 5
CONFIRMED = "confirmed"
"""The subscription to answers to acknowledgements."""
CONSUMERS = ("ALL", "QUEUE")
"""The streams that workers take from."""


class Win(NamedTuple):
    """An update or delete of a key of the bucket that the server accepted."""

    key: str
    expected: int
    sequence: int
    payload: bytes


class Stored(NamedTuple):
    """A message as a stream has it."""

    sequence: int
    subject: str
    headers: bytes
    payload: bytes


@dataclass
class RestartedServer:
    """The address of the server, how many lives it had, and what it said in them."""

    port: int
    life: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)
    published: dict[str, dict[bytes, int]] = field(default_factory=lambda: {name: {} for name in CONSUMERS})
    """By stream, payloads that were acknowledged, and their sequence."""
    acked: dict[str, dict[int, int]] = field(default_factory=lambda: {name: {} for name in CONSUMERS})
    """By stream, sequences whose delivery was acknowledged for certain, and in which life."""
    tried: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in CONSUMERS})
    """By stream, sequences whose delivery somebody tried to acknowledge."""
    disk_fails: Callable[[], bool] = lambda: False
    wins: list[Win] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)

    def behind(self, stream: str) -> int:
        """Return how many messages workers have still to take."""
        return len(self.published[stream]) - len(self.acked[stream])

    def fail(self, what: str) -> None:
        """Note that something is as it must not be."""
        self.failures.append(f"life {self.life}: {what}")

    def refused(self, what: str) -> None:
        """Note that the server could not do something, which it may say of a disk that fails."""
        if not self.disk_fails():
            self.fail(what)

    def check(self) -> None:
        """See that nobody has noticed anything."""
        assert not self.failures, self.failures[:10]


def prepare(client: SocketClient) -> None:
    """Make the streams and consumers."""
    for config in STREAMS:
        client.api(f"STREAM.CREATE.{config['name']}", config)
    config = {
        "durable_name": "W",
        "ack_policy": "explicit",
        "ack_wait": int(ACK_WAIT_S * 1e9),
        "max_ack_pending": 2000,
    }
    for stream in CONSUMERS:
        client.api(f"CONSUMER.DURABLE.CREATE.{stream}.W", {"stream_name": stream, "config": config})


@contextmanager
def clients(world: RestartedServer, publishers: int = 2, workers: int = 2, writers: int = 3) -> Iterator[None]:
    """Let many clients work while the block runs; afterwards they bring to an end what they began."""
    jobs = [
        *(Publisher(world, stream, number) for stream in CONSUMERS for number in range(publishers)),
        *(Writer(world, number) for number in range(writers)),
    ]
    takers = [Worker(world, stream) for stream in CONSUMERS for _ in range(workers)]
    threads = [threading.Thread(target=each.run, daemon=True) for each in (*jobs, *takers)]
    for thread in threads:
        thread.start()
    try:
        yield
        world.stopping.set()
        for thread in threads[: len(jobs)]:
            thread.join(WAIT_S)
        _wait(lambda: bool(world.failures) or all(_is_worked_off(world, stream) for stream in CONSUMERS))
    finally:
        world.stopping.set()
        world.ended.set()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "a client hangs"


def _is_worked_off(world: RestartedServer, stream: str) -> bool:
    if not set(world.published[stream].values()) <= world.tried[stream]:
        return False
    with SocketClient(world.port) as client:
        return is_taken(client, stream)


def is_taken(client: SocketClient, stream: str) -> bool:
    """Tell whether nothing of a stream is left for its workers."""
    info = client.api(f"CONSUMER.INFO.{stream}.W")
    return (info["num_pending"], info["num_ack_pending"]) == (0, 0)


def _wait(condition: Callable[[], bool], within_s: float = WAIT_S) -> None:
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError("what was begun does not come to an end")
        time.sleep(0.05)


class Job:
    """What one client does, over as many connections as it takes."""

    def __init__(self, world: RestartedServer) -> None:
        self.world = world

    def run(self) -> None:
        """Work until it is over."""
        while not self.is_over():
            try:
                life = self.world.life
                with SocketClient(self.world.port) as client:
                    if life == self.world.life:
                        self.work(client, life)
            except (Ended, OSError):
                time.sleep(0.005)
            except Exception as error:
                self.world.fail(f"{type(self).__name__}: {error!r}")
                raise

    def is_over(self) -> bool:
        """Tell whether there is nothing left to do."""
        return self.world.stopping.is_set()

    def work(self, client: SocketClient, life: int) -> None:
        """Work over one connection until that ends."""
        raise NotImplementedError


class Publisher(Job):
    """Publishes with many publishes under way, each with an identifier."""

    def __init__(self, world: RestartedServer, stream: str, number: int) -> None:
        super().__init__(world)
        self._stream = stream
        self._number = number
        self._next = 0
        self.waiting: dict[int, bytes] = {}

    def is_over(self) -> bool:
        """Tell whether everything that was sent is acknowledged."""
        return self.world.stopping.is_set() and not self.waiting

    def work(self, client: SocketClient, life: int) -> None:
        """Send again what may be lost, and go on."""
        del life
        client.subscribe(f"{client.inbox}.*", "1")
        client.send(self.again(client.inbox))
        while not self.is_over():
            if not self.waiting and self.world.behind(self._stream) > BEHIND_MAX:
                time.sleep(0.005)
                continue
            if not self.world.stopping.is_set():
                client.send(self.more(WINDOW - len(self.waiting), client.inbox))
            self.take(client.next())
            while client.messages:
                self.take(client.next())

    def more(self, count: int, inbox: str) -> bytes:
        """Return the frames of new messages."""
        fresh = range(self._next, self._next + count)
        self._next = fresh.stop
        self.waiting |= {number: self._payload(number) for number in fresh}
        return b"".join(self._frame(number, inbox) for number in fresh)

    def again(self, inbox: str) -> bytes:
        """Return the frames of what was not acknowledged."""
        return b"".join(self._frame(number, inbox) for number in self.waiting)

    def take(self, message: Message) -> None:
        """Take an answer."""
        number = int(message.subject.rpartition(".")[2])
        if message.status:
            self.world.refused(f"a publish was answered by {message.status}")
            return
        match message.json():
            case {"error": error}:
                self.world.refused(f"a publish was refused: {error}")
            case {"seq": int(sequence), **rest}:
                self.world.published[self._stream][self.waiting.pop(number)] = sequence
                self.world.told["duplicate" if "duplicate" in rest else "published"] += 1
            case other:
                self.world.fail(f"a publish was answered by {other}")

    def _payload(self, number: int) -> bytes:
        return b"%d:%d:" % (self._number, number) + b"v" * (number * 37 % 300)

    def _frame(self, number: int, inbox: str) -> bytes:
        name = self._stream.lower()
        return pub_frame(
            f"{name}.{self._number}",
            self._payload(number),
            reply=f"{inbox}.{number}",
            headers=header_block(Msg_Id=f"{name}-{self._number}-{number}"),
        )


class Worker(Job):
    """Pulls, acknowledges each message and waits until the server confirms that."""

    def __init__(self, world: RestartedServer, stream: str) -> None:
        super().__init__(world)
        self._stream = stream

    def is_over(self) -> bool:
        """Tell whether everybody has ended."""
        return self.world.ended.is_set()

    def work(self, client: SocketClient, life: int) -> None:
        """Take messages, a batch at a time."""
        self.listen(client)
        while not self.is_over():
            client.send(self.pull(client.inbox))
            taken = wanted = 0
            while taken < BATCH:
                message = client.next()
                if message.sid == CONFIRMED:
                    self.confirm(message, life)
                    wanted -= 1
                elif message.status:
                    break
                else:
                    client.send(self.acknowledge(message, client.inbox, life))
                    taken += 1
                    wanted += 1
            for _ in range(wanted):
                self.confirm(client.next(), life)

    def listen(self, client: SocketClient) -> None:
        """Subscribe to what is delivered, and to confirmations."""
        client.subscribe(f"{client.inbox}.w", "1")
        client.subscribe(f"{client.inbox}.a.*", CONFIRMED)

    def pull(self, inbox: str) -> bytes:
        """Return the frame that asks for messages."""
        body = json.dumps({"batch": BATCH, "expires": 200_000_000}).encode()
        return pub_frame(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.W", body, reply=f"{inbox}.w")

    def acknowledge(self, message: Message, inbox: str, life: int) -> bytes:
        """Return the frame that acknowledges a delivery, which must not have been acknowledged in an earlier life."""
        sequence = sequence_of(message.reply)
        before = self.world.acked[self._stream].get(sequence, life)
        if before < life:
            self.world.fail(f"{self._stream} {sequence} came again, though acknowledged in life {before}")
        self.world.tried[self._stream].add(sequence)
        return pub_frame(message.reply, b"+ACK", reply=f"{inbox}.a.{sequence}")

    def confirm(self, message: Message, life: int) -> None:
        """Take the word that an acknowledgement is kept."""
        if message.status:
            self.world.refused(f"an ack was answered by {message.status}")
            return
        self.world.acked[self._stream].setdefault(int(message.subject.rpartition(".")[2]), life)
        self.world.told["acked"] += 1


class Writer(Job):
    """Updates and deletes keys of a bucket to which others write too, expecting what it knows as the last revision."""

    def __init__(self, world: RestartedServer, number: int) -> None:
        super().__init__(world)
        self._number = number
        self._tries = 0
        self._known = dict.fromkeys(KEYS, 0)

    def work(self, client: SocketClient, life: int) -> None:
        """Try one key after the other."""
        del life
        client.subscribe(f"{client.inbox}.*", "1")
        while not self.is_over():
            client.send(self.attempt(client.inbox))
            self.take(client.next())

    def attempt(self, inbox: str) -> bytes:
        """Return the frame that updates a key, or deletes it."""
        self._tries += 1
        self._key = KEYS[self._tries % len(KEYS)]
        is_delete = self._tries % DELETES_EVERY == 0
        self._payload = b"" if is_delete else b"%d:%d" % (self._number, self._tries)
        headers = update_headers(self._known[self._key], is_delete=is_delete)
        return pub_frame(key_subject(self._key), self._payload, reply=f"{inbox}.{self._tries}", headers=headers)

    def take(self, message: Message) -> None:
        """Take the answer to the last attempt."""
        if message.status:
            self.world.refused(f"a compare-and-set was answered by {message.status}")
            return
        match message.json():
            case {"error": {"err_code": 10071, "description": str(said)}}:
                self._known[self._key] = int(said.rpartition(" ")[2])
            case {"error": error}:
                self.world.refused(f"a compare-and-set was refused: {error}")
            case {"seq": int(sequence)}:
                self.world.wins.append(Win(self._key, self._known[self._key], sequence, self._payload))
                self._known[self._key] = sequence
                self.world.told["won"] += 1
            case other:
                self.world.fail(f"a compare-and-set was answered by {other}")


def key_subject(key: str) -> str:
    """Return the subject of a key of the bucket."""
    return f"$KV.cas.{key}"


def update_headers(expected: int, *, is_delete: bool) -> bytes:
    """Return the headers of an update or delete of a key, as clients of buckets send them."""
    block = header_block(Expected_Last_Subject_Sequence=expected)
    return block.replace(b"NATS/1.0\r\n", b"NATS/1.0\r\nKV-Operation: DEL\r\n") if is_delete else block


def sequence_of(reply: str) -> int:
    """Return the stream sequence that an ack subject names."""
    return int(reply.split(".")[5])


def read_all(client: SocketClient, stream: str) -> list[Stored]:
    """Return all that a stream has."""
    config = {"ack_policy": "none", "inactive_threshold": 600 * 10**9}
    made = client.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
    client.subscribe(f"{client.inbox}.all", "1")
    left = made["num_pending"]
    assert isinstance(left, int)
    pull = json.dumps({"batch": max(left, 1), "no_wait": True}).encode()
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}", pull, reply=f"{client.inbox}.all")
    found: list[Stored] = []
    while len(found) < left:
        message = client.next()
        assert not message.status, message.status
        found.append(Stored(sequence_of(message.reply), message.subject, message.headers, message.payload))
    client.send(b"UNSUB 1\r\n")
    client.api(f"CONSUMER.DELETE.{stream}.{made['name']}")
    client.messages.clear()
    return found


def check_published(world: RestartedServer, stored: list[Stored]) -> None:
    """Everything acknowledged is there under its sequence, nothing is there twice, and publishers kept their order."""
    by_payload = Counter((each.subject, each.payload) for each in stored)
    assert max(by_payload.values(), default=1) == 1, f"stored twice: {by_payload.most_common(3)}"
    found = {each.payload: each.sequence for each in stored}
    missing = {payload[:20] for payload, sequence in world.published["ALL"].items() if found.get(payload) != sequence}
    assert not missing, f"{len(missing)} acknowledged publishes are not there: {sorted(missing)[:5]}"
    for subject in {each.subject for each in stored}:
        numbers = [int(each.payload.split(b":")[1]) for each in stored if each.subject == subject]
        assert numbers == list(range(len(numbers))), f"{subject} is out of order"


def check_wins(world: RestartedServer, stored: list[Stored]) -> None:
    """Every win is there or gave way to later ones; each took the place of the one it expected: nobody won twice."""
    taken = Counter((win.key, win.expected) for win in world.wins)
    assert max(taken.values(), default=1) == 1, f"two winners: {taken.most_common(3)}"
    for key in KEYS:
        held = [each for each in stored if each.subject == key_subject(key)]
        found = {each.sequence: each.payload for each in held}
        first = held[0].sequence if len(held) == HISTORY else 0
        wins = [win for win in world.wins if win.key == key and win.sequence >= first]
        lost = [win for win in wins if found.get(win.sequence) != win.payload]
        assert not lost, f"{len(lost)} wins are not there: {lost[:3]}"
        assert len(held) <= HISTORY
        last = None if first else 0
        for each in held:
            if last is not None:
                assert each.headers == update_headers(last, is_delete=not each.payload), each
            last = each.sequence
        latest = max((win.sequence for win in world.wins if win.key == key), default=0)
        assert latest <= (last or 0), f"the last win of {key!r} is not there"


def check_queue(world: RestartedServer, client: SocketClient) -> None:
    """Everything acknowledged was taken, and is gone."""
    state = client.api("STREAM.INFO.QUEUE")["state"]
    assert isinstance(state, dict)
    assert state["messages"] == 0, state
    assert state["last_seq"] >= max(world.published["QUEUE"].values(), default=0), state


def check_all(world: RestartedServer, client: SocketClient) -> None:
    """Compare what the server has with what it said in all its lives."""
    world.check()
    check_published(world, read_all(client, "ALL"))
    check_wins(world, read_all(client, BUCKET))
    check_queue(world, client)
