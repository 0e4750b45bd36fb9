"""A journal's folder as it would be after some repairs, read-only, so that a plan is made without a change.

Invariants: nothing is written, and every call that would write raises; files that are not named as repaired
read as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import UnsupportedOperation
from pathlib import Path
from typing import NoReturn

from strandline.files import Buffer, Disk, File, Lock, OpenMode
from strandline.journal.segment import SegmentHeader, format_segment_header, parse_segment_name


@dataclass(slots=True)
class RepairedView:
    """A `Disk` over another that shows segments, named by base offset, with other headers, shorter, or not at all."""

    disk: Disk
    headers: dict[int, SegmentHeader] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def open(self, path: Path, mode: OpenMode) -> File:
        """Open for reading; nothing else is possible."""
        if mode != "read":
            _refuse()
        base = parse_segment_name(path.name)
        file = self.disk.open(path, "read")
        if base not in self.headers and base not in self.ends:
            return file
        header = self.headers.get(base)
        return _RepairedFile(file, b"" if header is None else format_segment_header(header), self.ends.get(base))

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        return [name for name in self.disk.names(folder) if parse_segment_name(name) not in self.gone]

    def make_folder(self, folder: Path) -> None:
        """Refuse: the view is read-only."""
        _refuse(folder)

    def remove_folder(self, folder: Path) -> None:
        """Refuse: the view is read-only."""
        _refuse(folder)

    def rename(self, source: Path, target: Path) -> None:
        """Refuse: the view is read-only."""
        _refuse(source, target)

    def remove(self, path: Path) -> None:
        """Refuse: the view is read-only."""
        _refuse(path)

    def sync_folder(self, folder: Path) -> None:
        """Refuse: the view is read-only."""
        _refuse(folder)

    def lock(self, path: Path) -> Lock:
        """Refuse: the view is read-only."""
        _refuse(path)


class _RepairedFile:
    """A file that begins with `header` and ends at `end`."""

    def __init__(self, file: File, header: bytes, end: int | None) -> None:
        self._file = file
        self._header = header
        self._end = end

    def pread(self, count: int, position: int) -> bytes:
        count = max(0, min(count, self.size() - position))
        head = self._header[position : position + count]
        return head + self._file.pread(count - len(head), position + len(head))

    def size(self) -> int:
        size = max(self._file.size(), len(self._header))
        return size if self._end is None else min(size, self._end)

    def close(self) -> None:
        self._file.close()

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        _refuse(buffers, position, sync)

    def sync(self) -> None:
        _refuse()

    def truncate(self, size: int) -> None:
        _refuse(size)

    def allocate(self, size: int) -> None:
        _refuse(size)


def _refuse(*_: object) -> NoReturn:
    raise UnsupportedOperation("a repaired view is read-only")
