"""Checks that workers see the files that the driver listed.

A worker of a cluster checks the sources before it takes a shard or a part of a listing. Where tasks listed the sources,
the driver lists a sample of the parts in which they found nothing: a file system that is not mounted on a worker is an
empty folder there. After the run the driver reads a sample of the items that workers could not read: an item that the
driver can read is not gone.

Invariants: nothing is written; an item that is gone on every machine is no error.
"""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import StrandlineError
from strandline.scan.errors import SourceNotShared
from strandline.scan.request import ScanRequest
from strandline.scan.sources import FileSource, GitSource, ItemProblem, JournalSource, Problem, Source, TableSource
from strandline.scan.sources.errors import problem_of
from strandline.scan.sources.listing_parts import ListingPart, list_part
from strandline.scan.sources.source import path_text

UNREAD = (Problem.VANISHED, Problem.PERMISSION_DENIED, Problem.IO_ERROR)
"""Problems of workers with files that only the driver sees."""
SHARE_MIN = 0.1
SAMPLES_MAX = 20


@dataclass
class Unread:
    """Items of one source that workers tried to read: how many, how many failed, and a sample of the failed ones."""

    tried: int = 0
    failed: int = 0
    code: str = ""
    samples: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def add(self, listed: pa.RecordBatch, codes: pa.Array) -> None:
        """Add items with the codes of their results."""
        unread = pc.is_in(codes, pa.array([code.value for code in UNREAD]))
        self.tried += len(listed)
        self.failed += unread.true_count
        if unread.true_count and len(self.samples) < SAMPLES_MAX:
            self.code = self.code or codes.filter(unread)[0].as_py()
            chosen = listed.filter(unread).slice(0, SAMPLES_MAX - len(self.samples))
            self.samples += zip(chosen["locator"].to_pylist(), chosen["extra"].to_pylist(), strict=True)

    def merge(self, other: "Unread") -> None:
        """Add items that come after these."""
        self.tried += other.tried
        self.failed += other.failed
        self.code = self.code or other.code
        self.samples += other.samples[: SAMPLES_MAX - len(self.samples)]


def check_sources(request: ScanRequest) -> None:
    """Raise `SourceNotShared` in a worker whose machine lacks a source."""
    for source in request.sources:
        problem = _problem(source)
        if problem is not None:
            raise SourceNotShared(source.name, f"a worker on {socket.gethostname()} does not see it ({problem})")


def check_listed(request: ScanRequest, listed: Iterable[tuple[int, ListingPart, int]]) -> None:
    """Raise `SourceNotShared` if workers found no item in a part of a source in which this process finds one.

    `listed` has the number of each part's source, the part, and its number of items.
    """
    counts: dict[int, int] = {}
    empty: dict[int, list[ListingPart]] = {}
    for number, part, items in listed:
        counts[number] = counts.get(number, 0) + 1
        if not items:
            empty.setdefault(number, []).append(part)
    for number, parts in empty.items():
        source, step = request.sources[number], -(-len(parts) // SAMPLES_MAX)
        if any(_has_items(source, part) for part in parts[::step]):
            found = f"nothing in {len(parts):,} of {counts[number]:,} parts of it"
            raise SourceNotShared(source.name, f"workers found {found}, where this machine finds items")


def check_unread(request: ScanRequest, number: int, unread: Unread) -> None:
    """Raise `SourceNotShared` if workers could not read many items that this process can."""
    if not unread.failed or unread.failed < SHARE_MIN * unread.tried:
        return
    source = request.sources[number]
    if _readable(source, unread) * 2 >= len(unread.samples):
        counts = f"{unread.failed:,} of {unread.tried:,} items"
        raise SourceNotShared(source.name, f"workers could not read {counts} that this machine can ({unread.code})")


def _has_items(source: Source, part: ListingPart) -> bool:
    try:
        return any(len(batch) for batch in list_part(source, part, lambda _: None))
    except StrandlineError:  # this machine does not see it either
        return False


def _readable(source: Source, unread: Unread) -> int:
    """Return the number of sample items that this process can read."""
    count = 0
    try:
        with source.open() as reader:
            for locator, extra in unread.samples:
                try:
                    reader.read(locator, extra)
                except ItemProblem:
                    continue
                count += 1
    except StrandlineError:  # the source as a whole is gone
        return 0
    return count


def _problem(source: Source) -> str | None:
    """Return the reason why a source cannot be read on this machine, or None."""
    try:
        match source:
            case FileSource(root=folder, only=only) | TableSource(files=FileSource(root=folder, only=only)):
                return _problem_of_folder(folder, is_listed=only is None)
            case JournalSource(folder=folder):
                return _problem_of_folder(folder, is_listed=True)
            case GitSource(git=git):  # its reader starts git only when it reads
                git.run("rev-parse", "--git-dir")
            case _:
                with source.open():
                    pass
    except StrandlineError as error:
        return str(error)
    return None


def _problem_of_folder(folder: bytes, *, is_listed: bool) -> str | None:
    try:
        if is_listed:
            os.scandir(folder).close()
        else:  # the folder of one file need not be readable
            os.stat(folder)  # noqa: PTH116 - a path of bytes
    except OSError as error:
        return f"{path_text(folder)}: {problem_of(error)}"
    return None
