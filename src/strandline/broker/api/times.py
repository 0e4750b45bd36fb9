"""Times and durations in Go's formats: RFC 3339 with nanoseconds, and `1h30m`.

Invariants: a time is nanoseconds since 1970 in UTC; `ZERO_TIME_NS` stands for Go's zero time, the year 1. `parse_time`
reads back what `format_time` writes.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from strandline.clock import NS_PER_S

ZERO_TIME_NS = -62_135_596_800 * NS_PER_S
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": 3_600 * NS_PER_S,
}
_PART = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DIGITS_MAX = 20
"""The longest digits of a valid duration; longer ones are slow to parse."""
_INT64_MAX = 2**63 - 1


def format_time(time_ns: int) -> str:
    """Return a time in Go's `RFC3339Nano`: UTC, without trailing zeros."""
    seconds, nanos = divmod(time_ns, NS_PER_S)
    return f"{_format_seconds(seconds)}{f'.{nanos:09d}'.rstrip('0') if nanos else ''}Z"


@lru_cache(1024)
def _format_seconds(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").zfill(19)


def parse_time(text: str) -> int:
    """Return the nanoseconds of an RFC 3339 time; `ValueError` with Go's text if it is invalid."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(_not_a_time(text))
    year, month, day, hour, minute, second = (int(found[number]) for number in range(1, 7))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise ValueError(_not_a_time(text)) from None
    seconds = round((moment - _EPOCH).total_seconds())
    if found[8] != "Z":
        sign = -1 if found[8][0] == "-" else 1
        seconds -= sign * (int(found[8][1:3]) * 3600 + int(found[8][4:6]) * 60)
    return seconds * NS_PER_S + int((found[7] or "")[:9].ljust(9, "0"))


def _not_a_time(text: str) -> str:
    return f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006"'


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration such as `1h30m` or `-1.5s`; `ValueError` if it is invalid."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    at = total = 0
    while at < len(rest):
        found = _PART.match(rest, at)
        if found is None or not (found[1] or found[2]):
            raise ValueError(text)
        unit = _UNITS[found[3]]
        fraction = found[2] or ""
        if len(found[1].lstrip("0")) > _DIGITS_MAX:
            raise ValueError(text)
        fraction = fraction[:_DIGITS_MAX]
        total += int(found[1][-_DIGITS_MAX:] or 0) * unit
        total += int(fraction) * unit // 10 ** len(fraction) if fraction else 0
        at = found.end()
    if not rest or total > _INT64_MAX:
        raise ValueError(text)
    return sign * total


def format_duration(duration_ns: int) -> str:
    """Return a duration as Go writes it: `1m30s`, `1h0m0s`, `1.5s`, `100ms`, `20µs`."""
    if duration_ns < NS_PER_S:
        unit = next((unit for unit in ("ms", "µs", "ns") if duration_ns >= _UNITS[unit]), "")
        return f"{_trimmed(duration_ns, _UNITS[unit])}{unit}" if unit else "0s"
    minutes, rest = divmod(duration_ns, 60 * NS_PER_S)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_trimmed(rest, NS_PER_S)}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _trimmed(value: int, unit: int) -> str:
    whole, part = divmod(value, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{part:0{digits}d}".rstrip("0") if part else str(whole)
