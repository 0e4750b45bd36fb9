"""Listeners are called, and one that fails disturbs nobody."""

import logging

import pytest

from strandline.broker.listeners import Listeners


def test_those_of_a_stream_are_called_until_they_cancel() -> None:
    listeners, heard = Listeners[[]](), list[str]()
    cancels = [listeners.add(name, lambda name=name: heard.append(name)) for name in ("a", "a", "b")]  # type: ignore[misc]
    listeners.tell("a")
    assert (heard, len(listeners)) == (["a", "a"], 3)
    for cancel in cancels[:2] * 2:
        cancel()
    listeners.tell("a")
    listeners.tell("b")
    assert (heard, len(listeners)) == (["a", "a", "b"], 1)


def test_one_that_fails_disturbs_neither_the_others_nor_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("of its own")

    listeners, heard = Listeners[[]](), list[int]()
    listeners.add("a", fail)
    listeners.add("a", lambda: heard.append(1))
    with caplog.at_level(logging.ERROR):
        listeners.tell("a")
    assert heard == [1]
    assert "stream a" in caplog.text


def test_a_listener_is_called_with_what_is_told_though_it_cancels_another() -> None:
    listeners, heard = Listeners[[int]](), list[int]()
    cancel = listeners.add("a", lambda _: cancels[0]())
    cancels = [listeners.add("a", heard.append)]
    listeners.tell("a", 1)
    listeners.tell("a", 2)
    cancel()
    assert (heard, len(listeners)) == ([1], 0)
