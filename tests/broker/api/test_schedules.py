"""Schedules say when, as nats-server understands them."""

import pytest

from strandline.broker.api.schedules import parse_schedule
from strandline.broker.api.times import format_time, parse_time
from strandline.clock import NS_PER_S


def _next(text: str, after: str, zone: str = "") -> str:
    found = parse_schedule(text, zone).next_ns(parse_time(after))
    return "never" if found is None else format_time(found)


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("@at 2024-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("@every 1s", "2026-11-15T22:27:13.753Z", "2026-11-15T22:27:15Z"),
        ("@every 1s", "2026-11-15T22:27:15.006Z", "2026-11-15T22:27:16Z"),
        ("@every 1h30m", "2026-11-15T22:27:15.006Z", "2026-11-15T23:57:15Z"),
        ("* * * * * *", "2026-11-15T23:59:59.5Z", "2026-11-16T00:00:00Z"),
        ("0 30 4 1 1 *", "2026-11-15T00:00:00Z", "2027-01-01T04:30:00Z"),
        ("0 30 4 * * mon", "2026-11-15T00:00:00Z", "2026-11-16T04:30:00Z"),
        ("*/20 5-6 * * * *", "2026-11-15T10:05:40Z", "2026-11-15T10:06:00Z"),
        ("10/25 0 0 * * *", "2026-11-15T00:00:10Z", "2026-11-15T00:00:35Z"),
        ("0 0 0 13 * FRI", "2026-11-14T00:00:00Z", "2026-11-20T00:00:00Z"),
        ("0 0 0 */2 * mon", "2026-11-14T00:00:00Z", "2026-11-15T00:00:00Z"),
        ("* * * */2 * mon", "2026-11-16T12:00:00Z", "2026-11-16T12:00:01Z"),
        ("0 0 0 */1 * mon", "2026-11-14T00:00:00Z", "2026-11-16T00:00:00Z"),
        ("0 0 0 ? feb *", "2026-11-14T00:00:00Z", "2027-02-01T00:00:00Z"),
        ("0 0 0 29 2 *", "2026-11-14T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 0 30 2 *", "2026-11-14T00:00:00Z", "never"),
        ("@hourly", "2026-11-15T22:00:00Z", "2026-11-15T23:00:00Z"),
        ("@weekly", "2026-11-15T22:00:00Z", "2026-11-22T00:00:00Z"),
        ("@yearly", "2026-11-15T22:00:00Z", "2027-01-01T00:00:00Z"),
    ],
)
def test_the_next_time_is_the_clocks(text: str, after: str, expected: str) -> None:
    assert _next(text, after) == expected


def test_the_hands_are_those_of_a_time_zone() -> None:
    assert _next("0 30 4 * * *", "2026-07-01T00:00:00Z", "Europe/Berlin") == "2026-07-01T02:30:00Z"
    assert _next("0 30 4 * * *", "2026-12-01T00:00:00Z", "Europe/Berlin") == "2026-12-01T03:30:00Z"
    assert _next("0 30 2 * * *", "2026-03-29T00:00:00Z", "Europe/Berlin") == "2026-03-30T00:30:00Z"


WRONG = ("", "nope", "@at x", "@every", "@every x", "@every 999ms", "* * * * *", "@foo", "61 * * * * *", "0 0 0 0 * *")
WRONG_TOO = ("0 0 0 1 13 *", "0 0 0 * * 7", "5-1 * * * * *", "1,,2 * * * * *", "*/0 * * * * *", "0 0 0 * Mon *")


@pytest.mark.parametrize("text", [*WRONG, *WRONG_TOO])
def test_what_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is of no interest
        parse_schedule(text)
    with pytest.raises(ValueError):  # noqa: PT011
        parse_schedule("@hourly", "Nowhere/At all")


def test_each_second_follows_the_other() -> None:
    schedule = parse_schedule("*/7 * * * * *")
    time_ns, found = parse_time("2026-11-15T22:59:50Z"), []
    for _ in range(4):
        time_ns = schedule.next_ns(time_ns) or 0
        found.append(time_ns // NS_PER_S % 60)
    assert found == [56, 0, 7, 14]
