"""Tables of Parquet files: a row group is an item, and every cell that holds text is a part.

    locator     path of the file below the table's folder, NUL, u32 number of the row group, big-endian
    version     BLAKE3 of the chosen columns' names, the footer, and the bytes of their chunks in the row group
    address     row in the group * leaves of the file's schema + leaf

A file is Parquet by its name or by its first bytes. As in Spark, names that begin with `_` or `.` are
not data; folders of partitions (`day=2026-01-31/`) are part of the path.

Invariants: cells are read column by column in batches of bounded size; a finding's row is the value of the key column
if its form excludes a secret, otherwise the row's number in the file, counted from 0; a file that is no table,
or no longer one, is a row with a problem.
"""
# ruff: noqa: PTH118 (names are bytes, which pathlib does not take)

import os
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Self

import pyarrow as pa

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import InputUnusable, ItemProblem, Problem, stat_version
from strandline.scan.sources.files import FileSource
from strandline.scan.sources.listing_parts import WHOLE, ListingPart
from strandline.scan.sources.parquet import Choice, Group, TableFile, begins_as_parquet
from strandline.scan.sources.source import (
    ADDRESS_MAX,
    Content,
    ItemReader,
    Part,
    Row,
    Tell,
    batches,
    path_text,
)
from strandline.scan.sources.stat_cache import vouching

SCHEME = "parquet:"
NOT_DATA, NOT_PARQUET, WITHOUT_ROWS = "not data", "not parquet", "without rows"
_ENDINGS = (b".parquet", b".parq", b".pq")
_U32 = struct.Struct(">I")


def format_locator(path: bytes, group: int) -> bytes:
    """Return the locator of a row group."""
    return path + b"\0" + _U32.pack(group)


def parse_locator(locator: bytes) -> tuple[bytes, int]:
    """Return the path and the number of a row group."""
    (group,) = _U32.unpack(locator[-_U32.size :])
    return locator[: -_U32.size - 1], int(group)


