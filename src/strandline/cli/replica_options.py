"""What the commands of `strandline replica` share: how a replica is named and opened, how an application is started."""

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from strandline.errors import InvalidInput
from strandline.objects import ObjectStore, RequestCounts, local_folder, open_objects
from strandline.replica import Layout

ReplicaAddress = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="The replica: s3://BUCKET/PREFIX, gs://…, az://…, or file:///FOLDER.", show_default=False
    ),
]


@contextmanager
def replica_at(
    address: str, *, conditional: bool = False, counts: RequestCounts | None = None
) -> Iterator[tuple[ObjectStore, Layout]]:
    """Open a replica for the block; `conditional` to write to it, `counts` to count its requests."""
    folder = None if conditional else local_folder(address)
    if folder is not None and not folder.exists():
        raise InvalidInput(f"{folder}: there is no such folder", hint="give the address that `replica run` was given")
    store = open_objects(address, conditional=conditional, counts=counts)
    try:
        yield store, Layout(store)
    finally:
        store.close()


def start_command(command: str) -> subprocess.Popen[bytes]:
    """Start a command; `InvalidInput` where it cannot be."""
    try:
        return subprocess.Popen(shlex.split(command))  # noqa: S603 - the user's own
    except (OSError, ValueError, IndexError) as error:
        hint = "give a program and its arguments as a shell would take them; for more use: sh -c '…'"
        raise InvalidInput(f"--exec {command!r} cannot be started: {error}", hint=hint) from error
