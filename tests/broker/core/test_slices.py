"""A client's frames take effect in slices: whatever it sends, another one waits for no more than one of them.

Time is counters, not measured: each look at the clock finds that a millisecond has gone by.
"""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from strandline.broker.core import session as sessions
from strandline.broker.core.session import CONTROLS_PER_LOOK, DELIVERIES_PER_RUN, SLICE_S, SLOW_PER_RUN
from tests.broker.core.world import Basket, Client, InMemoryServer

LOOKS_PER_SLICE = int(SLICE_S / 1e-3) + 1
PER_SLICE = (LOOKS_PER_SLICE + 1) * CONTROLS_PER_LOOK
"""Control frames that take effect at most before another client has its turn."""


@pytest.fixture(autouse=True)
def milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a millisecond go by at each look."""
    ticks = count()
    monkeypatch.setattr(sessions, "thread_time", lambda: next(ticks) * 1e-3)


def _sliced(world: InMemoryServer) -> tuple[Client, list[Callable[[], None]]]:
    """Return a client whose frames wait for their turn, and those turns."""
    client = world.client()
    turns: list[Callable[[], None]] = []
    client.session.on_deferred = lambda: turns.append(client.session.resume)
    return client, turns


def _slices(client: Client, turns: list[Callable[[], None]], data: bytes) -> Iterator[bytes]:
    """Feed data; return what comes out slice by slice."""
    client.session.feed(data)
    yield client.heard()
    while turns:
        turns.pop()()
        yield client.heard()


FLOODS = {
    "pings": (b"PING\r\n" * 5000, b"PONG\r\n", 5000),
    "lines that are slow to read": (b"ping \t\r\n" * 5000, b"PONG\r\n", 5000),
    "subscriptions": (b"".join(b"SUB s.%d %d\r\nPING\r\n" % (n, n) for n in range(2500)), b"PONG\r\n", 2500),
    "subscriptions that end": (b"SUB a 1\r\nUNSUB 1\r\nPING\r\n" * 1500, b"PONG\r\n", 1500),
    "messages between pings": (b"PUB a 0\r\n\r\nPING\r\n" * 2500, b"PONG\r\n", 2500),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_takes_effect_in_slices_in_its_order_and_as_a_whole(kind: str) -> None:
    data, answer, total = FLOODS[kind]
    client, turns = _sliced(InMemoryServer())
    slices = list(_slices(client, turns, data))
    answers = [heard.count(answer) for heard in slices]
    assert sum(answers) == total
    assert max(answers) <= PER_SLICE
    assert client.session.closing is None


def test_messages_that_thousands_hear_go_out_in_runs() -> None:
    world = InMemoryServer()
    client, turns = _sliced(world)
    for _ in _slices(client, turns, b"".join(b"SUB %b %d\r\n" % ((b"*.*", b"a.>")[n % 2], n) for n in range(4096))):
        pass
    slices = list(_slices(client, turns, b"".join(b"PUB a.b 3\r\n%03d\r\n" % n for n in range(100))))
    delivered = [heard.count(b"MSG ") for heard in slices]
    assert sum(delivered) == 100 * 4096
    assert max(delivered) <= (LOOKS_PER_SLICE + 1) * DELIVERIES_PER_RUN
    heard = b"".join(slices)
    own = [line for line in heard.replace(b" 3\r\n", b" ").split(b"\r\n") if line.startswith(b"MSG a.b 17 ")]
    assert own == [b"MSG a.b 17 %03d" % n for n in range(100)]


@pytest.mark.parametrize("kind", ["traced", "asked"])
def test_messages_that_take_long_by_themselves_go_in_few_at_a_time(kind: str) -> None:
    block = b"NATS/1.0\r\nNats-Trace-Dest: t\r\n\r\n"
    traced = b"HPUB a %d %d\r\n%b\r\n" % (len(block), len(block), block)
    world, basket = InMemoryServer(), Basket()
    world.router.subscribe(b"$SYS.REQ.USER.INFO" if kind == "asked" else b"a", basket)
    client, turns = _sliced(world)
    taken: list[int] = []
    for _ in _slices(client, turns, {"traced": traced, "asked": b"PUB $SYS.REQ.USER.INFO 0\r\n\r\n"}[kind] * 500):
        taken.append(len(basket.payloads) - sum(taken))
    assert sum(taken) == 500
    assert max(taken) <= (LOOKS_PER_SLICE + 1) * SLOW_PER_RUN


def test_a_crowd_that_is_gone_slows_nobody_down() -> None:
    world = InMemoryServer()
    by_client, turns = _sliced(world)
    for _ in _slices(by_client, turns, b"".join(b"SUB wide %d\r\n" % n for n in range(DELIVERIES_PER_RUN))):
        pass
    client, turns = _sliced(world)
    client.session.feed(b"PUB wide 0\r\n\r\n")
    by_client.session.close()
    slices = list(_slices(client, turns, b"SUB a 1\r\n" + b"PUB a 0\r\n\r\n" * 2000))
    assert sum(heard.count(b"MSG a") for heard in slices) == 2000
    assert len(slices) < 20, "messages go together again"


def test_what_comes_meanwhile_waits_behind_what_was_put_aside() -> None:
    client, turns = _sliced(InMemoryServer())
    client.session.feed(b"SUB a 1\r\n" + b"PING\r\n" * 1000 + b"PUB a 5\r\nfirst\r\n")
    client.session.feed(b"PUB a 6\r\nsecond\r\n")
    heard = client.heard()
    assert b"first" not in heard
    while turns:
        turns.pop()()
        heard += client.heard()
    assert heard.index(b"first") < heard.index(b"second")


def test_a_violation_behind_what_was_put_aside_ends_the_connection_when_its_turn_comes() -> None:
    client, turns = _sliced(InMemoryServer())
    heard = b"".join(_slices(client, turns, b"PING\r\n" * 1000 + b"NONSENSE\r\n"))
    assert heard.count(b"PONG") == 1000
    assert b"Unknown Protocol" in heard
    assert client.session.closing is not None


def test_a_client_that_leaves_before_its_turn_leaves_nothing_behind() -> None:
    client, turns = _sliced(InMemoryServer())
    client.session.feed(b"PING\r\n" * 1000)
    client.session.close()
    client.heard()
    turns.pop()()
    assert client.session.out == []
