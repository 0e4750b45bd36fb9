"""The broker beside the real nats-server: publish, fetch, buckets, core messages, restarts and memory.

A client that is faster than either server (`_broker_client`) runs in a process of its own and does the same to both, in
turn; every figure is the median of some rounds, and whatever the servers answered is checked before it counts.
`--quick` takes less than a minute; `--only` and `--sides` narrow it further, for work on one of them.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks import _broker_client as bench
from benchmarks._broker_client import Measured, Target
from benchmarks._broker_servers import OURS, PEER, BrokerServer
from benchmarks._harness import Better, Row, alone, compare, report, scratch, show

SIZES = (128, 1024)
WINDOWS = (1, 256, 1000)
BUCKET = "keys"
MILLION = 1_000_000
AT_MOST_HALF_MORE = 0.667
"""The ratio of what is at most 1.5 times the peer's, and better the lower it is."""
Job = Callable[[Target], Measured]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    rounds: int
    published: int
    one_by_one: int
    synced: int
    synced_peer: int
    fetched: int
    put: int
    keys: Sequence[int]
    core: int


WHOLE = Plan(3, 200_000, 10_000, 100_000, 2_000, 200_000, 200_000, (100_000, MILLION), 2_000_000)
QUICK = Plan(1, 100_000, 3_000, 50_000, 500, 100_000, 100_000, (100_000,), 1_000_000)


class Bench:
    """Two servers, or one, and the client in its process."""

    def __init__(self, plan: Plan, servers: Sequence[BrokerServer], client: Executor) -> None:
        self.plan = plan
        self.servers = servers
        self._client = client

    def rates_of(self, what: str, unit: str, count: int, job: Job) -> list[float]:
        """Return each side's median rate of a job that needs no preparation."""
        return self.rates(what, unit, lambda _: (count, job))

    def rates(self, what: str, unit: str, sides: Callable[[BrokerServer], tuple[int, Job]]) -> list[float]:
        """Return each side's median rate; `sides` prepares a server and says how many of what is done to it then."""
        figures: dict[str, list[float]] = {server.name: [] for server in self.servers}
        for _ in range(self.plan.rounds):
            for server in self.servers:
                count, job = sides(server)
                found = self._client.submit(job, server.target).result()
                figures[server.name].append(count / found.seconds)
                _tell(what, unit, server.name, count, found)
        return [statistics.median(each) for each in figures.values()]

    def row(
        self, what: str, figures: Sequence[float], unit: str, *, better: Better = "higher", goal: float | None = None
    ) -> Row:
        """Return the row of a figure of each side."""
        if len(figures) == 1:
            return alone(f"{what} ({self.servers[0].name})", figures[0], unit)
        return compare(what, figures[0], PEER, figures[1], unit, better=better, goal=goal)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, once")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts")
    parser.add_argument("--sides", nargs="+", choices=(OURS, PEER), default=[OURS, PEER], help="these servers")
    parser.add_argument("--at", type=int, metavar="PORT", help="our server runs there already, under a profiler")
    chosen = parser.parse_args()
    plan = QUICK if chosen.quick else WHOLE
    rows: list[Row] = []
    with scratch() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as client:
        for name in chosen.only:
            part, synced = PARTS[name]
            with _running(folder / name, chosen.sides, chosen.at, synced=synced) as servers:
                rows += part(Bench(plan, servers, client))
    whole = len(chosen.only) == len(PARTS) and len(chosen.sides) == 2 and not chosen.quick
    (report if whole else show)("broker", rows)


@contextmanager
def _running(folder: Path, names: Sequence[str], at: int | None, *, synced: bool) -> Iterator[list[BrokerServer]]:
    with ExitStack() as stack:
        servers = []
        for name in names:
            server = BrokerServer(name, folder / name, synced=synced, at=at if name == OURS else None)
            stack.callback(server.stop, kill=True)
            server.start()
            servers.append(server)
        yield servers


def _tell(what: str, unit: str, name: str, count: int, found: Measured) -> None:
    each = f"{found.server_s / count * 1e6:.2f} µs of the server, {found.client_s / count * 1e6:.2f} of the client"
    print(f"  {what}, {name}: {count / found.seconds:,.0f} {unit}; {each}", flush=True)


def _publish(bench_: Bench) -> Iterator[Row]:
    for size in SIZES:
        for window in WINDOWS:
            count = bench_.plan.one_by_one if window == 1 else bench_.plan.published * 256 // max(size, 256)
            yield _published(bench_, f"publish {size:,} B, window {window:,}", size, window, count, None)


def _publish_synced(bench_: Bench) -> Iterator[Row]:
    for size in SIZES:
        for window in WINDOWS:
            count = bench_.plan.synced_peer if window == 1 else bench_.plan.synced * 256 // max(size, 256)
            what = f"publish {size:,} B, window {window:,}, fsync before ack"
            yield _published(bench_, what, size, window, count, bench_.plan.synced_peer)


