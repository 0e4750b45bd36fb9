"""What only a database can do to the stores: foreign rows, rival writers, rows that others wrote."""

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from strandline.clock import ManualClock
from strandline.errors import Damaged, InvalidInput
from strandline.pipeline.commit import Page
from strandline.pipeline.errors import ContentConflict, MissingParent
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.identity import FindingId
from strandline.pipeline.ledger import ColumnarLedger, DoneStatus, LedgerRecord, merge
from strandline.pipeline.sql import PostgresDatabase, PostgresLedger, SqliteDatabase, SqlReads, SqlState
from strandline.pipeline.state import Put
from strandline.protocol.errors import StaleFence
from tests.pipeline.rows import CONTEXT, POLICY, TENANT, done, found, ovid, page_of, receipt_for, scope_of
from tests.pipeline.sql.stores import AnyDatabase, change, count, findings_over, ledger_over, set_shard
from tests.servers_postgres import PostgresServer

LAYERS = ("findings", "occurrences", "observations")


def break_status(database: AnyDatabase, status: int) -> None:
    """Write what no version of ours writes."""
    if isinstance(database, SqliteDatabase):
        database.read(lambda connection: connection.pragma("ignore_check_constraints", 1))
    else:
        change(database, "ALTER TABLE ledger_entries DROP CONSTRAINT ledger_entries_status_check")
    change(database, "UPDATE ledger_entries SET status = ?", (status,))


@pytest.mark.parametrize("status", [0, 4, 12])
def test_an_unknown_status_is_damage_wherever_it_is_read(database: AnyDatabase, status: int) -> None:
    ledger, reads = ledger_over(database), SqlReads(database)
    rows = [done(1)]
    if status < DoneStatus.SCANNED_PARTIAL:
        rows = [done(1)._replace(status=DoneStatus.FAILED_RETRYABLE, error_code="X")]
    ledger.batch_upsert(rows, after=receipt_for(rows))
    break_status(database, status)
    questions: list[Callable[[], object]] = [
        lambda: ledger.batch_get(TENANT, POLICY, [ovid(1)]),
        lambda: reads.coverage(TENANT, POLICY),
    ]
    if isinstance(ledger, ColumnarLedger):
        keys = pa.array([ovid(2), ovid(1)], pa.binary(32))
        questions.append(lambda: ledger.get_columns(TENANT, POLICY, keys, ["bytes_seen"]))
    for ask in questions:
        with pytest.raises(Damaged, match=f"status {status}, which does not exist"):
            ask()


def test_two_ids_for_one_secret_at_one_item_are_a_conflict_that_shows_neither(database: AnyDatabase) -> None:
    sink = findings_over(database)
    finding, *_ = found(1)
    sink.upsert_batch(FindingsBatch(scope_of([ovid(1)]), [finding]))
    twin = finding._replace(finding_id=FindingId(b"\xee" * 32))
    with pytest.raises(ContentConflict) as caught:
        sink.upsert_batch(FindingsBatch(scope_of([ovid(1)]), [twin]))
    assert caught.value.__cause__ is None
    assert "ee" * 4 not in f"{caught.value}{caught.value!r}"
    assert count(database, "findings") == 1


def test_a_batch_that_is_refused_at_its_last_layer_leaves_nothing(database: AnyDatabase) -> None:
    sink = findings_over(database)
    finding, occurrence, observation = found(1)
    orphan = found(2)[2]
    with pytest.raises(MissingParent, match="observations in the batch name occurrences"):
        sink.upsert_batch(FindingsBatch(scope_of([ovid(1)]), [finding], [occurrence], [observation, orphan]))
    assert [count(database, layer) for layer in LAYERS] == [0, 0, 0]


def test_the_tables_refuse_orphans_whoever_writes_them(database: AnyDatabase) -> None:
    occurrence = found(1)[1]
    columns = "tenant, occurrence_id, finding_id, version, byte_offset, byte_length, committed_ns"
    with pytest.raises(InvalidInput, match="breaks a rule") as caught:
        change(database, f"INSERT INTO occurrences ({columns}) VALUES (?, ?, ?, ?, ?, ?, 1)", occurrence)  # noqa: S608
    assert occurrence.finding_id.hex() not in f"{caught.value}{caught.value.__cause__}"


def test_first_commit_times_never_change(database: AnyDatabase) -> None:
    clock = database.clock
    assert isinstance(clock, ManualClock)
    sink, first_ns = findings_over(database), clock.now_ns()
    for _ in range(2):
        sink.upsert_batch(page_of([1], [1]).findings)
        clock.advance(1)
    history = SqlReads(database).history(TENANT, found(1)[0].finding_id)
    assert history is not None
    assert (history.committed_ns, history.seen[0].occurrence_ns, history.seen[0].observation_ns) == (first_ns,) * 3


def test_a_writer_under_an_old_fence_writes_nothing(database: AnyDatabase) -> None:
    page = page_of([1], [1])
    set_shard(database, TENANT, CONTEXT.run_id, CONTEXT.shard_id, CONTEXT.fence + 1)
    with pytest.raises(StaleFence):
        findings_over(database).upsert_batch(page.findings)
    with pytest.raises(StaleFence):
        ledger_over(database).batch_upsert(page.items, after=receipt_for(page.items))
    assert [count(database, table) for table in (*LAYERS, "ledger_entries")] == [0] * 4
    set_shard(database, TENANT, CONTEXT.run_id, CONTEXT.shard_id, CONTEXT.fence)
    findings_over(database).upsert_batch(page.findings)
    ledger_over(database).batch_upsert(page.items, after=receipt_for(page.items))
    assert [count(database, table) for table in (*LAYERS, "ledger_entries")] == [1] * 4


