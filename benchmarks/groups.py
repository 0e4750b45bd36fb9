"""Groups beside the plainest Python that could do it, and beside SQLite: cost as state grows, memory, commits.

In memory the peer is the floor: a set for acknowledgements; a dict, a heap of tuples and a list for deliveries, without
checks, counts that survive, or stale entries to recognise. On disk the peer is a SQLite table in WAL mode with
synchronous=FULL, which syncs before it returns as a group does. Every result is checked before its figure counts.
"""

import gc
import heapq
import random
import sqlite3
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

from benchmarks._harness import Row, alone, compare, medians, report, scratch
from strandline.files import OsDisk
from strandline.groups import Group, GroupConfig, GroupState

ROUNDS = 5
SIZES = [1_000, 10_000, 100_000, 1_000_000]
GROWTH_MAX = 3.0
SEED = 7
NOW = 1_700_000_000_000_000_000
LATER = NOW + 10**12


def shuffled(count: int) -> list[int]:
    """Return the offsets below `count`, out of order."""
    offsets = list(range(count))
    random.Random(SEED).shuffle(offsets)
    return offsets


def nanoseconds_each(count: int, work: Callable[[], object]) -> float:
    """Return the processor time of each of `count` operations, without the collector's pauses.

    Processor time, as a neighbour on the machine is nobody's cost here.
    """
    gc.collect()
    gc.disable()
    begin = time.thread_time()
    work()
    seconds = time.thread_time() - begin
    gc.enable()
    return seconds / count * 1e9


# In memory


def ack_ours(count: int) -> float:
    """Acknowledge out of order, from nothing until the frontier has passed everything."""
    state, offsets = GroupState(), shuffled(count)

    def work() -> None:
        for offset in offsets:
            state.ack(offset)

    cost = nanoseconds_each(count, work)
    assert state.acked_until == count
    assert state.acked_ranges() == []
    return cost


def ack_floor(count: int) -> float:
    """The same with a set and a frontier."""
    known: set[int] = set()
    offsets = shuffled(count)
    frontier = 0

    def work() -> None:
        nonlocal frontier
        for offset in offsets:
            known.add(offset)
            while frontier in known:
                known.remove(frontier)
                frontier += 1

    cost = nanoseconds_each(count, work)
    assert frontier == count
    return cost


def deadlines(count: int) -> list[int]:
    """Return deadlines as consumers of different patience set them: in no order."""
    rng = random.Random(SEED)
    return [NOW + rng.randrange(10**10) for _ in range(count)]


def mark_ours(count: int) -> float:
    """Mark offsets with deadlines in no order."""
    state, times = GroupState(), deadlines(count)

    def work() -> None:
        for offset, deadline_ns in enumerate(times):
            state.mark_inflight(offset, deadline_ns)

    cost = nanoseconds_each(count, work)
    assert state.inflight_count == count
    assert state.next_expiry() == min(times)
    return cost


def mark_floor(count: int) -> float:
    """The same with a dict and a heap of tuples."""
    inflight: dict[int, tuple[int, int, int]] = {}
    heap: list[tuple[int, int, int]] = []
    times = deadlines(count)

    def work() -> None:
        for offset, deadline_ns in enumerate(times):
            entry = (deadline_ns, offset, 1)
            inflight[offset] = entry
            heapq.heappush(heap, entry)

    cost = nanoseconds_each(count, work)
    assert heap[0][0] == min(times)
    return cost


def pop_ours(count: int) -> float:
    """Let everything expire, a few at a time."""
    state, times = GroupState(), deadlines(count)
    for offset, deadline_ns in enumerate(times):
        state.mark_inflight(offset, deadline_ns)
    found = 0

    def work() -> None:
        nonlocal found
        for now_ns in moments(count):
            found += len(state.pop_expired(now_ns))

    cost = nanoseconds_each(count, work)
    assert found == state.waiting_count == count
    return cost


