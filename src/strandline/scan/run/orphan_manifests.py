"""Orphan manifests: written by a driver that died before its run began; a note made first lets a later scan find them.

    begun/<digest of the scan><u64 number of the manifest>     u64 when, nanoseconds since 1970

Invariants: a note is there before the first chunk of its manifest is, and goes when the manifest has a run or is gone;
a manifest is swept only if it is a day old and no run of the scan that is open or put aside has it.
"""

from collections.abc import Collection

from strandline.pipeline.identity import TenantId
from strandline.pipeline.state import Delete, Put, ScannerState
from strandline.protocol.canonical import u64
from strandline.scan.run.manifest import manifest_keys

KEPT_NS = 86_400 * 10**9
"""The longest time that a driver may take from its manifest to its run."""


def record_manifest(state: ScannerState, tenant: TenantId, scan: bytes, number: int, now_ns: int) -> None:
    """Store the note of a manifest before its first chunk."""
    state.apply_batch(tenant, [Put(_key(scan, number), u64(now_ns))])


def forget_manifest(state: ScannerState, tenant: TenantId, scan: bytes, number: int) -> None:
    """Delete the note of a manifest that has a run, or is gone."""
    state.apply_batch(tenant, [Delete(_key(scan, number))])


def delete_orphans(state: ScannerState, tenant: TenantId, scan: bytes, used: Collection[int], now_ns: int) -> None:
    """Delete the orphan manifests of a scan; `used` are the manifests of its runs."""
    begin = _key(scan, 0)
    for key, value in state.list_range(tenant, begin, _key(scan, 2**64 - 1)):
        number = int.from_bytes(key[-8:], "big")
        if number not in used and now_ns - int.from_bytes(value, "little") > KEPT_NS:
            for found in manifest_keys(state, tenant, number):
                state.apply_batch(tenant, [Delete(found)])
            state.apply_batch(tenant, [Delete(key)])


def _key(scan: bytes, number: int) -> bytes:
    return b"begun/" + scan + number.to_bytes(8, "big")