def test_whoever_takes_a_shard_over_waits_for_a_write_that_passed_the_fence(postgres: PostgresDatabase) -> None:
    page = page_of([1], [1])
    set_shard(postgres, TENANT, CONTEXT.run_id, CONTEXT.shard_id, CONTEXT.fence)
    order: list[str] = []

    class SlowClock(ManualClock):
        """Is asked for the time between the check of the fence and the commit."""

        def now_ns(self) -> int:
            if not order:
                taker.start()
                taker.join(0.3)
                order.append("waits" if taker.is_alive() else "went ahead")
            return super().now_ns()

    taker = threading.Thread(target=change, args=(postgres, "UPDATE shards SET fence = fence + 1"))
    postgres.clock = SlowClock()
    ledger_over(postgres).batch_upsert(page.items, after=receipt_for(page.items))
    taker.join()
    assert order == ["waits"]
    assert count(postgres, "ledger_entries") == 1
    with pytest.raises(StaleFence):
        ledger_over(postgres).batch_upsert(page.items, after=receipt_for(page.items))


def test_rivals_that_write_the_same_rows_all_succeed(database: AnyDatabase) -> None:
    pages = [page_of(range(start, start + 150), range(start, start + 150)) for start in (0, 50, 100, 0)]
    failures: list[BaseException] = []

    def write(page: Page) -> None:
        try:
            for _ in range(3):
                findings_over(database).upsert_batch(page.findings)
                ledger_over(database).batch_upsert(page.items, after=receipt_for(page.items))
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=write, args=(page,)) for page in pages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [count(database, table) for table in (*LAYERS, "ledger_entries")] == [250] * 4


def test_a_row_that_a_rival_wrote_after_the_look_is_merged(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up sees nothing, as it would before the rival's commit; the COPY then meets the row."""
    failed = done(1)._replace(status=DoneStatus.FAILED_RETRYABLE, error_code="X", bytes_seen=500)
    ledger = PostgresLedger(postgres)
    ledger.batch_upsert([failed], after=receipt_for([failed]))
    monkeypatch.setattr(ledger, "_sql", {**ledger._sql, "count": "SELECT 0"})  # noqa: SLF001
    rows = [done(1), done(2)]
    ledger.batch_upsert(rows, after=receipt_for(rows))
    assert ledger.batch_get(TENANT, POLICY, [ovid(1), ovid(2)]) == [merge(failed, done(1)), done(2)]


def test_rows_of_every_status_and_code_are_copied_as_they_are(postgres: PostgresDatabase) -> None:
    codes = ["A", "HTTP_403"]
    rows = [
        done(number)._replace(status=DoneStatus.SKIPPED, error_code=codes[number % 2], weak=number % 3 == 0)
        for number in range(20)
    ]
    rows += [done(number, number % 2, at=number) for number in range(20, 40)]
    rows += [done(number)._replace(status=DoneStatus.SCANNED_PARTIAL, decodes_skipped=number) for number in (40, 41)]
    rows += [done(42)._replace(status=DoneStatus.FAILED_PERMANENT, error_code="x" * 128, bytes_seen=2**63 - 1)]
    PostgresLedger(postgres).batch_upsert(rows, after=receipt_for(rows))
    found_rows = PostgresLedger(postgres).batch_get(TENANT, POLICY, [row.ovid for row in rows])
    assert found_rows == rows
    assert [type(row) for row in found_rows] == [LedgerRecord] * len(rows)


def test_the_servers_log_holds_no_id_of_what_was_refused(
    postgres_server: PostgresServer, postgres: PostgresDatabase
) -> None:
    """A server quotes keys in the errors that it logs, so it must not be the one to find out."""
    sink = findings_over(postgres)
    finding, occurrence, _ = found(77)
    with pytest.raises(MissingParent) as caught:
        sink.upsert_batch(FindingsBatch(scope_of([ovid(1)]), occurrences=[occurrence]))
    assert caught.value.__cause__ is None
    sink.upsert_batch(FindingsBatch(scope_of([ovid(1)]), [finding]))
    twin = finding._replace(finding_id=FindingId(b"\xee" * 32))
    with pytest.raises(ContentConflict):
        sink.upsert_batch(FindingsBatch(scope_of([ovid(1)]), [twin]))
    for hidden in (finding.finding_id, twin.finding_id, bytes(finding.secret)):
        assert hidden.hex() not in postgres_server.log()


def test_a_batch_of_state_that_needs_several_statements_is_one(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.pipeline.sql.state._STATEMENT_BYTES_MAX", 10)
    state = SqlState(postgres)
    values = [b"", b"x" * 4, b"y" * 6, b"z", b"w" * 30, b"v"]
    state.apply_batch(TENANT, [Put(b"%d" % number, value) for number, value in enumerate(values)])
    assert state.multi_get(TENANT, [b"%d" % number for number in range(len(values))]) == values