@dataclass(frozen=True)
class TableSource:
    """A Parquet file, or a folder of them; make it with `TableSource.at`."""

    files: FileSource
    name: str
    instance: ConnectorInstanceId
    choice: Choice

    tag = "table"
    cut = "ranges of paths of files, cut at folders and at names"
    is_part = False

    @classmethod
    def at(
        cls,
        address: str,
        *,
        columns: Sequence[str] | None = None,
        key: str | None = None,
        name: str = "",
        excludes: PathGlobs | None = None,
        leave_out: tuple[str | os.PathLike[str], ...] = (),
    ) -> Self:
        """Return the table at an address such as `parquet:/data/orders`."""
        if not address.startswith(SCHEME):
            hint = f"write {SCHEME}/path/to/a/file/or/folder"
            raise InvalidInput(f"{address!r} is not the address of a table", hint=hint)
        if columns is not None and not columns:
            raise InvalidInput("the choice of columns is empty", hint="leave the columns out to scan all of them")
        files = FileSource.at(address.removeprefix(SCHEME), excludes=excludes, leave_out=leave_out)
        real = os.path.join(files.root, files.only or b"").rstrip(b"/")
        instance = connector_instance_id(b"table\0" + (name.encode() or real))
        return cls(files, name or path_text(real), instance, Choice(None if columns is None else tuple(columns), key))

    def plain(self) -> Plain:
        """Return the settings that decide the listing and the parts."""
        return {
            "kind": self.tag,
            "instance": self.instance.hex(),
            "table": shown(path_text(os.path.join(self.files.root, self.files.only or b""))),
            "columns": None if self.choice.columns is None else list(self.choice.columns),
            "key": self.choice.key,
            "excludes": [glob.text for glob in self.files.excludes.globs],
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the row groups of all files, in the order of paths; sizes are those of the chosen columns, unpacked."""
        counts: Counter[str] = Counter()
        return batches(self._rows(counts), tell, counts)

    def listing_parts(self, count: int) -> Sequence[ListingPart]:
        """Return ranges of paths."""
        return self.files.listing_parts(count)

    def list_part(self, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the row groups of a range of paths; the first part finds out whether the table is one at all."""
        counts: Counter[str] = Counter()
        return batches(self._rows(counts, part), tell, counts)

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader of row groups."""
        return nullcontext(GroupReader(self))

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the locator is enough
        """Return the path of the file, and the number of the row group if it is not the first."""
        path, group = parse_locator(locator)
        return path_text(path) + (f" (row group {group})" if group else "")

    def opened(self, path: bytes) -> TableFile:
        """Open one of the files."""
        return TableFile(os.path.join(self.files.root, path), self.choice)

    def _rows(self, counts: Counter[str], part: ListingPart = WHOLE) -> Iterator[Row]:
        if part != WHOLE and not part.start:
            self._check_whole()
        absent = set(self.choice.columns or ())
        found = 0
        for row in chain.from_iterable(self.files.rows(counts, part)):
            path, packed, problem = row[0], row[3], row[5]
            if problem not in (None, Problem.TOO_LARGE):
                yield format_locator(path, 0), stat_version(packed), None, packed, None, problem
            elif (reason := self._not_ours(path)) is not None:
                counts[reason] += 1
                continue
            else:
                try:
                    with self.opened(path) as file:
                        absent -= {name for _, leaf in file.chosen for name in (leaf.column, leaf.name)}
                        self._check_key(file, path)
                        yield from self._groups(file, path, counts)
                except ItemProblem as error:
                    absent.clear()  # its columns are unknown
                    yield format_locator(path, 0), error.version, None, packed, None, error.code.value
            found += 1
        if part == WHOLE:
            self._check_found(found, absent)

    def _check_whole(self) -> None:
        """Read files until it is known that something would be scanned; one part of the listing cannot tell."""
        absent, found = set(self.choice.columns or ()), 0
        for row in chain.from_iterable(self.files.rows(Counter())):
            is_read = row[5] in (None, Problem.TOO_LARGE)
            if is_read and self._not_ours(row[0]) is not None:
                continue
            found += 1
            if is_read:
                try:
                    with self.opened(row[0]) as file:
                        absent -= {name for _, leaf in file.chosen for name in (leaf.column, leaf.name)}
                except ItemProblem:
                    return  # its columns are unknown
            if not absent:
                return
        self._check_found(found, absent)

    def _check_found(self, found: int, absent: set[str]) -> None:
        """Reject a table in which nothing would be scanned."""
        if not found:
            raise InputUnusable(self.name, "there is no Parquet file in it", hint="check the path of the table")
        if absent:
            problem = f"no file has the column {', '.join(sorted(absent))} with text in it"
            raise InputUnusable(self.name, problem, hint="list the names with `pyarrow.parquet.read_schema`")

    def _groups(self, file: TableFile, path: bytes, counts: Counter[str]) -> Iterator[Row]:
        groups = [group for group in file.groups() if group.rows]
        counts.update({WITHOUT_ROWS: 1} if not groups else {})
        for group in groups:
            locator = format_locator(path, group.number)
            if group.rows * len(file.leaves) > ADDRESS_MAX:
                yield locator, stat_version(file.stat), group.size, file.stat, None, Problem.TOO_LARGE.value
            else:
                yield locator, None, group.size, file.stat, None, None

    def _check_key(self, file: TableFile, path: bytes) -> None:
        key = self.choice.key
        if key is not None and key not in file.schema.names:
            hint = f"choose one of: {', '.join(file.schema.names)}"
            raise InputUnusable(shown(path_text(path)), f"there is no column {key}", hint=hint)

    def _not_ours(self, path: bytes) -> str | None:
        """Return the reason that excludes a file from the table; None for its files, and for a file given by name."""
        if self.files.only is not None:
            return None
        if any(name.startswith((b"_", b".")) for name in path.split(b"/")):
            return NOT_DATA
        if path.endswith(_ENDINGS) or begins_as_parquet(os.path.join(self.files.root, path)):
            return None
        return NOT_PARQUET


class GroupReader:
    """Reads row groups."""

    def __init__(self, source: TableSource) -> None:
        self._source = source

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002 - the locator is enough
        """Return a row group, whose cells are read on demand."""
        path, number = parse_locator(locator)
        with self._source.opened(path) as file:
            group = file.group(number)
            version = file.version(group)
        keep = vouching(file.stat, file.looked_at_ns)
        return Content(version, self._parts(path, group, file.stat), group.size, keep)

    def _parts(self, path: bytes, group: Group, seen: bytes) -> Iterator[Part]:
        """Open the file again, if it is unchanged: a caller that reads no part leaves nothing open."""
        with self._source.opened(path) as file:
            if file.stat != seen:
                raise Problem.CHANGED_WHILE_READ.error(stat_version(file.stat))
            yield from file.parts(group, path_text(path), self._source.files.size_max)
