"""Times and durations are those of Go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.api.times import ZERO_TIME_NS, format_duration, format_time, parse_duration, parse_time


@given(st.integers(0, 4 * 10**18))
def test_a_time_is_read_back(time_ns: int) -> None:
    assert parse_time(format_time(time_ns)) == time_ns


def test_times_are_written_without_trailing_zeros() -> None:
    assert format_time(1_700_000_000_500_000_000) == "2023-11-14T22:13:20.5Z"
    assert format_time(1_700_000_000_000_000_000) == "2023-11-14T22:13:20Z"
    assert format_time(ZERO_TIME_NS) == "0001-01-01T00:00:00Z"
    assert parse_time("0001-01-01T00:00:00Z") == ZERO_TIME_NS


def test_a_time_may_have_an_offset() -> None:
    assert parse_time("2023-11-15T00:13:20+02:00") == 1_700_000_000_000_000_000
    assert parse_time("2023-11-14T20:13:20.25-02:00") == 1_700_000_000_250_000_000


@pytest.mark.parametrize("text", ["", "bad", "2023-13-01T00:00:00Z", "2023-11-14", "2023-11-14T22:13:20"])
def test_what_is_no_time_is_refused_in_gos_words(text: str) -> None:
    with pytest.raises(ValueError, match="parsing time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h30m", 5_400_000_000_000),
        ("-1.5s", -1_500_000_000),
        ("0", 0),
        ("100ms", 100_000_000),
        (".5s", 500_000_000),
        ("1us", 1_000),
        ("+2m", 120_000_000_000),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "1", "s", "1d", "1.s.", "1h-1m", "9999999999h", "-"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - there is nothing more to it
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["1s", "1m0s", "1m30s", "1h0m0s", "26h3m4.5s", "100ms", "1.5s", "0s", "20µs", "1.5ms", "999ns"]
)
def test_durations_are_written_as_go_writes_them(text: str) -> None:
    assert format_duration(parse_duration(text)) == text
