"""What `strandline ui --demo` shows: every part, embedded in this process, in a folder that goes with it.

A small corpus is scanned and then changes, so that scans repeat; a broker takes messages that consumers fall behind
with; a fold follows a bucket; a journal grows and a queue has dead letters; a database has a leader and a follower.

Invariants: nothing leaves the folder; every secret in it was made here and never issued; all of it ends with the block.
"""

import itertools
import json
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from strandline.cli.demo_corpus import plant
from strandline.detect import expand, load_builtin
from strandline.errors import StrandlineError
from strandline.extras import needs
from strandline.fold.followed_fold import follow
from strandline.journal import Journal, JournalConfig
from strandline.nats import JetStreamApi, NatsSettings
from strandline.nats.socket import NatsSocket
from strandline.objects import open_objects
from strandline.queue import Queue, QueueConfig
from strandline.replica import Node
from strandline.replica.roles import Role
from strandline.scan import ScanRequest
from strandline.scan import scan as run_scan
from strandline.scan.sources import FileSource, GitSource, JournalSource, Source, TableSource
from strandline.scan.state import State, open_state
from strandline.web import Parts
from strandline.web.parts.folds import FoldPart
from strandline.web.parts.journals import JournalPart
from strandline.web.parts.replicas import ReplicaPart
from strandline.web.parts.scans import ScanPart
from strandline.web.parts.streams import ServerPart

with needs("sqlite"):
    import apsw

MODULES = 600
SCAN_EVERY_S = 12.0
STEP_S = 0.5
START_S = 60.0
CAUGHT_UP = 0.06
_RULES = ("github-pat", "stripe-secret-key", "npm-token", "slack-bot-token")


