"""Writers: one at a time, gathered commits, a bounded queue, and an orderly end."""

import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from strandline.errors import Closed, CommitFailed, Locked, StrandlineError
from strandline.files import OsDisk
from strandline.journal import SYNCED, WRITTEN, Durability, Journal, JournalConfig, JournalPoisoned, examine
from strandline.journal.appends import Append
from strandline.journal.columns import columns_of
from strandline.journal.config import KiB
from strandline.sim import SimDisk
from tests.journal.helpers import (
    FOLDER,
    SMALL,
    WAIT_S,
    Heard,
    LaterExecutor,
    Tally,
    WatchedDisk,
    in_threads,
    numbered,
    open_descriptors,
    open_sim,
    segments_in,
    values_of,
)
from tests.waiting import eventually


class TestTheLock:
    def test_a_second_writer_in_this_process_is_refused(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
            with pytest.raises(Locked, match="locked by another writer") as caught:
                Journal.open(tmp_path / "j")
            assert caught.value.retryable
            assert "JournalReader" in (caught.value.hint or "")
            journal.append([b"b"])
        with Journal.open(tmp_path / "j") as journal:
            assert values_of(journal) == [b"a", b"b"]

    def test_a_second_writer_in_another_process_is_refused(self, tmp_path: Path) -> None:
        code = (
            "import sys\nfrom strandline.errors import Locked\nfrom strandline.journal import Journal\n"
            "try:\n    Journal.open(sys.argv[1]).append([b'x'])\n"
            "except Locked:\n    sys.exit(7)\n"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "j")]
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
            assert subprocess.run(command, check=False, timeout=WAIT_S).returncode == 7
        assert subprocess.run(command, check=False, timeout=WAIT_S).returncode == 0
        with Journal.open(tmp_path / "j") as journal:
            assert values_of(journal) == [b"a", b"x"]

    def test_the_lock_goes_with_the_process_that_held_it(self, tmp_path: Path) -> None:
        code = "import os, sys\nfrom strandline.journal import Journal\nJournal.open(sys.argv[1])\nos._exit(0)\n"
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "j")], check=True, timeout=WAIT_S)
        Journal.open(tmp_path / "j").close()

    def test_a_journal_that_does_not_open_holds_no_lock(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
        segment = tmp_path / "j" / segments_in(tmp_path / "j")[0]
        good = segment.read_bytes()
        segment.write_bytes(b"something else".ljust(len(good)))
        for _ in range(2):
            with pytest.raises(StrandlineError):
                Journal.open(tmp_path / "j")
        segment.write_bytes(good)
        with Journal.open(tmp_path / "j") as journal:
            assert values_of(journal) == [b"a"]

    def test_the_same_folder_by_another_name_is_the_same_folder(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "j")
        with Journal.open(tmp_path / "j"):
            for name in (tmp_path / "link", tmp_path / "." / "j", os.path.relpath(tmp_path / "j")):
                with pytest.raises(Locked):
                    Journal.open(name)


class TestGathering:
    def test_a_crowd_shares_its_syncs(self, tmp_path: Path) -> None:
        tally = Tally()

        def slow(operation: str, path: Path, size: int) -> None:
            tally(operation, path, size)
            if operation == "sync":
                time.sleep(0.002)

        with Journal.open(tmp_path / "j", disk=WatchedDisk(OsDisk(), slow)) as journal:
            tally.clear()
            outcomes = in_threads([lambda: [journal.append([b"x"]).base_offset for _ in range(50)]] * 8)
            syncs = tally.times["sync"]
            offsets = sorted(offset for outcome in outcomes if isinstance(outcome, list) for offset in outcome)
            assert offsets == list(range(400))
            assert syncs <= 200, f"{syncs} syncs for 400 appends"
            assert len(values_of(journal)) == 400

    def test_what_gathered_is_one_write_and_one_sync(self) -> None:
        tally = Tally()
        later = LaterExecutor()
        with Journal.open(FOLDER, disk=WatchedDisk(SimDisk(), tally), executor=later) as journal:
            journal.append([b"first"])
            tally.clear()
            futures = [journal.append_soon([b"%d" % n]) for n in range(100)]
            later.run_all()
            assert all(future.result(0) for future in futures)
            assert tally.times["sync"] == 1
            assert len([1 for name, path in tally.log if name == "pwritev" and path.endswith(".journal")]) == 1

    def test_a_full_queue_blocks_the_caller_and_lets_it_go_on(self, tmp_path: Path) -> None:
        go_on = threading.Event()
        go_on.set()

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if operation == "pwritev" and path.name.endswith(".journal"):
                assert go_on.wait(WAIT_S)

        config = JournalConfig(queue_bytes_max=4 * KiB)
        with Journal.open(tmp_path / "j", config, disk=WatchedDisk(OsDisk(), watch)) as journal:
            go_on.clear()
            sent: list[int] = []
            futures = []

            def produce() -> None:
                for number in range(30):
                    futures.append(journal.append_soon([bytes(1000)]))
                    sent.append(number)

            thread = threading.Thread(target=produce, daemon=True)
            thread.start()
            eventually(lambda: len(sent) >= 3)
            thread.join(0.1)
            assert thread.is_alive()
            assert len(sent) <= 6
            go_on.set()
            thread.join(WAIT_S)
            assert [future.result(WAIT_S).base_offset for future in futures] == list(range(30))

    def test_nobody_deadlocks_on_a_saturated_disk(self, tmp_path: Path) -> None:
        """Rolls, checkpoints, retention, syncs and appends all wait for one slow disk, and for each other."""

        def slow(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if operation in ("sync", "sync_folder"):
                time.sleep(0.001)

        config = JournalConfig(segment_bytes_max=2 * KiB, queue_bytes_max=2 * KiB, retain_bytes=8 * KiB)
        with Journal.open(tmp_path / "j", config, disk=WatchedDisk(OsDisk(), slow)) as journal:

            def appends() -> int:
                for number in range(60):
                    journal.append([bytes(400)], durability=WRITTEN if number % 3 else SYNCED)
                return 60

            def soon() -> int:
                futures = [journal.append_soon([bytes(400)]) for _ in range(60)]
                return len([future.result(WAIT_S) for future in futures])

            def syncs() -> int:
                for _ in range(20):
                    journal.sync()
                return 0

            def removes() -> int:
                for _ in range(20):
                    journal.remove_below(journal.durable_offset)
                return 0

            outcomes = in_threads([appends, appends, soon, soon, syncs, removes])
            assert outcomes == [60, 60, 60, 60, 0, 0]
            assert journal.next_offset == 240
        found = examine(OsDisk(), tmp_path / "j", deep=True)
        assert (found.next_offset, found.damage, found.torn) == (240, [], None)


class TestClosing:
    def test_closing_finishes_what_is_queued(self, tmp_path: Path) -> None:
        def slow(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if operation == "sync":
                time.sleep(0.01)

        journal = Journal.open(tmp_path / "j", disk=WatchedDisk(OsDisk(), slow))
        futures = [journal.append_soon([b"%d" % n]) for n in range(50)]
        journal.close()
        assert all(future.done() for future in futures)
        assert [future.result(0).base_offset for future in futures] == list(range(50))
        with Journal.open(tmp_path / "j") as journal:
            assert len(values_of(journal)) == 50

    def test_closing_makes_durable_what_was_only_written(self) -> None:
        tally = Tally()
        disk = SimDisk()
        journal = open_sim(WatchedDisk(disk, tally))
        journal.append([b"w"], durability=WRITTEN)
        tally.clear()
        journal.close()
        operations = [operation for operation, name in tally.log if name.endswith((".journal", "manifest"))]
        assert operations.index("sync") < operations.index("rename")

    def test_closing_twice_is_harmless_also_at_once(self, tmp_path: Path) -> None:
        journal = Journal.open(tmp_path / "j")
        journal.append([b"a"])
        assert in_threads([journal.close] * 4) == [None] * 4
        journal.close()
        with Journal.open(tmp_path / "j") as again:
            assert values_of(again) == [b"a"]

    def test_a_block_that_fails_still_closes(self, tmp_path: Path) -> None:
        journal = Journal.open(tmp_path / "j")

        def fail() -> None:
            with journal:
                journal.append([b"a"])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with pytest.raises(Closed):
            journal.append([b"b"])
        Journal.open(tmp_path / "j").close()

    def produce(self, journal: Journal, kind: int, acknowledged: list[int]) -> None:
        """Append one way or another until it is refused."""
        for number in itertools.count():
            value = [b"%d/%d" % (kind, number) + bytes(300)]
            durability = SYNCED if number % 2 else WRITTEN
            if kind % 2:
                receipt = journal.append(value, durability=durability)
            else:
                receipt = journal.append_soon(value, durability=durability).result(WAIT_S)
            acknowledged.append(receipt.base_offset)

    def keep_busy(self, journal: Journal) -> None:
        while True:
            journal.sync()
            journal.remove_below(0)

    @pytest.mark.parametrize("round_", range(10))
    def test_an_append_that_races_the_closing_is_whole_or_refused(self, tmp_path: Path, round_: int) -> None:
        """Whatever was acknowledged up to the very end is there, and the next opening finds nothing odd."""
        heard = Heard()
        config = JournalConfig(segment_bytes_max=2 * KiB, retain_bytes=None if round_ % 2 else 10**6)
        journal = Journal.open(tmp_path / "j", config, events=heard.hub)
        acknowledged: list[int] = []

        def close() -> None:
            while len(acknowledged) < 20:
                time.sleep(0.0001)
            journal.close()

        def produce(kind: int) -> None:
            with suppress(Closed):
                self.produce(journal, kind, acknowledged)

        def keep_busy() -> None:
            with suppress(Closed):
                self.keep_busy(journal)

        work: list[Callable[[], None]] = [close, keep_busy, *(partial(produce, kind) for kind in range(4))]
        assert in_threads(work) == [None] * 6, "closing must not wait for what keeps coming"
        assert not heard.of(JournalPoisoned)
        found = examine(OsDisk(), tmp_path / "j", deep=True)
        assert (found.damage, found.torn) == ([], None)
        assert found.manifest is not None
        assert found.manifest.durable_offset == found.next_offset, "a clean shutdown"
        with Journal.open(tmp_path / "j") as again:
            assert sorted(acknowledged) == list(range(again.next_offset))

    @pytest.mark.parametrize("durability", [SYNCED, WRITTEN])
    def test_an_append_that_comes_late_does_not_meet_the_last_checkpoint(
        self, tmp_path: Path, durability: Durability
    ) -> None:
        """It was let in before the closing began, and reaches the writer while the last sync runs."""
        syncing, go_on = threading.Event(), threading.Event()
        armed = False

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if armed and operation == "sync" and path.name.endswith(".journal") and not syncing.is_set():
                syncing.set()
                assert go_on.wait(WAIT_S)

        journal = Journal.open(tmp_path / "j", disk=WatchedDisk(OsDisk(), watch))
        journal.append([b"early"], durability=WRITTEN)
        late = Append(columns_of([b"late"], None, None, None, JournalConfig()), durability)
        armed = True
        closer = threading.Thread(target=journal.close, daemon=True)
        closer.start()
        assert syncing.wait(WAIT_S)
        comer = threading.Thread(target=journal._gather.run, args=(late,), daemon=True)  # noqa: SLF001
        comer.start()
        comer.join(0.1)
        go_on.set()
        for thread in (closer, comer):
            thread.join(WAIT_S)
            assert not thread.is_alive()
        with pytest.raises(Closed):
            late.wait()
        with Journal.open(tmp_path / "j") as again:
            assert values_of(again) == [b"early"]

    def test_no_file_and_no_thread_stays_behind(self, tmp_path: Path) -> None:
        files, threads = open_descriptors(), threading.active_count()
        for _ in range(3):
            with Journal.open(tmp_path / "j", SMALL) as journal:
                for number in range(30):
                    journal.append_soon(numbered(number, number + 1, 300)).result(WAIT_S)
                values_of(journal)
        assert open_descriptors() == files
        assert threading.active_count() == threads

    def test_a_failure_while_closing_is_told_as_an_unknown_outcome(self) -> None:
        armed = False

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if armed and operation == "sync":
                raise OSError(5, "no")

        disk = SimDisk()
        journal = open_sim(WatchedDisk(disk, watch))
        journal.append([b"a"])
        journal.append([b"w"], durability=WRITTEN)
        armed = True
        with pytest.raises(CommitFailed):
            journal.close()
        journal.close()
        armed = False
        with open_sim(disk) as journal:
            assert values_of(journal) == [b"a", b"w"]


def _child(path: str, ready: "multiprocessing.synchronize.Event") -> None:
    with Journal.open(path) as journal:
        ready.set()
        for number in range(50):
            journal.append(numbered(number, number + 1))


def test_two_processes_take_turns(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=_child, args=(str(tmp_path / "j"), ready))
    child.start()
    assert ready.wait(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    refused = 0
    while True:
        try:
            with Journal.open(tmp_path / "j") as journal:
                assert values_of(journal) == numbered(0, 50)
            break
        except Locked:
            refused += 1
            assert time.monotonic() < deadline
    child.join(WAIT_S)
    assert child.exitcode == 0
