"""Schedules of messages: once, at an interval, or by a cron expression (decision 0027 says why not `croniter`).

    @at 2026-01-01T00:00:00Z          once
    @every 5m                         at an interval of at least a second, on full seconds
    0 30 4 * * Mon                    second, minute, hour, day of the month, month, day of the week
    @hourly, @daily, @weekly …        presets

Invariants: pure; `next_ns` returns a later time, except for `@at`, which returns its own.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from strandline.broker.api.times import parse_duration, parse_time
from strandline.clock import NS_PER_S

_PRESETS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_MONTHS = {
    name: at
    for at, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_DAYS = {name: at for at, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_BOUNDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_RANGE = re.compile(r"(\*|\?|\w+)(?:-(\w+))?(?:/(\d+))?", re.ASCII)
_DAYS_AHEAD = 5 * 366
PURGE = "purge"


class Schedule(Protocol):
    """A schedule."""

    def next_ns(self, after_ns: int) -> int | None:
        """Return the next time after `after_ns`, None if there is none."""


@dataclass(frozen=True, slots=True)
class OnceSchedule:
    """One fixed time (`@at`)."""

    time_ns: int

    def next_ns(self, after_ns: int) -> int | None:
        """Return the fixed time, past or future."""
        del after_ns
        return self.time_ns


@dataclass(frozen=True, slots=True)
class IntervalSchedule:
    """A fixed interval, on full seconds (`@every`)."""

    period_ns: int

    def next_ns(self, after_ns: int) -> int | None:
        """Return the nearest full second plus the interval."""
        return (after_ns + NS_PER_S // 2) // NS_PER_S * NS_PER_S + self.period_ns


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """A cron expression with seconds, in a time zone; `parts` are the allowed values of its fields."""

    parts: tuple[tuple[int, ...], ...]
    any_day: bool
    any_weekday: bool
    zone: ZoneInfo

    def next_ns(self, after_ns: int) -> int | None:
        """Return the next matching second, None if there is none within five years."""
        start = datetime.fromtimestamp(after_ns // NS_PER_S + 1, self.zone)
        for ahead in range(_DAYS_AHEAD):
            day = start.date() + timedelta(days=ahead)
            if self._has_day(day):
                found = self._first(day, start if ahead == 0 else None)
                if found is not None:
                    return found * NS_PER_S
        return None

    def _has_day(self, day: date) -> bool:
        _, _, _, days, months, weekdays = self.parts
        if day.month not in months:
            return False
        by_day, by_weekday = day.day in days, day.isoweekday() % 7 in weekdays
        return by_day and by_weekday if self.any_day or self.any_weekday else by_day or by_weekday

    def _first(self, day: date, start: datetime | None) -> int | None:
        seconds, minutes, hours = self.parts[:3]
        from_hour, from_minute, from_second = (start.hour, start.minute, start.second) if start else (0, 0, 0)
        for hour in hours:
            if hour < from_hour:
                continue
            for minute in minutes:
                if (hour, minute) < (from_hour, from_minute):
                    continue
                for second in seconds:
                    if (hour, minute, second) < (from_hour, from_minute, from_second):
                        continue
                    moment = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=self.zone)
                    if _exists(moment):
                        return round(moment.timestamp())
        return None


def _exists(moment: datetime) -> bool:
    """Tell whether a local time exists: daylight saving skips an hour."""
    zone = moment.tzinfo
    return datetime.fromtimestamp(moment.timestamp(), zone).hour == moment.hour


@lru_cache(256)
def parse_schedule(text: str, zone: str = "") -> Schedule:
    """Return the schedule of a text; `ValueError` if it is invalid."""
    kind, _, rest = text.partition(" ")
    if kind == "@at":
        return OnceSchedule(parse_time(rest.strip()))
    if kind == "@every":
        period_ns = parse_duration(rest.strip())
        if period_ns < NS_PER_S:
            raise ValueError(text)
        return IntervalSchedule(period_ns)
    fields = _PRESETS.get(text, text).split()
    if len(fields) != len(_BOUNDS):
        raise ValueError(text)
    parts = tuple(_parse_field(field, *bounds) for field, bounds in zip(fields, _BOUNDS, strict=True))
    return CronSchedule(parts, _is_any(fields[3]), _is_any(fields[5]), parse_zone(zone))


def parse_zone(name: str) -> ZoneInfo:
    """Return a time zone, UTC without a name; `ValueError` if it is unknown."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(name) from error


def _is_any(field: str) -> bool:
    """Tell whether a field restricts nothing; as in nats-server, one with a step (`*/2`) does."""
    return any(part.removesuffix("/1") in ("*", "?") for part in field.split(","))


def _parse_field(field: str, low: int, high: int, names: dict[str, int]) -> tuple[int, ...]:
    found: set[int] = set()
    for part in field.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(field)
        first_text, last_text, step_text = match.groups()
        step = int(step_text or 1)
        if first_text in ("*", "?"):
            first, last = low, high
        else:
            first = _number(first_text, names)
            last = _number(last_text, names) if last_text else high if step_text else first
        if not low <= first <= last <= high or step < 1:
            raise ValueError(field)
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def _number(text: str, names: dict[str, int]) -> int:
    return names[text.lower()] if text.lower() in names else int(text)
