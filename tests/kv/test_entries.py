"""Values shared by buckets and folds: tokens sort, columns and updates are two forms of the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError, InvalidInput
from strandline.kv import (
    NO_CURSOR,
    UNKNOWN_VERSION,
    Delete,
    KvUpdate,
    Purge,
    Put,
    UpdateBatch,
    UpdateKind,
    VersionToken,
    format_cursor,
    format_revision,
    kind_of,
    make_update,
    parse_cursor,
    parse_revision,
)

revisions = st.integers(0, 2**64 - 1)
versions = st.one_of(st.just(UNKNOWN_VERSION), st.integers(1, 2**64 - 1).map(format_revision))
updates = st.one_of(
    st.builds(Put, st.text(min_size=1), st.binary(), versions),
    st.builds(Delete, st.text(min_size=1), versions),
    st.builds(Purge, st.text(min_size=1), versions),
)


@given(revisions, revisions)
def test_tokens_and_cursors_sort_as_their_revisions(one: int, other: int) -> None:
    assert parse_revision(format_revision(one)) == parse_cursor(format_cursor(one)) == one
    assert (
        (format_revision(one) < format_revision(other)) == (format_cursor(one) < format_cursor(other)) == (one < other)
    )


def test_unknown_is_not_revision_zero() -> None:
    assert parse_revision(UNKNOWN_VERSION) is None
    assert parse_cursor(NO_CURSOR) is None
    assert parse_revision(format_revision(0)) == 0


@pytest.mark.parametrize("revision", [-1, 2**64])
def test_revisions_that_do_not_fit_are_refused(revision: int) -> None:
    with pytest.raises(InvalidInput):
        format_revision(revision)


def test_tokens_of_another_kind_are_not_revisions() -> None:
    with pytest.raises(FormatError):
        parse_revision(VersionToken(b"0123456789"))


@given(st.lists(updates))
def test_updates_and_columns_are_the_same(rows: list[KvUpdate]) -> None:
    batch = UpdateBatch.from_updates(rows)
    assert batch.to_updates() == list(batch) == rows
    assert len(batch) == len(rows)
    assert UpdateBatch.from_arrow(batch.to_arrow()) == batch
    assert batch.high == max((parse_revision(row.version) or 0 for row in rows), default=0)
    middle = len(rows) // 2
    assert batch.slice(0, middle).to_updates() + batch.slice(middle, len(rows)).to_updates() == rows


def test_values_may_be_views_and_become_bytes() -> None:
    view = memoryview(b"xvaluex")[1:6]
    batch = UpdateBatch.from_columns(["a"], np.array([0], np.uint8), np.array([7], np.uint64), [view])
    assert batch.to_updates() == [Put("a", b"value", format_revision(7))]
    assert batch.to_arrow().column("value").to_pylist() == [b"value"]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidInput):
        UpdateBatch.from_columns(["a"], np.zeros(2, np.uint8), np.zeros(1, np.uint64), [b""])


def test_other_columns_and_kinds_are_refused() -> None:
    with pytest.raises(FormatError):
        UpdateBatch.from_arrow(UpdateBatch.from_updates([]).to_arrow().select(["key"]))
    with pytest.raises(InvalidInput):
        make_update(9, "a", UNKNOWN_VERSION)
    assert [kind_of(make_update(kind, "a", UNKNOWN_VERSION)) for kind in UpdateKind] == list(UpdateKind)
