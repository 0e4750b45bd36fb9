"""`strandline journal bench`: a few seconds of measuring this machine's disk with a journal, checked before printed."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from strandline.cli.output import AsJson, emit_rows, progress
from strandline.errors import InvalidInput, StrandlineError
from strandline.files import storage_errors
from strandline.journal import SYNCED, WRITTEN, Durability, Journal

BATCHES = (1, 100, 1000)
BYTES_MAX = 256 * 1024 * 1024
"""One measurement stops here at the latest, so that a small disk is not filled."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How long something took."""

    what: str
    batch: int | None
    records: int
    payload_bytes: int
    calls: int
    seconds: float

    def row(self) -> dict[str, object]:
        """Return the figures for programs."""
        return {
            "what": self.what,
            "batch": self.batch,
            "records_per_s": round(self.records / self.seconds),
            "bytes_per_s": round(self.payload_bytes / self.seconds),
            "us_per_call": round(self.seconds / self.calls * 1e6, 1),
        }

    def row_for_people(self) -> dict[str, object]:
        """Return the figures for people."""
        return {
            "what": self.what,
            "batch": "" if self.batch is None else f"{self.batch:>5,}",
            "records/s": f"{self.records / self.seconds:>11,.0f}",
            "payload/s": f"{decimal(int(self.payload_bytes / self.seconds)):>9}",
            "per call": f"{self.seconds / self.calls * 1e6:>9,.0f} µs",
        }


def bench(
    path: Annotated[Path, typer.Argument(help="A folder on the disk to measure.")] = Path(),
    seconds: Annotated[float, typer.Option(min=0.01, max=60, help="How long each measurement may take.")] = 0.4,
    record_bytes: Annotated[int, typer.Option(min=8, max=1024 * 1024, help="How long a record is.")] = 128,
    as_json: AsJson = False,
) -> None:
    """Measure appending and scanning in a new folder below PATH, which is removed afterwards."""
    if not path.is_dir():
        raise InvalidInput(f"{path}: there is no such folder", hint="give a folder on the disk to measure")
    title = f"journal, records of {record_bytes:,} bytes"
    with storage_errors(path), tempfile.TemporaryDirectory(prefix="strandline-bench-", dir=path) as folder:
        rows = list(_measure_all(Path(folder), seconds, record_bytes))
    emit_rows([row.row() if as_json else row.row_for_people() for row in rows], as_json=as_json, title=title)


def _measure_all(folder: Path, seconds: float, record_bytes: int) -> Iterator[Measured]:
    with progress("measuring", 2 * len(BATCHES) + 1) as advance:
        for durability in (WRITTEN, SYNCED):
            for batch in BATCHES:
                with Journal.open(folder / f"{durability.value}-{batch}") as journal:
                    yield _measure_append(journal, durability, batch, record_bytes, seconds)
                advance(1)
        with Journal.open(folder / f"{WRITTEN.value}-{BATCHES[-1]}") as journal:
            yield _measure_scan(journal, record_bytes)
        advance(1)


def _measure_append(journal: Journal, durability: Durability, batch: int, size: int, seconds: float) -> Measured:
    values = [number.to_bytes(8, "little").ljust(size, b".") for number in range(batch)]
    calls_max = max(1, BYTES_MAX // (batch * size))
    began = now = time.perf_counter()
    calls = 0
    while calls < calls_max and now - began < seconds:
        journal.append(values, durability=durability)
        calls += 1
        now = time.perf_counter()
    journal.sync()
    if journal.next_offset != calls * batch or journal.fetch(journal.next_offset - 1).value != values[-1]:
        raise StrandlineError(f"{journal.path}: what was appended is not there", hint="do not trust this disk")
    return Measured(f"append {durability.name}", batch, calls * batch, calls * batch * size, calls, now - began)


def _measure_scan(journal: Journal, size: int) -> Measured:
    began = time.perf_counter()
    rows = batches = 0
    for batch in journal.scan(0):
        rows += batch.to_arrow().num_rows
        batches += 1
    taken = time.perf_counter() - began
    if rows != journal.next_offset:
        raise StrandlineError(f"{journal.path}: {rows:,} records of {journal.next_offset:,} were read back")
    return Measured("scan to Arrow", None, rows, rows * size, batches, taken)
