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
from strandline.errors import Closed, FormatError, InvalidInput
from strandline.events import Events
from strandline.files import TEMP_SUFFIX, Disk, OsDisk, read_file, replace_file, storage_errors
from strandline.journal.config import JournalConfig
from strandline.journal.folder import SET_MARKER, SET_MARKER_CONTENT, lock_home
from strandline.journal.handles import HandleDisk
from strandline.journal.journal import Journal
from strandline.journal.recovery import LOCK_NAME, is_ours
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

    def __repr__(self) -> str:
        """Say where the set is, and how many of its journals are open."""
        state = "closed" if self._is_closed else f"open={len(self._journals)}"
        return f"JournalSet({str(self._root)!r}, {state})"

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
        if writer_threads < 1 or open_files_max < 1:
            raise InvalidInput("a set needs at least one writer thread and one open file")
        root = Path(path)
        shared = HandleDisk(disk or OsDisk(), open_files_max)
        with ExitStack() as held, storage_errors(root):
            shared.make_folder(root)
            if any(parse_segment_name(name) is not None for name in shared.names(root)):
                raise FormatError(str(root), "this folder is a journal, not a set", hint="give the folder above it")
            held.callback(shared.lock(lock_home(shared, root) / LOCK_NAME).release)
            held.callback(shared.close_idle)
            if read_file(shared, root / SET_MARKER) != SET_MARKER_CONTENT:
                replace_file(shared, root / SET_MARKER, SET_MARKER_CONTENT)
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
            if journal is None or journal.is_closed:  # closed by its user, who had to mend something
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
            self._refuse_other_writers(folder)
        return Journal.open_unlocked(folder, self._config, self._disk, self._clock, self._executor, self._events)

    def _refuse_other_writers(self, folder: Path) -> None:
        """Raise `Locked` if another process holds a journal, or a set, in here since before this was a set."""
        for inner in (folder, *folder.parents[: len(folder.relative_to(self._root).parts) - 1]):
            if LOCK_NAME in self._disk.names(inner):
                self._disk.lock(inner / LOCK_NAME).release()

    def _walk(self, folder: Path, prefix: str) -> list[str]:
        names = self._disk.names(folder)
        found = [prefix] if prefix and any(parse_segment_name(name) is not None for name in names) else []
        for name in names:
            if _is_part(name) and (folder / name).is_dir():
                found += self._walk(folder / name, f"{prefix}/{name}" if prefix else name)
        return found


def check_name(name: str) -> None:
    """Raise `InvalidInput` unless `name` is parts of letters, digits and `_ = , + @ - .`, joined by `/`."""
    if len(name.encode()) > _NAME_BYTES_MAX or not all(map(_is_part, name.split("/"))):
        raise InvalidInput(
            f"{name!r} is not a journal's name",
            hint="use letters, digits and _ = , + @ - . in parts joined by /, such as orders/0; "
            "the names of a journal's own files, such as quarantine or manifest, are taken",
        )


def _is_part(name: str) -> bool:
    own = name.removesuffix(TEMP_SUFFIX)
    return _PART.fullmatch(name) is not None and not is_ours(own) and own != SET_MARKER
