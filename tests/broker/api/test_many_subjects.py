"""Requests that name thousands of subjects: checked in time that grows with their number, not with its square."""

import time
from collections.abc import Callable

import pytest

from strandline.broker.api.checks import check_create
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.consumer_checks import check_consumer, check_unique
from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.api.responses import AccountLimits

FEW, TIMES = 500, 8
GROWTH_MAX = 24.0
"""Eight times as many take eight times as long; were it their square, it would be 64 times."""


def _cpu_s(work: Callable[[], object]) -> float:
    """Return the least processor time of a few runs: what else the machine does is not counted."""
    taken = []
    for _ in range(3):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return min(taken)


def _subjects(count: int, head: str = "s") -> tuple[str, ...]:
    return tuple(f"{head}.{number}.{'*' if number % 10 == 0 else 'x'}" for number in range(count))


def _stream(count: int) -> None:
    check_create(StreamConfig(name="S", subjects=_subjects(count)), Neighbours())


def _beside_others(count: int) -> None:
    others = StreamConfig(name="O", subjects=_subjects(count, "o"))
    check_create(StreamConfig(name="S", subjects=_subjects(count)), Neighbours({"O": others}))


def _consumer(count: int) -> None:
    stream = StreamConfig(name="S", subjects=("s.>",))
    config = ConsumerConfig(name="c", ack_policy=AckPolicy.EXPLICIT, filter_subjects=_subjects(count))
    check_consumer(config, stream, AccountLimits())


def _work_queue(count: int) -> None:
    other = ConsumerConfig(name="o", filter_subjects=_subjects(count, "o"))
    check_unique(ConsumerConfig(name="c", filter_subjects=_subjects(count)), {"o": other})


@pytest.mark.parametrize("checked", [_stream, _beside_others, _consumer, _work_queue])
def test_checks_take_time_by_the_number_of_subjects(checked: Callable[[int], None]) -> None:
    few, many = _cpu_s(lambda: checked(FEW)), _cpu_s(lambda: checked(FEW * TIMES))
    assert many < GROWTH_MAX * few, f"{many / few:.0f} times as long for {TIMES} times as many"


def test_an_overlap_among_thousands_is_found_and_named() -> None:
    subjects = (*_subjects(2000), "s.5.>")
    with pytest.raises(ApiError, match=r'subject "s.5.x" overlaps with "s.5.>"'):
        check_create(StreamConfig(name="S", subjects=subjects), Neighbours())


def test_subjects_of_streams_that_change_or_go_are_free_again() -> None:
    configs = {"A": StreamConfig(name="A", subjects=("a.*",)), "B": StreamConfig(name="B", subjects=("b",))}
    neighbours = Neighbours(configs)
    assert neighbours.overlaps(["a.1"], "C")
    assert not neighbours.overlaps(["a.1"], "A")
    assert neighbours.overlaps(["a.1", "b"], "A")
    configs["A"] = StreamConfig(name="A", subjects=("c",))
    assert not neighbours.overlaps(["a.1"], "C")
    assert neighbours.overlaps([">"], "A")
    del configs["B"]
    assert not neighbours.overlaps(["b"], "C")


def test_patterns_that_take_too_long_to_compare_are_refused() -> None:
    crossing = (*(f"s.a{n}.*.left" for n in range(1500)), *(f"s.*.b{n}.right" for n in range(1500)))
    with pytest.raises(ApiError, match="too many subjects with wildcards"):
        check_create(StreamConfig(name="S", subjects=crossing), Neighbours())
    stream = StreamConfig(name="S", subjects=(">",))
    config = ConsumerConfig(name="c", ack_policy=AckPolicy.EXPLICIT, filter_subjects=crossing)
    with pytest.raises(ApiError, match="too many subjects with wildcards"):
        check_consumer(config, stream, AccountLimits())
