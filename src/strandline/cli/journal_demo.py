"""`strandline journal demo`: a writer is killed in the middle of its work, and nothing that it was promised is lost.

The writer is another process: its threads append durably, and name each append on a pipe after it was acknowledged. So
what this process has read from the pipe was promised before the kill, and must be there after it.
"""

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit
from strandline.errors import InvalidInput, StrandlineError
from strandline.events import Event, Events
from strandline.files import OsDisk
from strandline.journal import Journal, JournalConfig, TornTailCut, examine

THREADS = 4
RECORDS_PER_APPEND = 8
SEGMENT_BYTES_MAX = 256 * 1024
START_S = 30
_CHILD = "import sys; from strandline.cli.journal_demo import write_for_ever; write_for_ever(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One append that another process was promised."""

    writer: int
    number: int
    base_offset: int


def format_acknowledged(done: Acknowledged) -> str:
    """Return a line for the pipe."""
    return f"{done.writer} {done.number} {done.base_offset}\n"


def parse_acknowledged(line: str) -> Acknowledged | None:
    """Return what a line says, or None where the kill cut it short."""
    words = line.split(" ")
    return Acknowledged(*map(int, words)) if line.endswith("\n") and len(words) == 3 else None  # noqa: PLR2004


def values_of(writer: int, number: int) -> list[bytes]:
    """Return the records of one append, which tell who wrote them."""
    return [f"writer {writer}, append {number}, record {i}".encode() for i in range(RECORDS_PER_APPEND)]


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, in figures."""

    path: str
    acknowledged_records: int
    acknowledged_per_s: float
    survived_records: int
    torn_bytes: int
    reopen_s: float
    segments: int
    verified_bytes: int
    verify_s: float
    scan_rows: int
    scan_s: float


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Leave the journal in this new or empty folder.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=60, help="How long the writer may write.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Kill a writer in the middle of its work, and check that everything acknowledged is there.

    Exit code 1 if any of it is not.
    """
    with _folder(keep) as folder:
        if not as_json:
            print(f"{THREADS} threads of another process append to a journal in {folder}, each append durable.")
        acknowledged, taken_s = _write_and_kill(folder, seconds)
        if not as_json:
            records = len(acknowledged) * RECORDS_PER_APPEND
            print(
                f"Killed it (SIGKILL) after {taken_s:.1f} s: by then {records:,} records were acknowledged, "
                f"{records / taken_s:,.0f} a second."
            )
        story = _check(folder, acknowledged, taken_s)
        if as_json:
            emit(asdict(story), as_json=True)
        else:
            _tell(story)
            if keep is not None:
                print(f"The journal is in {keep}: try `strandline journal inspect {keep}`.")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="strandline-demo-") as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InvalidInput(f"{keep}: this is not an empty folder", hint="give a new one")
    yield keep


def write_for_ever(path: str) -> None:
    """Append from several threads until killed; what the child process of the demonstration does."""
    journal = Journal.open(path, JournalConfig(segment_bytes_max=SEGMENT_BYTES_MAX))
    threads = [threading.Thread(target=_write, args=(journal, writer)) for writer in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write(journal: Journal, writer: int) -> None:
    number = 0
    while True:
        receipt = journal.append(values_of(writer, number))
        sys.stdout.write(format_acknowledged(Acknowledged(writer, number, receipt.base_offset)))
        sys.stdout.flush()
        number += 1


def _write_and_kill(folder: Path, seconds: float) -> tuple[list[Acknowledged], float]:
    """Let a child write for a while, kill it, and return what it was promised."""
    command = [sys.executable, "-c", _CHILD, str(folder)]
    acknowledged: list[Acknowledged] = []
    killer: threading.Timer | None = None
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603 - a command of our own
        guard = threading.Timer(START_S, child.kill)
        guard.start()
        for line in child.stdout or ():
            if killer is None:
                began = time.perf_counter()
                killer = threading.Timer(seconds, child.kill)
                killer.start()
            done = parse_acknowledged(line)
            acknowledged += [] if done is None else [done]
        taken_s = time.perf_counter() - began
        guard.cancel()
    if child.returncode != -signal.SIGKILL or not acknowledged:
        raise StrandlineError(f"the writer ended by itself, with {child.returncode}", hint="its message is above")
    return acknowledged, taken_s


def _check(folder: Path, acknowledged: list[Acknowledged], taken_s: float) -> Story:
    """Reopen, look for every record that was promised, verify, and scan; raise if a promise was not kept."""
    cuts: list[Event] = []
    began = time.perf_counter()
    with Journal.open(folder, events=Events(cuts.append)) as journal:
        reopen_s = time.perf_counter() - began
        values = [value for batch in journal.scan(journal.first_offset) for value in batch.values()]
        missing = [done for done in acknowledged if not _is_there(values, done)]
        if missing:
            raise StrandlineError(f"{len(missing):,} acknowledged appends are not there, such as {missing[0]}")
        began = time.perf_counter()
        rows = sum(batch.to_arrow().num_rows for batch in journal.scan(0))
        scan_s = time.perf_counter() - began
    began = time.perf_counter()
    found = examine(OsDisk(), folder, deep=True)
    verify_s = time.perf_counter() - began
    found.refuse_damage(folder)
    if not rows == len(values) == found.next_offset:
        raise StrandlineError(f"{rows:,} rows, {len(values):,} records and {found.next_offset:,} offsets: not the same")
    records = len(acknowledged) * RECORDS_PER_APPEND
    return Story(
        path=str(folder),
        acknowledged_records=records,
        acknowledged_per_s=records / taken_s,
        survived_records=len(values),
        torn_bytes=sum(cut.bytes for cut in cuts if isinstance(cut, TornTailCut)),
        reopen_s=reopen_s,
        segments=len(found.segments),
        verified_bytes=sum(scan.end_position for scan in found.segments),
        verify_s=verify_s,
        scan_rows=rows,
        scan_s=scan_s,
    )


def _is_there(values: list[bytes], done: Acknowledged) -> bool:
    end = done.base_offset + RECORDS_PER_APPEND
    return values[done.base_offset : end] == values_of(done.writer, done.number)


def _tell(story: Story) -> None:
    extra = story.survived_records - story.acknowledged_records
    torn = f"cut a torn tail of {story.torn_bytes:,} bytes" if story.torn_bytes else "nothing was torn"
    print(f"Opened it again in {story.reopen_s * 1000:.0f} ms; {torn}.")
    print(f"All {story.acknowledged_records:,} are there, each at its offset, unchanged", end="")
    print(f"; so are {extra:,} whose acknowledgement was still on its way." if extra else ".")
    print(
        f"Verified {story.verified_bytes:,} bytes in {story.segments} segments in {story.verify_s * 1000:.0f} ms, "
        f"and scanned {story.scan_rows:,} rows to Arrow in {story.scan_s * 1000:.0f} ms "
        f"({story.scan_rows / story.scan_s / 1e6:.1f} million a second)."
    )
    print("What was acknowledged survived.")
