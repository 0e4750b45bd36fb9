"""Items that another thread makes arrive in order, with the maker's errors, and the thread ends with its taker."""

import threading
from collections.abc import Iterator

import pytest

from strandline.artifacts.read_ahead import read_ahead


def failing(items: int) -> Iterator[int]:
    yield from range(items)
    raise ZeroDivisionError


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "strandline-read-ahead"]


@pytest.mark.parametrize("depth", [1, 4])
def test_items_arrive_in_their_order_and_are_made_in_another_thread(depth: int) -> None:
    def made() -> Iterator[tuple[int, threading.Thread]]:
        for number in range(100):
            yield number, threading.current_thread()

    with read_ahead(made(), depth) as items:
        found = list(items)
    assert [number for number, _ in found] == list(range(100))
    assert {thread is threading.current_thread() for _, thread in found} == {False}
    assert threads() == []


def test_an_error_of_the_maker_is_raised_behind_its_items() -> None:
    with read_ahead(failing(9), 2) as items:
        assert [next(items) for _ in range(9)] == list(range(9))
        with pytest.raises(ZeroDivisionError):
            next(items)
    assert threads() == []


@pytest.mark.parametrize("taken", [0, 1, 50])
def test_a_taker_that_fails_ends_the_maker(taken: int) -> None:
    made = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            made.append(number)
            yield number
            number += 1

    def take() -> None:
        with read_ahead(endless(), 2) as items:
            for _ in range(taken):
                next(items)
            raise KeyError

    with pytest.raises(KeyError):
        take()
    assert threads() == []
    assert len(made) <= taken + 5
