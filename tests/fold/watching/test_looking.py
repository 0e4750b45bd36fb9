"""What a fold learns from a look at its bucket."""

from strandline.fold.marks import Mark
from strandline.fold.scopes import ALL
from strandline.fold.watching.looking import Look, is_same_log, is_worth_noting, remembered, sighted
from strandline.kv import Retention
from strandline.protocol.fold_modes import FoldMode

AGES = Retention(True, 1, 9, age_only=True, age_max_ns=800, identity=b"identity")
KEEPS = Retention(False, 1, 9, identity=b"identity")


def test_a_mark_knows_since_when_it_has_everything_only_if_the_log_did_not_reach_beyond_it() -> None:
    assert sighted(Mark(9), Look(AGES, 1000)).since_ns == 1000
    assert sighted(Mark(12), Look(AGES, 1000)).since_ns == 1000
    assert sighted(Mark(8, since_ns=5), Look(AGES, 1000)).since_ns == 5, "something is on its way"
    assert sighted(Mark(9, since_ns=2000), Look(AGES, 1000)).since_ns == 2000
    assert sighted(Mark(9, since_ns=5), Look(None, 1000)).since_ns == 5


def test_a_bucket_that_does_not_only_age_has_no_such_time() -> None:
    assert sighted(Mark(9, since_ns=5), Look(KEEPS, 1000)).since_ns == 0


def test_the_time_is_worth_a_write_now_and_then() -> None:
    assert not is_worth_noting(Mark(9, since_ns=1100), Mark(9, since_ns=1000), Look(AGES, 0))
    assert is_worth_noting(Mark(9, since_ns=1101), Mark(9, since_ns=1000), Look(AGES, 0))
    assert not is_worth_noting(Mark(9, since_ns=1101), Mark(9), Look(KEEPS, 0))


def test_what_was_seen_is_remembered_and_where_it_stands_is_not_touched() -> None:
    mode = FoldMode.MIRROR
    seen = Mark(3, True, b"identity", ALL, mode=mode)
    assert remembered(Mark(3), Look(AGES, 0), ALL, mode) == seen._replace(seen_dropping=True)
    assert remembered(Mark(3, True), Look(KEEPS, 0), ALL, mode) == seen
    assert remembered(Mark(3, True, b"identity"), Look(None, 0), ALL, mode) == seen
    ttl = Retention(True, 1, 3, identity=b"identity", ttl_only=True)
    assert remembered(Mark(3), Look(ttl, 0), ALL, mode) == seen, "a time to live of single values drops nothing"


def test_two_looks_are_at_the_same_bucket_unless_both_say_otherwise() -> None:
    other = Retention(False, 1, 9, identity=b"another!")
    assert is_same_log(Look(AGES, 0), Look(KEEPS, 0))
    assert not is_same_log(Look(KEEPS, 0), Look(other, 0))
    assert is_same_log(Look(KEEPS, 0), Look(Retention(False, 1, 9), 0))
    assert is_same_log(Look(None, 0), Look(other, 0))
