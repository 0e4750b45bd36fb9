"""SQLite files as a source: a block of rows is an item, and every cell with text or bytes is a part.

    locator     path of the file, NUL, name of the table, NUL, then i64 number of the block of 65,536 rowids, or nothing
    version     BLAKE3 of the block's rowids, columns and cells

A file is SQLite by its first bytes, whatever its name. Transactions that are only in the write-ahead log count. A
replica (`replica:ADDRESS`) is restored to a temporary folder first.

Invariants: as those of `SqliteFile`; a table that grows at its end is scanned again only where it grew; a file that
cannot be read is one item with a problem.
"""

import os
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import pyarrow as pa

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.lazy_imports import deferred
from strandline.objects import local_folder, open_objects
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import InputMissing, InputRefused, InputUnusable, ItemProblem, Problem, stat_version
from strandline.scan.sources.files import FileSource
from strandline.scan.sources.source import SIZE_MAX, Content, ItemReader, Part, Row, Tell, batches, path_text
from strandline.scan.sources.sqlite_file import BLOCK_ROWS, Block, SqliteFile, is_sqlite
from strandline.scan.sources.stat_cache import vouching

if TYPE_CHECKING:
    from strandline import replica
else:
    replica = deferred("strandline.replica")

FILES, REPLICA = "sqlite:", "replica:"
NOT_SQLITE = "not sqlite"
RESTORED = "restored.db"
_U64 = struct.Struct(">q")


def format_locator(path: bytes, block: Block) -> bytes:
    """Return the locator of a block."""
    number = b"" if block.number is None else _U64.pack(block.number)
    return b"\0".join((path, block.table.encode(errors="surrogateescape"), number))


def parse_locator(locator: bytes) -> tuple[bytes, Block]:
    """Return the path of a file, and a block of it."""
    path, table, number = locator.split(b"\0", 2)
    return path, Block(table.decode(errors="surrogateescape"), _U64.unpack(number)[0] if number else None)


