"""Repositories, tables and journals made by tests, and short ways to list and read."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strandline.scan.sources import Source
from strandline.scan.sources.source import left_out as left_out_of

AN_HOUR_NS = 3_600_000_000_000
NAME = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")


def ignore(_: int) -> None:
    """Hear how far a listing is."""


def listed(source: Source) -> list[dict[str, Any]]:
    """Return a listing's rows."""
    return [row for batch in source.list_items(ignore) for row in batch.to_pylist()]


def locators(source: Source) -> list[bytes]:
    """Return what a listing names."""
    return [row["locator"] for row in listed(source)]


def problems(source: Source) -> dict[bytes, str]:
    """Return what a listing cannot read, and why."""
    return {row["locator"]: row["problem"] for row in listed(source) if row["problem"]}


def left_out(source: Source) -> dict[str, int]:
    """Return what a listing left out."""
    *_, last = source.list_items(ignore)
    return left_out_of(last)


def contents(source: Source) -> dict[bytes, list[bytes]]:
    """Return the parts of all items that can be read."""
    with source.open() as reader:
        return {
            row["locator"]: [part.data for part in reader.read(row["locator"], row["extra"]).parts]
            for row in listed(source)
            if row["problem"] is None
        }


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Write files, and the folders they are in."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def age(path: Path, by_ns: int = AN_HOUR_NS) -> None:
    """Make a file's modification time older; its change time is now."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - by_ns))


class Repository:
    """A git repository that a test fills."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", *options)

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run a command in it and return what it says."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        command = ["git", *NAME, "-C", str(self.path), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def commit(self, files: dict[str, bytes], message: str = "a change", remove: Iterable[str] = ()) -> str:
        """Write and commit files, and return the commit's id."""
        write(self.path, files)
        for name in remove:
            (self.path / name).unlink()
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def blob(self, data: bytes) -> bytes:
        """Store a blob and return its id."""
        return self.git("hash-object", "-w", "--stdin", stdin=data).encode()