@contextmanager
def demo_parts(*, step_s: float = STEP_S) -> Iterator[Parts]:
    """Make every part in a temporary folder, and keep it moving for the block."""
    from strandline.broker.embedded_server import running  # noqa: PLC0415 - slow to import

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-ui-demo-")))
        state = stack.enter_context(open_state(str(folder / "state"), create=True))
        planted = plant(folder / "corpus", modules=MODULES)
        git: list[Source] = [GitSource.at(planted.git)] if planted.git is not None else []
        table = TableSource.at(f"parquet:{planted.table}", key="id")
        sources = (FileSource.at(planted.files), *git, table, JournalSource.at(planted.journal))
        _scan(state, sources)
        url = stack.enter_context(running(store_dir=folder / "broker"))
        socket = stack.enter_context(NatsSocket.connect(NatsSettings(url)))
        api = JetStreamApi(socket, NatsSettings(url).api_prefix)
        _make_streams(api)
        fold = folder / "prices.fold"
        stack.enter_context(follow(f"{url}/prices", fold))
        journal = stack.enter_context(Journal.open(folder / "events", JournalConfig(segment_bytes_max=256 * 1024)))
        queue = stack.enter_context(Queue.open(folder / "mail", QueueConfig(deliveries_max=2)))
        write = stack.enter_context(_replicated(folder))
        ending = threading.Event()
        steps = [_Publisher(socket, api), _journal_step(journal), _queue_step(queue), write]
        threads = [threading.Thread(target=_repeat, args=(step, ending, step_s), daemon=True) for step in steps]
        rescan = _rescan(state, sources, planted.files)
        threads.append(threading.Thread(target=_repeat, args=(rescan, ending, SCAN_EVERY_S), daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield Parts(
                scans=ScanPart(state),
                servers=[ServerPart(NatsSettings(url))],
                journals=[JournalPart(folder / "events"), JournalPart(folder / "mail")],
                folds=[FoldPart(fold, f"{url}/prices")],
                replicas=[ReplicaPart(f"file://{folder}/replica")],
            )
        finally:
            ending.set()
            for thread in threads:
                thread.join()


def _repeat(step: Callable[[], None], ending: threading.Event, every_s: float) -> None:
    while not ending.wait(every_s):
        try:
            step()
        except StrandlineError:  # noqa: PERF203, RUF100 - what a page shows as trouble, and the next step mends
            continue


def _scan(state: State, sources: tuple[Source, ...]) -> None:
    request = ScanRequest(
        sources=sources, rules=load_builtin(), tenant=state.tenant, key=state.key, address=state.address
    )
    run_scan(request)


def _rescan(state: State, sources: tuple[Source, ...], files: Path) -> Callable[[], None]:
    """Return a step that adds a file with a fake secret, and scans again."""
    numbers = itertools.count(1)
    rules = load_builtin().by_id

    def step() -> None:
        number = next(numbers)
        line = expand(rules[_RULES[number % len(_RULES)]].examples[0], f"ui-demo/{number}")
        (files / "config").mkdir(exist_ok=True)
        (files / "config" / f"service{number:03}.env").write_text(f"# added while you look\n{line}\n")
        _scan(state, sources)

    return step


def _make_streams(api: JetStreamApi) -> None:
    def make(name: str, **config: Any) -> None:  # noqa: ANN401 - JSON
        api.call(f"STREAM.CREATE.{name}", {"name": name, "storage": "file", **config}, name)

    make("ORDERS", subjects=["orders.>"])
    make("AUDIT", subjects=["audit.>"], max_msgs=5_000)
    bucket = {"max_msgs_per_subject": 5, "allow_rollup_hdrs": True, "deny_delete": True, "discard": "new"}
    make("KV_prices", subjects=["$KV.prices.>"], allow_direct=True, **bucket)
    for stream, name in (("ORDERS", "shipping"), ("ORDERS", "billing"), ("AUDIT", "all")):
        _make_consumer(api, stream, name)


def _make_consumer(api: JetStreamApi, stream: str, name: str, deliver_policy: str = "all") -> None:
    config = {"durable_name": name, "ack_policy": "explicit", "deliver_policy": deliver_policy}
    api.call(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}, stream)


class _Publisher:
    """Publishes messages and values; one consumer falls behind and catches up."""

    def __init__(self, socket: NatsSocket, api: JetStreamApi) -> None:
        self._socket = socket
        self._api = api
        self._chance = random.Random(1)  # noqa: S311 - a demonstration that repeats
        self._numbers = itertools.count(1)

    def __call__(self) -> None:
        for number in itertools.islice(self._numbers, self._chance.randint(4, 24)):
            order = {"order": number, "total": round(self._chance.uniform(5, 500), 2)}
            self._socket.request(f"orders.{self._chance.choice(('eu', 'us', 'apac'))}", json.dumps(order).encode())
            price = f"{self._chance.uniform(1, 99):.2f}".encode()
            self._socket.request(f"$KV.prices.item{number % 40}", price)
            self._socket.request("audit.login", b'{"user": 7}')
        if self._chance.random() < CAUGHT_UP:  # the consumer has caught up: it starts again at the end
            self._api.delete_consumer("ORDERS", "shipping")
            _make_consumer(self._api, "ORDERS", "shipping", deliver_policy="new")


def _journal_step(journal: Journal) -> Callable[[], None]:
    chance = random.Random(2)  # noqa: S311 - a demonstration that repeats

    def step() -> None:
        users = [chance.randrange(100) for _ in range(chance.randint(50, 900))]
        journal.append([b'{"event": "login", "user": %d}' % user for user in users])

    return step


def _queue_step(queue: Queue) -> Callable[[], None]:
    chance = random.Random(3)  # noqa: S311 - a demonstration that repeats
    queue.add_group("senders")

    def step() -> None:
        queue.put_many([b"mail to user %d" % chance.randrange(500) for _ in range(chance.randint(1, 6))])
        for job in itertools.islice(queue.take("senders", wait_s=0), 5):
            if job.offset % 9 == 0:
                job.nack()
            else:
                job.ack()

    return step


@contextmanager
def _replicated(folder: Path) -> Iterator[Callable[[], None]]:
    """Replicate a database by a leader and a follower; yield a step that commits to it."""
    store = open_objects(f"file://{folder}/replica", conditional=True)
    path = folder / "shop.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, body BLOB)")
    connection.set_busy_timeout(10_000)
    try:
        with Node(path, store, "amber", address="http://10.0.0.1:8080") as leader:
            leader.wait_for_role(Role.LEADER, START_S)
            with Node(folder / "follower.db", store, "basalt", address="http://10.0.0.2:8080"):

                def step() -> None:
                    try:
                        connection.execute("INSERT INTO orders (body) VALUES (randomblob(200))")
                    except apsw.BusyError:
                        return  # the node holds the database: the next step commits

                yield step
    finally:
        connection.close()
        store.close()
