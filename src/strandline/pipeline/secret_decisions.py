"""Decisions about secrets: they hold for every finding of the secret, those of later scans included.

    decided/ + secret hash (32 bytes) + when (u64 ns, big-endian)    JSON: `state`, `who`, `why`

Invariants: a decision is kept for ever; the key holds the hash under the tenant's current key, and a rotation derives
it anew in the transaction that accepts the new key.
"""

import json
from collections.abc import Iterable, Iterator

from strandline.pipeline.identity import DIGEST_BYTES, SecretHash, TenantId
from strandline.pipeline.state import Put, ScannerState
from strandline.pipeline.text_fields import check_text
from strandline.pipeline.triage import WHO_BYTES_MAX, WHY_BYTES_MAX, Decided, TriageState

DECIDED_FIRST, DECIDED_END = b"decided/", b"decided0"
_PAGE = 1_000
_TIME_BYTES = 8


def format_decision_key(secret: SecretHash, when_ns: int) -> bytes:
    """Return the key of a decision."""
    return DECIDED_FIRST + secret + when_ns.to_bytes(_TIME_BYTES, "big")


def parse_decision_key(key: bytes) -> tuple[SecretHash, int]:
    """Return the secret and the time of a decision."""
    body = key.removeprefix(DECIDED_FIRST)
    return SecretHash(body[:DIGEST_BYTES]), int.from_bytes(body[DIGEST_BYTES:], "big")


def read_secret_decisions(state: ScannerState, tenant: TenantId) -> dict[SecretHash, list[Decided]]:
    """Return the decisions about secrets, oldest first."""
    found: dict[SecretHash, list[Decided]] = {}
    for key, value in _rows(state, tenant):
        secret, when_ns = parse_decision_key(key)
        said = json.loads(value)
        found.setdefault(secret, []).append(Decided(TriageState[said["state"]], when_ns, said["who"], said["why"]))
    return found


def record_secret_decisions(
    state: ScannerState, tenant: TenantId, decisions: Iterable[tuple[SecretHash, Decided]]
) -> None:
    """Store decisions, and return once they are durable; more than 10,000 are stored in several steps."""
    puts: list[Put] = []
    for secret, decided in decisions:
        check_text(decided.who, "who decided", WHO_BYTES_MAX)
        check_text(decided.why, "why it was decided", WHY_BYTES_MAX, 0)
        said = {"state": TriageState(decided.state).name, "who": decided.who, "why": decided.why}
        puts.append(Put(format_decision_key(secret, decided.when_ns), json.dumps(said).encode()))
    for first in range(0, len(puts), _PAGE):
        state.apply_batch(tenant, puts[first : first + _PAGE])


def _rows(state: ScannerState, tenant: TenantId) -> Iterator[tuple[bytes, bytes]]:
    first = DECIDED_FIRST
    while rows := state.list_range(tenant, first, DECIDED_END, _PAGE):
        yield from rows
        first = rows[-1][0] + b"\0"
