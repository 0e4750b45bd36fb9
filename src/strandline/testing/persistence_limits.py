"""The contract of `DoneLedger`, continued: valid rows, and refusals that write nothing."""

from typing import Any

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.ledger import ERROR_CODE_BYTES_MAX, I32_MAX, DoneStatus, LedgerRecord
from strandline.testing.contract import expect, refuses, same
from strandline.testing.persistence_helpers import (
    I64_MAX,
    I64_MIN,
    POLICY,
    TENANT,
    WRITER,
    CheckedPersistence,
    PersistenceCheck,
    after,
    done,
    ovid,
    record,
    rows_of,
    same_row,
    same_rows,
)

RETRYABLE, PERMANENT, SKIPPED, PARTIAL, CLEAN, WITH_FINDINGS = DoneStatus
_LIMITS = {
    "bytes_seen": (0, I64_MAX),
    "findings_count": (0, I32_MAX),
    "members_skipped": (0, I64_MAX),
    "decodes_skipped": (0, I64_MAX),
    "findings_dropped": (0, I64_MAX),
    "run_id": (I64_MIN, I64_MAX),
    "shard_id": (I64_MIN, I64_MAX),
    "fence": (0, I64_MAX),
    "started_at": (0, I64_MAX),
    "finished_at": (0, I64_MAX),
}


def numbers_at_their_limits_come_back(stores: CheckedPersistence) -> None:
    """The largest, the smallest, and ids below zero."""
    lowest = WRITER._replace(run_id=I64_MIN, shard_id=I64_MIN, fence=0)
    highest = WRITER._replace(run_id=I64_MAX, shard_id=I64_MAX, fence=I64_MAX)
    numbers: dict[str, Any] = {name: I64_MAX for name, (_, high) in _LIMITS.items() if high == I64_MAX}
    nothing: dict[str, Any] = dict.fromkeys(("bytes_seen", "started_at", "finished_at"), 0)
    large = done("large", WITH_FINDINGS, highest)._replace(**numbers, findings_count=I32_MAX)
    small = done("small", CLEAN, lowest)._replace(**nothing)
    negative = done("negative", PERMANENT, WRITER._replace(run_id=-1, shard_id=-1))._replace(findings_count=I32_MAX)
    for row in (large, small, negative):
        record(stores, row)
    same_rows("the rows", rows_of(stores, "large", "small", "negative"), [large, small, negative])
    merged = large._replace(ovid=small.ovid)
    record(stores, merged)
    same_row(
        "the merged row",
        rows_of(stores, "small")[0],
        merged._replace(members_skipped=0, decodes_skipped=0, findings_dropped=0),
    )


def numbers_beyond_their_limits_are_refused(stores: CheckedPersistence) -> None:
    """Every number of a row, below and above; nothing of the page is written."""
    for name, (low, high) in _LIMITS.items():
        for number in (low - 1, high + 1):
            row = done("a", RETRYABLE)._replace(**_one(name, number))
            if name == "started_at":
                row = row._replace(finished_at=max(number, 11))
            refuses(f"{name} of {number}", InvalidInput, _upsert_as_is, stores, [done("b"), row])
    text: Any = "5"
    refuses("text as a number", InvalidInput, record, stores, done("b"), done("a")._replace(bytes_seen=text))
    _expect_nothing(stores)


def a_rank_that_is_not_in_the_lattice_is_refused(stores: CheckedPersistence) -> None:
    """It is never taken for another one."""
    for rank in (-1, 0, 4, 6, 7, 8, 9, 12, 99, I64_MAX):
        unknown: Any = rank
        for error_code in (None, "TIMEOUT"):
            row = done("a")._replace(status=unknown, error_code=error_code)
            refuses(f"rank {rank}", InvalidInput, record, stores, done("b"), row)
    _expect_nothing(stores)


