"""Options that the commands of `strandline fold` share, and how entries are printed."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.shown import escape, json_field
from strandline.errors import InvalidInput
from strandline.fold import Backend, FoldEntry, FoldReader, existing_backend, open_read_only
from strandline.fold.addresses import connect_bucket
from strandline.kv import NotSupported, Retention, VersionToken
from strandline.nats.settings import NatsSettings
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairMode

BucketAddress = Annotated[
    str, typer.Argument(metavar="BUCKET", help="The bucket: nats://HOST:PORT/NAME, or tls://…", show_default=False)
]
FoldPath = Annotated[Path, typer.Argument(metavar="PATH", help="The path of the fold.", show_default=False)]
BucketOption = Annotated[
    str | None, typer.Option("--bucket", metavar="BUCKET", help="Also ask the bucket: nats://HOST:PORT/NAME.")
]
BackendOption = Annotated[
    Backend | None, typer.Option("--backend", help="The store of a new fold.", show_default="by the name of PATH")
]
Prefixes = Annotated[
    list[str] | None,
    typer.Option("--prefix", help="Only keys below this prefix, which ends with a dot; may be repeated."),
]
Creds = Annotated[
    Path | None, typer.Option("--creds", envvar="NATS_CREDS", help="A creds file, or a file with an nkey's seed.")
]
TlsCa = Annotated[Path | None, typer.Option("--tls-ca", envvar="NATS_CA", help="The authority of the server (PEM).")]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", envvar="NATS_CERT", help="The client's certificate (PEM).")]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", envvar="NATS_KEY", help="The key of the client's certificate (PEM).")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Time limit of each request, in seconds.")]


class Repair(Enum):
    """The source of repairs of a fold that has missed updates."""

    AUTO = "auto"
    RELIST = "relist"
    RESTORE = "restore"
    NONE = "none"

    @property
    def mode(self) -> RepairMode:
        """Return the mode of the protocol."""
        return RepairMode[self.name]


RepairOption = Annotated[
    Repair,
    typer.Option(
        "--repair",
        help="How to repair missed updates: from the bucket's listing where it is complete, else from an artifact "
        "(auto), from the listing unless it is known to be incomplete (relist), from an artifact (restore), or not at "
        "all, which keeps missed deletes (none).",
    ),
]


BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="ADDRESS",
        help="Make a missing or damaged fold of the newest artifact at s3://…, gs://…, az://… or file:///…, and repair "
        "from it.",
    ),
]


class Mode(Enum):
    """The mode of a fold."""

    MIRROR = "mirror"
    ARCHIVE = "archive"

    @property
    def fold_mode(self) -> FoldMode:
        """Return the mode of the protocol."""
        return FoldMode[self.name]


ModeOption = Annotated[
    Mode | None,
    typer.Option(
        "--mode",
        help="A mirror removes keys that the bucket evicts; an archive keeps them, and removes deleted keys only.",
        show_default="mirror for a new fold",
    ),
]


def fold_mode(mode: Mode | None) -> FoldMode | None:
    """Return the mode of the option, None without one."""
    return None if mode is None else mode.fold_mode


def connection_settings(
    creds: Path | None, ca: Path | None, cert: Path | None, key: Path | None, timeout_s: float
) -> NatsSettings:
    """Return how to connect, apart from where, which the bucket's address says."""
    return NatsSettings(
        creds_file=_text(creds), tls_ca=_text(ca), tls_cert=_text(cert), tls_key=_text(key), timeout_s=timeout_s
    )


async def bucket_retention(address: str, settings: NatsSettings) -> tuple[str, Retention]:
    """Return the name of a bucket, and what it says of its log."""
    async with connect_bucket(address, settings) as store:
        watcher = store.watcher()
        if watcher is None:
            raise NotSupported(f"watching bucket {store.name!r}")
        return store.name, await watcher.retention()


def check_existing(path: Path) -> None:
    """Raise `InvalidInput` with a hint if there is no fold."""
    if existing_backend(path) is None:
        raise InvalidInput(f"{path}: there is no fold", hint="check the path; `strandline fold run` creates one")


def open_existing(path: Path) -> FoldReader:
    """Open a fold for reading, while another process may keep it up to date; `InvalidInput` if there is none."""
    check_existing(path)
    return open_read_only(path)


def revision_of(version: VersionToken) -> int | None:
    """Return the revision that an entry's version stands for, None if it is unknown."""
    return int.from_bytes(version, "big") if version else None


def entry_record(entry: FoldEntry, *, as_json: bool) -> Mapping[str, object]:
    """Return an entry as a record to print."""
    revision = revision_of(entry.version)
    if as_json:
        return dict([json_field("key", entry.key), ("revision", revision), json_field("value", entry.value)])
    return {"key": escape(entry.key), "revision": revision, "value": escape(entry.value)}


def _text(path: Path | None) -> str:
    return "" if path is None else str(path)
