"""The check value of a tenant's key in a store, and the record of its rotation.

    tenant/key-check             a hash that only the right key gives; while the key is rotated, one that none gives
    tenant/key-rotation          the rotation, while it runs
    tenant/key-rotation/pages/…  the findings that are still under the old key

Invariants: no byte of a key is in a store; results under one key never mix with those under another: a writer of
findings compares the check value in the transaction that stores them.
"""

import json
from dataclasses import asdict, dataclass

from blake3 import blake3

from strandline.errors import Conflict, FormatError, Unavailable
from strandline.pipeline.identity import DIGEST_BYTES, FindingId, TenantSecretKey

CHECK_KEY = b"tenant/key-check"
ROTATION_KEY = b"tenant/key-rotation"
PAGES_FIRST, PAGES_END = b"tenant/key-rotation/pages/", b"tenant/key-rotation/pages0"
ROTATION_VERSION = 1
_CHECK_DOMAIN = b"strandline/key-check/v1"
_ROTATING = b"rotating/"


class KeyRotating(Unavailable):
    """The tenant's key is being rotated, so nothing can be kept or read under any key until that is finished."""

    def __init__(self, tenant: str) -> None:
        super().__init__(
            f"the key of tenant {tenant!r} is being rotated",
            hint="wait for it, or finish it where it was interrupted: run `strandline pipeline rotate-key` again",
        )
        self.tenant = tenant


class KeyChanged(Conflict):
    """The tenant's key was rotated since a scan began, or is being rotated: what it found is not stored."""

    def __init__(self) -> None:
        super().__init__(
            "the tenant's key was rotated since this scan began, or is being rotated",
            hint="run the same command again with the new key when the rotation is over: it goes on where this stopped",
        )


def check_value(key: TenantSecretKey) -> bytes:
    """Return the check value of a key; it reveals nothing of the key."""
    first, *later = key.epochs
    check = blake3(_CHECK_DOMAIN, key=first).digest()
    for epoch in later:
        check = blake3(_CHECK_DOMAIN + check, key=epoch).digest()
    return check


def rotating_value(to_check: bytes) -> bytes:
    """Return the check value during a rotation; no key has it."""
    return _ROTATING + to_check


@dataclass(frozen=True, slots=True)
class RotationRecord:
    """A rotation under way: the check values of both keys, when it began, and how many findings there were."""

    from_check: str
    to_check: str
    begun_ns: int
    findings: int
    version: int = ROTATION_VERSION


def format_rotation(record: RotationRecord) -> bytes:
    """Return a rotation as the store keeps it."""
    return json.dumps(asdict(record), sort_keys=True).encode()


def parse_rotation(data: bytes) -> RotationRecord:
    """Return the rotation that the store keeps; `FormatError` where it is another version's."""
    try:
        record = RotationRecord(**json.loads(data))
    except (TypeError, ValueError) as error:
        raise FormatError("tenant/key-rotation", f"cannot be read: {error}", hint="use a later Strandline") from error
    if record.version != ROTATION_VERSION:
        problem = f"a rotation of version {record.version} is not known here"
        raise FormatError("tenant/key-rotation", problem, hint="use a later Strandline")
    return record


def format_page_key(number: int) -> bytes:
    """Return the key of a page of findings; pages sort by number."""
    return PAGES_FIRST + b"%010d" % number


def parse_page_key(key: bytes) -> int:
    """Return the number of a page of findings."""
    return int(key.removeprefix(PAGES_FIRST))


def format_page(findings: list[FindingId]) -> bytes:
    """Return a page of findings: their ids, one after another."""
    return b"".join(findings)


def parse_page(data: bytes) -> list[FindingId]:
    """Return the findings of a page."""
    return [FindingId(data[at : at + DIGEST_BYTES]) for at in range(0, len(data), DIGEST_BYTES)]
