"""Whether workers see what the driver listed: sources are paths, and each machine has its own unless they are shared.

A worker of a cluster looks for the sources before it takes a shard. After the run the driver tries some of the items
that workers did not find: those that it can read itself are not gone.

Invariants: nothing is written; an item that is gone for everybody is no error.
"""

import os
import socket
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import StrandlineError
from strandline.scan.errors import SourceNotShared
from strandline.scan.request import ScanRequest
from strandline.scan.sources import FileSource, GitSource, ItemProblem, JournalSource, Problem, Source, TableSource
from strandline.scan.sources.errors import problem_of
from strandline.scan.sources.source import path_text

UNREAD = (Problem.VANISHED, Problem.PERMISSION_DENIED, Problem.IO_ERROR)
"""What workers say of files that they do not see as the driver does."""
SHARE_MIN = 0.1
SAMPLES_MAX = 20


@dataclass
class Unread:
    """Items of one source that workers tried to read, and those that they could not; some of these are samples."""

    tried: int = 0
    failed: int = 0
    code: str = ""
    samples: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def add(self, listed: pa.RecordBatch, codes: pa.Array) -> None:
        """Add items that were to be read, and what became of them."""
        unread = pc.is_in(codes, pa.array([code.value for code in UNREAD]))
        self.tried += len(listed)
        self.failed += unread.true_count
        if unread.true_count and len(self.samples) < SAMPLES_MAX:
            self.code = self.code or codes.filter(unread)[0].as_py()
            chosen = listed.filter(unread).slice(0, SAMPLES_MAX - len(self.samples))
            self.samples += zip(chosen["locator"].to_pylist(), chosen["extra"].to_pylist(), strict=True)


def check_sources(request: ScanRequest) -> None:
    """Refuse, in a worker, to work on sources that this machine does not have."""
    for source in request.sources:
        problem = _problem(source)
        if problem is not None:
            raise SourceNotShared(source.name, f"a worker on {socket.gethostname()} does not see it ({problem})")


def check_unread(request: ScanRequest, number: int, unread: Unread) -> None:
    """Refuse a result in which workers could not read much of what this process can."""
    if not unread.failed or unread.failed < SHARE_MIN * unread.tried:
        return
    source = request.sources[number]
    if _readable(source, unread) * 2 >= len(unread.samples):
        counts = f"{unread.failed:,} of {unread.tried:,} items"
        raise SourceNotShared(source.name, f"workers could not read {counts} that this machine can ({unread.code})")


def _readable(source: Source, unread: Unread) -> int:
    """Return how many of the samples this process can read."""
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
    """Return why a source cannot be read on this machine, if that is so."""
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
