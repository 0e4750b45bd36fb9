"""A walk over a tree of files: rows of a listing in the order of paths, by `scandir`, without recursion.

Invariants: paths are bytes, and only rise; a folder is one row only where it cannot be listed; links and special
files are rows with a problem. Excluded paths are counted by reason.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from stat import S_ISREG
from typing import NamedTuple

from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import Problem, problem_of, stat_version
from strandline.scan.sources.listing_parts import WHOLE, ListingPart
from strandline.scan.sources.source import BATCH_ROWS, Row, path_text
from strandline.scan.sources.stat_cache import format_stat

EXCLUDED, GIT_FOLDER, STATE = "excluded", "git folder", "state"
BOUND_ROWS = 20_000
"""Files of one folder that are listed together."""
BOUNDS_MAX = 20_000
_by_name = attrgetter("name")


class Walk(NamedTuple):
    """The tree below `root`, which ends in `/`, without the paths in `ours` (absolute) and matches of `excludes`."""

    root: bytes
    ours: frozenset[bytes]
    excludes: PathGlobs
    size_max: int
    part: ListingPart = WHOLE
    """Paths outside it are not visited, nor counted."""

    def reaches(self, path: bytes, *, is_folder: bool) -> bool:
        """Return whether a path is in the part, or anything below a folder is."""
        return self.part.overlaps(
            ListingPart(path + b"/", path + b"0") if is_folder else ListingPart(path, path + b"\0")
        )

    def has_folder(self, path: bytes) -> bool:
        """Return whether a folder itself, with its `/`, is in the part."""
        return self.part.start <= path and (self.part.end is None or path < self.part.end)


def walk(
    what: Walk, counts: Counter[str], rows_max: int = sys.maxsize, rest: list[bytes] | None = None
) -> Iterator[list[Row]]:
    """Yield the rows below the root in groups, and count excluded paths.

    Behind so many rows it may end; `rest` then gets the path from which on nothing was listed.
    """
    stack = [_listed(what, b"", counts)]
    rows = 0
    while stack:
        for found in stack[-1]:
            end: bytes | None = None
            if isinstance(found, bytes):
                end = found
            else:
                yield found
                rows += len(found)
                if len(found) == BATCH_ROWS:  # nothing behind the last of them was looked at
                    end = found[-1][0] + b"\0"
            if rest is not None and end is not None and rows >= rows_max and what.part.has(end):
                rest.append(end)
                return
            if isinstance(found, bytes):
                stack.append(_listed(what, found, counts))
                break
        else:
            stack.pop()


def folder_bounds(what: Walk, count: int) -> list[bytes]:
    """Return about `count` paths at which a part is cut: of folders, level by level, and of names in large ones."""
    bounds, level = set[bytes](), [b""]
    while level and len(bounds) < count:
        below: list[bytes] = []
        for folder in level:
            names, folders = _names(what, folder)
            below += [one for one in folders if what.reaches(one[:-1], is_folder=True)]
            bounds |= {path for name in names[::BOUND_ROWS][1:] if what.part.has(path := folder + name)}
            if len(bounds) >= BOUNDS_MAX:
                return sorted(bounds)
        bounds |= set(filter(what.part.has, below))
        level = below
    return sorted(bounds)


def _names(what: Walk, folder: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the sorted names of a folder's files, and the paths of its folders; none if it cannot be listed."""
    names, folders = list[bytes](), list[bytes]()
    try:
        with os.scandir(what.root + folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                elif _reason_to_leave_out(what, folder + entry.name, is_folder=True) is None:
                    folders.append(folder + entry.name + b"/")
    except OSError:  # the listing of the part tells
        return [], []
    return sorted(names), folders


def one_file(what: Walk, name: bytes, counts: Counter[str]) -> Iterator[list[Row]]:
    """Yield the row of one name directly below the root."""
    with os.scandir(what.root) as entries:
        found = [entry for entry in entries if entry.name == name]
    yield from (rows for rows in _rows(what, b"", found, counts) if not isinstance(rows, bytes))
    if not found:
        yield [_problem_row(name, None, Problem.VANISHED)]


def _listed(what: Walk, folder: bytes, counts: Counter[str]) -> Iterator[list[Row] | bytes]:
    """Yield rows of a folder's files, and its folders' paths (with `/`), in order."""
    try:
        with os.scandir(what.root + folder) as entries:
            found = list(entries)
    except OSError as error:
        if not what.has_folder(folder):  # it is told of in the part where it begins
            return iter(())
        problem = problem_of(error)
        is_denied = problem is Problem.PERMISSION_DENIED
        return iter([[_problem_row(folder, None, Problem.UNREADABLE_FOLDER if is_denied else problem)]])
    has_folders = any(entry.is_dir(follow_symlinks=False) for entry in found)
    found.sort(key=_in_order if has_folders else _by_name)
    return _rows(what, folder, found, counts)


def _rows(
    what: Walk, folder: bytes, entries: list[os.DirEntry[bytes]], counts: Counter[str]
) -> Iterator[list[Row] | bytes]:
    is_all, is_whole = not (what.ours or what.excludes.globs), what.part == WHOLE
    rows: list[Row] = []
    for entry in entries:
        path = folder + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_whole and not what.reaches(path, is_folder=is_folder):
            continue
        reason = None if is_all and not is_folder else _reason_to_leave_out(what, path, is_folder=is_folder)
        if reason is not None:
            counts[reason] += not is_folder or what.has_folder(path + b"/")
        elif is_folder:
            yield rows
            yield path + b"/"
            rows = []
        else:
            rows.append(_row(path, entry, what.size_max))
            if len(rows) == BATCH_ROWS:
                yield rows
                rows = []
    yield rows


def _reason_to_leave_out(what: Walk, path: bytes, *, is_folder: bool) -> str | None:
    if what.ours and what.root + path in what.ours:
        return STATE
    if is_folder and (path == b".git" or path.endswith(b"/.git")):
        return GIT_FOLDER
    globs = what.excludes.globs
    if is_folder and any(glob.puts_in for glob in globs):  # a later pattern may include a part of it again
        return None
    is_excluded = bool(globs) and what.excludes.leaving_out(path_text(path) + ("/" if is_folder else ""))
    return EXCLUDED if is_excluded else None


def _row(path: bytes, entry: os.DirEntry[bytes], size_max: int) -> Row:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError as error:
        return _problem_row(path, None, problem_of(error))
    packed, size = format_stat(found), found.st_size
    if S_ISREG(found.st_mode):
        if size > size_max:
            return _problem_row(path, packed, Problem.TOO_LARGE, size)
        return path, None, size, packed, None, None
    return _problem_row(path, packed, Problem.SYMLINK if entry.is_symlink() else Problem.NOT_A_FILE)


def _problem_row(path: bytes, stat: bytes | None, problem: Problem, size: int | None = None) -> Row:
    return path, stat_version(stat), size, stat, None, problem.value


def _in_order(entry: os.DirEntry[bytes]) -> bytes:
    return entry.name + b"/" if entry.is_dir(follow_symlinks=False) else entry.name
