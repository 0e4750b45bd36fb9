"""The contract of `FindingsSink`: three layers, whole batches, and no error that shows a secret.

The first four checks have the names of the reference system's. What was written is looked at through `reads`.
"""

from typing import Any

from strandline.errors import InvalidInput
from strandline.pipeline.errors import ContentConflict, KeyMismatch, MissingParent, ReceiptMismatch
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.identity import FindingId, OccurrenceId, OvidHash
from strandline.protocol.errors import StaleFence
from strandline.testing.contract import expect, refuses, same
from strandline.testing.persistence_helpers import (
    ELSEWHERE,
    OTHER_POLICY,
    OTHER_TENANT,
    TENANT,
    WRITER,
    CheckedPersistence,
    Found,
    Location,
    PersistenceCheck,
    as_tenant,
    batch_of,
    digest,
    found,
    observed,
    same_row,
    same_rows,
    scope_of,
    write,
)


def idempotent(stores: CheckedPersistence) -> None:
    """The first time adds one row to each layer, the second none; the receipt is the same, as it counts rows named."""
    row = found(location=Location(1, "file:3", "https://host/file#3"))
    first = write(stores, row)
    same("the receipt", (first.finding_count, first.occurrence_count, first.observation_count), (1, 1, 1))
    same("the receipt's scope", first.scope, batch_of(row).scope)
    for time in ("first", "second"):
        same(f"the counts after the {time} time", _counts(stores), (1, 1, 1))
        same_rows(f"the observations after the {time} time", observed(stores, row), [row.observation])
        same("the next receipt", write(stores, row), first)


def missing_finding(stores: CheckedPersistence) -> None:
    """An occurrence of a finding that is not there is refused, and with it all of its batch."""
    orphan, fine = found("orphan"), found("fine")
    batch = FindingsBatch(
        scope_of(WRITER), [fine.finding], [fine.occurrence, orphan.occurrence], [fine.observation, orphan.observation]
    )
    refuses("an occurrence without its finding", MissingParent, stores.findings.upsert_batch, batch)
    _expect_nothing(stores, orphan, fine)
    # Were the occurrence there, its observation would be taken now.
    alone = FindingsBatch(scope_of(WRITER), observations=[fine.observation])
    refuses("an observation of what was refused", MissingParent, stores.findings.upsert_batch, alone)


def missing_occurrence(stores: CheckedPersistence) -> None:
    """An observation of an occurrence that is not there is refused, and with it all of its batch."""
    orphan, fine = found("orphan"), found("fine")
    batch = FindingsBatch(
        scope_of(WRITER),
        [fine.finding, orphan.finding],
        [fine.occurrence],
        [fine.observation, orphan.observation],
    )
    refuses("an observation without its occurrence", MissingParent, stores.findings.upsert_batch, batch)
    _expect_nothing(stores, orphan, fine)


def observation_merge(stores: CheckedPersistence) -> None:
    """The later sight wins, in any order, and a location stays although the later one has none."""
    late = WRITER._replace(run_id=8)
    first = found(seen_at=5, location=Location(5, "file:3", "https://host/file#3"))
    write(stores, first)
    write(stores, found(seen_at=9, writer=late))
    write(stores, found(seen_at=7))
    wanted = found(seen_at=9, writer=late, location=Location(5, "file:3", "https://host/file#3")).observation
    same_rows("the observation", observed(stores, first), [wanted])
    same("the counts", _counts(stores), (1, 1, 1))


def parents_may_be_stored_or_in_the_batch(stores: CheckedPersistence) -> None:
    """Layer by layer, a page of their own for each, or all at once."""
    row, more = found(), found(offset=30)
    upsert = stores.findings.upsert_batch
    receipt = upsert(FindingsBatch(scope_of(WRITER), [row.finding]))
    same("the first receipt", (receipt.finding_count, receipt.occurrence_count, receipt.observation_count), (1, 0, 0))
    upsert(FindingsBatch(scope_of(WRITER), occurrences=[row.occurrence]))
    upsert(FindingsBatch(scope_of(WRITER), observations=[row.observation]))
    upsert(FindingsBatch(scope_of(WRITER), [], [more.occurrence], [more.observation]))
    wanted = sorted([row.observation, more.observation])
    same_rows("the observations", sorted(observed(stores, row)), wanted)


