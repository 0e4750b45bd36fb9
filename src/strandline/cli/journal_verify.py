"""`strandline journal verify`: read everything and check it; the exit code tells whether it is whole."""

import time
from pathlib import Path

from rich.filesize import decimal

from strandline.cli.journal_folder import JournalPath, count_places, has_writer, look, reading, require_journal
from strandline.cli.output import AsJson, emit
from strandline.files import OsDisk, storage_errors
from strandline.journal import Examination
from strandline.journal.index import format_index_name
from strandline.journal.repair_plan import checkpoint_problem, index_is_wrong


def verify(path: JournalPath, as_json: AsJson = False) -> None:
    """Read a whole journal, check every batch, and say what is wrong; exit code 3 where durable data is damaged.

    Bytes at the end that were never acknowledged are a torn tail: reported, but not damage. Works beside a writer.
    """
    require_journal(path)
    began = time.perf_counter()
    with storage_errors(path), reading(path, "reading") as tell:
        writer = has_writer(path)
        found = look(path, deep=True, tell=tell)
        seconds = time.perf_counter() - began
        notes = [] if writer or found.damage else _notes(path, found)
    if as_json:
        figures = {**_figures(found), "seconds": round(seconds, 6)}
        state = {"whole": not found.damage, "writer": writer, "torn": found.torn, "damage": found.damage}
        emit({"path": path, **state, **figures, "notes": notes}, as_json=True)
    else:
        _tell(path, found, seconds, notes, writer=writer)
    found.refuse_damage(path)


def _figures(found: Examination) -> dict[str, int]:
    good = [stretch for scan in found.segments for stretch in scan.stretches if stretch.problem is None]
    lost = sum(scan.lost for scan in found.segments)
    return {
        "records": sum(stretch.end_offset - stretch.first_offset for stretch in good) - lost,
        "lost": lost,
        "batches": sum(scan.batches for scan in found.segments),
        "segments": len(found.segments),
        "bytes": sum(stretch.end - stretch.position for stretch in good),
    }


def _tell(path: Path, found: Examination, seconds: float, notes: list[str], *, writer: bool) -> None:
    figures = _figures(found)
    size = figures["bytes"]
    print(
        f"{path}: checked {figures['records']:,} records in {figures['batches']:,} batches and "
        f"{figures['segments']:,} segments, {decimal(size)} in {seconds:.2f} s ({decimal(int(size / seconds))}/s)"
    )
    if figures["lost"]:
        print(f"{figures['lost']:,} offsets are marked as lost by an earlier repair")
    if found.torn is not None:
        after = "a writer is at work" if writer else "the next opening cuts them off"
        print(f"torn tail: {found.torn.bytes:,} bytes that were never acknowledged ({found.torn.problem}); {after}")
    for note in notes:
        print(f"note: {note}")
    for damage in found.damage:
        print(f"damaged: {damage.describe()}")
    print(f"{count_places(found.damage)} damaged" if found.damage else "whole")


def _notes(path: Path, found: Examination) -> list[str]:
    """Say what can be made again from the segments: no data is at stake, but opening or reading is slower."""
    disk = OsDisk()
    problem = checkpoint_problem(disk, path, found) if found.segments else None
    notes = [] if problem is None else [f"{problem}; opening writes it anew"]
    for scan in found.segments:
        if index_is_wrong(disk, path, scan, active=scan is found.segments[-1]):
            name = format_index_name(scan.base_offset)
            notes.append(f"{name} is missing or wrong; `strandline journal repair` rebuilds it")
    return notes
