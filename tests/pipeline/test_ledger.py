"""The ledger's lattice: what a row may say, and that merging is the same in every order."""

from functools import reduce
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BatchTooLarge, KeyMismatch
from strandline.pipeline.ledger import DoneStatus, LedgerRecord, fold, merge, receipt, validate, validate_all
from tests.pipeline.row_strategies import ledger_rows
from tests.pipeline.rows import changed, done, receipt_for

FR, FP, SK, SP, SC, SWF = DoneStatus
CODE = "HTTP_403"
ROWS = {
    FR: done(1)._replace(status=FR, error_code=CODE),
    FP: done(1)._replace(status=FP, error_code=CODE),
    SK: done(1)._replace(status=SK, error_code=CODE),
    SP: done(1)._replace(status=SP, decodes_skipped=1),
    SC: done(1),
    SWF: done(1, findings=2),
}


class TestTheLattice:
    """Statuses only grow."""

    @pytest.mark.parametrize("incoming", DoneStatus)
    @pytest.mark.parametrize("existing", DoneStatus)
    def test_of_two_statuses_the_larger_one_stays(self, existing: DoneStatus, incoming: DoneStatus) -> None:
        merged = merge(ROWS[existing], ROWS[incoming])
        assert merged.status == max(existing, incoming)
        validate(merged)

    def test_only_a_retryable_failure_is_not_the_end(self) -> None:
        assert [status for status in DoneStatus if not status.is_terminal] == [FR]
        assert [status for status in DoneStatus if status.is_scanned] == [SP, SC, SWF]

    @pytest.mark.parametrize("status", DoneStatus)
    def test_a_weak_version_never_suppresses_a_rescan(self, status: DoneStatus) -> None:
        assert ROWS[status].suppresses == status.is_terminal
        assert not ROWS[status]._replace(weak=True).suppresses


class TestMerging:
    """Every order gives the same row."""

    @given(st.lists(ledger_rows(), min_size=1, max_size=4))
    def test_in_every_order_and_twice_is_the_same(self, rows: list[LedgerRecord]) -> None:
        wanted = reduce(merge, rows)
        for order in permutations(rows):
            assert reduce(merge, order) == wanted
            assert reduce(merge, (*order, *order)) == wanted
        validate(wanted)

    @given(ledger_rows(), ledger_rows(), ledger_rows())
    def test_grouping_does_not_matter(self, a: LedgerRecord, b: LedgerRecord, c: LedgerRecord) -> None:
        assert merge(merge(a, b), c) == merge(a, merge(b, c))

    @given(ledger_rows(), ledger_rows())
    def test_never_downgrades(self, one: LedgerRecord, other: LedgerRecord) -> None:
        merged = merge(one, other)
        assert merged.status >= one.status
        assert merged.bytes_seen >= one.bytes_seen
        assert merge(merged, one) == merged

    @given(ledger_rows(), ledger_rows())
    def test_keeps_the_provenance_of_one_of_the_two_together(self, one: LedgerRecord, other: LedgerRecord) -> None:
        assert merge(one, other)[10:15] in (one[10:15], other[10:15])

    def test_takes_the_later_of_two_equal_statuses(self) -> None:
        early, late = ROWS[FR]._replace(finished_at=5, error_code="A"), ROWS[FR]._replace(finished_at=6, error_code="B")
        assert merge(early, late).error_code == "B"
        assert merge(late, early)[10:15] == late[10:15]

    def test_compares_runs_and_shards_as_signed_numbers(self) -> None:
        below, above = ROWS[SC]._replace(run_id=-1), ROWS[SC]._replace(run_id=1)
        assert merge(below, above).run_id == 1

    def test_forgets_the_error_once_it_was_scanned(self) -> None:
        assert merge(ROWS[FR], ROWS[SC]).error_code is None

    def test_counts_findings_of_those_alone_that_found_some(self) -> None:
        failed = ROWS[FR]._replace(findings_count=9)
        assert merge(failed, ROWS[SWF]).findings_count == 2
        assert merge(failed, ROWS[SC]).findings_count == 0
        assert merge(failed, ROWS[SP]).findings_count == 0
        assert merge(failed, ROWS[FP]).findings_count == 9

    def test_a_full_look_closes_the_gaps_and_a_failure_does_not(self) -> None:
        gappy = ROWS[SWF]._replace(members_skipped=3)
        assert not merge(gappy, ROWS[FR]).is_complete
        assert merge(gappy, ROWS[SC]).is_complete
        assert merge(gappy, ROWS[SC]).status == SWF

    def test_refuses_rows_of_different_keys_or_kinds(self) -> None:
        for other in (done(2), done(1)._replace(weak=True)):
            with pytest.raises(KeyMismatch):
                merge(done(1), other)


