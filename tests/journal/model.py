"""A journal beside a list that says what it must hold, so that a machine or a loop can crash it anywhere.

The list knows of each record whether it was acknowledged, and as what: a record acknowledged as synced must survive the
machine, one acknowledged as written must survive the process, one that was refused must not be there, and one whose
commit failed may be there or not, but whole, and in its place.
"""

import errno
import os
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypedDict
from unittest.mock import patch

from strandline.clock import ManualClock
from strandline.errors import Closed, Poisoned, StrandlineError
from strandline.gather import InlineExecutor
from strandline.journal import (
    SYNCED,
    Appended,
    Durability,
    Journal,
    JournalConfig,
    JournalReader,
    examine,
    journal_reader,
)
from strandline.sim import Fault, SimDisk
from tests import tally
from tests.journal.helpers import FOLDER, LaterExecutor, WatchedDisk, contents, records_of

CHANGES = frozenset({"create", "pwritev", "sync", "truncate", "allocate", "rename", "remove", "sync_folder"})

Content = tuple[bytes, bytes | None, bytes | None, int | None]
"""Value, key, headers, timestamp."""


@dataclass
class Expected:
    """What the journal must hold: every record that was ever sent and not refused, from offset 0 on."""

    records: list[Content] = field(default_factory=list)
    ends: set[int] = field(default_factory=lambda: {0})
    """Where an append begins or ends: a journal never ends anywhere else."""
    written: int = 0
    """Everything below must survive the process."""
    synced: int = 0
    """Everything below must survive the machine."""
    first: int = 0
    first_max: int = 0
    """Retention that failed may have come as far as this."""

    def sent(self, contents: list[Content]) -> int:
        """Note records that may or may not be there from now on; return where they begin."""
        base = len(self.records)
        self.records += contents
        self.ends.add(len(self.records))
        return base

    def acknowledged(self, end: int, durability: Durability) -> None:
        """Note that everything below `end` was promised."""
        self.written = max(self.written, end)
        if durability is SYNCED:
            self.synced = max(self.synced, end)

    def found(self, first: int, end: int, floor: int) -> None:
        """Check what a reopened journal says it holds, and believe it from now on."""
        assert floor <= end <= len(self.records), f"ends at {end}; promised {floor}, sent {len(self.records)}"
        assert end in self.ends, f"ends at {end}, inside an append"
        assert self.first <= first <= self.first_max, f"begins at {first}, not in [{self.first}, {self.first_max}]"
        del self.records[end:]
        self.ends = {known for known in self.ends if known <= end}
        self.written = self.synced = end
        self.first = self.first_max = first


@dataclass
class _Queued:
    base: int
    count: int
    durability: Durability
    future: "Future[Appended]"


