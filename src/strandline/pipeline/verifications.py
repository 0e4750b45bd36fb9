"""Verifications: the last answer of a provider about a secret, so that it is not asked again at once.

    verified/ + secret hash (32 bytes)    JSON: `state`, `when_ns`, `host`, `reason`

Invariants: one row for a secret, the latest; it holds no byte of the secret, and no byte that a provider answered; the
key holds the hash under the tenant's current key, and a rotation derives it anew as it does for decisions.
"""

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from strandline.pipeline.identity import DIGEST_BYTES, SecretHash, TenantId
from strandline.pipeline.state import Put, ScannerState
from strandline.pipeline.text_fields import check_text

VERIFIED_FIRST, VERIFIED_END = b"verified/", b"verified0"
HOST_BYTES_MAX, REASON_BYTES_MAX = 300, 200
_PAGE = 1_000


class Liveness(StrEnum):
    """What a provider says of a secret; `UNKNOWN` if it could not be asked, or its answer means neither."""

    LIVE = "live"
    REVOKED = "revoked"
    UNKNOWN = "unknown"


class Verification(NamedTuple):
    """An answer: its time, the host that gave it, and the reason in our own words."""

    state: Liveness
    when_ns: int
    host: str = ""
    reason: str = ""


def format_verification_key(secret: SecretHash) -> bytes:
    """Return the key of a secret's verification."""
    return VERIFIED_FIRST + secret


def parse_verification_key(key: bytes) -> SecretHash:
    """Return the secret of a verification."""
    return SecretHash(key.removeprefix(VERIFIED_FIRST)[:DIGEST_BYTES])


def read_verifications(state: ScannerState, tenant: TenantId) -> dict[SecretHash, Verification]:
    """Return the verifications of a tenant."""
    found = {}
    for key, value in _rows(state, tenant):
        said = json.loads(value)
        answer = Verification(Liveness(said["state"]), said["when_ns"], said["host"], said["reason"])
        found[parse_verification_key(key)] = answer
    return found


def record_verifications(
    state: ScannerState, tenant: TenantId, verifications: Iterable[tuple[SecretHash, Verification]]
) -> None:
    """Store verifications in the place of older ones, and return once they are durable."""
    puts: list[Put] = []
    for secret, answer in verifications:
        check_text(answer.host, "the host of a provider", HOST_BYTES_MAX, 0)
        check_text(answer.reason, "the reason of a verification", REASON_BYTES_MAX, 0)
        said = {**answer._asdict(), "state": answer.state.value}
        puts.append(Put(format_verification_key(secret), json.dumps(said).encode()))
    for first in range(0, len(puts), _PAGE):
        state.apply_batch(tenant, puts[first : first + _PAGE])


def _rows(state: ScannerState, tenant: TenantId) -> Iterator[tuple[bytes, bytes]]:
    first = VERIFIED_FIRST
    while rows := state.list_range(tenant, first, VERIFIED_END, _PAGE):
        yield from rows
        first = rows[-1][0] + b"\0"
