"""A fold's errors: they survive a pickle, show no secret, and say what to do next."""

import pickle

import pytest

from strandline.errors import Conflict, StrandlineError, Unavailable
from strandline.fold import errors
from strandline.fold.errors import (
    AnotherSource,
    BucketOutruns,
    ModeChanged,
    NotYet,
    RepairRefused,
    ScopeChanged,
    StoreKeptFailing,
)

EXAMPLES: list[StrandlineError] = [
    ScopeChanged("b", "a.*"),
    ModeChanged("b", "mirror"),
    AnotherSource("b", "it was made anew"),
    RepairRefused("b", "it evicts", hint="give a restorer"),
    BucketOutruns("b", 16),
    StoreKeptFailing(16, "no space"),
    NotYet("current", 3.0, 7, "the server is away"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_survives_a_pickle_and_has_a_hint(error: StrandlineError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert error.hint
    assert type(error).__name__ in (errors.__doc__ or "")
    assert isinstance(error, Conflict | Unavailable)


def test_there_is_an_example_of_every_error() -> None:
    made = {found for found in vars(errors).values() if isinstance(found, type) and found.__module__ == errors.__name__}
    assert made == {type(error) for error in EXAMPLES}


def test_what_may_be_tried_again_says_so() -> None:
    assert [error.retryable for error in EXAMPLES] == [False, False, False, False, True, True, True]
    assert isinstance(NotYet("current", 1.0, 0), TimeoutError)
