"""Changes as columns: what is refused, what is left of them, and how a bucket's updates become changes of a fold."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput, RecordTooLarge
from strandline.fold import FoldBatch, MemoryStore, format_record, parse_record
from strandline.fold.batches import Deletes, Puts, paged
from strandline.fold.digests import digest_columns
from strandline.fold.log_format import format_batch
from strandline.fold.records import prefix_end
from strandline.fold.resident import ResidentFold
from strandline.kv import (
    NO_CURSOR,
    Delete,
    KvUpdate,
    Purge,
    Put,
    UpdateBatch,
    UpdateKind,
    VersionToken,
    format_cursor,
    format_revision,
)
from strandline.testing.snapshot_stores import changes

ROWS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"c\xff", b"\xff"]), st.one_of(st.none(), st.binary(max_size=3))),
    max_size=8,
)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (([b"a"], [], [b""]), InvalidInput),
        (([b"a"], [b""], []), InvalidInput),
        (([b"a"], [b""], [b""], np.zeros(2, np.uint8)), InvalidInput),
        (([b"a"], [b""], [b""], np.array([3], np.uint8)), InvalidInput),
        (([b""], [b""], [b""]), InvalidInput),
        ((["text"], [b""], [b""]), InvalidInput),
        (([b"a"], [bytearray(1)], [b""]), InvalidInput),
        (([b"a"], [memoryview(b"")], [b""]), InvalidInput),
        (([b"a" * 2**16], [b""], [b""]), RecordTooLarge),
        (([b"a"], [bytes(16 * 1024 * 1024 + 1)], [b""]), RecordTooLarge),
        (([b"a"], [b""], [b"12345678901"]), RecordTooLarge),
    ],
)
def test_columns_that_no_store_could_keep_are_refused(columns: Any, error: type[Exception]) -> None:  # noqa: ANN401
    with pytest.raises(error):
        FoldBatch(*columns)


def test_the_largest_key_version_and_value_are_taken() -> None:
    batch = FoldBatch([b"k" * (2**16 - 1)], [bytes(16 * 1024 * 1024)], [b"1234567890"])
    assert len(batch) == 1


def test_only_the_last_row_of_a_key_is_left() -> None:
    batch, _ = changes(1, (b"a", b"1"), (b"b", b"1"), (b"a", None), (b"b", b"2"), (b"c", b"1"))
    assert batch.puts == Puts([b"b", b"c"], [b"2", b"1"], [format_revision(4), format_revision(5)])
    assert batch.deletes == Deletes([b"a"], [format_revision(3)])


def test_a_batch_without_kinds_puts_everything() -> None:
    keys = [b"a", b"b"]
    batch = FoldBatch(keys, keys, [b"", b""])
    assert batch.puts == Puts(keys, keys, [b"", b""])
    assert batch.deletes == Deletes((), ())


def test_updates_of_a_bucket_become_changes_of_a_fold() -> None:
    updates: list[KvUpdate] = [
        Put("größe", b"1", format_revision(7)),
        Put("unknown", b"2", VersionToken(b"")),
        Delete("gone", format_revision(8)),
        Purge("purged", format_revision(2**64 - 1)),
    ]
    batch = FoldBatch.from_updates(UpdateBatch.from_updates(updates))
    assert batch.puts == Puts(["größe".encode(), b"unknown"], [b"1", b"2"], [format_revision(7), b""])
    assert batch.deletes == Deletes([b"gone", b"purged"], [format_revision(8), format_revision(2**64 - 1)])


def test_values_that_are_views_are_copied_out_of_their_buffer() -> None:
    buffer = bytearray(b"value")
    kinds, versions = np.zeros(1, np.uint8), np.ones(1, np.uint64)
    batch = FoldBatch.from_updates(UpdateBatch.from_columns(["a"], kinds, versions, [memoryview(buffer)]))
    buffer[:] = b"other"
    assert batch.values == [b"value"]


def test_no_updates_are_an_empty_batch() -> None:
    assert len(FoldBatch.from_updates(UpdateBatch.from_updates([]))) == 0
    assert min(UpdateKind) is UpdateKind.PUT, "a column of zeros is all puts"


@given(version=st.binary(max_size=10), value=st.binary(max_size=50))
def test_a_record_comes_back_as_version_and_value(version: bytes, value: bytes) -> None:
    assert parse_record(format_record(version, value)) == (version, value)


@pytest.mark.parametrize("record", [b"", b"\x0b12345678901", b"\x05abc"])
def test_bytes_that_are_no_record_are_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match="not a version and a value"):
        parse_record(record)


@given(prefix=st.binary(max_size=4), key=st.binary(max_size=6))
def test_the_end_of_a_prefix_is_above_its_keys_and_below_all_others(prefix: bytes, key: bytes) -> None:
    end = prefix_end(prefix)
    assert key.startswith(prefix) == (key >= prefix and (end is None or key < end))


def test_a_digest_tells_where_a_key_ends_and_its_record_begins() -> None:
    def digest(*rows: tuple[bytes, bytes, bytes]) -> tuple[int, bytes]:
        return digest_columns(paged([(key, format_record(version, value)) for key, version, value in rows], 10))

    assert digest((b"ab", b"", b"c")) != digest((b"a", b"", b"bc"))
    assert digest((b"a", b"b", b"c")) != digest((b"a", b"", b"bc"))
    assert digest((b"a", b"", b"b"), (b"c", b"", b"d")) != digest((b"a", b"", b"b"), (b"c", b"", b"e"))


@given(batches=st.lists(st.tuples(ROWS, st.booleans()), max_size=12))
def test_a_fold_in_memory_is_a_sorted_dictionary_whenever_it_is_asked(
    batches: list[tuple[list[tuple[bytes, bytes | None]], bool]],
) -> None:
    fold, twin, revision = ResidentFold(), dict[bytes, bytes](), 1
    for rows, ask in batches:
        batch = changes(revision, *rows)[0]
        fold.apply(batch, NO_CURSOR, format_batch(batch, NO_CURSOR))
        revision += len(rows)
        twin.update({key: value for key, value in rows if value is not None})
        last = dict(rows)
        for key in [key for key, value in last.items() if value is None]:
            twin.pop(key, None)
        if ask:
            assert [(found.key, found.value) for found in fold.entries()] == sorted(twin.items())
            assert [found.key for found in fold.entries(b"c")] == sorted(key for key in twin if key[:1] == b"c")
    assert [(found.key, found.value) for found in fold.entries()] == sorted(twin.items())


def test_few_new_keys_find_their_places_among_many() -> None:
    store = MemoryStore()
    store.apply(*changes(1, *((b"%05d" % number, b"x") for number in range(0, 2000, 2))))
    assert len(store.range()) == 1000
    for number in (1, 999, 1999, 3000):
        store.apply(*changes(10_000 + number, (b"%05d" % number, b"new"), (b"%05d" % (number + 1), None)))
        keys = [found.key for found in store.range()]
        assert keys == sorted(set(keys))
        assert b"%05d" % number in keys
        assert b"%05d" % (number + 1) not in keys
    assert store.cursor() == format_cursor(13_001)
