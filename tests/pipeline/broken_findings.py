"""Findings sinks that each break a promise, as a hasty implementation might."""

import threading
from dataclasses import replace

from strandline.errors import InvalidInput, StrandlineError
from strandline.pipeline import findings as rules
from strandline.pipeline.errors import ContentConflict, KeyMismatch, MissingParent
from strandline.pipeline.findings import FindingsBatch, ObservationRecord
from strandline.pipeline.memory import MemoryFindings, MemoryTables
from strandline.pipeline.receipts import FindingsReceipt
from tests.pipeline.broken import WRITERS, Crossing, caught_by
from tests.waiting import PATIENCE_S

REFUSALS = (
    "findings/missing_finding",
    "findings/missing_occurrence",
    "findings/an_id_with_other_content_is_a_conflict",
    "findings/content_under_another_id_is_a_conflict",
    "findings/an_occurrence_stays_with_its_finding",
    "findings/observations_of_two_objects_are_not_merged",
    "findings/a_batch_is_one_tenants",
    "findings/observations_of_another_page_are_refused",
    "findings/a_stale_fence_is_refused",
    "findings/ids_of_another_length_are_refused",
    "findings/spans_have_limits",
    "findings/times_have_limits",
    "findings/locations_have_limits",
    "findings/ten_thousand_rows_of_a_layer_are_a_batch_and_one_more_is_not",
    "findings/no_error_shows_a_secret",
)


@caught_by(*REFUSALS)
class GoesOnAfterAnError(MemoryFindings):
    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        try:
            return super().upsert_batch(batch)
        except StrandlineError:
            return FindingsReceipt(batch.scope)


@caught_by(
    "findings/missing_finding",
    "findings/missing_occurrence",
    "findings/an_id_with_other_content_is_a_conflict",
    "findings/content_under_another_id_is_a_conflict",
    "findings/observations_of_two_objects_are_not_merged",
    "findings/a_batch_is_one_tenants",
    "findings/observations_of_another_page_are_refused",
    "findings/a_stale_fence_is_refused",
    "findings/ids_of_another_length_are_refused",
    "findings/spans_have_limits",
    "findings/times_have_limits",
    "findings/locations_have_limits",
    "findings/ten_thousand_rows_of_a_layer_are_a_batch_and_one_more_is_not",
)
class WritesTheFirstRowsAnyway(MemoryFindings):
    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        try:
            return super().upsert_batch(batch)
        except StrandlineError:
            for row in batch.findings[:1]:
                self.tables.findings.setdefault(row[:2], row)
                self.tables.first_ns.setdefault(row[:2], self.tables.clock.now_ns())
            raise


@caught_by("findings/idempotent")
class CountsNewRows(MemoryFindings):
    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        before = len(self.tables.findings)
        receipt = super().upsert_batch(batch)
        return replace(receipt, finding_count=len(self.tables.findings) - before)


@caught_by("findings/idempotent")
class LosesObservations(MemoryFindings):
    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        receipt = super().upsert_batch(replace(batch, observations=()))
        return replace(receipt, observation_count=len(rules.fold(batch.observations)))


@caught_by("findings/missing_finding", "findings/missing_occurrence")
class TakesOrphans(MemoryFindings):
    def _check_parents(self, batch: FindingsBatch) -> None:
        pass


@caught_by("findings/missing_occurrence")
class TakesObservationsOfNothing(MemoryFindings):
    def _check_parents(self, batch: FindingsBatch) -> None:
        super()._check_parents(replace(batch, observations=()))


@caught_by("findings/parents_may_be_stored_or_in_the_batch")
class LooksForParentsInTheBatch(MemoryFindings):
    def _check_parents(self, batch: FindingsBatch) -> None:
        if {row.finding_id for row in batch.occurrences} - {row.finding_id for row in batch.findings}:
            raise MissingParent("occurrences", "findings")
        super()._check_parents(batch)


@caught_by("findings/tenants_may_have_the_same_ids")
class TakesAnotherTenantsParents(MemoryFindings):
    def _check_parents(self, batch: FindingsBatch) -> None:
        known = {key[1] for key in self.tables.findings} | {row.finding_id for row in batch.findings}
        if {row.finding_id for row in batch.occurrences} - known:
            super()._check_parents(batch)


@caught_by("findings/tenants_may_have_the_same_ids")
class KeepsOneContentForAllTenants(MemoryFindings):
    def _check_content(self, batch: FindingsBatch) -> None:
        known = {key[1]: row for key, row in self.tables.findings.items()}
        if any(known.get(row.finding_id, row)[2:] != row[2:] for row in batch.findings):
            raise ContentConflict("findings")
        super()._check_content(batch)


@caught_by("findings/an_empty_batch_has_a_receipt")
class RefusesNothing(MemoryFindings):
    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        if not (batch.findings or batch.occurrences or batch.observations):
            raise InvalidInput("there is nothing to write")
        return super().upsert_batch(batch)


@caught_by(
    "findings/an_id_with_other_content_is_a_conflict",
    "findings/content_under_another_id_is_a_conflict",
    "findings/an_occurrence_stays_with_its_finding",
)
class OverwritesContent(MemoryFindings):
    def _check_content(self, batch: FindingsBatch) -> None:
        pass


