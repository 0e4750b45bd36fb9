"""Poison: after a failed write or fsync everybody is told, nothing is acknowledged, and opening again recovers."""

import asyncio
import errno
import os
import threading
from pathlib import Path
from random import Random

import pytest

from strandline.errors import Closed, CommitFailed, Poisoned, StorageRefused, StrandlineError
from strandline.files import OsDisk
from strandline.journal import (
    SYNCED,
    WRITTEN,
    Durability,
    Journal,
    JournalConfig,
    JournalPoisoned,
    JournalReader,
    examine,
)
from strandline.journal.config import KiB
from strandline.sim import Fault, SimDisk
from tests.journal.helpers import (
    FOLDER,
    SMALL,
    WAIT_S,
    Heard,
    LaterExecutor,
    Tally,
    WatchedDisk,
    numbered,
    open_sim,
    values_of,
)

FAILURES = pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)


class Saboteur:
    """A watch that fails chosen operations, by name and file, and remembers what was done."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.error: BaseException | None = None
        self.operation = ""
        self.suffix = ""
        self.skip = 0

    def fail(self, operation: str, suffix: str = "", *, code: int = errno.EIO, skip: int = 0) -> None:
        self.fail_with(OSError(code, os.strerror(code)), operation, suffix, skip=skip)

    def fail_with(self, error: BaseException, operation: str, suffix: str = "", *, skip: int = 0) -> None:
        self.error, self.operation, self.suffix, self.skip = error, operation, suffix, skip

    def __call__(self, operation: str, path: Path, size: int) -> None:
        self.tally(operation, path, size)
        if self.error is None or operation != self.operation or not path.name.endswith(self.suffix):
            return
        if self.skip:
            self.skip -= 1
            return
        error, self.error = self.error, None
        raise error


def check_poisoned(journal: Journal) -> None:
    """Everything that would change something is refused, and everything durable can be read."""
    durable = journal.durable_offset
    for call in (
        lambda: journal.append([b"x"]),
        lambda: journal.append([b"x"], durability=WRITTEN),
        lambda: journal.append_soon([b"x"]),
        lambda: asyncio.run(journal.append_async([b"x"])),
        lambda: journal.append([]),
        journal.sync,
        lambda: journal.remove_below(0),
        journal.remove_old,
    ):
        with pytest.raises(Poisoned) as caught:
            call()
        assert caught.value.cause
        assert "open it again" in (caught.value.hint or "")
        assert not caught.value.retryable
    assert journal.durable_offset == durable
    assert len(values_of(journal)) == durable - journal.first_offset


class TestACommitThatFails:
    @FAILURES
    @pytest.mark.parametrize("operation", ["pwritev", "sync"])
    def test_its_caller_is_told_that_the_outcome_is_unknown(self, operation: str, code: int) -> None:
        disk, saboteur, heard = SimDisk(), Saboteur(), Heard()
        journal = open_sim(WatchedDisk(disk, saboteur), events=heard.hub)
        journal.append([b"before"])
        saboteur.fail(operation, ".journal", code=code)
        with pytest.raises(CommitFailed, match=os.strerror(code)) as caught:
            journal.append([b"unknown"])
        assert not caught.value.retryable
        assert caught.value.hint
        assert (journal.next_offset, journal.durable_offset) in ((1, 1), (2, 1))
        check_poisoned(journal)
        assert len(heard.of(JournalPoisoned)) == 1
        journal.close()
        with open_sim(disk) as journal:
            assert values_of(journal) in ([b"before"], [b"before", b"unknown"])

    @pytest.mark.parametrize("operation", ["create", "sync", "sync_folder", "truncate", "allocate"])
    def test_a_roll_that_fails_is_a_commit_that_fails(self, operation: str) -> None:
        disk, saboteur = SimDisk(), Saboteur()
        config = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=64 * KiB)
        journal = open_sim(WatchedDisk(disk, saboteur), config)
        journal.append([bytes(600)])
        saboteur.fail(operation, "" if operation == "sync_folder" else ".journal")
        with pytest.raises(CommitFailed):
            journal.append([bytes(600)])
        check_poisoned(journal)
        disk.crash(Random(0))
        with open_sim(disk) as journal:
            assert journal.next_offset in (1, 2)
            assert values_of(journal)[0] == bytes(600)

    def test_a_failed_fsync_of_room_that_was_filled_poisons(self) -> None:
        """It may have been told of the loss of records that were only written: no later fsync may vouch for them."""
        disk, saboteur = SimDisk(), Saboteur()
        config = JournalConfig(segment_bytes_max=64 * KiB, reserve_bytes_max=700)
        journal = open_sim(WatchedDisk(disk, saboteur), config)
        journal.append([bytes(500)])
        journal.append([b"only written"], durability=WRITTEN)
        saboteur.fail("sync", ".journal", code=errno.ENOSPC)
        with pytest.raises(CommitFailed):
            journal.append([bytes(600)])
        assert saboteur.error is None
        assert journal.next_offset == 2, "it failed before anything was written"
        assert journal.durable_offset == 1
        check_poisoned(journal)

    @FAILURES
    def test_a_write_that_was_done_in_part_is_not_there_afterwards(self, code: int) -> None:
        for part in range(1, 40):
            disk = SimDisk()
            journal = open_sim(disk)
            journal.append([b"before"])
            disk.fault = Fault(frozenset({"pwritev"}), 1, code)  # half of it is written
            with pytest.raises(CommitFailed):
                journal.append([bytes([part]) * part] * part)
            disk.kill()
            with open_sim(disk) as journal:
                assert values_of(journal) == [b"before"]
                assert journal.append([b"after"]).base_offset == 1

    def test_everybody_in_the_commit_and_everybody_behind_it_is_told(self) -> None:
        disk, saboteur, later = SimDisk(), Saboteur(), LaterExecutor()
        journal = Journal.open(FOLDER, SMALL, disk=WatchedDisk(disk, saboteur), executor=later)
        journal.append([b"before"])
        saboteur.fail("sync", ".journal")
        futures = [journal.append_soon([bytes(200)]) for _ in range(8)]
        later.run_all()
        kinds = [type(future.exception(0)) for future in futures]
        assert set(kinds) == {CommitFailed, Poisoned}
        assert kinds == sorted(kinds, key=[CommitFailed, Poisoned].index)
        assert journal.durable_offset == 1
        check_poisoned(journal)

    def test_who_only_wanted_it_written_was_told_before_the_sync_failed(self) -> None:
        disk, saboteur, later = SimDisk(), Saboteur(), LaterExecutor()
        journal = Journal.open(FOLDER, disk=WatchedDisk(disk, saboteur), executor=later)
        saboteur.fail("sync", ".journal")
        written = journal.append_soon([b"w"], durability=WRITTEN)
        synced = journal.append_soon([b"s"], durability=SYNCED)
        later.run_all()
        assert written.result(0).base_offset == 0
        assert isinstance(synced.exception(0), CommitFailed)
        disk.kill()
        with open_sim(disk) as journal:
            assert values_of(journal)[0] == b"w"

    def test_callers_that_wait_for_room_are_let_go(self, tmp_path: Path) -> None:
        go_on = threading.Event()
        go_on.set()
        armed = False

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if operation == "pwritev" and path.name.endswith(".journal") and armed:
                assert go_on.wait(WAIT_S)
                raise OSError(errno.EIO, "no")

        config = JournalConfig(queue_bytes_max=2 * KiB)
        journal = Journal.open(tmp_path / "j", config, disk=WatchedDisk(OsDisk(), watch))
        armed = True
        go_on.clear()
        outcomes: list[BaseException] = []

        def produce() -> None:
            try:
                journal.append([bytes(1000)])
            except (CommitFailed, Poisoned) as error:
                outcomes.append(error)

        threads = [threading.Thread(target=produce, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        threads[0].join(0.05)
        go_on.set()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert len(outcomes) == 8
        assert {type(error) for error in outcomes} == {CommitFailed, Poisoned}
        journal.close()

    @pytest.mark.parametrize("operation", ["pwritev", "sync"])
    def test_an_interrupt_poisons_too(self, operation: str) -> None:
        disk, saboteur = SimDisk(), Saboteur()
        journal = open_sim(WatchedDisk(disk, saboteur))
        journal.append([b"before"])
        saboteur.fail_with(KeyboardInterrupt(), operation, ".journal")
        with pytest.raises(KeyboardInterrupt):
            journal.append([b"unknown"])
        check_poisoned(journal)
        journal.close()
        with open_sim(disk) as journal:
            assert values_of(journal) in ([b"before"], [b"before", b"unknown"])

    @pytest.mark.parametrize("operation", ["sync", "sync_folder"])
    def test_an_interrupt_of_sync_itself_poisons_too(self, operation: str) -> None:
        """It took note that the folder was synced, which it may not have been."""
        disk, saboteur = SimDisk(), Saboteur()
        journal = open_sim(WatchedDisk(disk, saboteur))
        journal.append([bytes(900)], durability=WRITTEN)
        later_segment = journal.append([bytes(900)], durability=WRITTEN)
        journal.append([b"w"], durability=WRITTEN)
        journal._writer._folder_dirty = True  # noqa: SLF001 - as right after a roll
        saboteur.fail_with(KeyboardInterrupt(), operation)
        with pytest.raises(KeyboardInterrupt):
            journal.sync()
        check_poisoned(journal)
        assert later_segment.base_offset == 1

    def test_a_failure_to_tell_other_processes_poisons(self) -> None:
        disk, saboteur = SimDisk(), Saboteur()
        journal = open_sim(WatchedDisk(disk, saboteur))
        saboteur.fail("pwritev", "frontier")
        journal.append([b"a"])
        check_poisoned(journal)
        disk.kill()
        with open_sim(disk) as journal:
            assert values_of(journal) == [b"a"]


class TestSyncIsNeverTriedAgain:
    def test_nothing_is_synced_after_a_sync_failed(self) -> None:
        disk, saboteur = SimDisk(), Saboteur()
        journal = open_sim(WatchedDisk(disk, saboteur))
        journal.append([b"before"])
        journal.append([b"w"], durability=WRITTEN)
        saboteur.fail("sync", ".journal")
        with pytest.raises(CommitFailed):
            journal.sync()
        saboteur.tally.clear()
        check_poisoned(journal)
        journal.close()
        operations = set(saboteur.tally.times) - {"open", "pread", "names"}
        assert not operations, "a poisoned journal leaves the disk alone"
        assert journal.durable_offset == 1

    def test_a_second_sync_that_was_waiting_does_not_succeed(self, tmp_path: Path) -> None:
        """The kernel tells of a lost write once; whoever syncs next would be told that all is well."""
        entered, go_on = threading.Event(), threading.Event()
        armed = False
        syncs: list[str] = []

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if armed and operation == "sync":
                syncs.append(path.name)
                entered.set()
                assert go_on.wait(WAIT_S)
                if len(syncs) == 1:
                    raise OSError(errno.EIO, "lost")

        journal = Journal.open(tmp_path / "j", disk=WatchedDisk(OsDisk(), watch))
        journal.append([b"w"], durability=WRITTEN)
        armed = True
        outcomes: list[object] = []

        def sync() -> None:
            try:
                outcomes.append(journal.sync())
            except (CommitFailed, Poisoned) as error:
                outcomes.append(type(error))

        threads = [threading.Thread(target=sync, daemon=True) for _ in range(4)]
        threads[0].start()
        assert entered.wait(WAIT_S)
        for thread in threads[1:]:
            thread.start()
        threads[1].join(0.05)
        go_on.set()
        for thread in threads:
            thread.join(WAIT_S)
        assert sorted(map(str, outcomes)) == sorted(map(str, [CommitFailed] + [Poisoned] * 3))
        assert len(syncs) == 1
        assert journal.durable_offset == 0
        journal.close()

    def test_a_commit_does_not_succeed_after_a_checkpoint_beside_it_failed(self) -> None:
        """The background failed to sync the old segment; nothing that relies on it may be acknowledged."""
        for skip in range(3):
            disk, saboteur = SimDisk(), Saboteur()
            journal = open_sim(WatchedDisk(disk, saboteur))  # the checkpoint runs inside the commit that rolls
            journal.append([bytes(600)], durability=WRITTEN)
            saboteur.fail("sync", ".journal", skip=skip)
            acknowledged = 0
            for _ in range(4):
                try:
                    acknowledged = journal.append([bytes(600)]).next_offset
                except (CommitFailed, Poisoned):
                    break
            else:
                pytest.fail("the failure was not noticed")
            check_poisoned(journal)
            disk.crash(Random(skip))
            with open_sim(disk) as journal:
                assert journal.next_offset >= acknowledged


CHECKPOINT_STEPS = [
    ("sync", ".journal"),
    ("create", ".index"),
    ("pwritev", ".index"),
    ("remove", "manifest.tmp"),
    ("create", "manifest.tmp"),
    ("pwritev", "manifest.tmp"),
    ("sync", "manifest.tmp"),
    ("rename", "manifest"),
    ("sync_folder", ""),
]


class TestTheBackground:
    @pytest.mark.parametrize("durability", [SYNCED, WRITTEN])
    @pytest.mark.parametrize(("operation", "suffix"), CHECKPOINT_STEPS)
    def test_an_append_that_is_under_way_when_it_fails_is_not_acknowledged(
        self, operation: str, suffix: str, durability: Durability
    ) -> None:
        """Here the checkpoint runs inside the commit that rolls, between its decision and its write."""
        disk, saboteur = SimDisk(), Saboteur()
        journal = open_sim(WatchedDisk(disk, saboteur))
        journal.append([bytes(600)])
        saboteur.fail(operation, suffix)
        with pytest.raises(CommitFailed):
            journal.append([bytes(600)], durability=durability)
        check_poisoned(journal)

    @pytest.mark.parametrize(("operation", "suffix"), CHECKPOINT_STEPS)
    def test_a_checkpoint_that_fails_poisons(self, operation: str, suffix: str) -> None:
        disk, saboteur, later, heard = SimDisk(), Saboteur(), LaterExecutor(), Heard()
        journal = Journal.open(FOLDER, SMALL, disk=WatchedDisk(disk, saboteur), executor=later, events=heard.hub)
        journal.append([bytes(600)], durability=WRITTEN)
        journal.append([bytes(600)], durability=WRITTEN)
        saboteur.fail(operation, suffix)
        later.run_all()
        check_poisoned(journal)
        assert len(heard.of(JournalPoisoned)) == 1
        assert journal.durable_offset in (0, 2)
        disk.kill()
        with open_sim(disk) as journal:
            assert len(values_of(journal)) == 2

    @pytest.mark.parametrize(
        ("operation", "suffix"),
        [("rename", "manifest"), ("remove", ".journal"), ("sync_folder", ""), ("pwritev", "frontier")],
    )
    def test_a_removal_that_fails_poisons_and_what_is_retained_is_whole(self, operation: str, suffix: str) -> None:
        disk, saboteur = SimDisk(), Saboteur()
        journal = open_sim(WatchedDisk(disk, saboteur))
        for number in range(10):
            journal.append(numbered(number, number + 1, 300))
        saboteur.fail(operation, suffix)
        with pytest.raises(CommitFailed):
            journal.remove_below(7)
        with pytest.raises(Poisoned):
            journal.append([b"x"])
        disk.crash(Random(1))
        with open_sim(disk) as journal:
            assert journal.first_offset in (0, 6)
            assert values_of(journal) == numbered(journal.first_offset, 10, 300)

    def test_a_checkpoint_that_comes_after_the_closing_does_nothing(self) -> None:
        disk, later, heard = SimDisk(), LaterExecutor(), Heard()
        journal = Journal.open(
            FOLDER, JournalConfig(segment_bytes_max=KiB, retain_bytes=0), disk=disk, executor=later, events=heard.hub
        )
        for _ in range(3):
            journal.append([bytes(600)])
        journal.close()
        before = {name: disk.open(FOLDER / name, "read").pread(10**6, 0) for name in disk.names(FOLDER)}
        later.run_all()
        assert {name: disk.open(FOLDER / name, "read").pread(10**6, 0) for name in disk.names(FOLDER)} == before
        assert not heard.of(JournalPoisoned)


class TestOpeningThatFails:
    def refusal(self, disk: SimDisk) -> StrandlineError | None:
        try:
            open_sim(disk).close()
        except (StorageRefused, CommitFailed) as error:
            return error
        return None

    @FAILURES
    def test_it_is_refused_with_a_reason_and_nothing_is_lost(self, code: int) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(10):
                journal.append(numbered(number, number + 1, 300))
        for countdown in range(1, 12):
            disk.fault = Fault(frozenset({"pwritev", "sync", "rename", "create", "sync_folder"}), countdown, code)
            refused = self.refusal(disk)
            if refused is not None:
                assert os.strerror(code) in str(refused)
                assert refused.hint
            disk.kill()
        with open_sim(disk) as journal:
            assert values_of(journal) == numbered(0, 10, 300)

    def test_after_poison_and_closing_it_is_closed(self) -> None:
        disk, saboteur = SimDisk(), Saboteur()
        journal = open_sim(WatchedDisk(disk, saboteur))
        saboteur.fail("sync", ".journal")
        with pytest.raises(CommitFailed):
            journal.append([b"x"])
        journal.close()
        with pytest.raises(Closed):
            journal.append([b"x"])


class TestPagesThatAreGone:
    """After a failed fsync the page cache holds what the disk does not, and the next fsync says that all is well."""

    @pytest.mark.parametrize("seed", range(20))
    def test_what_a_reopened_journal_shows_is_on_the_disk(self, seed: int) -> None:
        disk = SimDisk()
        journal = open_sim(disk)
        journal.append([b"before"])
        disk.fault = Fault(frozenset({"sync"}), 1)
        with pytest.raises(CommitFailed):
            journal.append([b"unknown"])
        disk.kill()
        journal = open_sim(disk)
        kept = values_of(journal)
        assert journal.append([b"after"]).base_offset == len(kept)
        disk.crash(Random(seed))
        with open_sim(disk) as journal:
            assert values_of(journal) == [*kept, b"after"]

    def test_only_what_nobody_vouched_for_is_written_again(self) -> None:
        disk, tally = SimDisk(), Tally()
        journal = open_sim(disk, JournalConfig(reserve_bytes_max=0))
        for _ in range(300):
            journal.append([bytes(1000)])
        journal.append([bytes(1000)], durability=WRITTEN)
        disk.kill()
        open_sim(WatchedDisk(disk, tally), JournalConfig(reserve_bytes_max=0))
        assert tally.bytes["pwritev"] < 100 * KiB


def test_a_poisoned_journal_can_still_be_read_from_beside() -> None:
    disk = SimDisk()
    journal = open_sim(disk)
    journal.append([b"a"])
    disk.fault = Fault(frozenset({"pwritev"}), 1)
    with pytest.raises(CommitFailed):
        journal.append([b"b" * 500])
    assert values_of(JournalReader.open(FOLDER, disk=disk)) == [b"a"]
    found = examine(disk, FOLDER, deep=True)
    assert found.torn is not None
    assert not found.damage


def test_a_poisoned_journal_that_is_retired_can_be_read_while_another_goes_on_with_it() -> None:
    disk = SimDisk()
    journal = open_sim(disk)
    journal.append([b"a"])
    disk.fault = Fault(frozenset({"pwritev"}), 1)
    with pytest.raises(CommitFailed):
        journal.append([b"b" * 500])
    for _ in range(2):
        journal.retire()
    with pytest.raises(Poisoned):
        journal.append([b"c"])
    with open_sim(disk) as another:
        another.append([b"d"])
        assert values_of(journal) == [b"a"]
        assert values_of(another) == [b"a", b"d"]
        journal.close()
        with pytest.raises(Closed):
            journal.fetch(0)
        another.append([b"e"])
    with open_sim(disk) as another:
        assert values_of(another) == [b"a", b"d", b"e"]


def test_a_journal_that_is_retired_without_a_failure_has_made_everything_durable() -> None:
    disk = SimDisk()
    journal = open_sim(disk)
    journal.append([b"a"], durability=WRITTEN)
    journal.retire()
    with pytest.raises(Closed):
        journal.append([b"b"])
    disk.crash(Random(1))
    with open_sim(disk) as another:
        journal.close()
        another.append([b"c"])
        assert values_of(another) == [b"a", b"c"]
