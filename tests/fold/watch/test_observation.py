"""What a fold learns from a look at its bucket."""

from strandline.fold.cursor import FoldCursor
from strandline.fold.scopes import ALL
from strandline.fold.watch.observation import Observation, is_same_log, is_worth_noting, remembered, sighted
from strandline.kv import Retention
from strandline.protocol.fold_modes import FoldMode

AGES = Retention(True, 1, 9, age_only=True, age_max_ns=800, identity=b"identity")
KEEPS = Retention(False, 1, 9, identity=b"identity")


def test_a_mark_knows_since_when_it_has_everything_only_if_the_log_did_not_reach_beyond_it() -> None:
    assert sighted(FoldCursor(9), Observation(AGES, 1000)).since_ns == 1000
    assert sighted(FoldCursor(12), Observation(AGES, 1000)).since_ns == 1000
    assert sighted(FoldCursor(8, since_ns=5), Observation(AGES, 1000)).since_ns == 5, "something is on its way"
    assert sighted(FoldCursor(9, since_ns=2000), Observation(AGES, 1000)).since_ns == 2000
    assert sighted(FoldCursor(9, since_ns=5), Observation(None, 1000)).since_ns == 5


def test_a_bucket_that_does_not_only_age_has_no_such_time() -> None:
    assert sighted(FoldCursor(9, since_ns=5), Observation(KEEPS, 1000)).since_ns == 0


def test_the_time_is_worth_a_write_now_and_then() -> None:
    assert not is_worth_noting(FoldCursor(9, since_ns=1100), FoldCursor(9, since_ns=1000), Observation(AGES, 0))
    assert is_worth_noting(FoldCursor(9, since_ns=1101), FoldCursor(9, since_ns=1000), Observation(AGES, 0))
    assert not is_worth_noting(FoldCursor(9, since_ns=1101), FoldCursor(9), Observation(KEEPS, 0))


def test_what_was_seen_is_remembered_and_where_it_stands_is_not_touched() -> None:
    mode = FoldMode.MIRROR
    seen = FoldCursor(3, True, b"identity", ALL, mode=mode)
    assert remembered(FoldCursor(3), Observation(AGES, 0), ALL, mode) == seen._replace(seen_dropping=True)
    assert remembered(FoldCursor(3, True), Observation(KEEPS, 0), ALL, mode) == seen
    assert remembered(FoldCursor(3, True, b"identity"), Observation(None, 0), ALL, mode) == seen
    ttl = Retention(True, 1, 3, identity=b"identity", ttl_only=True)
    assert remembered(FoldCursor(3), Observation(ttl, 0), ALL, mode) == seen, (
        "a time to live of single values drops nothing"
    )


def test_two_looks_are_at_the_same_bucket_unless_both_say_otherwise() -> None:
    other = Retention(False, 1, 9, identity=b"another!")
    assert is_same_log(Observation(AGES, 0), Observation(KEEPS, 0))
    assert not is_same_log(Observation(KEEPS, 0), Observation(other, 0))
    assert is_same_log(Observation(KEEPS, 0), Observation(Retention(False, 1, 9), 0))
    assert is_same_log(Observation(None, 0), Observation(other, 0))
