"""Two folds side by side: every difference and nothing else, whatever the backends and the sizes of their pages."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.fold import MemoryStore, SnapshotStore
from strandline.fold.batches import PutColumns
from strandline.fold.differences import Difference, diff, side_by_side
from strandline.testing.snapshot_stores import changes, entry
from tests.fold.helpers import DURABLE, MODES, opened

KEYS = st.binary(min_size=1, max_size=2)
STATES = st.dictionaries(KEYS, st.binary(max_size=2), max_size=20)
State = dict[bytes, bytes]


def filled(state: State, revision: int = 1) -> MemoryStore:
    store = MemoryStore()
    store.apply(*changes(revision, *((key, state[key]) for key in sorted(state))))
    return store


def of(state: State, revisions: dict[bytes, int]) -> MemoryStore:
    """Return a store in which each key has a revision of its own."""
    store = MemoryStore()
    for key, value in state.items():
        store.apply(*changes(revisions[key], (key, value)))
    return store


@given(left=STATES, right=STATES, left_rows=st.integers(1, 7), right_rows=st.integers(1, 7))
def test_every_difference_is_told_once_in_the_order_of_the_keys(
    left: State, right: State, left_rows: int, right_rows: int
) -> None:
    revisions = {key: at for at, key in enumerate(sorted(left.keys() | right.keys()), 1)}
    ours, theirs = of(left, revisions), of(right, revisions)
    found: list[Difference] = []
    same = 0
    pages = ours.pages(b"", left_rows).columns, theirs.pages(b"", right_rows).columns
    for rows in side_by_side(*pages):
        if isinstance(rows, PutColumns):
            same += len(rows.keys)
        else:
            found += [row for row in rows if row.left != row.right]
            same += sum(row.left == row.right for row in rows)
    wanted = [key for key in revisions if left.get(key) != right.get(key)]
    assert [row.key for row in found] == wanted == [row.key for row in diff(ours, theirs)]
    assert same == len(revisions) - len(wanted)
    for row in found:
        assert (row.left, row.right) == (ours.get(row.key), theirs.get(row.key))


def test_the_same_value_under_another_version_is_a_difference() -> None:
    ours, theirs = filled({b"a": b"1"}, 1), filled({b"a": b"1"}, 2)
    assert list(diff(ours, theirs)) == [Difference(b"a", entry(b"a", b"1", 1), entry(b"a", b"1", 2))]


def test_a_diff_of_a_prefix_leaves_out_the_others() -> None:
    ours, theirs = filled({b"a.1": b"1", b"b.1": b"1"}), filled({})
    assert [row.key for row in diff(ours, theirs, b"b.")] == [b"b.1"]


@pytest.mark.parametrize("backend", DURABLE)
def test_folds_of_any_two_backends_can_be_compared(backend: str, tmp_path: Path) -> None:
    twin = MemoryStore()
    with opened(backend, tmp_path, MODES[1]) as checked:
        for store in (twin, checked.store):
            fill(store)
        assert not list(diff(checked.store, twin))
        twin.apply(*changes(90_000, (b"key 00500", b"other"), (b"key 00700", None), (b"key 00500x", b"new")))
        assert [row.key for row in diff(checked.store, twin)] == [b"key 00500", b"key 00500x", b"key 00700"]
        assert [row.key for row in diff(twin, checked.store)] == [b"key 00500", b"key 00500x", b"key 00700"]


def fill(store: SnapshotStore) -> None:
    store.apply(*changes(1, *((b"key %05d" % at, b"%d" % at) for at in range(10_000))))


def test_what_is_applied_meanwhile_is_not_seen() -> None:
    ours, theirs = MemoryStore(), MemoryStore()
    fill(ours)
    found = diff(ours, theirs)
    assert next(found).key == b"key 00000"
    ours.apply(*changes(90_000, *((b"key %05d" % at, None) for at in range(5000, 10_000))))
    assert sum(1 for _ in found) == 9999