def rows_that_contradict_themselves_are_refused(stores: CheckedPersistence) -> None:
    """Clean with findings or gaps, partial without gaps, found nothing, ended before it began, and so on."""
    gap: dict[str, Any] = {"decodes_skipped": 1}
    for what, row in (
        ("clean with findings", done("a", CLEAN)._replace(findings_count=1)),
        ("clean with a skipped member", done("a", CLEAN)._replace(members_skipped=1)),
        ("clean with a skipped decode", done("a", CLEAN)._replace(decodes_skipped=1)),
        ("clean with a dropped finding", done("a", CLEAN)._replace(findings_dropped=1)),
        ("partial without a gap", done("a", PARTIAL)._replace(members_skipped=0)),
        ("partial with findings", done("a", PARTIAL)._replace(findings_count=1)),
        ("with findings and none", done("a", WITH_FINDINGS)._replace(findings_count=0)),
        ("with findings and none, and gaps", done("a", WITH_FINDINGS)._replace(findings_count=0, **gap)),
        ("clean and an error", done("a", CLEAN)._replace(error_code="E")),
        ("partial and an error", done("a", PARTIAL)._replace(error_code="E")),
        ("with findings and an error", done("a", WITH_FINDINGS)._replace(error_code="E")),
        ("failed without an error", done("a", RETRYABLE)._replace(error_code=None)),
        ("failed for good without an error", done("a", PERMANENT)._replace(error_code=None)),
        ("skipped without an error", done("a", SKIPPED)._replace(error_code=None)),
        ("finished before it started", done("a")._replace(started_at=12)),
    ):
        refuses(f"a row that is {what}", InvalidInput, record, stores, done("b"), row)
    _expect_nothing(stores)


def error_codes_are_short_plain_words(stores: CheckedPersistence) -> None:
    """1 to 128 of some ASCII characters, not all of them spaces; they come back as they were."""
    plain = ["x", "x" * ERROR_CODE_BYTES_MAX, "HTTP_403", "a b-c.d:e/f_9", " x ", "x "]
    rows = [done(code, PERMANENT)._replace(error_code=code) for code in plain]
    record(stores, *rows)
    same_rows("the rows", rows_of(stores, *plain), rows)
    for code in ("", " ", "   ", "x" * (ERROR_CODE_BYTES_MAX + 1), "é", "x\n", "\x00", "٣", "a'b", "\ud800", "ｘ"):  # noqa: RUF001
        row = done("a", PERMANENT)._replace(error_code=code)
        refuses(f"error code {code!a}", InvalidInput, record, stores, done("b"), row)
    _expect_nothing(stores)


def ids_of_another_length_are_refused(stores: CheckedPersistence) -> None:
    """Every id of a row has 32 bytes."""
    for name in ("tenant", "policy", "ovid"):
        for value in (b"", b"x" * 31, b"x" * 33, "x" * 32, None):
            rows = [done("b")._replace(**_one(name, value)), done("a")._replace(**_one(name, value))]
            refuses(f"a {name} of another length", InvalidInput, _upsert_as_is, stores, rows)
    _expect_nothing(stores)


def ten_thousand_rows_are_a_batch_and_one_more_is_not(stores: CheckedPersistence) -> None:
    """For writing and for reading; duplicates count."""
    names = [str(number) for number in range(BATCH_ROWS_MAX + 1)]
    rows = [done(name) for name in names]
    refuses("10,001 rows", BatchTooLarge, record, stores, *rows)
    refuses("10,001 rows of one key", BatchTooLarge, record, stores, *[rows[0]] * len(rows))
    refuses("10,001 keys", BatchTooLarge, rows_of, stores, *names)
    refuses("10,001 times one key", BatchTooLarge, rows_of, stores, *["0"] * len(rows))
    same("what was written", stores.ledger.list_done_hashes(TENANT, POLICY), [])
    same("the receipt's count", record(stores, *rows[:-1]).record_count, BATCH_ROWS_MAX)
    expect(rows_of(stores, *names[1:]) == [*rows[1:-1], None], "10,000 rows should come back as they were")
    done_now = stores.ledger.list_done_hashes(TENANT, POLICY)
    expect(done_now == sorted(row.ovid for row in rows[:-1]), "all 10,000 keys should be listed, sorted")


def _one(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - also what the column cannot hold
    return {name: value}


def _upsert_as_is(stores: CheckedPersistence, rows: list[LedgerRecord]) -> None:
    stores.ledger.batch_upsert(rows, after=after([done("a"), done("b")]))


def _expect_nothing(stores: CheckedPersistence) -> None:
    keys = [ovid("a"), ovid("b")]
    same_rows("what was written", stores.ledger.batch_get(TENANT, POLICY, keys), [None, None])


LIMIT_CHECKS: tuple[PersistenceCheck, ...] = (
    numbers_at_their_limits_come_back,
    numbers_beyond_their_limits_are_refused,
    a_rank_that_is_not_in_the_lattice_is_refused,
    rows_that_contradict_themselves_are_refused,
    error_codes_are_short_plain_words,
    ids_of_another_length_are_refused,
    ten_thousand_rows_are_a_batch_and_one_more_is_not,
)
