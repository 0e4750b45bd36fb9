"""Sequences of changes that once went wrong, or that a broken guard would get wrong: found by search, and shortened."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.broker.streams.helpers import SECOND, make
from tests.broker.streams.world import StreamModel, everything_small, headers

SMALL, LARGE = b"v" * 60, b"v" * 200
SUB, ALL = headers(Rollup="sub"), headers(Rollup="all")
Changes = Callable[[StreamModel], None]


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with everything_small():
        yield


def play(changes: Changes, **options: object) -> None:
    """Make the changes, and see that the stream is the same after it died."""
    world = StreamModel(make(**options))
    assert world.create()
    changes(world)
    world.check()
    world.kill()
    world.recover()
    world.check()


def test_a_moved_message_that_the_limits_let_go_of_stays_gone() -> None:
    def changes(world: StreamModel) -> None:
        first = [(b"s.c.x", b"", b"vvv"), (b"s.b", headers(Msg_Id="x"), b""), (b"s.e", b"", b"vvv")]
        world.publish([*first, (b"s.d.x", b"", SMALL), (b"s.c.x", SUB, b"vvv"), (b"s.a", SUB, b"vvv")])
        world.update(replace(world.model.config, max_msgs=-1, max_msgs_per_subject=2))
        world.publish([(b"s.d.x", SUB, b"vvv")])
        other = b"NATS/1.0\r\nA: b\r\n\r\n"
        world.publish([(b"s.d.x", b"", b"vvv"), (b"s.c.x", other, b""), (b"s.e", headers(Msg_Id="z"), LARGE)])
        world.compact(35)
        world.publish([(b"s.d.x", b"", b"vvv")])
        world.purge(keep=2)
        world.compact(52)

    play(changes, max_msgs=4)


def test_a_message_that_was_moved_and_then_overwritten_is_there_once_at_most() -> None:
    def changes(world: StreamModel) -> None:
        world.publish([(b"s.b", headers(Msg_Id="x"), LARGE), (b"s.b", b"", SMALL), (b"s.e", b"", b"v")])
        world.publish([(b"s.d.x", b"", SMALL), (b"s.b", b"", b"v")])
        world.publish([(b"s.a", b"", LARGE), (b"s.e", b"", LARGE), (b"s.e", b"NATS/1.0\r\nA: b\r\n\r\n", LARGE)])
        world.compact(1)
        world.publish([(b"s.d.x", b"", b"v")])

    play(changes, max_msgs_per_subject=1)


def test_limits_by_subject_and_altogether_are_applied_message_by_message() -> None:
    def changes(world: StreamModel) -> None:
        world.publish([(b"s.e", b"", SMALL), (b"s.a", b"NATS/1.0\r\nA: b\r\n\r\n", LARGE), (b"s.a", b"", b"")])

    play(changes, max_bytes=300, max_msgs=5, max_msgs_per_subject=1)


def test_a_time_to_live_is_settled_when_the_message_comes() -> None:
    def changes(world: StreamModel) -> None:
        world.publish([(b"s.b", headers(TTL="1s"), b"v")])
        world.update(replace(world.model.config, max_msgs=5, max_msgs_per_subject=-1))
        for _ in range(12):
            world.publish([(b"s.a", SUB, LARGE)])
            world.compact()
        world.clock.advance(2.5)

    play(changes, allow_msg_ttl=True, max_msgs_per_subject=1, subject_delete_marker_ttl=3 * SECOND)


def test_a_message_that_never_goes_by_age_is_not_taken_for_one_that_the_others_outlived() -> None:
    def changes(world: StreamModel) -> None:
        world.publish([(b"s.a", headers(TTL="never"), b"1"), (b"s.b", b"", b"2"), (b"s.c", b"", b"3")])
        world.clock.advance(4)
        world.publish([(b"s.d", b"", b"4")])

    play(changes, allow_msg_ttl=True, max_age=4 * SECOND, duplicate_window=SECOND, max_msgs=3)


def test_a_roll_up_is_replayed_in_its_place() -> None:
    def changes(world: StreamModel) -> None:
        world.publish([(b"s.a", b"", b"1"), (b"s.b", b"", b"2"), (b"s.a", SUB, b"3"), (b"s.a", b"", b"4")])
        world.publish([(b"s.c", ALL, b"5"), (b"s.a", b"", b"6")])

    play(changes)


def test_an_identifier_is_known_for_the_window_and_no_longer() -> None:
    def changes(world: StreamModel) -> None:
        row = (b"s.a", headers(Msg_Id="x"), b"v")
        world.publish([row, row])
        world.clock.advance(1.9)
        world.publish([row])
        world.clock.advance(0.1)
        world.publish([row])

    play(changes, duplicate_window=2 * SECOND)
