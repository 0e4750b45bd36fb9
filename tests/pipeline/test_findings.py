"""Findings: what a batch may hold, and that merging observations is the same in every order."""

from functools import reduce
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BatchTooLarge, ContentConflict, KeyMismatch, ReceiptMismatch
from strandline.pipeline.findings import FindingsBatch, ObservationRecord, fold, merge, validate
from strandline.pipeline.identity import SecretHash, TenantId
from tests.pipeline.row_strategies import observation_rows
from tests.pipeline.rows import changed, digest, found, page_of

FINDING, OCCURRENCE, OBSERVATION = found(1)
BATCH = page_of([1], [1]).findings


def batch(
    finding: object = FINDING, occurrence: object = OCCURRENCE, observation: object = OBSERVATION
) -> FindingsBatch:
    return FindingsBatch(BATCH.scope, [finding], [occurrence], [observation])  # type: ignore[list-item]


class TestMerging:
    """Every order gives the same observation."""

    @given(st.lists(observation_rows(), min_size=1, max_size=4))
    def test_in_every_order_and_twice_is_the_same(self, rows: list[ObservationRecord]) -> None:
        wanted = reduce(merge, rows)
        for order in permutations(rows):
            assert reduce(merge, order) == wanted
            assert reduce(merge, (*order, *order)) == wanted

    @given(observation_rows(), observation_rows(), observation_rows())
    def test_grouping_does_not_matter(self, a: ObservationRecord, b: ObservationRecord, c: ObservationRecord) -> None:
        assert merge(merge(a, b), c) == merge(a, merge(b, c))

    def test_an_order_in_which_having_a_location_counts_would_not_be_associative(self) -> None:
        """The rule (seen_at, has_location, fence, …) gives fence 1 or 9 here, as the grouping goes."""
        unplaced = OBSERVATION._replace(location_seen_at=None, location_display=None)
        a, b, c = (
            unplaced._replace(seen_at=5, fence=1),
            OBSERVATION._replace(seen_at=3, location_seen_at=3),
            unplaced._replace(seen_at=5, fence=9),
        )
        for one, two, three in permutations((a, b, c)):
            merged = merge(merge(one, two), three)
            assert (merged.seen_at, merged.fence, merged.location_display) == (5, 9, "file-1")

    def test_the_later_sight_wins_and_a_location_is_kept(self) -> None:
        later = OBSERVATION._replace(seen_at=9, run_id=8, location_seen_at=None, location_display=None)
        merged = merge(OBSERVATION, later)
        assert (merged.seen_at, merged.run_id, merged.location_display) == (9, 8, "file-1")

    def test_a_location_is_taken_as_a_pair(self) -> None:
        one = OBSERVATION._replace(location_display="a", location_url="z")
        other = OBSERVATION._replace(location_display="b", location_url=None)
        assert merge(one, other)[-2:] == ("b", None)

    def test_two_different_observations_are_refused(self) -> None:
        with pytest.raises(KeyMismatch):
            merge(found(1)[2], found(2)[2])


