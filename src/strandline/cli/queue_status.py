"""`strandline queue status`: how far the groups of a queue are."""

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit_rows
from strandline.errors import InvalidInput, Locked
from strandline.queue import Queue, format_address

Place = Annotated[
    str, typer.Argument(metavar="PLACE", help="A queue's folder, or the address where a process serves it (unix://…).")
]


def status(place: Place, as_json: AsJson = False) -> None:
    """Show the progress of each group of a queue, also while a process serves it.

    `backlog` counts messages that a group has not acknowledged, those in flight and waiting among them.
    """
    with _open(place) as queue:
        rows = [row._asdict() for row in queue.status()]
    emit_rows(rows, as_json=as_json)
    if not rows and not as_json:
        print("no groups yet")


def _open(place: str) -> Queue:
    if place.startswith("unix://"):
        return Queue.connect(place)
    folder = Path(place)
    if not (folder / "messages").is_dir():
        raise InvalidInput(f"{folder}: there is no queue here", hint="give a queue's folder, or unix://PATH")
    try:
        return Queue.open(folder)
    except Locked:
        if not (folder / "socket").is_socket():
            raise
        return Queue.connect(format_address(folder / "socket"))