class OwnMerge(MemoryFindings):
    """Merges by a rule of its own, given the row that is there and the one that comes."""

    def merge(self, old: ObservationRecord, new: ObservationRecord) -> ObservationRecord:
        return rules.merge(old, new)

    def _merged(self, row: ObservationRecord) -> ObservationRecord:
        known = self.tables.observations.get(row[:2])
        return row if known is None else self.merge(known, row)


@caught_by("findings/observation_merge")
class LosesLocations(OwnMerge):
    def merge(self, old: ObservationRecord, new: ObservationRecord) -> ObservationRecord:
        return ObservationRecord(*rules.merge(old, new)[:9])


@caught_by("findings/observation_merge", "findings/a_late_write_of_an_unknown_shard_is_harmless")
class KeepsTheLast(OwnMerge):
    def merge(self, old: ObservationRecord, new: ObservationRecord) -> ObservationRecord:
        rules.merge(old, new)
        return new


@caught_by("findings/observations_of_two_objects_are_not_merged")
class MergesTwoObjects(OwnMerge):
    def merge(self, old: ObservationRecord, new: ObservationRecord) -> ObservationRecord:
        return rules.merge(old, new._replace(ovid=old.ovid))


@caught_by("findings/observations_in_every_order_end_as_their_fold")
class LetsTheFirstWinTies(OwnMerge):
    """The reference system's rule, which is not commutative."""

    def merge(self, old: ObservationRecord, new: ObservationRecord) -> ObservationRecord:
        is_located = old.location_display is None and new.location_display is not None
        wins = new.seen_at > old.seen_at or (new.seen_at == old.seen_at and is_located)
        winner, loser = (new, old) if wins else (old, new)
        return ObservationRecord(*winner[:9], *(winner if winner.location_display else loser)[9:])


@caught_by("findings/observations_in_every_order_end_as_their_fold")
class MixesLocations(OwnMerge):
    def merge(self, old: ObservationRecord, new: ObservationRecord) -> ObservationRecord:
        return rules.merge(old, new)._replace(location_url=new.location_url or old.location_url)


@caught_by("findings/observations_of_one_id_in_one_batch_are_merged")
class TakesTheFirstOfABatch(MemoryFindings):
    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        first = {row.observation_id: row for row in reversed(batch.observations)}
        return super().upsert_batch(replace(batch, observations=list(first.values())[::-1]))


@caught_by("findings/writers_at_once_lose_no_finding")
class ReadsThenWrites(MemoryFindings):
    def __init__(self, tables: MemoryTables) -> None:
        super().__init__(tables)
        self._all_have_read = threading.Barrier(WRITERS)
        self._all_have_written = Crossing(WRITERS, self._write)

    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        known = dict(self.tables.observations)
        self._all_have_read.wait(PATIENCE_S)
        receipt = super().upsert_batch(batch)
        self._all_have_written.wait([(known.get(row[:2]), row) for row in rules.fold(batch.observations)])
        return receipt

    def _write(self, batches: list[list[tuple[ObservationRecord | None, ObservationRecord]]]) -> None:
        for batch in sorted(batches, key=lambda batch: -batch[0][1].fence):  # what should win is written first
            for old, row in batch:
                self.tables.observations[row[:2]] = row if old is None else rules.merge(old, row)


@caught_by("findings/rows_come_back_as_they_were_written", "findings/locations_have_limits")
class SpeaksAscii(MemoryFindings):
    def _merged(self, row: ObservationRecord) -> ObservationRecord:
        merged = super()._merged(row)
        text = merged.location_display
        return merged._replace(location_display=text and text.encode("ascii", "replace").decode())


class Quoting(MemoryFindings):
    """Says too much when it refuses."""

    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        try:
            return super().upsert_batch(batch)
        except (ContentConflict, KeyMismatch) as error:
            raise self.quoting(error, batch.findings[-1].secret) from self.cause(batch.findings[-1].secret)

    def quoting(self, error: StrandlineError, secret: bytes) -> StrandlineError:  # noqa: ARG002
        return error

    def cause(self, secret: bytes) -> Exception | None:  # noqa: ARG002
        return None


@caught_by("findings/no_error_shows_a_secret")
class QuotesHex(Quoting):
    def quoting(self, error: StrandlineError, secret: bytes) -> StrandlineError:
        return StrandlineError(f"{error}: {secret.hex()}")


@caught_by("findings/no_error_shows_a_secret")
class KeepsTheHashInAField(Quoting):
    def quoting(self, error: StrandlineError, secret: bytes) -> StrandlineError:
        vars(error)["secret"] = bytes(secret)
        return error


@caught_by("findings/no_error_shows_a_secret")
class HintsAtTheHash(Quoting):
    def quoting(self, error: StrandlineError, secret: bytes) -> StrandlineError:
        error.hint = f"look for {bytes(secret)!r}"
        return error


@caught_by("findings/no_error_shows_a_secret")
class ShowsTheDriversWords(Quoting):
    def cause(self, secret: bytes) -> Exception | None:
        return ValueError(f"DETAIL: Key (secret)=(\\x{secret.hex()}) already exists.")
