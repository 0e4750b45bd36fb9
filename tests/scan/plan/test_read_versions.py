"""What pages read is known until the inventory has it, whoever is stopped, and then it is forgotten."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.pipeline.identity import OvidHash
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import STATE_VALUE_BYTES_MAX, MemoryState, Put
from strandline.scan.inventory import find_inventory
from strandline.scan.plan import read_versions
from strandline.scan.plan.read_versions import load_read_versions, read_version_puts, stat_cache
from strandline.scan.request import ScanRequest
from strandline.scan.sources import VOUCHED
from strandline.scan.worker import shard_scanner
from strandline.scan.workers import WorkerTask
from tests.scan.things import READS, Thing, Things
from tests.scan.threaded_workers import RULES, TENANT, ThreadWorkers, made, request_for, scanned

INPUTS = bytes(32)


def writer(fence: int = 1, run: int = 7) -> WriteContext:
    return WriteContext(TENANT, RULES.policy().hash, run, 0, fence)


def files(*names: bytes, version: bytes = b"v", size: int = 40) -> pa.Table:
    rows = [(0, name, bytes(size), version, OvidHash(bytes(32))) for name in names]
    return pa.Table.from_pylist([dict(zip(VOUCHED.names, row, strict=True)) for row in rows], VOUCHED)


def keys_of(request: ScanRequest) -> list[bytes]:
    with request.open_stores() as stores:
        return list(load_read_versions(stores.state, TENANT, request.inputs_digest).keys)


def known(state: MemoryState, *names: bytes) -> list[bytes | None]:
    cache = stat_cache(load_read_versions(state, TENANT, INPUTS), read_versions.inventory_index(None, state, TENANT))
    asked = pa.array(names, pa.binary()), pa.array([bytes(40)] * len(names), pa.binary())
    versions: list[bytes | None] = cache.known(0, *asked)[0].to_pylist()
    return versions


def test_notes_are_read_back_and_a_later_fence_counts() -> None:
    state = MemoryState()
    for fence, version in ((2, b"new"), (1, b"old")):
        state.apply_batch(TENANT, read_version_puts(INPUTS, writer(fence), 10, files(b"a", version=version)))
    state.apply_batch(TENANT, read_version_puts(INPUTS, writer(), 20, files(b"b")))
    state.apply_batch(TENANT, read_version_puts(b"\x01" * 32, writer(), 5, files(b"c")))
    assert known(state, b"a", b"b", b"c") == [b"new", b"v", None]


def test_a_large_page_leaves_notes_that_a_store_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_versions, "PART_ROWS_MAX", 3)
    state = MemoryState()
    names = [b"%d" % number for number in range(10)]
    puts = read_version_puts(INPUTS, writer(), 10, files(*names))
    assert len(puts) == 4
    state.apply_batch(TENANT, puts)
    assert known(state, *names) == [b"v"] * 10
    longest = 4_096 + 3 * 64
    assert read_versions.PART_ROWS_MAX * longest < STATE_VALUE_BYTES_MAX


def test_what_cannot_be_read_as_a_note_counts_as_none() -> None:
    state = MemoryState()
    (put,) = read_version_puts(INPUTS, writer(), 10, files(b"a"))
    state.apply_batch(TENANT, [Put(put.key, put.value[:100]), *read_version_puts(INPUTS, writer(), 20, files(b"b"))])
    assert known(state, b"a", b"b") == [None, b"v"]
    assert len(load_read_versions(state, TENANT, INPUTS).keys) == 2


def test_more_notes_than_are_read_at_once_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_versions, "_NOTES_AT_ONCE", 2)
    state = MemoryState()
    for number in range(5):
        state.apply_batch(TENANT, read_version_puts(INPUTS, writer(), number, files(b"%d" % number)))
    assert known(state, *[b"%d" % number for number in range(5)]) == [b"v"] * 5


def test_the_end_of_a_scan_forgets_the_notes_and_the_inventory_has_what_they_said(things: Things, address: str) -> None:
    things.write({"a": "alpha_100", "b": "nothing"})
    request = request_for(address, things)
    assert scanned(request).is_whole
    assert keys_of(request) == []
    READS.clear()
    assert scanned(request, workers := ThreadWorkers()).is_whole
    assert (workers.started, READS) == (0, {})


class Stopping(ThreadWorkers):
    """Workers that finish, and a driver that is stopped before it settles."""

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        super().run(task, shards, poll)
        raise KeyboardInterrupt


def test_a_scan_that_was_stopped_before_its_end_knows_what_it_read(things: Things, address: str) -> None:
    things.write({**{f"item {number}": f"alpha_{number:03}" for number in range(20)}, "fresh": Thing("x", fresh=True)})
    request = request_for(address, things)
    with pytest.raises(KeyboardInterrupt):
        scanned(request, Stopping())
    assert keys_of(request)
    READS.clear()
    assert scanned(request, workers := ThreadWorkers()).is_whole
    assert workers.started == 0
    assert set(READS) <= {"fresh"}
    assert keys_of(request) == []


def test_versions_are_known_under_other_rules(things: Things, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read where only a rule was taken away, which needs the versions that the last scan read."""
    things.write({"a": "alpha_100", "b": "beta_100"})
    scanned(request_for(address, things))
    READS.clear()
    monkeypatch.setattr(shard_scanner, "PAGE_ITEMS_MAX", 1)
    assert scanned(request_for(address, things, rules=RULES.without({"beta"}))).is_whole
    assert READS == {"b": 1}


def test_notes_of_a_run_that_goes_on_are_left_to_it(things: Things, address: str) -> None:
    things.write({f"item {number}": "nothing" for number in range(20)})
    other = request_for(address, things, rules=RULES.without({"beta"}))

    class Half(ThreadWorkers):
        def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
            del shards, poll
            puts = read_version_puts(other.inputs_digest, writer(run=task(1).run.run), 5, files(b"x"))
            with other.open_stores() as stores:
                stores.state.apply_batch(TENANT, puts)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scanned(other, Half())
    (before,) = keys_of(other)
    assert scanned(request_for(address, things)).is_whole
    assert keys_of(other) == [before]
    assert scanned(other).is_whole
    assert keys_of(other) == []


@pytest.mark.parametrize("is_long", [True, False])
def test_workers_are_made_ready_for_a_long_listing_that_nobody_has_looked_at(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    made_ready = []
    monkeypatch.setattr(sys.modules["strandline.scan.driver"], "READY_AFTER_ITEMS", 1 if is_long else 2)

    class Ready(ThreadWorkers):
        def make_ready(self, request: ScanRequest) -> None:
            made_ready.append(request)

    things.write({"a": "nothing"})
    request = request_for(address, things)
    for _ in range(2):
        scanned(request, Ready())
    assert made_ready == ([request] if is_long else [])


def test_an_inventory_that_another_scan_replaced_is_done_without(tmp_path: Path, things: Things) -> None:
    things.write({"a": "alpha_100"})
    request = request_for(made(str(tmp_path / "state.db")), things)
    scanned(request)
    with request.open_stores() as stores:
        head = find_inventory(stores.state, TENANT, request.inputs_digest)
        assert head is not None
        names = pa.array([b"a"])
        for known, state, is_there in ((head, stores.state, True), (head, MemoryState(), False)):
            assert read_versions.inventory_index(known, state, TENANT).has(0, names).to_pylist() == [is_there]
        assert len(read_versions.inventory_index(None, stores.state, TENANT)) == 0
