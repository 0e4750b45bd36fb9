"""The rows of a page as columns: a sequence of rows like any other, which SQLite stores the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.clock import ManualClock
from strandline.errors import InvalidInput
from strandline.objects import MemoryObjects
from strandline.pipeline.commit import check_items
from strandline.pipeline.errors import BatchTooLarge, KeyMismatch, ReceiptMismatch
from strandline.pipeline.identity import ObjectVersionId, OvidHash, StableItemId, VersionKind, ovid_hash
from strandline.pipeline.lake import LakeDatabase
from strandline.pipeline.lake.stores import open_lake
from strandline.pipeline.ledger import I64_MAX, DoneStatus, LedgerRecord, validate_all
from strandline.pipeline.page_rows import CleanRows, PageRows
from strandline.pipeline.pages import Failed, Gaps, Item, Outcome, PageBuilder, Scanned, Skipped
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import Boundary, BoundaryKind
from strandline.pipeline.sql import SqliteDatabase, SqliteLedger
from strandline.protocol.shards import Cursor
from tests.effort import examples
from tests.pipeline.rows import CONTEXT, POLICY, TENANT, digest, done, ovid, receipt_for, scope_of

END = Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(b"k", b""))
OUTCOMES: list[Outcome] = [
    *(Scanned(7), Scanned(0), Scanned(I64_MAX), Scanned(5, gaps=Gaps(1, 0, 0))),
    *(Failed("TIMEOUT", retryable=True), Failed("HTTP_403", retryable=False), Skipped("BINARY")),
]
PAIRS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(VersionKind), st.sampled_from(OUTCOMES)), min_size=1)


def item(number: int, kind: VersionKind = VersionKind.STRONG) -> Item:
    return Item(StableItemId(digest(number, 4)), ObjectVersionId(digest(number, 7 + kind)), kind)


def page_rows(pairs: Sequence[tuple[int, VersionKind, Outcome]]) -> PageRows:
    builder = PageBuilder(CONTEXT)
    for number, kind, outcome in pairs:
        builder.add(item(number, kind), outcome)
    rows = builder.page(END).items
    assert isinstance(rows, PageRows)
    return rows


def stored(path: Path, *pages: Sequence[LedgerRecord]) -> tuple[list[tuple[Any, ...]], list[LedgerReceipt]]:
    """Return what a new database holds after some pages, and their receipts."""
    path.unlink(missing_ok=True)
    with SqliteDatabase(path, clock=ManualClock(1_000)) as database:
        database.migrate()
        ledger = SqliteLedger(database)
        receipts = [
            ledger.batch_upsert(
                page, after=FindingsReceipt(page.scope) if isinstance(page, PageRows) else receipt_for(page)
            )
            for page in pages
        ]
        select = "SELECT * FROM ledger ORDER BY tenant, policy, ovid"
        return database.read(lambda connection: connection.execute(select).fetchall()), receipts


def in_a_lake(
    store: MemoryObjects, now_ns: int, *pages: Sequence[LedgerRecord]
) -> tuple[list[LedgerRecord | None], list[LedgerReceipt]]:
    """Return what a lake holds of the keys of some pages after them, and their receipts."""
    lake = open_lake(LakeDatabase("memory://", store=store, clock=ManualClock(now_ns)))
    receipts = [
        lake.ledger.batch_upsert(
            page, after=FindingsReceipt(page.scope) if isinstance(page, PageRows) else receipt_for(page)
        )
        for page in pages
    ]
    keys = sorted({row.ovid for page in pages for row in page})
    return open_lake(LakeDatabase("memory://", store=store)).ledger.batch_get(TENANT, POLICY, keys), receipts


def counts(receipt: LedgerReceipt) -> tuple[int, int, int]:
    return receipt.record_count, receipt.scanned_count, receipt.findings_count


@given(PAIRS)
def test_rows_are_in_the_order_of_the_items_and_valid(pairs: list[tuple[int, VersionKind, Outcome]]) -> None:
    rows = page_rows(pairs)
    validate_all(list(rows))
    assert len(rows) == len(pairs)
    assert [row.started_at for row in rows] == list(range(0, 2 * len(pairs), 2))
    for at, (number, kind, outcome) in enumerate(pairs):
        row = rows[at]
        assert row == list(rows)[at]
        assert row.ovid == ovid_hash(*item(number, kind))
        assert row.weak == (kind is VersionKind.WEAK)
        assert row[10:15] == (*CONTEXT[2:], 2 * at, 2 * at + 1)
        assert row.bytes_seen == (outcome.bytes_seen if isinstance(outcome, Scanned) else 0)
        assert (row.status == DoneStatus.SCANNED_CLEAN) == (isinstance(outcome, Scanned) and not any(outcome.gaps))
    assert rows[:2] == tuple(rows)[:2]


@given(st.lists(PAIRS, min_size=1, max_size=3))
@examples(40)
def test_sqlite_holds_the_same_whether_rows_come_as_columns_or_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, pages: list[list[tuple[int, VersionKind, Outcome]]]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "ledger.db"
    columns = list(map(page_rows, pages))
    with_columns, receipts = stored(path, *columns)
    one_by_one, expected = stored(path, *map(tuple, columns))
    assert with_columns == one_by_one
    assert list(map(counts, receipts)) == list(map(counts, expected))


@given(st.lists(PAIRS, min_size=1, max_size=3))
@examples(40)
def test_a_lake_holds_the_same_pages_whether_rows_come_as_columns_or_one_by_one(
    pages: list[list[tuple[int, VersionKind, Outcome]]],
) -> None:
    """The names of its objects are those of the rows, so that a page that is committed again is no other object."""
    columns, store, other = list(map(page_rows, pages)), MemoryObjects(), MemoryObjects()
    with_columns, receipts = in_a_lake(store, 1_000, *columns)
    one_by_one, expected = in_a_lake(other, 2_000, *map(tuple, columns))
    assert with_columns == one_by_one
    assert list(map(counts, receipts)) == list(map(counts, expected))
    names = [info.key for info in store.list("pages/")]
    assert names == [info.key for info in other.list("pages/")]
    in_a_lake(store, 3_000, *columns)
    assert [info.key for info in store.list("pages/")] == names


def test_a_lake_refuses_a_page_whose_version_is_known_to_be_another_kind() -> None:
    rows = page_rows([(number, VersionKind.STRONG, Scanned(9)) for number in range(4)])
    with pytest.raises(KeyMismatch):
        in_a_lake(MemoryObjects(), 1_000, [rows[2]._replace(weak=True)], rows)


def test_a_page_of_which_a_row_is_there_is_merged_and_of_which_one_is_another_is_refused(tmp_path: Path) -> None:
    rows = page_rows([(number, VersionKind.STRONG, Scanned(9)) for number in range(4)])
    better = [rows[1]._replace(status=DoneStatus.SCANNED_WITH_FINDINGS, findings_count=2, bytes_seen=20)]
    held, _ = stored(tmp_path / "merged.db", better, rows)
    by_ovid = {row[3]: row for row in held}
    assert len(held) == len(rows)
    assert by_ovid[rows[1].ovid][5:8] == (11, 20, 2)
    assert by_ovid[rows[0].ovid][5:8] == (10, 9, 0)
    with pytest.raises(KeyMismatch):
        stored(tmp_path / "refused.db", [rows[2]._replace(weak=True)], rows)


def test_columns_come_in_the_order_of_the_keys_that_were_asked(tmp_path: Path) -> None:
    rows = [done(number, findings=number)._replace(bytes_seen=number) for number in (1, 2, 3)]
    asked = [*(ovid(number) for number in (3, 9, 1)), None, *(ovid(number) for number in (3, 2, 8))]
    keys = pa.array(asked, pa.binary(32))
    with SqliteDatabase(tmp_path / "ledger.db") as database:
        database.migrate()
        ledger = SqliteLedger(database)
        (nothing,) = ledger.get_columns(TENANT, POLICY, keys, ["status"])
        assert nothing.to_pylist() == [None] * len(keys)
        ledger.batch_upsert(rows, after=receipt_for(rows))
        sizes, statuses = ledger.get_columns(TENANT, POLICY, keys, ["bytes_seen", "status"])
        assert sizes.to_pylist() == [3, None, 1, None, 3, 2, None]
        found = {row.ovid: row.status for row in rows}
        assert statuses.to_pylist() == [None if key is None else found.get(key) for key in asked]
        (none,) = ledger.get_columns(TENANT, POLICY, keys.slice(0, 0), ["status"])
        assert len(none) == 0
        many = pa.array([ovid(1)] * 10_001 + [ovid(2)], pa.binary(32))
        (sizes,) = ledger.get_columns(TENANT, POLICY, many, ["bytes_seen"])
        assert sizes.to_pylist() == [1] * 10_001 + [2]


def test_rows_of_another_page_are_refused(tmp_path: Path) -> None:
    rows = page_rows([(1, VersionKind.STRONG, Scanned(9))])
    other = FindingsReceipt(scope_of([ovid(1)]))
    with pytest.raises(ReceiptMismatch, match="set of keys"):
        check_items(rows, other)
    with SqliteDatabase(tmp_path / "ledger.db") as database:
        database.migrate()
        with pytest.raises(ReceiptMismatch):
            SqliteLedger(database).batch_upsert(rows, after=other)
        assert SqliteLedger(database).batch_get(TENANT, POLICY, [rows[0].ovid]) == [None]


@pytest.mark.parametrize(
    ("clean", "error"),
    [
        (CleanRows([OvidHash(b"short")], [0], [1]), "is not 32 bytes"),
        (CleanRows([ovid(1)], [0], [-1]), "bytes_seen is not a number"),
        (CleanRows([ovid(1)], [0], [I64_MAX + 1]), "bytes_seen is not a number"),
    ],
)
def test_columns_that_no_row_can_hold_are_refused(clean: CleanRows, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        PageRows(scope_of([ovid(1)]), clean, ())


def test_rows_beyond_a_batch_and_invalid_others_are_refused() -> None:
    many = CleanRows([ovid(1)] * 10_000, range(10_000), [1] * 10_000)
    with pytest.raises(BatchTooLarge):
        PageRows(scope_of([ovid(1)]), many, [done(1)])
    with pytest.raises(InvalidInput, match="error code"):
        PageRows(scope_of([ovid(1)]), CleanRows((), (), ()), [done(1)._replace(status=DoneStatus.SKIPPED)])
