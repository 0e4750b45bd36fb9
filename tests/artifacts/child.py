"""A process that exports or imports a fold, and dies at the n-th change of the file system."""

import os
import sys
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

from strandline.artifacts import export_fold, import_fold
from strandline.fold import open_fold

CHANGES = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link"}
"""The events of Python's audit that stand for changes; `open` also for reading."""


def die_at(number: int) -> None:
    """End this process at a change of the file system, counted from 1, before it is made."""
    left = number

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event in CHANGES:
            left -= 1
            if left == 0:
                os._exit(9)

    sys.addaudithook(hook)


def run(told: Connection, folder: str, name: str, action: str, number: int) -> None:
    """Export `name`, or import the artifact that there is, and die on the way."""
    place = Path(folder)
    if action == "export":
        with closing(open_fold(place / name)) as store:
            die_at(number)
            export_fold(store, place / "artifact")
    else:
        die_at(number)
        import_fold(place / "artifact", place / "copy")
    told.send("done")
