"""What the commands of `strandline replica` share: how a replica is named and opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

from strandline.errors import InvalidInput
from strandline.objects import ObjectStore, open_objects
from strandline.replica import Layout

ReplicaAddress = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="The replica: s3://BUCKET/PREFIX, gs://…, az://…, or file:///FOLDER.", show_default=False
    ),
]


@contextmanager
def replica_at(address: str, *, conditional: bool = False) -> Iterator[tuple[ObjectStore, Layout]]:
    """Open a replica for the block; `conditional` to write to it."""
    folder = Path(unquote(address.removeprefix("file://")))
    if not conditional and address.startswith("file://") and not folder.exists():
        raise InvalidInput(f"{folder}: there is no such folder", hint="give the address that `replica run` was given")
    store = open_objects(address, conditional=conditional)
    try:
        yield store, Layout(store)
    finally:
        store.close()
