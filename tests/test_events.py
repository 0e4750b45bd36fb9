"""Events: every listener hears, in order, and none of them can fail what it listens to."""

import logging
from dataclasses import dataclass

import pytest

from strandline.events import Event, Events


@dataclass(frozen=True, slots=True)
class Happened(Event):
    """A thing that happened."""

    number: int


def test_listeners_hear_in_the_order_in_which_they_subscribed() -> None:
    heard: list[tuple[str, Event]] = []
    events = Events(lambda event: heard.append(("first", event)))
    events.subscribe(lambda event: heard.append(("second", event)))
    events.emit(Happened(1))
    assert heard == [("first", Happened(1)), ("second", Happened(1))]


def test_a_listener_that_fails_is_logged_and_the_others_still_hear(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise ValueError(event)

    events = Events(broken, heard.append)
    with caplog.at_level(logging.ERROR, "strandline"):
        events.emit(Happened(2))
    assert heard == [Happened(2)]
    assert "a listener failed" in caplog.text
    assert "ValueError" in caplog.text


def test_who_unsubscribes_hears_no_more_and_may_do_so_twice_or_while_listening() -> None:
    heard: list[Event] = []
    others: list[Event] = []
    events = Events()

    def once(event: Event) -> None:
        heard.append(event)
        leave()

    leave = events.subscribe(once)
    events.subscribe(others.append)
    events.emit(Happened(1))
    events.emit(Happened(2))
    leave()
    assert heard == [Happened(1)]
    assert others == [Happened(1), Happened(2)]


def test_nobody_listening_is_fine() -> None:
    Events().emit(Happened(1))