class TestBatches:
    """What a batch may hold."""

    @pytest.mark.parametrize(
        "wrong",
        [
            batch(finding=changed(FINDING, finding_id=b"short")),
            batch(finding=changed(FINDING, secret="x" * 32)),
            batch(occurrence=changed(OCCURRENCE, byte_length=0)),
            batch(occurrence=changed(OCCURRENCE, byte_offset=-1)),
            batch(occurrence=changed(OCCURRENCE, byte_offset=2**63 - 2, byte_length=2)),
            batch(occurrence=changed(OCCURRENCE, byte_offset=1.0)),
            batch(observation=changed(OBSERVATION, observation_id=digest(9))),
            batch(observation=changed(OBSERVATION, seen_at=-1)),
            batch(observation=changed(OBSERVATION, seen_at=None)),
            batch(observation=changed(OBSERVATION, location_display="")),
            batch(observation=changed(OBSERVATION, location_display="x" * 4097)),
            batch(observation=changed(OBSERVATION, location_url="é" * 2049)),
            batch(observation=changed(OBSERVATION, location_display=None)),
            batch(observation=changed(OBSERVATION, location_display="a\0b")),
            batch(observation=changed(OBSERVATION, location_url="\ud800")),
            batch(observation=changed(OBSERVATION, location_display=b"bytes")),
            batch(observation=changed(OBSERVATION, location_seen_at=-1)),
            batch(observation=changed(OBSERVATION, location_seen_at=2**63)),
            batch(observation=changed(OBSERVATION, location_seen_at=None)),
            batch(finding=changed(FINDING, tenant=TenantId(digest(9)))),
            batch(occurrence=changed(OCCURRENCE, tenant=TenantId(digest(9)))),
        ],
    )
    def test_with_a_row_that_cannot_be_are_refused(self, wrong: FindingsBatch) -> None:
        with pytest.raises(InvalidInput):
            validate(wrong)

    @pytest.mark.parametrize("field", ["policy", "run_id", "shard_id", "fence"])
    def test_with_rows_of_another_page_are_refused(self, field: str) -> None:
        value: bytes | int = digest(9) if field == "policy" else 99
        with pytest.raises(ReceiptMismatch, match="another page"):
            validate(batch(observation=changed(OBSERVATION, **{field: value})))

    def test_of_more_than_the_limit_are_refused_in_each_layer(self) -> None:
        validate(FindingsBatch(BATCH.scope, [FINDING] * 10_000))
        for rows in ({"findings": [FINDING]}, {"occurrences": [OCCURRENCE]}, {"observations": [OBSERVATION]}):
            with pytest.raises(BatchTooLarge, match="10,001"):
                validate(FindingsBatch(BATCH.scope, **{layer: 10_001 * row for layer, row in rows.items()}))  # type: ignore[arg-type]

    def test_repeat_rows_as_they_like(self) -> None:
        twice = FindingsBatch(BATCH.scope, [FINDING] * 2, [OCCURRENCE] * 2, [OBSERVATION] * 2).folded()
        assert (twice.findings, twice.occurrences, twice.observations) == ([FINDING], [OCCURRENCE], [OBSERVATION])

    def test_with_one_id_for_two_things_are_refused(self) -> None:
        other = changed(FINDING, secret=SecretHash(digest(9)))
        with pytest.raises(ContentConflict, match="findings"):
            FindingsBatch(BATCH.scope, [FINDING, other]).folded()
        moved = changed(OCCURRENCE, byte_offset=11)
        with pytest.raises(ContentConflict, match="occurrences"):
            FindingsBatch(BATCH.scope, [FINDING], [OCCURRENCE, moved]).folded()

    def test_with_two_ids_for_one_thing_are_refused(self) -> None:
        other = changed(FINDING, finding_id=digest(9))
        with pytest.raises(ContentConflict, match="findings"):
            FindingsBatch(BATCH.scope, [FINDING, other]).folded()

    def test_of_spans_at_the_limit_pass_together(self) -> None:
        far = changed(OCCURRENCE, byte_offset=2**63 - 2, byte_length=1)
        near = changed(OCCURRENCE, byte_offset=0, byte_length=2)
        validate(FindingsBatch(BATCH.scope, occurrences=[far, near]))

    def test_may_be_empty(self) -> None:
        validate(FindingsBatch(BATCH.scope))


@given(st.lists(observation_rows(), min_size=1, max_size=5))
def test_folding_merges_equal_ids(rows: list[ObservationRecord]) -> None:
    assert fold(rows) == [reduce(merge, rows)]


def test_no_row_shows_a_hash_of_a_secret_or_an_id_made_from_one() -> None:
    for row in (FINDING, OCCURRENCE, OBSERVATION, BATCH):
        shown = f"{row!r} {row!s}"
        for hidden in (FINDING.secret, FINDING.finding_id, OCCURRENCE.occurrence_id):
            assert bytes(hidden).hex() not in shown
            assert repr(bytes(hidden))[2:-1] not in shown
