"""The state of scans, as the commands open it: stores, tenant and key behind `--state`, `--tenant` and `--key-file`.

    .strandline/pipeline.db                  the stores, made on first use by `strandline scan`
    .strandline/tenant-<name>.key            the tenant's key, made on first use, for its owner alone
    .strandline/.gitignore                   so that no state is ever committed

A `postgresql://…` address is taken as it is, and the key file must be given: many machines share that state, and each
needs the same key.

Invariants: a command that only reads makes nothing; no message and no `repr` shows an address with its password.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.state_key import tenant_key
from strandline.errors import InvalidInput
from strandline.files import OsDisk, storage_errors
from strandline.pipeline.coordination.coordinator import LEASE_TTL_NS
from strandline.pipeline.identity import TenantId, TenantSecretKey
from strandline.pipeline.stores import Stores, is_like_server, open_stores
from strandline.scan.tenants import tenant_named

DEFAULT_STATE = ".strandline"
DEFAULT_TENANT = "default"
_SERVERS = ("postgresql://", "postgres://")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

StateOption = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="DIR|postgresql://…",
        envvar="STRANDLINE_STATE",
        help="Where results are kept: a folder of this machine, or a PostgreSQL database.",
    ),
]
TenantOption = Annotated[
    str, typer.Option("--tenant", metavar="NAME", envvar="STRANDLINE_TENANT", help="Whose results they are.")
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        envvar="STRANDLINE_KEY_FILE",
        help="The key that hides secrets in what is kept; by default one in the state folder.",
    ),
]
CoordinationOption = Annotated[
    str | None,
    typer.Option(
        "--coordination",
        metavar="etcd://…",
        envvar="STRANDLINE_COORDINATION",
        help="Keep runs and shards in an etcd.",
    ),
]


class StateMissing(InvalidInput):
    """There are no results at the place that was named."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder}: there are no results here",
            hint="run `strandline scan` first, or name the place that it used with --state",
        )
        self.folder = folder


@dataclass(frozen=True)
class State:
    """Stores, and whose they are; `address` and `coordination` are for others who open them too."""

    stores: Stores
    address: str = field(repr=False)
    coordination: str | None = field(repr=False)
    tenant: TenantId
    name: str
    key: TenantSecretKey
    folder: Path | None


@contextmanager
def open_state(
    where: str = DEFAULT_STATE,
    *,
    tenant: str = DEFAULT_TENANT,
    key_file: Path | None = None,
    coordination: str | None = None,
    create: bool = False,
    lease_ttl_ns: int = LEASE_TTL_NS,
) -> Iterator[State]:
    """Open the state for the block; with `create` what is missing is made and what is old brought up to date.

    Without it, a place where nothing was kept yet is `StateMissing`.
    """
    if not _NAME.fullmatch(tenant):
        raise InvalidInput(
            f"{tenant!r} cannot name a tenant",
            hint="a name has up to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit",
        )
    folder = state_folder(where)
    if folder is not None:
        _prepare(folder, create=create)
    elif key_file is None:
        raise InvalidInput(
            "a state on a server needs --key-file: every machine must hide secrets under the same key",
            hint="make one with `openssl rand -hex 32 > tenant.key && chmod 600 tenant.key`, and keep a copy of it",
        )
    address = where if folder is None else str(folder / "pipeline.db")
    with open_stores(address, coordination=coordination, lease_ttl_ns=lease_ttl_ns, migrate=create) as stores:
        who = tenant_named(tenant)
        path = key_file or (folder or Path()) / f"tenant-{tenant}.key"
        key = tenant_key(stores.state, who, tenant, path, create=create, is_ours=key_file is None)
        yield State(stores, address, coordination, who, tenant, key, folder)


def state_folder(where: str) -> Path | None:
    """Return the state folder, absolute, whether or not it is there; None for the address of a server."""
    if where.startswith(_SERVERS):
        return None
    folder = Path(where).absolute()
    if is_like_server(where) or is_like_server(str(folder)):
        raise InvalidInput(
            "--state is neither a folder nor the address of a server that is known",
            hint="give a folder whose path has no `://` and no `password=` in it, or postgresql://user@host/database",
        )
    return folder


def _not_a_folder(path: Path) -> InvalidInput:
    return InvalidInput(f"--state {path}: this is not a folder", hint="name one; `strandline scan` makes it")


def _prepare(folder: Path, *, create: bool) -> None:
    """Make the state folder if that may be; otherwise it has to be there."""
    if not create:
        if folder.is_file():
            raise _not_a_folder(folder)
        if not (folder / "pipeline.db").exists():
            raise StateMissing(folder)
        return
    if folder.exists() and not folder.is_dir():
        raise _not_a_folder(folder)
    with storage_errors(folder):
        if not folder.is_dir():
            OsDisk().make_folder(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / ".gitignore").write_text("*\n")
            OsDisk().sync_folder(folder.parent)
