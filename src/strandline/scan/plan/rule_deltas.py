"""Rule deltas: results of an older policy that a newer policy keeps.

Two policies of one frame differ in rules alone. If the older one scanned an item completely, the newer one's
findings are those of the common rules, unless an added rule hits, or a removed rule had hit: rules of one set hide each
other's hits (a provider's rule hides a generic one's). So

    a removed rule hit, or a comment allowed a finding, which is not stored            the item is scanned in full
    an added rule hits, or its scan of the item has gaps                               the item is scanned in full
    otherwise                                                                          the results are carried over

Hits that were hidden hide nothing themselves, and a rule's fingerprint covers the rules that it requires, so nothing
else can differ. Rules that the slow matcher takes share one bound of work for each item: a delta that adds one is no
delta.

Added rules look at an item by `Engine.may_find` first: one pass for their own expressions and for what may be decoded.
A text without any of their words cannot be passed over sooner: base64 may be wrapped at any digit, begin at any
alignment, and hold hexadecimal, UTF-16 or gzip in which no word of a rule is left, so what can be decoded has to be.

Invariants: what is carried is, row for row, what a full scan would have found; decisions here are pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from strandline.detect import Engine, RuleSet
from strandline.pipeline.identity import OvidHash, PolicyHash, RuleFingerprint
from strandline.pipeline.ledger import LedgerRecord
from strandline.pipeline.pages import FoundSecret, Scanned
from strandline.pipeline.policy import Policy, PolicyRecord, delta
from strandline.pipeline.reads import Observed
from strandline.pipeline.state import Put

BASES_MAX = 4
_PRESENT = b"\x01"


class Base(NamedTuple):
    """An older policy, and its difference from the new one."""

    policy: PolicyHash
    added: frozenset[RuleFingerprint]
    removed: frozenset[RuleFingerprint]


def base_of(old: PolicyRecord, new: PolicyRecord) -> Base | None:
    """Return an older policy as a base, if its results can be carried over."""
    change = delta(old, new)
    if change.rescan_all or not change.kept or old.policy == new.policy:
        return None
    return Base(old.policy, change.added, change.removed)


def bases_of(older: Iterable[PolicyRecord | None], new: PolicyRecord) -> list[Base]:
    """Return the policies whose results can be carried over, those that save the most work first."""
    found = [base for old in older if old is not None and (base := base_of(old, new)) is not None]
    return sorted(found, key=lambda base: (len(base.added), len(base.removed)))[:BASES_MAX]


def added_rules(rules: RuleSet, policy: Policy, base: Base) -> RuleSet | None:
    """Return the rules that a base lacks, with those that they require; None if it lacks none."""
    wanted = {name for name, fingerprint in policy.fingerprints.items() if fingerprint in base.added}
    reached = set[str]()
    while wanted - reached:
        new = wanted - reached
        reached |= new
        wanted |= {other.rule_id for name in new for other in rules.by_id[name].required}
    return rules.without(rules.by_id.keys() - wanted) if wanted else None


def shares_work(engine: Engine) -> bool:
    """Return whether an engine has rules that share one bound of work for each item."""
    return bool(engine.slow_rules)


def may_be_carried(row: LedgerRecord | None) -> bool:
    """Return whether the older policy scanned an item completely, at a strong version."""
    return row is not None and not row.weak and row.is_complete


def carried(row: LedgerRecord, seen: Sequence[Observed], base: Base) -> Scanned | None:
    """Return the results of an older policy under the new one; None if a removed rule had a hit."""
    if any(one.finding.rule in base.removed for one in seen):
        return None
    return Scanned(row.bytes_seen, [_found(one) for one in seen])


def by_object(seen: Iterable[Observed]) -> Mapping[OvidHash, list[Observed]]:
    """Return observations by the object version they were made in."""
    found: dict[OvidHash, list[Observed]] = {}
    for one in seen:
        found.setdefault(one.observation.ovid, []).append(one)
    return found


def allowed_key(policy: PolicyHash, ovid: OvidHash) -> bytes:
    """Return the key that marks an object version with findings allowed by comments under a policy."""
    return b"allowed/" + policy + ovid


def allowed_put(policy: PolicyHash, ovid: OvidHash) -> Put:
    """Return the write of that mark."""
    return Put(allowed_key(policy, ovid), _PRESENT)


def _found(one: Observed) -> FoundSecret:
    start, length = one.occurrence.byte_offset, one.occurrence.byte_length
    observation = one.observation
    return FoundSecret(
        one.finding.rule,
        one.finding.secret,
        start,
        start + length,
        observation.location_display,
        observation.location_url,
    )
