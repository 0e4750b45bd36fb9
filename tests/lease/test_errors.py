"""The errors of leases say what to do, and survive a pickle."""

import pickle

import pytest

from strandline.errors import StrandlineError
from strandline.lease import (
    FenceStale,
    LeaseDamaged,
    LeaseHeld,
    LeaseLost,
    LeaseUnanswered,
    LeaseWriteUnanswered,
)

EXAMPLES: list[StrandlineError] = [
    FenceStale(1, 2),
    LeaseDamaged("s3://bucket/lease", "its record is not JSON"),
    LeaseHeld("s3://bucket/lease", "node-a", "http://a", 7),
    LeaseLost("s3://bucket/lease", 7, "it ended"),
    LeaseUnanswered("s3://bucket/lease", 2.0),
    LeaseWriteUnanswered("s3://bucket/lease", 2.0),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_has_a_hint_and_survives_a_pickle(error: StrandlineError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert error.hint
