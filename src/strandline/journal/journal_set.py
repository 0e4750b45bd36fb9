"""Many journals in one process, named like paths, sharing a few writer threads and file handles.

Invariants: one lock, at the root, covers every journal of the set, also against a `Journal.open` of one of them; a
journal is opened once and the same object is handed out again; 10,000 open journals hold no more threads or files
than ten.
"""

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from strandline.clock import Clock, SystemClock
from strandline.errors import Closed, InvalidInput
from strandline.events import Events
from strandline.files import Disk, OsDisk, storage_errors
from strandline.journal.config import JournalConfig
from strandline.journal.handles import HandleDisk
from strandline.journal.journal import Journal
from strandline.journal.opening import SET_MARKER
from strandline.journal.recovery import LOCK_NAME
from strandline.journal.segment import parse_segment_name

_PART = re.compile(r"[A-Za-z0-9_=,+@-][A-Za-z0-9_=,+@.-]*")
_NAME_BYTES_MAX = 1024


class JournalSet:
    """Journals by name, such as `orders/0`."""

    def __init__(self, root: Path, config: JournalConfig, disk: HandleDisk, clock: Clock, events: Events) -> None:
        """Use `JournalSet.open`."""
        self._root = root
        self._config = config
        self._disk = disk
        self._clock = clock
        self._events = events
        self._journals: dict[str, Journal] = {}
        self._opening = threading.Lock()
        self._held = ExitStack()
        self._is_closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: JournalConfig | None = None,
        *,
        writer_threads: int = 2,
        open_files_max: int = 256,
        disk: Disk | None = None,
        clock: Clock | None = None,
        events: Events | None = None,
    ) -> Self:
        """Open the root of a set, creating it where there is none; `Locked` where another process has it."""
        root = Path(path)
        shared = HandleDisk(disk or OsDisk(), open_files_max)
        with ExitStack() as held, storage_errors(root):
            shared.make_folder(root)
            held.callback(shared.lock(root / LOCK_NAME).release)
            if SET_MARKER not in shared.names(root):
                shared.open(root / SET_MARKER, "create").close()
                shared.sync_folder(root)
            journals = cls(root, config or JournalConfig(), shared, clock or SystemClock(), events or Events())
            journals._executor = held.enter_context(ThreadPoolExecutor(writer_threads, "strandline-journals"))
            journals._held = held.pop_all()
            return journals

    _executor: ThreadPoolExecutor

    def journal(self, name: str) -> Journal:
        """Return the journal of that name, opening or creating it the first time."""
        check_name(name)
        with self._opening:
            if self._is_closed:
                raise Closed(str(self._root))
            journal = self._journals.get(name)
            if journal is None:
                journal = self._journals[name] = self._open(self._root.joinpath(*name.split("/")))
            return journal

    def names(self) -> list[str]:
        """Return the names of all journals on disk, sorted."""
        with storage_errors(self._root):
            return sorted(self._walk(self._root, ""))

    def close(self) -> None:
        """Close every journal, then release the root. Closing twice is harmless."""
        with self._opening:
            if self._is_closed:
                return
            self._is_closed = True
            with self._held, ExitStack() as journals:  # closes all of them, whatever one of them raises
                for journal in self._journals.values():
                    journals.callback(journal.close)

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _open(self, folder: Path) -> Journal:
        with storage_errors(folder):
            self._disk.make_folder(folder)
        return Journal.open_unlocked(folder, self._config, self._disk, self._clock, self._executor, self._events)

    def _walk(self, folder: Path, prefix: str) -> list[str]:
        names = self._disk.names(folder)
        found = [prefix] if prefix and any(parse_segment_name(name) is not None for name in names) else []
        for name in names:
            if _PART.fullmatch(name) and (folder / name).is_dir():
                found += self._walk(folder / name, f"{prefix}/{name}" if prefix else name)
        return found


def check_name(name: str) -> None:
    """Raise `InvalidInput` unless `name` is parts of letters, digits and `_ = , + @ - .`, joined by `/`."""
    parts = name.split("/")
    if len(name.encode()) > _NAME_BYTES_MAX or not all(_PART.fullmatch(part) for part in parts):
        raise InvalidInput(
            f"{name!r} is not a journal's name",
            hint="use letters, digits and _ = , + @ - . in parts joined by /, such as orders/0",
        )
    if "quarantine" in parts:
        raise InvalidInput("a journal's name must not have a part called 'quarantine'")
