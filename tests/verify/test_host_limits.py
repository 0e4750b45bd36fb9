"""The pace of requests to one host."""

from dataclasses import dataclass, field

import pytest

from strandline.verify.host_limits import FAILURES_MAX, INTERVAL_S, PATIENCE_S, HostLimits
from strandline.verify.http_client import Answer, NotAnswered, Request

REQUEST = Request("GET", "https://provider.test/", {})


@dataclass
class Host:
    """A host with answers, on a clock of its own."""

    answers: list[Answer | None]
    now_s: float = 1000.0
    times: list[float] = field(default_factory=list)

    def send(self, request: Request) -> Answer:
        assert request is REQUEST
        self.times.append(self.now_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise NotAnswered("nothing listens there")
        return answer

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def limits(self) -> HostLimits:
        return HostLimits(self, now_s=lambda: self.now_s, sleep=self.sleep)


def answer(status: int, **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, b"")


def test_requests_are_apart() -> None:
    host = Host([answer(200)])
    limits = host.limits
    for _ in range(4):
        limits.send(lambda: REQUEST)
    assert host.times == [1000 + INTERVAL_S * number for number in range(4)]


@pytest.mark.parametrize("status", [429, 403, 503])
def test_a_host_that_asks_for_patience_gets_it(status: int) -> None:
    host = Host([answer(status, retry_after="7"), answer(200)])
    assert host.limits.send(lambda: REQUEST).status == 200
    assert host.times == [1000, 1007]


def test_dates_are_understood() -> None:
    host = Host([answer(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"), answer(200)])
    assert host.limits.send(lambda: REQUEST).status == 200
    assert host.times == [1000, 1000 + INTERVAL_S]


@pytest.mark.parametrize(
    "limited",
    [
        answer(429, retry_after=str(int(PATIENCE_S) + 1)),
        answer(429),
        answer(403, x_ratelimit_remaining="0"),
        answer(429, retry_after=f"Mon, 20 Nov {'9' * 20} 19:12:08 GMT"),
    ],
    ids=["too long", "no time", "used up", "no date"],
)
def test_a_host_that_wants_too_much_patience_is_asked_nothing_until_then(limited: Answer) -> None:
    host = Host([limited, answer(200)])
    limits = host.limits
    for _ in range(3):
        with pytest.raises(NotAnswered, match="limits the rate"):
            limits.send(lambda: REQUEST)
    assert len(host.times) == 1
    host.sleep(60)
    assert limits.send(lambda: REQUEST).status == 200


def test_a_host_that_stays_limited_is_not_asked_for_ever() -> None:
    host = Host([answer(429, retry_after="1")])
    with pytest.raises(NotAnswered, match="limits the rate"):
        host.limits.send(lambda: REQUEST)
    assert len(host.times) == 2


def test_a_refusal_without_limits_is_an_answer() -> None:
    assert Host([answer(403)]).limits.send(lambda: REQUEST).status == 403


def test_a_host_that_does_not_answer_is_left_alone() -> None:
    host = Host([None])
    limits = host.limits
    for _ in range(FAILURES_MAX):
        with pytest.raises(NotAnswered, match="nothing listens there"):
            limits.send(lambda: REQUEST)
    with pytest.raises(NotAnswered, match="gave no answer to 3 requests before"):
        limits.send(lambda: REQUEST)
    assert len(host.times) == FAILURES_MAX


def test_an_answer_forgives_failures_before_it() -> None:
    host = Host([None, None, answer(200), None, None, answer(200)])
    limits = host.limits
    statuses = []
    for _ in range(6):
        try:
            statuses.append(limits.send(lambda: REQUEST).status)
        except NotAnswered:
            statuses.append(0)
    assert statuses == [0, 0, 200, 0, 0, 200]
