"""What a driver that died before its run began left is deleted after a day, and nothing else is."""

from pathlib import Path

import pytest

from strandline.pipeline.state import MemoryState, Put, ScannerState
from strandline.scan.run import scan_run
from strandline.scan.run.manifest import manifest_keys, read_manifest, write_manifest
from strandline.scan.run.orphan_manifests import KEPT_NS, delete_orphans, forget_manifest, record_manifest
from strandline.scan.sources import FileSource
from tests.scan.threaded_workers import TENANT, made, request_for, scanned

SCAN, OTHER = b"s" * 32, b"t" * 32
NOW = 10**18


def begun(state: ScannerState, number: int, *, scan: bytes = SCAN, ago_ns: int = KEPT_NS + 1) -> None:
    """Do what a driver does before its run, and die."""
    record_manifest(state, TENANT, scan, number, NOW - ago_ns)
    write_manifest(state, TENANT, number, [], [])
    state.apply_batch(TENANT, [Put(b"manifest/" + number.to_bytes(8, "big") + b"/" + bytes(4), b"chunk")])


def left(state: ScannerState, *numbers: int) -> list[int]:
    return [number for number in numbers if list(manifest_keys(state, TENANT, number))]


def test_only_what_is_old_and_unused_goes() -> None:
    state = MemoryState()
    begun(state, 1)
    begun(state, 2, ago_ns=KEPT_NS - 1)
    begun(state, 3)
    begun(state, 4, scan=OTHER)
    begun(state, 5)
    forget_manifest(state, TENANT, SCAN, 5)
    delete_orphans(state, TENANT, SCAN, {3}, NOW)
    assert left(state, 1, 2, 3, 4, 5) == [2, 3, 4, 5]
    assert len(state.list_range(TENANT, b"begun/", b"begun0")) == 3


def test_a_manifest_that_has_no_head_yet_goes_too() -> None:
    state = MemoryState()
    record_manifest(state, TENANT, SCAN, 7, 0)
    head = b"manifest/" + (7).to_bytes(8, "big")
    state.apply_batch(TENANT, [Put(head + b"/" + at.to_bytes(4, "big"), b"chunk") for at in range(3)])
    assert read_manifest(state, TENANT, 7) is None
    delete_orphans(state, TENANT, SCAN, set(), NOW)
    assert state.list_range(TENANT, b"a", b"z") == []


def test_a_scan_sweeps_what_a_dead_driver_left_and_leaves_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("alpha_123")
    request = request_for(made(str(tmp_path / "s.db")), FileSource.at(tmp_path / "files"))
    with monkeypatch.context() as patch:
        patch.setattr(scan_run, "_begun", _died)
        with pytest.raises(RuntimeError, match="died"):
            scanned(request)
    with request.open_stores() as stores:
        ((key, _),) = stores.state.list_range(TENANT, b"begun/", b"begun0")
        number = int.from_bytes(key[-8:], "big")
        assert left(stores.state, number) == [number]
        stores.state.apply_batch(TENANT, [Put(key, bytes(8))])  # long ago
    scanned(request)
    with request.open_stores() as stores:
        assert stores.state.list_range(TENANT, b"begun/", b"begun0") == []
        assert stores.state.list_range(TENANT, b"manifest/", b"manifest0") == []


def _died(*_: object) -> None:
    raise RuntimeError("died")