def an_empty_batch_has_a_receipt(stores: CheckedPersistence) -> None:
    """Nothing was found, and that is durable too."""
    receipt = stores.findings.upsert_batch(batch_of())
    same("the receipt", (receipt.finding_count, receipt.occurrence_count, receipt.observation_count), (0, 0, 0))
    same("the receipt's scope", receipt.scope, batch_of().scope)
    same("the counts", stores.reads.counts_by_policy(TENANT), [])


def rows_come_back_as_they_were_written(stores: CheckedPersistence) -> None:
    """In all three layers, with text of any language and numbers of any size."""
    location = Location(2**63 - 1, "päth/文件:3 \U0001f511", "https://host/%20#é")
    writer = WRITER._replace(run_id=-(2**63), shard_id=-1, fence=2**63 - 1)
    row = found(offset=2**63 - 21, writer=writer, seen_at=2**63 - 1, location=location)
    write(stores, row)
    history = stores.reads.history(TENANT, row.finding.finding_id)
    expect(history, "the finding should be there")
    if history:
        same_row("the finding", history.finding, row.finding)
        same_row("the occurrence", history.seen[0].occurrence, row.occurrence)
        same_row("the observation", history.seen[0].observation, row.observation)


# Conflicts.


def an_id_with_other_content_is_a_conflict(stores: CheckedPersistence) -> None:
    """Beside its first content or after it; nothing of that batch is written, and the first content stays."""
    row, fine = found(), found("fine")
    other = digest("something else")
    findings: list[dict[str, Any]] = [{"item": other}, {"rule": other}, {"secret": other}]
    occurrences: list[dict[str, Any]] = [{"version": other}, {"byte_offset": 1}, {"byte_length": 1}]
    conflicts = [Found(row.finding._replace(**change), *row[1:]) for change in findings]
    conflicts += [row._replace(occurrence=row.occurrence._replace(**change)) for change in occurrences]
    names = [name for change in (*findings, *occurrences) for name in change]
    for name, conflict in zip(names, conflicts, strict=True):
        refuses(f"two {name}s in one batch", ContentConflict, write, stores, fine, row, conflict)
    _expect_nothing(stores, row, fine)
    write(stores, row)
    for name, conflict in zip(names, conflicts, strict=True):
        refuses(f"another {name}", ContentConflict, write, stores, fine, conflict)
    _expect_nothing(stores, fine)
    write(stores, row)
    same_rows("the observations", observed(stores, row), [row.observation])


def content_under_another_id_is_a_conflict(stores: CheckedPersistence) -> None:
    """What has an id keeps it: a second one would count the same thing twice."""
    row, fine = found(), found("fine")
    other = digest("another id")
    renamed: list[tuple[str, FindingsBatch]] = [
        ("finding", FindingsBatch(scope_of(WRITER), [row.finding._replace(finding_id=FindingId(other))])),
        (
            "occurrence",
            FindingsBatch(scope_of(WRITER), [], [row.occurrence._replace(occurrence_id=OccurrenceId(other))]),
        ),
    ]
    for layer, batch in renamed:
        both = FindingsBatch(
            scope_of(WRITER),
            [fine.finding, row.finding, *batch.findings],
            [row.occurrence, *batch.occurrences],
        )
        refuses(f"a {layer} under two ids", ContentConflict, stores.findings.upsert_batch, both)
    _expect_nothing(stores, row, fine)
    write(stores, row)
    for layer, batch in renamed:
        both = FindingsBatch(scope_of(WRITER), [fine.finding, *batch.findings], batch.occurrences)
        refuses(f"a {layer} under another id", ContentConflict, stores.findings.upsert_batch, both)
    _expect_nothing(stores, fine)
    same_rows("the findings", stores.reads.findings_of_secret(TENANT, row.finding.secret), [row.finding])


