"""Columns and rows are two ways to the same: batches, bytes of a log, digests, and the index of keys."""

from itertools import accumulate
from random import Random
from unittest.mock import patch
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.fold import (
    FoldBatch,
    Held,
    MemoryStore,
    PutColumns,
    batches,
    format_record,
    key_index,
    log_format,
    log_rows,
)
from strandline.fold.batches import paged
from strandline.fold.columns import are_distinct, equal_rows, hash_rows, version_column
from strandline.fold.digests import digest_columns
from strandline.fold.log_format import BLANK, HEADER, format_batch
from strandline.fold.log_rows import GONE, LENGTH_MASK
from strandline.fold.log_scan import scan_log
from strandline.fold.resident import ResidentFold
from strandline.kv import NO_CURSOR, UpdateBatch, UpdateKind, WatchCursor, format_cursor, format_revision
from strandline.testing.snapshot_stores import changes, everything
from tests.fold.plain_digest import digest_rows

KEYS = st.one_of(st.binary(min_size=1, max_size=3), st.binary(min_size=6, max_size=30))
ROW = st.tuples(
    KEYS, st.binary(max_size=20), st.sampled_from([b"", b"\0", b"12345678", b"1234567890"]), st.integers(0, 2)
)
ROWS = st.lists(ROW, max_size=40)
Rows = list[tuple[bytes, bytes, bytes, int]]


@pytest.fixture(autouse=True)
def _columns_for_any_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "COLUMN_ROWS_MIN", 0)


def both(rows: Rows) -> tuple[FoldBatch, FoldBatch]:
    """Return the same batch from lists and from Arrow, the latter sliced out of longer columns."""
    keys, values, versions = ([row[at] for row in rows] for at in range(3))
    kinds = np.array([row[3] for row in rows], np.uint8)
    longer = [pa.array([b"before", *column, b"after"], pa.binary()) for column in (keys, values, versions)]
    first, second, third = (column[1:-1] for column in longer)
    return FoldBatch(keys, values, versions, kinds), FoldBatch(first, second, third, kinds)


@given(rows=ROWS)
def test_a_batch_is_the_same_from_lists_and_from_columns(rows: Rows) -> None:
    listed, columns = both(rows)
    assert columns.put_columns is not None
    assert listed.put_columns is None
    assert tuple(map(list, columns.puts)) == tuple(map(list, listed.puts))
    assert tuple(map(list, columns.deletes)) == tuple(map(list, listed.deletes))
    assert (list(columns.keys), list(columns.values), list(columns.versions)) == (
        list(listed.keys),
        list(listed.values),
        list(listed.versions),
    )


@given(rows=ROWS, cursor=st.sampled_from([b"", b"c", b"\0" * 255]), at_once=st.sampled_from([1, 60, 1 << 30]))
def test_the_bytes_of_a_log_are_the_same_from_lists_and_from_columns(rows: Rows, cursor: bytes, at_once: int) -> None:
    listed, columns = both(rows)
    with patch.object(log_format, "_BYTES_AT_ONCE", at_once), patch.object(log_format, "_ROWS_PER_CHECK", 3):
        one, other = format_batch(listed, WatchCursor(cursor)), format_batch(columns, WatchCursor(cursor))
    data = b"".join(other.parts)
    assert data == b"".join(one.parts)
    assert one.size == other.size == len(data)
    assert one.lengths.tolist() == other.lengths.tolist()
    found = scan_log("log", HEADER + data)
    assert found.damage is None
    assert found.cursor == cursor
    assert (found.rows.spans & np.uint64(LENGTH_MASK)).tolist() == one.lengths.tolist()
    starts = accumulate(one.lengths.tolist(), initial=len(HEADER))
    assert found.rows.starts.tolist() == list(starts)[:-1]


def test_the_place_of_a_checksum_does_not_count_in_it() -> None:
    assert crc32(BLANK) == 0
    assert crc32(BLANK + b"anything") == crc32(b"anything")