def pop_floor(count: int) -> float:
    """The same with a dict and a heap of tuples; what expired goes to a list."""
    entries = [(deadline_ns, offset, 1) for offset, deadline_ns in enumerate(deadlines(count))]
    inflight = {entry[1]: entry for entry in entries}
    heap: list[tuple[int, int, int]] = []
    for entry in entries:
        heapq.heappush(heap, entry)
    expired: list[tuple[int, int, int]] = []

    def work() -> None:
        for now_ns in moments(count):
            while heap and heap[0][0] <= now_ns:
                entry = heapq.heappop(heap)
                del inflight[entry[1]]
                expired.append(entry)

    cost = nanoseconds_each(count, work)
    assert len(expired) == count
    return cost


def moments(count: int) -> range:
    """Return times between which about sixteen deadlines pass."""
    step = 10**10 * 16 // count
    return range(NOW, NOW + 10**10 + step, step)


def growth_rows(name: str, peer: str, ours: Callable[[int], float], floor: Callable[[int], float]) -> Iterator[Row]:
    """Yield the cost at each size, and how much it grows from the first to the last."""
    costs = []
    for size in SIZES:
        rounds = 3 if size == SIZES[-1] else 11
        mine, theirs = medians(rounds, [lambda size=size: ours(size), lambda size=size: floor(size)])  # type: ignore[misc]
        costs.append((mine, theirs))
        yield compare(f"{name}, {size:,}", mine, peer, theirs, "ns/op", better="lower")
    (first, peer_first), (last, peer_last) = costs[0], costs[-1]
    grown = last / first
    peer_grown = peer_last / peer_first
    yield Row(
        f"{name}, growth 10^3 to 10^6 (goal: at most)",
        grown,
        peer,
        peer_grown,
        "x",
        None,
        GROWTH_MAX,
        grown <= GROWTH_MAX,
    )


# Memory


def bytes_each(count: int, build: Callable[[], object]) -> float:
    """Return how much memory each of `count` entries of what is built takes; the offsets themselves are counted."""
    gc.collect()
    tracemalloc.start()
    built = build()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert built is not None
    return size / count


def acked(offsets: Iterator[int]) -> GroupState:
    """Return a state in which offsets are acknowledged."""
    state = GroupState()
    for offset in offsets:
        state.ack(offset)
    return state


def scattered(count: int, limit: int) -> Iterator[int]:
    """Yield offsets in [1, limit), made one at a time so that only what is kept is counted."""
    rng = random.Random(SEED)
    for _ in range(count):
        yield rng.randrange(1, limit)


def inflight_floor(count: int) -> object:
    """Return a dict and a heap of tuples."""
    rng = random.Random(SEED)
    heap: list[tuple[int, int, int]] = []
    inflight: dict[int, tuple[int, int, int]] = {}
    for offset in range(count):
        entry = (NOW + rng.randrange(10**10), offset, 1)
        inflight[offset] = entry
        heapq.heappush(heap, entry)
    return inflight, heap


def inflight_ours(count: int) -> GroupState:
    """Return a state with offsets in flight."""
    rng = random.Random(SEED)
    state = GroupState()
    for offset in range(count):
        state.mark_inflight(offset, NOW + rng.randrange(10**10))
    assert state.inflight_count == count
    return state


def memory_rows() -> Iterator[Row]:
    """Yield the memory of a million entries of each kind."""
    count = SIZES[-1]
    for name, limit in (("half of 2 million", 2 * count), ("far apart", 2**40)):
        ours = bytes_each(count, lambda limit=limit: acked(scattered(count, limit)))  # type: ignore[misc]
        floor = bytes_each(count, lambda limit=limit: set(scattered(count, limit)))  # type: ignore[misc]
        yield compare(f"memory per ack, {count:,}, {name}", ours, "set", floor, "B", better="lower")
    ours = bytes_each(count, lambda: inflight_ours(count))
    floor = bytes_each(count, lambda: inflight_floor(count))
    yield compare(f"memory per entry in flight, {count:,}", ours, "dict + heap", floor, "B", better="lower")


# On disk


def batches_of(size: int, calls: int) -> list[list[int]]:
    """Return offsets out of order, in batches."""
    offsets = shuffled(size * calls)
    return [offsets[at : at + size] for at in range(0, len(offsets), size)]


