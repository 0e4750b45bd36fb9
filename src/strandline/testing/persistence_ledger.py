"""The contract of `DoneLedger`: writes, reads, and isolation of tenants.

The first five checks have the names of the reference system's.
"""

from typing import Any

from strandline.pipeline.errors import KeyMismatch, ReceiptMismatch
from strandline.pipeline.identity import OvidHash
from strandline.pipeline.ledger import DoneStatus
from strandline.protocol.errors import StaleFence
from strandline.testing.contract import expect, refuses, same
from strandline.testing.persistence_helpers import (
    ELSEWHERE,
    OTHER_POLICY,
    OTHER_TENANT,
    POLICY,
    TENANT,
    WRITER,
    CheckedPersistence,
    PersistenceCheck,
    after,
    digest,
    done,
    ovid,
    record,
    rows_of,
    same_row,
    same_rows,
)

RETRYABLE, PERMANENT, SKIPPED, PARTIAL, CLEAN, WITH_FINDINGS = DoneStatus


def idempotent(stores: CheckedPersistence) -> None:
    """The same rows twice are the same rows, with the same receipt."""
    rows = [done(status.name, status) for status in DoneStatus]
    first = record(stores, *rows)
    before = rows_of(stores, *(status.name for status in DoneStatus))
    same("the second receipt", record(stores, *rows), first)
    same_rows("the rows after the first time", before, rows)
    same_rows("the rows after the second time", rows_of(stores, *(status.name for status in DoneStatus)), rows)


def fail_then_scan(stores: CheckedPersistence) -> None:
    """A failed item that was then scanned is scanned, by its scanner, without an error code."""
    record(stores, done("a", RETRYABLE)._replace(finished_at=99, bytes_seen=7))
    record(stores, done("a", CLEAN, WRITER._replace(run_id=8, fence=1)))
    same_row("the row", rows_of(stores, "a")[0], done("a", CLEAN, WRITER._replace(run_id=8, fence=1)))


def scan_then_fail(stores: CheckedPersistence) -> None:
    """What was scanned stays so, and of a later failure only its count of bytes can matter."""
    for status in (PARTIAL, CLEAN, WITH_FINDINGS):
        record(stores, done(status.name, status))
        for failure in (RETRYABLE, PERMANENT, SKIPPED):
            late = done(status.name, failure, WRITER._replace(run_id=8, fence=9))
            record(stores, late._replace(finished_at=99, bytes_seen=200))
        (row,) = rows_of(stores, status.name)
        same_row(f"the {status.name} row", row, done(status.name, status)._replace(bytes_seen=200))


def batch_get_positional(stores: CheckedPersistence) -> None:
    """Rows come in the order of the keys; what is missing is None, and what is asked twice comes twice."""
    record(stores, done("a"), done("b", SKIPPED), done("c"))
    wanted = [done("c"), None, done("a"), done("b", SKIPPED), done("a"), None]
    same_rows("the rows", rows_of(stores, "c", "missing", "a", "b", "a", "missing"), wanted)
    same("what no keys give", rows_of(stores), [])


def keys_that_begin_alike_are_different(stores: CheckedPersistence) -> None:
    """A key is all of its 32 bytes: objects, policies and tenants that differ in the last one are not the same."""
    ends = [digest("a")[:-1] + bytes([end]) for end in range(4)]
    for what, column in (("objects", "ovid"), ("policies", "policy"), ("tenants", "tenant")):
        copies: list[dict[str, Any]] = [{column: end, "bytes_seen": at} for at, end in enumerate(ends)]
        *rows, missing = (done("a")._replace(**copy) for copy in copies)
        for row in rows:
            record(stores, row)
        for row in (*rows, missing):
            wanted = row if row in rows else None
            same_rows(f"{what} that begin alike", stores.ledger.batch_get(row.tenant, row.policy, [row.ovid]), [wanted])
            is_done = row.ovid in stores.ledger.list_done_hashes(row.tenant, row.policy)
            same(f"whether one of the {what} is done", is_done, wanted is not None)
    record(stores, *(done("a")._replace(ovid=OvidHash(end)) for end in reversed(ends)))
    seen = stores.ledger.batch_get(TENANT, POLICY, [OvidHash(end) for end in (ends[2], ends[0])])
    same("the objects' bytes", [row and row.bytes_seen for row in seen], [100, 100])