def _published(bench_: Bench, what: str, size: int, window: int, count: int, peer_count: int | None) -> Row:
    """Publish to a stream that is made anew each time; a server with an fsync for each message is given fewer."""

    def side(server: BrokerServer) -> tuple[int, Job]:
        number = peer_count if peer_count is not None and server.name == PEER else count
        bench.fresh_stream(server.port, "S", subjects=["s.>"])
        job = partial(bench.publish, stream="S", subject=b"s.one", count=number, size=size, window=window)
        return number, job

    goal = None if window == 1 else 1.2 if peer_count is None else 50
    return bench_.row(what, bench_.rates(what, "msgs/s", side), "msgs/s", goal=goal)


def _fetch(bench_: Bench) -> Iterator[Row]:
    for size in SIZES:
        count = bench_.plan.fetched * 256 // max(size, 256)
        for server in bench_.servers:
            bench.fresh_stream(server.port, "S", subjects=["s.>"])
            bench.publish(server.target, "S", b"s.one", count, size, 1000)
        for acks in (False, True):
            job = partial(bench.fetch, stream="S", subject=b"s.one", count=count, size=size, acks=acks)
            what = f"fetch {size:,} B, a thousand at a time, {'acks' if acks else 'no acks'}"
            figures = bench_.rates_of(what, "msgs/s", count, job)
            yield bench_.row(what, figures, "msgs/s", goal=1)


def _put(bench_: Bench) -> Iterator[Row]:
    count = bench_.plan.put

    def side(server: BrokerServer) -> tuple[int, Job]:
        bench.fresh_bucket(server.port, BUCKET)
        key = bench.key_of(BUCKET)
        return count, partial(bench.publish, stream=f"KV_{BUCKET}", subject=key, count=count, size=128, window=1000)

    what = f"put {count:,} new keys of 128 B, window 1,000"
    yield bench_.row(what, bench_.rates(what, "keys/s", side), "keys/s", goal=1)


def _keys(bench_: Bench) -> Iterator[Row]:
    """Fill a bucket, watch it, end and start the servers over it; see what memory they take."""
    yield bench_.row("memory, idle", [server.rss for server in bench_.servers], "MB", better="lower")
    for count in bench_.plan.keys:
        for server in bench_.servers:
            bench.fresh_bucket(server.port, BUCKET)
            bench.publish(server.target, f"KV_{BUCKET}", bench.key_of(BUCKET), count, 128, 1000)
        goal = AT_MOST_HALF_MORE if count == MILLION else None
        memory = [server.rss for server in bench_.servers]
        yield bench_.row(f"memory, {count:,} keys put", memory, "MB", better="lower", goal=goal)
        job = partial(bench.watch_keys, bucket=BUCKET, count=count, size=128)
        what = f"watch {count:,} keys of 128 B"
        figures = bench_.rates_of(what, "keys/s", count, job)
        yield bench_.row(what, figures, "keys/s", goal=1 if goal else None)
        if count == max(bench_.plan.keys):
            yield from _restart(bench_, count, goal)


def _restart(bench_: Bench, count: int, goal: float | None) -> Iterator[Row]:
    for kill in (False, True):
        times: dict[str, list[float]] = {server.name: [] for server in bench_.servers}
        for _ in range(bench_.plan.rounds):
            for server in bench_.servers:
                server.stop(kill=kill)
                times[server.name].append(server.start(f"KV_{BUCKET}"))
                assert bench.state(server.port, f"KV_{BUCKET}")["messages"] == count
        how = "killed" if kill else "ended in good order"
        what = f"restart with {count:,} keys, {how}, to the first answer"
        seconds = [statistics.median(each) for each in times.values()]
        yield bench_.row(what, seconds, "s", better="lower", goal=goal)
    memory = [server.rss for server in bench_.servers]
    yield bench_.row(f"memory, {count:,} keys after a restart", memory, "MB", better="lower")


def _core(bench_: Bench) -> Iterator[Row]:
    for size in (16, 128):
        count = bench_.plan.core
        what = f"core publish {size} B, no subscriber"
        job = partial(bench.core_publish, count=count, size=size)
        figures = bench_.rates_of(what, "msgs/s", count, job)
        yield bench_.row(what, figures, "msgs/s")
        what = f"core publish {size} B, one listens"
        job = partial(bench.core_pub_sub, count=count // 2, size=size)
        figures = bench_.rates_of(what, "msgs/s", count // 2, job)
        yield bench_.row(what, figures, "msgs/s", goal=0.5)


PARTS: dict[str, tuple[Callable[[Bench], Iterator[Row]], bool]] = {
    "publish": (_publish, False),
    "synced": (_publish_synced, True),
    "fetch": (_fetch, False),
    "put": (_put, False),
    "keys": (_keys, False),
    "core": (_core, False),
}


if __name__ == "__main__":
    main()