def spread(batches: Sequence[list[int]], callers: int, call: Callable[[list[int]], object]) -> float:
    """Return the seconds that it takes to call for every batch, shared among threads."""
    if callers == 1:
        begin = time.perf_counter()
        for batch in batches:
            call(batch)
        return time.perf_counter() - begin

    def work(mine: Sequence[list[int]]) -> None:
        for batch in mine:
            call(batch)

    threads = [threading.Thread(target=work, args=(batches[n::callers],)) for n in range(callers)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def durable_ours(batches: list[list[int]], callers: int) -> float:
    """Return durable acknowledgements per second, after opening the group again and looking."""
    total = sum(map(len, batches))
    with scratch() as folder:
        with Group.open(OsDisk(), folder, "workers") as group:
            seconds = spread(batches, callers, group.ack_many)
            assert group.durable_acked_until == total
        with Group.open(OsDisk(), folder, "workers") as group:
            assert group.acked_until == total
    return total / seconds


def durable_sqlite(batches: list[list[int]], callers: int) -> float:
    """Return the same for rows of a table."""
    total = sum(map(len, batches))
    with scratch() as folder:
        database = sqlite3.connect(folder / "acks.db", isolation_level=None, check_same_thread=False)
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = full")
        database.execute("create table acks (offset integer primary key)")
        lock = threading.Lock()

        def ack(batch: list[int]) -> None:
            with lock:
                database.execute("begin immediate")
                database.executemany("insert or ignore into acks values (?)", ((offset,) for offset in batch))
                database.execute("commit")

        seconds = spread(batches, callers, ack)
        assert database.execute("select count(*), max(offset) from acks").fetchone() == (total, total - 1)
        database.close()
    return total / seconds


def durable_rows() -> Iterator[Row]:
    """Yield the rate of durable acknowledgements, by batch and by callers."""
    for size, calls, callers in ((1, 400, 1), (100, 200, 1), (1000, 60, 1), (1, 1600, 8)):
        batches = batches_of(size, calls)
        ours, theirs = medians(
            ROUNDS,
            [
                lambda b=batches, n=callers: durable_ours(b, n),  # type: ignore[misc]
                lambda b=batches, n=callers: durable_sqlite(b, n),  # type: ignore[misc]
            ],
        )
        name = f"durable ack, batch {size:,}, {callers} caller{'s' * (callers > 1)}"
        yield compare(name, ours, "SQLite WAL, full", theirs, "acks/s", goal=1.0)


def large_group_rows() -> Iterator[Row]:
    """Yield what a group with a million in flight and half a million scattered acks costs to open and to compact."""
    count = SIZES[-1]
    with scratch() as folder:
        with Group.open(OsDisk(), folder, "large", config=GroupConfig(compact_age_s=None)) as group:
            group.take(count, LATER, count)
            group.ack_many(range(count + 1, 2 * count, 2))
            begin = time.perf_counter()
            group.compact()
            compacting = time.perf_counter() - begin
            waits = acks_during(group, group.compact)
        begin = time.perf_counter()
        with Group.open(OsDisk(), folder, "large") as group:
            opening = time.perf_counter() - begin
            assert len(group.capture().inflight) == count
            assert group.capture().acks.count_above() == count // 2 + len(waits)
    yield alone("open, 10^6 in flight and 5 x 10^5 acked ranges", opening, "s", better="lower")
    yield alone("compact the same", compacting, "s", better="lower")
    yield alone("longest wait of an ack while it is compacted", max(waits) * 1e3, "ms", better="lower")


def acks_during(group: Group, work: Callable[[], None]) -> list[float]:
    """Return how long each durable acknowledgement took while something else was done."""
    thread = threading.Thread(target=work)
    waits = []
    offset = 10**9
    thread.start()
    while thread.is_alive():
        begin = time.perf_counter()
        group.ack(offset)
        waits.append(time.perf_counter() - begin)
        offset += 2
    return waits


def main() -> None:
    """Measure, check and print."""
    rows = [
        *growth_rows("ack out of order", "set + frontier", ack_ours, ack_floor),
        *growth_rows("mark_inflight", "dict + heap", mark_ours, mark_floor),
        *growth_rows("pop_expired", "dict + heap", pop_ours, pop_floor),
        *memory_rows(),
        *durable_rows(),
        *large_group_rows(),
    ]
    report("groups", rows)


if __name__ == "__main__":
    main()
