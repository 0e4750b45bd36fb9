"""Errors of buckets pickle with their fields, give a hint, and say whether to try again."""

import pickle

import pytest

from strandline import kv
from strandline.errors import Conflict, InvalidInput, StrandlineError, Unavailable, UnknownOutcome

ERRORS: list[StrandlineError] = [
    kv.AccessRefused("no"),
    kv.AlreadyExists("k"),
    kv.AnswerLost("k"),
    kv.BucketExists("b", "history is 1, not 2"),
    kv.BucketFull("b", "5 updates"),
    kv.BucketNotFound("b"),
    kv.BucketPurged("b", 1, 5, 4),
    kv.BucketReplaced("b", 1, 2, 3),
    kv.ConnectionDropped(),
    kv.CursorExpired("b", 1, 3, 9),
    kv.InvalidBucket("a.b"),
    kv.InvalidKey("a..b", "has an empty token"),
    kv.JetStreamDisabled(),
    kv.LoginRefused("h:1"),
    kv.NoAnswer("a question", 30.0),
    kv.NotConnected("new"),
    kv.NotSupported("that"),
    kv.RevisionMismatch("k"),
    kv.ServerRefused(10047, "storage"),
    kv.TlsRefused("h:1", "no trust"),
    kv.Unreachable("h:1"),
]


def test_every_error_of_buckets_is_looked_at() -> None:
    public = {each for each in vars(kv).values() if isinstance(each, type) and issubclass(each, StrandlineError)}
    assert public == {type(error) for error in ERRORS}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_pickles_and_gives_a_hint(error: StrandlineError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(again) is type(error)
    assert (str(again), again.__dict__) == (str(error), error.__dict__)
    assert error.hint
    assert isinstance(error, Conflict | InvalidInput | Unavailable | UnknownOutcome)


def test_what_may_pass_by_itself_may_be_tried_again() -> None:
    again = {type(error).__name__ for error in ERRORS if error.retryable}
    assert again == {"BucketFull", "ConnectionDropped", "NoAnswer", "NotConnected", "ServerRefused", "Unreachable"}
