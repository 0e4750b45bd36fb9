"""Reads, triage, policies and scanner state that each break a promise, as a hasty implementation might."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from strandline.errors import InvalidInput, StrandlineError
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.findings import FindingRecord, FindingsBatch, ObservationRecord
from strandline.pipeline.identity import FindingId, ObservationId, OvidHash, PolicyHash, SecretHash, TenantId
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.memory import MemoryFindings
from strandline.pipeline.memory_reads import MemoryReads
from strandline.pipeline.policy import PolicyRecord
from strandline.pipeline.reads import Coverage, FindingHistory, Known, Observed, PendingFinding, PolicyCounts
from strandline.pipeline.receipts import FindingsReceipt
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import Delete, MemoryState, Put
from strandline.pipeline.triage import TriageEvent, event_id
from tests.pipeline.broken import caught_by

# Reads.


@caught_by("reads/nothing_is_known_of_a_tenant_without_results", "reads/a_secret_is_found_everywhere_it_is")
class ShowsEverybodysFindings(MemoryReads):
    def _findings(self, tenant: TenantId) -> list[FindingRecord]:  # noqa: ARG002
        return list(self.tables.findings.values())


@caught_by("reads/nothing_is_known_of_a_tenant_without_results", "reads/counts_are_of_distinct_rows_by_policy")
class ShowsEverybodysObservations(MemoryReads):
    def _observations(self, tenant: TenantId) -> list[ObservationRecord]:  # noqa: ARG002
        return list(self.tables.observations.values())


@caught_by("reads/nothing_is_known_of_a_tenant_without_results", "reads/coverage_adds_up")
class ShowsEverybodysRows(MemoryReads):
    def _rows(self, tenant: TenantId, policy: PolicyHash) -> list[LedgerRecord]:  # noqa: ARG002
        return [row for key, row in self.tables.ledger.items() if key[1] == policy]


@caught_by("reads/tenants_with_the_same_ids_see_their_own", "reads/answers_are_those_of_the_twin_in_memory")
class JoinsById(MemoryReads):
    def _observations(self, tenant: TenantId) -> list[ObservationRecord]:
        mine = {row.occurrence_id for row in super()._observations(tenant)}
        return [row for row in self.tables.observations.values() if row.occurrence_id in mine]


@caught_by("reads/counts_are_of_distinct_rows_by_policy")
class CountsEverySightAsAFinding(MemoryReads):
    def _counts(self, tenant: TenantId, policy: PolicyHash) -> PolicyCounts:
        counts = super()._counts(tenant, policy)
        return counts._replace(findings=counts.observations)


@caught_by("reads/findings_wait_for_a_decision_last_committed_first")
class ShowsTheOldestFirst(MemoryReads):
    def needing_triage(self, tenant: TenantId, limit: int = 100) -> list[PendingFinding]:
        return super().needing_triage(tenant, limit)[::-1]


@caught_by("reads/findings_wait_for_a_decision_last_committed_first")
class ForgetsWhatWasOpenedAgain(MemoryReads):
    def needing_triage(self, tenant: TenantId, limit: int = 100) -> list[PendingFinding]:
        return [row for row in super().needing_triage(tenant, limit) if row.decision is None]


@caught_by("reads/findings_wait_for_a_decision_last_committed_first")
class ShowsWhatWasDecided(MemoryReads):
    def _decision(self, row: FindingRecord) -> TriageEvent | None:  # noqa: ARG002
        return None


@caught_by("reads/orders_are_total")
class SortsByTimeAlone(MemoryReads):
    def needing_triage(self, tenant: TenantId, limit: int = 100) -> list[PendingFinding]:
        rows = sorted(super().needing_triage(tenant, limit), key=lambda row: row.finding.item)
        return sorted(rows, key=lambda row: -row.last_committed_ns)


@caught_by("reads/a_limit_is_at_least_one")
class KnowsNoLimit(MemoryReads):
    def needing_triage(self, tenant: TenantId, limit: int = 100) -> list[PendingFinding]:  # noqa: ARG002
        return super().needing_triage(tenant, 10**9)


@caught_by("reads/a_history_is_whole_and_oldest_first")
class TellsTheNewestFirst(MemoryReads):
    def history(self, tenant: TenantId, finding: FindingId) -> FindingHistory | None:
        found = super().history(tenant, finding)
        return found and found._replace(seen=found.seen[::-1])


@caught_by("reads/a_history_is_whole_and_oldest_first", "reads/a_decision_is_kept_once_and_for_ever")
class TellsTheLastDecision(MemoryReads):
    def history(self, tenant: TenantId, finding: FindingId) -> FindingHistory | None:
        found = super().history(tenant, finding)
        return found and found._replace(decisions=found.decisions[-1:])


@caught_by("reads/coverage_adds_up")
class SumsInSixtyFourBits(MemoryReads):
    def coverage(self, tenant: TenantId, policy: PolicyHash) -> Coverage:
        coverage = super().coverage(tenant, policy)
        return coverage._replace(bytes_seen=(coverage.bytes_seen + 2**63) % 2**64 - 2**63)


@caught_by("reads/coverage_adds_up")
class SumsInFloats(MemoryReads):
    def coverage(self, tenant: TenantId, policy: PolicyHash) -> Coverage:
        coverage = super().coverage(tenant, policy)
        large: Any = float(coverage.bytes_seen)
        return coverage._replace(bytes_seen=large)


@caught_by("reads/what_an_item_hides_is_not_clean")
class CountsPartialAsClean(MemoryReads):
    def coverage(self, tenant: TenantId, policy: PolicyHash) -> Coverage:
        coverage = super().coverage(tenant, policy)
        objects = Counter(coverage.objects)
        objects[DoneStatus.SCANNED_CLEAN] += objects.pop(DoneStatus.SCANNED_PARTIAL, 0)
        return coverage._replace(objects=objects, incomplete=0)


@caught_by("reads/a_secret_is_found_everywhere_it_is")
class ShowsTheHash(MemoryReads):
    def findings_of_secret(self, tenant: TenantId, secret: SecretHash) -> list[FindingRecord]:
        bare: Any = bytes(secret)
        return [row._replace(secret=bare) for row in super().findings_of_secret(tenant, secret)]


@caught_by("reads/policies_differ_over_what_both_scanned")
class ComparesWhatOneScanned(MemoryReads):
    def _scanned(self, tenant: TenantId, policy: PolicyHash) -> set[bytes]:  # noqa: ARG002
        return {row.ovid for row in self.tables.ledger.values() if row.tenant == tenant}


@caught_by("reads/what_was_known_is_known_to_the_nanosecond")
class LeavesOutTheMomentItself(MemoryReads):
    def known_at(self, tenant: TenantId, policy: PolicyHash, at_ns: int) -> Known:
        return super().known_at(tenant, policy, at_ns - 1)


@caught_by("reads/what_was_known_is_known_to_the_nanosecond")
class KnowsOnlyNow(MemoryReads):
    def known_at(self, tenant: TenantId, policy: PolicyHash, at_ns: int) -> Known:
        known = super().known_at(tenant, policy, at_ns)
        return known._replace(objects=Counter(row.status for row in self._rows(tenant, policy)))


@caught_by("reads/first_times_never_move")
class MovesTimes(MemoryFindings):
    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        for key in self.tables.first_ns:
            self.tables.first_ns[key] = self.tables.clock.now_ns()
        return super().upsert_batch(batch)


@caught_by("reads/answers_are_those_of_the_twin_in_memory")
class ShowsTheFirstLocation(MemoryReads):
    def _pending(self, row: FindingRecord) -> PendingFinding:
        seen = [seen for seen in self._observations(row.tenant) if self._finding_of(seen) == row.finding_id]
        located = [one.location_display for one in seen if one.location_display is not None]
        return super()._pending(row)._replace(location_display=located[0] if located else None)


@caught_by("reads/what_was_seen_comes_whole")
class TellsWhenTheOccurrenceCame(MemoryReads):
    def _observed(self, row: ObservationRecord) -> Observed:
        return super()._observed(row)._replace(first_ns=self._first_ns(row))


@caught_by("reads/what_was_seen_comes_in_pages_by_id")
class BeginsWithTheLast(MemoryReads):
    def observed(
        self,
        tenant: TenantId,
        policy: PolicyHash,
        ovids: Sequence[OvidHash] | None = None,
        *,
        after: ObservationId | None = None,
        limit: int = 10_000,
    ) -> list[Observed]:
        whole = super().observed(tenant, policy, ovids, limit=10**9)
        at = [row.observation.observation_id for row in whole].index(after) if after else 0
        return whole[at:][: max(limit, 0)] if at + 1 < len(whole) else []


@caught_by("reads/only_the_objects_asked_for_are_told_of")
class TellsOfAllWhereNoneIsAskedFor(MemoryReads):
    def observed(
        self,
        tenant: TenantId,
        policy: PolicyHash,
        ovids: Sequence[OvidHash] | None = None,
        *,
        after: ObservationId | None = None,
        limit: int = 10_000,
    ) -> list[Observed]:
        return super().observed(tenant, policy, ovids or None, after=after, limit=limit)


# Triage.


@caught_by("reads/decisions_come_in_the_order_asked")
class LeavesOutWhatIsOpen(MemoryFindings):
    def triage_of(self, tenant: TenantId, findings: Sequence[FindingId]) -> list[TriageEvent | None]:
        return [event for event in super().triage_of(tenant, findings) if event]


@caught_by("reads/the_last_decision_holds_in_whatever_order_they_come", "reads/a_decision_is_kept_once_and_for_ever")
class KeepsTheLastToArrive(MemoryFindings):
    def record_triage(self, events: Sequence[TriageEvent]) -> None:
        super().record_triage(events)
        for event in events:
            self.tables.triage[event[:2]] = {event_id(event): event}


@caught_by("reads/a_decision_is_kept_once_and_for_ever")
class KeepsADecisionTwice(MemoryFindings):
    def record_triage(self, events: Sequence[TriageEvent]) -> None:
        super().record_triage(events)
        for number, event in enumerate(events):
            self.tables.triage[event[:2]][b"%d" % number] = event


@caught_by(
    "reads/a_decision_needs_its_finding",
    "reads/decisions_of_two_tenants_are_not_one_batch",
    "reads/what_decisions_say_has_limits",
    "reads/a_policy_of_other_content_is_a_conflict",
    "reads/policies_have_limits",
)
class GoesOnAfterAnError(MemoryFindings):
    def record_triage(self, events: Sequence[TriageEvent]) -> None:
        try:
            super().record_triage(events)
        except StrandlineError:
            return

    def register_policy(self, tenant: TenantId, policy: PolicyRecord) -> None:
        try:
            super().register_policy(tenant, policy)
        except StrandlineError:
            return


@caught_by(
    "reads/a_decision_needs_its_finding",
    "reads/decisions_of_two_tenants_are_not_one_batch",
    "reads/what_decisions_say_has_limits",
    "reads/a_policy_of_other_content_is_a_conflict",
    "reads/policies_have_limits",
)
class WritesTheFirstRowsAnyway(MemoryFindings):
    def record_triage(self, events: Sequence[TriageEvent]) -> None:
        try:
            super().record_triage(events)
        except StrandlineError:
            self.tables.triage[events[0][:2]][b""] = events[0]
            raise

    def register_policy(self, tenant: TenantId, policy: PolicyRecord) -> None:
        try:
            super().register_policy(tenant, policy)
        except StrandlineError:
            self.tables.policies[tenant, policy.policy] = policy
            raise


@caught_by("reads/decisions_of_two_tenants_are_not_one_batch")
class DecidesForEverybody(MemoryFindings):
    def triage_of(self, tenant: TenantId, findings: Sequence[FindingId]) -> list[TriageEvent | None]:
        mine = super().triage_of(tenant, findings)
        anybodys = {key[1]: event for key, events in self.tables.triage.items() for event in events.values()}
        return [event or anybodys.get(finding) for event, finding in zip(mine, findings, strict=True)]


# Policies.


@caught_by("reads/a_policy_comes_back_as_it_was_registered")
class SortsRulesLikeADictionary(MemoryFindings):
    def get_policy(self, tenant: TenantId, policy: PolicyHash) -> PolicyRecord | None:
        found = super().get_policy(tenant, policy)
        return found and found._replace(rules=tuple(sorted(found.rules, key=lambda rule: rule[0].lower())))


@caught_by("reads/a_policy_is_its_tenants_alone")
class SharesPolicies(MemoryFindings):
    def get_policy(self, tenant: TenantId, policy: PolicyHash) -> PolicyRecord | None:  # noqa: ARG002
        return next((row for key, row in self.tables.policies.items() if key[1] == policy), None)


# Scanner state.


@caught_by("state/values_come_in_the_order_of_their_keys")
class GivesValuesThatAreThere(MemoryState):
    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        return [value for value in super().multi_get(tenant, keys) if value is not None]


@caught_by("state/values_come_in_the_order_of_their_keys")
class TakesEmptyForMissing(MemoryState):
    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        return [value or None for value in super().multi_get(tenant, keys)]


@caught_by("state/the_last_operation_on_a_key_holds")
class LetsTheFirstOperationHold(MemoryState):
    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        super().apply_batch(tenant, operations[::-1], writer=writer)


@caught_by("state/the_last_operation_on_a_key_holds")
class DeletesAtTheEnd(MemoryState):
    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        super().apply_batch(
            tenant, sorted(operations, key=lambda operation: isinstance(operation, Delete)), writer=writer
        )


@caught_by("state/keys_are_bytes_and_nothing_else")
class EndsKeysAtAZero(MemoryState):
    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        return super().multi_get(tenant, [key.rstrip(b"\x00") or b"\x00" for key in keys])

    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        cut = [operation._replace(key=operation.key.rstrip(b"\x00") or b"\x00") for operation in operations]
        super().apply_batch(tenant, cut, writer=writer)


@caught_by("state/keys_are_their_tenants_alone")
class SharesKeys(MemoryState):
    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        return super().multi_get(TenantId(bytes(len(tenant))), keys)

    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        super().apply_batch(TenantId(bytes(len(tenant))), operations, writer=writer)


@caught_by("state/a_range_of_keys_comes_in_order")
class ListsBackwards(MemoryState):
    def list_range(self, tenant: TenantId, first: bytes, end: bytes, limit: int = 100) -> list[tuple[bytes, bytes]]:
        return super().list_range(tenant, first, end, limit)[::-1]


@caught_by("state/a_range_of_keys_comes_in_order")
class ListsTheEndToo(MemoryState):
    def list_range(self, tenant: TenantId, first: bytes, end: bytes, limit: int = 100) -> list[tuple[bytes, bytes]]:
        return super().list_range(tenant, first, end + b"\0", limit)


@caught_by("state/a_range_of_keys_comes_in_order")
class ListsMoreThanAskedFor(MemoryState):
    def list_range(self, tenant: TenantId, first: bytes, end: bytes, limit: int = 100) -> list[tuple[bytes, bytes]]:
        return super().list_range(tenant, first, end, limit + 1)


@caught_by("state/a_bad_operation_undoes_its_batch")
class GoesOnAfterABadOperation(MemoryState):
    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        try:
            super().apply_batch(tenant, operations, writer=writer)
        except StrandlineError:
            return


@caught_by("state/no_error_shows_a_key_or_a_value")
class QuotesOperations(MemoryState):
    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        try:
            super().apply_batch(tenant, operations, writer=writer)
        except InvalidInput as error:
            raise InvalidInput(f"{error}: {tuple(operations[0])}") from error


@caught_by("state/a_bad_operation_undoes_its_batch", "state/ten_thousand_keys_are_a_batch_and_one_more_is_not")
class AppliesUntilItFails(MemoryState):
    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        for operation in operations:
            super().apply_batch(tenant, [operation], writer=writer)


@caught_by("state/ten_thousand_keys_are_a_batch_and_one_more_is_not")
class SplitsLargeBatches(MemoryState):
    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        first, rest = keys[:BATCH_ROWS_MAX], keys[BATCH_ROWS_MAX:]
        return super().multi_get(tenant, first) + (self.multi_get(tenant, rest) if rest else [])


@caught_by("state/batches_at_once_are_whole")
class WritesOneAfterAnother(MemoryState):
    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        for operation in operations:
            super().apply_batch(tenant, [operation], writer=writer)
            time.sleep(0.0005)


@caught_by("state/the_first_writer_sets_a_key_for_all")
class SetsWhatIsThere(MemoryState):
    def put_first(self, tenant: TenantId, key: bytes, value: bytes) -> bytes:
        super().apply_batch(tenant, [Put(key, value)])
        return value


@caught_by("state/a_stale_writer_sets_nothing")
class AsksForNoFence(MemoryState):
    def apply_batch(
        self,
        tenant: TenantId,
        operations: Sequence[Put | Delete],
        *,
        writer: WriteContext | None = None,  # noqa: ARG002
    ) -> None:
        super().apply_batch(tenant, operations)


@caught_by("state/a_zombie_does_not_set_back_what_its_successor_set")
class RemembersNoFence(MemoryState):
    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        self._fences.clear()
        super().apply_batch(tenant, operations, writer=writer)
