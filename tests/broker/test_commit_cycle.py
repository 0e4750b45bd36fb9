"""One turn for all that asked for it."""

import asyncio
from collections.abc import Callable

from strandline.broker.commit_cycle import ALONE_TURNS, CommitCycle
from strandline.clock import SystemClock


class _Part:
    """Notes when it is flushed, ticked and written."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told
        self.next_due_ns: int | None = None
        self.bounded_s = 0.0
        self.also: Callable[[], None] = lambda: None

    def flush(self, now_ns: int) -> None:
        del now_ns
        self.told.append(f"flush {self.name}")
        self.also()

    def tick(self, now_ns: int) -> None:
        if self.next_due_ns is not None and self.next_due_ns <= now_ns:
            self.told.append(f"tick {self.name}")
            self.next_due_ns = None

    def write_out(self) -> None:
        self.told.append(f"write {self.name}")


def _with_turn(test: Callable[[CommitCycle, list[str]], None]) -> list[str]:
    """Run something, then a few turns of the loop, and return what was told."""
    told: list[str] = []

    async def run() -> None:
        turn = CommitCycle(asyncio.get_running_loop(), SystemClock())
        test(turn, told)
        for _ in range(5):
            await asyncio.sleep(0.005)
        turn.close()

    asyncio.run(run())
    return told


def test_everything_is_stored_before_anything_is_written_and_once() -> None:
    def test(turn: CommitCycle, told: list[str]) -> None:
        one, two, client = _Part("one", told), _Part("two", told), _Part("client", told)
        wake_one, wake_two = turn.add(one), turn.add(two)
        turn.write(client)
        wake_one()
        wake_two()
        wake_one()
        assert told == []

    assert _with_turn(test) == ["flush one", "flush two", "write client"]


def test_what_is_said_while_storing_leaves_with_the_same_turn() -> None:
    def test(turn: CommitCycle, told: list[str]) -> None:
        part, client = _Part("part", told), _Part("client", told)
        part.also = lambda: turn.write(client)
        turn.add(part)()

    assert _with_turn(test) == ["flush part", "write client"]


def test_who_asks_again_during_a_turn_has_the_next() -> None:
    def test(turn: CommitCycle, told: list[str]) -> None:
        part = _Part("part", told)
        wake = turn.add(part)
        part.also = lambda: wake() if told.count("flush part") < 3 else None
        wake()

    assert _with_turn(test) == ["flush part"] * 3


def test_a_part_that_fails_does_not_keep_others_from_their_turn() -> None:
    def test(turn: CommitCycle, told: list[str]) -> None:
        bad, good = _Part("bad", told), _Part("good", told)

        def fail() -> None:
            raise ValueError

        bad.also = fail
        turn.add(bad)()
        turn.add(good)()
        turn.write(good)

    assert _with_turn(test) == ["flush bad", "flush good", "write good"]


def test_timers_of_all_are_kept() -> None:
    def test(turn: CommitCycle, told: list[str]) -> None:
        part = _Part("part", told)
        turn.add(part)
        now_ns = SystemClock().now_ns()
        turn.at("late", now_ns + 10_000_000, lambda _: told.append("late"))
        turn.at("soon", now_ns + 2_000_000, lambda _: told.append("soon"))
        turn.at("never", now_ns + 3_000_000, lambda _: told.append("never"))
        turn.at("never", None, lambda _: None)
        part.next_due_ns = now_ns + 5_000_000

    assert sorted(_with_turn(test)) == ["late", "soon", "tick part"]  # in any order, where the loop was held up


def test_a_single_reader_is_answered_with_its_read_but_many_share_a_turn() -> None:
    async def run() -> None:
        told: list[str] = []
        turn = CommitCycle(asyncio.get_running_loop(), SystemClock())
        part = _Part("part", told)
        wake = turn.add(part)

        def read() -> None:
            turn.begin_read()
            wake()
            turn.end_read()

        read()
        assert told == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == ["flush part"]
        for number in range(ALONE_TURNS):
            read()
            assert len(told) == number + 2
        read()
        read()
        assert len(told) == ALONE_TURNS + 1, "now and then one waits, and others join it"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(told) == ALONE_TURNS + 2
        read()
        assert len(told) == ALONE_TURNS + 2
        await asyncio.sleep(0)
        turn.close()

    asyncio.run(run())
