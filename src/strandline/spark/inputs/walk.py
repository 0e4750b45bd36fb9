"""A walk over a tree of files: rows of a listing in the order of paths, by `scandir`, without recursion.

Invariants: paths are bytes, and only rise; a folder is one row only where it cannot be listed; links and whatever is
neither file nor folder are rows with a problem. What the walk leaves out is counted under its reason.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from strandline.scan import PathGlobs
from strandline.spark.inputs.errors import Problem, problem_of, stat_version
from strandline.spark.inputs.source import Row, path_text
from strandline.spark.inputs.stat_cache import format_stat

EXCLUDED, GIT_FOLDER, STATE = "excluded", "git folder", "state"


class Walk(NamedTuple):
    """What to walk: below `root`, which ends in `/`, without what `ours` names (absolute paths) and `excludes` fits."""

    root: bytes
    ours: frozenset[bytes]
    excludes: PathGlobs
    size_max: int


def walk(what: Walk, counts: Counter[str]) -> Iterator[Row]:
    """Yield rows for all that is below the root, and count what is left out."""
    stack = [_listed(what, b"", counts)]
    while stack:
        for row in stack[-1]:
            if isinstance(row, bytes):
                stack.append(_listed(what, row, counts))
                break
            yield row
        else:
            stack.pop()


def one_file(what: Walk, name: bytes, counts: Counter[str]) -> Iterator[Row]:
    """Yield the row of one name directly below the root."""
    with os.scandir(what.root) as entries:
        found = [entry for entry in entries if entry.name == name]
    yield from (row for row in _rows(what, b"", found, counts) if not isinstance(row, bytes))
    if not found:
        yield _problem_row(name, None, Problem.VANISHED)


def _listed(what: Walk, folder: bytes, counts: Counter[str]) -> Iterator[Row | bytes]:
    """Yield rows of a folder's files, and its folders' paths (with `/`), in order."""
    try:
        with os.scandir(what.root + folder) as entries:
            found = sorted(entries, key=_in_order)
    except OSError as error:
        problem = problem_of(error)
        is_denied = problem is Problem.PERMISSION_DENIED
        return iter([_problem_row(folder, None, Problem.UNREADABLE_FOLDER if is_denied else problem)])
    return _rows(what, folder, found, counts)


def _rows(what: Walk, folder: bytes, entries: list[os.DirEntry[bytes]], counts: Counter[str]) -> Iterator[Row | bytes]:
    excludes, size_max = what.excludes, what.size_max
    prunes = not any(glob.puts_in for glob in excludes.globs)
    for entry in entries:
        path = folder + entry.name
        if what.ours and what.root + path in what.ours:
            counts[STATE] += 1
        elif entry.is_dir(follow_symlinks=False):
            if entry.name == b".git":
                counts[GIT_FOLDER] += 1
            elif prunes and excludes.globs and excludes.leaving_out(path_text(path) + "/"):
                counts[EXCLUDED] += 1
            else:
                yield path + b"/"
        elif excludes.globs and excludes.leaving_out(path_text(path)):
            counts[EXCLUDED] += 1
        else:
            yield _row(path, entry, size_max)


def _row(path: bytes, entry: os.DirEntry[bytes], size_max: int) -> Row:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError as error:
        return _problem_row(path, None, problem_of(error))
    packed = format_stat(found)
    if entry.is_file(follow_symlinks=False):
        if found.st_size > size_max:
            return _problem_row(path, packed, Problem.TOO_LARGE, found.st_size)
        return path, None, found.st_size, packed, None, None
    return _problem_row(path, packed, Problem.SYMLINK if entry.is_symlink() else Problem.NOT_A_FILE)


def _problem_row(path: bytes, stat: bytes | None, problem: Problem, size: int | None = None) -> Row:
    return path, stat_version(stat), size, stat, None, problem.value


def _in_order(entry: os.DirEntry[bytes]) -> bytes:
    return entry.name + b"/" if entry.is_dir(follow_symlinks=False) else entry.name
