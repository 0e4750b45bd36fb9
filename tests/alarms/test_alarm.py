"""The decisions of alarms: each episode is raised once and resolved once, whatever is seen how often."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.alarms import Alarm, Condition, observe
from strandline.alarms.alarm import (
    KINDS,
    PENDING_MAX,
    cleaned,
    delivered,
    failed,
    format_alarm,
    format_notice,
    is_over,
    next_due,
    parse_alarm,
    parse_notice,
)
from strandline.errors import FormatError

RECEIVERS = ("a", "b")
FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "alarms" / "v1" / "firing.alarm"
problems = st.none() | st.sampled_from(["one", "two"])


def states_of(seen: list[str | None]) -> list[str]:
    """Return the notices that a receiver should get: levels, with repetitions left out."""
    expected, before = list[str](), None
    for problem in seen:
        if problem is not None and before is None:
            expected.append("raised")
        elif problem is None and before is not None:
            expected.append("resolved")
        elif problem != before:
            expected.append("updated")
        before = problem
    return expected


@given(st.lists(problems), st.lists(st.booleans()), st.integers(-5, 5))
def test_each_episode_is_raised_once_and_resolved_once_for_every_receiver(
    seen: list[str | None], takes: list[bool], step: int
) -> None:
    alarm: Alarm | None = None
    taken: dict[str, list[tuple[str, str]]] = {name: [] for name in RECEIVERS}
    answers = iter(takes)

    def deliver(alarm: Alarm, *, is_last: bool) -> Alarm:
        for name in RECEIVERS:
            while (pending := next_due(alarm, name)) is not None:
                if is_last or next(answers, True):
                    taken[name].append((pending.notice.id, pending.notice.state))
                    alarm = delivered(alarm, pending)
                else:
                    alarm = failed(alarm, pending, "no", 1)
                    break
        return alarm

    now_ns = 1000
    for problem in seen:
        now_ns += step  # a clock may stand still, or step back
        alarm = observe(alarm, Condition("test", "s", problem, key=problem or ""), RECEIVERS, now_ns)
        if alarm is not None:
            alarm = deliver(alarm, is_last=False)
            assert parse_alarm(format_alarm(alarm)) == alarm
    if alarm is not None:
        alarm = deliver(alarm, is_last=True)
        assert is_over(alarm) == (seen[-1] is None)
    for name in RECEIVERS:
        assert [state for _, state in taken[name]] == states_of(seen)
        assert len({id_ for id_, _ in taken[name]}) == len(taken[name]), "ids never come twice"


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text() | st.integers()))
def test_a_notice_is_read_as_it_was_written(subject: str, problem: str, details: dict[str, str | int]) -> None:
    seen = cleaned(Condition("test", subject, problem, details=details))
    alarm = observe(None, seen, ("a",), 7)
    assert alarm is not None
    notice = alarm.pending[0].notice
    assert parse_notice(format_notice(notice)) == notice


def test_texts_hold_no_password_and_no_control_characters() -> None:
    seen = cleaned(Condition("test", "nats://u:hunter2@h/b", "a\x1b[31m\n<b>", details={"at": "s3://k:hunter2@h"}))
    assert "hunter2" not in repr(seen)
    assert seen.problem == "a [31m <b>"


def test_an_alarm_of_version_1_is_read_for_ever_and_others_are_refused() -> None:
    alarm = parse_alarm(FIXTURE.read_bytes())
    assert (alarm.kind, alarm.is_firing, alarm.notices) == ("replication_failing", True, 1)
    assert format_alarm(alarm) == FIXTURE.read_bytes()
    for data in (b"", b"{}", b"[]", FIXTURE.read_bytes().replace(b'"version": 1', b'"version": 2', 1)):
        with pytest.raises(FormatError):
            parse_alarm(data, "x.alarm")
    assert alarm.kind in KINDS


def test_an_alarm_that_flaps_keeps_few_notices_in_order_and_counts_the_rest() -> None:
    alarm: Alarm | None = None
    for number in range(500):
        problem = None if number % 2 else "broken"
        alarm = observe(alarm, Condition("test", "s", problem), ("a", "b"), 1_000 + number)
    assert alarm is not None
    for receiver in ("a", "b"):
        notices = [each.notice for each in alarm.pending if each.receiver == receiver]
        assert len(notices) <= PENDING_MAX
        assert [notice.state for notice in notices] == ["raised", "resolved"] * (len(notices) // 2)
        assert all(early.alarm == late.alarm for early, late in zip(notices[::2], notices[1::2], strict=True))
        assert (notices[0].at_ns, notices[-1].at_ns) == (1_000, 1_499)
        assert len(notices) + sum(notice.coalesced for notice in notices) == 500
    assert parse_alarm(format_alarm(alarm)) == alarm


def test_updates_of_one_alarm_are_coalesced_too() -> None:
    alarm: Alarm | None = None
    for number in range(200):
        alarm = observe(alarm, Condition("test", "s", "broken", key=str(number)), ("a",), 1_000 + number)
    assert alarm is not None
    notices = [each.notice for each in alarm.pending]
    assert len(notices) == PENDING_MAX
    assert (notices[0].state, notices[-1].at_ns) == ("raised", 1_199)
    assert len(notices) + sum(notice.coalesced for notice in notices) == 200