@example(keys=[b"\x05", bytes(6)])
@given(keys=st.lists(KEYS, max_size=30))
def test_equal_rows_have_equal_hashes_and_others_nearly_never(keys: list[bytes]) -> None:
    hashes = hash_rows(pa.array([b"x", *keys], pa.binary())[1:]).tolist()
    by_key = dict(zip(keys, hashes, strict=True))
    assert [by_key[key] for key in keys] == hashes
    assert len(set(hashes)) == len(set(keys)), "keys of up to 64 bytes are hashed whole"
    assert are_distinct(np.array(hashes, np.uint64)) == (len(set(keys)) == len(keys))


def test_short_rows_of_every_length_and_small_numbers_have_hashes_of_their_own() -> None:
    rows = [number.to_bytes(length, "little") for length in range(1, 9) for number in range(256)]
    assert are_distinct(hash_rows(pa.array([b"", *rows], pa.binary())))


def test_keys_that_differ_where_no_hash_looks_are_still_told_apart() -> None:
    keys = [b"a" * 80 + b"%03d" % at + b"b" * 80 for at in range(200)]
    assert not are_distinct(hash_rows(pa.array(keys, pa.binary())))
    _, batch = both([(key, b"v", b"", 0) for key in (*keys, keys[7])])
    assert list(batch.puts.keys) == [*keys[:7], *keys[8:], keys[7]]


@pytest.mark.parametrize("revisions", [[], [1, 2**64 - 1], [0, 5, 0, 7], [0]])
def test_revisions_become_tokens_and_0_the_unknown_one(revisions: list[int]) -> None:
    column = version_column(np.array(revisions, np.uint64))
    assert column.to_pylist() == [format_revision(revision) if revision else b"" for revision in revisions]


def test_an_empty_value_of_a_bucket_is_one_of_a_fold() -> None:
    kinds = np.array([UpdateKind.PUT, UpdateKind.PUT, UpdateKind.PURGE], np.uint8)
    updates = UpdateBatch.from_columns(["a", "b", "c"], kinds, np.arange(1, 4, dtype=np.uint64), [b"1", b"", b""])
    batch = FoldBatch.from_updates(updates)
    assert (list(batch.puts.keys), list(batch.deletes.keys)) == ([b"a", b"b"], [b"c"])


@given(rows=st.dictionaries(KEYS, st.tuples(st.binary(max_size=20), st.binary(max_size=10)), max_size=20))
def test_a_digest_is_the_same_from_rows_and_from_columns(rows: dict[bytes, tuple[bytes, bytes]]) -> None:
    records = [(key, format_record(rows[key][1], rows[key][0])) for key in sorted(rows)]
    pages = list(paged(records, 7))
    assert digest_columns(pages) == digest_rows(records)
    assert digest_columns(paged(records, 1)) == digest_rows(records)
    assert [key for page in pages for key in page.keys.to_pylist()] == sorted(rows)


@pytest.mark.parametrize("odd", [None, "key", "value", "version", "no value"])
def test_rows_of_equal_lengths_come_to_the_same_bytes_and_digest(odd: str | None) -> None:
    """They are laid side by side in a matrix; one row of another length, and all are joined one by one."""
    rows: Rows = [(b"key %02d" % at, b"%03d" % at, format_revision(at + 1), 0) for at in range(10)]
    if odd is not None:
        key, value, version = rows[4][:3]
        changed = {"key": (key + b"x", value, version), "value": (key, b"", version), "version": (key, value, b"")}
        rows[4] = (*changed.get(odd, rows[4][:3]), 0)
    if odd == "no value":
        rows = [(key, b"", version, 0) for key, _, version, _ in rows]
    listed, columns = both(rows)
    assert columns.put_columns is not None
    assert (equal_rows(columns.put_columns) is None) == (odd is not None)
    with patch.object(log_format, "_ROWS_PER_CHECK", 3):
        one, other = (b"".join(format_batch(batch, WatchCursor(b"c")).parts) for batch in (listed, columns))
    assert one == other
    records = [(key, format_record(version, value)) for key, value, version, _ in rows]
    assert digest_columns([columns.put_columns]) == digest_rows(records)


