"""Alarms, conditions and notices; and what follows from a look at a condition, as pure functions.

    no alarm ──problem──► firing ──another problem──► firing, updated
                             └──no problem──► resolved, gone when all receivers know

Invariants: a problem that stays the same makes no notice; every episode makes one notice `raised` first, one `resolved`
last, and `updated` ones between. Ids of notices are made of the alarm's id and a count, and never come twice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

from strandline.config.passwords import masked
from strandline.errors import FormatError

KINDS = {
    "findings": "new findings are open",
    "scan_stopped": "a scan ended before it was done",
    "replication_failing": "commits do not reach the object store",
    "replication_lagging": "commits reach the object store late",
    "artifact_below_floor": "no fold can start from the newest artifact",
    "lease_lost": "a lease expired, or its holder lost it",
    "lease_contested": "a lease changed hands without being released",
    "stream_lost_messages": "damage took messages of a stream",
    "test": "a test of the receivers",
}
"""Kinds of alarms, and what each means."""

State = Literal["raised", "updated", "resolved"]
VERSION = 1
_TEXT_MAX = 2000
PENDING_MAX = 16
"""Notices of an alarm that wait for one receiver; more are coalesced."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a part says of one subject now: a problem, or None. `key` tells problems apart; by default all are one.

    `details` holds counts, names of rules, positions and ids: never what was scanned.
    """

    kind: str
    subject: str
    problem: str | None
    key: str = ""
    details: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """One message about an alarm; `id` stays the same however often it is sent."""

    id: str
    alarm: str
    state: State
    kind: str
    subject: str
    summary: str
    details: Mapping[str, str | int | float]
    raised_ns: int
    at_ns: int
    coalesced: int = 0
    """How many earlier notices were left out for it: a receiver that was away gets the latest of a flapping alarm."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A notice that a receiver has not taken: how often it was tried, and when it is tried next."""

    notice: Notice
    receiver: str
    attempts: int = 0
    due_ns: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm with the notices that are not delivered; `resolved_ns` is 0 while it fires."""

    id: str
    kind: str
    subject: str
    summary: str
    key: str
    details: Mapping[str, str | int | float]
    raised_ns: int
    resolved_ns: int = 0
    notices: int = 0
    """How many notices there were."""
    pending: tuple[Pending, ...] = ()

    @property
    def is_firing(self) -> bool:
        """Whether the problem goes on."""
        return not self.resolved_ns


def alarm_id(kind: str, subject: str, raised_ns: int) -> str:
    """Return the id of an alarm."""
    text = json.dumps([kind, subject, raised_ns])
    return sha256(text.encode()).hexdigest()[:24]


def cleaned(seen: Condition) -> Condition:
    """Return a condition whose texts may be stored and shown."""
    details = {name: shortened(value) if isinstance(value, str) else value for name, value in seen.details.items()}
    problem = None if seen.problem is None else shortened(seen.problem)
    return replace(seen, subject=shortened(seen.subject), problem=problem, details=details)


def observe(known: Alarm | None, seen: Condition, receivers: tuple[str, ...], now_ns: int) -> Alarm | None:
    """Return the alarm after a look at its condition; None where there is none."""
    fires = known is not None and known.is_firing
    if seen.problem is None:
        if known is None or not fires:
            return known
        return _noted(replace(known, resolved_ns=now_ns), "resolved", receivers, now_ns)
    if known is None or not fires:
        left = () if known is None else known.pending
        raised_ns = now_ns if known is None else max(now_ns, known.raised_ns + 1)  # a clock may step back
        alarm = Alarm(
            alarm_id(seen.kind, seen.subject, raised_ns),
            seen.kind,
            seen.subject,
            seen.problem,
            seen.key,
            dict(seen.details),
            raised_ns,
            pending=left,
        )
        return _noted(alarm, "raised", receivers, now_ns)
    if seen.key == known.key:
        return known
    alarm = replace(known, summary=seen.problem, key=seen.key, details=dict(seen.details))
    return _noted(alarm, "updated", receivers, now_ns)


def _noted(alarm: Alarm, state: State, receivers: tuple[str, ...], now_ns: int) -> Alarm:
    number = alarm.notices + 1
    notice = Notice(
        f"{alarm.id}.{number}",
        alarm.id,
        state,
        alarm.kind,
        alarm.subject,
        alarm.summary,
        alarm.details,
        alarm.raised_ns,
        now_ns,
    )
    pending = alarm.pending
    for receiver in receivers:
        pending = coalesced((*pending, Pending(notice, receiver, due_ns=now_ns)), receiver)
    return replace(alarm, notices=number, pending=pending)


def coalesced(pending: tuple[Pending, ...], receiver: str) -> tuple[Pending, ...]:
    """Return notices of which a receiver has at most about `PENDING_MAX`; the last one counts those left out.

    Whole episodes go, the oldest first, and updates within one. The first notice may be on its way, so its episode
    stays, as does the latest: what a receiver was told of is also resolved.
    """
    own = [each for each in pending if each.receiver == receiver]
    surplus = len(own) - PENDING_MAX
    if surplus <= 0:
        return pending
    ends = {own[0].notice.alarm, own[-1].notice.alarm}
    between = [each for each in own if each.notice.alarm not in ends]
    oldest = [each for each in between if each.notice.alarm == between[0].notice.alarm]
    left_out = oldest or [each for each in own[1:-1] if each.notice.state == "updated"][:surplus]
    ids = {each.notice.id for each in left_out}
    count = sum(1 + each.notice.coalesced for each in left_out)
    last = replace(own[-1], notice=replace(own[-1].notice, coalesced=own[-1].notice.coalesced + count))
    kept = (each for each in pending if each.receiver != receiver or each.notice.id not in ids)
    return tuple(last if each is own[-1] else each for each in kept)


def delivered(alarm: Alarm, done: Pending) -> Alarm:
    """Return an alarm after a receiver has taken a notice."""
    kept = tuple(each for each in alarm.pending if (each.notice.id, each.receiver) != (done.notice.id, done.receiver))
    return replace(alarm, pending=kept)


def failed(alarm: Alarm, tried: Pending, error: str, due_ns: int) -> Alarm:
    """Return an alarm after an attempt failed; the notice stays."""

    def after(each: Pending) -> Pending:
        if (each.notice.id, each.receiver) != (tried.notice.id, tried.receiver):
            return each
        return replace(each, attempts=each.attempts + 1, due_ns=due_ns, error=shortened(error))

    return replace(alarm, pending=tuple(map(after, alarm.pending)))


def next_due(alarm: Alarm, receiver: str) -> Pending | None:
    """Return the oldest notice that a receiver has not taken; later ones wait for it, so that none overtakes."""
    return next((each for each in alarm.pending if each.receiver == receiver), None)


def is_over(alarm: Alarm) -> bool:
    """Return whether nothing is left to do."""
    return not alarm.is_firing and not alarm.pending


def shortened(text: str) -> str:
    """Return a text without passwords of addresses and control characters, and not too long."""
    shown = "".join(char if char.isprintable() else " " for char in str(masked(text)))
    return shown if len(shown) <= _TEXT_MAX else shown[: _TEXT_MAX - 1] + "…"


def format_notice(notice: Notice) -> dict[str, Any]:
    """Return a notice as receivers get it."""
    return {
        "version": VERSION,
        "id": notice.id,
        "alarm": notice.alarm,
        "state": notice.state,
        "kind": notice.kind,
        "subject": notice.subject,
        "summary": notice.summary,
        "details": dict(notice.details),
        "raised_ns": notice.raised_ns,
        "at_ns": notice.at_ns,
        **({"coalesced": notice.coalesced} if notice.coalesced else {}),
    }


def parse_notice(fields: Mapping[str, Any]) -> Notice:
    """Return the notice that `format_notice` gave."""
    names = ("id", "alarm", "state", "kind", "subject", "summary", "details", "raised_ns", "at_ns")
    return Notice(**{name: fields[name] for name in names}, coalesced=fields.get("coalesced", 0))


def format_alarm(alarm: Alarm) -> bytes:
    """Return an alarm as its file holds it."""
    names = ("id", "kind", "subject", "summary", "key", "raised_ns", "resolved_ns", "notices")
    pending = [
        {
            "notice": format_notice(each.notice),
            "receiver": each.receiver,
            "attempts": each.attempts,
            "due_ns": each.due_ns,
            "error": each.error,
        }
        for each in alarm.pending
    ]
    fields = {name: getattr(alarm, name) for name in names}
    whole = {"version": VERSION, **fields, "details": dict(alarm.details), "pending": pending}
    return json.dumps(whole, indent=1).encode() + b"\n"


def parse_alarm(data: bytes, where: str = "") -> Alarm:
    """Return the alarm of a file; `FormatError` where it is something else."""
    try:
        fields = json.loads(data)
        if fields["version"] != VERSION:
            raise FormatError(where, f"version {fields['version']} is not known")
        pending = tuple(
            Pending(parse_notice(each["notice"]), each["receiver"], each["attempts"], each["due_ns"], each["error"])
            for each in fields["pending"]
        )
        names = ("id", "kind", "subject", "summary", "key", "details", "raised_ns", "resolved_ns", "notices")
        return Alarm(**{name: fields[name] for name in names}, pending=pending)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError(where, f"it is no alarm: {error}") from error
