"""Hidden stages: everything is made beside its destination, synced, and renamed into place whole.

Invariants: a stage is on the file system of its destination, so that the rename is one step. What a killed process left
is removed by the next one at the same destination, also by one with the same process id, as in a container that was
restarted; what is renamed is on stable storage, names included.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from strandline.files import OsDisk, storage_errors

_numbers = itertools.count(1)
_names: set[str] = set()
STAGE_MARK = ".staged-"


def own_name(prefix: str) -> str:
    """Return a name that this process has not used, with its id in it."""
    name = f"{prefix}{os.getpid()}-{next(_numbers)}"
    _names.add(name)
    return name


def is_own(name: str) -> bool:
    """Tell whether a name is of this very process, and not of an earlier one that had its id."""
    return name in _names


@contextlib.contextmanager
def staged(destination: Path) -> Iterator[Path]:
    """Yield the path of a stage that does not exist; what is there in the end, and was not renamed, is removed."""
    with storage_errors(destination):
        OsDisk().make_folder(destination.parent)
        _remove_leftovers(destination)
    stage = destination.with_name(own_name(f".{destination.name}{STAGE_MARK}"))
    try:
        with storage_errors(destination):
            yield stage
    finally:
        remove_tree(stage)
        _names.discard(stage.name)


def publish_stage(stage: Path, destination: Path) -> None:
    """Sync a stage, and rename it to its destination; a folder may take the place of an empty one."""
    disk = OsDisk()
    sync_tree(stage)
    disk.rename(stage, destination)
    disk.sync_folder(destination.parent)


def sync_tree(path: Path) -> None:
    """Return when a file, or a folder with all that is in it, is on stable storage."""
    if not path.is_dir():
        _sync_file(path)
        return
    for folder, _, names in os.walk(path):
        for name in names:
            _sync_file(Path(folder) / name)
        OsDisk().sync_folder(Path(folder))


def remove_tree(path: Path) -> None:
    """Remove a file or a folder; a missing one is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file that never changes, or copy it where links are not possible."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(destination: Path) -> None:
    """Remove the stages of processes that are gone."""
    prefix = f".{destination.name}{STAGE_MARK}"
    for path in destination.parent.iterdir():
        if path.name.startswith(prefix) and not is_own(path.name):
            pid = path.name[len(prefix) :].partition("-")[0]
            if pid == str(os.getpid()) or not _is_alive(pid):
                remove_tree(path)


def _is_alive(pid: str) -> bool:
    if not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