def test_pages_end_before_they_are_too_large() -> None:
    store = MemoryStore()
    store.apply(*changes(1, *((b"key %d" % at, bytes(at * 10)) for at in range(10))))
    with patch("strandline.fold.log_snapshot.PAGE_BYTES", 120), patch.object(batches, "PAGE_BYTES", 120):
        lengths = [len(page.keys) for page in store.pages().columns]
        records = [(found.key, format_record(found.version, found.value)) for found in store.range()]
        stored = [len(page.keys) for page in paged(records, 100)]
    assert sum(lengths) == sum(stored) == 10
    assert max(lengths) > 1
    assert lengths[-1] == stored[-1] == 1


def random_batches(seed: int, count: int) -> list[FoldBatch]:
    random = Random(seed)
    found = []
    for _ in range(count):
        rows = [
            (b"key %d" % random.randrange(60), bytes(random.randrange(30)), b"", random.choice([0, 0, 0, 1, 2]))
            for _ in range(random.randrange(12))
        ]
        found.append(random.choice(both(rows)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_fold_is_the_same_whenever_it_is_first_asked(seed: int) -> None:
    asked, unasked = ResidentFold(), ResidentFold()
    list(asked.entries())
    for number, batch in enumerate(random_batches(seed, 30), 1):
        for fold in (asked, unasked):
            fold.apply(batch, format_cursor(number), format_batch(batch, format_cursor(number)))
        list(asked.entries())
        data = b"".join(unasked.parts())
        reread = ResidentFold.of(data, scan_log("log", data))
        assert reread.held() == asked.held()
        assert list(reread.entries()) == list(asked.entries())
        assert reread.index.bytes_least() == asked.index.bytes_live() == reread.index.bytes_live()
    assert unasked.index.bytes_least() <= asked.index.bytes_live()
    assert list(unasked.entries()) == list(asked.entries())
    assert unasked.index.bytes_live() == asked.index.bytes_live()
    assert unasked.verified() == asked.verified()


def test_whether_there_is_a_key_is_known_without_an_index_if_one_was_never_deleted() -> None:
    fold = ResidentFold()
    batches_of: list[list[tuple[bytes, bytes | None]]] = [[(b"a", b"1"), (b"b", b"1")], [(b"a", None), (b"c", None)]]
    for at, rows in enumerate(batches_of):
        batch, cursor = changes(1 + 10 * at, *rows)
        fold.apply(batch, cursor, format_batch(batch, cursor))
    assert fold.held() == Held(format_cursor(12), has_data=True)
    assert not fold.index.is_built
    batch, cursor = changes(20, (b"b", None))
    fold.apply(batch, cursor, format_batch(batch, cursor))
    assert fold.held() == Held(format_cursor(20), has_data=False)
    batch, cursor = changes(30, (b"a", b"again"))
    fold.apply(batch, cursor, format_batch(batch, cursor))
    assert fold.held() == Held(format_cursor(30), has_data=True)


@pytest.mark.parametrize("later", [[], [b"key 03", b"key 07", b"new"], [b"key 05", None]])
def test_what_counts_of_a_sorted_log_is_known_at_once(later: list[bytes | None]) -> None:
    rows: Rows = [(b"key %02d" % at, bytes(at), b"", 0) for at in range(50)]
    first = both(rows)[1]
    data = HEADER + b"".join(format_batch(first, NO_CURSOR).parts)
    fold = ResidentFold.of(data, scan_log("log", data))
    whole = fold.index.bytes_sure()
    assert whole == len(data) - len(HEADER)
    for key in later:
        batch, cursor = changes(9, (key or b"key 09", None if key is None else b"x"))
        fold.apply(batch, cursor, format_batch(batch, cursor))
    sure = fold.index.bytes_sure()
    assert not fold.index.is_built
    assert whole // 2 < sure <= fold.index.bytes_live()
    assert fold.index.bytes_sure() == fold.index.bytes_live()


def test_what_counts_is_never_told_too_high_before_somebody_asks() -> None:
    for seed in range(10):
        with patch.object(key_index, "_SLOTS", 32):
            fold = ResidentFold()
            for batch in random_batches(seed, 20):
                fold.apply(batch, NO_CURSOR, format_batch(batch, NO_CURSOR))
                sure, least = fold.index.bytes_sure(), fold.index.bytes_least()
                data = b"".join(fold.parts())
                assert max(sure, least) <= ResidentFold.of(data, scan_log("log", data)).index.bytes_live()


def test_many_batches_that_nobody_asks_about_are_indexed_in_the_end() -> None:
    fold = ResidentFold()
    for number in range(1, 300):
        batch, cursor = changes(number, (b"key %d" % (number % 7), b"%d" % number))
        fold.apply(batch, cursor, format_batch(batch, cursor))
    assert fold.index.is_built
    assert len(list(fold.entries())) == 7


@given(rows=ROWS, window=st.sampled_from([1, 100, 1 << 30]))
def test_keys_of_a_log_are_found_in_windows_of_any_size(rows: Rows, window: int) -> None:
    batch, _ = both(rows)
    data = HEADER + b"".join(format_batch(batch, NO_CURSOR).parts)
    with patch.object(log_rows, "_WINDOW_BYTES", window):
        found = ResidentFold.of(data, scan_log("log", data))
    twin = MemoryStore()
    twin.apply(batch, NO_CURSOR)
    assert list(found.entries()) == everything(twin)[1]


@pytest.mark.parametrize("harm", [None, *range(0, 3000, 97)])
def test_a_long_run_of_equal_lengths_is_read_like_any_other(harm: int | None) -> None:
    """Runs are checked together; what comes out is what reading record by record would."""
    rows = [(b"k%03d" % at, b"%04d" % at, b"12345678", 0) for at in range(100)]
    data = bytearray(HEADER + b"".join(format_batch(both(rows)[0], WatchCursor(b"c")).parts))
    if harm is not None:
        data[len(HEADER) + harm % (len(data) - len(HEADER))] ^= 0x10
    with patch("strandline.fold.log_scan._ALIKE_MIN", 1 << 30):
        slow = scan_log("log", bytes(data))
    fast = scan_log("log", bytes(data))
    assert (fast.end, fast.cursor, fast.damage, fast.settled) == (slow.end, slow.cursor, slow.damage, slow.settled)
    assert fast.rows.spans.tolist() == slow.rows.spans.tolist()
    assert fast.rows.key_lengths.tolist() == slow.rows.key_lengths.tolist()


def test_columns_of_pages_are_of_the_public_kind() -> None:
    store = MemoryStore()
    store.apply(*changes(1, (b"a", b"1")))
    (page,) = store.pages().columns
    assert page == PutColumns(*(pa.array([part], pa.binary()) for part in (b"a", b"1", format_revision(1))))


@given(rows=st.lists(st.one_of(KEYS, st.binary(max_size=90)), min_size=1, max_size=20))
def test_a_row_has_the_same_hash_in_every_batch(rows: list[bytes]) -> None:
    together = hash_rows(pa.array(rows, pa.binary()))
    assert [int(hash_rows(pa.array([row], pa.binary()))[0]) for row in rows] == together.tolist()


def test_a_key_that_was_put_beside_longer_ones_counts_as_the_same_key() -> None:
    short, long = b"device.short", b"device.of.a.much.longer.name"
    index = key_index.KeyIndex()
    for keys, kinds in (([short, long], [0, 0]), ([short], [1]), ([long], [1])):
        batch = FoldBatch(keys, [b""] * len(keys), [b""] * len(keys), np.array(kinds, np.uint8))
        index.apply(batch, np.array([GONE * kind | 100 for kind in kinds], np.uint64))
    assert index.bytes_least() == 0
    assert not index.is_built
    assert not index, "both are deleted"
