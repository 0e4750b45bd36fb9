"""Marks and scopes: what a fold's cursor says, and that it says the same when it is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError, InvalidInput
from strandline.fold import ALL, Mark, Scope, format_mark, parse_mark
from strandline.fold.marks import UNKNOWN
from strandline.kv import NO_CURSOR, InvalidKey, WatchCursor, format_cursor

eight = st.binary(min_size=8, max_size=8)
numbers = st.integers(0, 2**64 - 1)
marks = st.builds(Mark, numbers, st.booleans(), eight, eight, numbers)


@given(marks)
def test_marks_round_trip(mark: Mark) -> None:
    formatted = format_mark(mark)
    assert len(formatted) == 33
    assert parse_mark(formatted) == mark


@given(marks, marks)
def test_marks_sort_as_their_revisions_do(one: Mark, two: Mark) -> None:
    if one.revision != two.revision:
        assert (format_mark(one) < format_mark(two)) == (one.revision < two.revision)


def test_older_cursors_are_read_too() -> None:
    assert parse_mark(NO_CURSOR) == Mark()
    assert parse_mark(format_cursor(7)) == Mark(7)
    whole = Mark(7, True, b"identity", b"thescope", 9)
    assert parse_mark(WatchCursor(format_mark(whole)[:25])) == whole._replace(since_ns=0)


@pytest.mark.parametrize("cursor", [b"x", bytes(9), bytes(26), bytes(32), bytes(34), bytes(8) + b"\x02" + bytes(24)])
def test_what_is_no_mark_is_refused(cursor: bytes) -> None:
    with pytest.raises(FormatError):
        parse_mark(WatchCursor(cursor))


@pytest.mark.parametrize(
    "mark", [Mark(-1), Mark(2**64), Mark(1, identity=b""), Mark(1, scope=b"123456789"), Mark(1, since_ns=-1)]
)
def test_what_does_not_fit_into_a_mark_is_refused(mark: Mark) -> None:
    with pytest.raises(InvalidInput):
        format_mark(mark)


def test_a_mark_without_a_revision_begins_with_the_state() -> None:
    assert Mark(0, seen_evicting=True).cursor == NO_CURSOR
    assert Mark(3).cursor == format_cursor(3)


def test_scopes_that_name_the_same_keys_are_the_same() -> None:
    assert Scope.of("b.", "a.", "a.x.", "b.") == Scope.of("a.", "b.")
    assert Scope.of("b.", "a.").digest == Scope.of("a.", "b.", "a.b.c.").digest
    assert Scope.of("a.", "") == Scope.of() == ALL
    assert len({ALL.digest, Scope.of("a.").digest, Scope.of("b.").digest, Scope.of("a.", "b.").digest, UNKNOWN}) == 5


def test_a_scope_has_keys_below_its_prefixes_only() -> None:
    scope = Scope.of("a.", "b.c.")
    assert [scope.has(key) for key in (b"a.x", b"b.c.d", b"b.x", b"ab.x", b"a")] == [True, True, False, False, False]
    assert ALL.has(b"anything")
    assert (str(scope), str(ALL)) == ("a.* b.c.*", "all keys")


@pytest.mark.parametrize("prefixes", [(), ("a",), ("a.*.",), ("a..",)])
def test_what_is_no_prefix_makes_no_scope(prefixes: tuple[str, ...]) -> None:
    with pytest.raises(InvalidKey):
        Scope(prefixes)
