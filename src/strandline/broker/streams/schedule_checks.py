"""Checks of a schedule, in nats-server's order.

Invariants: pure; a valid schedule has a time, and a subject of its own stream.
"""

from strandline.broker.api import codes
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.origins import is_subject
from strandline.broker.api.schedules import PURGE, parse_schedule, parse_zone
from strandline.broker.api.times import parse_time
from strandline.broker.streams import headers as names
from strandline.broker.streams.headers import Special
from strandline.wire import has_wildcard, subject_matches

_SUBJECT_ONLY = b"sub"


def check_schedule(subject: bytes, special: Special, config: StreamConfig) -> None:
    """Refuse an invalid schedule, or an invalid message of a schedule."""
    if not config.allow_msg_schedules:
        if special.get(names.SCHEDULE):
            raise codes.MESSAGE_SCHEDULES_DISABLED.error()
        return
    if special.get(names.SCHEDULER):
        _check_scheduler(special)
    if not special.get(names.SCHEDULE):
        return
    _check_pattern(special)
    target = special.get(names.SCHEDULE_TARGET, b"")
    if target == subject or not _is_ours(target, config):
        raise codes.MESSAGE_SCHEDULES_TARGET_INVALID.error()
    _check_ttl(special, config)
    source = special.get(names.SCHEDULE_SOURCE)
    if source and (source in (subject, target) or not _is_ours(source, config)):
        raise codes.MESSAGE_SCHEDULES_SOURCE_INVALID.error()
    for name in (names.ROLLUP, names.SCHEDULE_ROLLUP):
        if special.get(name, _SUBJECT_ONLY) != _SUBJECT_ONLY:
            raise codes.MESSAGE_SCHEDULES_ROLLUP_INVALID.error()


def _check_scheduler(special: Special) -> None:
    following = special.get(names.SCHEDULE_NEXT, b"").decode(errors="replace")
    if following == PURGE:
        return
    try:
        parse_time(following)
    except ValueError:
        raise codes.MESSAGE_SCHEDULES_SCHEDULER_INVALID.error() from None


def _check_pattern(special: Special) -> None:
    zone = special.get(names.SCHEDULE_ZONE, b"").decode(errors="replace")
    try:
        parse_zone(zone)
    except ValueError:
        raise codes.MESSAGE_SCHEDULES_TIME_ZONE_INVALID.error() from None
    try:
        parse_schedule(special[names.SCHEDULE].decode(errors="replace"), zone)
    except ValueError:
        raise codes.MESSAGE_SCHEDULES_PATTERN_INVALID.error() from None


def _check_ttl(special: Special, config: StreamConfig) -> None:
    asked = special.get(names.SCHEDULE_TTL)
    if not asked:
        return
    try:
        names.parse_ttl(asked)
    except ValueError:
        raise codes.MESSAGE_SCHEDULES_TTL_INVALID.error() from None
    if not config.allow_msg_ttl:
        raise codes.MESSAGE_TTL_DISABLED.error()


def _is_ours(subject: bytes, config: StreamConfig) -> bool:
    """Tell whether a subject is without wildcards and one of the stream's."""
    text = subject.decode(errors="surrogateescape")
    if not is_subject(text) or has_wildcard(text):
        return False
    return any(subject_matches(pattern, text) for pattern in config.subjects)
