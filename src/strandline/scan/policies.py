"""The latest policies of a tenant's scans, whose results a new policy may carry over.

    policies     their hashes, 32 bytes each, the latest first

Of two drivers that write the list at once, one may be lost: then more is scanned than needed, never less.
"""

from strandline.pipeline.identity import DIGEST_BYTES, PolicyHash, TenantId
from strandline.pipeline.policy import PolicyRecord
from strandline.pipeline.state import Put
from strandline.pipeline.stores import Stores
from strandline.scan.plan.rule_deltas import Base, bases_of

POLICIES_MAX = 16
_KEY = b"policies"


def known_policies(stores: Stores, tenant: TenantId) -> list[PolicyHash]:
    """Return the policies of the last scans, the latest first."""
    (value,) = stores.state.multi_get(tenant, [_KEY])
    data = value or b""
    return [PolicyHash(data[at : at + DIGEST_BYTES]) for at in range(0, len(data), DIGEST_BYTES)]


def remember_policy(stores: Stores, tenant: TenantId, policy: PolicyRecord) -> None:
    """Register a policy, and put it first among the latest."""
    stores.policies.register_policy(tenant, policy)
    before = known_policies(stores, tenant)
    after = [policy.policy, *(one for one in before if one != policy.policy)][:POLICIES_MAX]
    if after != before:
        stores.state.apply_batch(tenant, [Put(_KEY, b"".join(after))])


def usable_bases(stores: Stores, tenant: TenantId, policy: PolicyRecord) -> list[Base]:
    """Return the older policies whose results a new one can carry over."""
    older = [stores.policies.get_policy(tenant, one) for one in known_policies(stores, tenant)]
    return bases_of(older, policy)
