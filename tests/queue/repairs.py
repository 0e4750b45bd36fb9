"""Damage to a journal's durable bytes, and its repair, as the command line would do it."""

from contextlib import closing
from pathlib import Path

from strandline.files import Disk
from strandline.journal.repair import apply_repair, plan_repair
from strandline.journal.segment import SEGMENT_HEADER_BYTES, format_segment_name, parse_segment_name, walk


def damage(disk: Disk, folder: Path, offset: int) -> None:
    """Flip a byte of the batch that holds an offset."""
    bases = [base for name in disk.names(folder) if (base := parse_segment_name(name)) is not None and base <= offset]
    path = folder / format_segment_name(max(bases))
    with closing(disk.open(path, "write")) as file:
        for position, batch in walk(file, SEGMENT_HEADER_BYTES, max(bases)):
            if batch.base_offset <= offset < batch.next_offset:
                at = position + batch.stored_bytes - 9
                file.pwritev([bytes([file.pread(1, at)[0] ^ 1])], at)
                file.sync()
                return
    raise AssertionError(f"offset {offset} is not there")


def repair(disk: Disk, folder: Path) -> None:
    """Move damaged bytes aside."""
    plan = plan_repair(disk, folder)
    assert plan.steps
    apply_repair(disk, folder, plan)
