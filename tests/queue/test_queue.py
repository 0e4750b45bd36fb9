"""The queue people use: putting, taking, answering, waiting, and the end."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from strandline.clock import ManualClock
from strandline.errors import Closed, CommitFailed, Conflict, InvalidInput, Poisoned, StaleDelivery
from strandline.groups import Delivery
from strandline.queue import GroupStatus, Job, JournalStorage, MemoryStorage, Queue, QueueConfig, QueueStorage
from strandline.sim import Fault, SimDisk
from tests.queue.helpers import SMALL, WAIT_S, in_threads, open_sim, served

THREE = QueueConfig(deliveries_max=3)

Made = tuple[Queue, ManualClock]


@pytest.fixture(params=["memory", "disk", "simulated", "served"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    clock = ManualClock()
    if request.param == "memory":
        storage: MemoryStorage | JournalStorage = MemoryStorage(THREE, clock=clock)
    elif request.param == "disk":
        storage = JournalStorage.open(tmp_path / "queue", THREE, clock=clock)
    elif request.param == "served":
        owned = JournalStorage.open(tmp_path / "queue", THREE, clock=clock)
        with served(owned, clock) as remote, Queue(remote, clock=clock) as queue:
            yield queue, clock
        return
    else:
        storage = open_sim(SimDisk(), clock)
    with Queue(storage, clock=clock) as queue:
        yield queue, clock


def values(jobs: Iterator[Job]) -> list[bytes]:
    return [job.value for job in jobs]


# Putting, taking, answering.


def test_what_is_put_is_taken_in_order_and_gone_when_it_is_acknowledged(made: Made) -> None:
    queue, clock = made
    assert queue.put(b"a") == 0
    assert queue.put(b"b", key=b"k", headers=b"h") == 1
    assert queue.put_many([b"c", b"d"], keys=[b"l", b"m"]).base_offset == 2
    seen = []
    for job in queue.take("workers"):
        seen.append((job.offset, job.value, job.key, job.headers, job.deliveries, job.group))
        job.ack()
    assert seen == [
        (0, b"a", None, None, 1, "workers"),
        (1, b"b", b"k", b"h", 1, "workers"),
        (2, b"c", b"l", None, 1, "workers"),
        (3, b"d", b"m", None, 1, "workers"),
    ]
    clock.advance(1000)
    assert values(queue.take("workers")) == []


def test_what_is_not_answered_comes_again_after_its_visibility(made: Made) -> None:
    queue, clock = made
    queue.put(b"a")
    (job,) = queue.take("workers", visibility_s=30)
    assert job.deadline_ns == clock.now_ns() + 30_000_000_000
    clock.advance(29)
    assert list(queue.take("workers")) == []
    clock.advance(1)
    (again,) = queue.take("workers")
    assert (again.offset, again.deliveries) == (0, 2)
    again.ack()
    clock.advance(1000)
    assert list(queue.take("workers")) == []


def test_a_job_that_is_given_back_comes_again_after_its_delay(made: Made) -> None:
    queue, clock = made
    queue.put_many([b"a", b"b"])
    first, second = itertools.islice(queue.take("workers"), 2)
    first.nack(delay_s=10)
    second.nack()
    assert values(queue.take("workers")) == [b"b"]
    clock.advance(10)
    assert values(queue.take("workers")) == [b"a"]


def test_a_job_can_be_kept_longer(made: Made) -> None:
    queue, clock = made
    queue.put(b"a")
    (job,) = queue.take("workers", visibility_s=10)
    clock.advance(9)
    job.extend(20)
    assert job.deadline_ns == clock.now_ns() + 20_000_000_000
    clock.advance(19)
    assert list(queue.take("workers")) == []
    clock.advance(1)
    assert values(queue.take("workers")) == [b"a"]


def test_a_taker_that_was_too_slow_learns_it_but_may_still_say_done(made: Made) -> None:
    queue, clock = made
    queue.put(b"a")
    (slow,) = queue.take("workers", visibility_s=1)
    clock.advance(2)
    (quick,) = queue.take("workers")
    with pytest.raises(StaleDelivery):
        slow.nack()
    with pytest.raises(StaleDelivery):
        slow.extend(9)
    slow.ack()
    with pytest.raises(StaleDelivery):
        quick.nack()
    quick.ack()
    assert queue.dead_letters("workers") == []


def test_a_job_that_is_never_done_becomes_a_dead_letter(made: Made) -> None:
    queue, clock = made
    queue.put(b"poison", key=b"k")
    queue.put(b"fine")
    for _ in range(3):
        for job in queue.take("workers"):
            if job.value == b"poison":
                job.nack()
                break
            job.ack()
    assert values(queue.take("workers")) == [b"fine"]
    (letter,) = queue.dead_letters("workers")
    assert letter == ("workers", 0, b"poison", b"k", None, 3, clock.now_ns())


def test_a_job_that_kills_its_takers_becomes_a_dead_letter_too(made: Made) -> None:
    queue, clock = made
    queue.put(b"poison")
    for _ in range(3):
        assert values(queue.take("workers", visibility_s=1)) == [b"poison"]
        clock.advance(2)
    assert list(queue.take("workers")) == []
    assert [letter.deliveries for letter in queue.dead_letters("workers")] == [3]


def test_every_group_gets_every_message(made: Made) -> None:
    queue, _ = made
    queue.put_many([b"a", b"b"])
    for group in ("one", "two"):
        for job in queue.take(group):
            job.ack()
    queue.put(b"c")
    assert values(queue.take("one")) == [b"c"]
    assert values(queue.take("three")) == [b"a", b"b", b"c"]


def test_jobs_of_several_groups_are_acknowledged_at_once(made: Made) -> None:
    queue, clock = made
    queue.put_many([b"a", b"b"])
    queue.ack_many([*queue.take("one"), *queue.take("two", prefetch=5)])
    queue.ack_many([])
    clock.advance(100)
    assert values(queue.take("one")) == values(queue.take("two")) == []


def test_a_job_tells_which_one_it_is(made: Made) -> None:
    queue, _ = made
    queue.put(b"secret")
    (job,) = queue.take("workers")
    assert repr(job) == "Job('workers', offset=0, deliveries=1)"


# Prefetching.


def test_prefetched_jobs_are_with_one_taker_and_the_rest_is_given_back(made: Made) -> None:
    queue, _ = made
    queue.put_many([b"%d" % number for number in range(6)])
    taker = queue.take("workers", prefetch=4)
    job = next(taker)
    assert values(queue.take("workers")) == [b"4", b"5"]
    job.ack()
    next(taker).ack()
    assert list(queue.take("workers")) == []
    taker.close()  # type: ignore[attr-defined]
    assert [(job.value, job.deliveries) for job in queue.take("workers")] == [(b"2", 2), (b"3", 2)]


def test_a_prefetched_job_that_waited_long_is_extended_before_it_is_handed_out(made: Made) -> None:
    queue, clock = made
    queue.put_many([b"a", b"b"])
    taker = queue.take("workers", visibility_s=30, prefetch=2)
    next(taker)
    clock.advance(16)
    job = next(taker)
    assert job.deadline_ns == clock.now_ns() + 30_000_000_000
    clock.advance(29)
    assert values(queue.take("workers")) == [b"a"]
    job.ack()


def test_a_prefetched_job_that_somebody_else_has_by_now_is_not_handed_out(made: Made) -> None:
    queue, clock = made
    queue.put_many([b"a", b"b", b"c"])
    taker = queue.take("workers", visibility_s=30, prefetch=2)
    assert next(taker).value == b"a"
    clock.advance(31)
    others = list(itertools.islice(queue.take("workers"), 2))
    assert [job.value for job in others] == [b"a", b"b"]
    assert next(taker).value == b"c"
    for job in others:
        job.ack()


def test_a_late_answer_between_looking_and_marking_does_not_reach_the_taker() -> None:
    class Loses(MemoryStorage):
        lost = 0

        def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
            if not self.lost:
                self.lost += 1
                self.ack(group, offsets[:1])
            return super().mark_inflight(group, offsets, deadline_ns)

    storage = Loses()
    queue = Queue(storage)
    queue.put_many([b"a", b"b", b"c"])
    assert values(queue.take("workers", prefetch=2)) == [b"b", b"c"]
    assert storage.lost == 1


def test_takers_that_mark_at_the_same_time_share_what_there_is() -> None:
    """While one waits for the disk the others look past what it is about to mark, and never meet a conflict."""
    all_marking = threading.Barrier(4)
    conflicts: list[Conflict] = []

    class Slow(MemoryStorage):
        def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
            all_marking.wait(WAIT_S)
            try:
                return super().mark_inflight(group, offsets, deadline_ns)
            except Conflict as error:
                conflicts.append(error)
                raise

    queue = Queue(Slow())
    queue.put_many([b"%d" % number for number in range(8)])
    taken = in_threads([lambda: next(queue.take("workers", prefetch=2))] * 4)
    assert sorted(job.value for job in taken) == [b"0", b"2", b"4", b"6"]
    assert not conflicts


# Waiting.


@pytest.mark.parametrize("by", ["a put", "a job given back"])
def test_a_taker_that_waits_is_woken_at_once(made: Made, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.queue.reservations.POLL_S", WAIT_S)
    queue, _ = made
    held = None
    if by != "a put":
        queue.put(b"a")
        held = next(queue.take("workers"))
    began = time.monotonic()

    def take() -> list[bytes]:
        return [next(queue.take("workers", wait_s=WAIT_S)).value]

    def wake() -> list[bytes]:
        time.sleep(0.05)
        if held is None:
            queue.put(b"a")
        else:
            held.nack()
        return []

    assert in_threads([take, wake]) == [[b"a"], []]
    assert time.monotonic() - began < WAIT_S / 2


def test_a_taker_that_waits_notices_what_expires_and_what_becomes_ready(made: Made) -> None:
    queue, clock = made
    queue.put_many([b"a", b"b"])
    expiring, put_off = itertools.islice(queue.take("workers", visibility_s=10), 2)
    put_off.nack(delay_s=20)
    has_one = threading.Event()

    def pass_time() -> list[bytes]:
        time.sleep(0.05)
        clock.advance(10)
        assert has_one.wait(WAIT_S)
        clock.advance(10)
        return []

    def take() -> list[bytes]:
        values = []
        for job in itertools.islice(queue.take("workers", wait_s=None), 2):
            values.append(job.value)
            has_one.set()
        return values

    assert in_threads([pass_time, take])[1] == [b"a", b"b"]
    assert expiring.deliveries == 1


def test_taking_ends_when_nothing_comes(made: Made) -> None:
    queue, _ = made
    began = time.monotonic()
    assert list(queue.take("workers", wait_s=0.12)) == []
    assert 0.1 < time.monotonic() - began < WAIT_S / 2


# Bad input.


@pytest.mark.parametrize(
    "named",
    [
        {"visibility_s": 0},
        {"visibility_s": -1},
        {"visibility_s": float("nan")},
        {"visibility_s": float("inf")},
        {"visibility_s": 1e12},
        {"prefetch": 0},
        {"wait_s": -1},
        {"wait_s": float("nan")},
    ],
    ids=str,
)
def test_impossible_ways_of_taking_are_refused_at_once(made: Made, named: dict[str, float]) -> None:
    queue, _ = made
    with pytest.raises(InvalidInput):
        queue.take("workers", **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e12])
def test_impossible_delays_are_refused_and_the_job_stays_with_its_taker(made: Made, seconds: float) -> None:
    queue, _ = made
    queue.put(b"a")
    (job,) = queue.take("workers")
    with pytest.raises(InvalidInput):
        job.nack(seconds)
    with pytest.raises(InvalidInput):
        job.extend(seconds)
    job.extend(5)
    job.ack()


def test_a_name_that_no_group_can_have_is_refused(made: Made) -> None:
    queue, _ = made
    with pytest.raises(InvalidInput):
        list(queue.take(""))


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidInput):
        QueueConfig(deliveries_max=0)


# Groups.


def test_groups_are_added_and_removed_and_tell_how_far_they_are(made: Made) -> None:
    queue, _ = made
    assert queue.status() == []
    queue.put_many([b"a", b"b"])
    queue.add_group("tail", at_end=True)
    queue.add_group("all")
    next(queue.take("all")).ack()
    queue.put(b"c")
    assert queue.status() == [GroupStatus("all", 1, 0, 0, 2), GroupStatus("tail", 2, 0, 0, 1)]
    queue.remove_group("all")
    assert values(queue.take("tail")) == [b"c"]
    assert [status.group for status in queue.status()] == ["tail"]
    assert values(queue.take("all")) == [b"a", b"b", b"c"]
    with pytest.raises(InvalidInput, match="no group 'nobody'"):
        queue.remove_group("nobody")
    with pytest.raises(InvalidInput):
        queue.add_group("")


def test_a_queue_in_memory_tells_how_far_its_groups_are() -> None:
    with Queue.in_memory() as queue:
        queue.put_many([b"a", b"b", b"c"])
        first, second, _ = queue.take("workers")
        first.ack()
        second.nack(delay_s=60)
        assert queue.status() == [GroupStatus("workers", 1, 1, 1, 2)]


def test_a_storage_that_does_not_manage_groups_is_told_so() -> None:
    class Bare:
        """Only what `Queue` cannot do without."""

        def __init__(self) -> None:
            whole = MemoryStorage()
            for name in (*vars(QueueStorage), "dead_letters"):
                if not name.startswith("_"):
                    setattr(self, name, getattr(whole, name))

    with Queue(cast("Any", Bare())) as queue:
        assert queue.put(b"a") == 0
        calls: list[Callable[[], object]] = [queue.status, lambda: queue.add_group("a"), lambda: queue.serve("/x")]
        for call in calls:
            with pytest.raises(InvalidInput, match="does not manage groups"):
                call()


def test_a_group_that_is_removed_under_its_taker_ends_or_begins_anew(tmp_path: Path) -> None:
    with Queue.open(tmp_path) as queue:
        queue.put(b"a")
        (job,) = queue.take("workers")
        queue.remove_group("workers")
        with pytest.raises(InvalidInput, match="no group 'workers'"):
            job.ack()
        assert [job.deliveries for job in queue.take("workers")] == [1]


# The end.


def test_a_queue_is_as_it_was_after_reopening(tmp_path: Path) -> None:
    with Queue.open(tmp_path) as queue:
        queue.put_many([b"a", b"b", b"c"])
        jobs = list(itertools.islice(queue.take("workers"), 2))
        jobs[0].ack()
        jobs[1].nack()
    with Queue.open(tmp_path) as queue:
        assert [(job.value, job.deliveries) for job in queue.take("workers")] == [(b"b", 2), (b"c", 1)]


def test_closing_ends_takers_that_wait(made: Made) -> None:
    queue, _ = made
    waiting = threading.Semaphore(0)

    def take() -> list[Job]:
        waiting.release()
        try:
            return list(queue.take("workers", wait_s=None))
        except Closed:  # it asked after the end
            return []

    def close() -> list[Job]:
        for _ in range(3):
            waiting.acquire()
        time.sleep(0.1)
        queue.close()
        return []

    assert in_threads([take, take, take, close]) == [[], [], [], []]


def test_closing_ends_takers_that_work(made: Made) -> None:
    queue, _ = made
    queue.put_many([b"%d" % number for number in range(500)])
    started = threading.Event()

    def take() -> int:
        done = 0
        try:
            for job in queue.take("workers", wait_s=None, prefetch=3):
                job.ack()
                done += 1
                if done == 5:
                    started.set()
        except Closed:  # the answer came after the end
            pass
        return done

    def close() -> int:
        assert started.wait(WAIT_S)
        queue.close()
        return 0

    assert sum(in_threads([take, take, take, close])) >= 5


def test_a_closed_queue_refuses_everything(made: Made) -> None:
    queue, _ = made
    queue.put_many([b"a", b"b"])
    taker = queue.take("workers", prefetch=2)
    job = next(taker)
    queue.close()
    queue.close()
    calls: list[Callable[[], object]] = [
        lambda: queue.put(b"x"),
        lambda: queue.take("workers"),
        lambda: queue.dead_letters("workers"),
        job.ack,
        job.nack,
        lambda: job.extend(1),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    assert list(taker) == []


def test_leaving_the_loop_of_a_queue_in_trouble_does_not_hide_the_trouble() -> None:
    """What was prefetched cannot be given back, and need not be: it comes again by itself."""
    disk, clock = SimDisk(), ManualClock()
    with Queue(open_sim(disk, clock, SMALL), clock=clock) as queue:
        queue.put_many([b"a", b"b", b"c"])
        with pytest.raises(CommitFailed):
            answer_and_fail(queue, disk)
        queue.put(b"d")
        with pytest.raises(Poisoned):
            next(queue.take("workers"))
    disk.kill()
    clock.advance(60)
    with Queue(open_sim(disk, clock, SMALL), clock=clock) as queue:
        assert set(values(queue.take("workers"))) >= {b"b", b"c", b"d"}


def answer_and_fail(queue: Queue, disk: SimDisk) -> None:
    for job in queue.take("workers", prefetch=3):
        disk.fault = Fault(frozenset({"sync"}), 1)
        job.ack()


# Asyncio.


def test_jobs_are_taken_and_answered_in_asyncio(made: Made) -> None:
    queue, clock = made

    async def main() -> list[tuple[bytes, int]]:
        assert [await queue.put_async(b"%d" % number) for number in range(3)] == [0, 1, 2]
        await queue.put_async(b"keyed", key=b"k", headers=b"h")
        seen = []
        async for job in queue.take_async("workers", prefetch=2):
            seen.append((job.value, job.deliveries))
            if job.deliveries == 1 and job.offset == 1:
                await job.nack_async()
            else:
                await job.ack_async()
        return seen

    assert sorted(asyncio.run(main())) == [(b"0", 1), (b"1", 1), (b"1", 2), (b"2", 1), (b"keyed", 1)]
    clock.advance(1000)
    assert values(queue.take("workers")) == []


def test_an_asynchronous_taker_that_waits_is_woken_and_many_wait_at_once(made: Made) -> None:
    queue, _ = made

    async def take() -> bytes:
        async for job in queue.take_async("workers", wait_s=None):
            await job.ack_async()
            return job.value
        return b""

    async def main() -> list[bytes]:
        takers = [asyncio.create_task(take()) for _ in range(40)]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(queue.put_many, [b"%d" % number for number in range(40)])
        return await asyncio.wait_for(asyncio.gather(*takers), 120)

    assert sorted(asyncio.run(main())) == sorted(b"%d" % number for number in range(40))


def test_what_a_cancelled_taker_did_not_hand_out_is_given_back(made: Made) -> None:
    queue, _ = made

    async def main() -> None:
        held = asyncio.Event()

        async def take() -> None:
            async with aclosing(queue.take_async("workers", wait_s=None, prefetch=3)) as jobs:  # type: ignore[type-var]
                async for job in jobs:
                    await job.ack_async()
                    held.set()
                    await asyncio.sleep(3600)

        await asyncio.to_thread(queue.put_many, [b"a", b"b", b"c"])
        taker = asyncio.create_task(take())
        await held.wait()

        async def wait() -> None:
            async for _ in queue.take_async("others-that-wait", wait_s=None):
                held.set()

        waiting = asyncio.create_task(wait())
        for task in (taker, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    again = list(itertools.islice(queue.take("workers", wait_s=WAIT_S), 2))
    assert sorted((job.value, job.deliveries) for job in again) == [(b"b", 2), (b"c", 2)]


def test_impossible_ways_of_taking_are_refused_in_asyncio_too(made: Made) -> None:
    queue, _ = made
    with pytest.raises(InvalidInput):
        queue.take_async("workers", visibility_s=0)
    queue.close()
    with pytest.raises(Closed):
        queue.take_async("workers")
