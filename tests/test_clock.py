"""Clocks: the real one moves by itself, the manual one only when told."""

import time

from strandline.clock import Clock, ManualClock, SystemClock, elapsed_ns


def test_the_system_clock_tells_the_wall_time_in_nanoseconds() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns()
    assert before <= clock.now_ns() <= time.time_ns()


def test_a_manual_clock_moves_only_when_told_also_backwards() -> None:
    clock = ManualClock(5)
    assert clock.now_ns() == clock.now_ns() == 5
    clock.advance(2)
    assert clock.now_ns() == 2_000_000_005
    clock.advance(-1.5)
    assert clock.now_ns() == 500_000_005
    as_clock: Clock = clock
    assert as_clock.now_ns() == 500_000_005


def test_elapsed_time_never_steps_and_counts_while_the_machine_is_suspended() -> None:
    before, elapsed = time.clock_gettime_ns(time.CLOCK_BOOTTIME), elapsed_ns()
    assert before <= elapsed <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
