"""The outbox: alarms in a folder, one file for each, with the notices that receivers have not taken.

    <first 32 digits of the SHA-256 of kind and subject>.alarm

Invariants: an alarm is on disk, synced, when `observe` returns; a notice leaves its file after a receiver has taken it,
never before. A change reads, decides and replaces the file under the lock of the folder, so that processes share it. A
file that cannot be read is left alone, and told.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from strandline.alarms.alarm import Alarm, Condition, cleaned, format_alarm, is_over, observe, parse_alarm
from strandline.clock import Clock, SystemClock
from strandline.errors import FormatError
from strandline.files import OsDisk, read_file, release_flock, remove_if_there, replace_file, storage_errors

SUFFIX = ".alarm"


def format_alarm_name(kind: str, subject: str) -> str:
    """Return the name of an alarm's file."""
    return sha256(json.dumps([kind, subject]).encode()).hexdigest()[:32] + SUFFIX


class Outbox:
    """Alarms in a folder."""

    def __init__(self, folder: Path, receivers: tuple[str, ...] = (), clock: Clock | None = None) -> None:
        self.folder = folder
        self.receivers = receivers
        self._clock = clock or SystemClock()
        self._disk = OsDisk()

    def observe(self, seen: Condition) -> Alarm | None:
        """Take a condition in; return its alarm, durable, or None."""
        seen = cleaned(seen)
        path = self.folder / format_alarm_name(seen.kind, seen.subject)
        if seen.problem is None and not path.exists():
            return None
        now_ns = self._clock.now_ns()
        return self._changed(path, lambda known: observe(known, seen, self.receivers, now_ns))

    def change(self, alarm: Alarm, change: Callable[[Alarm], Alarm]) -> Alarm | None:
        """Change a stored alarm; one of another episode counts too, because notices carry over."""
        path = self.folder / format_alarm_name(alarm.kind, alarm.subject)
        return self._changed(path, lambda known: None if known is None else change(known))

    def alarms(self) -> list[Alarm]:
        """Return all alarms, those that fire first, the oldest first."""
        found = [alarm for alarm, _ in self._read() if alarm is not None]
        return sorted(found, key=lambda alarm: (not alarm.is_firing, alarm.raised_ns))

    def damaged(self) -> list[str]:
        """Return the problems of files that cannot be read."""
        return [problem for _, problem in self._read() if problem]

    def _read(self) -> Iterator[tuple[Alarm | None, str]]:
        if not self.folder.is_dir():
            return
        for name in self._disk.names(self.folder):
            if name.endswith(SUFFIX):
                data = read_file(self._disk, self.folder / name)
                try:
                    yield (None, "") if data is None else (parse_alarm(data, str(self.folder / name)), "")
                except FormatError as error:
                    yield None, str(error)

    def _changed(self, path: Path, change: Callable[[Alarm | None], Alarm | None]) -> Alarm | None:
        with storage_errors(self.folder):
            self._disk.make_folder(self.folder)
            with self.locked("lock"):
                data = read_file(self._disk, path)
                known = None if data is None else parse_alarm(data, str(path))
                after = change(known)
                if after is not None and is_over(after):
                    remove_if_there(self._disk, path)
                    self._disk.sync_folder(self.folder)
                elif after is not None and after != known:
                    replace_file(self._disk, path, format_alarm(after))
        return after

    @contextmanager
    def locked(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold a lock of the folder for the block; yields whether it is held, which without `wait` it may not be."""
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            release_flock(descriptor)
