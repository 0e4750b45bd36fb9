"""Schedules publish when their time comes: once each time, across restarts and power cuts."""

import contextlib
from pathlib import Path
from random import Random

import pytest

from strandline.broker.api.checks import check_create
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.api.times import format_time
from strandline.broker.streams import PublishBatch, Stream
from strandline.clock import ManualClock
from strandline.errors import StrandlineError
from strandline.sim import Fault, SimDisk
from strandline.wire import format_headers
from tests.journal.model import CHANGES
from tests.waiting import PATIENCE_S

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
FOLDER = Path("/sim/S")


class ScheduledStream:
    """A stream with schedules, and a clock."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.clock = ManualClock(START)
        config = StreamConfig(name="S", subjects=("s.>",), allow_msg_schedules=True, allow_msg_ttl=True)
        self.stream = Stream.create(FOLDER, check_create(config, Neighbours()), disk=self.disk, clock=self.clock)

    def reopen(self, *, after_s: float = 0.0) -> None:
        """Open the stream anew, after a while."""
        self.clock.advance(after_s)
        self.stream = Stream.open(FOLDER, disk=self.disk, clock=self.clock)

    def publish(self, subject: str, payload: str = "x", **headers: str) -> str:
        """Publish a message; return what is wrong with it, nothing if nothing is."""
        pairs = [("Nats-" + name.replace("_", "-"), value) for name, value in headers.items() if name != "own"]
        pairs += [("Own", headers["own"])] if "own" in headers else []
        batch = PublishBatch([subject.encode()], [payload.encode()], [format_headers(pairs)] if pairs else None)
        published = self.stream.publish(batch, self.clock.now_ns())
        published.ticket.result(PATIENCE_S)
        answer = published.answers.get(0, b"")
        return answer.decode() if b"error" in answer else ""

    def wait(self, seconds: float) -> None:
        """Let time pass, doing what is due."""
        end_ns = self.clock.now_ns() + round(seconds * SECOND)
        while (due_ns := self.stream.next_expiry_ns) is not None and due_ns <= end_ns:
            self.clock.advance(max(0, due_ns - self.clock.now_ns()) / SECOND)
            self.stream.expire(self.clock.now_ns()).ticket.result(PATIENCE_S)
        self.clock.advance(max(0, end_ns - self.clock.now_ns()) / SECOND)

    def found(self, subject: str) -> list[str]:
        """Return the payloads on a subject."""
        read = self.stream.read(self.stream.next_sequences(self.stream.filter((subject,)), 0, 100))
        return [payload.decode() for payload in read.payloads]


def _at(seconds: float) -> str:
    return f"@at {format_time(START + round(seconds * SECOND))}"


def test_a_message_is_published_at_its_time_and_the_schedule_goes() -> None:
    world = ScheduledStream()
    world.publish("s.plan", "hello", Schedule=_at(5), Schedule_Target="s.out", own="1", Msg_Id="m")
    world.wait(4.9)
    assert world.found("s.out") == []
    world.wait(0.2)
    assert world.found("s.out") == ["hello"]
    assert world.found("s.plan") == []
    message = world.stream.last("s.out")
    assert message is not None
    assert message.headers == b"NATS/1.0\r\nOwn: 1\r\nNats-Scheduler: s.plan\r\nNats-Schedule-Next: purge\r\n\r\n"
    world.wait(100)
    assert world.found("s.out") == ["hello"]


def test_messages_are_published_again_and_again() -> None:
    world = ScheduledStream()
    world.publish("s.plan", "tick", Schedule="@every 2s", Schedule_Target="s.out", Schedule_TTL="5s")
    world.wait(8.5)
    assert world.found("s.out") == ["tick"] * 3  # of four, one went by its time to live
    assert world.found("s.plan") == ["tick"]


def test_a_later_schedule_on_the_same_subject_takes_the_place_of_an_earlier_one() -> None:
    world = ScheduledStream()
    world.publish("s.plan", "one", Schedule=_at(5), Schedule_Target="s.out")
    world.publish("s.plan", "two", Schedule=_at(8), Schedule_Target="s.out")
    assert world.found("s.plan") == ["two"]
    world.wait(10)
    assert world.found("s.out") == ["two"]


def test_a_schedule_that_was_deleted_publishes_nothing() -> None:
    world = ScheduledStream()
    world.publish("s.plan", Schedule=_at(5), Schedule_Target="s.out")
    world.stream.delete(1)
    world.wait(10)
    assert world.found("s.out") == []
    assert world.stream.next_expiry_ns is None


def test_a_schedule_can_copy_the_last_message_of_a_subject() -> None:
    world = ScheduledStream()
    world.publish("s.plan", "own", Schedule="@every 1s", Schedule_Target="s.out", Schedule_Source="s.in")
    world.wait(1.5)
    assert world.found("s.out") == []
    world.publish("s.in", "first")
    world.wait(1)
    world.publish("s.in", "second")
    world.wait(1)
    assert world.found("s.out") == ["first", "second"]


def test_what_was_due_while_the_stream_was_closed_is_published_once() -> None:
    world = ScheduledStream()
    world.publish("s.once", "once", Schedule=_at(5), Schedule_Target="s.out")
    world.publish("s.often", "often", Schedule="@every 2s", Schedule_Target="s.out")
    world.stream.close()
    world.reopen(after_s=100)
    world.wait(0.1)
    assert sorted(world.found("s.out")) == ["often", "once"]
    world.wait(2)
    assert sorted(world.found("s.out")) == ["often", "often", "once"]
    world.stream.close()
    world.reopen()
    assert sorted(world.found("s.out")) == ["often", "often", "once"]
    assert world.found("s.once") == []


def test_the_power_goes_at_every_change_of_the_disk_and_nothing_comes_twice() -> None:
    def run(world: ScheduledStream) -> None:
        world.publish("s.plan", "a", Schedule=_at(3), Schedule_Target="s.out")
        world.publish("s.more", "b", Schedule=_at(4), Schedule_Target="s.out")
        world.wait(5)

    world = ScheduledStream()
    before = world.disk.operations
    run(world)
    changes = world.disk.operations - before
    assert changes > 5
    for count in range(1, changes + 1):
        world = ScheduledStream()
        world.disk.fault = Fault(CHANGES, count, sticky=True)
        with contextlib.suppress(StrandlineError, OSError):
            run(world)
        world.disk.crash(Random(count))
        kept = {"s.plan": "a", "s.more": "b"}
        world.reopen()
        known = world.found("s.out")
        planned = [payload for subject, payload in kept.items() if world.found(subject) or payload in known]
        world.wait(20)
        assert sorted(world.found("s.out")) == sorted(planned), count
        assert world.found("s.plan") == world.found("s.more") == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Schedule": "nope", "Schedule_Target": "s.out"}, 10189),
        ({"Schedule": "@every 1s"}, 10190),
        ({"Schedule": "@every 1s", "Schedule_Target": "s.plan"}, 10190),
        ({"Schedule": "@every 1s", "Schedule_Target": "s.*"}, 10190),
        ({"Schedule": "@every 1s", "Schedule_Target": "other"}, 10190),
        ({"Schedule": "@every 1s", "Schedule_Target": "s.out", "Schedule_TTL": "x"}, 10191),
        ({"Schedule": "@every 1s", "Schedule_Target": "s.out", "Rollup": "all"}, 10192),
        ({"Schedule": "@every 1s", "Schedule_Target": "s.out", "Schedule_Rollup": "x"}, 10192),
        ({"Schedule": "@every 1s", "Schedule_Target": "s.out", "Schedule_Source": "s.*"}, 10203),
        ({"Schedule": "@every 1s", "Schedule_Target": "s.out", "Schedule_Source": "s.out"}, 10203),
        ({"Schedule": "@every 1s", "Schedule_Target": "s.out", "Schedule_Time_Zone": "Nope"}, 10223),
        ({"Scheduler": "s.other"}, 10212),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(headers: dict[str, str], code: int) -> None:
    world = ScheduledStream()
    assert f'"err_code":{code},' in world.publish("s.plan", **headers)
    assert world.stream.last_seq == 0
