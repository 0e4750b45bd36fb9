"""Quarantine: where a repair puts bytes before it changes them; nothing in it is ever overwritten.

Names sort by where the bytes stood. A second copy of the same place, with other bytes, gets a number of its own:

    00000000000000000000-000000001024.bytes      bytes 1,024 and on of the segment that begins at offset 0
    00000000000000000000-000000001024-2.bytes    what stood there the next time
    00000000000000000000.journal                 a whole segment

Invariants: when a function here returns, the copy is on stable storage, byte for byte, under a name that was not taken;
asking again for the same bytes finds the copy that is there. Runs of zeros take no space.
"""

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

from strandline.files import TEMP_SUFFIX, Disk, File, remove_if_there
from strandline.journal.recovery import QUARANTINE_NAME

COPY_BYTES = 1024 * 1024
_STRETCH = re.compile(r"(\d{20})-(\d{12,})\.bytes")


def format_stretch_name(segment: int, position: int) -> str:
    """Return the name for bytes that stood at `position` of a segment."""
    return f"{segment:020d}-{position:012d}.bytes"


def parse_stretch_name(name: str) -> tuple[int, int] | None:
    """Return (segment, position) of a stretch's first copy, or None where the name is something else's."""
    match = _STRETCH.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def keep_stretch(disk: Disk, source: Path, position: int, end: int | None, name: str) -> Path | None:
    """Copy bytes [position, end) of a file, or all from `position`, into the quarantine beside it; None if none."""
    with closing(disk.open(source, "read")) as file:
        size = file.size()
        end = size if end is None else min(end, size)
        if position >= end:
            return None
        folder = source.parent / QUARANTINE_NAME
        disk.make_folder(folder)
        for target in _names(folder / name):
            if _holds(disk, target, file, position, end):
                _make_certain(disk, target)
                return target
            if target.name not in disk.names(folder):
                _copy(disk, target, file, position, end)
                return target
    raise AssertionError("names do not run out")


def has_quarantine(disk: Disk, folder: Path) -> bool:
    """Tell whether a repair has put anything aside of a journal."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return bool(disk.names(folder / QUARANTINE_NAME))
    return False


def keep_file(disk: Disk, source: Path, name: str) -> Path | None:
    """Copy a whole file into the quarantine beside it; None where it is missing or empty."""
    with suppress(FileNotFoundError):
        return keep_stretch(disk, source, 0, None, name)
    return None


def _names(path: Path) -> Iterator[Path]:
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def chunks(file: File, position: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) over a part of a file."""
    while position < end:
        data = file.pread(min(COPY_BYTES, end - position), position)
        if not data:
            return
        yield position, data
        position += len(data)


def _holds(disk: Disk, target: Path, source: File, position: int, end: int) -> bool:
    try:
        file = disk.open(target, "read")
    except FileNotFoundError:
        return False
    with closing(file):
        if file.size() != end - position:
            return False
        return all(file.pread(len(data), at - position) == data for at, data in chunks(source, position, end))


def _make_certain(disk: Disk, target: Path) -> None:
    with closing(disk.open(target, "write")) as file:
        file.sync()
    disk.sync_folder(target.parent)


def _copy(disk: Disk, target: Path, source: File, position: int, end: int) -> None:
    temporary = target.with_name(target.name + TEMP_SUFFIX)
    remove_if_there(disk, temporary)
    with closing(disk.open(temporary, "create")) as file:
        file.truncate(end - position)
        for at, data in chunks(source, position, end):
            if data.strip(b"\0"):
                file.pwritev([data], at - position)
        file.sync()
    disk.rename(temporary, target)
    disk.sync_folder(target.parent)
