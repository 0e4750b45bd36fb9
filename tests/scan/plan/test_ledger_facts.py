"""Answers of the ledger as columns: those of its rows, from a ledger of columns and from one of rows."""

import pyarrow as pa

from strandline.clock import ManualClock
from strandline.objects import MemoryObjects
from strandline.pipeline.identity import OvidHash
from strandline.pipeline.lake import LakeDatabase
from strandline.pipeline.lake.stores import open_lake
from strandline.pipeline.ledger import ColumnarLedger, DoneLedger, DoneStatus, LedgerRecord
from strandline.pipeline.memory import MemoryLedger, MemoryTables
from strandline.scan.plan.ledger_facts import ANSWER, RowWriter, answer_columns, ledger_answers, written_by
from strandline.testing.persistence_helpers import POLICY, TENANT, WRITER, after, done, ovid

KEYS: list[OvidHash | None] = [ovid("b"), None, ovid("a"), ovid("none"), ovid("a")]


def written(ledger: DoneLedger) -> list[LedgerRecord]:
    rows = [done("a", DoneStatus.SCANNED_CLEAN, WRITER), done("b", DoneStatus.FAILED_RETRYABLE, WRITER)]
    ledger.batch_upsert(rows, after=after(rows))
    return rows


def test_both_kinds_of_ledgers_answer_alike() -> None:
    lake = open_lake(LakeDatabase("memory://", store=MemoryObjects(), clock=ManualClock())).ledger
    memory = MemoryLedger(MemoryTables(ManualClock()))
    a, b = written(lake)
    written(memory)
    assert isinstance(lake, ColumnarLedger)
    assert not isinstance(memory, ColumnarLedger)
    asked = pa.array(KEYS, pa.binary(32))
    answers = ledger_answers(lake, TENANT, POLICY, asked)
    assert answers.schema == ANSWER
    assert answers == ledger_answers(memory, TENANT, POLICY, asked) == answer_columns([b, None, a, None, a])
    nobody = ledger_answers(lake, TENANT, POLICY, pa.array([], pa.binary(32)))
    assert (len(nobody), nobody.schema) == (0, ANSWER)


def test_rows_are_new_by_their_writers_and_a_row_that_is_not_there_is_not() -> None:
    old = done("b", DoneStatus.SCANNED_CLEAN, WRITER._replace(fence=WRITER.fence - 1))
    answers = answer_columns([done("a", DoneStatus.SCANNED_CLEAN, WRITER), None, old])
    asked: list[RowWriter] = []

    def is_new(row: RowWriter) -> bool:
        asked.append(row)
        return row.fence == WRITER.fence

    assert written_by(answers, is_new).to_pylist() == [True, False, False]
    assert sorted(asked) == [RowWriter(WRITER.run_id, WRITER.shard_id, fence) for fence in (4, 5)]
