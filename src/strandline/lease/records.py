"""The record of a lease as bytes: one JSON object, and nothing that it does not name.

    {"format": 1, "epoch": 7, "holder": "node-a", "address": "http://10.0.0.5:8080", "session": "4f0c…", "nonce": 12,
     "ttl_ms": 10000, "released": false}

Invariants: `parse_record` takes exactly what `format_record` makes, in any order and spacing; a later format is a
`FormatError`, and everything else `LeaseDamaged`. Neither is ever taken for a lease that may be claimed: the epoch
would be a guess.
"""

import json
from typing import Any

from strandline.errors import FormatError
from strandline.lease.errors import LeaseDamaged
from strandline.protocol.leadership import LeaseRecord

FORMAT = 1
EPOCH_MAX = 2**63 - 1
TTL_MS_MAX = 86_400_000
TEXT_MAX = 1024
NS_PER_MS = 1_000_000
_FIELDS = {
    "format": int,
    "epoch": int,
    "holder": str,
    "address": str,
    "session": str,
    "nonce": int,
    "ttl_ms": int,
    "released": bool,
}


def format_record(record: LeaseRecord) -> bytes:
    """Return a record's bytes."""
    fields = {
        "format": FORMAT,
        "epoch": record.epoch,
        "holder": record.holder,
        "address": record.address,
        "session": record.session,
        "nonce": record.nonce,
        "ttl_ms": record.ttl_ns // NS_PER_MS,
        "released": record.released,
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def parse_record(data: bytes, address: str) -> LeaseRecord:
    """Return the record of some bytes; `FormatError` for a later format, else `LeaseDamaged` names the problem."""
    try:
        found: Any = json.loads(data)
    except ValueError:
        raise LeaseDamaged(address, f"the {len(data)} bytes of its record are not JSON") from None
    if not isinstance(found, dict):
        raise LeaseDamaged(address, "its record is not a JSON object")
    number = found.get("format")
    if type(number) is int and number > FORMAT:
        raise FormatError(address, f"its record has format {number}", hint="use the version that wrote it, or a later")
    problem = _problem(found)
    if problem:
        raise LeaseDamaged(address, f"its record {problem}")
    return LeaseRecord(
        found["epoch"],
        found["holder"],
        found["address"],
        found["session"],
        found["nonce"],
        found["ttl_ms"] * NS_PER_MS,
        found["released"],
    )


def _problem(found: dict[str, Any]) -> str | None:
    if missing := _FIELDS.keys() - found.keys():
        return f"has no {', '.join(sorted(missing))}"
    if unknown := found.keys() - _FIELDS.keys():
        return f"has fields of another kind: {', '.join(sorted(unknown))[:200]}"
    for name, kind in _FIELDS.items():
        value = found[name]
        if type(value) is not kind or (isinstance(value, str) and len(value) > TEXT_MAX):
            return f"has {name} {str(value)[:100]!r}"
    limits = (("format", 1, FORMAT), ("epoch", 1, EPOCH_MAX), ("nonce", 1, EPOCH_MAX), ("ttl_ms", 0, TTL_MS_MAX))
    for name, lowest, highest in limits:
        if not lowest <= found[name] <= highest:
            return f"has {name} {found[name]}"
    if not found["session"] or not found["holder"]:
        return "has no session or holder"
    return None
