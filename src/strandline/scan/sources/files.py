"""Files under a root: walked without following links, and read with a check for concurrent changes.

The order is that of the relative paths as bytes, with folders as if their names ended in `/`; so locators only rise,
and two listings of the same tree are the same. A folder that cannot be listed is a row itself, named with its `/`.

Invariants: nothing outside the root is listed, and no link is followed, so loops cannot happen; every name in the tree
is listed, or counted as left out: patterns, `.git` folders, the state folder. A read is of one moment: stat data are
the same before and after, or it is done again, once. Bytes beyond the size limit are never read.
"""
# ruff: noqa: PTH116, PTH118 (names are bytes, which pathlib does not take)

import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from blake3 import blake3

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import (
    InputMissing,
    InputRefused,
    Problem,
    problem_of,
    stat_version,
)
from strandline.scan.sources.git_repository import (
    TAG,
    TREE,
    Repository,
    enclosing_repository,
    format_locator,
    parse_locator,
)
from strandline.scan.sources.listing_parts import WHOLE, ListingPart, ending_at
from strandline.scan.sources.source import SIZE_MAX, Content, ItemReader, Part, Row, Tell, batches, path_text
from strandline.scan.sources.stat_cache import format_stat, vouching
from strandline.scan.sources.walk import Walk, folder_bounds, one_file, walk

OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_TRIES = 2
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class FileSource:
    """A tree of files, or one file of it; make it with `FileSource.at`.

    Files of a git work tree are items of its `repository`, as those of its history are.
    """

    root: bytes
    only: bytes | None
    name: str
    instance: ConnectorInstanceId
    excludes: PathGlobs
    ours: frozenset[bytes]
    size_max: int
    repository: Repository | None = None

    cut = "ranges of paths, cut at folders and at names within a large folder, and again while they are listed"

    @classmethod
    def at(
        cls,
        path: str | bytes | os.PathLike[str],
        *,
        name: str = "",
        excludes: PathGlobs | None = None,
        leave_out: tuple[str | os.PathLike[str], ...] = (),
        size_max: int = SIZE_MAX,
        in_repository: bool = False,
    ) -> Self:
        """Return a folder, or one file with its folder as root; `leave_out` names paths to skip.

        With `in_repository`, files of a git work tree are items of its repository, which `name` identifies.
        """
        real = os.path.realpath(os.fsencode(path))
        try:
            is_folder = stat.S_ISDIR(os.stat(real).st_mode)
        except OSError as error:
            raise _refused(os.fsencode(path), error) from error
        root, only = (real, None) if is_folder else os.path.split(real)
        found = enclosing_repository(root, name) if in_repository else None
        instance = connector_instance_id(b"fs\0" + (name.encode() or root)) if found is None else found.instance
        ours = frozenset(os.path.realpath(os.fsencode(one)) for one in leave_out)
        if any(os.path.commonpath([real, one]) == one for one in ours):
            raise InvalidInput(f"{path_text(real)} holds the results of scans", hint="scan another folder")
        return cls(root, only, name or path_text(real), instance, excludes or PathGlobs(), ours, size_max, found)

    @property
    def tag(self) -> str:
        """Return the kind of source."""
        return "fs" if self.repository is None else TAG

    @property
    def view(self) -> str:
        """Return the view of the repository, if there is one."""
        return "" if self.repository is None else TREE

    @property
    def displays_locator(self) -> bool:
        """Whether the path of each item is its locator."""
        return self.repository is None

    @property
    def is_part(self) -> bool:
        """Whether the source is one file of its folder, or one folder of its repository."""
        return self.only is not None or bool(self.prefix)

    @property
    def prefix(self) -> bytes:
        """Return the path of the folder below the top of its repository, which ends in `/` or is empty."""
        top = self.root if self.repository is None else self.repository.top
        return os.path.join(self.root, b"")[len(os.path.join(top, b"")) :]

    @property
    def report_root(self) -> str:
        """Return the folder that the paths of a repository are below."""
        return "" if self.repository is None else path_text(self.repository.top)

    def plain(self) -> Plain:
        """Return the settings that decide the listing."""
        return {
            "kind": self.view or self.tag,
            "instance": self.instance.hex(),
            "root": shown(path_text(self.root)),
            "only": None if self.only is None else shown(path_text(self.only)),
            "excludes": [glob.text for glob in self.excludes.globs],
            "size_max": self.size_max,
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the tree, in the order of paths."""
        return self.list_part(WHOLE, tell)

    def listing_parts(self, count: int) -> Sequence[ListingPart]:
        """Return ranges of paths."""
        return self.split(WHOLE, count)

    def split(self, part: ListingPart, count: int) -> Sequence[ListingPart]:
        """Return ranges of the paths of a range."""
        if self.only is not None:
            return (part,)
        bounds = [one for one in folder_bounds(self._walk(part), count) if one != part.start]
        step = max(1, len(bounds) // count)
        return part.cut_at(bounds[::step])

    def list_part(self, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range of paths."""
        return self.list_some(part, tell, sys.maxsize)

    def list_some(self, part: ListingPart, tell: Tell, items_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range of paths, or of its beginning if there are more than so many."""
        counts: Counter[str] = Counter()
        rest: list[bytes] = []
        rows = self.rows(counts, part, items_max, rest)
        for batch in batches(rows if self.repository is None else self._in_repository(rows), tell, counts):
            yield ending_at(batch, rest[0] if rest else None)

    def _in_repository(self, rows: Iterable[list[Row]]) -> Iterator[list[Row]]:
        begin = self.locator_begin
        return ([(begin + row[0], *row[1:]) for row in group] for group in rows)

    @property
    def locator_begin(self) -> bytes:
        """Return what stands before the path below the root in every locator."""
        return b"" if self.repository is None else format_locator(self.repository.identity, self.prefix)

    def rows(
        self,
        counts: Counter[str],
        part: ListingPart = WHOLE,
        rows_max: int = sys.maxsize,
        rest: list[bytes] | None = None,
    ) -> Iterator[list[Row]]:
        """Yield the rows of the tree in groups, and count excluded paths; `rest` as in `walk`.

        A root that cannot be listed is an error.
        """
        try:
            os.scandir(self.root).close()
        except OSError as error:
            raise _refused(self.root, error) from error
        what = self._walk(part)
        return walk(what, counts, rows_max, rest) if self.only is None else one_file(what, self.only, counts)

    def _walk(self, part: ListingPart) -> Walk:
        return Walk(os.path.join(self.root, b""), self.ours, self.excludes, self.size_max, part)

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader of files."""
        return nullcontext(FileReader(self))

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the path is enough
        """Return the path below the root, or below the top of the repository."""
        return path_text(locator if self.repository is None else parse_locator(locator))


class FileReader:
    """Reads the files of a source."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._begin = os.path.join(source.root, b"")
        self._skipped = len(source.locator_begin)

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002 - the path is enough
        """Return a file's content, read without a change meanwhile."""
        path, shown_path = self._begin + locator[self._skipped :], self._source.display(locator, None)
        for _ in range(_TRIES):
            try:
                content = _read_once(path, shown_path, self._source)
            except OSError as error:
                raise problem_of(error).error() from error
            if isinstance(content, Content):
                return content
            seen = content
        raise Problem.CHANGED_WHILE_READ.error(stat_version(seen))


def _read_once(path: bytes, shown_path: str, source: FileSource) -> Content | bytes:
    """Return a file's content, or its stat data if it changed meanwhile."""
    size_max = source.size_max
    looked_at_ns = time.time_ns()
    file = os.open(path, OPEN_FLAGS)
    try:
        before = os.fstat(file)
        packed = format_stat(before)
        if not stat.S_ISREG(before.st_mode):
            raise Problem.NOT_A_FILE.error(stat_version(packed))
        if before.st_size > size_max:
            raise Problem.TOO_LARGE.error(stat_version(packed))
        data = _read_all(file, before.st_size, size_max)
        if len(data) > size_max:
            raise Problem.TOO_LARGE.error(stat_version(packed))
        after = format_stat(os.fstat(file))
    finally:
        os.close(file)
    if after != packed:
        return after
    repository = source.repository
    version = b"blake3:" + blake3(data).digest() if repository is None else repository.version_of(data)
    keep = vouching(packed, looked_at_ns) if len(data) == before.st_size else None
    return Content(version, [Part(data, shown_path)], len(data), keep)


def _read_all(file: int, size: int, size_max: int) -> bytes:
    """Return all bytes of a file, or one more than the limit; files of the kernel have more bytes than their size."""
    data = os.read(file, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    left = size_max + 1 - len(data)
    while left > 0 and (piece := os.read(file, min(left, _PIECE_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _refused(path: bytes, error: OSError) -> InputMissing | InputRefused:
    match problem_of(error):
        case Problem.VANISHED:
            return InputMissing(shown(path_text(path)))
        case Problem.PERMISSION_DENIED:
            hint = "run as a user with read permission"
        case _:
            hint = "check its permissions with `ls -l`"
    return InputRefused(shown(path_text(path)), error.strerror or type(error).__name__, hint=hint)
