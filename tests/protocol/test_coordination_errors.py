"""Errors of coordination pickle, tell what happened, and show no key, cursor or token."""

import inspect
import pickle
from collections.abc import Callable

import pytest

from strandline.errors import Conflict, Damaged, InvalidInput, StrandlineError, Unavailable
from strandline.protocol import errors

CLASSES = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if found.__module__ == errors.__name__ and found is not errors.LeaseLost
]
VALUES = {
    "problem": "it is so",
    "status": "done",
    "what": "a record",
    "deadline": 12,
    "op_id": -2,
    "shard": -1,
    "run": 5,
}


def example(kind: Callable[..., StrandlineError]) -> StrandlineError:
    names = list(inspect.signature(kind).parameters)
    return kind(**{name: VALUES.get(name, 3) for name in names})


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_survive_pickling_with_their_fields(kind: type[StrandlineError]) -> None:
    error = example(kind)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is kind
    assert (str(again), again.__dict__) == (str(error), error.__dict__)
    assert all(name in error.__dict__ for name in inspect.signature(kind).parameters)


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_are_in_the_tree_that_their_docstring_draws(kind: type[StrandlineError]) -> None:
    assert f"─ {kind.__name__}" in (errors.__doc__ or "")
    assert issubclass(kind, InvalidInput | Conflict | Unavailable | Damaged)


def test_ids_are_shown_as_the_hex_digits_of_their_bits() -> None:
    assert str(errors.ShardNotFound(5, -1)) == "shard ffffffffffffffff of run 0000000000000005 does not exist"


def test_a_lost_lease_is_one_class_to_catch() -> None:
    assert issubclass(errors.StaleFence, errors.LeaseLost)
    assert issubclass(errors.LeaseExpired, errors.LeaseLost)
    assert not example(errors.StaleFence).retryable
