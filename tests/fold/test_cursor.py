"""Marks and scopes: what a fold's cursor says, and that it says the same when it is read."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError, InvalidInput
from strandline.fold import ALL, FoldCursor, Scope, format_fold_cursor, parse_fold_cursor
from strandline.fold.cursor import UNKNOWN
from strandline.kv import NO_CURSOR, InvalidKey, WatchCursor, format_cursor
from strandline.protocol.fold_modes import FoldMode

eight = st.binary(min_size=8, max_size=8)
numbers = st.integers(0, 2**64 - 1)
prefixes = st.text("abc", min_size=1, max_size=5).map(lambda text: f"{text}.")
scopes = st.lists(prefixes, max_size=12).map(lambda chosen: Scope.of(*chosen))
flags = st.booleans()
marks = st.builds(
    FoldCursor, numbers, flags, eight, scopes | eight, numbers, st.sampled_from(FoldMode), numbers, flags, flags
)


@given(marks)
def test_marks_round_trip(mark: FoldCursor) -> None:
    formatted = format_fold_cursor(mark)
    assert len(formatted) <= 255
    assert parse_fold_cursor(formatted) == mark


def test_a_scope_of_very_many_prefixes_is_kept_as_its_digest() -> None:
    scope = Scope.of(*(f"prefix-{number}." for number in range(100)))
    stored = parse_fold_cursor(format_fold_cursor(FoldCursor(1, scope=scope))).scope
    assert stored == scope.digest
    assert scope.is_stored_as(stored)
    assert scope.is_covered_by(stored)
    assert not Scope.of("prefix-1.").is_covered_by(stored)


@given(marks, marks)
def test_marks_sort_as_their_revisions_do(one: FoldCursor, two: FoldCursor) -> None:
    if one.revision != two.revision:
        assert (format_fold_cursor(one) < format_fold_cursor(two)) == (one.revision < two.revision)


def test_older_cursors_are_read_too() -> None:
    assert parse_fold_cursor(NO_CURSOR) == FoldCursor()
    assert parse_fold_cursor(format_cursor(7)) == FoldCursor(7)
    old = struct.pack(">QB8s8sQ", 7, 1, b"identity", b"thescope", 9)
    whole = FoldCursor(7, True, b"identity", b"thescope", 9, seen_dropping=True)
    assert parse_fold_cursor(WatchCursor(old)) == whole
    assert parse_fold_cursor(WatchCursor(old[:25])) == whole._replace(since_ns=0)
    assert parse_fold_cursor(WatchCursor(struct.pack(">QB8s8sQ", 7, 0, b"identity", bytes(8), 0))) == FoldCursor(
        7, False, b"identity"
    )


NO_MARKS = [
    bytes(8) + b"\x20" + bytes(25),
    bytes(8) + b"\x18" + bytes(25),
    bytes(33) + b"\x03",
    bytes(34) + b"x",
    bytes(33) + b"\x01" + bytes(7),
    bytes(33) + b"\x02a",
    bytes(33) + b"\x02\xff",
]
"""Flags, modes and kinds of scopes that there are not, and scopes of another length or that are none."""


@pytest.mark.parametrize("cursor", [b"x", bytes(9), bytes(26), bytes(32), bytes(8) + b"\x02" + bytes(24), *NO_MARKS])
def test_what_is_no_mark_is_refused(cursor: bytes) -> None:
    with pytest.raises(FormatError):
        parse_fold_cursor(WatchCursor(cursor))


@pytest.mark.parametrize(
    "mark",
    [
        FoldCursor(-1),
        FoldCursor(2**64),
        FoldCursor(1, identity=b""),
        FoldCursor(1, scope=b"123456789"),
        FoldCursor(1, since_ns=-1),
    ],
)
def test_what_does_not_fit_into_a_mark_is_refused(mark: FoldCursor) -> None:
    with pytest.raises(InvalidInput):
        format_fold_cursor(mark)


def test_a_mark_without_a_revision_begins_with_the_state() -> None:
    assert FoldCursor(0, seen_evicting=True).watch_cursor == NO_CURSOR
    assert FoldCursor(3).watch_cursor == format_cursor(3)


def test_scopes_that_name_the_same_keys_are_the_same() -> None:
    assert Scope.of("b.", "a.", "a.x.", "b.") == Scope.of("a.", "b.")
    assert Scope.of("b.", "a.").digest == Scope.of("a.", "b.", "a.b.c.").digest
    assert Scope.of("a.", "") == Scope.of() == ALL
    assert len({ALL.digest, Scope.of("a.").digest, Scope.of("b.").digest, Scope.of("a.", "b.").digest, UNKNOWN}) == 5


@pytest.mark.parametrize(
    ("held", "asked", "covers"),
    [
        (ALL, Scope.of("a."), True),
        (Scope.of("a.", "b."), Scope.of("a."), True),
        (Scope.of("a.", "b."), Scope.of("a.", "b.c."), True),
        (Scope.of("a."), Scope.of("a.", "b."), False),
        (Scope.of("a.b."), Scope.of("a."), False),
        (Scope.of("a."), ALL, False),
        (Scope.of("a.").digest, Scope.of("a."), True),
        (Scope.of("a.", "b.").digest, Scope.of("a."), False),
        (ALL.digest, Scope.of("a."), True),
        (UNKNOWN, Scope.of("a."), True),
    ],
)
def test_what_a_mark_says_of_its_scope_tells_what_a_fold_can_vouch_for(
    held: Scope | bytes, asked: Scope, covers: bool
) -> None:
    stored = parse_fold_cursor(format_fold_cursor(FoldCursor(1, scope=held))).scope
    assert asked.is_covered_by(stored) is covers


def test_a_scope_has_keys_below_its_prefixes_only() -> None:
    scope = Scope.of("a.", "b.c.")
    assert [scope.has(key) for key in (b"a.x", b"b.c.d", b"b.x", b"ab.x", b"a")] == [True, True, False, False, False]
    assert ALL.has(b"anything")
    assert (str(scope), str(ALL)) == ("a.* b.c.*", "all keys")


@pytest.mark.parametrize("prefixes", [(), ("a",), ("a.*.",), ("a..",)])
def test_what_is_no_prefix_makes_no_scope(prefixes: tuple[str, ...]) -> None:
    with pytest.raises(InvalidKey):
        Scope(prefixes)
