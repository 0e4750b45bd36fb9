"""What the tests of `strandline journal` share: journals on the real disk, and running commands in this process."""

import subprocess
import sys
from pathlib import Path

from strandline.journal import Journal, JournalConfig
from strandline.journal.segment import parse_segment_name
from tests.cli.runs import Ran, run_command
from tests.waiting import PATIENCE_S

CONFIG = JournalConfig(segment_bytes_max=4096, reserve_bytes_max=0)
SCRIPT = [sys.executable, "-c", "from strandline.cli import main; main()", "journal"]


def run(*arguments: str | Path) -> Ran:
    """Run `strandline journal …` in this process, with errors reported as `main` does."""
    return run_command("journal", *arguments)


def run_process(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `strandline journal …` as a process of its own."""
    command = [*SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, **options)  # type: ignore[call-overload,no-any-return]


def make_journal(path: Path, *, appends: int = 60) -> Path:
    """Write a journal of several segments, three records an append, and close it."""
    with Journal.open(path, CONFIG) as journal:
        for number in range(appends):
            journal.append([f"{number}.{i} ".encode() * 8 for i in range(3)])
    return path


def segments_of(path: Path) -> list[Path]:
    """Return the segment files, in order."""
    return sorted(found for found in path.iterdir() if parse_segment_name(found.name) is not None)


def flip(path: Path, position: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def snapshot(path: Path) -> dict[str, bytes]:
    """Return every file below a folder with its bytes."""
    return {str(found.relative_to(path)): found.read_bytes() for found in sorted(path.rglob("*")) if found.is_file()}