def an_occurrence_stays_with_its_finding(stores: CheckedPersistence) -> None:
    """Its id under another finding is a conflict, though both findings are there."""
    row, other = found(), found("other")
    write(stores, row, other)
    moved = row._replace(occurrence=row.occurrence._replace(finding_id=other.finding.finding_id))
    refuses("an occurrence of another finding", ContentConflict, write, stores, moved)
    same_rows("the observations", observed(stores, row), [row.observation])
    same_rows("the other's", observed(stores, other), [other.observation])


def observations_of_two_objects_are_not_merged(stores: CheckedPersistence) -> None:
    """An id that is seen in another object version was not derived from what it names."""
    row, fine = found(), found("fine")
    moved = row._replace(observation=row.observation._replace(ovid=OvidHash(digest("elsewhere")), seen_at=99))
    refuses("two objects in one batch", KeyMismatch, write, stores, fine, row, moved)
    _expect_nothing(stores, row, fine)
    write(stores, row)
    refuses("another object", KeyMismatch, write, stores, fine, moved)
    same_rows("the observations", observed(stores, row), [row.observation])
    _expect_nothing(stores, fine)


# Tenants and pages.


def a_batch_is_one_tenants(stores: CheckedPersistence) -> None:
    """A row of another tenant in any layer is refused, and with it all of the batch."""
    mine, other = found(), found("other", writer=ELSEWHERE)
    for layer in Found._fields:
        mixed = found("other")._replace(**{layer: getattr(other, layer)})
        refuses(f"an {layer} of another tenant", InvalidInput, write, stores, mine, mixed)
        whole = batch_of(other, writer=WRITER)
        refuses("a batch of another tenant", InvalidInput, stores.findings.upsert_batch, whole)
    _expect_nothing(stores, mine, found("other"), other)


def tenants_may_have_the_same_ids(stores: CheckedPersistence) -> None:
    """What one wrote neither conflicts with what another writes, nor is it a parent of it, nor seen by it."""
    mine = found(location=Location(1, "mine"))
    theirs = found(writer=ELSEWHERE, location=Location(2, "theirs"), seen_at=2)
    # The other tenant's finding and occurrence under this one's ids, with content of its own.
    finding = found("another", writer=ELSEWHERE).finding._replace(finding_id=mine.finding.finding_id)
    occurrence = mine.occurrence._replace(tenant=OTHER_TENANT, byte_length=3)
    write(stores, mine)
    orphan = FindingsBatch(scope_of(ELSEWHERE), occurrences=[occurrence])
    refuses("an occurrence of another tenant's finding", MissingParent, stores.findings.upsert_batch, orphan)
    own = as_tenant(mine, OTHER_TENANT)
    orphan = FindingsBatch(scope_of(ELSEWHERE), [own.finding], observations=[own.observation])
    refuses("an observation of another tenant's occurrence", MissingParent, stores.findings.upsert_batch, orphan)
    same("what the other sees", stores.reads.history(OTHER_TENANT, mine.finding.finding_id), None)
    write(stores, theirs)
    stores.findings.upsert_batch(FindingsBatch(scope_of(ELSEWHERE), [finding], [occurrence]))
    same_rows("my observations", observed(stores, mine), [mine.observation])
    same_rows("theirs", observed(stores, theirs), [theirs.observation])
    history = stores.reads.history(OTHER_TENANT, mine.finding.finding_id)
    same_row("their finding of that id", history and history.finding, finding)