class TestRows:
    """What a row may say."""

    @pytest.mark.parametrize(
        "wrong",
        [
            changed(ROWS[SC], findings_count=1),
            changed(ROWS[SC], members_skipped=1),
            changed(ROWS[SC], decodes_skipped=1),
            changed(ROWS[SC], findings_dropped=1),
            changed(ROWS[SC], error_code=CODE),
            changed(ROWS[SP], decodes_skipped=0),
            changed(ROWS[SP], findings_count=1),
            changed(ROWS[SP], error_code=CODE),
            changed(ROWS[SWF], findings_count=0),
            changed(ROWS[SWF], error_code=CODE),
            changed(ROWS[FR], error_code=None),
            changed(ROWS[FP], error_code=None),
            changed(ROWS[SK], error_code=""),
            changed(ROWS[SK], error_code="   "),
            changed(ROWS[SK], error_code="x" * 129),
            changed(ROWS[SK], error_code="ümlaut"),
            changed(ROWS[SK], error_code="a\nb"),
            changed(ROWS[SC], tenant=b"short"),
            changed(ROWS[SC], policy=b"x" * 33),
            changed(ROWS[SC], ovid="x" * 32),
            changed(ROWS[SC], status=4),
            changed(ROWS[SC], status=12),
            changed(ROWS[SC], bytes_seen=-1),
            changed(ROWS[SC], bytes_seen=2**63),
            changed(ROWS[SC], bytes_seen=1.5),
            changed(ROWS[SWF], findings_count=2**31),
            changed(ROWS[SC], fence=-1),
            changed(ROWS[SC], run_id=2**63),
            changed(ROWS[SC], shard_id=-(2**63) - 1),
            changed(ROWS[SC], started_at=5, finished_at=4),
            changed(ROWS[SC], started_at=None),
        ],
        ids=lambda row: "-".join(map(str, row[3:])),
    )
    def test_that_contradict_themselves_are_refused(self, wrong: LedgerRecord) -> None:
        with pytest.raises(InvalidInput):
            validate(wrong)
        with pytest.raises(InvalidInput):
            validate_all([ROWS[SC], wrong, ROWS[FR]])

    @given(st.lists(ledger_rows(), max_size=5))
    def test_that_are_valid_pass(self, rows: list[LedgerRecord]) -> None:
        for row in rows:
            validate(row)
        validate_all(rows)

    def test_at_the_limits_pass(self) -> None:
        top = 2**63 - 1
        validate_all(
            [changed(ROWS[SWF], bytes_seen=top, findings_count=2**31 - 1, run_id=-top - 1, shard_id=top, fence=top)]
        )
        validate_all([changed(ROWS[SK], error_code="x" * 128)])

    def test_of_more_than_one_batch_are_refused(self) -> None:
        validate_all([ROWS[SC]] * 10_000)
        with pytest.raises(BatchTooLarge, match="10,001"):
            validate_all([ROWS[SC]] * 10_001)


def test_folding_keeps_the_order_of_first_sight_and_counts_distinct_keys() -> None:
    rows = [done(2), ROWS[FR], done(2), ROWS[SWF]]
    folded = fold(rows)
    assert folded == [done(2), merge(ROWS[FR], ROWS[SWF])]
    seen = receipt(folded, receipt_for(rows))
    assert (seen.record_count, seen.scanned_count, seen.findings_count) == (2, 2, 2)
