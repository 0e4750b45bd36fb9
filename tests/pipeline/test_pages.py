"""Pages from outcomes: ids derived, rows made, times counted, and nothing promised that is not there."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.pipeline.commit import check_items
from strandline.pipeline.errors import BatchTooLarge
from strandline.pipeline.identity import (
    ObjectVersionId,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    VersionKind,
    finding_id,
    observation_id,
    occurrence_id,
    ovid_hash,
)
from strandline.pipeline.ledger import DoneStatus, validate_all
from strandline.pipeline.pages import Failed, FoundSecret, Gaps, Item, Outcome, PageBuilder, Scanned, Skipped
from strandline.pipeline.receipts import FindingsReceipt
from strandline.pipeline.scope import Boundary, BoundaryKind
from strandline.protocol.shards import Cursor
from tests.pipeline.rows import CONTEXT, digest

END = Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(b"k"))
RULE = RuleFingerprint(digest(1, 8))


def item(number: int, kind: VersionKind = VersionKind.STRONG) -> Item:
    return Item(StableItemId(digest(number, 4)), ObjectVersionId(digest(number + 100 * kind, 7)), kind)


def secret(number: int, start: int = 10, end: int = 30, display: str | None = "file:1") -> FoundSecret:
    return FoundSecret(RULE, SecretHash(digest(number, 6)), start, end, display)


outcomes = (
    st.builds(
        Scanned,
        st.integers(0, 9),
        st.lists(st.builds(secret, st.integers(0, 2), st.integers(0, 2)), max_size=4),
        st.builds(Gaps, st.integers(0, 1), st.integers(0, 1), st.integers(0, 1)),
    )
    | st.builds(Failed, st.just("TIMEOUT"), st.booleans())
    | st.builds(Skipped, st.just("BINARY"))
)
items = st.builds(item, st.integers(0, 3), st.sampled_from(VersionKind))


@given(st.lists(st.tuples(items, outcomes), min_size=1, max_size=6))
def test_every_page_can_be_committed(pairs: list[tuple[Item, Outcome]]) -> None:
    builder = PageBuilder(CONTEXT)
    for one, outcome in pairs:
        builder.add(one, outcome)
    page = builder.page(END)
    page.findings.folded()
    validate_all(page.items)
    check_items(page.items, FindingsReceipt(page.scope))
    found = {row.ovid: set[bytes]() for row in page.items}
    by_occurrence = {row.occurrence_id: row.finding_id for row in page.findings.occurrences}
    for row in page.findings.observations:
        found[row.ovid].add(by_occurrence[row.occurrence_id])
    for done in page.items:
        if done.status == DoneStatus.SCANNED_WITH_FINDINGS:
            assert 1 <= done.findings_count <= len(found[done.ovid])


def test_ids_are_those_of_their_content() -> None:
    builder = PageBuilder(CONTEXT)
    one, hit = item(5), secret(9, 100, 120)
    builder.add(one, Scanned(4096, [hit]))
    page = builder.page(END)
    (finding,), (occurrence,), (observation,), (row,) = (
        page.findings.findings,
        page.findings.occurrences,
        page.findings.observations,
        page.items,
    )
    assert finding.finding_id == finding_id(CONTEXT.tenant, one.item, RULE, hit.secret)
    assert occurrence.occurrence_id == occurrence_id(finding.finding_id, one.version, 100, 20)
    assert observation.observation_id == observation_id(CONTEXT.tenant, CONTEXT.policy, occurrence.occurrence_id)
    assert observation.ovid == row.ovid == ovid_hash(one.item, one.version, VersionKind.STRONG)
    assert (observation.location_display, observation.location_seen_at) == ("file:1", 1)
    assert (row.status, row.bytes_seen, row.findings_count) == (DoneStatus.SCANNED_WITH_FINDINGS, 4096, 1)


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (Scanned(1), DoneStatus.SCANNED_CLEAN, None),
        (Scanned(1, gaps=Gaps(decodes_skipped=1)), DoneStatus.SCANNED_PARTIAL, None),
        (Scanned(1, [secret(1)], Gaps(members_skipped=1)), DoneStatus.SCANNED_WITH_FINDINGS, None),
        (Failed("HTTP_500", retryable=True), DoneStatus.FAILED_RETRYABLE, "HTTP_500"),
        (Failed("HTTP_403", retryable=False), DoneStatus.FAILED_PERMANENT, "HTTP_403"),
        (Skipped("TOO_LARGE"), DoneStatus.SKIPPED, "TOO_LARGE"),
    ],
)
def test_an_outcome_has_its_status(outcome: Outcome, status: DoneStatus, code: str | None) -> None:
    builder = PageBuilder(CONTEXT)
    builder.add(item(1), outcome)
    (row,) = builder.page(END).items
    assert (row.status, row.error_code) == (status, code)
    assert row.gaps == (outcome.gaps if isinstance(outcome, Scanned) else (0, 0, 0))


def test_equal_findings_of_an_item_are_one_and_two_places_are_two_occurrences() -> None:
    builder = PageBuilder(CONTEXT)
    builder.add(item(1), Scanned(1, [secret(1), secret(1), secret(1, 50, 70)]))
    page = builder.page(END)
    folded = page.findings.folded()
    assert (len(folded.findings), len(folded.occurrences), len(folded.observations)) == (1, 2, 2)
    assert page.items[0].findings_count == 1


def test_later_items_of_a_lease_are_later_across_pages() -> None:
    builder = PageBuilder(CONTEXT)
    seen = []
    for _ in range(3):
        builder.add(item(1), Scanned(1, [secret(1)]))
        builder.add(item(2), Scanned(1))
        page = builder.page(END)
        seen += [(row.started_at, row.finished_at) for row in page.items]
        assert page.findings.observations[0].seen_at == page.items[0].finished_at
    assert seen == [(2 * n, 2 * n + 1) for n in range(6)]


def test_a_weak_version_is_kept_as_such() -> None:
    builder = PageBuilder(CONTEXT)
    builder.add(item(1, VersionKind.WEAK), Scanned(1))
    builder.add(item(1), Scanned(1))
    weak, strong = builder.page(END).items
    assert (weak.weak, strong.weak) == (True, False)
    assert weak.ovid != strong.ovid


def test_an_empty_page_and_an_empty_span_are_refused() -> None:
    builder = PageBuilder(CONTEXT)
    with pytest.raises(InvalidInput, match="at least one item"):
        builder.page(END)
    with pytest.raises(InvalidInput, match="span is empty"):
        builder.add(item(1), Scanned(1, [secret(1, 5, 5)]))
    with pytest.raises(InvalidInput, match="span is empty"):
        builder.add(item(1), Scanned(1, [secret(1, -5, 5)]))
    assert len(builder) == 0


def test_items_of_a_page_that_fails_stay() -> None:
    builder = PageBuilder(CONTEXT)
    builder.add(item(1), Scanned(1))
    builder.add(item(2), Failed("", retryable=True))
    for _ in range(2):
        with pytest.raises(InvalidInput, match="error code"):
            builder.page(END)
        assert len(builder) == 2


def test_a_page_has_as_many_items_as_a_batch_has_rows() -> None:
    builder = PageBuilder(CONTEXT)
    for number in range(10_000):
        builder.add(item(number), Skipped("BINARY"))
    with pytest.raises(BatchTooLarge, match="10,001 items"):
        builder.add(item(10_000), Skipped("BINARY"))
    assert len(builder.page(END).items) == 10_000


def test_what_was_found_shows_no_hash() -> None:
    plain = secret(1)._replace(secret=bytes(digest(0x6161, 6)))  # type: ignore[arg-type]
    assert "aa" not in repr(plain)
    assert "aa" not in repr(Scanned(1, [plain]))


def test_a_page_of_thousands_takes_a_moment() -> None:
    builder = PageBuilder(CONTEXT)
    for number in range(4_000):
        builder.add(item(number), Scanned(1, [secret(number)]))
    begin = time.process_time()
    page = builder.page(END)
    assert time.process_time() - begin < 10
    assert len(page.items) == len(page.findings.findings) == 4_000