def observations_of_another_page_are_refused(stores: CheckedPersistence) -> None:
    """The policy, run, shard and fence of every observation are those of the batch."""
    mine = found("mine")
    for what, writer in (
        ("policy", WRITER._replace(policy=OTHER_POLICY)),
        ("run", WRITER._replace(run_id=8)),
        ("shard", WRITER._replace(shard_id=8)),
        ("older fence", WRITER._replace(fence=4)),
        ("newer fence", WRITER._replace(fence=6)),
    ):
        other = found("other", writer=writer)
        refuses(f"an observation of another {what}", ReceiptMismatch, write, stores, mine, other)
        batch = batch_of(other, writer=WRITER)
        refuses(f"a batch of another {what}", ReceiptMismatch, stores.findings.upsert_batch, batch)
    _expect_nothing(stores, mine, found("other"))


# Fences.


def a_stale_fence_is_refused(stores: CheckedPersistence) -> None:
    """Where the store knows a newer fence of that very shard, nothing of a batch is written, nor an empty one."""
    if stores.set_fence is None:
        return
    stores.set_fence(TENANT, WRITER.run_id, WRITER.shard_id, 6)
    row = found()
    refuses("a write under an older fence", StaleFence, write, stores, row)
    refuses("an empty write under an older fence", StaleFence, write, stores)
    _expect_nothing(stores, row)
    for what, writer in (
        ("the current fence", WRITER._replace(fence=6)),
        ("a newer fence than the store knows", WRITER._replace(fence=7)),
        ("an older fence of another shard", WRITER._replace(shard_id=4)),
        ("an older fence of another run", WRITER._replace(run_id=8)),
        ("an older fence of another tenant", ELSEWHERE),
    ):
        row = found(what, writer=writer)
        write(stores, row)
        same_rows(f"what was written under {what}", observed(stores, row), [row.observation])


def a_late_write_of_an_unknown_shard_is_harmless(stores: CheckedPersistence) -> None:
    """Who comes last under an older fence takes nothing away, at the same time of sight or an earlier one."""
    row = found(seen_at=5, writer=WRITER._replace(fence=9), location=Location(5, "new"))
    write(stores, row)
    write(stores, found(seen_at=5, writer=WRITER._replace(fence=2, run_id=99), location=Location(4, "old")))
    write(stores, found(seen_at=4, writer=WRITER._replace(fence=2)))
    same_rows("the observation", observed(stores, row), [row.observation])


def _counts(stores: CheckedPersistence) -> tuple[int, ...]:
    counts = stores.reads.counts_by_policy(TENANT)
    expect(len(counts) == 1, f"there should be counts for one policy, but are for {len(counts)}")
    return counts[0][1:]


def _expect_nothing(stores: CheckedPersistence, *rows: Found) -> None:
    for row in rows:
        tenant = row.finding.tenant
        expect(stores.reads.history(tenant, row.finding.finding_id) is None, "a refused finding was written")
        same_rows("findings of a refused secret", stores.reads.findings_of_secret(tenant, row.finding.secret), [])
        # Under another run, whose fence is unknown.
        occurrence = FindingsBatch(scope_of(WRITER._replace(tenant=tenant, run_id=0)), occurrences=[row.occurrence])
        refuses("an occurrence of a refused finding", MissingParent, stores.findings.upsert_batch, occurrence)


ROW_CHECKS: tuple[PersistenceCheck, ...] = (
    idempotent,
    missing_finding,
    missing_occurrence,
    observation_merge,
    parents_may_be_stored_or_in_the_batch,
    an_empty_batch_has_a_receipt,
    rows_come_back_as_they_were_written,
    an_id_with_other_content_is_a_conflict,
    content_under_another_id_is_a_conflict,
    an_occurrence_stays_with_its_finding,
    observations_of_two_objects_are_not_merged,
    a_batch_is_one_tenants,
    tenants_may_have_the_same_ids,
    observations_of_another_page_are_refused,
    a_stale_fence_is_refused,
    a_late_write_of_an_unknown_shard_is_harmless,
)
