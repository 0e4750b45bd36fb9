"""A policy: all settings that decide which findings an object has, named by their digest.

A rule's fingerprint is the digest of its canonical content, the policy's hash covers the fingerprints of all rules, the
tuning, the decoders and the engine's version. So a change of meaning is a change of name, and "same bytes, same policy"
means the same findings. The fingerprints are kept beside the hash: `delta` says which rules a new policy added, and
whether scanning with these alone is enough.

Invariants: the order of rules and of keys does not matter; equal content gives equal hashes on every machine;
`generation` is the one part without meaning of its own: raising it makes a new policy of the same content, under which
what failed for good is looked at again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.identity import DIGEST_BYTES, PolicyHash, RuleFingerprint, RulesDigest, TenantId
from strandline.pipeline.text_fields import check_text
from strandline.protocol.canonical import Plain, canonical_value, derive, u8, u32

NAME_BYTES_MAX = 256
POLICY_HASH_VERSION = 1
EVIDENCE_HASH_VERSION = 1
"""Version 1 hashes the secret's bytes as they were found."""
UNKEYED, KEYED_V1 = 0, 1
"""Whether the hash of a secret is keyed per tenant."""


def rule_fingerprint(rule: Plain) -> RuleFingerprint:
    """Return the id of a rule from its content."""
    return RuleFingerprint(derive("strandline/rule/v2", canonical_value(rule)))


def policy_hash(rules: RulesDigest, mode: int = KEYED_V1, evidence: int = EVIDENCE_HASH_VERSION) -> PolicyHash:
    """Return the id of a policy from the digest of its content and the versions of the hashes it leads to."""
    data = u32(POLICY_HASH_VERSION) + u8(mode) + u32(evidence) + rules
    return PolicyHash(derive("gossip/policy-hash/v2", data))


def hash_of(rules: Iterable[RuleFingerprint], frame_digest: bytes) -> PolicyHash:
    """Return the id of a policy from its rules and the digest of its frame."""
    chosen = sorted(rules)
    data = u32(len(chosen)) + b"".join(chosen) + frame_digest
    return policy_hash(RulesDigest(derive("strandline/rules-digest/v2", data)))


@dataclass(frozen=True)
class Policy:
    """The content of a policy; `rules` has the content of each rule by name, `known` its fingerprint if it is there."""

    rules: Mapping[str, Plain]
    tuning: Plain
    decoders: Plain
    engine: str
    generation: int = 0
    known: InitVar[Mapping[str, RuleFingerprint] | None] = None
    fingerprints: Mapping[str, RuleFingerprint] = field(init=False, repr=False, compare=False)

    def __post_init__(self, known: Mapping[str, RuleFingerprint] | None) -> None:
        if not self.rules:
            raise InvalidInput("a policy without rules finds nothing", hint="give it at least one rule")
        for name in self.rules:
            check_text(name, "a rule's name", NAME_BYTES_MAX)
        fingerprints = known or {name: rule_fingerprint([name, content]) for name, content in self.rules.items()}
        object.__setattr__(self, "fingerprints", fingerprints)

    @cached_property
    def frame_digest(self) -> bytes:
        """Return the digest of all but the rules: when it changes, every rule must look again."""
        frame = [self.tuning, self.decoders, self.engine, self.generation]
        return derive("strandline/policy-frame/v1", canonical_value(frame))

    @cached_property
    def hash(self) -> PolicyHash:
        """Return the policy's id."""
        return hash_of(self.fingerprints.values(), self.frame_digest)

    @property
    def record(self) -> "PolicyRecord":
        """Return the stored form of the policy."""
        return PolicyRecord(self.hash, self.frame_digest, tuple(sorted(self.fingerprints.items())))


class PolicyRecord(NamedTuple):
    """The stored form of a policy: its name, the digest of its frame, and its rules by name."""

    policy: PolicyHash
    frame_digest: bytes
    rules: tuple[tuple[str, RuleFingerprint], ...]


def validate(tenant: TenantId, record: PolicyRecord) -> None:
    """Reject a policy that a store cannot hold."""
    digests: list[object] = [tenant, record.policy, record.frame_digest, *(rule for _, rule in record.rules)]
    if any(not isinstance(digest, bytes) or len(digest) != DIGEST_BYTES for digest in digests):
        raise InvalidInput(f"an id of the policy is not {DIGEST_BYTES} bytes")
    if len(record.rules) > BATCH_ROWS_MAX:
        raise BatchTooLarge(len(record.rules), what="rules")
    names = [name for name, _ in record.rules]
    for name in names:
        check_text(name, "a rule's name", NAME_BYTES_MAX)
    if names != sorted(set(names)):
        raise InvalidInput("the rules of a policy are sorted by name, and a name stands once", hint="use Policy.record")


class Policies(Protocol):
    """The policies of a tenant's results."""

    def register_policy(self, tenant: TenantId, policy: PolicyRecord) -> None:
        """Store a policy, and return once it is durable; idempotent. `ContentConflict` if its rules differ."""
        ...

    def get_policy(self, tenant: TenantId, policy: PolicyHash) -> PolicyRecord | None:
        """Return a policy, or None if the tenant has no policy of that name."""
        ...


class PolicyDelta(NamedTuple):
    """The difference of two policies; `rescan_all` if scanning with the added rules alone is not enough."""

    added: frozenset[RuleFingerprint]
    removed: frozenset[RuleFingerprint]
    kept: frozenset[RuleFingerprint]
    rescan_all: bool


def delta(old: PolicyRecord, new: PolicyRecord) -> PolicyDelta:
    """Return the difference between the old policy and the new."""
    before = frozenset(fingerprint for _, fingerprint in old.rules)
    after = frozenset(fingerprint for _, fingerprint in new.rules)
    return PolicyDelta(after - before, before - after, before & after, old.frame_digest != new.frame_digest)