def list_done_hashes(stores: CheckedPersistence) -> None:
    """Exactly what need not be looked at again, sorted: not what may be retried, nor another tenant's or policy's."""
    same("what is done at first", stores.ledger.list_done_hashes(TENANT, POLICY), [])
    record(stores, *(done(status.name, status) for status in DoneStatus))
    record(stores, done("elsewhere", CLEAN, ELSEWHERE))
    record(stores, done("otherwise", CLEAN, WRITER._replace(policy=OTHER_POLICY)))
    wanted = sorted(ovid(status.name) for status in DoneStatus if status.is_terminal)
    same("what is done", stores.ledger.list_done_hashes(TENANT, POLICY), wanted)
    same("what is done elsewhere", stores.ledger.list_done_hashes(OTHER_TENANT, POLICY), [ovid("elsewhere")])
    same("what is done otherwise", stores.ledger.list_done_hashes(TENANT, OTHER_POLICY), [ovid("otherwise")])
    same("an unknown policy", stores.ledger.list_done_hashes(OTHER_TENANT, OTHER_POLICY), [])


def what_may_be_retried_is_listed_once_it_is_done(stores: CheckedPersistence) -> None:
    """A list is of now."""
    record(stores, done("a", RETRYABLE), done("b", RETRYABLE))
    same("what is done at first", stores.ledger.list_done_hashes(TENANT, POLICY), [])
    record(stores, done("b", PERMANENT))
    same("what is done then", stores.ledger.list_done_hashes(TENANT, POLICY), [ovid("b")])


# Coverage.


def a_weak_version_never_suppresses(stores: CheckedPersistence) -> None:
    """Its row is kept, and it is never among what need not be looked at again."""
    rows = [done(status.name, status)._replace(weak=True) for status in DoneStatus]
    record(stores, *rows)
    same_rows("the rows", rows_of(stores, *(status.name for status in DoneStatus)), rows)
    same("what is done", stores.ledger.list_done_hashes(TENANT, POLICY), [])


def weak_and_strong_rows_of_one_key_are_not_merged(stores: CheckedPersistence) -> None:
    """The kind of a version is part of its key: two kinds under one key were not derived from what they name."""
    weak = done("a", WITH_FINDINGS)._replace(weak=True)
    refuses("a weak row beside a strong one", KeyMismatch, record, stores, done("b"), done("a"), weak)
    same("what is there", rows_of(stores, "a", "b"), [None, None])
    record(stores, done("a"))
    refuses("a weak row on a strong one", KeyMismatch, record, stores, done("b"), weak)
    same_rows("the rows in the end", rows_of(stores, "a", "b"), [done("a"), None])


def what_was_seen_in_part_is_not_clean(stores: CheckedPersistence) -> None:
    """Failures around it change nothing; only a scan that saw all of it makes it clean."""
    partial = done("a", PARTIAL)._replace(members_skipped=2, decodes_skipped=3, findings_dropped=4)
    record(stores, done("a", SKIPPED))
    record(stores, partial)
    record(stores, done("a", PERMANENT))
    same_row("the row", rows_of(stores, "a")[0], partial)
    record(stores, done("a", CLEAN))
    same_row("the row once all was seen", rows_of(stores, "a")[0], done("a", CLEAN))
    record(stores, partial)
    same_row("the row in the end", rows_of(stores, "a")[0], done("a", CLEAN))


def gaps_are_those_of_one_look(stores: CheckedPersistence) -> None:
    """The smallest as a unit, of the rows that were scanned; findings keep their gaps beside them."""
    many = done("a", WITH_FINDINGS)._replace(members_skipped=1, decodes_skipped=0, findings_dropped=9)
    few = done("a", PARTIAL)._replace(members_skipped=0, decodes_skipped=5, findings_dropped=0)
    record(stores, many)
    same_row("the first row", rows_of(stores, "a")[0], many)
    record(stores, few)
    same_row(
        "the row", rows_of(stores, "a")[0], many._replace(members_skipped=0, decodes_skipped=5, findings_dropped=0)
    )
    record(stores, done("a", SKIPPED))
    same("gaps after a failure", [row and row.gaps for row in rows_of(stores, "a")], [(0, 5, 0)])


# Tenants.


def a_row_is_its_tenants_and_its_policys_alone(stores: CheckedPersistence) -> None:
    """The same object under two tenants and two policies is four rows."""
    writers = [
        WRITER._replace(tenant=tenant, policy=policy)
        for tenant in (TENANT, OTHER_TENANT)
        for policy in (POLICY, OTHER_POLICY)
    ]
    for number, writer in enumerate(writers):
        same_rows("rows of another tenant", rows_of(stores, "a", writer=writer), [None])
        record(stores, done("a", CLEAN, writer)._replace(bytes_seen=number))
    for number, writer in enumerate(writers):
        wanted = done("a", CLEAN, writer)._replace(bytes_seen=number)
        same_row(f"row {number}", rows_of(stores, "a", writer=writer)[0], wanted)


# Receipts.


