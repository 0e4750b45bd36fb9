"""The request of a scan: sources, rules, tenant and stores.

Invariants: a request is a value that pickles, so that executors get what the driver has; its `repr` shows no key and no
address. Equal sources under an equal policy are the same scan: a second request for it joins the run of the first.
"""

import os
from dataclasses import dataclass, field
from functools import cached_property

from strandline.detect import Limits, RuleSet
from strandline.errors import InvalidInput
from strandline.pipeline.identity import PolicyHash, TenantId, TenantSecretKey
from strandline.pipeline.policy import Policy
from strandline.pipeline.stores import Stores, open_stores
from strandline.protocol.canonical import canonical_value, derive, u32
from strandline.scan.sources import Source

SOURCES_MAX = 1 << 15


@dataclass(frozen=True)
class ScanRequest:
    """A scan; `parallelism` is the expected number of concurrent workers."""

    sources: tuple[Source, ...]
    rules: RuleSet = field(repr=False)
    tenant: TenantId = field(repr=False)
    key: TenantSecretKey = field(repr=False)
    address: str = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    coordination: str | None = field(default=None, repr=False)
    lease_ttl_s: float = 30.0
    parallelism: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    retry_parked: bool = False

    def __post_init__(self) -> None:
        if not 0 < len(self.sources) < SOURCES_MAX:
            raise InvalidInput("there is nothing to scan", hint="give at least one source")
        if self.lease_ttl_s <= 0 or self.parallelism < 1:
            raise InvalidInput("the lease duration and the number of workers must be positive")

    @cached_property
    def policy(self) -> Policy:
        """Return the policy of the scan."""
        return self.rules.policy(self.limits)

    @property
    def policy_hash(self) -> PolicyHash:
        """Return the policy's id."""
        return self.policy.hash

    @cached_property
    def inputs_digest(self) -> bytes:
        """Return the digest of the sources in their order; it does not depend on the policy."""
        described = b"".join(canonical_value([one.tag, one.instance, one.plain()]) for one in self.sources)
        return derive("strandline/scan-inputs/v1", u32(len(self.sources)) + described)

    @cached_property
    def digest(self) -> bytes:
        """Return the digest of the scan: tenant, policy and sources."""
        return derive("strandline/scan-request/v1", self.tenant + self.policy_hash + self.inputs_digest)

    def open_stores(self) -> Stores:
        """Open the stores of the scan."""
        ttl_ns = int(self.lease_ttl_s * 1e9)
        return open_stores(self.address, coordination=self.coordination, lease_ttl_ns=ttl_ns, key=self.key)
