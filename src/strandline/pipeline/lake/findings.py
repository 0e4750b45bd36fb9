"""Findings, decisions and policies in object storage.

A page's findings, occurrences and observations are one object, so they are there together or not at all. Ids that
follow from their content cannot contradict what is stored, and parents in the same page need no lookup: so a worker
writes without reading. Only rows of other kinds are compared with what is stored first.
"""

import json
from collections.abc import Sequence
from operator import itemgetter

from strandline.errors import Damaged
from strandline.objects import ObjectConflict
from strandline.pipeline import triage as triage_rules
from strandline.pipeline.errors import ContentConflict, MissingParent
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.identity import (
    FindingId,
    PolicyHash,
    RuleFingerprint,
    TenantId,
    VersionKind,
    finding_ids,
    occurrence_ids,
    ovid_hash,
)
from strandline.pipeline.lake.columns import digest_of, findings_table, triage_table
from strandline.pipeline.lake.layout import PageName, format_policy
from strandline.pipeline.lake.page_cache import PageCache
from strandline.pipeline.lake.state import LakeState
from strandline.pipeline.memory import MemoryFindings
from strandline.pipeline.policy import PolicyRecord, validate
from strandline.pipeline.receipts import FindingsReceipt
from strandline.pipeline.scope import FenceOf, WriteContext, check_fence, unknown_fence
from strandline.pipeline.tenant_keys import CHECK_KEY, KeyChanged
from strandline.pipeline.triage import TriageEvent

_NOBODY = PolicyHash(bytes(32))
_id = itemgetter(1)


class LakeFindings:
    """Findings, decisions and policies of a lake."""

    def __init__(
        self,
        cache: PageCache,
        state: LakeState,
        fence_of: FenceOf = unknown_fence,
        key_check: bytes | None = None,
    ) -> None:
        """`key_check` is of the key that findings are derived with; they are refused when the tenant's is another."""
        self._cache = cache
        self._state = state
        self._fence_of = fence_of
        self._key_check = key_check

    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        """Write a page's findings as one object, and return once it is durable."""
        folded = batch.folded()
        context = batch.scope.context
        page = FindingsBatch(
            batch.scope,
            sorted(folded.findings, key=_id),
            sorted(folded.occurrences, key=_id),
            sorted(folded.observations, key=_id),
        )
        layers = page.findings, page.occurrences, page.observations
        if any(layers):
            self._check_key(context.tenant)
        check_fence(context, self._fence_of(context.tenant, context.run_id, context.shard_id))
        if any(layers):
            if not _stands_alone(folded):
                MemoryFindings(self._cache.findings()).check(folded)
            table = findings_table(page, self._cache.clock.now_ns())
            self._cache.write(PageName.of("findings", context, digest_of(table)), table)
        return FindingsReceipt(batch.scope, *map(len, layers))

    def record_triage(self, events: Sequence[TriageEvent]) -> None:
        """Store decisions as one object, and return once it is durable; `MissingParent` for an unknown finding."""
        triage_rules.validate_all(events)
        if not events:
            return
        known = self._cache.findings().findings
        if any(event[:2] not in known for event in events):
            raise MissingParent("decisions", "findings")
        distinct = sorted(set(events))
        writer = WriteContext(events[0].tenant, _NOBODY, 0, 0, 0)
        table = triage_table(distinct, self._cache.clock.now_ns())
        self._cache.write(PageName.of("triage", writer, digest_of(table)), table)

    def triage_of(self, tenant: TenantId, findings: Sequence[FindingId]) -> list[TriageEvent | None]:
        """Return the current decision of each finding, in their order; None for a finding without a decision."""
        triage_rules.check_count(findings)
        return MemoryFindings(self._cache.findings()).triage_of(tenant, findings)

    def register_policy(self, tenant: TenantId, policy: PolicyRecord) -> None:
        """Store a policy, and return once it is durable; idempotent. `ContentConflict` if its rules differ."""
        validate(tenant, policy)
        try:
            self._cache.store.put(format_policy(tenant, policy.policy), format_policy_record(policy), if_absent=True)
        except ObjectConflict:
            if self.get_policy(tenant, policy.policy) != policy:
                raise ContentConflict("policies") from None

    def get_policy(self, tenant: TenantId, policy: PolicyHash) -> PolicyRecord | None:
        """Return a policy, or None if the tenant has no policy of that name."""
        key = format_policy(tenant, policy)
        found = self._cache.store.get(key)
        return None if found is None else parse_policy_record(policy, found.body, f"{self._cache.store.address}: {key}")

    def _check_key(self, tenant: TenantId) -> None:
        if self._key_check is not None:
            (known,) = self._state.multi_get(tenant, [CHECK_KEY])
            if known is not None and known != self._key_check:
                raise KeyChanged


def format_policy_record(policy: PolicyRecord) -> bytes:
    """Return a policy as an object has it."""
    rules = [[name, rule.hex()] for name, rule in policy.rules]
    return json.dumps({"frame_digest": policy.frame_digest.hex(), "rules": rules}).encode()


def parse_policy_record(policy: PolicyHash, data: bytes, where: str) -> PolicyRecord:
    """Return a policy from its object."""
    try:
        record = json.loads(data)
        rules = tuple((str(name), RuleFingerprint(bytes.fromhex(rule))) for name, rule in record["rules"])
        return PolicyRecord(policy, bytes.fromhex(record["frame_digest"]), rules)
    except (ValueError, TypeError, KeyError) as error:
        safe = "nothing was changed; restore the object, or scan again with the same rules"
        raise Damaged(where, "it is no policy", safe=safe) from error


def _stands_alone(batch: FindingsBatch) -> bool:
    """Return whether no row of a batch can contradict or miss what is stored: ids are derived, and parents are here."""
    findings = {row.finding_id: row for row in batch.findings}
    occurrences = {row.occurrence_id: row for row in batch.occurrences}
    if any(row.finding_id not in findings for row in batch.occurrences):
        return False
    if any(row.occurrence_id not in occurrences for row in batch.observations):
        return False
    if batch.findings:
        tenants, named, *parts = zip(*batch.findings, strict=True)
        if finding_ids(tenants[0], *parts).to_pylist() != list(named):
            return False
    if batch.occurrences:
        _, named, *place = zip(*batch.occurrences, strict=True)
        if occurrence_ids(*place).to_pylist() != list(named):
            return False
    for seen in batch.observations:
        at = occurrences[seen.occurrence_id]
        item = findings[at.finding_id].item
        if seen.ovid not in {ovid_hash(item, at.version, kind) for kind in VersionKind}:
            return False
    return True