class PowerCut:
    """A watch that lets `changes` changes of the disk through, then fails everything, as a machine that is off does."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.seen = 0

    def __call__(self, operation: str, path: Path, size: int) -> None:  # noqa: ARG002 - what a watch is called with
        if operation in CHANGES:
            self.seen += 1
            if self.left is not None and self.left > 0:
                self.left -= 1
                return
        if self.left == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class JournalWithModel:
    """A simulated disk, the journal on it, and what it must hold."""

    def __init__(self, config: JournalConfig, *, later: bool = False) -> None:
        self.config = config
        self.disk = SimDisk()
        self.cut = PowerCut()
        self.clock = ManualClock()
        self.expected = Expected()
        self.later = LaterExecutor() if later else None
        self.journal: Journal | None = None
        self._number = 0
        self._queued: list[_Queued] = []

    # What is done to it. Each returns whether it succeeded; anything but success or a typed error is a bug.

    def open(self) -> bool:
        """Open the journal; a failure must be typed."""
        assert self.journal is None
        if self.later is not None:
            self.later = LaterExecutor()
        executor = InlineExecutor() if self.later is None else self.later
        disk = WatchedDisk(self.disk, self.cut)
        try:
            journal = Journal.open(FOLDER, self.config, disk=disk, clock=self.clock, executor=executor)
        except StrandlineError:
            return False
        self.journal = journal
        if self._retains:
            self.expected.first_max = len(self.expected.records)
        self.expected.found(journal.first_offset, journal.next_offset, self.expected.written)
        return True

    def contents(self, sizes: list[int], shape: int = 0) -> list[Content]:
        """Make records that are unlike all others; `shape` says which columns they have."""
        made: list[Content] = []
        for size in sizes:
            self._number += 1
            value = f"{self._number}:".encode().ljust(size, b"v")
            key = f"k{self._number}".encode() if shape & 1 else None
            headers = b"h" * (size % 7) if shape & 2 else None
            made.append((value, key, headers, self._number if shape & 4 else None))
        return made

    def append(self, sizes: list[int], shape: int = 0, durability: Durability = SYNCED) -> bool:
        """Append and wait."""
        self.run_later()
        made = self.contents(sizes, shape)
        base = self.expected.sent(made)
        try:
            receipt = self._journal.append(**_columns(made), durability=durability)
        except (Poisoned, Closed):
            self._not_sent(base)
            return False
        except StrandlineError:
            return False
        assert (receipt.base_offset, receipt.count) == (base, len(sizes))
        self.expected.acknowledged(receipt.next_offset, durability)
        return True

    def append_later(self, sizes: list[int], shape: int = 0, durability: Durability = SYNCED) -> None:
        """Queue an append; it is committed, with its neighbours, when the executor runs."""
        assert self.later is not None
        made = self.contents(sizes, shape)
        try:
            future = self._journal.append_soon(**_columns(made), durability=durability)
        except (Poisoned, Closed):
            return
        self._queued.append(_Queued(self.expected.sent(made), len(made), durability, future))

    def run_later(self, times: int | None = None) -> None:
        """Let the executor run, wholly or a few steps."""
        if self.later is None:
            return
        if times is None:
            self.later.run_all()
        else:
            for _ in range(times):
                self.later.run_one()
        self._settle_queued()

    def sync(self) -> bool:
        """Make everything durable."""
        self.run_later()
        try:
            durable = self._journal.sync()
        except StrandlineError:
            return False
        assert durable == len(self.expected.records)
        self.expected.acknowledged(durable, SYNCED)
        return True

    def remove_below(self, offset: int) -> bool:
        """Remove whole segments."""
        self.run_later()
        before = self._journal.first_offset
        try:
            self._journal.remove_below(offset)
        except StrandlineError:
            self.expected.first_max = max(self.expected.first_max, min(offset, len(self.expected.records)))
            return False
        first = self._journal.first_offset
        assert before <= first <= max(before, offset)
        self.expected.first = self.expected.first_max = first
        return True

    def close(self) -> bool:
        """Close cleanly; the journal is gone afterwards whatever happened."""
        self.run_later()
        journal, self.journal = self._journal, None
        poisoned = self.is_poisoned(journal)
        try:
            journal.close()
        except StrandlineError:
            return False
        if not poisoned:
            self.expected.acknowledged(len(self.expected.records), SYNCED)
        return True

    def kill(self) -> None:
        """End the process: handles and locks are gone, the disk is as it was seen."""
        self._settle_queued()
        self._queued.clear()
        self.journal = None
        self.disk.kill()
        self.cut.left = None

    def crash(self, random: Random) -> None:
        """End the machine: only what was synced is sure."""
        tally.count(tally.POWER_LOSSES)
        self._settle_queued()
        self._queued.clear()
        self.journal = None
        self.disk.crash(random)
        self.cut.left = None
        self.expected.written = self.expected.synced

    # What must hold.

    def reopen(self) -> None:
        """Open after whatever happened; it must work, and hold what was promised."""
        self.disk.fault = None
        self.cut.left = None
        self._look_with_reader()
        assert self.open(), "the journal does not open"
        self.check()

    def check(self) -> None:
        """Everything is readable, equal, and said to be where it is."""
        journal = self._journal
        self.note_first()
        expected = self.expected
        end = len(expected.records)
        assert journal.next_offset == end
        if not self.is_poisoned(journal):
            assert expected.synced <= journal.durable_offset <= end
        self._compare(journal, journal.durable_offset)
        found = examine(self.disk, FOLDER, deep=True)
        assert not found.damage, found.damage
        assert found.next_offset == end
        assert found.first_offset == expected.first

    def check_certain(self, random: Random) -> None:
        """A crash right after opening takes nothing away: what a journal opens with is on stable storage."""
        assert self.journal is not None
        self.expected.acknowledged(len(self.expected.records), SYNCED)
        self.crash(random)
        self.reopen()

    def note_first(self) -> None:
        """Believe what retention in the background did, if it was allowed to."""
        first = self._journal.first_offset
        if self._retains:
            assert self.expected.first <= first <= len(self.expected.records)
            self.expected.first = first
            self.expected.first_max = max(first, len(self.expected.records))
        else:
            assert self.expected.first <= first <= self.expected.first_max

    def is_poisoned(self, journal: Journal) -> bool:
        """Whether it takes no more."""
        try:
            journal.append([])
        except (Poisoned, Closed):
            return True
        return False

    @property
    def _retains(self) -> bool:
        return self.config.retain_bytes is not None or self.config.retain_age_s is not None

    @property
    def _journal(self) -> Journal:
        assert self.journal is not None
        return self.journal

    def _compare(self, journal: Journal | JournalReader, end: int) -> None:
        first = journal.first_offset
        for offset, record in zip(range(first, end), records_of(journal), strict=True):
            assert record.offset == offset
            assert tuple(record[1:]) == self.expected.records[offset]

    def _look_with_reader(self) -> None:
        """A reader of what a crash left sees a part of what was sent, and nothing that opening would not keep."""
        if not self.disk_has_journal():
            return
        before = contents(FOLDER, self.disk)
        try:
            with patch.object(journal_reader, "STALE_S", 0):  # nobody writes here, so waiting would only take time
                reader = JournalReader.open(FOLDER, disk=self.disk)
                seen = [(record.offset, tuple(record[1:])) for record in records_of(reader)]
        except StrandlineError:
            assert self.expected.written == 0, "a reader cannot read what was acknowledged"
            return
        assert contents(FOLDER, self.disk) == before
        for offset, record in seen:
            assert self.expected.records[offset] == record
        if seen:
            end = seen[-1][0] + 1
            assert end in self.expected.ends
            # A reader took it for durable, so it has to stay.
            self.expected.written = max(self.expected.written, end)

    def disk_has_journal(self) -> bool:
        """Whether there is a folder at all."""
        try:
            return bool(self.disk.names(FOLDER))
        except FileNotFoundError:
            return False

    def _not_sent(self, base: int) -> None:
        self.expected.ends.discard(len(self.expected.records))
        del self.expected.records[base:]
        self.expected.ends.add(base)

    def _settle_queued(self) -> None:
        """Hold each queued append whose outcome is known against it; they are settled in order."""
        while self._queued and self._queued[0].future.done():
            queued = self._queued.pop(0)
            error = queued.future.exception()
            if error is None:
                assert queued.future.result().base_offset == queued.base
                self.expected.acknowledged(queued.base + queued.count, queued.durability)
                continue
            assert isinstance(error, StrandlineError), error
            if isinstance(error, Poisoned | Closed):
                assert all(isinstance(later.future.exception(), Poisoned | Closed) for later in self._queued)
                for later in self._queued:
                    self.expected.ends.discard(later.base + later.count)
                self._queued.clear()
                self._not_sent(queued.base)


def fault_at(countdown: int, operations: frozenset[str] = CHANGES, code: int = errno.EIO) -> Fault:
    """Return a fault of the `countdown`-th of some operations."""
    return Fault(operations, countdown, code)


class _Columns(TypedDict):
    values: list[bytes]
    keys: list[bytes] | None
    headers: list[bytes] | None
    timestamps: list[int] | None


def _columns(made: list[Content]) -> _Columns:
    values, keys, headers, timestamps = zip(*made, strict=True)
    return {
        "values": list(values),
        "keys": None if keys[0] is None else list(keys),
        "headers": None if headers[0] is None else list(headers),
        "timestamps": None if timestamps[0] is None else list(timestamps),
    }