def a_receipt_counts_distinct_rows(stores: CheckedPersistence) -> None:
    """Those of this page: how many, how many of them were scanned, and their findings."""
    record(stores, done("a", WITH_FINDINGS)._replace(findings_count=50))
    rows = [
        done("a", CLEAN),
        done("b", WITH_FINDINGS)._replace(findings_count=3),
        done("b", WITH_FINDINGS)._replace(findings_count=2, finished_at=99),
        done("c", PARTIAL),
        done("d", SKIPPED)._replace(findings_count=7),
    ]
    receipt = record(stores, *rows)
    same("the receipt before it", receipt.findings, after(rows))
    counts = receipt.record_count, receipt.scanned_count, receipt.findings_count
    same("rows, scanned rows and their findings", counts, (4, 3, 3))


def rows_of_another_page_are_refused(stores: CheckedPersistence) -> None:
    """The tenant, policy, run, shard and fence of every row, and the set of keys, are those of the receipt."""
    mine = done("a")
    others = [
        ("tenant", mine._replace(tenant=OTHER_TENANT)),
        ("policy", mine._replace(policy=OTHER_POLICY)),
        ("run", mine._replace(run_id=8)),
        ("shard", mine._replace(shard_id=8)),
        ("older fence", mine._replace(fence=4)),
        ("newer fence", mine._replace(fence=6)),
    ]
    for what, row in others:
        other = row._replace(ovid=ovid("b"))
        upsert = stores.ledger.batch_upsert
        refuses(f"a row of another {what}", ReceiptMismatch, upsert, [mine, other], after=after([mine, other]))
        refuses(f"a page of another {what}", ReceiptMismatch, upsert, [row], after=after([mine]))
        same_rows(f"rows of another {what}", stores.ledger.batch_get(*row[:2], [mine.ovid, other.ovid]), [None, None])
    same_rows("the rows", rows_of(stores, "a", "b"), [None, None])


def other_keys_than_the_pages_are_refused(stores: CheckedPersistence) -> None:
    """Fewer, more, others or none; how often and in which order they come does not matter."""
    one, two, three = done("a"), done("b"), done("c")
    for what, rows in (("fewer", [one]), ("more", [one, two, three]), ("others", [one, three]), ("no rows", [])):
        upsert = stores.ledger.batch_upsert
        refuses(f"{what} than the page's", ReceiptMismatch, upsert, rows, after=after([one, two]))
    same_rows("the rows", rows_of(stores, "a", "b", "c"), [None, None, None])
    stores.ledger.batch_upsert([two, one, two], after=after([one, two]))
    same_rows("the rows in the end", rows_of(stores, "a", "b", "c"), [one, two, None])


# Fences.


def a_stale_fence_is_refused(stores: CheckedPersistence) -> None:
    """Where the store knows a newer fence of that very shard, nothing of the page is written."""
    if stores.set_fence is None:
        return
    stores.set_fence(TENANT, WRITER.run_id, WRITER.shard_id, 6)
    refuses("a write under an older fence", StaleFence, record, stores, done("a"))
    same_rows("the rows", rows_of(stores, "a"), [None])
    for what, writer in (
        ("the current fence", WRITER._replace(fence=6)),
        ("a newer fence than the store knows", WRITER._replace(fence=7)),
        ("an older fence of another shard", WRITER._replace(shard_id=4)),
        ("an older fence of another run", WRITER._replace(run_id=8)),
        ("an older fence of another tenant", ELSEWHERE),
    ):
        record(stores, done(what, CLEAN, writer))
        expect(rows_of(stores, what, writer=writer)[0], f"a write under {what} should be kept")


def a_late_write_of_an_unknown_shard_is_harmless(stores: CheckedPersistence) -> None:
    """Who comes last under an older fence takes nothing away: neither the status nor whose row it is."""
    rows = [done(status.name, status, WRITER._replace(fence=9)) for status in DoneStatus]
    record(stores, *rows)
    for status in DoneStatus:
        record(stores, *(done(name.name, min(status, name), WRITER._replace(fence=2)) for name in DoneStatus))
    same_rows("the rows", rows_of(stores, *(status.name for status in DoneStatus)), rows)


RECORD_CHECKS: tuple[PersistenceCheck, ...] = (
    idempotent,
    fail_then_scan,
    scan_then_fail,
    batch_get_positional,
    list_done_hashes,
    keys_that_begin_alike_are_different,
    what_may_be_retried_is_listed_once_it_is_done,
    a_weak_version_never_suppresses,
    weak_and_strong_rows_of_one_key_are_not_merged,
    what_was_seen_in_part_is_not_clean,
    gaps_are_those_of_one_look,
    a_row_is_its_tenants_and_its_policys_alone,
    a_receipt_counts_distinct_rows,
    rows_of_another_page_are_refused,
    other_keys_than_the_pages_are_refused,
    a_stale_fence_is_refused,
    a_late_write_of_an_unknown_shard_is_harmless,
)