@dataclass(frozen=True)
class SqliteSource:
    """SQLite files below a folder, one file, or a replica; make it with `SqliteSource.at`."""

    files: FileSource | None
    replica: str
    name: str
    instance: ConnectorInstanceId
    size_max: int

    tag = "sqlite"
    cut = "one part: 65,536 rows are an item, so that even large databases have few"
    is_part = False

    @classmethod
    def at(
        cls,
        address: str,
        *,
        name: str = "",
        excludes: PathGlobs | None = None,
        leave_out: tuple[str | os.PathLike[str], ...] = (),
        size_max: int = SIZE_MAX,
    ) -> Self:
        """Return the files at `sqlite:PATH`, or the replica at `replica:ADDRESS`."""
        if address.startswith(REPLICA):
            where = address.removeprefix(REPLICA)
            if "@" in urlsplit(where).netloc:  # the address is stored
                raise InvalidInput(
                    f"{REPLICA}…: credentials do not belong into an address", hint="set them in the environment"
                )
            instance = connector_instance_id(b"replica\0" + (name.encode() or where.rstrip("/").encode()))
            return cls(None, where, name or address, instance, size_max)
        if not address.startswith(FILES):
            raise InvalidInput(f"{address!r} names no SQLite file", hint="write sqlite:PATH or replica:ADDRESS")
        files = FileSource.at(address.removeprefix(FILES), excludes=excludes, leave_out=leave_out, size_max=2**63 - 1)
        real = os.path.join(files.root, files.only or b"").rstrip(b"/")  # noqa: PTH118 - a path of bytes
        try:
            is_other = files.only is not None and not is_sqlite(real)
        except ItemProblem as error:
            raise _refused(real, error) from error
        if is_other:
            raise InputUnusable(shown(path_text(real)), "it is not SQLite", hint="scan it as a file, without sqlite:")
        instance = connector_instance_id(b"sqlite\0" + (name.encode() or real))
        return cls(files, "", name or path_text(real), instance, size_max)

    def plain(self) -> Plain:
        """Return the settings that decide the listing and the parts."""
        return {
            "kind": self.tag,
            "instance": self.instance.hex(),
            "files": None if self.files is None else self.files.plain(),
            "replica": self.replica,
            "size_max": self.size_max,
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of all files, in the order of paths, tables and rowids."""
        counts: Counter[str] = Counter()
        return batches(self._rows(counts), tell, counts)

    @contextmanager
    def open(self) -> Iterator[ItemReader]:
        """Return a reader of blocks."""
        with self.folder() as folder:
            yield BlockReader(folder, self.size_max)

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the locator is enough
        """Return the path of the file, the table, and the first rowid of the block."""
        path, block = parse_locator(locator)
        rows = f" (rows from {block.number * BLOCK_ROWS})" if block.number else ""
        return f"{path_text(path)}/{block.table}{rows}" if block.table else path_text(path)

    @contextmanager
    def folder(self) -> Iterator[bytes]:
        """Yield the folder that the paths are in; a replica is restored for so long."""
        if self.files is not None:
            yield self.files.root
            return
        with tempfile.TemporaryDirectory(prefix="strandline-replica-") as folder:
            local = local_folder(self.replica)
            if local is not None and not local.is_dir():  # opening it would make it
                raise InputMissing(shown(str(local)), "folder")
            store = open_objects(self.replica)
            try:
                replica.restore(store, replica.Layout(store), Path(folder) / RESTORED)
            finally:
                store.close()
            yield os.fsencode(folder)

    def _rows(self, counts: Counter[str]) -> Iterator[Row]:
        with self.folder() as folder:
            if self.files is None:
                yield from self._blocks(folder, RESTORED.encode(), None)
                return
            found = 0
            for row in chain.from_iterable(self.files.rows(counts)):
                path, problem = row[0], _problem(folder, row)
                found += problem != NOT_SQLITE
                if problem is None:
                    yield from self._blocks(folder, path, row[3])
                elif problem == NOT_SQLITE:
                    counts[NOT_SQLITE] += 1
                else:
                    yield format_locator(path, Block("", None)), row[1] or stat_version(row[3]), *row[2:5], problem
            if not found:
                raise InputUnusable(self.name, "there is no SQLite file in it", hint="check the path")

    def _blocks(self, folder: bytes, path: bytes, seen: bytes | None) -> Iterator[Row]:
        whole = os.fsdecode(os.path.join(folder, path))  # noqa: PTH118 - a path of bytes
        try:
            with SqliteFile(whole, self.size_max) as file:
                blocks = list(file.blocks())
                each = os.stat(whole).st_size // max(1, len(blocks))  # noqa: PTH116
                for block in blocks:
                    yield format_locator(path, block), None, each, file.stat if seen else None, None, None
        except ItemProblem as error:
            locator = format_locator(path, Block("", None))
            yield locator, error.version or stat_version(seen), None, seen, None, error.code.value


def _problem(folder: bytes, row: Row) -> str | None:
    """Return None for a SQLite file, `NOT_SQLITE`, or the problem that keeps one from knowing."""
    if row[5] is not None:
        return NOT_SQLITE if Problem(row[5]).is_skipped else row[5]
    try:
        return None if is_sqlite(os.path.join(folder, row[0])) else NOT_SQLITE  # noqa: PTH118 - a path of bytes
    except ItemProblem as error:
        return error.code.value


def _refused(path: bytes, error: ItemProblem) -> InputRefused:
    return InputRefused(shown(path_text(path)), f"it cannot be read ({error.code})", hint="check its permissions")


class BlockReader:
    """Reads blocks of rows."""

    def __init__(self, folder: bytes, size_max: int) -> None:
        self._folder = folder
        self._size_max = size_max

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002 - the locator is enough
        """Return a block, whose cells are read on demand."""
        path, block = parse_locator(locator)
        with self._opened(path) as file:
            version, seen = file.version(block), file.stat
        keep = vouching(seen, file.looked_at_ns)
        return Content(version, self._parts(path, block, seen), os.stat(self._whole(path)).st_size, keep)  # noqa: PTH116

    def _parts(self, path: bytes, block: Block, seen: bytes) -> Iterator[Part]:
        """Open the file again, if it is unchanged: a caller that reads no part leaves nothing open."""
        with self._opened(path) as file:
            if file.stat != seen:
                raise Problem.CHANGED_WHILE_READ.error(stat_version(file.stat))
            yield from file.parts(block, path_text(path))

    def _opened(self, path: bytes) -> SqliteFile:
        return SqliteFile(self._whole(path), self._size_max)

    def _whole(self, path: bytes) -> str:
        return os.fsdecode(os.path.join(self._folder, path))  # noqa: PTH118 - a path of bytes
