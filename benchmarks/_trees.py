"""Trees of real source text to scan: what this machine has of Python and C, copied as often as the size asks for."""

import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

SUFFIXES = frozenset(
    [
        ".c",
        ".css",
        ".h",
        ".hpp",
        ".html",
        ".js",
        ".json",
        ".md",
        ".py",
        ".pyi",
        ".sh",
        ".sql",
        ".toml",
        ".txt",
        ".xml",
        ".yaml",
        ".yml",
    ]
)
_FILE_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree that was made."""

    path: Path
    files: int
    bytes: int


def source_tree(folder: Path, bytes_min: int) -> Tree:
    """Fill a new folder with at least so many bytes of source text; every copy of a file differs in its first line."""
    files = total = 0
    for copy in count():
        for number, (path, data) in enumerate(_sources()):
            if total >= bytes_min:
                return Tree(folder, files, total)
            target = folder / f"copy{copy}" / f"{number % 500:03}" / f"{number}-{path.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            text = f"# copy {copy} of file {number}\n".encode() + data
            target.write_bytes(text)
            files, total = files + 1, total + len(text)
        if not files:
            raise SystemExit("this machine has no source text to make a tree of")
    raise AssertionError("count() does not end")


def _sources() -> Iterator[tuple[Path, bytes]]:
    seen = set()
    for root in map(Path, (sysconfig.get_paths()["stdlib"], *site.getsitepackages(), sys.prefix, "/usr/include")):
        for base, folders, names in os.walk(root):
            folders.sort()
            for path in sorted(Path(base, name) for name in names if Path(name).suffix in SUFFIXES):
                if path.is_symlink() or path.resolve() in seen or path.stat().st_size > _FILE_BYTES_MAX:
                    continue
                seen.add(path.resolve())
                yield path, path.read_bytes()
