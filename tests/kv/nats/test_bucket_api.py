"""BucketApi turn whatever an exchange comes to into a value or one error, and send again only what nobody heard."""

import asyncio
import json
import math
from collections.abc import Mapping

import pytest

from strandline.errors import FormatError, RecordTooLarge, StrandlineError
from strandline.kv import (
    AnswerLost,
    BucketExists,
    BucketFull,
    BucketNotFound,
    ConnectionDropped,
    JetStreamDisabled,
    NoAnswer,
    NotSupported,
    Overrun,
    Retention,
    RevisionMismatch,
    ServerRefused,
)
from strandline.kv.nats.bucket_api import BucketApi
from strandline.kv.nats.watches import NatsWatcher, Watches
from strandline.nats import NatsSettings
from strandline.nats.requests import NoListener, Unanswered
from strandline.nats.streams import parse_stream_info
from tests.waiting import PATIENCE_S

STREAM = {
    "config": {"name": "KV_b", "subjects": ["$KV.b.>"]},
    "created": "2026-01-01T00:00:00Z",
    "state": {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0},
}


class Script:
    """An exchange that answers as it is told: to writes with the next of `answers`, to the API with the stream."""

    def __init__(self, *answers: bytes | Exception, timeout_s: float = PATIENCE_S) -> None:
        self.settings = NatsSettings("h", timeout_s=timeout_s)
        self.is_over = False
        self.sent: list[str] = []
        self.limits_s: list[float | None] = []
        self._answers = list(answers)

    async def request(
        self,
        subject: str,
        payload: bytes = b"",  # noqa: ARG002 - as the Protocol has it
        headers: Mapping[str, str] | None = None,  # noqa: ARG002 - the same
        *,
        limit_s: float | None = None,
    ) -> bytes:
        self.sent.append(subject)
        self.limits_s.append(limit_s)
        if subject.startswith("$JS.API.STREAM.INFO"):
            return json.dumps(STREAM).encode()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def answers(self) -> bool:
        return True

    async def close(self) -> None:
        pass


def error(code: int) -> bytes:
    return json.dumps({"error": {"code": 400, "err_code": code, "description": "the server's words"}}).encode()


def put(script: Script) -> int:
    return asyncio.run(BucketApi(lambda: script, "b").publish("$KV.b.a", "a", b"xyz", {}))


def test_a_write_that_nobody_heard_is_sent_again_until_somebody_does() -> None:
    script = Script(NoListener(), NoListener(), b'{"stream":"KV_b","seq":7}')
    assert put(script) == 7
    assert script.sent.count("$KV.b.a") == 3


def test_a_write_that_nobody_ever_hears_ends_at_the_limit() -> None:
    with pytest.raises(NoAnswer):
        put(Script(NoListener(), timeout_s=0.3))


def test_a_write_that_was_sent_and_lost_is_not_sent_again() -> None:
    for waited_s in (None, 5.0):
        script = Script(Unanswered(waited_s), b'{"seq":1}')
        with pytest.raises(AnswerLost):
            put(script)
        assert script.sent == ["$KV.b.a"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (10071, RevisionMismatch),
        (10164, RevisionMismatch),
        (10077, BucketFull),
        (10054, RecordTooLarge),
        (10165, NotSupported),
        (10166, NotSupported),
        (10059, BucketNotFound),
        (10058, BucketExists),
        (10039, JetStreamDisabled),
        (10076, JetStreamDisabled),
        (10167, ServerRefused),
    ],
)
def test_a_refusal_is_told_by_its_code_alone(code: int, kind: type[StrandlineError]) -> None:
    with pytest.raises(kind) as caught:
        put(Script(error(code)))
    assert type(caught.value) is kind
    assert caught.value.hint


@pytest.mark.parametrize("answer", [b"", b"hello", b"[]", b"{}", b'{"seq":0}', b'{"seq":"x"}'])
def test_an_answer_that_is_none_is_not_taken_for_one(answer: bytes) -> None:
    with pytest.raises(FormatError):
        put(Script(answer))


@pytest.mark.parametrize(("waited_s", "kind"), [(None, ConnectionDropped), (5.0, NoAnswer)])
def test_a_read_that_is_lost_changed_nothing(waited_s: float | None, kind: type[StrandlineError]) -> None:
    calls = BucketApi(lambda: Script(Unanswered(waited_s), timeout_s=2.0), "b")
    with pytest.raises(kind):
        asyncio.run(calls.read("STREAM.MSG.GET.KV_b", {}))


def test_a_read_that_is_not_answered_is_asked_again_with_more_patience() -> None:
    script = Script(Unanswered(2.0), error(10008), Unanswered(4.0), b'{"message":{}}', timeout_s=PATIENCE_S)
    assert asyncio.run(BucketApi(lambda: script, "b").read("STREAM.MSG.GET.KV_b", {})) == {"message": {}}
    assert script.limits_s == [2.0, 2.5, 3.125, 3.90625]


@pytest.mark.parametrize("code", [10004, 10008, 10009, 10118])
def test_a_read_is_asked_again_while_servers_elect(code: int) -> None:
    script = Script(error(code), b'{"message":{}}')
    assert asyncio.run(BucketApi(lambda: script, "b").read("STREAM.MSG.GET.KV_b", {})) == {"message": {}}


class Forgetful(Script):
    """A server that does not know the stream when it is first asked, so many times."""

    def __init__(self, forgets: float) -> None:
        super().__init__(b"")
        self._forgets = forgets

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        limit_s: float | None = None,
    ) -> bytes:
        answer = await super().request(subject, payload, headers, limit_s=limit_s)
        return answer if len(self.sent) > self._forgets else error(10059)


def retention(script: Script) -> Retention:
    watcher = NatsWatcher(
        BucketApi(lambda: script, "b"), parse_stream_info(STREAM), lambda: script.settings, Watches(), Overrun.PROBE
    )
    return asyncio.run(watcher.retention())


def test_a_bucket_that_was_there_may_seem_gone_for_a_moment() -> None:
    assert retention(Forgetful(1)).last_revision == 0
    with pytest.raises(BucketNotFound):
        retention(Forgetful(math.inf))


def test_a_change_of_a_bucket_that_is_lost_may_have_been_done() -> None:
    with pytest.raises(AnswerLost, match="bucket"):
        asyncio.run(BucketApi(lambda: Script(Unanswered(None)), "b").change("STREAM.CREATE.KV_b", {}))
