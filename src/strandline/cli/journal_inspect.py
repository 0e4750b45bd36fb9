"""`strandline journal inspect`: what a journal is, without changing it; works beside a writer."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from strandline.cli.journal_folder import JournalPath, count_places, has_writer, look, require_journal, time_of
from strandline.cli.output import AsJson, emit, emit_rows
from strandline.errors import FormatError
from strandline.files import OsDisk, storage_errors
from strandline.journal import Examination
from strandline.journal.batch import BadBatch
from strandline.journal.examination import SegmentScan
from strandline.journal.recovery import QUARANTINE_NAME
from strandline.journal.segment import SEGMENT_HEADER_BYTES, format_segment_name, parse_segment_header


def inspect(path: JournalPath, as_json: AsJson = False) -> None:
    """Show what a journal holds: identity, offsets, segments, its writer, and what is torn or damaged.

    Nothing is changed, and a writer may be at work. Sealed segments are not read; `verify` reads everything.
    """
    require_journal(path)
    with storage_errors(path):
        writer = has_writer(path)
        found = look(path)
        segments = list(_segments(path, found))
        kept = _files_in(path / QUARANTINE_NAME)
    if as_json:
        state = {"writer": writer, "torn": found.torn, "damage": found.damage}
        emit({**_summary(path, found), **state, "quarantine": kept, "segments": segments}, as_json=True)
    else:
        emit({**_summary(path, found), **_state(found, writer=writer, kept=len(kept))}, as_json=False)
        emit_rows(segments, as_json=False)
    found.refuse_damage(path)


def _summary(path: Path, found: Examination) -> dict[str, object]:
    return {
        "path": path,
        "identity": None if found.identity is None else found.identity.hex(),
        "first_offset": found.first_offset,
        "next_offset": found.next_offset,
        "durable_offset": min(found.proof, found.next_offset),
        "bytes": sum(scan.size for scan in found.segments),
    }


def _state(found: Examination, *, writer: bool, kept: int) -> dict[str, object]:
    torn = found.torn
    shown: dict[str, object] = {"writer": "at work" if writer else "none"}
    if torn is not None:
        after = "a write that is not finished" if writer else "opening cuts them off"
        shown["torn"] = f"{torn.bytes:,} bytes at the end were never acknowledged ({torn.problem}); {after}"
    shown["damage"] = f"{count_places(found.damage)} damaged" if found.damage else "none seen; verify reads everything"
    if kept:
        shown["quarantine"] = f"{kept} files that a repair moved aside"
    if found.foreign:
        shown["foreign"] = ", ".join(found.foreign)
    return shown


def _segments(path: Path, found: Examination) -> Iterator[dict[str, object]]:
    for scan in found.segments:
        yield {
            "segment": format_segment_name(scan.base_offset),
            "base_offset": scan.base_offset,
            "end_offset": scan.end_offset,
            "records": scan.end_offset - scan.base_offset,
            "bytes": scan.size,
            "created": time_of(scan.created_ns or _created_ns(path, scan)),
            "last_append": time_of(scan.last_append_ns),
        }


def _created_ns(path: Path, scan: SegmentScan) -> int:
    """Return when a segment was made that was trusted, and so not read."""
    name = format_segment_name(scan.base_offset)
    with suppress(BadBatch, FormatError), closing(OsDisk().open(path / name, "read")) as file:
        return parse_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0), name).created_ns
    return 0


def _files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
