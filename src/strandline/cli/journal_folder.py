"""What the journal's commands share: finding a journal's folder, and reading it beside its writer."""

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.output import progress
from strandline.errors import FormatError, InvalidInput, Locked
from strandline.files import Lock, OsDisk, OsLock, storage_errors
from strandline.journal import Damage, Examination, examine
from strandline.journal.examination import Progress
from strandline.journal.folder import SET_MARKER, lock_folder
from strandline.journal.frontier import FRONTIER_NAME
from strandline.journal.manifest import MANIFEST_NAME
from strandline.journal.segment import parse_segment_name

LOOKS_MAX = 3
PROGRESS_STEPS = 500

JournalPath = Annotated[Path, typer.Argument(metavar="PATH", help="The journal's folder.", show_default=False)]


def require_journal(path: Path) -> None:
    """Raise an error that helps unless `path` is the folder of a journal."""
    with storage_errors(path):
        if not path.exists():
            raise InvalidInput(f"{path}: there is no such folder", hint="check the path")
        if not path.is_dir():
            inside = parse_segment_name(path.name) is not None
            hint = f"give the folder that it is in: {path.parent}" if inside else "give a journal's folder"
            raise InvalidInput(f"{path}: this is a file", hint=hint)
        names = [found.name for found in path.iterdir()]
    if SET_MARKER in names:
        hint = "give the folder of one of its journals, below this one"
        raise FormatError(str(path), "this is the root of a set of journals", hint=hint)
    ours = [name for name in names if parse_segment_name(name) is not None or name in (MANIFEST_NAME, FRONTIER_NAME)]
    if not ours:
        problem = "there is no journal here" if names else "there is no journal here; the folder is empty"
        raise FormatError(str(path), problem, hint="check the path; a journal is a folder of *.journal files")


class _Probe(OsDisk):
    """A disk whose lock is only looked at: it creates nothing, and shares the lock for a moment."""

    def lock(self, path: Path) -> Lock:
        """Raise `Locked` if another process has the lock."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return OsLock(-1)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Locked(str(path.parent)) from error
        finally:
            os.close(descriptor)
        return OsLock(-1)


def has_writer(folder: Path) -> bool:
    """Whether a writer has the journal open now."""
    try:
        with storage_errors(folder):
            lock_folder(_Probe(), folder).release()
    except Locked:
        return True
    return False


def look(folder: Path, *, deep: bool = False, tell: Progress | None = None) -> Examination:
    """Examine a folder, also beside a writer: what looks damaged only because it moved meanwhile is not reported."""
    disk = OsDisk()
    seen: set[Damage] | None = None
    for attempt in range(LOOKS_MAX):
        try:
            found = examine(disk, folder, deep=deep, progress=tell)
        except FileNotFoundError:  # retention was quicker
            if attempt == LOOKS_MAX - 1:
                raise
            continue
        seen = set(found.damage) if seen is None else seen & set(found.damage)
        found.damage = [damage for damage in found.damage if damage in seen]
        if not found.damage or not has_writer(folder):
            break
    return found


@contextmanager
def reading(folder: Path, description: str) -> Iterator[Progress | None]:
    """Show a bar while a journal is read whole; yields what `examine` reports to, or None off a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    total = sum(path.stat().st_size for path in folder.iterdir() if parse_segment_name(path.name) is not None)
    shown = 0
    with progress(description, total) as advance:

        def tell(read: int, _total: int) -> None:
            nonlocal shown
            if read < shown:  # it is read a second time
                advance(-shown)
                shown = 0
            if (read - shown) * PROGRESS_STEPS >= total:
                advance(read - shown)
                shown = read

        yield tell


def time_of(ns: int) -> str | None:
    """Return a time in nanoseconds as text, in UTC; None where there is none."""
    if not ns:
        return None
    try:
        moment = datetime.fromtimestamp(ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % 1_000_000_000:09d}Z"


def count_places(damage: Sequence[Damage]) -> str:
    """Return how many places are damaged, as the beginning of a sentence."""
    return "1 place is" if len(damage) == 1 else f"{len(damage):,} places are"
